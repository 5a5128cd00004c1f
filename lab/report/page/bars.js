// Time of each stage, stacked, and bytes up and down: a row for each method.

const STAGES = ['sift', 'encode', 'exchange', 'decode', 'merge', 'apply'];

function mean_column(runs, key) {
  const values = runs.flatMap((run) => (column(run, key) || []).filter(is_number));
  return values.length ? mean_of(values) : null;
}

function last_number(run, key) {
  return (column(run, key) || []).findLast(is_number) ?? null;
}

// [{index, label, style, runs, means: {key: number}}], where `mean` computes one of `keys` from runs.
function means_by_method(runs, keys, mean) {
  return method_items(runs).map((item) => {
    const own = runs.filter((run) => run.method === item.index);
    return {...item, runs: own, means: Object.fromEntries(keys.map((key) => [key, mean(own, key)]))};
  });
}

function csv_of_means(items, keys) {
  return [['method', ...keys], ...items.map((item) => [item.label, ...keys.map((key) => item.means[key])])];
}

function stage_chart(runs) {
  const has_stage = (stage) => runs.some((run) => (column(run, 'ns_' + stage) || []).some(is_number));
  const stages = STAGES.filter(has_stage), keys = stages.map((stage) => 'ns_' + stage);
  const with_exchange = () => setting('stages.exchange') !== '0';
  const shown = () => stages.filter((stage) => stage !== 'exchange' || with_exchange());
  const colour = (stage) => 'var(--s' + STAGES.indexOf(stage) + ')';
  const items = means_by_method(runs, keys, mean_column);

  const row = (item) => {
    let end = 0;
    const marks = shown().map((stage) => {
      const seconds = (item.means['ns_' + stage] || 0) / 1e9, low = end;
      end += seconds;
      const hint = stage + ': ' + seconds_text(seconds);
      return {kind: 'bar', low, high: end, colour: colour(stage), text: stage, hint};
    });
    return {...item, marks, text: seconds_text(end)};
  };
  const controls = () => {
    const changed = (to) => set('stages.exchange', to ? null : 0);
    return [check_of('stages.exchange', 'with exchange (includes waiting for others)', with_exchange(), changed)];
  };
  return row_chart({
    id: 'stages',
    title: 'Time of a step by stage',
    rows: () => items.map(row),
    axis: {words: 'mean time of a step (' + whose_numbers() + ')', format: seconds_text, from_zero: true},
    key: () => shown().map((stage) => ({label: stage, colour: colour(stage)})),
    csv: () => csv_of_means(items, keys),
    controls: stages.includes('exchange') ? controls : null,
    caption: 'Measured on the machine of these runs, mean over the lines of the metrics. Exchange includes waiting ' +
        'for other workers, so on few cores it mostly shows how busy the machine was.',
  });
}

function bytes_chart(runs) {
  const kinds = [
    {key: 'total_bytes_up', words: 'up', shape: 'triangle', is_open: false},
    {key: 'total_bytes_down', words: 'down', shape: 'down', is_open: true},
  ];
  const keys = kinds.map((kind) => kind.key);
  const last_mean = (own, key) => {
    const ends = own.map((run) => last_number(run, key)).filter(is_number);
    return ends.length ? mean_of(ends) : null;
  };
  const items = means_by_method(runs, keys, last_mean);
  const row = (item) => {
    const marks = kinds.filter(({key}) => item.means[key] > 0).map(({key, words, shape, is_open}) => {
      const x = item.means[key];
      return {kind: 'value', marker: shape, is_open, x, hint: words + ': ' + bytes_text(x)};
    });
    return {...item, marks, text: kinds.map(({key, words}) => words + ' ' + bytes_text(item.means[key])).join(', ')};
  };
  const key = ({words, shape, is_open}) => {
    const label = words === 'up' ? 'up, from the workers' : 'down, to the workers';
    return {label, draw: (x, y) => marker(shape, x, y, 5, 'var(--soft)', is_open)};
  };
  return row_chart({
    id: 'bytes',
    title: 'Bytes of all steps',
    rows: () => items.map(row),
    axis: {words: 'bytes of all workers, mean over the runs', format: bytes_text, is_log: true},
    key: () => kinds.map(key),
    csv: () => csv_of_means(items, keys),
    caption: 'What all workers sent and received until the last line of the metrics, with headers and trailers. A ' +
        'method that compresses the uplink alone gets the union of all workers’ entries back, so down is more than up.',
  });
}
