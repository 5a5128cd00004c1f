// The tables of the page: methods with intervals, and runs with their configuration.

function methods_table(summary) {
  const {plan} = summary, measure = measure_words(plan), of = (group) => group.measures || {};
  const one = (title, value, text, more) => ({title, value, text, is_number: true, ...more});
  const mean = (key) => (group) => (of(group)[key] ? of(group)[key].mean ?? of(group)[key].median : null);
  const with_interval = (key) => (group) => {
    const numbers = of(group)[key];
    if (!numbers) return "–";
    if (is_number(numbers.mean)) return interval_text(numbers.mean, numbers.ci95);
    return is_number(numbers.median) ? "median " + number_text(numbers.median) : "diverged";
  };
  const versus = (group) => group.vs_baseline || {};
  const columns = [
    {title: "method", value: (group) => group_row(group).label,
     node: (group) => html("span", {class: "method"}, sample(group_row(group).style), html("bdi", {}, group_row(group).label))},
    one(measure, mean(plan.primary), with_interval(plan.primary)),
    one("difference", (group) => versus(group).diff, (group) => (is_number(versus(group).diff) ? interval_text(versus(group).diff, versus(group).ci95, true) : "–"),
        {hint: "to " + plan.baseline + " on equal seeds"}),
    one("p (Holm)", (group) => versus(group).p_holm, (group) => p_text(versus(group).p_holm)),
    one("won", (group) => versus(group).wins, (group) => (group.vs_baseline && group.n ? versus(group).wins + " of " + group.n : "–"), {hint: "seeds on which it is better than " + plan.baseline}),
    one("bytes", mean("bytes"), (group) => bytes_text(mean("bytes")(group)), {hint: "of all workers, up and down"}),
    one("to target", (group) => group.to_target && group.to_target.median_bytes, (group) => {
      const goal = group.to_target;
      if (!goal) return "–";
      return is_number(goal.median_bytes) ? bytes_text(goal.median_bytes) : group.n ? "not reached, " + (group.n - goal.reached) + " of " + group.n : "–";
    }, {hint: "median of the bytes until the target is reached"}),
    one("of " + plan.baseline, (group) => (group.to_target && group.to_target.log_ratio ? group.to_target.log_ratio.ratio : null), (group) => {
      const ratio = group.to_target && group.to_target.log_ratio;
      return ratio && is_number(ratio.ratio) ? quotient_text(ratio.ratio) + (ratio.ratio_ci95 ? " (" + quotient_range(ratio.ratio_ci95) + ")" : "") : "–";
    }, {hint: "bytes to target over the baseline's, with its 95 % interval"}),
    one(plan.primary === "metric" ? words_of("val_loss") : plan.metric || "metric", mean(plan.primary === "metric" ? "val_loss" : "metric"),
        with_interval(plan.primary === "metric" ? "val_loss" : "metric")),
    one("learning rate", (group) => (group.chosen ? group.chosen.lr : null), (group) => {
      const edge = (group.at_edge || {}).lr;
      return group.chosen ? number_text(group.chosen.lr) + (edge === "low" || edge === "high" ? " *" : "") + (own_text(group.chosen.own) ? ", " + own_text(group.chosen.own) : "") : "all diverged";
    }, {hint: "chosen on the tuning seeds; * at the edge of the grid"}),
    one("total error", mean("total_error"), (group) => number_text(mean("total_error")(group), 3)),
    one("diverged", (group) => group.diverged, (group) => group.diverged + " of " + group.n),
  ];
  return data_table({id: "methods", title: "Methods: means and 95 % intervals over " + plan.seeds.length + " seeds", rows: () => summary.methods, columns});
}

// Methods of runs without a summary: what each ended with.
function results_table(runs) {
  const keys = Array.from(new Set(runs.flatMap((run) => Object.keys(run.result || {}).filter((key) => is_number(run.result[key])))));
  const wanted = ["test_loss", "validation_loss", "val_loss", "train_loss", "loss", "test_accuracy", "validation_accuracy", "metric", "distance", "bytes_up", "bytes_down", "ratio_to_dense",
                  "paper_bits_up", "total_error", "peak_memory_norm2", "seconds"].filter((key) => keys.includes(key));
  const columns = [
    {title: "method", value: (run) => method_label(run), node: (run) => html("span", {class: "method"}, sample(style_of(run.method)), html("bdi", {}, method_label(run)))},
    {title: "status", value: (run) => status_text(run)},
    ...wanted.map((key) => ({title: key === "ratio_to_dense" ? "of dense" : words_of(key), is_number: true, value: (run) => run.result[key], text: (run) => (key === "ratio_to_dense" ? quotient_text : format_of(key))(run.result[key])})),
  ];
  return data_table({id: "results", title: "What each run ended with", rows: () => runs, columns});
}

function method_label(run) {
  const method = report.data.methods[run.method];
  return method ? method.label : "?";
}

function status_text(run) {
  return run.status + (run.status === "diverged" && is_number(run.diverged_at) ? " in step " + run.diverged_at : "");
}

// Options that differ between runs; those that all have in common stand below the table, once.
function runs_table(runs) {
  const options = Array.from(new Set(runs.flatMap((run) => Object.keys(run.config || {}))));
  const text = (run, key) => { const value = (run.config || {})[key]; return value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value); };
  const differs = (key) => runs.some((run) => text(run, key) !== text(runs[0], key));
  const common = options.filter((key) => !differs(key)), varied = options.filter((key) => differs(key) && !["lr", "seed"].includes(key)).slice(0, 12);
  const results = ["test_loss", "val_loss", "validation_loss", "train_loss", "metric", "test_accuracy"]
      .filter((key) => runs.some((run) => run.result && is_number(run.result[key])));
  const phases = Array.from(new Set(runs.map((run) => run.phase)));
  const phase = () => (phases.includes(setting("runs.phase")) ? setting("runs.phase") : "");
  const number = (title, value, show = number_text) => ({title, value, text: (run) => show(value(run)), is_number: true});
  const columns = [
    {title: "method", value: method_label, node: (run) => html("span", {class: "method"}, sample(style_of(run.method)), html("bdi", {}, method_label(run)))},
    phases.length > 1 && {title: "phase", value: (run) => run.phase},
    number("seed", (run) => run.seed, (value) => (value === null || value === undefined ? "–" : String(value))), number("learning rate", (run) => run.lr),
    {title: "status", value: status_text},
    ...results.map((key) => number(words_of(key), (run) => (run.result ? run.result[key] : null))),
    number("lines", (run) => run.lines), number("seconds", (run) => run.seconds, seconds_text),
    ...varied.map((key) => ({title: key.replace(/_/g, " "), value: (run) => text(run, key), node: (run) => named(text(run, key))})),
    {title: "id", value: (run) => run.id, node: (run) => named(run.id)},
  ].filter(Boolean);
  const detail = (run) => html("div", {}, html("h4", {}, "Configuration"), pairs_list(options.map((key) => [key, text(run, key)])),
      html("h4", {}, "Result"), pairs_list(Object.entries(run.result || {}).map(([key, value]) => [key, value === null ? "" : String(value)])));
  const table = data_table({id: "runs", title: "Runs", rows: () => runs.filter((run) => !phase() || run.phase === phase()), columns, detail, key: (run) => run.id + run.method, follows: true, limit: 100});
  return html("div", {}, phases.length > 1 && html("p", {class: "controls"}, select_of("runs.phase", "Show", [["", "all runs"], ...phases.map((one) => [one, one])], phase(), (to) => set("runs.phase", to || null))),
      table, common.length > 0 && html("details", {id: "common"}, html("summary", {}, "What all runs have in common (" + common.length + " options)"), pairs_list(common.map((key) => [key, text(runs[0], key)]))));
}
