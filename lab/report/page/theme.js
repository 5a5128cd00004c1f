// Colours are variables of page.css, so that a chart follows the theme without being drawn again. Line styles and
// markers tell lines apart without colours.

const FONT = 'system-ui, -apple-system, \'Segoe UI\', Roboto, \'DejaVu Sans\', sans-serif';
const COLOURS = 7;
const DASHES = ['', '7 3', '2 3', '9 3 2 3', '4 2', '11 4', '3 2', '6 2 2 2 2 2'];
const MARKERS = ['circle', 'square', 'triangle', 'diamond', 'cross', 'down', 'plus', 'star'];

function style_of(index) {
  // 7 colours and 8 line styles: only the 57th line is like the first.
  return {
    colour: 'var(--c' + (index % COLOURS) + ')',
    dash: DASHES[index % DASHES.length],
    marker: MARKERS[index % MARKERS.length]
  };
}

// A marker around (x, y); open ones are for what is not a plain value.
function marker(kind, x, y, size, colour, open = false) {
  const r = size,
        paint = open ? {fill: 'var(--surface)', stroke: colour, 'stroke-width': 1.6} :
                       {fill: colour, stroke: 'var(--surface)', 'stroke-width': 0.8};
  const path = (d, more) => svg('path', {d, ...paint, ...more});
  const at = (dx, dy) => (x + dx * r).toFixed(1) + ' ' + (y + dy * r).toFixed(1);
  const polygon = (...corners) => path('M' + corners.map(([dx, dy]) => at(dx, dy)).join('L') + 'Z');
  const strokes = (d) => path(d, {fill: 'none', stroke: colour, 'stroke-width': 2});
  switch (kind) {
    case 'square':
      return polygon([-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]);
    case 'triangle':
      return polygon([0, -1.1], [1.05, 0.8], [-1.05, 0.8]);
    case 'down':
      return polygon([0, 1.1], [1.05, -0.8], [-1.05, -0.8]);
    case 'right':
      return polygon([1.2, 0], [-0.8, 1.05], [-0.8, -1.05]);
    case 'diamond':
      return polygon([0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]);
    case 'cross':
      return strokes('M' + at(-0.9, -0.9) + 'L' + at(0.9, 0.9) + 'M' + at(-0.9, 0.9) + 'L' + at(0.9, -0.9));
    case 'plus':
      return strokes('M' + at(-1.1, 0) + 'L' + at(1.1, 0) + 'M' + at(0, -1.1) + 'L' + at(0, 1.1));
    case 'star':
      return polygon(...Array.from({length: 10}, (_, i) => {
        const length = i % 2 ? 0.55 : 1.3, angle = i * Math.PI / 5 - Math.PI / 2;
        return [length * Math.cos(angle), length * Math.sin(angle)];
      }));
    default:
      return svg('circle', {cx: x.toFixed(1), cy: y.toFixed(1), r, ...paint});
  }
}

const system_theme = window.matchMedia('(prefers-color-scheme: dark)');

// As the reader says, otherwise as the system does.
function apply_theme() {
  const wanted = setting('theme', '');
  const is_dark = wanted === 'dark' || (wanted !== 'light' && system_theme.matches);
  document.documentElement.dataset.theme = is_dark ? 'dark' : 'light';
}

function theme_switch() {
  const select = html(
      'select', {'aria-label': 'colours of the page', change: () => set('theme', select.value || null)},
      ['', 'light', 'dark'].map((value) => html('option', {value}, value ? value : 'as the system')));
  select.value = setting('theme', '');
  on_change(apply_theme, (key) => key === 'theme');
  system_theme.addEventListener('change', apply_theme);
  return html('label', {class: 'theme'}, 'Colours ', select);
}
