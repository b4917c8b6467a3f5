// Elements from text. What the kernel, a recording or a host says becomes text nodes and nothing else.

// Control characters, marks and overrides of the writing direction, and separators of lines: what the terminal does not
// get either (gate.py).
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const SVG = "http://www.w3.org/2000/svg";

export const clean = (text) => String(text).replace(CONTROLS, "?");

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, clean(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return element;
};

/** Make an HTML element; attributes that begin with "on" are listeners. Texts among the children are text alone. */
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** Make an SVG element. */
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** Have these children, and no others; texts are text alone. */
export const put = (element, ...children) => {
  element.replaceChildren();
  return fill(element, {}, children);
};

/** Say something to everybody, screen readers included. */
export const say = (sentence) => {
  put(document.getElementById("said"), sentence);
};

/** Put a text on the clipboard; where that is not allowed, show it. */
export const copy = async (text) => {
  const safe = clean(text);
  try {
    await navigator.clipboard.writeText(safe);
    say(`Copied: ${safe}`);
  } catch {
    say(safe);
  }
};

export const copyButton = (text, label = "Copy as command") =>
  el("button", { type: "button", class: "quiet copy", title: text, onclick: () => copy(text) }, label);
