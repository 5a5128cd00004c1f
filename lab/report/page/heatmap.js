// The grid that settings were chosen from: a row for each method, ratio and own parameters, a column for each learning
// rate.

function own_text(own) {
  return Object.entries(own || {}).map(([key, value]) => key + '=' + value).join(', ');
}

// [{label, cells: Map of learning rates to cells}]
function grid_rows(summary) {
  const rows = new Map(), same_ratio = (a, b) => (a.ratio ?? null) === (b.ratio ?? null);
  for (const cell of summary.grid) {
    const key = JSON.stringify([cell.spec, cell.ratio ?? null, cell.own]);
    if (!rows.has(key)) {
      const group = summary.methods.find((one) => one.spec === cell.spec && same_ratio(one, cell));
      const label = group ? group_row(group).label : cell.spec, own = own_text(cell.own);
      rows.set(key, {label: label + (own ? ', ' + own : ''), cells: new Map()});
    }
    rows.get(key).cells.set(cell.lr, cell);
  }
  return Array.from(rows.values());
}

// From 1 for the best to 0 for the worst. The root spreads values close to the best, between which the choice is made.
function strength_in(means, is_accuracy) {
  if (is_accuracy) {
    const strength = strength_in(means.map((mean) => 1 - mean), false);
    return (mean) => strength(1 - mean);
  }
  const best = Math.min(...means), worst = Math.max(...means);
  if (!(worst > best)) return () => 1;
  if (best <= 0) return (mean) => 1 - Math.sqrt((mean - best) / (worst - best));
  return (mean) => 1 - Math.sqrt(Math.log(mean / best) / Math.log(worst / best));
}

// A cell with its top left corner at (x, y).
function draw_cell(target, cell, hint, shade, x, y, width, height) {
  const mark = cell.chosen && width > 56 ? '✓ ' : '', size = width < 50 ? 10 : 12;
  const text = is_number(cell.mean) ? three_digits(cell.mean) : '✕ ' + (cell.n ? cell.diverged + '/' + cell.n : '');
  // Where the one colour of text becomes easier to read than the other: sooner in the dark theme than in the light one.
  const on_shade = shade > 0.76 ? 'var(--on-heat)' : shade > 0.515 ? 'var(--on-half-heat)' : 'var(--ink)';
  const ink = is_number(cell.mean) ? on_shade : 'var(--soft)';
  const place = {x: x + 1, y: y + 1, width: Math.max(1, width - 2), height: height - 2};
  const middle = {x: x + width / 2, y: y + height / 2 + 4, 'text-anchor': 'middle'};
  const fill = {fill: 'var(--heat)', 'fill-opacity': shade.toFixed(3), stroke: 'var(--grid)'};
  const frame = {...place, fill: 'none', stroke: 'var(--mark)', 'stroke-width': 3};
  target.append(
      svg('g', {class: 'cell' + (cell.chosen ? ' chosen' : '')}, svg('title', {}, hint),
          svg('rect', {...place, ...fill}), cell.chosen && svg('rect', frame),
          chart_text(
              fitted(mark + text, width - 2, size),
              {...middle, 'font-size': size, 'font-weight': cell.chosen ? 700 : 400, fill: ink})));
}

function grid_chart(summary) {
  const cells = summary.grid, rows = grid_rows(summary), measure = tuning_words(summary.plan);
  const is_accuracy = summary.plan.tuned_by === 'val_metric' && summary.plan.metric === 'accuracy';
  const rates = Array.from(new Set(cells.map((cell) => cell.lr))).sort((a, b) => a - b);
  const strength = strength_in(cells.map((cell) => cell.mean).filter(is_number), is_accuracy);
  const shade = (cell) => (is_number(cell.mean) ? 0.06 + 0.84 * strength(cell.mean) : 0);
  const hint = (row, cell) => {
    const result = is_number(cell.mean) ? measure + ' ' + number_text(cell.mean, 5) :
                                          'diverged, ' + cell.diverged + ' of ' + cell.n;
    const more = (cell.chosen ? ', chosen' : '') + (cell.grown ? ', added by --grow' : '');
    return row.label + ', learning rate ' + number_text(cell.lr) + ': ' + result + more;
  };

  const draw = (width, standalone) => {
    const longest = Math.max(60, ...rows.map((row) => text_width(row.label.slice(0, 200), 13)));
    const left = Math.min(width * 0.34, longest + 12), top = standalone ? 64 : 42, height = 34;
    const cell_width = Math.min(120, (width - left - 4) / rates.length);
    const chart = drawing(width, top + rows.length * height + 10, 'tuning grid');
    if (standalone) draw_title(chart, 'Tuning grid: mean ' + measure, width);
    chart.append(chart_text('learning rate', {x: left, y: top - 26, fill: 'var(--soft)'}));
    rates.forEach((rate, j) => {
      const place = {x: left + cell_width * (j + 0.5), y: top - 8, 'text-anchor': 'middle'};
      chart.append(chart_text(number_text(rate), place));
    });
    rows.forEach((row, i) => {
      const y = top + i * height, label = fitted(row.label, left - 10, 13);
      const text = chart_text(label, {x: 2, y: y + height / 2 + 4, 'font-size': 13});
      chart.append(svg('g', {}, svg('title', {}, row.label), text));
      rates.forEach((rate, j) => {
        const cell = row.cells.get(rate);
        if (cell) draw_cell(chart, cell, hint(row, cell), shade(cell), left + j * cell_width, y, cell_width, height);
      });
    });
    return {drawing: chart, notes: []};
  };

  const csv_row =
      ({spec,
        ratio,
        own,
        lr,
        mean,
        n,
        diverged,
        chosen}) => [spec, ratio, own_text(own), lr, mean, n, diverged, String(chosen)];
  const seeds = (summary.plan.tune_seeds || []).length;
  return figure({
    id: 'grid',
    title: 'How the settings were chosen',
    draw,
    rows: () => [['method', 'ratio', 'own', 'lr', 'mean', 'n', 'diverged', 'chosen'], ...cells.map(csv_row)],
    caption: 'Mean ' + measure + ' on the ' + (seeds === 1 ? 'tuning seed' : seeds + ' tuning seeds') + '; darker is ' +
        (is_accuracy ? 'higher' : 'lower') + '. The ' +
        'framed cell (✓) was chosen and then judged on other seeds. ✕ diverged, on that many seeds. A chosen cell at ' +
        'the edge of its row means that a better learning rate may lie beyond.',
  });
}
