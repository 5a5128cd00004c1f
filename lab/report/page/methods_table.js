// The table of methods with intervals, and what single runs ended with where there is no summary.

function method_cell(label, style) {
  return html('span', {class: 'method'}, sample(style), html('bdi', {}, label));
}

function number_column(title, value, text, hint) {
  return {title, value, text, hint, is_number: true};
}

function measure_column(title, key) {
  const numbers = (group) => (group.measures || {})[key];
  const value = (group) => (numbers(group) ? numbers(group).mean ?? numbers(group).median : null);
  const text = (group) => {
    if (!numbers(group)) return '–';
    const {mean, ci95, median} = numbers(group);
    if (is_number(mean)) return interval_text(mean, ci95);
    return is_number(median) ? 'median ' + number_text(median) : 'diverged';
  };
  return number_column(title, value, text);
}

function target_text(group) {
  if (!group.to_target || !group.n) return '–';
  const {median_bytes: bytes, reached} = group.to_target;
  return is_number(bytes) ? bytes_text(bytes) : 'not reached, ' + (group.n - reached) + ' of ' + group.n;
}

// "0.3 *, mu=4"
function settings_text(group) {
  if (!group.chosen) return 'all diverged';
  const edge = (group.at_edge || {}).lr, own = own_text(group.chosen.own);
  return number_text(group.chosen.lr) + (edge === 'low' || edge === 'high' ? ' *' : '') + (own ? ', ' + own : '');
}

function methods_table(summary) {
  const {plan} = summary, versus = (group) => group.vs_baseline || {};
  const difference = (group) => interval_text(versus(group).diff, versus(group).ci95, true);
  const won = (group) => (group.vs_baseline && group.n ? versus(group).wins + ' of ' + group.n : '–');
  const mean = (key) => measure_column('', key).value;
  const in_bytes = (group) => bytes_text(mean('bytes')(group)), goal = (group) => group.to_target || {};
  const quotient = (group) => (goal(group).log_ratio ? goal(group).log_ratio.ratio : null);
  const other = plan.primary === 'metric' ? 'val_loss' : 'metric';
  const has = (number) => summary.methods.some(number);  // columns without a number would only need room
  const columns = [
    {
      title: 'method',
      value: (group) => group_row(group).label,
      node: (group) => method_cell(group_row(group).label, group_row(group).style),
    },
    measure_column(measure_words(plan), plan.primary),
    number_column('difference', (group) => versus(group).diff, difference, 'to ' + plan.baseline + ' on equal seeds'),
    number_column('p (Holm)', (group) => versus(group).p_holm, (group) => p_text(versus(group).p_holm)),
    number_column('won', (group) => versus(group).wins, won, 'seeds on which it is better than ' + plan.baseline),
    number_column('bytes', mean('bytes'), in_bytes, 'of all workers, up and down'),
    has(pilot_bytes) &&
        number_column(
            'pilot', pilot_bytes, (group) => (pilot_bytes(group) ? bytes_text(pilot_bytes(group)) : '–'),
            'bytes until its threshold was measured, which the other columns do not count'),
    number_column('to target', (group) => goal(group).median_bytes, target_text, 'median of the bytes to the target'),
    has(quotient) &&
        number_column(
            'of ' + plan.baseline, quotient, (group) => target_quotient(group) || '–',
            'bytes to the target over those of ' + plan.baseline + ', with the 95 % interval'),
    measure_column(other === 'metric' ? plan.metric || 'metric' : words_of(other), other),
    number_column(
        'learning rate', (group) => (group.chosen ? group.chosen.lr : null), settings_text,
        'chosen on the tuning seeds; * at the edge of the grid'),
    number_column('total error', mean('total_error'), (group) => number_text(mean('total_error')(group), 3)),
    has((group) => group.diverged) &&
        number_column('diverged', (group) => group.diverged, (group) => group.diverged + ' of ' + group.n),
  ].filter(Boolean);
  const title = 'Methods: means and 95 % intervals over ' + plan.seeds.length + ' seeds; bytes to the target: medians';
  return data_table({id: 'methods', title, rows: () => summary.methods, columns});
}

const RESULTS_FIRST = [
  'test_loss',
  'validation_loss',
  'val_loss',
  'train_loss',
  'loss',
  'test_accuracy',
  'validation_accuracy',
  'metric',
  'distance',
  'bytes_up',
  'bytes_down',
  'total_bytes_up',
  'total_bytes_down',
  'rank_bytes_up',
  'rank_bytes_down',
  'ratio_to_dense',
  'factor_against_dense',
  'total_error',
  'peak_memory_norm2',
  'seconds',
  'step'
];

function results_table(runs) {
  const has = (key) => runs.some((run) => is_number(run.result[key]));
  // `train --json` has the same bytes under two names.
  const keys = RESULTS_FIRST.filter((key) => has(key) && !(key.startsWith('total_bytes') && has('bytes_up')));
  const column = (key) => {
    const is_part = key === 'ratio_to_dense', text = is_part ? quotient_text : format_of(key);
    const value = (run) => run.result[key];
    return number_column(is_part ? 'of dense' : result_words(key), value, (run) => text(value(run)));
  };
  const columns = [
    {title: 'method', value: method_label, node: (run) => method_cell(method_label(run), style_of(run.method))},
    {title: 'status', value: status_text},
    ...keys.map(column),
  ];
  return data_table({id: 'results', title: 'What each run ended with', rows: () => runs, columns});
}
