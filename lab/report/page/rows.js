// Charts with a row for each method: intervals (forest plot), single runs as dots, and numbers in words at the right.

// How each kind of mark is drawn: at(value) is a place on the x axis, y the middle of the row.
const MARKS = {
  // low, high: a line with ends
  interval: (mark, at, y, {colour}) => {
    const low = at(mark.low), high = at(mark.high);
    const line = (x1, x2, y1, y2) => svg('line', {x1, x2, y1, y2, stroke: colour, 'stroke-width': 2});
    return [line(low, high, y, y), line(low, low, y - 5, y + 5), line(high, high, y - 5, y + 5)];
  },
  // x: the row's marker, or another one
  value: (
      mark, at, y, {colour, marker: shape}) => [marker(mark.marker || shape, at(mark.x), y, 5.5, colour, mark.is_open)],
  // x: a run
  dot: (mark, at, y, {colour}) => [svg('circle', {cx: at(mark.x), cy: y, r: 3, fill: colour, 'fill-opacity': 0.65})],
  // x: a run that ended before
  censored: (mark, at, y, {colour}) => {
    const x = at(mark.x), dashes = {stroke: colour, 'stroke-width': 1.6, 'stroke-dasharray': '3 2'};
    return [
      svg('line', {x1: x, x2: x + 17, y1: y, y2: y, ...dashes}), marker('right', x + 18, y, 4, colour, true),
      marker('circle', x, y, 4, colour, true)
    ];
  },
  // x: a line across
  median: (mark, at, y, {colour}) => [svg(
      'line', {x1: at(mark.x), x2: at(mark.x), y1: y - 9, y2: y + 9, stroke: colour, 'stroke-width': 3})],
  // low, high, colour, text: a part of a stack
  bar: (mark, at, y) => {
    const low = at(mark.low), high = at(mark.high), has_room = text_width(mark.text, 11) + 8 < high - low;
    const shape = {x: low, y: y - 9, width: Math.max(0, high - low), height: 18};
    const middle = {x: (low + high) / 2, y: y + 4, 'text-anchor': 'middle', 'font-size': 11, fill: 'var(--surface)'};
    return [
      svg('rect', {...shape, fill: mark.colour, stroke: 'var(--surface)'}), has_room && chart_text(mark.text, middle)
    ];
  },
};

function draw_mark(target, mark, x, middle, style, box) {
  const at = (value) => Number(Math.max(box.left - 6, Math.min(box.right + 6, x.to(value))).toFixed(1));
  const parts = MARKS[mark.kind](mark, at, middle + (mark.shift || 0), style);
  target.append(svg('g', {class: 'mark ' + mark.kind}, mark.hint && svg('title', {}, mark.hint), parts));
}

// Wide: the label at the left, the text at the right. Narrow: both above the marks, below one another if need be.
function draw_row(chart, row, x, box, top, layout) {
  const {width, is_narrow, is_stacked, pitch, label_room, text_room} = layout;
  const middle = is_narrow ? top + pitch - 16 : top + pitch / 2, indent = is_narrow ? 7 : 9;
  const line = is_narrow ? top + 14 : middle + 4, ink = row.is_quiet ? 'var(--soft)' : 'var(--ink)';
  const room = Math.max(30, is_stacked ? width - 30 : is_narrow ? width - text_room - 40 : label_room - 30);
  const label = chart_text(fitted(row.label, room, 13), {x: indent + 11, y: line, 'font-size': 13});
  const place = is_stacked ? {x: indent + 11, y: line + 17} : {x: width - 4, y: line, 'text-anchor': 'end'};
  chart.append(
      svg('g', {class: 'row'}, svg('title', {}, row.label),
          marker(row.style.marker, indent, line - 4, 4.5, row.style.colour), label));
  for (const mark of row.marks) draw_mark(chart, mark, x, middle, row.style, box);
  chart.append(chart_text(fitted(row.text || '', is_stacked ? width - 30 : text_room, 12), {...place, fill: ink}));
}

function row_layout(rows, width) {
  const is_narrow = width < 600, longest = (texts, size) => Math.max(0, ...texts.map((text) => text_width(text, size)));
  const label = longest(rows.map((row) => row.label.slice(0, 200)), 13);
  const text_room = longest(rows.map((row) => row.text || ''), 12) + 16;
  const is_stacked = is_narrow && label + text_room + 40 > width, label_room = Math.min(width * 0.3, label + 36);
  const limit = width * (is_narrow ? 0.68 : 0.4), pitch = is_stacked ? 66 : is_narrow ? 50 : 34;
  return {width, is_narrow, is_stacked, pitch, label_room, text_room: Math.min(limit, text_room)};
}

// spec: id, title, caption, controls, rows() -> [{label, style, text, is_quiet, marks: [{kind, hint, ...}]}],
// axis: {words, format, is_log, from_zero, at (a line across all rows)}, key() -> what marks mean, csv() -> rows.
function row_chart(spec) {
  const {axis} = spec;
  const draw = (width, standalone) => {
    const rows = spec.rows(), layout = row_layout(rows, width), chart = drawing(width, 100, spec.title);
    if (standalone) draw_title(chart, spec.title, width);
    const head = standalone ? 26 : 2, top = head + 8 + (spec.key ? draw_key(chart, spec.key(), width, head) : 0);
    const left = layout.is_narrow ? 14 : layout.label_room, bottom = top + Math.max(1, rows.length) * layout.pitch;
    const box = {left, right: width - (layout.is_narrow ? 26 : layout.text_room + 22), top, bottom};
    const values = rows.flatMap((row) => row.marks.flatMap(({x, low, high}) => [x, low, high])).filter(is_number);
    if (axis.at !== undefined) values.push(axis.at);
    const count = Math.max(3, Math.floor((box.right - left) / 90));
    const x = scale_for(values, [left, box.right], axis.is_log, count, axis.from_zero);
    draw_axes(chart, box, x, null, {x: axis.words + (axis.is_log ? LOG : ''), x_format: axis.format});
    if (axis.at !== undefined) {
      const at = x.to(axis.at), line = {x1: at, x2: at, y1: top, y2: bottom};
      chart.append(svg('line', {...line, stroke: 'var(--axis)', 'stroke-width': 1.6}));
    }
    rows.forEach((row, i) => draw_row(chart, row, x, box, top + i * layout.pitch, layout));
    const middle = {x: width / 2, y: top + layout.pitch / 2, 'text-anchor': 'middle'};
    if (rows.length === 0) chart.append(chart_text('nothing to show', middle));
    return {drawing: set_height(chart, width, bottom + 46), notes: []};
  };
  return figure({...spec, draw, rows: spec.csv});
}

// The title of a chart that is saved.
function draw_title(target, text, width) {
  target.append(chart_text(fitted(text, width - 8, 14), {x: 4, y: 16, 'font-size': 14, 'font-weight': 600}));
}

// What the marks of a chart mean: [{label, draw(x, y) or colour}], in lines above it. Returns their height.
function draw_key(target, items, width, top) {
  let x = 4, y = top;
  for (const {label, draw, colour} of items) {
    const needed = 22 + text_width(label, 12) + 16;
    if (x > 4 && x + needed > width) {
      x = 4;
      y += 18;
    }
    const square = () => svg('rect', {x: x + 1, y: y + 2, width: 13, height: 13, fill: colour});
    target.append(draw ? draw(x + 8, y + 8) : square(), chart_text(label, {x: x + 22, y: y + 13, fill: 'var(--soft)'}));
    x += needed;
  }
  return y + 24 - top;
}
