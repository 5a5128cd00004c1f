// Lines with intervals as bands, drawn so that 10^5 points are no burden: at most four of a line in each column of pixels.

const STRIP = 18;  // pixels at the top edge for what is not finite

// Of the points of each column of pixels the first, the lowest, the highest and the last, in their order.
function thinned(points) {
  const kept = [];
  for (let i = 0; i < points.length;) {
    const column = Math.floor(points[i].px);
    let end = i, low = i, high = i;
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
  return points.map((point, i) => (i ? "L" : "M") + point.px.toFixed(1) + " " + point.py.toFixed(1)).join("");
}

// A line breaks where a point is not finite, and where a log scale has no place for it.
function pieces_of(points, x, y) {
  const pieces = [[]];
  for (const point of points) {
    if (!has_place(point, x, y)) { if (pieces.at(-1).length) pieces.push([]); continue; }
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
  const edge = (key) => usable.map((point) => ({px: x.to(point.x), py: clamp(y.is_log && point[key] <= 0 ? box.bottom : y.to(point[key]))}));
  target.append(svg("path", {d: path_of(thinned(edge("high"))) + path_of(thinned(edge("low")).reverse()).replace("M", "L") + "Z",
                             fill: colour, "fill-opacity": 0.14, class: "band"}));
}

// Markers along a line, few and not where those of other lines are.
function draw_markers(target, piece, style, order, box) {
  const spacing = Math.max(60, (box.right - box.left) / 7);
  let next = piece[0].px + (piece.length > 1 ? (0.35 + 0.61 * order % 1) * Math.min(spacing, (piece.at(-1).px - piece[0].px) / 2) : 0);
  for (const point of piece) {
    if (point.px < next) continue;
    target.append(marker(style.marker, point.px, point.py, 3.6, style.colour));
    next = point.px + spacing;
  }
}

// lines: [{label, style, order, points, singles: [[points]], has_diverged}]. Returns what hover needs, and notes in words.
function draw_lines(target, box, lines, x, y, options) {
  const plot = svg("g", {class: "lines"}), notes = [];
  let drawn = 0, all = 0, at_the_start = 0, below = 0;
  const draw_one = (points, style, width, opacity) => {
    for (const piece of pieces_of(points, x, y)) {
      const kept = thinned(piece);
      drawn += kept.length;
      if (kept.length > 1) {
        plot.append(svg("path", {d: path_of(kept), fill: "none", stroke: style.colour, "stroke-width": width, "stroke-opacity": opacity,
                                 "stroke-dasharray": style.dash, "stroke-linejoin": "round", class: "line"}));
      } else if (opacity === 1) {
        plot.append(marker(style.marker, kept[0].px, kept[0].py, 3.6, style.colour));
      }
    }
    all += points.length;
    for (const point of points) {
      if (!Number.isFinite(point.y) || has_place(point, x, y)) continue;
      if (x.is_log && point.x <= 0) ++at_the_start; else ++below;
    }
  };
  for (const line of lines) draw_band(plot, line.points, x, y, box, line.style.colour);
  for (const line of lines) for (const single of line.singles) draw_one(single, {...line.style, dash: ""}, 1, 0.45);
  for (const line of lines) {
    draw_one(line.points, line.style, 2.2, 1);
    const pieces = pieces_of(line.points, x, y);
    for (const piece of pieces) if (piece.length > 1) draw_markers(plot, piece, line.style, line.order, box);
    if (line.has_diverged && pieces.length) {
      const end = pieces.at(-1).at(-1);
      plot.append(svg("g", {class: "diverged"}, svg("title", {}, line.label + ": diverged"), marker("cross", end.px, end.py, 6, "var(--surface)"),
          marker("cross", end.px, end.py, 5.5, line.style.colour)));
    }
  }
  let not_finite = 0;
  for (const line of lines) {
    let last = -Infinity;
    for (const points of [line.points, ...line.singles]) {
      for (const point of points) {
        if (Number.isFinite(point.y)) continue;
        ++not_finite;
        if (x.is_log && point.x <= 0) continue;
        const at = x.to(point.x);
        if (Math.abs(at - last) < 2) continue;
        last = at;
        const kind = Number.isNaN(point.y) ? "cross" : point.y > 0 ? "triangle" : "down";
        plot.append(svg("g", {class: "not-finite"}, svg("title", {}, line.label + ": " + number_text(point.y)),
            marker(kind, at, box.top - STRIP / 2, 4, line.style.colour)));
      }
    }
  }
  target.append(plot);
  if (drawn < all - at_the_start - below - not_finite) {
    notes.push("Drawn are " + drawn.toLocaleString("en-US") + " of " + all.toLocaleString("en-US") +
               " points: of each line and column of pixels the first, the lowest, the highest and the last.");
  }
  if (at_the_start) notes.push("What is at 0 of the x axis, the start, has no place on a log scale.");
  if (below) notes.push(below.toLocaleString("en-US") + " points at or below 0 have no place on a log scale.");
  return {notes, hover: {box, x, title: options.title, format: options.format, lines}};
}

function has_strip(lines) {
  return lines.some((line) => [line.points, ...line.singles].some((points) => points.some((point) => !Number.isFinite(point.y))));
}

function draw_strip(target, box) {
  target.append(svg("rect", {x: box.left, y: box.top - STRIP, width: box.right - box.left, height: STRIP - 3, fill: "var(--grid)", class: "strip"}),
      chart_text("not finite", {x: box.left + 4, y: box.top - 6, "font-size": 11, fill: "var(--soft)"}));
}

// Values that decide the range of the y axis: all of the lines, and of their bands not more than as much again on each side.
function y_values(lines, is_log, log_x) {
  const values = lines.flatMap((line) => [line.points, ...line.singles].flatMap((points) => points.filter((point) => !(log_x && point.x <= 0)).map((point) => point.y)))
      .filter((value) => Number.isFinite(value) && !(is_log && value <= 0));
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  const room = is_log ? Math.log(high / low) * 0.5 : (high - low) * 0.5;
  const least = is_log ? low / Math.exp(room) : low - room, most = is_log ? high * Math.exp(room) : high + room;
  for (const line of lines) {
    for (const point of line.points) {
      if (!is_number(point.low) || (is_log && point.low <= 0) || (log_x && point.x <= 0)) continue;
      values.push(Math.max(least, point.low), Math.min(most, point.high));
    }
  }
  return values;
}
