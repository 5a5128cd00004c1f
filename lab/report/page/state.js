// What the reader has set: kept in the address behind #, so that a reload and a shared link show the same view.

const settings = new URLSearchParams(location.hash.slice(1));
const redraws = new Map();  // from functions to which settings they follow

function setting(key, otherwise) {
  return settings.has(key) ? settings.get(key) : otherwise;
}

// `value` null: back to what it is by itself.
function set(key, value) {
  if (value === null || value === undefined)
    settings.delete(key);
  else
    settings.set(key, String(value));
  const hash = settings.toString();
  history.replaceState(null, '', hash ? '#' + hash : location.pathname + location.search);
  redraw_for(key);
}

// Calls `redraw` when a setting changes that `follows(key)` says it follows.
function on_change(redraw, follows) {
  redraws.set(redraw, follows);
}

// `key` null: all may have changed.
function redraw_for(key) {
  for (const [redraw, follows] of redraws)
    if (key === null || follows(key)) redraw();
}

// Lines that are switched off, in all charts that share a legend.
function hidden(group) {
  return new Set(setting('off.' + group, '').split(',').filter((one) => one !== '').map(Number));
}

function set_hidden(group, indices) {
  const sorted = Array.from(indices).sort((a, b) => a - b);
  set('off.' + group, sorted.length ? sorted.join(',') : null);
}

function follow_address() {
  window.addEventListener('hashchange', () => {
    for (const key of Array.from(settings.keys())) settings.delete(key);
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) settings.set(key, value);
    redraw_for(null);
  });
}
