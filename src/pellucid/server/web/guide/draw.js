// The few shapes that the guide's figures are made of.

import { el, svg } from "../core/dom.js";

/** A row of a bar chart: a name, a bar of `share` (0 to 1), a value. */
export function bar(name, share, value, kind = "") {
  const filled = el("span", { class: "filled" });
  filled.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return el("div", { class: `bar-row ${kind}` }, el("span", { class: "bar-name" }, name), el("span", { class: "bar-track" }, filled), el("span", { class: "bar-value" }, value));
}

/** A token as a chip, its spaces seen; `tint` is one of the request colours, 0 to 9. */
export function chip(text, below = "", tint = null) {
  return el("span", { class: "chip-token", data: tint === null ? {} : { paint: `request-${tint % 10}` } }, visible(text), below === "" ? null : el("small", {}, below));
}

/** Text whose spaces and line ends are seen. */
export function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

/** An SVG picture `width` by `height` with a name for who cannot see it. */
export function picture(width, height, label, ...shapes) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...shapes);
}

export const label = (x, y, text, props = {}) => svg("text", { x, y, ...props }, text);

/** Numbers as a row of cells at `y`: blue above zero, orange below, the fuller the further; `most` is full. */
export function cells(values, { x, y, width, height, most }) {
  const each = width / values.length;
  return values.map((value, i) => svg("rect", { x: x + i * each, y, width: Math.max(1, each - 1), height, class: value < 0 ? "cell-below" : "cell-above", "fill-opacity": Math.min(1, Math.abs(value) / most).toFixed(3) }));
}

/** Logarithmic or linear place of a value between two ends. */
export function scale(from, to, low, high, log = false) {
  const of = log ? Math.log10 : (x) => x;
  return (value) => low + ((high - low) * (of(value) - of(from))) / (of(to) - of(from));
}

/** The same numbers for the same `seed`: uniform between 0 and 1 (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
