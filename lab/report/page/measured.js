// What a reproduction measured, as lines: the numeric setting with most values is the x axis, other settings that vary
// are chosen from lists, and seeds become means and intervals.

const NUMERIC_SETTINGS = ['step', 'ratio', 'workers', 'k', 's', 'dim', 'lr', 'mu', 'lambda', 'gap', 'every'];
const NOT_SETTINGS = new Set(['method', 'metric', 'value', 'seed', 'form']);
const MEASURED = 'measured.';  // its settings in the address

function line_name(row) {
  return row.method + (row.form ? ' (' + row.form + ')' : '');
}

function distinct(rows, key) {
  return Array.from(new Set(rows.map((row) => row[key]).filter((value) => value !== undefined && value !== null)));
}

function by_value(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), 'en', {numeric: true});
}

// The one of which `weight` is largest; of equal ones the first.
function heaviest(list, weight) {
  return list.reduce((best, one) => (best === null || weight(one) > weight(best) ? one : best), null);
}

function chosen_from(list, key, otherwise) {
  return list.find((one) => String(one) === setting(MEASURED + key)) ?? otherwise;
}

// What is shown first: a result, rather than bytes or counts; of studies one of the judging runs.
function default_metric(metrics, of_metric) {
  const is_result = (metric) => /loss|error|risk|distance|density|accuracy/.test(metric);
  const is_judged = (metric) => of_metric(metric).some((row) => row.stage === 'judging');
  const weight = (one) => of_metric(one).length * (is_result(one) ? 1000 : 1) * (is_judged(one) ? 1000000 : 1);
  return heaviest(metrics, weight);
}

// What is shown now: {metrics, metric, rows, possible: settings for the x axis, x, lists: [{key, values, value}]}.
function measured_view(all) {
  const metrics = distinct(all, 'metric'), of_metric = (metric) => all.filter((row) => row.metric === metric);
  const metric = chosen_from(metrics, 'metric', default_metric(metrics, of_metric)), rows = of_metric(metric);
  const keys = Array.from(new Set(rows.flatMap((row) => Object.keys(row))));
  const varied = keys.filter((key) => !NOT_SETTINGS.has(key) && distinct(rows, key).length > 1);
  const numeric = NUMERIC_SETTINGS.filter((key) => varied.includes(key) && rows.some((row) => is_number(row[key])));
  // A line that has one value of a setting, or none (a baseline), is shown beside all of them.
  const by_line = grouped(rows, line_name);
  const has_several = (row, key) => distinct(by_line.get(line_name(row)), key).length > 1;
  const lists = [];
  let shown = rows;
  const choose = (key) => {
    const values = distinct(shown.filter((row) => has_several(row, key)), key).sort(by_value);
    if (values.length === 0) return;
    const value = chosen_from(values, 'only.' + key, values[0]);
    lists.push({key, values, value});
    shown = shown.filter((row) => (row[key] ?? value) === value || !has_several(row, key));
  };
  for (const key of varied.filter((one) => !numeric.includes(one))) choose(key);
  const values_in_a_line = (key) =>
      Math.max(0, ...Array.from(grouped(shown, line_name).values(), (own) => distinct(own, key).length));
  const possible = numeric.filter((key) => values_in_a_line(key) > 1);
  const x = chosen_from(possible, 'x', heaviest(possible, values_in_a_line));
  for (const key of numeric.filter((one) => one !== x)) {
    // One that follows from what is chosen already needs no list: k from a ratio.
    const places = grouped(shown, (row) => JSON.stringify([line_name(row), row[x]]));
    if (Array.from(places.values()).some((own) => distinct(own, key).length > 1)) choose(key);
  }
  return {metrics, metric, possible, x, lists, rows: shown};
}

function grouped(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    if (!groups.has(key(row))) groups.set(key(row), []);
    groups.get(key(row)).push(row);
  }
  return groups;
}

function point_of(x, values) {
  const bad = values.find((value) => !Number.isFinite(value));
  if (bad !== undefined) return {x, y: bad, n: values.length};
  const {mean, low, high, n} = summary_of(values);
  return {x, y: mean, low, high, n};
}

// A method that does not have the setting of the x axis, such as dense without k, is a line across all of it.
function points_along(view, rows) {
  const values = (own) => own.map((row) => decoded(row.value)).filter((value) => value !== undefined);
  const is_plain = view.x && distinct(rows, view.x).length === 0, all = distinct(view.rows, view.x).sort(by_value);
  const places = !view.x ? [0] : is_plain ? [all[0], all.at(-1)] : distinct(rows, view.x).sort(by_value);
  const at = (place) => (view.x && !is_plain ? rows.filter((row) => row[view.x] === place) : rows);
  return Array.from(new Set(places))
      .filter((place) => values(at(place)).length > 0)
      .map((place) => point_of(place, values(at(place))));
}

function measured_lines(view, names) {
  const line = (label, index) => {
    const points = points_along(view, view.rows.filter((row) => line_name(row) === label));
    return {label, index, style: style_of(index), points, singles: [], has_diverged: false};
  };
  return names.map(line).filter((one) => one.points.length > 0);
}

function draw_means(result, lines) {
  const {drawing, box, x, y} = result;
  const clamped = (end) => Math.max(box.top, Math.min(box.bottom, y.is_log && end <= 0 ? box.bottom : y.to(end)));
  for (const {points, style} of lines) {
    for (const point of points.filter((one) => has_place(one, x, y))) {
      const at = x.to(point.x), line = {x1: at, x2: at, stroke: style.colour, 'stroke-width': 1.5};
      const interval = is_number(point.low) && svg('line', {...line, y1: clamped(point.low), y2: clamped(point.high)});
      const mean = points.length <= 60 && marker(style.marker, at, y.to(point.y), 4.5, style.colour);
      drawing.append(svg('g', {class: 'mark'}, interval, mean));
    }
  }
}

// Experiments measure a loss of their own, not that of a training's batches.
function plain_words(key) {
  return key === 'loss' ? 'loss' : words_of(key);
}

function measured_chart(reproduction) {
  const names = Array.from(new Set(reproduction.measured.map(line_name)));
  const view = () => {
    const now = measured_view(reproduction.measured), all = measured_lines(now, names);
    const lines = all.filter((line) => !hidden('measured').has(line.index));
    const is_on = (name, values) => setting(MEASURED + name, spans_decades(values, 10) ? '1' : '0') === '1';
    const points = lines.flatMap((line) => line.points), xs = points.map((point) => point.x);
    const log_x = Boolean(now.x) && is_on('logx', xs), log_y = is_on('logy', points.map((point) => point.y));
    return {...now, all, lines, log_x, log_y};
  };

  const controls = () => {
    const {metrics, metric, possible, x, lists, log_x, log_y} = view();
    const change = (key) => (to) => set(MEASURED + key, typeof to === 'boolean' ? Number(to) : to);
    const list = (key, label, values, value, words) => {
      const choices = values.map((one) => [String(one), words(one)]);
      return select_of(MEASURED + key, label, choices, String(value), change(key));
    };
    return [
      metrics.length > 1 && list('metric', 'Show', metrics, metric, plain_words),
      possible.length > 1 && list('x', 'against', possible, x, plain_words),
      ...lists.map(({key, values, value}) => list('only.' + key, plain_words(key), values, value, String)),
      x && check_of(MEASURED + 'logx', 'log x', log_x, change('logx')),
      check_of(MEASURED + 'logy', 'log y', log_y, change('logy')),
    ].filter(Boolean);
  };

  const draw = (width, standalone) => {
    const {lines, metric, x, log_x, log_y} = view();
    // Without a setting that varies, methods stand side by side.
    const side_by_side = ({left, right}) =>
        make_scale([-0.5, Math.max(1, lines.length) - 0.5], [left, right], false, []);
    const at_place = (line, i) => ({...line, points: line.points.map((point) => ({...point, x: i}))});
    const placed = x ? lines : lines.map(at_place);
    const result = draw_line_chart(
        {
          title: plain_words(metric),
          lines: placed,
          log_x,
          log_y,
          heights: [320, 240],
          margin: 12,
          x_words: x ? plain_words(x) : 'methods',
          x_scale: x ? null : side_by_side,
          x_format: number_text,
          y_words: plain_words(metric),
          y_format: number_text,
          hover_title: (at) => (x ? plain_words(x) + ': ' + number_text(at) : plain_words(metric)),
        },
        width, standalone);
    draw_means(result, placed);
    const {box} = result, room = (box.right - box.left) / Math.max(1, lines.length) - 4;
    const label = (line, i) =>
        chart_text(fitted(line.label, room, 12), {x: result.x.to(i), y: box.bottom + 17, 'text-anchor': 'middle'});
    if (!x) result.drawing.append(...lines.map(label));
    return result;
  };

  const rows = () => {
    const {lines, metric, x} = view();
    const csv_rows = (line) => line.points.map((one) => [line.label, one.x, one.y, one.low, one.high, one.n]);
    return [['method', x || 'at', metric, 'low', 'high', 'n'], ...lines.flatMap(csv_rows)];
  };
  return figure({
    id: 'measured',
    title: 'What was measured',
    controls,
    draw,
    rows,
    legend: {group: 'measured', items: () => view().all},
    caption: 'One line for each method. Where several seeds were run, a point is their mean and the vertical line ' +
        'its 95 % interval. Settings that vary are chosen above.',
  });
}
