// The report's data: columns of runs, the axes they are drawn against, and means over seeds.

const report = {
  data: null
};

function read_data() {
  report.data = JSON.parse(document.getElementById('sparsewire-data').textContent);
  for (const run of report.data.runs) run.cache = new Map();
  return report.data;
}

function is_shown(run) {
  return run.chosen && run.series && Object.keys(run.series).length > 0;
}

// A number; NaN or an infinity where the file has one; undefined where it has none.
function decoded(value) {
  if (typeof value === 'number') return value;
  if (value === 'nan') return NaN;
  if (value === 'inf') return Infinity;
  if (value === '-inf') return -Infinity;
  return undefined;
}

function column(run, key) {
  if (!run.cache.has(key)) run.cache.set(key, Array.isArray(run.series[key]) ? run.series[key].map(decoded) : null);
  return run.cache.get(key);
}

function sum_of(run, up, down) {
  const a = column(run, up), b = column(run, down);
  if (!a && !b) return null;
  return (a || b).map((_, i) => (a ? a[i] : 0) + (b ? b[i] : 0));
}

// The emulated link: every worker has one of this rate, in both directions, and a server's own is fast enough.
const LINK = {
  rate: 100,
  latency: 1,
  compute: 0,
  workers: 4
};

function link_setting(key) {
  const value = Number(setting('link.' + key, LINK[key]));
  return Number.isFinite(value) && value >= 0 ? value : LINK[key];
}

function workers_of(run) {
  const workers = Number(run.config && run.config.workers);
  return workers > 0 ? workers : null;
}

function link_seconds(run) {
  const bytes = sum_of(run, 'total_bytes_up', 'total_bytes_down'), steps = column(run, 'step');
  if (!bytes || !steps) return null;
  const rate = Math.max(link_setting('rate'), 1e-9) * 1e6,
        workers = workers_of(run) || Math.max(1, link_setting('workers'));
  const local_steps = Number(run.result && run.result.local_steps) || 1;  // of a comparison
  const each_step = 2 * link_setting('latency') / 1e3 / local_steps + link_setting('compute') / 1e3;
  return bytes.map((all, i) => (8 * all) / (workers * rate) + steps[i] * each_step);
}

const X_AXES = [
  {key: 'step', words: 'steps', short: 'steps', format: number_text, of: (run) => column(run, 'step')},
  {
    key: 'bytes',
    words: 'bytes up and down, all workers',
    short: 'bytes',
    format: bytes_text,
    of: (run) => sum_of(run, 'total_bytes_up', 'total_bytes_down')
  },
  {
    key: 'rank_bytes',
    words: 'bytes up and down, one rank',
    short: 'bytes of one rank',
    format: bytes_text,
    of: (run) => sum_of(run, 'rank_bytes_up', 'rank_bytes_down')
  },
  {
    key: 'paper_bits',
    words: 'bits as papers count (64 for an entry)',
    short: 'papers\' bits',
    format: bits_text,
    of: (run) => sum_of(run, 'paper_bits_up', 'paper_bits_down')
  },
  {
    key: 'seconds',
    words: 'measured time',
    short: 'measured time',
    format: seconds_text,
    of: (run) => column(run, 'seconds')
  },
  {key: 'link', words: 'emulated time on the link', short: 'time on a link', format: seconds_text, of: link_seconds},
];

function axes_of(runs) {
  return X_AXES.filter((axis) => runs.some((run) => (axis.of(run) || []).some(is_number)));
}

const NOT_DRAWN = new Set(['step', 'steps', 'seconds', 'flags', 'schema']);
const COLUMNS_FIRST = [
  'test_loss', 'validation_loss', 'train_loss', 'loss', 'train_objective', 'test_accuracy', 'validation_accuracy',
  'train_accuracy', 'distance'
];

// What can be on the y axis: columns in which some run has a number; those that matter most come first.
function columns_of(runs) {
  const found = new Set();
  for (const run of runs) {
    for (const key of Object.keys(run.series)) {
      if (!found.has(key) && !NOT_DRAWN.has(key) && column(run, key) && column(run, key).some((y) => y !== undefined))
        found.add(key);
    }
  }
  // One evaluation at the end is no line: it does not come first.
  const is_line = (key) => runs.some((run) => (column(run, key) || []).filter((y) => y !== undefined).length > 1);
  const first = COLUMNS_FIRST.filter((key) => found.has(key)), lines = first.filter(is_line);
  const points = first.filter((key) => !lines.includes(key));
  return [...lines, ...points, ...Array.from(found).filter((key) => !first.includes(key))];
}

// [{x, y, step}] of a run, in the order of its file; y may be NaN or infinite. `key` is a column's.
function points_of(run, axis, key) {
  const ys = column(run, key), xs = axis.of(run), steps = column(run, 'step');
  if (!ys || !xs) return [];
  const points = [];
  for (let i = 0; i < ys.length; ++i) {
    if (ys[i] !== undefined && is_number(xs[i])) points.push({x: xs[i], y: ys[i], step: steps ? steps[i] : i});
  }
  return points;
}

// Names without their ratio where that leaves no doubt; says which ratio was left out.
function shorten_labels(data) {
  const names = data.methods.map((method) => method.name),
        ratios = new Set(data.methods.map((method) => method.ratio).filter(is_number));
  if (new Set(names).size !== names.length || ratios.size > 1 || names.some((one) => !one)) return '';
  for (const method of data.methods) method.label = method.name;
  return ratios.size ? '; ratio ' + Array.from(ratios)[0] + ' where a method takes one' : '';
}
