// A page of a run in progress loads itself again. The browser returns to where the reader was, since charts are drawn
// before the first paint (draw_figures); settings are in the address.

const PATIENCE = 10000;  // milliseconds

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
  // Not while the reader types a number or chooses from a list, for a while.
  let touched = -Infinity;
  for (const event of ['pointerdown', 'keydown', 'input']) {
    window.addEventListener(event, () => {
      touched = performance.now();
    });
  }
  const is_busy = () => {
    const {activeElement: active} = document, is_input = active && active.matches('select, input[type="number"]');
    return document.hidden || (is_input && performance.now() - touched < PATIENCE);
  };
  setInterval(() => {
    if (is_paused() || is_busy()) return;
    location.reload();
  }, every * 1000);
  on_change(say, (key) => key === 'paused');
  say();
  return html('p', {class: 'live controls'}, said, button);
}
