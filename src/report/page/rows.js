// Charts with a row for each method: intervals (forest plot), single runs as dots, and numbers in words at the right.

// Marks: {kind: "interval", low, high} a line with ends; "value", x: the row's marker; "dot", x: a run; "censored", x: a run that ended
// before; "median", x: a line across; "bar", low, high, colour: a part of a stack.
function draw_mark(target, mark, scale, middle, style, box) {
  const y = middle + (mark.shift || 0);
  const at = (value) => Math.max(box.left - 6, Math.min(box.right + 6, scale.to(value)));
  const line = (x1, x2, y1, y2, width) => svg("line", {x1: x1.toFixed(1), x2: x2.toFixed(1), y1, y2, stroke: style.colour, "stroke-width": width});
  const group = svg("g", {class: "mark " + mark.kind}, mark.hint && svg("title", {}, mark.hint));
  if (mark.kind === "interval") {
    const low = at(mark.low), high = at(mark.high);
    group.append(line(low, high, y, y, 2), line(low, low, y - 5, y + 5, 2), line(high, high, y - 5, y + 5, 2));
  } else if (mark.kind === "value") {
    group.append(marker(mark.marker || style.marker, at(mark.x), y, 5.5, style.colour, mark.is_open));
  } else if (mark.kind === "dot") {
    group.append(svg("circle", {cx: at(mark.x).toFixed(1), cy: y.toFixed(1), r: 3, fill: style.colour, "fill-opacity": 0.65}));
  } else if (mark.kind === "censored") {
    const x = at(mark.x);
    group.append(svg("line", {x1: x, x2: x + 17, y1: y.toFixed(1), y2: y.toFixed(1), stroke: style.colour, "stroke-width": 1.6, "stroke-dasharray": "3 2"}),
        marker("right", x + 18, y, 4, style.colour, true), marker("circle", x, y, 4, style.colour, true));
  } else if (mark.kind === "median") {
    group.append(line(at(mark.x), at(mark.x), y - 9, y + 9, 3));
  } else {
    const low = scale.to(mark.low), high = scale.to(mark.high);
    group.append(svg("rect", {x: low.toFixed(1), y: y - 9, width: Math.max(0, high - low).toFixed(1), height: 18, fill: mark.colour,
                              stroke: "var(--surface)", "stroke-width": 1}));
    if (mark.text && text_width(mark.text, 11) + 8 < high - low) {
      group.append(chart_text(mark.text, {x: ((low + high) / 2).toFixed(1), y: y + 4, "text-anchor": "middle", "font-size": 11, fill: "var(--surface)"}));
    }
  }
  target.append(group);
}

function values_of(mark) {
  return [mark.x, mark.low, mark.high].filter((value) => value !== undefined);
}

// spec: id, title, caption, rows() -> [{label, style, text, marks}], axis: {words, format, is_log, from_zero, at (a line across all)},
// key() -> [{label, style or colour}] what marks mean, csv() -> rows.
function row_chart(spec) {
  const draw = (width, standalone) => {
    const rows = spec.rows(), {axis} = spec, is_narrow = width < 600, chart = drawing(width, 100, spec.title);
    const label_room = Math.min(width * 0.3, Math.max(40, ...rows.map((row) => text_width(row.label.slice(0, 200), 13))) + 36);
    const text_room = Math.min(width * (is_narrow ? 0.68 : 0.4), Math.max(0, ...rows.map((row) => text_width(row.text || "", 12))) + 16);
    const pitch = is_narrow ? 52 : 34, top = (standalone ? 30 : 12) + (spec.key ? draw_key(chart, spec.key(), width, standalone ? 26 : 2) : 0);
    const box = is_narrow ? {left: 14, right: width - 26} : {left: label_room, right: width - text_room - 22};
    Object.assign(box, {top, bottom: top + Math.max(1, rows.length) * pitch});
    const values = rows.flatMap((row) => row.marks.flatMap(values_of)).concat(axis.at === undefined ? [] : [axis.at]);
    const x = scale_for(values, [box.left, box.right], axis.is_log, Math.max(3, Math.floor((box.right - box.left) / 90)), axis.from_zero);
    if (standalone) chart.append(chart_text(fitted(spec.title, width - 8, 14), {x: 4, y: 16, "font-size": 14, "font-weight": 600}));
    draw_axes(chart, box, x, null, {x: axis.words + (axis.is_log ? ", log scale" : ""), x_format: axis.format});
    if (axis.at !== undefined) {
      const at = x.to(axis.at);
      chart.append(svg("line", {x1: at, x2: at, y1: box.top, y2: box.bottom, stroke: "var(--axis)", "stroke-width": 1.6}));
    }
    rows.forEach((row, i) => {
      const middle = box.top + pitch * (i + 0.5) + (is_narrow ? 10 : 0), line = is_narrow ? middle - 18 : middle + 4;
      const room = is_narrow ? width - text_room - 40 : label_room - 30;
      chart.append(svg("g", {class: "row"}, svg("title", {}, row.label),
          marker(row.style.marker, is_narrow ? 7 : 9, line - 4, 4.5, row.style.colour),
          chart_text(fitted(row.label, Math.max(30, room), 13), {x: is_narrow ? 18 : 20, y: line, "font-size": 13})));
      for (const mark of row.marks) draw_mark(chart, mark, x, middle, row.style, box);
      chart.append(chart_text(fitted(row.text || "", text_room, 12),
          {x: width - 4, y: line, "text-anchor": "end", fill: row.is_quiet ? "var(--soft)" : "var(--ink)"}));
    });
    if (rows.length === 0) chart.append(chart_text("nothing to show", {x: width / 2, y: box.top + pitch / 2, "text-anchor": "middle"}));
    chart.setAttribute("height", box.bottom + 46);
    chart.setAttribute("viewBox", "0 0 " + width + " " + (box.bottom + 46));
    return {drawing: chart, notes: spec.notes ? spec.notes() : []};
  };
  return figure({...spec, draw, rows: spec.csv});
}

// What the marks of a chart mean, in a line above it. Returns its height.
function draw_key(target, items, width, top) {
  let x = 4, y = top;
  for (const item of items) {
    const needed = 22 + text_width(item.label, 12) + 16;
    if (x > 4 && x + needed > width) { x = 4; y += 18; }
    target.append(item.draw ? item.draw(x + 8, y + 8) : svg("rect", {x: x + 1, y: y + 2, width: 13, height: 13, fill: item.colour}),
        chart_text(item.label, {x: x + 22, y: y + 13, fill: "var(--soft)"}));
    x += needed;
  }
  return y + 24 - top;
}
