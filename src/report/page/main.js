// The page from top to bottom: what it is about, the answer, the charts, the tables.

function section(id, title, ...children) {
  return html("section", {id}, html("h2", {}, title), children);
}

function study_answer(summary) {
  const {plan} = summary, answers = answers_of(summary);
  const one = (answer) => html("div", {"data-outcome": answer.outcome, "data-why": answer.why, "data-use": answer.use ? label_in(answer.use) : null, "data-measure": answer.measure},
      answers.length > 1 && answer.baseline && html("p", {class: "question"}, "Compared with ", named(label_in(answer.baseline)), ":"),
      html("p", {class: "headline"}, headline_of(answer)), html("ul", {class: "reasons"}, reasons_of(answer, summary).map((reason) => html("li", {}, reason))),
      list_of("What limits this answer", cautions_of(answer, summary)));
  return html("section", {id: "answer", class: "answer"},
      html("p", {class: "question"}, "Which method should be used here instead of ", named(plan.baseline), ", and what does it save?"), answers.map(one),
      html("details", {id: "rule", open: true}, html("summary", {}, "How this was decided"), html("p", {}, rule_text(summary)), html("p", {}, summary.intervals || ""),
          html("p", {}, "The settings of every method were chosen from equally many by the mean ", words_of(plan.tuned_by || "validation_loss"), " on ",
              String((plan.tune_seeds || []).length), " other seeds. Not adjusted for: choosing the cheapest of several methods on the same seeds that judge them.")));
}

function list_of(title, items) {
  return items.length > 0 && html("div", {class: "cautions"}, html("h3", {}, title), html("ul", {}, items.map((item) => html("li", {}, item))));
}

// What can be said without a study: facts, no ranking.
function plain_answer(data, shown) {
  const words = {
    study: ["The study is not finished, so there is no answer yet.", "Charts below show the runs that are there."],
    compare: ["This comparison shows what is saved, not which method is best.",
              "Every method was run once, with one seed and with settings that were tuned for none of them. Another seed or learning rate may turn the order around. `sparsewire study` chooses settings, repeats runs on several seeds and gives intervals."],
    metrics: [shown.length === 1 ? "One run: nothing is compared here." : "Runs as they are: nothing was tuned or judged here.",
              "Charts show the metrics that were written. To compare methods with intervals, use `sparsewire study`."],
  }[data.kind] || ["", ""];
  const facts = [];
  const ends = runs_by_method(shown).map((item) => ({...item, bytes: item.runs.length === 1 ? (last_number(item.runs[0], "total_bytes_up") ?? NaN) + (last_number(item.runs[0], "total_bytes_down") ?? NaN) : NaN}))
      .filter((item) => is_number(item.bytes) && item.bytes > 0);
  if (data.kind === "compare" && ends.length > 1) {
    const least = ends.reduce((a, b) => (b.bytes < a.bytes ? b : a)), dense = ends.find((item) => data.methods[item.index].name === "dense") || ends.reduce((a, b) => (b.bytes > a.bytes ? b : a));
    if (least !== dense) facts.push(["In these runs ", named(least.label), " moved the fewest bytes, ", bytes_text(least.bytes), ": ", quotient_text(least.bytes / dense.bytes), " of ", named(dense.label), "’s ", bytes_text(dense.bytes), "."]);
  }
  const diverged = shown.filter((run) => run.status === "diverged");
  if (diverged.length) facts.push(["Diverged: ", diverged.slice(0, 8).map((run, i) => [i ? ", " : "", named(method_label(run))]), diverged.length > 8 ? " and " + (diverged.length - 8) + " more." : "."]);
  return html("section", {id: "answer", class: "answer", "data-outcome": "none"}, html("p", {class: "headline"}, words[0]),
      html("p", {}, words[1].split("`").map((part, i) => (i % 2 ? html("code", {}, part) : part))), facts.map((fact) => html("p", {}, fact)));
}

function charts_of_runs(data, shown) {
  const columns = columns_of(shown), pick = (pattern) => columns.filter((key) => pattern.test(key)), charts = [];
  if (shown.length === 0 || columns.length === 0) return charts;
  const primary = data.summary && data.summary.plan.primary, first = primary === "val_loss" ? "validation_loss" : primary === "metric" ? columns.find((key) => /accuracy|distance/.test(key)) : primary;
  const ordered = columns.includes(first) ? [first, ...columns.filter((key) => key !== first)] : columns;
  const seeds = report.data.methods.some((_, index) => shown.filter((run) => run.method === index).length > 1)
      ? "Lines are means over the seeds at equal steps (x too), bands their 95 % intervals (t distribution). " : "";
  charts.push(progress_chart({
    id: "progress", title: "Training, step by step", columns: ordered, axis: data.methods.length > 1 ? "bytes" : "step",
    caption: seeds + "A cross at the end of a line: diverged; a mean ends where its first run does. Emulated time: every worker has a link of the given rate in each direction, " +
        "sends and receives one after the other, waits the latency twice a step and computes as long as you say; a server’s own link is not a bottleneck. Move over the chart, or use the arrow keys, for values.",
  }, shown));
  const memory = pick(/^(memory_norm2|total_error|server_memory_norm2|server_error|owed_norm2)$/);
  if (memory.length) charts.push(progress_chart({id: "memory", title: "What is owed: error memory and total error", columns: memory, axis: "step",
    caption: seeds + "The error memory holds what was not sent yet; the total error is the sum of its squared norms over the steps. Smaller at equal bytes is better; dense training owes nothing."}, shown));
  const density = ["density", "entries_sent", "entries_total", "xi", "gamma"].filter((key) => columns.includes(key));
  if (density.length) charts.push(progress_chart({id: "density", title: "How much of the model is updated in a step", columns: density, axis: "step",
    caption: seeds + "Density: the share of all weights that the update of a step changes. It grows with the number of workers where the downlink is not sparsified."}, shown));
  if (shown.some((run) => last_number(run, "total_bytes_up") > 0 || last_number(run, "total_bytes_down") > 0)) charts.push(bytes_chart(shown));
  if (STAGES.some((stage) => pick(new RegExp("^ns_" + stage + "$")).length)) charts.push(stage_chart(shown));
  return charts;
}

function contents(sections) {
  return html("nav", {class: "controls", "aria-label": "contents"}, sections.map((one) => html("a", {href: "#" + one.id, click: (event) => {
    // The address keeps the settings, so a link only scrolls.
    event.preventDefault();
    one.scrollIntoView();
  }}, one.querySelector("h2").textContent)));
}

function build(data) {
  const ratio = shorten_labels(data), shown = data.runs.filter(is_shown), {summary, reproduction} = data, sections = [];
  if (summary) {
    sections.push(section("study", "What the study found", tradeoff_chart(summary), summary.methods.some((group) => group.vs_baseline) && forest_chart(summary),
        summary.target && summary.methods.some((group) => group.to_target && group.n > 0) && target_chart(summary)));
    sections.push(section("all-methods", "All methods", methods_table(summary)));
  }
  if (reproduction) {
    sections.push(section("evidence", "The evidence", (reproduction.measured || []).length > 0 && [measured_chart(reproduction), measured_table(reproduction)],
        reproduction.table && html("details", {}, html("summary", {}, "The table as the program prints it"), html("pre", {tabindex: 0}, reproduction.table))));
  }
  const charts = charts_of_runs(data, shown);
  if (!summary && shown.length && shown.some((run) => run.result && Object.keys(run.result).length)) sections.push(section("all-results", "Results", results_table(shown)));
  if (charts.length) sections.push(section("training", "The runs", charts));
  if (summary && summary.grid && summary.grid.length) sections.push(section("tuning", "Settings", grid_chart(summary)));
  if (data.runs.length) sections.push(section("all-runs", "Every run", runs_table(data.runs)));

  const notes = summary ? (summary.notes || []) : [];
  return [
    html("header", {}, html("div", {class: "masthead"}, html("h1", {}, named(data.title || "report")), theme_switch()),
        data.problem && html("p", {class: "problem"}, named(data.problem), ratio), follow(data.live)),
    data.notices.length > 0 && html("section", {id: "notices", class: "notices"}, html("h2", {}, "What to know about these data"), html("ul", {}, data.notices.map((one) => html("li", {}, named(one))))),
    reproduction ? verdict_section(reproduction) : summary ? study_answer(summary) : plain_answer(data, shown),
    sections.length > 1 && contents(sections), sections, notes.length > 0 && section("notes", "Notes", html("ul", {}, notes.map((one) => html("li", {}, named(one))))),
    html("footer", {}, "Made by ", named(data.made_by || "sparsewire"), ". This file is complete: it needs no network and asks for nothing."),
  ].flat().filter(Boolean);
}

function main() {
  const page = document.getElementById("page");
  try {
    apply_theme();
    follow_address();
    page.replaceChildren(...build(read_data()));
    draw_figures();
    return_to_place();
  } catch (error) {
    page.append(html("p", {role: "alert"}, "This report cannot be shown: " + error.message));
    throw error;
  }
}

main();
