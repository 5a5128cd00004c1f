// Lines with intervals as bands, drawn so that 10^5 points are no burden: at most four of a line in each column of
// pixels.

const STRIP = 18;  // pixels at the top edge for what is not finite

// Of the points of each column of pixels the first, the lowest, the highest and the last, in their order.
function thinned(points) {
  const kept = [];
  for (let i = 0; i < points.length;) {
    const column = Math.floor(points[i].px);
    let end = i + 1, low = i, high = i;
    for (; end < points.length && Math.floor(points[end].px) === column; ++end) {
      if (points[end].py < points[low].py) low = end;
      if (points[end].py > points[high].py) high = end;
    }
    let before = -1;
    for (const at of [i, Math.min(low, high), Math.max(low, high), end - 1]) {
      if (at > before) kept.push(points[at]);
      before = Math.max(before, at);
    }
    i = end;
  }
  return kept;
}

function path_of(points) {
  return points.map((point, i) => (i ? 'L' : 'M') + point.px.toFixed(1) + ' ' + point.py.toFixed(1)).join('');
}

// A line breaks where a point is not finite, and where a log scale has no place for it.
function pieces_of(points, x, y) {
  const pieces = [[]];
  for (const point of points) {
    if (!has_place(point, x, y)) {
      if (pieces.at(-1).length) pieces.push([]);
      continue;
    }
    pieces.at(-1).push({px: x.to(point.x), py: y.to(point.y), source: point});
  }
  return pieces.filter((piece) => piece.length > 0);
}

function has_place(point, x, y) {
  return Number.isFinite(point.y) && !(y.is_log && point.y <= 0) && !(x.is_log && point.x <= 0);
}

function draw_band(target, points, x, y, box, colour) {
  const usable = points.filter((point) => has_place(point, x, y) && is_number(point.low));
  if (usable.length < 2) return;
  const clamp = (py) => Math.max(box.top, Math.min(box.bottom, py));
  const height = (value) => clamp(y.is_log && value <= 0 ? box.bottom : y.to(value));
  const edge = (key) => usable.map((point) => ({px: x.to(point.x), py: height(point[key])}));
  const d = path_of(thinned(edge('high'))) + path_of(thinned(edge('low')).reverse()).replace('M', 'L') + 'Z';
  target.append(svg('path', {d, fill: colour, 'fill-opacity': 0.14, class: 'band'}));
}

// Markers along a line, few and not where those of other lines are.
function draw_markers(target, piece, style, order, box) {
  const spacing = Math.max(60, (box.right - box.left) / 7);
  let next = piece[0].px +
      (piece.length > 1 ? (0.35 + 0.61 * order % 1) * Math.min(spacing, (piece.at(-1).px - piece[0].px) / 2) : 0);
  for (const point of piece) {
    if (point.px < next) continue;
    target.append(marker(style.marker, point.px, point.py, 3.6, style.colour));
    next = point.px + spacing;
  }
}

// One line, in pieces. Returns how many points were drawn.
function draw_line(target, points, x, y, style, width, opacity) {
  let drawn = 0;
  for (const piece of pieces_of(points, x, y)) {
    const kept = thinned(piece), stroke = {stroke: style.colour, 'stroke-width': width, 'stroke-opacity': opacity};
    drawn += kept.length;
    if (kept.length > 1) {
      const shape = {'stroke-dasharray': style.dash, 'stroke-linejoin': 'round', fill: 'none', class: 'line'};
      target.append(svg('path', {d: path_of(kept), ...stroke, ...shape}));
    } else if (opacity === 1) {
      target.append(marker(style.marker, kept[0].px, kept[0].py, 3.6, style.colour));
    }
  }
  return drawn;
}

// A cross where a line ends because a run diverged.
function draw_end(target, line, end) {
  target.append(svg(
      'g', {class: 'diverged'}, svg('title', {}, line.label + ': diverged'),
      marker('cross', end.px, end.py, 6, 'var(--surface)'), marker('cross', end.px, end.py, 5.5, line.style.colour)));
}

// What is not finite stands in the strip: a cross for NaN, triangles for the infinities; one for each pair of pixels.
function draw_not_finite(target, line, points, x, top) {
  let last = -Infinity;
  for (const point of points) {
    if (Number.isFinite(point.y) || (x.is_log && point.x <= 0)) continue;
    const at = x.to(point.x), kind = Number.isNaN(point.y) ? 'cross' : point.y > 0 ? 'triangle' : 'down';
    if (Math.abs(at - last) < 2) continue;
    last = at;
    target.append(
        svg('g', {class: 'not-finite'}, svg('title', {}, line.label + ': ' + number_text(point.y)),
            marker(kind, at, top - STRIP / 2, 4, line.style.colour)));
  }
}

// lines: [{index, label, style, points, singles: [[points]], has_diverged}]. Returns notes in words.
function draw_lines(target, box, lines, x, y) {
  const plot = svg('g', {class: 'lines'});
  let drawn = 0;
  for (const line of lines) draw_band(plot, line.points, x, y, box, line.style.colour);
  for (const line of lines) {
    for (const points of line.singles) drawn += draw_line(plot, points, x, y, {...line.style, dash: ''}, 1, 0.45);
  }
  for (const line of lines) {
    drawn += draw_line(plot, line.points, x, y, line.style, 2.2, 1);
    const pieces = pieces_of(line.points, x, y);
    for (const piece of pieces.filter((one) => one.length > 1)) draw_markers(plot, piece, line.style, line.index, box);
    if (line.has_diverged && pieces.length) draw_end(plot, line, pieces.at(-1).at(-1));
    for (const points of [line.points, ...line.singles]) draw_not_finite(plot, line, points, x, box.top);
  }
  target.append(plot);
  return {notes: notes_on(lines, x, y, drawn)};
}

// What is not in the drawing, and why.
function notes_on(lines, x, y, drawn) {
  const notes = [], count = (number) => number.toLocaleString('en-US');
  const points = lines.flatMap((line) => [line.points, ...line.singles].flat());
  const finite = points.filter((point) => Number.isFinite(point.y));
  const places = finite.filter((point) => has_place(point, x, y)).length;
  const at_start = x.is_log && finite.some((point) => point.x <= 0);
  const below = y.is_log ? finite.filter((point) => point.y <= 0).length : 0;
  if (drawn < places) {
    notes.push(
        'Drawn are ' + count(drawn) + ' of ' + count(points.length) +
        ' points: of each line and column of pixels the first, the lowest, the highest and the last.');
  }
  if (at_start) notes.push('What is at 0 of the x axis, the start, has no place on a log scale.');
  if (below) notes.push(count(below) + ' points at or below 0 have no place on a log scale.');
  return notes;
}

function has_strip(lines) {
  return lines.some((line) => [line.points, ...line.singles].flat().some((point) => !Number.isFinite(point.y)));
}

function draw_strip(target, {left, right, top}) {
  const place = {x: left, y: top - STRIP, width: right - left, height: STRIP - 3};
  target.append(
      svg('rect', {...place, fill: 'var(--grid)', class: 'strip'}),
      chart_text('not finite', {x: left + 4, y: top - 6, 'font-size': 11, fill: 'var(--soft)'}));
}

// Values that decide the range of the y axis: all of the lines, and of their bands not more than half as much again on
// each side, unless `whole`.
function y_values(lines, is_log, log_x, whole) {
  const has_x = (point) => !(log_x && point.x <= 0),
        has_y = (value) => Number.isFinite(value) && !(is_log && value <= 0);
  const points = lines.flatMap((line) => [line.points, ...line.singles].flat()).filter(has_x);
  const values = points.map((point) => point.y).filter(has_y);
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const room = is_log ? Math.sqrt(high / low) : high / 2 - low / 2;
  const least = is_log ? low / room : low - room, most = is_log ? high * room : high + room;
  for (const {low, high} of points) {
    if (whole) {
      values.push(...[low, high].filter(has_y));
    } else if (has_y(low)) {
      values.push(Math.max(least, low), Math.min(most, high));
    }
  }
  return values;
}
