// Elements made of names, properties and children. Text is always text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `props`: `class`, `on` (listeners), `data`, `aria`, else attributes; null ones are left out. */
export function el(name, props = {}, ...children) {
  return fill(document.createElement(name), props, children);
}

/** An SVG element, made the same way. */
export function svg(name, props = {}, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

/** Puts `children` in the place of whatever `parent` held. */
export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return parent;
}

/** Sets the text of a node, and touches the page only where it differs. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props)) set(node, key, value);
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function set(node, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key === "on") {
    for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
  } else if (key === "data") {
    for (const [name, given] of Object.entries(value)) node.dataset[name] = given;
  } else if (key === "aria") {
    for (const [name, given] of Object.entries(value)) node.setAttribute(`aria-${name}`, given);
  } else {
    node.setAttribute(key, value === true ? "" : value);
  }
}
