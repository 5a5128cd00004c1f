// What a study concluded, as charts: cost against quality, differences to the baseline, bytes to the target.

// The index of a group of the summary among the methods of the page, which have its colours.
function method_index(group) {
  const methods = report.data.methods, same = (a, b) => (a ?? null) === (b ?? null);
  const at = methods.findIndex((method) => (method.name === group.name || method.spec === group.spec) && same(method.ratio, group.ratio));
  return at >= 0 ? at : report.data.summary.methods.indexOf(group);
}

function group_row(group) {
  const index = method_index(group), method = report.data.methods[index];
  return {index, label: method ? method.label : label_in(group), style: style_of(index)};
}

function forest_chart(summary) {
  const {plan} = summary, measure = measure_words(plan), at_equal = () => setting("differences.at") === "bytes";
  const has_equal = summary.equal_bytes !== null && summary.methods.some((group) => group.equal_bytes && group.equal_bytes.vs_baseline);
  const compared = () => summary.methods.filter((group) => group.vs_baseline)
      .map((group) => ({group, versus: at_equal() && has_equal ? group.equal_bytes && group.equal_bytes.vs_baseline : group.vs_baseline}));
  const rows = () => compared().map(({group, versus}) => {
    const row = group_row(group);
    if (!versus || !is_number(versus.diff)) {
      return {...row, marks: [], is_quiet: true, text: group.diverged ? "diverged, " + group.diverged + " of " + group.n : !group.chosen ? "diverged" : "no difference known"};
    }
    const p = is_number(versus.p_holm) ? ", p " + p_text(versus.p_holm) : "";
    const text = interval_text(versus.diff, versus.ci95, true) + p;
    const marks = [{kind: "value", x: versus.diff, hint: text}];
    if (versus.ci95) marks.unshift({kind: "interval", low: versus.ci95[0], high: versus.ci95[1], hint: range_text(versus.ci95)});
    return {...row, marks, text};
  });
  const csv = () => [["method", "difference", "low", "high", "p", "p_holm", "wins", "losses"]].concat(compared().map(({group, versus}) =>
      [group_row(group).label, versus && versus.diff, versus && versus.ci95 && versus.ci95[0], versus && versus.ci95 && versus.ci95[1],
       versus && versus.p, versus && versus.p_holm, versus && versus.wins, versus && versus.losses]));
  const better = higher_is_better(plan) ? "right" : "left";
  return row_chart({
    id: "differences", title: "Difference to " + plan.baseline + " in " + measure, rows, csv,
    axis: {words: "difference in " + measure + " (better: to the " + better + ")", format: number_text, at: 0},
    controls: () => (has_equal ? [select_of("differences.at", "Compared after", [["steps", "all steps"], ["bytes", "equal bytes (" + bytes_text(summary.equal_bytes) + ")"]],
        at_equal() ? "bytes" : "steps", (to) => set("differences.at", to === "bytes" ? to : null))] : []),
    caption: "Each line is the 95 % interval of the mean difference on equal seeds. One that crosses 0 says: not known which is better. Entirely to the " + better +
        ": better; entirely to the other side: worse. p is adjusted for the number of methods (Holm).",
  });
}

// Bytes at which a run that did not reach the target ended.
function censored_bytes(group, i) {
  const bytes = group.measures.bytes && group.measures.bytes.by_seed[i];
  return is_number(bytes) ? bytes : group.to_target.censored_at;
}

function target_chart(summary) {
  const {plan, target} = summary;
  const groups = summary.methods.filter((group) => group.to_target && group.n > 0);
  const dot = (group, bytes, i) => {
    const shift = (i - (plan.seeds.length - 1) / 2) * Math.min(5, 20 / plan.seeds.length), seed = "seed " + plan.seeds[i] + ": ";
    if (is_number(bytes)) return {kind: "dot", x: bytes, shift, hint: seed + bytes_text(bytes)};
    const at = censored_bytes(group, i);
    return is_number(at) ? {kind: "censored", x: at, shift, hint: seed + "not reached after " + bytes_text(at)} : null;
  };
  const rows = () => groups.map((group) => {
    const goal = group.to_target, marks = (goal.bytes_by_seed || []).map((bytes, i) => dot(group, bytes, i)).filter(Boolean);
    if (is_number(goal.median_bytes)) marks.push({kind: "median", x: goal.median_bytes, hint: "median: " + bytes_text(goal.median_bytes)});
    const ratio = goal.log_ratio && is_number(goal.log_ratio.ratio)
        ? "  " + quotient_text(goal.log_ratio.ratio) + (goal.log_ratio.ratio_ci95 ? " (" + quotient_range(goal.log_ratio.ratio_ci95) + ")" : "") : "";
    const reached = goal.reached < group.n ? (group.n - goal.reached) + " of " + group.n + " not reached" : "";
    return {...group_row(group), marks, text: [is_number(goal.median_bytes) ? bytes_text(goal.median_bytes) : "", reached, ratio].filter(Boolean).join(" ")};
  });
  const csv = () => [["method", "seed", "bytes_to_target", "censored_at"]].concat(groups.flatMap((group) => (group.to_target.bytes_by_seed || []).map((bytes, i) =>
      [group_row(group).label, String(plan.seeds[i]), bytes, is_number(bytes) ? null : censored_bytes(group, i)])));
  return row_chart({
    id: "target", title: "Bytes until the target is reached", rows, csv,
    axis: {words: "bytes up and down, all workers", format: bytes_text, is_log: true},
    key: () => [
      {label: "a seed", draw: (x, y) => svg("circle", {cx: x, cy: y, r: 4, fill: "var(--soft)", "fill-opacity": 0.6})},
      {label: "median", draw: (x, y) => svg("line", {x1: x, x2: x, y1: y - 7, y2: y + 7, stroke: "var(--soft)", "stroke-width": 3})},
      {label: "not reached: would take more", draw: (x, y) => svg("g", {}, marker("circle", x - 4, y, 3.5, "var(--soft)", true), marker("right", x + 5, y, 3.5, "var(--soft)", true))},
    ],
    caption: "Target: " + words_of(target.measure) + " of at most " + number_text(target.value, 5) + " (mean of 5 evaluations; set by " +
        (target.set_by === "given" ? "the command" : target.set_by) + "). At the right the median, and the bytes as a part of " + plan.baseline +
        "’s on equal seeds with its 95 % interval.",
  });
}

// Bytes in all against the primary measure: down and to the left is better.
function tradeoff_chart(summary) {
  const {plan} = summary, measure = measure_words(plan);
  const reached = summary.methods.filter((group) => group.to_target && is_number(group.to_target.median_bytes)).length;
  const by_itself = summary.target && reached >= 2 ? "target" : "all";
  const to_target = () => Boolean(summary.target) && setting("tradeoff.x", by_itself) === "target";
  const points = () => summary.methods.map((group) => {
    const y = group.measures[plan.primary], bytes = group.measures.bytes;
    const x = to_target() ? group.to_target && group.to_target.median_bytes : bytes && bytes.median;
    return {...group_row(group), group, x, y: y && y.mean, low: y && y.ci95 ? y.ci95[0] : undefined, high: y && y.ci95 ? y.ci95[1] : undefined};
  });
  const is_there = (point) => is_number(point.x) && is_number(point.y);
  const draw = (width, standalone) => {
    const shown = points(), there = shown.filter(is_there), chart = drawing(width, 100, measure + " against bytes"), top = 30;
    const box = {left: 60, right: width - 20, top, bottom: top + (width < 520 ? 230 : 290)};
    const y = scale_for(there.flatMap((point) => [point.y, point.low, point.high]), [box.bottom, box.top], false, 5);
    box.left = Math.max(40, ...y.ticks.map((tick) => text_width(number_text(tick), 12) + 12));
    const x = scale_for(there.map((point) => point.x), [box.left + 16, box.right - 16], spans_decades(there.map((point) => point.x), 5),
        Math.max(3, Math.floor((box.right - box.left) / 100)));
    draw_axes(chart, box, x, y, {x: (to_target() ? "bytes to the target, median" : "bytes of all steps, median") + (x.is_log ? ", log scale" : ""),
                                 x_format: bytes_text, y_format: number_text});
    chart.append(chart_text(fitted(measure + " after all steps, mean and 95 % interval", width - 4, 12.5), {x: 2, y: top - 11, "font-size": 12.5}));
    for (const point of there) {
      const at = x.to(point.x), line = (y1, y2, x1 = at, x2 = at) => svg("line", {x1, x2, y1, y2, stroke: point.style.colour, "stroke-width": 2});
      const mark = svg("g", {class: "mark value"}, svg("title", {}, point.label + ": " + bytes_text(point.x) + ", " + interval_text(point.y, point.low === undefined ? null : [point.low, point.high])));
      if (is_number(point.low)) mark.append(line(y.to(point.low), y.to(point.high)), ...[point.low, point.high].map((end) => line(y.to(end), y.to(end), at - 4, at + 4)));
      mark.append(marker(point.style.marker, at, y.to(point.y), 6.5, point.style.colour));
      chart.append(mark);
    }
    label_points(chart, there.map((point) => ({label: point.label, px: x.to(point.x), py: y.to(point.y), colour: point.style.colour,
                                              top: y.to(point.high ?? point.y), bottom: y.to(point.low ?? point.y)})), box);
    chart.setAttribute("height", box.bottom + 46);
    chart.setAttribute("viewBox", "0 0 " + width + " " + (box.bottom + 46));
    const missing = shown.filter((point) => !is_there(point));
    return {drawing: chart, notes: missing.length ? ["Not shown, because runs diverged or did not reach the target: " + missing.map((point) => point.label).join(", ") + "."] : []};
  };
  return figure({
    id: "tradeoff", title: "What a method costs and what it gives", draw,
    rows: () => [["method", "bytes", plan.primary, "low", "high"]].concat(points().map((point) => [point.label, point.x, point.y, point.low, point.high])),
    controls: () => (summary.target ? [select_of("tradeoff.x", "Bytes", [["target", "until the target"], ["all", "of all steps"]], to_target() ? "target" : "all",
        (to) => set("tradeoff.x", to === by_itself ? null : to))] : []),
    caption: "One point for each method. Further to the left: fewer bytes. " + (higher_is_better(plan) ? "Higher up" : "Lower") +
        ": better. Where the vertical lines of two methods overlap, they may be equally good; the chart of differences below decides that on equal seeds.",
  });
}

// Names beside points, where they do not cover one another; further away with a line to the point where there is no room beside it.
function label_points(target, points, box) {
  const around = (place, other) => !(place.right < other.left || place.left > other.right || place.bottom < other.top || place.top > other.bottom);
  const taken = points.map((point) => ({left: point.px - 7, right: point.px + 7, top: point.py - 7, bottom: point.py + 7}))
      .concat(points.map((point) => ({left: point.px - 2, right: point.px + 2, top: point.top, bottom: point.bottom})));
  for (const point of points) {
    const text = fitted(point.label, 170, 12.5), width = text_width(text, 12.5) * 1.08, places = [];
    for (const away of [0, 16, 32, 48, 64, 80]) {
      for (const dy of away ? [-away, away] : [0]) for (const dx of [11 + away / 2, -11 - width - away / 2]) places.push([dx, dy]);
    }
    const found = places.map(([dx, dy]) => ({left: point.px + dx, right: point.px + dx + width, top: point.py + dy - 9, bottom: point.py + dy + 8, dy})).find((place) =>
        place.left >= box.left && place.right <= box.right + 14 && place.top >= box.top && place.bottom <= box.bottom && taken.every((other) => !around(place, other)));
    if (!found) continue;
    taken.push(found);
    const middle = (found.top + found.bottom) / 2;
    if (found.dy) target.append(svg("line", {x1: point.px, y1: point.py, x2: found.left > point.px ? found.left - 3 : found.right + 3, y2: middle, stroke: point.colour, "stroke-width": 1, "stroke-opacity": 0.6}));
    target.append(chart_text(text, {x: found.left.toFixed(1), y: (middle + 4.5).toFixed(1), fill: point.colour, "font-weight": 600, "font-size": 12.5}));
  }
}
