// Bytes against the primary measure, a point for each method: what it costs and what it gives.

function draw_point(target, point, x, y) {
  const at = x.to(point.x), ends = is_number(point.low) ? [y.to(point.low), y.to(point.high)] : [];
  const line = (x1, x2, y1, y2) => svg('line', {x1, x2, y1, y2, stroke: point.style.colour, 'stroke-width': 2});
  const interval = is_number(point.low) ? [point.low, point.high] : null;
  const hint = point.label + ': ' + bytes_text(point.x) + ', ' + interval_text(point.y, interval);
  target.append(
      svg('g', {class: 'mark value'}, svg('title', {}, hint), ends.length > 0 && line(at, at, ...ends),
          ends.map((end) => line(at - 4, at + 4, end, end)),
          marker(point.style.marker, at, y.to(point.y), 6.5, point.style.colour)));
}

function tradeoff_chart(summary) {
  const {plan} = summary, measure = measure_words(plan);
  // The bytes that the answer compares.
  const compared = answers_of(summary).map((answer) => answer.measure).find(Boolean);
  const by_itself = summary.target && compared !== 'bytes' ? 'target' : 'all';
  const is_to_target = () => Boolean(summary.target) && setting('tradeoff.x', by_itself) === 'target';
  const bytes_of = (group) => cost_of(group, is_to_target() ? 'to_target' : 'bytes').median;
  const points = () =>
      summary.methods.map((group) => ({...group_row(group), x: bytes_of(group), ...measured(group, plan.primary)}));
  const is_there = (point) => is_number(point.x) && is_number(point.y);

  const draw = (width) => {
    const all = points(), shown = all.filter(is_there), missing = all.filter((point) => !is_there(point));
    const box = {left: 0, right: width - 20, top: 30, bottom: width < 520 ? 260 : 320};
    const chart = drawing(width, box.bottom + 46, measure + ' against bytes'), xs = shown.map((point) => point.x);
    const ys = shown.flatMap((point) => [point.y, point.low, point.high]);
    const y = scale_for(ys, [box.bottom, box.top], false, 5);
    box.left = Math.max(40, ...y.ticks.map((tick) => text_width(number_text(tick), 12) + 12));
    const room = [box.left + 16, box.right - 16], count = Math.max(3, Math.floor((box.right - box.left) / 100));
    const x = scale_for(xs, room, spans_decades(xs, 5), count);
    const words = (is_to_target() ? 'bytes to the target, median' : 'bytes of all steps, median');
    draw_axes(
        chart, box, x, y, {x: words + (x.is_log ? ', log scale' : ''), x_format: bytes_text, y_format: number_text});
    draw_y_title(chart, measure + ' after all steps, mean and 95 % interval', width, box.top);
    for (const point of shown) draw_point(chart, point, x, y);
    label_points(chart, shown.map((point) => place_of(point, x, y)), box);
    const names = missing.map((point) => point.label).join(', ');
    const why = 'Not shown, because runs diverged or did not reach the target: ';
    return {drawing: chart, notes: missing.length ? [why + names + '.'] : []};
  };

  const controls = () => {
    const choices = [['target', 'until the target'], ['all', 'of all steps']];
    const changed = (to) => set('tradeoff.x', to === by_itself ? null : to);
    return [select_of('tradeoff.x', 'Bytes', choices, is_to_target() ? 'target' : 'all', changed)];
  };

  const pilots = summary.methods.some(pilot_bytes) ? 'A threshold’s bytes are with those of its pilot. ' : '';
  const csv_row = (point) => [point.label, point.x, point.y, point.low, point.high];
  return figure({
    id: 'tradeoff',
    title: 'What a method costs and what it gives',
    draw,
    rows: () => [['method', 'bytes', plan.primary, 'low', 'high'], ...points().map(csv_row)],
    controls: summary.target ? controls : null,
    caption: 'One point for each method. Further to the left: fewer bytes. ' + pilots +
        (higher_is_better(plan) ? 'Higher up' : 'Lower') + ': better. Where the vertical lines of two methods ' +
        'overlap, they may be equally good; the chart of differences below decides that on equal seeds.',
  });
}

function place_of(point, x, y) {
  const px = x.to(point.x), py = y.to(point.y), top = y.to(point.high ?? point.y), bottom = y.to(point.low ?? point.y);
  return {label: point.label, colour: point.style.colour, px, py, top, bottom};
}

// Whether two rectangles overlap.
function overlap(a, b) {
  return a.left <= b.right && b.left <= a.right && a.top <= b.bottom && b.top <= a.bottom;
}

// Names beside points, where they do not cover one another; further away, with a line to the point, where there is no
// room beside it; over the interval of another point where there is none at all.
function label_points(target, points, box) {
  const taken = points.map(({px, py}) => ({left: px - 7, right: px + 7, top: py - 7, bottom: py + 7}));
  const intervals = points.map(({px, top, bottom}) => ({left: px - 2, right: px + 2, top, bottom}));
  const is_inside = (place) => place.left >= box.left && place.right <= box.right + 14 && place.top >= box.top &&
      place.bottom <= box.bottom && !taken.some((other) => overlap(place, other));
  const is_free = (place) => is_inside(place) && !intervals.some((other) => overlap(place, other));
  const halo = {'paint-order': 'stroke', stroke: 'var(--surface)', 'stroke-width': 3};
  for (const {label, colour, px, py} of points) {
    const text = fitted(label, 170, 12.5), width = text_width(text, 12.5) * 1.14, places = [];
    for (const away of [0, -16, 16, -32, 32, -48, 48, -64, 64, -80, 80]) {
      const side = 11 + Math.abs(away) / 2, top = py + away - 9, bottom = py + away + 8;
      places.push({left: px + side, right: px + side + width, top, bottom, away});
      places.push({left: px - side - width, right: px - side, top, bottom, away});
    }
    const place = places.find(is_free) || places.find(is_inside);
    if (!place) continue;
    taken.push(place);
    const middle = py + place.away, end = place.left > px ? place.left - 3 : place.right + 3;
    const link = {x1: px, y1: py, x2: end, y2: middle, stroke: colour, 'stroke-opacity': 0.6};
    if (place.away) target.append(svg('line', link));
    const at = {x: place.left.toFixed(1), y: (middle + 4.5).toFixed(1)};
    target.append(chart_text(text, {...at, fill: colour, 'font-weight': 600, 'font-size': 12.5, ...halo}));
  }
}
