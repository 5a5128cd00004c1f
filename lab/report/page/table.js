// Real tables: sortable by a click on a heading, wide ones scroll by themselves.

// columns: [{title, value(row) (for sorting and CSV), text(row) or node(row), is_number}]; detail(row) -> node, shown
// below a row on demand.
function data_table(spec) {
  const state = {by: null, down: false, limit: spec.limit || 200, open: new Set()};
  const body = html('tbody'), more = html('p', {class: 'controls'});
  const heads = spec.columns.map(
      (one, i) => html(
          'th', {scope: 'col', class: one.is_number ? 'number' : null, title: one.hint},
          html(
              'button', {
                type: 'button',
                click: () => {
                  state.down = state.by === i ? !state.down : false;
                  state.by = i;
                  draw();
                }
              },
              one.title)));
  const order = (rows) => {
    if (state.by === null) return rows;
    const {value} = spec.columns[state.by], empty = (v) => v === null || v === undefined || v === '' || Number.isNaN(v);
    const compare = (a, b) =>
        (typeof a === 'number' && typeof b === 'number' ? a - b :
                                                          String(a).localeCompare(String(b), 'en', {numeric: true}));
    return Array.from(rows).sort((a, b) => {
      const x = value(a), y = value(b);
      if (empty(x) || empty(y)) return empty(x) - empty(y);
      return (state.down ? -1 : 1) * compare(x, y);
    });
  };
  const draw = () => {
    const rows = order(spec.rows());
    heads.forEach(
        (head, i) =>
            (i === state.by ? head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending') :
                              head.removeAttribute('aria-sort')));
    body.replaceChildren(...rows.slice(0, state.limit).flatMap((row) => row_nodes(spec, row, state, draw)));
    more.replaceChildren(
        ...(rows.length > state.limit ? [html(
                                            'button', {
                                              type: 'button',
                                              click: () => {
                                                state.limit = Infinity;
                                                draw();
                                              }
                                            },
                                            'Show all ' + rows.length + ' rows')] :
                                        []));
  };
  draw();
  on_change(draw, (key) => key.startsWith(spec.id + '.'));
  // The title is not the table's caption: that would be as wide as the table, and cut off on a phone.
  return html(
      'div', {id: spec.id, class: 'table'}, html('h3', {}, spec.title),
      html(
          'div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': spec.title},
          html(
              'table', {'aria-label': spec.title},
              html('thead', {}, html('tr', {}, spec.detail && html('td', {class: 'opener controls'}), heads)), body)),
      more, save_buttons({
        id: spec.id,
        rows: () => [spec.columns.map((one) => one.title)].concat(
            order(spec.rows()).map((row) => spec.columns.map((one) => one.value(row))))
      }));
}

function row_nodes(spec, row, state, draw) {
  const key = spec.key ? spec.key(row) : null, is_open = state.open.has(key);
  const cells = spec.columns.map(
      (one, i) => html(
          i === 0 ? 'th' : 'td', {scope: i === 0 ? 'row' : null, class: one.is_number ? 'number' : null},
          one.node     ? one.node(row) :
              one.text ? one.text(row) :
                         one.value(row)));
  if (!spec.detail) return [html('tr', {}, cells)];
  const opener = html(
      'td', {class: 'opener controls'},
      html(
          'button', {
            type: 'button',
            'aria-expanded': String(is_open),
            'aria-label': 'details',
            click: () => {
              if (!state.open.delete(key)) state.open.add(key);
              draw();
            }
          },
          is_open ? '−' : '+'));
  const main = html('tr', {}, opener, cells);
  return is_open ?
      [main, html('tr', {class: 'detail'}, html('td', {colspan: spec.columns.length + 1}, spec.detail(row)))] :
      [main];
}

// Names and values, two columns.
function pairs_list(pairs) {
  return html(
      'dl', {class: 'pairs'},
      pairs.map(([key, value]) => html('div', {}, html('dt', {}, named(key)), html('dd', {}, named(value)))));
}
