// The answer in sentences. Each is a list of texts and nodes.

function quoted(group) {
  return html("strong", {}, named(label_in(group)));
}

function listed(groups, limit = 6) {
  const shown = groups.slice(0, limit).map((group, i) => [i ? (i === groups.length - 1 ? " and " : ", ") : "", named(label_in(group))]);
  return [shown, groups.length > limit ? " and " + (groups.length - limit) + " others" : ""];
}

function measure_words(plan) {
  return plan.primary === "metric" ? plan.metric || "metric" : words_of(plan.primary);
}

function part_of(quotient, of) {
  return quotient < 1 ? [quotient_text(quotient), " of ", of, "’s bytes"] : [quotient_text(quotient), " times ", of, "’s bytes"];
}

function quotient_range(ci95) {
  return quotient_text(ci95[0]) + " to " + quotient_text(ci95[1]);
}

function headline_of(answer) {
  if (answer.outcome === "use") return ["Use ", quoted(answer.use), "."];
  return {
    no_baseline: ["There is no baseline to compare with."],
    all_diverged: ["No method can be used as it is: all diverged."],
    one_seed: ["One seed does not tell which method is better."],
    baseline_diverged: ["No answer: the baseline diverged."],
    baseline_unfinished: ["No answer yet: runs of the baseline are missing."],
    nothing_to_compare: ["There is nothing to compare the baseline with."],
    no_bytes: ["No answer: no bytes were counted."],
  }[answer.why];
}

// Bytes, then the measure, then what else a reader would ask.
function reasons_of(answer, summary) {
  const {plan} = summary, seeds = plan.seeds.length, measure = measure_words(plan);
  if (answer.outcome !== "use") return reasons_for_nothing(answer, summary);
  const {use, baseline, best} = answer, reasons = [];
  const goal = answer.measure === "to_target";
  const spent = goal ? "needs " + bytes_text(best.cost) + " to reach the target" : "moves " + bytes_text(best.cost) + " in all";
  if (use === baseline) {
    reasons.push(["It ", spent, ", and no method that is not worse needs fewer bytes",
                  answer.worse.length ? [": ", listed(answer.worse), answer.worse.length > 1 ? " are" : " is", " worse in ", measure] : "", "."]);
  } else if (best.to_baseline) {
    const {ratio, ci95} = best.to_baseline;
    reasons.push(["It ", spent, ", ", part_of(ratio, quoted(baseline)), ci95 ? " (95 % interval " + quotient_range(ci95) + ")" : "",
                  goal ? ", and got there on all " + seeds + " seeds." : "."]);
  } else {
    reasons.push(["It ", spent, goal ? ["; ", quoted(baseline), " did not reach the target on every seed."] : "."]);
  }
  if (use !== baseline) reasons.push(measure_reason(answer, plan, measure));
  if (use.equal_bytes && is_number(use.equal_bytes.mean) && baseline.equal_bytes && is_number(baseline.equal_bytes.mean) && use !== baseline) {
    reasons.push(["After equally many bytes (", bytes_text(summary.equal_bytes), ") its ", measure, " is ", interval_text(use.equal_bytes.mean, use.equal_bytes.ci95),
                  ", that of ", quoted(baseline), " ", interval_text(baseline.equal_bytes.mean, baseline.equal_bytes.ci95), "."]);
  }
  return reasons;
}

function measure_reason(answer, plan, measure) {
  const versus = answer.use.vs_baseline, better = higher_is_better(plan) ? "higher" : "lower", worse = higher_is_better(plan) ? "lower" : "higher";
  const numbers = "(difference " + interval_text(versus.diff, versus.ci95).replace(/ ±.*/, "") + ", 95 % interval " + range_text(versus.ci95) +
      (is_number(versus.p_holm) ? ", adjusted p " + p_text(versus.p_holm) : "") + ")";
  if (answer.standing === "better") {
    const is_sure = is_number(versus.p_holm) && versus.p_holm < 0.05;
    return ["Its ", measure, " is ", better, " than that of ", quoted(answer.baseline), " ", numbers,
            is_sure ? "." : ": by its own interval, but not once adjusted for the number of comparisons."];
  }
  const limit = higher_is_better(plan) ? -versus.ci95[0] : versus.ci95[1], mean = answer.baseline.measures[plan.primary] && answer.baseline.measures[plan.primary].mean;
  const share = is_number(mean) && mean !== 0 ? " (" + number_text(100 * Math.abs(limit / mean), 2) + " % of " + number_text(mean, 3) + ")" : "";
  return ["Its ", measure, " cannot be told apart from that of ", quoted(answer.baseline), " ", numbers, ". That is not proof of equality: it may be up to ",
          number_text(limit, 2), " ", worse, share, "."];
}

function reasons_for_nothing(answer, summary) {
  const seeds = summary.plan.seeds.length, again = "Run the study with more seeds (--seeds 5): differences then have intervals.";
  switch (answer.why) {
    case "one_seed": return [["Another seed may turn the order around. What the numbers below show is this one run of each method. ", again]];
    case "baseline_diverged": return [[quoted(answer.baseline), answer.baseline.chosen
        ? " diverged on " + answer.baseline.diverged + " of " + seeds + " seeds" : " diverged with every setting that was tried",
        ", so nothing can be compared with it. Try smaller learning rates, or another --baseline."]];
    case "all_diverged": return [["Every method diverged in a judging run or with every setting that was tried. Try smaller learning rates (--lr)."]];
    case "nothing_to_compare": return [["The study has one method."]];
    case "baseline_unfinished": return [["The study is not finished."]];
    default: return [];
  }
}

function edge_caution(group, baseline, role) {
  return Object.entries(group.at_edge || {}).map(([key, side]) => {
    const what = key === "lr" ? "learning rate" : key, chosen = group.chosen ? (key === "lr" ? group.chosen.lr : (group.chosen.own || {})[key]) : null;
    if (side === "only") {
      return key === "lr" ? ["Only one learning rate (", number_text(chosen), ") was tried for ", named(label_in(group)), ": it is not tuned."] : null;
    }
    const effect = role === "baseline" ? "a better one may lie beyond, and the comparison may flatter the other methods"
        : role === "worse" ? "it may do better beyond, and was left out for what it does here" : "a better one may lie beyond";
    return ["The ", what, " of ", named(label_in(group)), ", ", number_text(chosen), ", is the ", side === "low" ? "smallest" : "largest", " that was tried: ", effect,
            " (--grow)."];
  }).filter(Boolean);
}

// What limits the answer, in the order of weight.
function cautions_of(answer, summary) {
  const cautions = [], seeds = summary.plan.seeds.length;
  if (answer.outcome === "use") {
    if (answer.measure === "bytes" && summary.target) cautions.push(["No method that is not worse reached the target on every seed, so the bytes of all steps are compared."]);
    if (answer.close.length) {
      cautions.push(["In bytes, ", named(label_in(answer.use)), " cannot be told apart from ", listed(answer.close.map((one) => one.group)),
                     " (the interval of the quotient on equal seeds contains 1): between these, take the one that is simplest for you."]);
    }
    if (seeds < 5) cautions.push(["There are only " + seeds + " seeds: intervals are wide, and a method counts as “not worse” until they show otherwise."]);
    cautions.push(...edge_caution(answer.use, answer.baseline, "use"));
    if (answer.use !== answer.baseline) cautions.push(...edge_caution(answer.baseline, answer.baseline, "baseline"));
    for (const group of answer.worse) cautions.push(...edge_caution(group, answer.baseline, "worse").filter((caution) => !String(caution[0]).startsWith("Only")));
    if (answer.use.pilot && is_number(answer.use.pilot.bytes)) {
      cautions.push(["The pilot that measured its threshold moved another ", bytes_text(answer.use.pilot.bytes), ", not counted here."]);
    }
  }
  const left_out = (groups, words) => { if (groups && groups.length) cautions.push(["Left out: ", listed(groups), " (", words, ")."]); };
  if (answer.use !== answer.baseline) left_out(answer.worse, measure_words(summary.plan) + " worse than the baseline’s, by its interval");
  left_out((answer.diverged || []).filter((group) => group !== answer.baseline || answer.outcome === "use"), "diverged on a seed or with every setting");
  if (answer.measure === "to_target") left_out(answer.missed, "did not reach the target on every seed");
  left_out(answer.unfinished, "runs are missing");
  return cautions;
}

function rule_text(summary) {
  const {plan, target} = summary, measure = measure_words(plan);
  const goal = target ? ["the one that needs the fewest bytes (median over the seeds) until the ", words_of(target.measure), " is at most ", number_text(target.value, 5),
                         " (mean of 5 evaluations) on every seed; if none gets there, the one that moved the fewest bytes in all"] : "the one that moved the fewest bytes";
  return ["Of the methods that are not worse than ", named(plan.baseline), " (no run diverged, and the 95 % interval of the difference in ", measure,
          " does not lie entirely on the worse side of 0), ", goal, "."];
}
