// Elements, made in one expression.

/** An element with properties and children (elements or text). */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** An SVG element with attributes and children. */
export function svgElement(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Set the text of an element where it is another: the same again would be laid out and painted. Its node is kept,
 * since a new one has the styles around it matched anew. */
export function setText(element, words) {
  const { firstChild } = element;
  if (firstChild === null || firstChild.nodeType !== Node.TEXT_NODE || firstChild.nextSibling) {
    if (element.textContent !== words) element.textContent = words;
  } else if (firstChild.data !== words) firstChild.data = words;
}

/** Set an attribute where it is another; null removes it. */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) === value) return;
  if (value === null) node.removeAttribute(name);
  else node.setAttribute(name, value);
}
