// The answer in sentences. Each is a list of texts and nodes.

function quoted(group) {
  return html('strong', {}, named(label_in(group)));
}

function listed(groups, limit = 6) {
  const shown = groups.slice(0, limit).map(
      (group, i) => [i ? (i === groups.length - 1 ? ' and ' : ', ') : '', named(label_in(group))]);
  return [shown, groups.length > limit ? ' and ' + (groups.length - limit) + ' others' : ''];
}

function measure_words(plan) {
  return plan.primary === 'metric' ? plan.metric || 'metric' : words_of(plan.primary);
}

// What settings were chosen by.
function tuning_words(plan) {
  if (plan.tuned_by === 'val_metric') return 'validation ' + (plan.metric || 'metric');
  return words_of(plan.tuned_by || 'validation_loss');
}

function part_of(quotient, of) {
  return quotient < 1 ? [quotient_text(quotient), ' of ', of, '’s bytes'] :
                        [quotient_text(quotient), ' times ', of, '’s bytes'];
}

function quotient_range(ci95) {
  return quotient_text(ci95[0]) + ' to ' + quotient_text(ci95[1]);
}

const HEADLINES = {
  no_baseline: 'There is no baseline to compare with.',
  all_diverged: 'No method can be used as it is: all diverged.',
  one_seed: 'One seed does not tell which method is better.',
  baseline_diverged: 'No answer: the baseline diverged.',
  baseline_unfinished: 'No answer yet: runs of the baseline are missing.',
  nothing_to_compare: 'There is nothing to compare the baseline with.',
  no_bytes: 'No answer: no bytes were counted.',
};

function headline_of(answer) {
  return answer.outcome === 'use' ? ['Use ', quoted(answer.use), '.'] : [HEADLINES[answer.why]];
}

// Bytes, then the measure, then what else a reader would ask.
function reasons_of(answer, summary) {
  if (answer.outcome !== 'use') return reasons_for_nothing(answer, summary);
  if (answer.use === answer.baseline) return [reason_for_baseline(answer, summary)];
  return [
    byte_reason(answer, summary), measure_reason(answer, summary.plan), equal_bytes_reason(answer, summary)
  ].filter(Boolean);
}

// "It needs 1.20 MB to reach the target (validation loss 0.4635; median over the seeds)"
function spent_words({measure, best}, {target}) {
  const bytes = bytes_text(best.cost);
  if (measure !== 'to_target') return 'It moves ' + bytes + ' in all (median over the seeds)';
  return 'It needs ' + bytes + ' to reach the target (' + words_of(target.measure) + ' ' + number_text(target.value) +
      '; median over the seeds)';
}

function reason_for_baseline(answer, summary) {
  const {worse} = answer, verb = worse.length > 1 ? ' are' : ' is', measure = measure_words(summary.plan);
  const others = worse.length ? [': ', listed(worse), verb, ' worse in ', measure] : '';
  return [spent_words(answer, summary), ', and no method that is not worse needs fewer bytes', others, '.'];
}

function byte_reason(answer, summary) {
  const {baseline, best} = answer, is_target = answer.measure === 'to_target';
  if (!best.to_baseline) {
    const why = is_target ? ['; ', quoted(baseline), ' did not reach the target on every seed'] : '';
    return [spent_words(answer, summary), why, '.'];
  }
  const {ratio, ci95} = best.to_baseline, range = ci95 ? ' (95 % interval ' + quotient_range(ci95) + ')' : '';
  const all = is_target ? ', and got there on all ' + summary.plan.seeds.length + ' seeds' : '';
  return [spent_words(answer, summary), ', ', part_of(ratio, quoted(baseline)), range, all, '.'];
}

function measure_reason({use, baseline, standing}, plan) {
  const {diff, ci95, p_holm: p} = use.vs_baseline, measure = measure_words(plan), is_higher = higher_is_better(plan);
  const [better, worse] = is_higher ? ['higher', 'lower'] : ['lower', 'higher'];
  const middle = interval_text(diff, ci95).replace(/ ±.*/, '');
  const numbers = '(difference ' + middle + ', 95 % interval ' + range_text(ci95) +
      (is_number(p) ? ', adjusted p ' + p_text(p) : '') + ')';
  if (ci95[0] === 0 && ci95[1] === 0) return ['Its ', measure, ' is that of ', quoted(baseline), ' on every seed.'];
  if (standing === 'better') {
    const is_sure = is_number(p) && p < 0.05;
    const doubt = is_sure ? '' : ': by its own interval, but not once adjusted for the number of comparisons';
    return ['Its ', measure, ' is ', better, ' than that of ', quoted(baseline), ' ', numbers, doubt, '.'];
  }
  const limit = is_higher ? -ci95[0] : ci95[1], {y: mean} = measured(baseline, plan.primary);
  const share = is_number(mean) && mean !== 0 ? number_text(100 * Math.abs(limit / mean), 2) + ' % of ' : '';
  return [
    'Its ', measure, ' cannot be told apart from that of ', quoted(baseline), ' ', numbers,
    '. That is not proof of equality: it may be up to ', number_text(limit, 2), ' ', worse,
    share ? ' (' + share + number_text(mean, 3) + ')' : '', '.'
  ];
}

function equal_bytes_reason({use, baseline}, summary) {
  const mine = use.equal_bytes, other = baseline.equal_bytes;
  if (!mine || !other || !is_number(mine.mean) || !is_number(other.mean)) return null;
  return [
    'After equally many bytes (', bytes_text(summary.equal_bytes), ') its ', measure_words(summary.plan), ' is ',
    interval_text(mine.mean, mine.ci95), ', that of ', quoted(baseline), ' ', interval_text(other.mean, other.ci95), '.'
  ];
}

function reasons_for_nothing({why, baseline}, summary) {
  const seeds = summary.plan.seeds.length;
  switch (why) {
    case 'one_seed':
      return [
        'Another seed may turn the order around. What the numbers below show is this one run of each method. Run the ' +
        'study with more seeds (--seeds 5): differences then have intervals.'
      ];
    case 'baseline_diverged': {
      const when =
          baseline.chosen ? 'on ' + baseline.diverged + ' of ' + seeds + ' seeds' : 'with every setting that was tried';
      const advice = 'Try smaller learning rates, or another --baseline.';
      return [[quoted(baseline), ' diverged ', when, ', so nothing can be compared with it. ', advice]];
    }
    case 'all_diverged':
      return [
        'Every method diverged in a judging run or with every setting that was tried. Try smaller learning rates ' +
        '(--lr).'
      ];
    case 'nothing_to_compare':
      return ['The study has one method.'];
    case 'baseline_unfinished':
      return ['The study is not finished.'];
    default:
      return [];
  }
}

const EDGE_EFFECTS = {
  use: 'a better one may lie beyond',
  baseline: 'a better one may lie beyond, and the comparison may flatter the other methods',
  worse: 'it may do better beyond, and was left out for what it does here',
};

// A setting at the edge of its grid; `role` is what the method is in the answer.
function edge_cautions(group, role) {
  const chosen = group.chosen || {}, own = chosen.own || {};
  const caution = ([key, side]) => {
    const label = named(label_in(group));  // one for each sentence: a node has one place
    const words = key === 'lr' ? 'learning rate' : key, value = number_text(key === 'lr' ? chosen.lr : own[key]);
    if (side === 'only') {
      if (key !== 'lr' || role === 'worse') return null;
      return ['Only one learning rate (', value, ') was tried for ', label, ': it is not tuned.'];
    }
    const end = side === 'low' ? 'smallest' : 'largest';
    return [
      'The ', words, ' of ', label, ', ', value, ', is the ', end, ' that was tried: ', EDGE_EFFECTS[role], ' (--grow).'
    ];
  };
  return Object.entries(group.at_edge || {}).map(caution).filter(Boolean);
}

// Where methods were given different learning rates: who had which. (Those that --grow adds follow from one rule.)
function rates_caution({grid}) {
  const given = new Map();
  for (const {spec, ratio, lr, grown} of grid || []) {
    if (grown) continue;
    const key = JSON.stringify([spec, ratio]);
    given.set(key, (given.get(key) || new Set()).add(lr));
  }
  const methods = new Map();
  for (const [key, rates] of given) {
    const text = [...rates].sort((a, b) => a - b).map((lr) => number_text(lr)).join(', ');
    methods.set(text, (methods.get(text) || new Set()).add(JSON.parse(key)[0]));
  }
  if (methods.size < 2) return null;
  const lists = [...methods].map(([text, specs], i) => [i ? '; ' : '', named([...specs].join(', ')), ': ', text]);
  return [
    'Methods had different learning rates to choose from (', lists,
    '): what looks like a difference between methods ' +
        'may be one between learning rates.'
  ];
}

// Methods that were not chosen although something speaks for them, or whose pilot made them dearer.
function passed_over({candidates, use, baseline, measure, standing: of_use}, plan) {
  return candidates.filter(({group}) => group !== use && group !== baseline).map(({group, cost}) => {
    const pilot = pilot_bytes(group), is_better = of_use !== 'better' && standing(group.vs_baseline, plan) === 'better';
    if (!pilot && !is_better) return null;
    const why = [' has a better ', measure_words(plan), ' than ', quoted(baseline), ', by its interval, and'];
    return [
      quoted(group), is_better ? why : '', measure === 'to_target' ? ' needs ' : ' moves ', bytes_text(cost),
      pilot ? ', of which its pilot moved ' + bytes_text(pilot) : '', '.'
    ];
  });
}

// What limits an answer that names a method.
function cautions_on_use(answer, summary) {
  const {use, baseline, worse, close} = answer, seeds = summary.plan.seeds.length;
  const late = 'No method that is not worse reached the target on every seed, so the bytes of all steps are compared.';
  const few = 'There are only ' + seeds + ' seeds: intervals are wide, and a method counts as “not worse” until they ' +
      'show otherwise.';
  const alike = [
    'In bytes, ', named(label_in(use)), ' cannot be told apart from ', listed(close.map((one) => one.group)),
    ' (the interval of the quotient on equal seeds contains 1): between these, take the one that is simplest for you.'
  ];
  const pilot = pilot_bytes(use);
  return [
    answer.measure === 'bytes' && summary.target && late,
    close.length > 0 && alike,
    seeds < 5 && few,
    ...edge_cautions(use, 'use'),
    ...(use === baseline ? [] : edge_cautions(baseline, 'baseline')),
    ...worse.flatMap((group) => edge_cautions(group, 'worse')),
    pilot > 0 && 'The pilot that measured its threshold moved ' + bytes_text(pilot) + ' of these bytes.',
    ...passed_over(answer, summary.plan),
  ].filter(Boolean);
}

// What limits the answer, in the order of weight.
function cautions_of(answer, summary) {
  const is_use = answer.outcome === 'use', {use, baseline, worse, diverged, missed, unfinished} = answer;
  const left_out = (groups, why) => (groups && groups.length ? ['Left out: ', listed(groups), ' (', why, ').'] : null);
  const wild = (diverged || []).filter((group) => is_use || group !== baseline);
  return [
    rates_caution(summary),
    ...(is_use ? cautions_on_use(answer, summary) : []),
    use !== baseline && left_out(worse, measure_words(summary.plan) + ' worse than the baseline’s, by its interval'),
    left_out(wild, 'diverged on a seed or with every setting'),
    answer.measure === 'to_target' && left_out(missed, 'did not reach the target on every seed'),
    left_out(unfinished, 'runs are missing'),
  ].filter(Boolean);
}

function rule_text(summary) {
  const {plan, target} = summary, measure = measure_words(plan);
  const goal = target ?
      [
        'the one that needs the fewest bytes (median over the seeds) until the ', words_of(target.measure),
        ' is at most ', number_text(target.value, 5),
        ' (mean of 5 evaluations) on every seed; if none gets there, the one that moved the fewest bytes in all'
      ] :
      'the one that moved the fewest bytes';
  const pilots = summary.methods.some(pilot_bytes) ? '. The bytes of a threshold’s pilot count too' : '';
  return [
    'Of the methods that are not worse than ', named(plan.baseline),
    ' (no run diverged, and the 95 % interval of the difference in ', measure,
    ' does not lie entirely on the worse side of 0), ', goal, pilots, '.'
  ];
}
