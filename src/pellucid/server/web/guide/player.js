// An animation that waits for its reader: it begins still, plays, pauses, and goes step by step either way.

import { el } from "../core/dom.js";
import { button } from "./frame.js";

const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/** Shows frames 0 to `count` - 1 by `draw(index)`. Who wants less motion gets the steps and no playing. */
export class Player {
  #at = 0;
  #timer = null;

  constructor(count, draw, { every = 900 } = {}) {
    this.count = count;
    this.draw = draw;
    this.every = every;
    this.place = el("span", { class: "quiet" });
    this.play = button("Play", () => (this.#timer === null ? this.start() : this.stop()), { hidden: STILL.matches });
    this.element = el("div", { class: "player", role: "group", aria: { label: "Animation" } },
      button("◀ Step", () => this.step(-1)), this.play, button("Step ▶", () => this.step(1)),
      button("From the start", () => this.show(0)), this.place);
    STILL.addEventListener("change", () => {
      this.stop();
      this.play.hidden = STILL.matches;
    });
  }

  /** The frame at `index`, or the nearest that there is. */
  show(index) {
    this.#at = Math.max(0, Math.min(this.count - 1, index));
    this.draw(this.#at);
    this.place.textContent = `${this.#at + 1} of ${this.count}`;
  }

  step(by) {
    this.stop();
    this.show(this.#at + by);
  }

  start() {
    if (this.#at === this.count - 1) this.show(0);
    this.play.textContent = "Pause";
    this.#timer = setInterval(() => {
      this.show(this.#at + 1);
      if (this.#at === this.count - 1) this.stop();
    }, this.every);
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.play.textContent = "Play";
  }
}
