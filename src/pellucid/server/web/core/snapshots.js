// What the feed does not carry: the map of pages to begin a replay with, and the prefix tree as it is now.

import { tellsOwners } from "../model/pool.js";

const TREE_MS = 1500;

/** Asks for them when they are needed: the map once, the tree while its figure is seen. */
export class Snapshots {
  #app;
  #mapOf = "";
  #treeAt = -Infinity;
  #treeVersion = -1;
  #asking = false;

  constructor(app) {
    this.#app = app;
    app.onChange(() => this.#map());
  }

  get #live() {
    return this.#app.recording === null && this.#app.feed.state === "live";
  }

  /** A map is needed where the window begins after the first step, and again after a loss. */
  #map() {
    const { store } = this.#app;
    const steps = store.steps;
    if (!this.#live || !steps.length || store.pool !== null || !tellsOwners(steps.slice(-8)) || steps[0].id === 0) return;
    const which = `${store.engine} ${store.dropped}`;
    if (this.#mapOf === which) return;
    this.#mapOf = which;
    this.#app.api.json("/live/pages").then((told) => store.add({ pool: told })).catch(() => (this.#mapOf = ""));
  }

  /** The tree, asked for again when something happened since. */
  async tree() {
    const { store } = this.#app;
    const now = performance.now();
    if (!this.#live || this.#asking || this.#treeVersion === store.version || now - this.#treeAt < TREE_MS) return;
    if (!tellsOwners(store.steps.slice(-8))) return;
    [this.#asking, this.#treeAt] = [true, now];
    try {
      store.add({ prefix: await this.#app.api.json("/live/prefix") });
    } catch {
      // the next change asks again
    }
    this.#treeVersion = store.version;
    this.#asking = false;
  }
}
