// What can be said without a study: facts, no ranking.

const WITHOUT_ANSWER = {
  study: {
    headline: 'The study is not finished, so there is no answer yet.',
    because: 'Charts below show the runs that are there.',
  },
  compare: {
    headline: 'This comparison shows what is saved, not which method is best.',
    because: 'Every method was run once, with one seed and with settings that were tuned for none of them. Another ' +
        'seed or learning rate may turn the order around. `sparsewire study` chooses settings, repeats runs on ' +
        'several seeds and gives intervals.',
  },
  metrics: {
    headline: 'Runs as they are: nothing was tuned or judged here.',
    because: 'Charts show the metrics that were written. To compare methods with intervals, use `sparsewire study`.',
  },
};

// `code` between backquotes.
function with_code(text) {
  return text.split('`').map((part, i) => (i % 2 ? html('code', {}, part) : part));
}

function total_bytes(runs) {
  const ends = runs.map((run) => (sum_of(run, 'total_bytes_up', 'total_bytes_down') || []).findLast(is_number));
  return ends.length === 1 && ends[0] > 0 ? ends[0] : null;
}

// The method that moved the fewest bytes, beside a dense exchange as the table has it, or the run that moved most.
function saving_fact(data, shown) {
  const items = method_items(shown).map((item) => {
    const own = shown.filter((run) => run.method === item.index), {name} = data.methods[item.index];
    return {...item, name, bytes: total_bytes(own), to_dense: own.length === 1 ? own[0].result.ratio_to_dense : null};
  });
  const known = items.filter((item) => item.bytes !== null).sort((a, b) => a.bytes - b.bytes), least = known[0];
  const dense = known.find((item) => item.name === 'dense') || known.at(-1);
  if (known.length < 2 || least === dense) return null;
  const part = is_number(least.to_dense) ?
      [quotient_text(least.to_dense), ' of a dense exchange.'] :
      [quotient_text(least.bytes / dense.bytes), ' of ', named(dense.label), '’s ', bytes_text(dense.bytes), '.'];
  return ['In these runs ', named(least.label), ' moved the fewest bytes, ', bytes_text(least.bytes), ': ', part];
}

function diverged_fact(shown) {
  const diverged = shown.filter((run) => run.status === 'diverged'), more = diverged.length - 8;
  if (diverged.length === 0) return null;
  const names = diverged.slice(0, 8).map((run, i) => [i ? ', ' : '', named(method_label(run))]);
  return ['Diverged: ', names, more > 0 ? ' and ' + more + ' more.' : '.'];
}

function plain_answer(data, shown) {
  const {headline, because} = WITHOUT_ANSWER[data.kind] || WITHOUT_ANSWER.metrics;
  const facts = [data.kind === 'compare' ? saving_fact(data, shown) : null, diverged_fact(shown)].filter(Boolean);
  const is_single = data.kind === 'metrics' && shown.length === 1;
  return html(
      'section', {id: 'answer', class: 'answer', 'data-outcome': 'none'},
      html('p', {class: 'headline'}, is_single ? 'One run: nothing is compared here.' : headline),
      html('p', {}, with_code(because)), facts.map((fact) => html('p', {}, fact)));
}
