// From values to pixels: linear and logarithmic scales, their ticks, and the axes drawn from them.

// {to(value), from(pixel), ticks, is_log}. `domain` and `range` are [low, high]; a log scale needs a positive domain.
function make_scale(domain, range, is_log, ticks) {
  const forward = is_log ? Math.log : (v) => v, back = is_log ? Math.exp : (v) => v;
  const low = forward(domain[0]) / 2,
        span = forward(domain[1]) / 2 - low || 1;  // halves: a difference of doubles may be infinite
  return {
    is_log,
    domain,
    range,
    ticks,
    to: (value) => range[0] + (forward(value) / 2 - low) / span * (range[1] - range[0]),
    from: (pixel) => back(2 * (low + (pixel - range[0]) / (range[1] - range[0]) * span)),
  };
}

function nice_step(low, high, count) {
  const rough = high / count - low / count, power = 10 ** Math.floor(Math.log10(rough)), share = rough / power;
  return (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10) * power;
}

function linear_ticks(low, high, count) {
  if (!(high > low)) return [low];
  const step = nice_step(low, high, count), ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    const tick = i * step;
    ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : Number(tick.toPrecision(12)));
    if (ticks.length > 100) break;
  }
  return ticks;
}

// As many of 1, 2, 5, ... times powers of ten as there is room for; of many decades every second, third, ...
function log_ticks(low, high, count) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const ticks_of = (steps, every) => {
    const ticks = [];
    for (let e = first; e <= last; ++e) {
      if (((e % every) + every) % every !== 0) continue;
      for (const m of steps) {
        const tick = Number((m * 10 ** e).toPrecision(6));
        if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push(tick);
      }
    }
    return ticks;
  };
  for (const steps of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const ticks = ticks_of(steps, 1);
    if (ticks.length <= count + 1)
      return ticks.length >= 2 ? ticks : linear_ticks(low, high, count).filter((tick) => tick > 0);
  }
  return ticks_of([1], Math.ceil((last - first) / count));
}

// A scale around values: rounded outwards to ticks, or on a log scale with a little room.
function scale_for(values, range, is_log, count, from_zero = false) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value) || (is_log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) [low, high] = is_log ? [1, 10] : [0, 1];
  if (is_log) {
    if (high / low < 1.02) [low, high] = [low / 1.5, high * 1.5];
    const room = Math.exp(0.03 * (Math.log(high) - Math.log(low)));  // the quotient itself may be infinite
    [low, high] = [Math.max(low / room, Number.MIN_VALUE), Math.min(high * room, Number.MAX_VALUE)];
    return make_scale([low, high], range, true, log_ticks(low, high, count));
  }
  if (from_zero && low > 0) low = 0;
  if (from_zero && high < 0) high = 0;
  if (high === low) {
    const room = Math.abs(low) * 0.1 || 1;
    [low, high] = [low - room, high + room];
  }
  const step = nice_step(low, high, count), room = high * 0.02 - low * 0.02;
  const down = Math.floor(low / step), up = Math.ceil(high / step);
  low = low - down * step < step * 0.5 ? down * step : low - room;
  high = up * step - high < step * 0.5 ? up * step : high + room;
  [low, high] = [Math.max(low, -Number.MAX_VALUE), Math.min(high, Number.MAX_VALUE)];
  return make_scale([low, high], range, false, linear_ticks(low, high, count));
}

// Whether values are easier to read on a log axis: all above 0, and far apart.
function spans_decades(values, factor = 20) {
  let low = Infinity, high = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value <= 0) return false;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return high / low >= factor;
}

function chart_text(content, attributes) {
  return svg('text', {'font-size': 12, fill: 'var(--ink)', ...attributes}, content);
}

// Axes with a grid, in the box {left, right, top, bottom} of pixels.
function draw_axes(target, box, x, y, labels) {
  const grid = svg('g', {stroke: 'var(--grid)', 'stroke-width': 1, class: 'grid'}),
        words = svg('g', {'font-size': 12, class: 'ticks'});
  let last_right = -Infinity;
  for (const tick of x ? x.ticks : []) {
    const at = x.to(tick).toFixed(1), text = tick_text(labels.x_format(tick)), half = text_width(text, 12) / 2;
    grid.append(svg('line', {x1: at, x2: at, y1: box.top, y2: box.bottom}));
    if (Number(at) - half < last_right + 8) continue;
    last_right = Number(at) + half;
    words.append(chart_text(text, {
      x: Math.min(Number(at), box.right + 12 - half).toFixed(1),
      y: box.bottom + 17,
      'text-anchor': 'middle',
      fill: 'var(--soft)'
    }));
  }
  for (const tick of y ? y.ticks : []) {
    const at = y.to(tick).toFixed(1);
    grid.append(svg('line', {x1: box.left, x2: box.right, y1: at, y2: at}));
    words.append(chart_text(
        tick_text(labels.y_format(tick)),
        {x: box.left - 7, y: Number(at) + 4, 'text-anchor': 'end', fill: 'var(--soft)'}));
  }
  target.append(
      grid, words, svg('line', {x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: 'var(--axis)'}));
  if (labels.x) {
    const text = fitted(labels.x, box.right, 12.5), half = text_width(text, 12.5) / 2;
    const middle = Math.max(half + 2, Math.min(box.right + 8 - half, (box.left + box.right) / 2));
    target.append(
        chart_text(text, {x: middle.toFixed(1), y: box.bottom + 37, 'text-anchor': 'middle', 'font-size': 12.5}));
  }
}

// What the y axis shows, above it.
function draw_y_title(target, text, width, top) {
  target.append(chart_text(fitted(text, width - 8, 12.5), {x: 2, y: top - 11, 'font-size': 12.5}));
}

// "10 MB" for "10.0 MB": a tick is a round number.
function tick_text(text) {
  return text.replace(/(\d)\.0+(?=\s|$)|(\.\d*[1-9])0+(?=\s|$)/, '$1$2');
}
