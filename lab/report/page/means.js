// Means over the seeds of a method, at equal steps.

// The value of a run at a step: its own, or on the line between two (files that were thinned do not have all steps).
// `from` is an index that is not behind it.
function at_step(points, step, from) {
  let i = from;
  while (i < points.length && points[i].step < step) ++i;
  if (i < points.length && points[i].step === step) return {at: i, point: points[i]};
  if (i === 0 || i >= points.length) return {at: i, point: null};
  const a = points[i - 1], b = points[i], part = (step - a.step) / (b.step - a.step);
  return {at: i, point: {step, x: a.x + part * (b.x - a.x), y: a.y + part * (b.y - a.y)}};
}

function steps_of(lines) {
  const steps = new Set();
  for (const line of lines)
    for (const point of line.points) steps.add(point.step);
  return Array.from(steps).sort((a, b) => a - b);
}

// Whether a run that has no more points might still get some.
function goes_on(run) {
  return run.status === 'running' || run.status === 'interrupted';
}

// The mean of several runs, with its interval: {points: [{x, y, low, high, n, step}], diverged, is_cut}. It ends where
// one of them diverged or is not finite: a mean over the others would flatter the method. A single run is shown whole.
function mean_line(all) {
  const lines = all.filter((line) => line.points.length > 0), points = [];
  const diverged = lines.some((line) => line.run.status === 'diverged');
  if (lines.length === 1) return {points: lines[0].points, diverged, is_cut: false};
  const reached = lines.map(() => 0);
  for (const step of steps_of(lines)) {
    const found = lines.map((line, i) => at_step(line.points, step, reached[i]));
    found.forEach(({at}, i) => {
      reached[i] = at;
    });
    const is_over = found.some(({at, point}, i) => !point && at > 0 && !goes_on(lines[i].run));
    if (is_over) break;
    if (found.some(({at, point}) => !point && at === 0)) continue;  // one has not begun
    const present = found.map(({point}) => point).filter(Boolean), x = mean_of(present.map((point) => point.x));
    if (present.some((point) => !Number.isFinite(point.y))) {
      points.push({x, y: NaN, step, n: present.length});
      return {points, diverged, is_cut: true};
    }
    const {mean, low, high, n} = summary_of(present.map((point) => point.y));
    points.push({x, y: mean, low, high, step, n});
  }
  return {points, diverged, is_cut: false};
}

// Lines of a chart: for each method its mean, and its single runs. Those of the last few views are remembered; all
// charts of a page show the same runs.
function method_lines(runs, axis, key) {
  const view = JSON.stringify([axis.key, key, axis.key === 'link' ? Object.keys(LINK).map(link_setting) : null]);
  if (!remembered.has(view)) {
    if (remembered.size >= 16) remembered.delete(remembered.keys().next().value);
    remembered.set(view, computed_lines(runs, axis, key));
  }
  return remembered.get(view);
}

const remembered = new Map();

function computed_lines(runs, axis, key) {
  const line = (method, index) => {
    const own = runs.filter((run) => run.method === index);
    const singles = own.map((run) => ({run, points: points_of(run, axis, key)}));
    return {index, label: method.label, singles, mean: mean_line(singles)};
  };
  const has_points = (one) => one.singles.some((single) => single.points.length > 0);
  return report.data.methods.map(line).filter(has_points);
}
