// Differences to the baseline as a forest plot.

function forest_chart(summary) {
  const {plan} = summary, measure = measure_words(plan), better = higher_is_better(plan) ? 'right' : 'left';
  const at_equal_bytes = (group) => (group.equal_bytes ? group.equal_bytes.vs_baseline : null);
  const groups = summary.methods.filter((group) => group.vs_baseline);
  const has_equal = summary.equal_bytes !== null && groups.some(at_equal_bytes);
  const is_equal = () => has_equal && setting('differences.at') === 'bytes';
  const comparison = (group) => (is_equal() ? at_equal_bytes(group) : group.vs_baseline);

  const row = (group) => {
    const versus = comparison(group);
    if (!versus || !is_number(versus.diff)) {
      const text = group.diverged ? 'diverged, ' + group.diverged + ' of ' + group.n : 'no difference known';
      return {...group_row(group), marks: [], is_quiet: true, text: group.chosen ? text : 'diverged'};
    }
    const p = is_number(versus.p_holm) ? ', p ' + p_text(versus.p_holm) : '';
    const text = interval_text(versus.diff, versus.ci95, true) + p;
    const marks = [{kind: 'value', x: versus.diff, hint: text}];
    if (versus.ci95) {
      const [low, high] = versus.ci95;
      marks.unshift({kind: 'interval', low, high, hint: range_text(versus.ci95)});
    }
    return {...group_row(group), marks, text};
  };

  const controls = () => {
    const choices = [['steps', 'all steps'], ['bytes', 'equal bytes (' + bytes_text(summary.equal_bytes) + ')']];
    const changed = (to) => set('differences.at', to === 'bytes' ? to : null);
    return [select_of('differences.at', 'Compared after', choices, is_equal() ? 'bytes' : 'steps', changed)];
  };

  const csv_row = (group) => {
    const versus = comparison(group) || {}, [low, high] = versus.ci95 || [];
    return [group_row(group).label, versus.diff, low, high, versus.p, versus.p_holm, versus.wins, versus.losses];
  };

  return row_chart({
    id: 'differences',
    title: 'Difference to ' + plan.baseline + ' in ' + measure,
    rows: () => groups.map(row),
    csv: () => [['method', 'difference', 'low', 'high', 'p', 'p_holm', 'wins', 'losses'], ...groups.map(csv_row)],
    axis: {words: 'difference in ' + measure + ' (better: to the ' + better + ')', format: number_text, at: 0},
    controls: has_equal ? controls : null,
    caption: 'Each line is the 95 % interval of the mean difference on equal seeds. One that crosses 0 says: not ' +
        'known which is better. Entirely to the ' + better + ': better; entirely to the other side: worse. p is ' +
        'adjusted for the number of methods (Holm).',
  });
}
