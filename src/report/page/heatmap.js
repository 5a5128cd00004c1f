// The grid that settings were chosen from: a row for each method, ratio and own parameters, a column for each learning rate.

function own_text(own) {
  return Object.entries(own || {}).map(([key, value]) => key + "=" + value).join(", ");
}

function grid_chart(summary) {
  const cells = summary.grid, rates = Array.from(new Set(cells.map((cell) => cell.lr))).sort((a, b) => a - b);
  const rows = [], at = new Map();
  for (const cell of cells) {
    const key = JSON.stringify([cell.spec, cell.ratio ?? null, cell.own]);
    if (!at.has(key)) {
      const group = summary.methods.find((one) => one.spec === cell.spec && (one.ratio ?? null) === (cell.ratio ?? null));
      const own = own_text(cell.own);
      at.set(key, {label: (group ? group_row(group).label : cell.spec) + (own ? ", " + own : ""), cells: new Map()});
      rows.push(at.get(key));
    }
    at.get(key).cells.set(cell.lr, cell);
  }
  const means = cells.map((cell) => cell.mean).filter(is_number), measure = words_of(summary.plan.tuned_by || "validation_loss");
  const best = Math.min(...means), worst = Math.max(...means), is_log = best > 0;
  // 1 for the best, 0 for the worst.
  // The root spreads values close to the best, between which the choice is made.
  const strength = (value) => (best === worst ? 1 : 1 - Math.sqrt(is_log ? Math.log(value / best) / Math.log(worst / best) : (value - best) / (worst - best)));

  const draw = (width, standalone) => {
    const chart = drawing(width, 100, "tuning grid"), label_room = Math.min(width * 0.34, Math.max(60, ...rows.map((row) => text_width(row.label.slice(0, 200), 13))) + 12);
    const cell_width = Math.min(120, (width - label_room - 4) / rates.length), height = 34, size = cell_width < 50 ? 10 : 12;
    let top = 42;
    if (standalone) {
      top += 22;
      chart.append(chart_text("Tuning grid: mean " + measure, {x: 4, y: 16, "font-size": 14, "font-weight": 600}));
    }
    chart.append(chart_text("learning rate", {x: label_room, y: top - 26, fill: "var(--soft)"}));
    rates.forEach((rate, j) => chart.append(chart_text(number_text(rate), {x: label_room + cell_width * (j + 0.5), y: top - 8, "text-anchor": "middle"})));
    const outlines = [];
    rows.forEach((row, i) => {
      const y = top + i * height;
      chart.append(svg("g", {}, svg("title", {}, row.label), chart_text(fitted(row.label, label_room - 10, 13), {x: 2, y: y + height / 2 + 4, "font-size": 13})));
      rates.forEach((rate, j) => {
        const cell = row.cells.get(rate), x = label_room + j * cell_width;
        if (!cell) return;
        const shade = is_number(cell.mean) ? 0.06 + 0.84 * strength(cell.mean) : 0;
        const text = is_number(cell.mean) ? cell.mean.toPrecision(3).replace(/e.*/, "") : "✕ " + (cell.n ? cell.diverged + "/" + cell.n : "");
        const hint = row.label + ", learning rate " + number_text(rate) + ": " + (is_number(cell.mean) ? measure + " " + number_text(cell.mean, 5) : "diverged, " + cell.diverged + " of " + cell.n) +
            (cell.chosen ? ", chosen" : "") + (cell.grown ? ", added by --grow" : "");
        chart.append(svg("g", {class: "cell" + (cell.chosen ? " chosen" : "")}, svg("title", {}, hint),
            svg("rect", {x: x + 1, y: y + 1, width: Math.max(1, cell_width - 2), height: height - 2, fill: "var(--heat)", "fill-opacity": shade.toFixed(3), stroke: "var(--grid)"}),
            chart_text(fitted((cell.chosen && cell_width > 56 ? "✓ " : "") + text, cell_width - 2, size), {x: x + cell_width / 2, y: y + height / 2 + 4, "text-anchor": "middle", "font-size": size,
                       "font-weight": cell.chosen ? 700 : 400, fill: shade > 0.5 ? "var(--on-heat)" : is_number(cell.mean) ? "var(--ink)" : "var(--soft)"})));
        if (cell.chosen) outlines.push(svg("rect", {x: x + 1.5, y: y + 1.5, width: cell_width - 3, height: height - 3, fill: "none", stroke: "var(--mark)", "stroke-width": 3}));
      });
    });
    chart.append(...outlines);
    const bottom = top + rows.length * height + 10;
    chart.setAttribute("height", bottom);
    chart.setAttribute("viewBox", "0 0 " + width + " " + bottom);
    return {drawing: chart, notes: []};
  };
  const csv = () => [["method", "ratio", "own", "lr", "mean", "n", "diverged", "chosen"]].concat(cells.map((cell) =>
      [cell.spec, cell.ratio, own_text(cell.own), cell.lr, cell.mean, cell.n, cell.diverged, String(cell.chosen)]));
  return figure({
    id: "grid", title: "How the settings were chosen", draw, rows: csv,
    caption: "Mean " + measure + " on the " + summary.plan.tune_seeds.length + " tuning seeds; darker is lower. The framed cell (✓) was chosen and then judged on other seeds. ✕ diverged, on that many seeds. " +
        "A chosen cell at the edge of its row means that a better learning rate may lie beyond.",
  });
}
