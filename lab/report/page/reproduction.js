// A published experiment: the claim, and whether it holds.

const VERDICTS = {
  holds: 'The claim holds.',
  partly: 'The claim holds in part.',
  fails: 'The claim does not hold.'
};

function verdict_words(reproduction) {
  if (Object.hasOwn(VERDICTS, reproduction.verdict)) return VERDICTS[reproduction.verdict];
  if (reproduction.verdict) return 'Verdict: ' + reproduction.verdict;
  return reproduction.holds ? VERDICTS.holds : VERDICTS.fails;
}

function verdict_section(reproduction) {
  const {paper, claim, reason, verdict, holds} = reproduction, conditions = reproduction.conditions || [];
  const source = paper ? [' (', named(paper), ')'] : '';
  return html(
      'section', {id: 'answer', class: 'answer', 'data-verdict': verdict || (holds ? 'holds' : 'fails')},
      html('p', {class: 'question'}, 'The claim', source, ': ', html('q', {}, named(claim || '')), '.'),
      html('p', {class: 'headline'}, verdict_words(reproduction)),
      reason && html('p', {}, 'Because ', named(reason), '.'),
      conditions.length > 0 && html('h3', {}, 'Under which conditions'),
      conditions.length > 0 && html('ul', {}, conditions.map((one) => html('li', {}, named(one)))));
}

function measured_table(reproduction) {
  const rows = reproduction.measured, keys = Array.from(new Set(rows.flatMap((row) => Object.keys(row))));
  const first = ['method', 'form', 'metric'].filter((key) => keys.includes(key));
  const rest = keys.filter((key) => key !== 'value' && !first.includes(key));
  const node = (value) => {
    if (is_number(value)) return number_text(value, 6);
    return value === undefined || value === null ? '' : named(String(value));
  };
  const columns = [...first, ...rest, 'value'].map((key) => {
    const value = (row) => row[key];
    return {title: key, value, is_number: rows.some((row) => is_number(row[key])), node: (row) => node(row[key])};
  });
  return data_table({id: 'numbers', title: 'All numbers', rows: () => rows, columns, limit: 50});
}
