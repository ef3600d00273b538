// SVG pictures with marks that can be pointed at and walked by arrow keys; for a few hundred at most.

import { svg } from "../core/dom.js";

/** A host for an SVG that is drawn anew whole; which mark has the focus survives that. */
export class Picture {
  #app;
  #label;
  #last = "";

  constructor(app, label) {
    this.#app = app;
    this.#label = label;
    this.element = document.createElement("div");
    this.element.addEventListener("keydown", (event) => this.#walk(event));
    this.element.addEventListener("pointerleave", () => this.#leave());
  }

  /** Draws `children`; nothing is touched if `signature` is what it was. */
  render(width, height, signature, children) {
    const told = JSON.stringify([width, height, signature]);
    if (told === this.#last) return;
    this.#last = told;
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", aria: { label: this.#label } }, children());
    this.element.replaceChildren(picture);
    const marks = this.#marks();
    const kept = marks.find((mark) => mark.dataset.key === focused) ?? null;
    for (const mark of marks) mark.setAttribute("tabindex", mark === (kept ?? marks[0]) ? "0" : "-1");
    kept?.focus({ preventScroll: true });
  }

  /** Makes `node` a mark: what it says, what it highlights and what a click does. */
  mark(node, { key, tip, over = {}, choose = null }) {
    const content = tip();
    node.dataset.key = key;
    node.setAttribute("role", choose ? "button" : "img");
    node.setAttribute("aria-label", [content.title, ...(content.rows ?? []).map(([name, value]) => `${name}: ${value}`), content.note ?? ""].filter(Boolean).join(". "));
    node.setAttribute("tabindex", "-1");
    node.addEventListener("pointermove", (event) => this.#point(tip(), over, event.clientX, event.clientY));
    node.addEventListener("pointerleave", () => this.#leave());
    node.addEventListener("focus", () => {
      const box = node.getBoundingClientRect();
      this.#point(tip(), over, box.right, box.bottom);
    });
    node.addEventListener("blur", () => this.#leave());
    if (choose) node.addEventListener("click", choose);
    return node;
  }

  #marks() {
    return [...this.element.querySelectorAll("[data-key]")];
  }

  #point(content, over, x, y) {
    this.#app.selection.hover(over);
    this.#app.tip.show(this, content, x, y);
  }

  #leave() {
    this.#app.selection.hover({});
    this.#app.tip.hide(this);
  }

  #walk(event) {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const marks = this.#marks();
    const now = marks.indexOf(document.activeElement);
    if (now < 0) return;
    if (by) {
      event.preventDefault();
      const next = marks[(now + by + marks.length) % marks.length];
      marks[now].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      marks[now].dispatchEvent(new MouseEvent("click"));
    }
  }
}
