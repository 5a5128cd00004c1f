// The chart of runs in progress: a column of the metrics against steps, bytes, bits or time.

function method_items(runs) {
  return report.data.methods.map((method, index) => ({index, label: method.label, style: style_of(index)}))
      .filter((item) => runs.some((run) => run.method === item.index));
}

// spec: id, title, caption, columns (offered on the y axis), first (which is shown), axis (key of the x axis at first)
function progress_chart(spec, runs) {
  const axes = axes_of(runs), key = (name) => spec.id + "." + name;
  const value = (name, otherwise) => setting(key(name), otherwise);
  const change = (name) => (to) => set(key(name), to === true ? 1 : to === false ? 0 : to);
  const column_now = () => (spec.columns.includes(value("y")) ? value("y") : spec.columns[0]);
  const axis_now = () => axes.find((axis) => axis.key === value("x", spec.axis)) || axes[0];
  const has_seeds = report.data.methods.some((_, index) => runs.filter((run) => run.method === index).length > 1);

  // What is drawn now: one line for each method that is switched on.
  const view = () => {
    const axis = axis_now(), y = column_now(), off = hidden("methods");
    const all = method_lines(runs, axis, y).map((line) => ({
      label: line.label, style: style_of(line.index), order: line.index, points: line.mean.points, has_diverged: line.mean.diverged,
      singles: value("seeds") === "1" && line.singles.length > 1 || line.mean.diverged && line.singles.length > 1
          ? line.singles.map((single) => single.points) : [],
      runs: line.singles, index: line.index,
    }));
    const lines = all.filter((line) => !off.has(line.index));
    const xs = lines.flatMap((line) => [line.points, ...line.singles].flatMap((points) => points.map((point) => point.x)));
    const ends = lines.flatMap((line) => line.points.slice(-1).map((point) => point.x));
    const ys = lines.flatMap((line) => line.points.map((point) => point.y));
    const log_x = value("logx", axis.key !== "step" && spans_decades(ends, 5) ? "1" : "0") === "1";
    const log_y = value("logy", spans_decades(ys, /loss|norm|error|distance/.test(y) ? 3 : 8) ? "1" : "0") === "1";
    return {axis, y, lines, xs, log_x, log_y};
  };

  const controls = () => {
    const now = view(), link = now.axis.key === "link";
    const link_input = (name, label, unit) => number_of(key("link-" + name), label, unit, link_setting(name), (to) => set("link." + name, to));
    return [
      spec.columns.length > 1 && select_of(key("y"), "Show", spec.columns.map((one) => [one, words_of(one)]), now.y, change("y")),
      axes.length > 1 && select_of(key("x"), "against", axes.map((one) => [one.key, one.short]), now.axis.key, change("x")),
      check_of(key("logx"), "log x", now.log_x, change("logx")),
      check_of(key("logy"), "log y", now.log_y, change("logy")),
      has_seeds && check_of(key("seeds"), "single seeds", value("seeds") === "1", change("seeds")),
      link && link_input("rate", "Link of", "Mbit/s"), link && link_input("latency", "latency", "ms"),
      link && link_input("compute", "computing", "ms a step"),
      link && runs.some((run) => !workers_of(run)) && link_input("workers", "", "workers"),
    ].filter(Boolean);
  };

  const draw = (width, standalone) => {
    const {axis, y: shown, lines, xs, log_x, log_y} = view();
    const chart = drawing(width, 100, spec.title + ": " + words_of(shown) + " against " + axis.words);
    let top = 30;
    if (standalone) top += draw_legend(chart, lines, width, 4);
    const strip = has_strip(lines), format = format_of(shown);
    if (strip) top += STRIP;
    const box = {left: 0, right: width - 14, top, bottom: top + (width < 520 ? 260 : 350)};
    const y = scale_for(y_values(lines, log_y, log_x), [box.bottom, box.top], log_y, 6);
    box.left = Math.max(40, ...y.ticks.map((tick) => text_width(format(tick), 12) + 12));
    const x = scale_for(xs, [box.left, box.right], log_x, Math.max(3, Math.floor((box.right - box.left) / 100)));
    chart.setAttribute("height", box.bottom + 46);
    chart.setAttribute("viewBox", "0 0 " + width + " " + (box.bottom + 46));
    const link = axis.key === "link" ? " (" + number_text(link_setting("rate")) + " Mbit/s, " + number_text(link_setting("latency")) + " ms" +
        (link_setting("compute") ? ", computing " + number_text(link_setting("compute")) + " ms a step" : "") + ")" : "";
    const log = (is_log) => (is_log ? ", log scale" : "");
    const labels = {x: axis.words + link + log(log_x), x_format: axis.format, y_format: format};
    draw_axes(chart, box, x, y, labels);
    chart.append(chart_text(fitted(words_of(shown) + log(log_y), width - 8, 12.5), {x: 2, y: top - (strip ? STRIP : 0) - 11, "font-size": 12.5}));
    if (strip) draw_strip(chart, box);
    if (lines.every((line) => line.points.length === 0)) {
      chart.append(chart_text("nothing to show", {x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, "text-anchor": "middle"}));
    }
    const drawn = draw_lines(chart, box, lines, x, y, {format, title: (at) => axis.short + ": " + axis.format(at)});
    const without = method_items(runs).filter((item) => !hidden("methods").has(item.index) && lines.every((line) => line.index !== item.index));
    if (without.length) drawn.notes.push("Without such values: " + without.map((item) => item.label.slice(0, 60)).join(", ") + ".");
    return {drawing: chart, ...drawn};
  };

  const rows = () => {
    const now = view();
    const rows = [["method", "seed", now.axis.key, now.y, "low", "high", "n"]];
    for (const line of now.lines) {
      for (const point of line.points) rows.push([line.label, "mean", point.x, point.y, point.low, point.high, point.n]);
      if (line.singles.length) {
        for (const {run, points} of line.runs) for (const point of points) rows.push([line.label, String(run.seed), point.x, point.y]);
      }
    }
    return rows;
  };

  return figure({...spec, controls, draw, rows, legend: {group: "methods", items: () => method_items(runs)}});
}
