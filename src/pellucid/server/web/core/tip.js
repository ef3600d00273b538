// The one tooltip: what the pointer or the keyboard is at, in words. Screen readers hear it too.

import { el, replace, say } from "./dom.js";
import { glyph } from "./format.js";

/** `{title, paint, rows: [[name, value, mark]], note}` beside a place of the page. */
export class Tip {
  #box = el("div", { class: "tip", role: "presentation", hidden: true });
  #voice = el("div", { class: "aside", aria: { live: "polite", atomic: "true" } });
  #owner = null;
  #at = [0, 0];
  #said = "";

  constructor() {
    document.body.append(this.#box, this.#voice);
    addEventListener("scroll", () => this.hide(), { passive: true, capture: true });
    addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
  }

  /** Shows `content` near (x, y) of the window. `spoken`: read it aloud, as for the keyboard. */
  show(owner, content, x, y, spoken = false) {
    [this.#owner, this.#at] = [owner, [x, y]];
    this.#fill(content);
    this.#box.hidden = false;
    this.#place(x, y);
    if (spoken) say(this.#voice, spokenForm(content));
  }

  /** What an owner that is shown says now: it may have come to know more. */
  renew(owner, content) {
    if (owner !== this.#owner || this.#box.hidden || spokenForm(content) === this.#said) return;
    this.#fill(content);
    this.#place(...this.#at);
  }

  #fill(content) {
    this.#said = spokenForm(content);
    replace(this.#box,
      el("div", { class: "tip-title" }, content.paint ? swatch(content.paint) : null, content.title),
      content.rows?.length ? el("dl", {}, content.rows.map(([name, value, mark]) => [
        el("dt", {}, name),
        el("dd", {}, value, mark ? glyph(mark) : null),
      ])) : null,
      content.note ? el("div", { class: "tip-note" }, content.note) : null);
  }

  hide(owner = null) {
    if (owner !== null && owner !== this.#owner) return;
    this.#box.hidden = true;
    this.#owner = null;
  }

  /** Says something to screen readers alone. */
  speak(text) {
    say(this.#voice, text);
  }

  #place(x, y) {
    const { offsetWidth: w, offsetHeight: h } = this.#box;
    const left = x + 14 + w > innerWidth - 8 ? x - w - 14 : x + 14;
    const top = y + 14 + h > innerHeight - 8 ? y - h - 14 : y + 14;
    this.#box.style.left = `${Math.max(8, Math.min(left, innerWidth - w - 8))}px`;
    this.#box.style.top = `${Math.max(8, top)}px`;
  }
}

export const swatch = (paint) => el("span", { class: "swatch", data: { paint } });

function spokenForm({ title, rows = [], note = "" }) {
  return [title, ...rows.map(([name, value, mark]) => `${name}: ${value}${mark ? ` (${mark})` : ""}`), note].filter(Boolean).join(". ");
}
