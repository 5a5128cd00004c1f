// A whole chart of lines: legend, axes, titles, the strip for what is not finite, and the lines in it.

const LOG = ', log scale';

// spec: title, lines (as in lines.js), log_x, log_y, x_words, y_words, x_format, y_format, heights [wide, narrow],
// margin (pixels inside of the axes), hover_title(x), x_scale(box) where the x axis is not of numbers: then intervals
// are shown whole. Returns {drawing, notes, hover, box, x, y}.
function draw_line_chart(spec, width, standalone) {
  const {lines, log_x, log_y} = spec, chart = drawing(width, 100, spec.title), margin = spec.margin || 0;
  const head = standalone ? draw_legend(chart, lines, width, 4) : 0, strip = has_strip(lines) ? STRIP : 0;
  const top = head + 30 + strip, bottom = top + spec.heights[width < 520 ? 1 : 0];
  const box = {left: 0, right: width - 14, top, bottom};
  const y = scale_for(y_values(lines, log_y, log_x, Boolean(spec.x_scale)), [bottom, top], log_y, 6);
  box.left = Math.max(40, ...y.ticks.map((tick) => text_width(spec.y_format(tick), 12) + 12));
  const xs = lines.flatMap((line) => [line.points, ...line.singles].flat().map((point) => point.x));
  const range = [box.left + margin, box.right - margin], count = Math.max(3, Math.floor((range[1] - range[0]) / 100));
  const x = spec.x_scale ? spec.x_scale(box) : scale_for(xs, range, log_x, count);
  set_height(chart, width, bottom + 46);
  draw_axes(
      chart, box, x, y, {x: spec.x_words + (x.is_log ? LOG : ''), x_format: spec.x_format, y_format: spec.y_format});
  draw_y_title(chart, spec.y_words + (y.is_log ? LOG : ''), width, top - strip);
  if (strip) draw_strip(chart, box);
  if (lines.every((line) => line.points.length === 0)) {
    const middle = {x: (box.left + box.right) / 2, y: (top + bottom) / 2, 'text-anchor': 'middle'};
    chart.append(chart_text('nothing to show', middle));
  }
  const drawn = draw_lines(chart, box, lines, x, y);
  const hover = {box, x, lines, title: spec.hover_title, format: spec.y_format};
  return {drawing: chart, notes: drawn.notes, hover, box, x, y};
}
