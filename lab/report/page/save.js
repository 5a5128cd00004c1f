// A chart as a file: SVG that stands alone, PNG of twice the size, CSV of the points that are shown.

const SAVED_WIDTH = 760;

// The drawing with the colours of the light theme written out, on white.
function stand_alone(drawing) {
  const paper = html('div', {class: 'paper', hidden: true});
  document.body.append(paper);
  const colours = getComputedStyle(paper);
  const text = new XMLSerializer().serializeToString(drawing).replace(
      /var\((--[a-z0-9-]+)\)/g, (_, variable) => colours.getPropertyValue(variable).trim() || '#000000');
  paper.remove();
  return '<?xml version="1.0" encoding="UTF-8"?>\n' + text;
}

function svg_file(figure) {
  const drawing = figure.draw(SAVED_WIDTH, true).drawing;
  drawing.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  drawing.setAttribute('font-family', FONT);
  drawing.prepend(
      svg('rect', {width: drawing.getAttribute('width'), height: drawing.getAttribute('height'), fill: '#ffffff'}));
  return stand_alone(drawing);
}

function png_file(figure) {
  const text = svg_file(figure);
  return new Promise((done, failed) => {
    const image = new Image();
    image.onerror = () => failed(new Error('the drawing cannot be painted'));
    image.onload = () => {
      const canvas = html('canvas', {width: 2 * image.width, height: 2 * image.height});
      const context = canvas.getContext('2d');
      context.scale(2, 2);
      context.drawImage(image, 0, 0);
      canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error('the picture is too large'))), 'image/png');
    };
    image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
  });
}

// Numbers with all their digits; text in quotes, and never as a formula of a spreadsheet.
function csv_cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number')
    return Number.isNaN(value) ? 'nan' : value === Infinity ? 'inf' : value === -Infinity ? '-inf' : String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? '\'' + value : String(value);
  return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
}

function csv_file(rows) {
  return rows.map((row) => row.map(csv_cell).join(',') + '\r\n').join('');
}

function download(blob, file) {
  const address = URL.createObjectURL(blob);
  const link = html('a', {href: address, download: file});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function save_buttons(figure) {
  const file = (ending) => ('sparsewire-' + figure.id + '.' + ending);
  const said = html('span', {role: 'status'});
  const button = (label, action) => html(
      'button', {
        type: 'button',
        'data-save': label.toLowerCase(),
        click: async () => {
          try {
            said.textContent = '';
            await action();
          } catch (error) {
            said.textContent = ' not saved: ' + error.message;
          }
        }
      },
      label);
  return html(
      'p', {class: 'save controls'}, 'Save as ',
      figure.draw && button('SVG', () => download(new Blob([svg_file(figure)], {type: 'image/svg+xml'}), file('svg'))),
      figure.draw && button('PNG', async () => download(await png_file(figure), file('png'))),
      button('CSV', () => download(new Blob(['\ufeff', csv_file(figure.rows())], {type: 'text/csv'}), file('csv'))),
      said);
}
