// Numbers as they are read: few digits, a unit, and the mark that says where they come from.

import { el } from "./dom.js";

/** What a number may be: the word that is shown and read aloud, and the glyph that stands for it. */
export const MARKS = {
  measured: { glyph: "●", says: "measured: a clock or a counter gave it" },
  predicted: { glyph: "○", says: "predicted: computed from shapes and formulas" },
  estimated: { glyph: "≈", says: "estimated: a share of something measured" },
  simulated: { glyph: "◇", says: "simulated: the scheduler under a cost model" },
};

const DECIMAL = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** `value` with about three significant digits: 0.042, 4.21, 42.1, 421, 4,210. */
export function digits(value, significant = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return group(value);
  if (size >= 10 ** (significant - 1)) return group(Math.round(value));
  if (size < 1e-4 && size > 0) return value.toExponential(1);
  const places = Math.max(0, significant - 1 - Math.floor(Math.log10(size || 1)));
  const text = value.toFixed(Math.min(places, 6));
  return text.includes(".") ? text.replace(/\.?0+$/, "") || "0" : text;
}

function group(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** Milliseconds, as µs, ms or s. */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  const size = Math.abs(ms);
  if (size >= 999.5) return `${digits(ms / 1000)} s`;
  if (size >= 0.1 || size === 0) return `${digits(ms)} ms`;
  return `${digits(ms * 1000, 2)} µs`;
}

/** Bytes, in powers of 1000 as machines' rates are. */
export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  for (const [size, prefix] of DECIMAL) {
    if (Math.abs(value) >= size) return `${digits(value / size)} ${prefix}B`;
  }
  return `${digits(value)} B`;
}

/** A count, in powers of 1000. */
export function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  for (const [size, prefix] of DECIMAL) {
    if (size > 1e3 && Math.abs(value) >= size) return `${digits(value / size)} ${prefix}`;
  }
  return digits(value);
}

/** A share; one that is not quite all is never written as all. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = 100 * share;
  return value > 99.5 && value < 100 ? `${Math.min(99.99, value).toFixed(2)} %` : `${digits(value, 2)} %`;
}

/** Hours and minutes here, of seconds since 1970; with the day where that is another than the one of `beside`. */
export function clock(seconds, beside = seconds) {
  const [at, other] = [new Date(1000 * seconds), new Date(1000 * beside)];
  const time = at.toTimeString().slice(0, 5);
  return at.toDateString() === other.toDateString() ? time : `${time} on ${at.toDateString().slice(0, 10)}`;
}

/** `n` of a thing, with its plural. */
export const plural = (n, one, many = `${one}s`) => `${digits(n)} ${n === 1 ? one : many}`;

/** A number for a sentence: `text` as it is read, and its mark. Plain data, so that it can be tested. */
export const num = (text, mark = "measured") => ({ text, mark });

/** A name that wears a colour: a request, a phase. */
export const key = (text, paint) => ({ text, paint });

/** The parts of a sentence as nodes. */
export function sentence(parts) {
  return parts.map((part) => {
    if (typeof part === "string") return document.createTextNode(part);
    if (part.paint) return el("span", { class: "key", data: { paint: part.paint } }, part.text);
    return el("span", { class: `num ${part.mark}`, title: MARKS[part.mark].says }, part.text, glyph(part.mark));
  });
}

/** The glyph of a mark; screen readers hear its word. */
export function glyph(mark) {
  return el("span", { class: "mark" },
    el("span", { aria: { hidden: "true" } }, MARKS[mark].glyph),
    el("span", { class: "aside" }, ` (${mark})`));
}

/** The same parts as one string, with words for marks. */
export function plainSentence(parts) {
  return parts.map((part) => (typeof part === "string" ? part : part.text)).join("");
}
