// A page of a run in progress loads itself again, and comes back to where the reader was.

const SCROLLED = 'sparsewire.scrolled';

// When all charts are drawn.
function return_to_place() {
  const place = Number(sessionStorage.getItem(SCROLLED));
  sessionStorage.removeItem(SCROLLED);
  if (!(place > 0)) return;
  history.scrollRestoration = 'manual';
  window.scrollTo(0, place);
}

function follow(live) {
  if (!live || live.finished) return null;
  const every = Math.max(1, Number(live.every) || 5);
  const said = html('span', {role: 'status'}),
        button = html('button', {type: 'button', click: () => set('paused', is_paused() ? null : 1)});
  const is_paused = () => setting('paused') === '1';
  const say = () => {
    said.textContent = is_paused() ? 'In progress; the page does not follow it now. ' :
                                     'In progress: the page loads itself again every ' + number_text(every) + ' s. ';
    button.textContent = is_paused() ? 'Go on' : 'Pause';
  };
  // Not while the reader types a number or chooses from a list.
  const is_busy = () => document.hidden ||
      (document.activeElement && ['INPUT', 'SELECT'].includes(document.activeElement.tagName) &&
       document.activeElement.type !== 'checkbox');
  setInterval(() => {
    if (is_paused() || is_busy()) return;
    sessionStorage.setItem(SCROLLED, String(window.scrollY));
    location.reload();
  }, every * 1000);
  redraws.add(say);
  say();
  return html('p', {class: 'live controls'}, said, button);
}
