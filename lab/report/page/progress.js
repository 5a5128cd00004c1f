// The chart of runs in progress: a column of the metrics against steps, bytes, bits or time.

function method_items(runs) {
  return report.data.methods.map((method, index) => ({index, label: method.label, style: style_of(index)}))
      .filter((item) => runs.some((run) => run.method === item.index));
}

// " (100 Mbit/s, 1 ms, computing 5 ms a step)"
function link_words() {
  const [rate, latency, compute] = ['rate', 'latency', 'compute'].map((key) => number_text(link_setting(key)));
  return ' (' + rate + ' Mbit/s, ' + latency + ' ms' +
      (compute === '0' ? '' : ', computing ' + compute + ' ms a step') + ')';
}

// How far values spread before a log axis shows them better.
function log_factor(column) {
  return /loss|norm|error|distance/.test(column) ? 3 : 8;
}

// spec: id, title, caption, columns (offered on the y axis; the first is shown at first), axis (key of the x axis)
function progress_chart(spec, runs) {
  const axes = axes_of(runs), key = (name) => spec.id + '.' + name;
  const value = (name, otherwise) => setting(key(name), otherwise);
  const is_on = (name, by_itself) => value(name, by_itself ? '1' : '0') === '1';
  const change = (name) => (to) => set(key(name), typeof to === 'boolean' ? Number(to) : to);
  const column_now = () => (spec.columns.includes(value('y')) ? value('y') : spec.columns[0]);
  const axis_now = () => axes.find((axis) => axis.key === value('x', spec.axis)) || axes[0];
  const runs_of = (index) => runs.filter((run) => run.method === index);
  const has_seeds = report.data.methods.some((_, index) => runs_of(index).length > 1);

  // Single runs are drawn on demand, and where the mean ends because one diverged.
  const drawn_line = (line) => {
    const has_singles = line.singles.length > 1 && (is_on('seeds') || line.mean.diverged || line.mean.is_cut);
    const singles = has_singles ? line.singles.map((single) => single.points) : [];
    const {index, label} = line, {points, diverged} = line.mean;
    return {index, label, style: style_of(index), points, singles, runs: line.singles, has_diverged: diverged};
  };
  const view = () => {
    const axis = axis_now(), column = column_now(), off = hidden('methods');
    const lines = method_lines(runs, axis, column).filter((line) => !off.has(line.index)).map(drawn_line);
    const ends = lines.flatMap((line) => line.points.slice(-1).map((point) => point.x));
    // A line of zeros, as of what dense training owes, has no place on a log axis, and needs none.
    const drawn = lines.filter((line) => line.points.some((point) => point.y !== 0));
    const ys = drawn.flatMap((line) => line.points.map((point) => point.y));
    const log_x = is_on('logx', axis.key !== 'step' && spans_decades(ends, 5));
    return {axis, column, lines, log_x, log_y: is_on('logy', spans_decades(ys, log_factor(column)))};
  };

  const controls = () => {
    const {axis, column, log_x, log_y} = view(), is_link = axis.key === 'link';
    const columns = spec.columns.map((one) => [one, words_of(one)]);
    const link = (name, label, unit) =>
        number_of(key('link-' + name), label, unit, link_setting(name), (to) => set('link.' + name, to));
    return [
      columns.length > 1 && select_of(key('y'), 'Show', columns, column, change('y')),
      axes.length > 1 && select_of(key('x'), 'against', axes.map((one) => [one.key, one.short]), axis.key, change('x')),
      check_of(key('logx'), 'log x', log_x, change('logx')),
      check_of(key('logy'), 'log y', log_y, change('logy')),
      has_seeds && check_of(key('seeds'), 'single seeds', is_on('seeds'), change('seeds')),
      is_link && link('rate', 'Link of', 'Mbit/s'),
      is_link && link('latency', 'latency', 'ms'),
      is_link && link('compute', 'computing', 'ms a step'),
      is_link && runs.some((run) => !workers_of(run)) && link('workers', '', 'workers'),
    ].filter(Boolean);
  };

  const draw = (width, standalone) => {
    const {axis, column, lines, log_x, log_y} = view();
    const result = draw_line_chart(
        {
          title: spec.title + ': ' + words_of(column) + ' against ' + axis.words,
          lines,
          log_x,
          log_y,
          heights: [350, 260],
          x_words: axis.words + (axis.key === 'link' ? link_words() : ''),
          x_format: axis.format,
          y_words: words_of(column),
          y_format: format_of(column),
          hover_title: (at) => axis.short + ': ' + axis.format(at),
        },
        width, standalone);
    const is_missing = (item) => !hidden('methods').has(item.index) && !lines.some((line) => line.index === item.index);
    const missing = method_items(runs).filter(is_missing).map((item) => item.label.slice(0, 60));
    if (missing.length) result.notes.push('Without such values: ' + missing.join(', ') + '.');
    return result;
  };

  const csv_rows = (line) => {
    const means = line.points.map(({x, y, low, high, n}) => [line.label, 'mean', x, y, low, high, n]);
    if (line.singles.length === 0) return means;
    const seed_rows = ({run, points}) => points.map(({x, y}) => [line.label, String(run.seed), x, y]);
    return [...means, ...line.runs.flatMap(seed_rows)];
  };
  const rows = () => {
    const {axis, column, lines} = view();
    return [['method', 'seed', axis.key, column, 'low', 'high', 'n'], ...lines.flatMap(csv_rows)];
  };

  return figure({...spec, controls, draw, rows, legend: {group: 'methods', items: () => method_items(runs)}});
}
