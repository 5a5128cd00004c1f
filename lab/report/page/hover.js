// A guide that follows the pointer, or the arrow keys, and a box with the values of all lines there.

// `hover`: {box: {left, right, top, bottom}, x: scale, title(x) -> text, lines: [{label, style, points: [{x, y, low,
// high}], format}]}
function make_hover(plot) {
  const box = html('div', {class: 'hover', role: 'status', hidden: true});
  const state = {hover: null, guide: null, at: null};

  const hide = () => {
    box.hidden = true;
    state.at = null;
    if (state.guide) state.guide.setAttribute('visibility', 'hidden');
  };

  const show = (x) => {
    const {hover} = state, pixel = hover.x.to(x);
    state.at = x;
    state.guide.setAttribute('visibility', 'visible');
    state.guide.setAttribute('x1', pixel);
    state.guide.setAttribute('x2', pixel);
    const found = hover.lines.map((line) => ({line, point: value_at(line.points, x)})).filter((one) => one.point);
    found.sort(
        (a, b) =>
            (Number.isFinite(b.point.y) ? b.point.y : Infinity) - (Number.isFinite(a.point.y) ? a.point.y : Infinity));
    box.replaceChildren(
        html('strong', {}, hover.title(x)),
        html(
            'table', {},
            html(
                'tbody', {},
                found.slice(0, 30).map(
                    ({line, point}) => html(
                        'tr', {class: point.is_over ? 'over' : null}, html('td', {}, sample(line.style)),
                        html('th', {scope: 'row'}, html('bdi', {}, line.label)), html('td', {}, hover.format(point.y)),
                        html(
                            'td', {},
                            point.is_over ? 'at its end' :
                                is_number(point.low) ?
                                            '(' + hover.format(point.low) + ' to ' + hover.format(point.high) + ')' :
                                            ''))))));
    box.hidden = false;
    const room = plot.clientWidth - box.offsetWidth;
    box.style.left = Math.max(0, Math.min(room, pixel + 14 <= room ? pixel + 14 : pixel - 14 - box.offsetWidth)) + 'px';
    box.style.top = Math.max(0, hover.box.top) + 'px';
  };

  const move = (event) => {
    const {hover} = state;
    if (!hover) return;
    const bounds = plot.getBoundingClientRect(), pixel = event.clientX - bounds.left,
          height = event.clientY - bounds.top;
    if (pixel < hover.box.left - 8 || pixel > hover.box.right + 8 || height > hover.box.bottom + 4) return hide();
    const x = nearest_x(hover, pixel);
    if (x !== null && x !== state.at) show(x);
  };

  const press = (event) => {
    const {hover} = state;
    if (!hover) return;
    if (event.key === 'Escape') return hide();
    if (!['ArrowLeft', 'ArrowRight', 'Home', 'End'].includes(event.key)) return;
    const all = all_x(hover);
    if (all.length === 0) return;
    event.preventDefault();
    let i = state.at === null ? -1 : all.indexOf(state.at);
    const stride = Math.max(1, Math.round(all.length / 100)) * (event.shiftKey ? 10 : 1);
    if (event.key === 'Home')
      i = 0;
    else if (event.key === 'End')
      i = all.length - 1;
    else
      i = state.at === null ? 0 : i + (event.key === 'ArrowRight' ? stride : -stride);
    show(all[Math.max(0, Math.min(all.length - 1, i))]);
  };

  plot.addEventListener('pointermove', move);
  plot.addEventListener('pointerdown', move);
  plot.addEventListener('pointerleave', hide);
  return {
    box,
    attach(target, hover) {
      state.hover = hover || null;
      hide();
      state.guide = null;
      if (!hover) return;
      state.guide = svg('line', {
        y1: hover.box.top,
        y2: hover.box.bottom,
        stroke: 'var(--soft)',
        'stroke-dasharray': '3 3',
        visibility: 'hidden',
        class: 'guide'
      });
      target.append(state.guide);
      target.setAttribute('tabindex', '0');
      target.addEventListener('keydown', press);
      target.addEventListener('blur', hide);
    },
  };
}

// The first point at or after x.
function after(points, x) {
  let low = 0, high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// The value of a line at x: that of a point there, or on the line between two; its last one where it has ended. Nothing
// before its first.
function value_at(points, x) {
  const i = after(points, x);
  if (i < points.length && points[i].x === x) return points[i];
  if (i === 0) return null;
  if (i >= points.length) return {...points.at(-1), is_over: true};
  const a = points[i - 1], b = points[i], part = (x - a.x) / (b.x - a.x), between = (p, q) => p + part * (q - p);
  return {x, y: between(a.y, b.y), low: between(a.low, b.low), high: between(a.high, b.high)};
}

function nearest_x(hover, pixel) {
  const x = hover.x.from(pixel);
  let best = null;
  for (const line of hover.lines) {
    const i = after(line.points, x);
    for (const point of [line.points[i - 1], line.points[i]]) {
      if (point && (best === null || Math.abs(hover.x.to(point.x) - pixel) < Math.abs(hover.x.to(best) - pixel)))
        best = point.x;
    }
  }
  return best;
}

function all_x(hover) {
  return Array.from(new Set(hover.lines.flatMap((line) => line.points.map((point) => point.x)))).sort((a, b) => a - b);
}
