// Legends: a swatch and a word.

import { el } from "../core/dom.js";

/** Entries `[paint, words, style]`; a style is "hatch", "line", "dash" or "dot". */
export function legend(...entries) {
  return entries.map(([paint, words, style]) => el("span", { class: "entry" },
    el("span", { class: `swatch${style ? ` ${style}` : ""}`, data: { paint } }), words));
}
