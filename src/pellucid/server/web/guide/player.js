// An animation that waits for its reader: it begins still, plays, pauses, goes step by step either way, and to any place.

import { el, replace } from "../core/dom.js";
import { button } from "./frame.js";

const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/** Shows frames 0 to `count` - 1 by `draw(index)`. Who wants less motion gets the steps and no playing.
 * `playing(whether)` is told when it begins to run and when it rests. */
export class Player {
  #at = 0;
  #timer = null;

  constructor(count, draw, { every = 900, playing = () => {} } = {}) {
    this.count = count;
    this.draw = draw;
    this.every = every;
    this.playing = playing;
    this.place = el("span", { class: "quiet" });
    this.play = button("Play", () => (this.#timer === null ? this.start() : this.stop()), { hidden: STILL.matches });
    this.scrub = el("input", { type: "range", min: 0, max: count - 1, class: "scrub", aria: { label: "Step of the animation" }, on: { input: () => this.to(Number(this.scrub.value)) } });
    this.element = el("div", { class: "player", role: "group", aria: { label: "Animation" } },
      button("◀ Step", () => this.step(-1)), this.play, button("Step ▶", () => this.step(1)),
      button("From the start", () => this.to(0)), this.scrub, this.place);
    STILL.addEventListener("change", () => {
      this.stop();
      this.play.hidden = STILL.matches;
    });
  }

  /** The frame at `index`, or the nearest that there is. */
  show(index) {
    this.#at = Math.max(0, Math.min(this.count - 1, index));
    this.draw(this.#at);
    const said = `${this.#at + 1} of ${this.count}`;
    this.scrub.value = this.#at;
    this.scrub.setAttribute("aria-valuetext", said);
    this.place.textContent = said;
  }

  /** The frame that is shown, drawn again. */
  again() {
    this.draw(this.#at);
  }

  to(index) {
    this.stop();
    this.show(index);
  }

  step(by) {
    this.to(this.#at + by);
  }

  start() {
    if (this.#at === this.count - 1) this.show(0);
    this.play.textContent = "Pause";
    this.playing(true);
    this.#timer = setInterval(() => {
      if (!this.element.isConnected) return this.stop();
      this.show(this.#at + 1);
      if (this.#at === this.count - 1) this.stop();
    }, this.every);
  }

  stop() {
    if (this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
    this.play.textContent = "Play";
    this.playing(false);
  }
}

/** Frames `{says, picture(width)}` in a figure, under the player that is returned; the figure says what each does, aloud only while
 * it rests. They are drawn anew for another width. */
export function animate(figure, frames, { every = 900, first = 0 } = {}) {
  const stage = el("div", { class: "stage" });
  const player = new Player(frames.length, (at) => {
    replace(stage, frames[at].picture(figure.room()));
    figure.say(frames[at].says);
  }, { every, playing: (on) => figure.words.setAttribute("aria-live", on ? "off" : "polite") });
  replace(figure.picture, stage, player.element);
  figure.onRoom(() => player.again());
  player.show(first);
  return player;
}
