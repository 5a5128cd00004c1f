// Elements of the page and of its charts. Text only ever becomes text nodes, so nothing that a file says can become
// markup.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function')
      node.addEventListener(name, value);
    else
      node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

// html("button", {class: "x", click: listener}, "text", node...)
function html(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

// What build() makes, or a line that says why it cannot: data that make no sense to one part leave the others as they
// are.
function attempted(what, build) {
  try {
    return build();
  } catch (error) {
    return html('p', {role: 'alert'}, what + ' cannot be shown: ' + error.message);
  }
}

// A name that came from a file: may run from right to left without turning the sentence around it.
function named(text) {
  return html('bdi', {class: 'name'}, text);
}

const measuring = {
  context: null
};

// Pixels that a text takes in the charts' font.
function text_width(text, size) {
  measuring.context = measuring.context || document.createElement('canvas').getContext('2d');
  measuring.context.font = size + 'px ' + FONT;
  return measuring.context.measureText(text).width;
}

// As much of the text as fits, with an ellipsis if that is not all.
function fitted(text, pixels, size) {
  if (text.length < 400 && text_width(text, size) <= pixels) return text;
  const characters = Array.from(text.slice(0, 400));
  let low = 0, high = characters.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (text_width(characters.slice(0, middle).join('') + '…', size) <= pixels)
      low = middle;
    else
      high = middle - 1;
  }
  return characters.slice(0, low).join('') + '…';
}
