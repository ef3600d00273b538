// When figures are drawn: at an animation frame, at most so often a second, only what is seen.

export const FRAMES_PER_SECOND = 15;
/** After drawing for a while, rest for so many times as long: the page's thread stays free for its user. */
const REST = 3;

/** Calls what asked to be drawn. A figure out of sight waits until it is seen. */
export class Ticker {
  #dirty = new Set();
  #seen = new WeakMap();
  #asked = false;
  #next = 0;
  #observer;

  constructor() {
    this.#observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const figure = this.#seen.get(entry.target);
        figure.visible = entry.isIntersecting;
        figure.onVisible?.(figure.visible);
        if (figure.visible) this.#ask();
      }
    }, { rootMargin: "120px" });
  }

  /** Draws `figure` (`draw()`, `visible`) from now on whenever it is dirty and its `element` is seen. */
  watch(element, figure) {
    figure.visible = false;
    this.#seen.set(element, figure);
    this.#observer.observe(element);
  }

  mark(figure) {
    this.#dirty.add(figure);
    this.#ask();
  }

  #ask() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame((now) => this.#frame(now));
  }

  #frame(now) {
    this.#asked = false;
    if (now < this.#next) return this.#ask();
    const began = performance.now();
    for (const figure of this.#dirty) {
      if (!figure.visible) continue;
      this.#dirty.delete(figure);
      figure.draw();
    }
    const spent = performance.now() - began;
    this.#next = now + Math.max(1000 / FRAMES_PER_SECOND - 2, REST * spent);
  }
}
