// Plot: a canvas of rectangular marks that can be pointed at, walked by arrow keys and chosen.

import { el } from "../core/dom.js";
import { prepare } from "./surface.js";

const HINT = "Arrow keys move between marks, Enter selects, Escape leaves.";

/**
 * A canvas with marks `{key, x, y, w, h, tip, choose, over}`: `tip()` is a tooltip's content, `choose()`
 * what a click or Enter does, `over` what all figures highlight. `onBrush(x0, x1)` is called when the
 * pointer was dragged over more than a few pixels, and for a mark when T is pressed.
 */
export class Plot {
  #app;
  #marks = [];
  #focus = null;
  #drag = null;
  #pointed = null;
  #size = { width: 0, height: 0 };
  onBrush = null;
  onFocusMark = null;

  constructor(app, label) {
    this.#app = app;
    this.canvas = el("canvas", { tabindex: "0", role: "application", aria: { roledescription: "interactive figure", label: `${label}. ${HINT}` } });
    this.brush = el("div", { class: "brush", hidden: true });
    this.element = el("div", { class: "plot" }, this.canvas, this.brush);
    this.canvas.addEventListener("pointermove", (event) => this.#moved(event));
    this.canvas.addEventListener("pointerdown", (event) => this.#pressed(event));
    this.canvas.addEventListener("pointerup", (event) => this.#released(event));
    this.canvas.addEventListener("pointercancel", () => this.#undrag());
    this.canvas.addEventListener("pointerleave", () => this.#left());
    this.canvas.addEventListener("keydown", (event) => this.#pressedKey(event));
    this.canvas.addEventListener("blur", () => this.#left());
  }

  /** Draws: `paint(ctx)` puts down the picture, `marks` are what answers in it. */
  render(width, height, marks, paint) {
    this.#size = { width, height };
    this.#marks = marks;
    const ctx = prepare(this.canvas, width, height);
    paint(ctx);
    const focused = this.#focused();
    if (focused && document.activeElement === this.canvas) this.#ring(ctx, focused);
    const pointed = this.#pointed && this.#marks.find((mark) => mark.key === this.#pointed.key);
    if (pointed?.tip) this.#app.tip.renew(this, pointed.tip());
  }

  get marks() {
    return this.#marks;
  }

  #focused() {
    return this.#focus === null ? null : this.#marks.find((mark) => mark.key === this.#focus) ?? null;
  }

  #ring(ctx, { x, y, w, h }) {
    ctx.strokeStyle = this.#app.theme.paint("focus");
    ctx.lineWidth = 2;
    ctx.strokeRect(x - 1, y - 1, Math.max(w, 2) + 2, h + 2);
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return { x, y, mark: hit(this.#marks, x, y) };
  }

  #moved(event) {
    const { x, mark } = this.#at(event);
    if (this.#drag) return this.#dragged(x);
    this.canvas.style.cursor = mark?.choose ? "pointer" : this.onBrush ? "crosshair" : "default";
    this.#point(mark, event.clientX, event.clientY, false);
  }

  #point(mark, x, y, spoken) {
    this.#app.selection.hover(mark?.over ?? {});
    this.#pointed = mark;
    if (mark?.tip) this.#app.tip.show(this, mark.tip(), x, y, spoken);
    else this.#app.tip.hide(this);
  }

  #pressed(event) {
    if (event.button !== 0) return;
    const { x } = this.#at(event);
    if (this.onBrush && event.pointerType !== "touch") {
      this.canvas.setPointerCapture(event.pointerId);
      this.#drag = { from: x, to: x };
    }
  }

  #dragged(x) {
    this.#drag.to = Math.max(0, Math.min(this.#size.width, x));
    const [from, to] = [this.#drag.from, this.#drag.to].sort((a, b) => a - b);
    this.brush.hidden = to - from < 5;
    this.brush.style.left = `${from}px`;
    this.brush.style.width = `${to - from}px`;
  }

  #released(event) {
    const { mark } = this.#at(event);
    const drag = this.#drag;
    this.#undrag();
    if (drag && Math.abs(drag.to - drag.from) >= 5) {
      this.onBrush(...[drag.from, drag.to].sort((a, b) => a - b));
    } else if (mark) {
      this.#focus = mark.key;
      mark.choose?.();
    }
  }

  #undrag() {
    this.#drag = null;
    this.brush.hidden = true;
  }

  #left() {
    if (this.#drag) return;
    this.#pointed = null;
    this.#app.selection.hover({});
    this.#app.tip.hide(this);
  }

  #pressedKey(event) {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const current = this.#focused();
    if (direction) {
      event.preventDefault();
      this.#walkTo(current ? neighbour(this.#marks, current, direction) : this.#marks.at(-1));
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      this.#walkTo(this.#marks.at(event.key === "Home" ? 0 : -1));
    } else if ((event.key === "Enter" || event.key === " ") && current?.choose) {
      event.preventDefault();
      current.choose();
    } else if (event.key === "t" && current && this.onBrush) {
      this.onBrush(current.x, current.x + current.w);
    } else if (event.key === "Escape") {
      this.#focus = null;
      this.#left();
      this.onFocusMark?.();
    }
  }

  #walkTo(mark) {
    if (!mark) return;
    this.#focus = mark.key;
    const box = this.canvas.getBoundingClientRect();
    this.#point(mark, box.left + mark.x + mark.w / 2, box.top + mark.y + mark.h / 2, true);
    this.onFocusMark?.();
  }
}

/** The mark at a place, the one drawn last where several are; thin ones may be missed by a pixel or two. */
export function hit(marks, x, y) {
  let near = null;
  for (let i = marks.length - 1; i >= 0; i -= 1) {
    const mark = marks[i];
    if (y < mark.y || y > mark.y + mark.h) continue;
    if (x >= mark.x && x <= mark.x + mark.w) return mark;
    if (near === null && mark.w < 4 && Math.abs(x - mark.x - mark.w / 2) < 3) near = mark;
  }
  return near;
}

/** The nearest mark in a direction; sideways distance counts more than distance ahead. */
export function neighbour(marks, from, [dx, dy]) {
  const [cx, cy] = centre(from);
  let best = from;
  let least = Infinity;
  for (const mark of marks) {
    if (mark === from) continue;
    const [x, y] = centre(mark);
    const ahead = dx ? (x - cx) * dx : (y - cy) * dy;
    const aside = dx ? Math.abs(y - cy) : Math.abs(x - cx);
    if (ahead <= 0.01) continue;
    const cost = ahead + 6 * aside;
    if (cost < least) [best, least] = [mark, cost];
  }
  return best;
}

const centre = (mark) => [mark.x + mark.w / 2, mark.y + mark.h / 2];
