// Bytes until the target is reached: a dot for each seed; runs that did not get there are open, with an arrow.

// Bytes at which a run that did not reach the target ended.
function censored_bytes(group, i) {
  const bytes = group.measures.bytes && group.measures.bytes.by_seed[i];
  return is_number(bytes) ? bytes : group.to_target.censored_at;
}

// "1/53.9 (1/64.2 to 1/45.2)"
function target_quotient(group) {
  const quotient = group.to_target && group.to_target.log_ratio;
  if (!quotient || !is_number(quotient.ratio)) return '';
  const range = quotient.ratio_ci95 ? ' (' + quotient_range(quotient.ratio_ci95) + ')' : '';
  return quotient_text(quotient.ratio) + range;
}

// What the marks mean.
function target_key() {
  const soft = 'var(--soft)';
  const dot = (x, y) => svg('circle', {cx: x, cy: y, r: 4, fill: soft, 'fill-opacity': 0.6});
  const median = (x, y) => svg('line', {x1: x, x2: x, y1: y - 7, y2: y + 7, stroke: soft, 'stroke-width': 3});
  const open = (x, y) =>
      svg('g', {}, marker('circle', x - 4, y, 3.5, soft, true), marker('right', x + 5, y, 3.5, soft, true));
  return [
    {label: 'a seed', draw: dot},
    {label: 'median', draw: median},
    {label: 'not reached: would take more', draw: open},
  ];
}

function target_chart(summary) {
  const {plan, target} = summary, seeds = plan.seeds.length;
  const groups = summary.methods.filter((group) => group.to_target && group.n > 0);

  const mark = (group, bytes, i) => {
    const shift = (i - (seeds - 1) / 2) * Math.min(5, 20 / seeds), seed = 'seed ' + plan.seeds[i] + ': ';
    if (is_number(bytes)) return {kind: 'dot', x: bytes, shift, hint: seed + bytes_text(bytes)};
    const at = censored_bytes(group, i);
    return is_number(at) ? {kind: 'censored', x: at, shift, hint: seed + 'not reached after ' + bytes_text(at)} : null;
  };
  const row = (group) => {
    const goal = group.to_target, missed = group.n - goal.reached;
    const marks = (goal.bytes_by_seed || []).map((bytes, i) => mark(group, bytes, i)).filter(Boolean);
    const median = is_number(goal.median_bytes) ? bytes_text(goal.median_bytes) : '';
    if (median) marks.push({kind: 'median', x: goal.median_bytes, hint: 'median: ' + median});
    const words = [median, missed ? missed + ' of ' + group.n + ' not reached' : '', target_quotient(group)];
    return {...group_row(group), marks, text: words.filter(Boolean).join(', ')};
  };
  const csv_rows = (group) => (group.to_target.bytes_by_seed || []).map((bytes, i) => {
    const censored = is_number(bytes) ? null : censored_bytes(group, i);
    return [group_row(group).label, String(plan.seeds[i]), bytes, censored];
  });

  return row_chart({
    id: 'target',
    title: 'Bytes until the target is reached',
    rows: () => groups.map(row),
    csv: () => [['method', 'seed', 'bytes_to_target', 'censored_at'], ...groups.flatMap(csv_rows)],
    axis: {words: 'bytes up and down, all workers', format: bytes_text, is_log: true},
    key: target_key,
    caption: 'Target: ' + words_of(target.measure) + ' of at most ' + number_text(target.value, 5) +
        ' (mean of 5 evaluations; set by ' + (target.set_by === 'given' ? 'the command' : target.set_by) +
        '). At the right the median, and the bytes as a part of ' + plan.baseline +
        '’s on equal seeds with its 95 % interval.' +
        (summary.methods.some(pilot_bytes) ? ' Without the bytes of a threshold’s pilot, which the answer counts.' :
                                             ''),
  });
}
