// A published experiment: the claim, whether it holds, and what was measured.

const NUMERIC_SETTINGS = ["step", "ratio", "workers", "k", "s", "dim", "lr", "mu", "lambda", "gap", "every"];
const NOT_SETTINGS = new Set(["method", "metric", "value", "seed", "form"]);

function verdict_section(reproduction) {
  const words = {holds: "The claim holds.", partly: "The claim holds in part.", fails: "The claim does not hold."};
  const headline = words[reproduction.verdict] || (reproduction.holds ? words.holds : reproduction.verdict ? "Verdict: " + reproduction.verdict : words.fails);
  return html("section", {id: "answer", class: "answer", "data-verdict": reproduction.verdict || String(reproduction.holds)},
      html("p", {class: "question"}, "The claim", reproduction.paper ? [" (", named(reproduction.paper), ")"] : "", ": ", html("q", {}, named(reproduction.claim || "")), "."),
      html("p", {class: "headline"}, headline), reproduction.reason && html("p", {}, "Because ", named(reproduction.reason), "."),
      (reproduction.conditions || []).length > 0 && [html("h3", {}, "Under which conditions"), html("ul", {}, reproduction.conditions.map((one) => html("li", {}, named(one))))]);
}

function line_name(row) {
  return row.method + (row.form ? " (" + row.form + ")" : "");
}

function distinct(rows, key) {
  return Array.from(new Set(rows.map((row) => row[key]).filter((value) => value !== undefined && value !== null)));
}

function in_order(values) {
  return values.sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true})));
}

// The numeric setting with most values is the x axis; other settings that vary are chosen from lists; seeds become means and intervals.
function measured_view(measured, prefix) {
  const metrics = distinct(measured, "metric");
  const weight = (metric) => measured.filter((row) => row.metric === metric).length * (/loss|error|risk|distance|density/.test(metric) ? 1000 : 1);
  const most = metrics.reduce((best, one) => (best === null || weight(one) > weight(best) ? one : best), null);
  const metric = metrics.includes(setting(prefix + "metric")) ? setting(prefix + "metric") : most;
  let rows = measured.filter((row) => row.metric === metric);
  const varied = Array.from(new Set(rows.flatMap((row) => Object.keys(row)))).filter((key) => !NOT_SETTINGS.has(key) && distinct(rows, key).length > 1);
  const numeric = NUMERIC_SETTINGS.filter((key) => varied.includes(key) && rows.some((row) => is_number(row[key])));
  const by_itself = numeric.reduce((best, key) => (best === null || distinct(rows, key).length > distinct(rows, best).length ? key : best), null);
  const x = numeric.includes(setting(prefix + "x")) ? setting(prefix + "x") : by_itself;
  // A line that has one value of a setting, or none (a baseline), is shown beside all of them.
  const by_line = new Map();
  for (const row of rows) by_line.set(line_name(row), [...(by_line.get(line_name(row)) || []), row]);
  const has_several = (row, key) => distinct(by_line.get(line_name(row)), key).length > 1;
  const lists = varied.filter((key) => key !== x).map((key) => {
    const values = in_order(distinct(rows.filter((row) => has_several(row, key)), key)), wanted = setting(prefix + "only." + key);
    return {key, values, value: values.find((value) => String(value) === wanted) ?? values[0]};
  }).filter((list) => list.values.length > 0);
  rows = rows.filter((row) => lists.every(({key, value}) => row[key] === undefined || row[key] === null || row[key] === value || !has_several(row, key)));
  return {metrics, metric, rows, numeric, x, lists};
}

function measured_lines(view, names) {
  return names.map((label, index) => {
    const rows = view.rows.filter((row) => line_name(row) === label), points = [];
    for (const at of view.x ? in_order(distinct(rows, view.x)) : [0]) {
      const values = rows.filter((row) => !view.x || row[view.x] === at).map((row) => decoded(row.value)).filter((value) => value !== undefined);
      if (values.length === 0) continue;
      if (values.some((value) => !Number.isFinite(value))) { points.push({x: at, y: values.find((value) => !Number.isFinite(value)), n: values.length}); continue; }
      const y = summary_of(values);
      points.push({x: at, y: y.mean, low: y.low, high: y.high, n: y.n});
    }
    // A method that does not have the setting of the x axis, such as dense without k: a line across all of it.
    const plain = view.x && points.length === 0 ? rows.map((row) => decoded(row.value)).filter(is_number) : [];
    if (plain.length) {
      const y = summary_of(plain), ends = in_order(distinct(view.rows, view.x));
      for (const at of new Set([ends[0], ends.at(-1)])) points.push({x: at, y: y.mean, low: y.low, high: y.high, n: y.n});
    }
    return {label, index, style: style_of(index), order: index, points, singles: [], has_diverged: false};
  }).filter((line) => line.points.length > 0);
}

function measured_chart(reproduction) {
  const measured = reproduction.measured, names = Array.from(new Set(measured.map(line_name))), prefix = "measured.";
  const now = () => { const view = measured_view(measured, prefix); return {...view, lines: measured_lines(view, names)}; };
  const shown = (view) => view.lines.filter((line) => !hidden("measured").has(line.index));
  const logs = (view) => ({
    log_x: setting(prefix + "logx", view.x && spans_decades(shown(view).flatMap((line) => line.points.map((point) => point.x)), 8) ? "1" : "0") === "1",
    log_y: setting(prefix + "logy", spans_decades(shown(view).flatMap((line) => line.points.map((point) => point.y)), 10) ? "1" : "0") === "1",
  });
  const controls = () => {
    const view = now(), {log_x, log_y} = logs(view);
    return [
      view.metrics.length > 1 && select_of(prefix + "metric", "Show", view.metrics.map((one) => [one, words_of(one)]), view.metric, (to) => set(prefix + "metric", to)),
      view.numeric.length > 1 && select_of(prefix + "x", "against", view.numeric.map((one) => [one, words_of(one)]), view.x, (to) => set(prefix + "x", to)),
      ...view.lists.map((list) => select_of(prefix + "only." + list.key, words_of(list.key), list.values.map((one) => [String(one), String(one)]), String(list.value),
          (to) => set(prefix + "only." + list.key, to))),
      view.x && check_of(prefix + "logx", "log x", log_x, (to) => set(prefix + "logx", to ? 1 : 0)),
      check_of(prefix + "logy", "log y", log_y, (to) => set(prefix + "logy", to ? 1 : 0)),
    ].filter(Boolean);
  };
  const draw = (width, standalone) => {
    const view = now(), lines = shown(view), {log_x, log_y} = logs(view), chart = drawing(width, 100, words_of(view.metric));
    let top = 30 + (standalone ? draw_legend(chart, lines, width, 4) : 0);
    const strip = has_strip(lines);
    if (strip) top += STRIP;
    const box = {left: 0, right: width - 16, top, bottom: top + (width < 520 ? 240 : 320)};
    const y = scale_for(y_values(lines, log_y, log_x), [box.bottom, box.top], log_y, 6);
    box.left = Math.max(40, ...y.ticks.map((tick) => text_width(number_text(tick), 12) + 12));
    // Without a setting that varies, methods stand side by side.
    const x = view.x ? scale_for(lines.flatMap((line) => line.points.map((point) => point.x)), [box.left + 12, box.right - 12], log_x, Math.max(3, Math.floor((box.right - box.left) / 90)))
        : make_scale([-0.5, Math.max(1, lines.length) - 0.5], [box.left, box.right], false, []);
    const placed = view.x ? lines : lines.map((line, i) => ({...line, points: line.points.map((point) => ({...point, x: i}))}));
    draw_axes(chart, box, x, y, {x: view.x ? words_of(view.x) + (log_x ? ", log scale" : "") : "methods", x_format: number_text, y_format: number_text});
    chart.append(chart_text(fitted(words_of(view.metric), width - 20, 12.5) + (log_y ? ", log scale" : ""), {x: 2, y: top - (strip ? STRIP : 0) - 11, "font-size": 12.5}));
    if (strip) draw_strip(chart, box);
    const drawn = draw_lines(chart, box, placed, x, y, {format: number_text, title: (at) => (view.x ? words_of(view.x) + ": " + number_text(at) : words_of(view.metric))});
    const room = (box.right - box.left) / Math.max(1, lines.length);
    if (!view.x) placed.forEach((line, i) => chart.append(chart_text(fitted(line.label, room - 4, 12), {x: x.to(i), y: box.bottom + 17, "text-anchor": "middle"})));
    for (const line of placed) {
      for (const point of line.points) {
        if (!has_place(point, x, y)) continue;
        const at = x.to(point.x), ends = is_number(point.low) ? [point.low, point.high].map((end) => Math.max(box.top, Math.min(box.bottom, log_y && end <= 0 ? box.bottom : y.to(end)))) : null;
        if (ends && ends[0] !== ends[1]) chart.append(svg("line", {x1: at, x2: at, y1: ends[0], y2: ends[1], stroke: line.style.colour, "stroke-width": 1.5}));
        if (line.points.length <= 60) chart.append(marker(line.style.marker, at, y.to(point.y), 4.5, line.style.colour));
      }
    }
    chart.setAttribute("height", box.bottom + 46);
    chart.setAttribute("viewBox", "0 0 " + width + " " + (box.bottom + 46));
    return {drawing: chart, ...drawn};
  };
  const rows = () => {
    const view = now();
    return [["method", view.x || "at", view.metric, "low", "high", "n"]].concat(shown(view).flatMap((line) => line.points.map((point) => [line.label, point.x, point.y, point.low, point.high, point.n])));
  };
  return figure({
    id: "measured", title: "What was measured", controls, draw, rows, legend: {group: "measured", items: () => now().lines},
    caption: "One line for each method. Where several seeds were run, a point is their mean and the vertical line its 95 % interval. Settings that vary are chosen above.",
  });
}

function measured_table(reproduction) {
  const keys = Array.from(new Set(reproduction.measured.flatMap((row) => Object.keys(row))));
  const order = ["method", "form", "metric", "value"].filter((key) => keys.includes(key)), rest = keys.filter((key) => !order.includes(key));
  const columns = [...order.slice(0, -1), ...rest, "value"].map((key) => ({
    title: key, value: (row) => row[key], is_number: reproduction.measured.some((row) => is_number(row[key])),
    node: (row) => (is_number(row[key]) ? (key === "value" ? number_text(row[key], 6) : number_text(row[key], 6)) : row[key] === undefined ? "" : named(String(row[key]))),
  }));
  return data_table({id: "numbers", title: "All numbers", rows: () => reproduction.measured, columns, limit: 50});
}
