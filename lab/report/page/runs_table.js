// The table of runs with their configuration.

function method_label(run) {
  const method = report.data.methods[run.method];
  return method ? method.label : '?';
}

function status_text(run) {
  const is_known = run.status === 'diverged' && is_number(run.diverged_at);
  return run.status + (is_known ? ' in step ' + run.diverged_at : '');
}

function option_text(run, key) {
  const value = (run.config || {})[key];
  if (value === undefined || value === null) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function run_details(run, options) {
  const results = Object.entries(run.result || {}).map(([key, value]) => [key, value === null ? '' : String(value)]);
  return html(
      'div', {}, html('h4', {}, 'Configuration'), pairs_list(options.map((key) => [key, option_text(run, key)])),
      html('h4', {}, 'Result'), pairs_list(results));
}

// Options that differ between runs are columns; those that all have in common stand below the table, once.
function runs_table(runs) {
  const options = Array.from(new Set(runs.flatMap((run) => Object.keys(run.config || {}))));
  const differs = (key) => runs.some((run) => option_text(run, key) !== option_text(runs[0], key));
  const varied = options.filter((key) => differs(key) && key !== 'lr' && key !== 'seed').slice(0, 12);
  const common = options.filter((key) => !differs(key)).map((key) => [key, option_text(runs[0], key)]);
  const is_result = (key) => runs.some((run) => run.result && is_number(run.result[key]));
  const results = RESULTS_FIRST.filter((key) => /loss|accuracy|metric|distance/.test(key) && is_result(key));
  const phases = Array.from(new Set(runs.map((run) => run.phase)));
  const phase = () => (phases.includes(setting('runs.phase')) ? setting('runs.phase') : '');

  const number = (title, value, show = number_text) => number_column(title, value, (run) => show(value(run)));
  const text = (title, value) => ({title, value, node: (run) => named(value(run))});
  const columns = [
    {title: 'method', value: method_label, node: (run) => method_cell(method_label(run), style_of(run.method))},
    phases.length > 1 && text('phase', (run) => run.phase),
    number('seed', (run) => run.seed, (seed) => (is_number(seed) ? String(seed) : '–')),
    number('learning rate', (run) => run.lr),
    text('status', status_text),
    ...results.map((key) => number(words_of(key), (run) => (run.result ? run.result[key] : null))),
    number('lines', (run) => run.lines),
    number('seconds', (run) => run.seconds, seconds_text),
    ...varied.map((key) => text(key.replace(/_/g, ' '), (run) => option_text(run, key))),
    text('id', (run) => run.id),
  ].filter(Boolean);

  const choices = [['', 'all runs'], ...phases.map((one) => [one, one])];
  const table = data_table({
    id: 'runs',
    title: 'Runs',
    rows: () => runs.filter((run) => !phase() || run.phase === phase()),
    columns,
    detail: (run) => run_details(run, options),
    key: (run) => run.id + run.method,
    limit: 100,
  });
  const filter = () => select_of('runs.phase', 'Show', choices, phase(), (to) => set('runs.phase', to || null));
  return html(
      'div', {}, phases.length > 1 && html('p', {class: 'controls'}, filter()), table,
      common.length > 0 &&
          html(
              'details', {id: 'common'},
              html('summary', {}, 'What all runs have in common (' + common.length + ' options)'), pairs_list(common)));
}
