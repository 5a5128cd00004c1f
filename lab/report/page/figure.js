// The frame of a chart: heading, switches, legend, drawing, notes, caption, and buttons that save it.

// spec: id, title, caption (how to read it), controls() -> nodes, draw(width, standalone) -> {drawing, notes, hover},
// rows() -> CSV, legend: {group, items() -> [{index, label, style}]}; height in pixels follows from the drawing.
function figure(spec) {
  const plot = html('div', {class: 'plot'}), notes = html('p', {class: 'notes', role: 'status'});
  const controls = html('div', {class: 'controls switches'}), legend = html('div', {class: 'legend controls'});
  const body = html(
      'figure', {id: spec.id}, html('h3', {}, spec.title), spec.lead && html('p', {class: 'lead'}, spec.lead), controls,
      legend, plot, notes, html('figcaption', {}, spec.caption), save_buttons(spec));
  let width = 0;
  const hover = make_hover(plot);
  const redraw = () => {
    if (!width) return;
    const failed = attempted('This chart', draw);
    if (failed) plot.replaceChildren(failed);
  };
  const draw = () => {
    const focused = document.activeElement && document.activeElement.id;
    controls.replaceChildren(...(spec.controls ? spec.controls() : []));
    if (spec.legend) update_legend(legend, {id: spec.id, ...spec.legend});
    const drawn = spec.draw(width, false);
    drawn.drawing.setAttribute('role', 'img');
    drawn.drawing.setAttribute('aria-label', spec.title);
    plot.replaceChildren(drawn.drawing, hover.box);
    hover.attach(drawn.drawing, drawn.hover);
    notes.replaceChildren(...(drawn.notes || []).map((text) => html('span', {}, text + ' ')));
    if (focused && focused !== spec.id) {
      const again = document.getElementById(focused);
      if (again) again.focus();
    }
  };
  const fit = () => {
    const now = paper.width || plot.clientWidth;
    if (now > 0 && now !== width) {
      width = now;
      redraw();
    }
  };
  const own = spec.id + '.', group = spec.legend ? 'off.' + spec.legend.group : null;
  on_change(redraw, (key) => key.startsWith(own) || key === group || key.startsWith('link.'));
  new ResizeObserver(fit).observe(plot);
  figures.push(fit);
  return body;
}

const figures = [];
const paper = {
  width: 0
};  // of all charts while the page is printed: it is scaled to that of the paper

// Once the page has its width; before the first paint, so that it never jumps.
function draw_figures() {
  const fit_all = (width) => {
    paper.width = width;
    for (const fit of figures) fit();
  };
  fit_all(0);
  window.addEventListener('beforeprint', () => fit_all(SAVED_WIDTH));
  window.addEventListener('afterprint', () => fit_all(0));
}

function drawing(width, height, title) {
  return set_height(svg('svg', {width, 'font-family': FONT}, svg('title', {}, title)), width, height);
}

function set_height(chart, width, height) {
  chart.setAttribute('height', height);
  chart.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
  return chart;
}

function sample(style) {
  return svg(
      'svg', {width: 30, height: 12, viewBox: '0 0 30 12', 'aria-hidden': 'true'},
      svg('line',
          {x1: 1, x2: 29, y1: 6, y2: 6, stroke: style.colour, 'stroke-width': 2.2, 'stroke-dasharray': style.dash}),
      marker(style.marker, 15, 6, 4, style.colour));
}

// Click: off and on. Double click, or a click with Shift: this line alone, and again: all. Buttons stay the same
// elements while they have the same labels, so that the second click of a double click finds the first one's.
function update_legend(target, legend) {
  const items = legend.items(), off = hidden(legend.group),
        signature = JSON.stringify(items.map((item) => [item.index, item.label]));
  target.hidden = items.length < 2;
  if (target.dataset.signature !== signature) {
    target.dataset.signature = signature;
    target.replaceChildren(...items.map((item) => legend_button(legend, item)));
  }
  items.forEach((item, i) => target.children[i].setAttribute('aria-pressed', String(!off.has(item.index))));
}

function legend_button(legend, item) {
  const toggle = () => {
    const off = hidden(legend.group);
    if (!off.delete(item.index)) off.add(item.index);
    set_hidden(legend.group, off);
  };
  const isolate = () => {
    const off = hidden(legend.group),
          others = legend.items().map((other) => other.index).filter((other) => other !== item.index);
    const is_alone = !off.has(item.index) && others.every((other) => off.has(other));
    set_hidden(legend.group, is_alone ? [] : others);
  };
  return html(
      'button', {
        type: 'button',
        id: legend.id + '-legend-' + item.index,
        title: item.label + '\nclick: off and on; double click: alone',
        click: (event) => (event.shiftKey ? isolate() : toggle()),
        dblclick: (event) => {
          if (!event.shiftKey) isolate();
        },
      },
      sample(item.style), html('bdi', {}, item.label));
}

// The same legend inside of a drawing that is saved. Returns its height.
function draw_legend(target, items, width, top) {
  let x = 4, y = top;
  for (const item of items) {
    const text = fitted(item.label, width - 60, 12), needed = 40 + text_width(text, 12) + 14;
    if (x > 4 && x + needed > width) {
      x = 4;
      y += 20;
    }
    target.append(
        svg('line', {
          x1: x,
          x2: x + 30,
          y1: y + 8,
          y2: y + 8,
          stroke: item.style.colour,
          'stroke-width': 2.2,
          'stroke-dasharray': item.style.dash
        }),
        marker(item.style.marker, x + 15, y + 8, 4, item.style.colour), chart_text(text, {x: x + 36, y: y + 12}));
    x += needed;
  }
  return items.length ? y + 24 - top : 0;
}

function select_of(id, label, choices, value, changed) {
  const select = html(
      'select', {id, change: () => changed(select.value)},
      choices.map(([key, words]) => html('option', {value: key}, words)));
  select.value = value;
  return html('label', {}, label + ' ', select);
}

function check_of(id, label, value, changed) {
  const box = html('input', {type: 'checkbox', id, change: () => changed(box.checked)});
  box.checked = value;
  return html('label', {}, box, ' ' + label);
}

function number_of(id, label, unit, value, changed) {
  const input = html('input', {type: 'number', id, min: 0, step: 'any', value, change: () => changed(input.value)});
  return html('label', {}, label + ' ', input, ' ' + unit);
}
