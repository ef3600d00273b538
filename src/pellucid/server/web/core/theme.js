// Light, dark, or whatever the system says; and the colours that canvases read.

const STORED = "pellucid.theme";
const MODES = ["auto", "light", "dark"];

/** The theme of the page. `paint(name)` is a colour of the stylesheet, for canvases. */
export class Theme {
  #colours = new Map();
  #listeners = new Set();
  #root = document.documentElement;
  dark = false;

  constructor() {
    const stored = localStorage.getItem(STORED);
    this.mode = MODES.includes(stored) ? stored : "auto";
    this.#apply();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#apply());
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    this.still = still.matches;
    still.addEventListener("change", () => (this.still = still.matches));
  }

  onChange(listener) {
    this.#listeners.add(listener);
  }

  set(mode) {
    this.mode = mode;
    localStorage.setItem(STORED, mode);
    this.#apply();
  }

  /** The value of the custom property `--name`. */
  paint(name) {
    if (!this.#colours.has(name)) {
      this.#colours.set(name, getComputedStyle(this.#root).getPropertyValue(`--${name}`).trim() || "#888");
    }
    return this.#colours.get(name);
  }

  #apply() {
    const dark = this.mode === "dark" || (this.mode === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    this.dark = dark;
    this.#root.dataset.theme = dark ? "dark" : "light";
    this.#colours.clear();
    for (const listener of this.#listeners) listener();
  }
}
