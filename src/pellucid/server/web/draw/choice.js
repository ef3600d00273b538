// A choice between a few words, of which one holds.

import { el } from "../core/dom.js";

/** Buttons for `options`: `[value, words]`; `choose(value)` is called with each new choice. */
export function choice(label, options, chosen, choose) {
  const group = el("div", { class: "segments", role: "group", aria: { label } }, options.map(([value, words]) => el("button", {
    type: "button", aria: { pressed: String(value === chosen) }, data: { value },
    on: { click: () => {
      for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.value === value));
      choose(value);
    } },
  }, words)));
  return group;
}
