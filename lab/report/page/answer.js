// Which method to use, decided from the summary of a study by one rule, which the page prints below its answer:
//
//   Of the methods that are not worse than the baseline (no judging run diverged, and the 95 % interval of the
//   difference in the primary measure does not lie entirely on the worse side of 0), the one that needs the fewest
//   bytes until the target is reached on every seed; without a target, or where no such method reached it on every
//   seed, the one that moved the fewest bytes in all. A pilot's bytes count too: without it there is no threshold.
//
// A pure function of the summary: {outcome: "use" | "unknown", ...}; the words are in answer_text.js.

function label_in(group) {
  return group.ratio === null || group.ratio === undefined ? group.name : group.name + ' (ratio ' + group.ratio + ')';
}

function higher_is_better(plan) {
  return plan.primary === 'metric' && plan.metric !== 'distance';
}

// "better", "worse", "same" (its interval contains 0), or null: no interval.
function standing(comparison, plan) {
  if (!comparison || !is_number(comparison.diff) || !Array.isArray(comparison.ci95)) return null;
  const [low, high] = higher_is_better(plan) ? [-comparison.ci95[1], -comparison.ci95[0]] : comparison.ci95;
  return low > 0 ? 'worse' : high < 0 ? 'better' : 'same';
}

// The quotient of the bytes of two methods on equal seeds, as the study has it: mean and interval of the logarithms.
function byte_quotient(mine, others) {
  if (!mine || !others || mine.length !== others.length || mine.length === 0) return null;
  if (mine.concat(others).some((bytes) => !is_number(bytes) || bytes <= 0)) return null;
  const logs = summary_of(mine.map((bytes, i) => Math.log(bytes / others[i])));
  return {ratio: Math.exp(logs.mean), ci95: logs.n > 1 ? [Math.exp(logs.low), Math.exp(logs.high)] : null};
}

function pilot_bytes(group) {
  return group.pilot && is_number(group.pilot.bytes) ? group.pilot.bytes : 0;
}

// What a method costs, with its pilot: {median, by_seed} of the bytes in all, or of those to the target; null where
// there are none.
function cost_of(group, measure) {
  const {to_target: target, measures} = group, bytes = measures && measures.bytes, pilot = pilot_bytes(group);
  const [median, by_seed] = measure === 'to_target' ? [target && target.median_bytes, target && target.bytes_by_seed] :
                                                      [bytes && bytes.median, bytes && bytes.by_seed];
  const with_pilot = (number) => (is_number(number) ? number + pilot : null);
  return {median: with_pilot(median), by_seed: Array.isArray(by_seed) ? by_seed.map(with_pilot) : null};
}

function is_complete(group, seeds) {
  return Boolean(group.chosen) && group.diverged === 0 && group.n === seeds;
}

function baselines_of(summary) {
  return summary.methods.filter(
      (group) => !group.vs_baseline && (group.name === summary.plan.baseline || group.spec === summary.plan.baseline));
}

// An answer for each entry of the baseline: one with several ratios is compared at equal ratio, so there are several
// questions.
function answers_of(summary) {
  const baselines = baselines_of(summary);
  if (baselines.length === 0) return [{outcome: 'unknown', why: 'no_baseline'}];
  return baselines.map((baseline) => {
    const others = summary.methods.filter(
        (group) => group.vs_baseline &&
            (baselines.length === 1 || (group.vs_baseline.ratio ?? null) === (baseline.ratio ?? null)));
    return answer_for(summary, baseline, others);
  });
}

function answer_for(summary, baseline, others) {
  const {plan} = summary, seeds = plan.seeds.length, everyone = [baseline, ...others];
  const result = {baseline, others, measure: null, candidates: [], worse: [], diverged: [], unfinished: []};
  for (const group of everyone) {
    if (!group.chosen || group.diverged > 0)
      result.diverged.push(group);
    else if (group.n !== seeds)
      result.unfinished.push(group);
    else if (group !== baseline && standing(group.vs_baseline, plan) === 'worse')
      result.worse.push(group);
  }
  const unknown = (why) => ({outcome: 'unknown', why, ...result});
  if (result.diverged.length === everyone.length) return unknown('all_diverged');
  if (seeds < 2) return unknown('one_seed');
  if (result.diverged.includes(baseline)) return unknown('baseline_diverged');
  if (!is_complete(baseline, seeds)) return unknown('baseline_unfinished');
  if (others.length === 0) return unknown('nothing_to_compare');

  const allowed = everyone.filter(
      (group) => is_complete(group, seeds) &&
          (group === baseline || ['better', 'same'].includes(standing(group.vs_baseline, plan))));
  const at_target =
      summary.target ? allowed.filter((group) => group.to_target && group.to_target.reached === seeds) : [];
  result.missed = summary.target ? allowed.filter((group) => !at_target.includes(group)) : [];
  result.measure = at_target.length ? 'to_target' : 'bytes';
  const cost = (group) => cost_of(group, result.measure).median;
  const by_seed = (group) => cost_of(group, result.measure).by_seed;
  result.candidates =
      (at_target.length ? at_target : allowed)
          .filter((group) => is_number(cost(group)))
          .map((group) => ({
                 group,
                 cost: cost(group),
                 to_baseline: group === baseline ? null : byte_quotient(by_seed(group), by_seed(baseline))
               }));
  if (result.candidates.length === 0) return unknown('no_bytes');
  const in_all = (group) => cost_of(group, 'bytes').median ?? Infinity;
  // The order of the plan decides last, so that equal ones always give the same answer.
  result.candidates.sort(
      (a, b) => a.cost - b.cost || in_all(a.group) - in_all(b.group) ||
          everyone.indexOf(a.group) - everyone.indexOf(b.group));
  const best = result.candidates[0];
  result.close = result.candidates.slice(1)
                     .map((one) => ({...one, quotient: byte_quotient(by_seed(best.group), by_seed(one.group))}))
                     .filter((one) => !one.quotient || !one.quotient.ci95 || one.quotient.ci95[1] >= 1);
  return {
    outcome: 'use',
    use: best.group,
    standing: best.group === baseline ? null : standing(best.group.vs_baseline, plan),
    best,
    ...result
  };
}
