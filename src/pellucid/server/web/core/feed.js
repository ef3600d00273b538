// The live feed: read while the page is seen, again after a break, never in the way of the engine.

import { eventsOf } from "./sse.js";
import { Refused } from "./api.js";

const PATIENCE = [0.5, 1, 2, 5, 10];

/** Fills a store from `/live/feed`. States: connecting, live, paused, hidden, absent, locked, lost. */
export class Feed {
  #api;
  #store;
  #stop = null;
  #failures = 0;
  #timer = null;
  #wanted = false;
  #spans = false;
  #listeners = new Set();
  state = "connecting";
  reason = "";

  constructor(api, store) {
    this.#api = api;
    this.#store = store;
    document.addEventListener("visibilitychange", () => this.#seen());
    api.onKey(() => this.#wanted && this.restart());
  }

  onState(listener) {
    this.#listeners.add(listener);
  }

  get spans() {
    return this.#spans;
  }

  /** Asks for spans too, or no longer: the engine stamps them only while someone watches. */
  watchSpans(wanted) {
    if (wanted === this.#spans) return;
    this.#spans = wanted;
    if (this.#stop) this.restart();
  }

  start() {
    this.#wanted = true;
    this.restart();
  }

  stop(state = "paused") {
    this.#wanted = false;
    this.#cut();
    this.#say(state);
  }

  restart() {
    this.#cut();
    if (document.hidden) return;
    this.#read();
  }

  #cut() {
    clearTimeout(this.#timer);
    this.#stop?.abort();
    this.#stop = null;
  }

  #seen() {
    if (!this.#wanted) return;
    if (document.hidden) {
      this.#cut();
      this.#say("hidden");
    } else {
      this.restart();
    }
  }

  async #read() {
    const stop = new AbortController();
    this.#stop = stop;
    this.#say("connecting");
    try {
      const about = await this.#api.json("/live/about", { signal: stop.signal, waits: false });
      this.#store.describe(about);
      const response = await this.#api.open(`/live/feed?spans=${this.#spans ? 1 : 0}`, { signal: stop.signal, waits: false });
      this.#failures = 0;
      this.#say("live");
      for await (const { event, data } of eventsOf(response)) {
        if (event === "records") this.#store.add(JSON.parse(data));
        else if (event === "error") throw new Error(JSON.parse(data).error?.message ?? data);
      }
      throw new Error("the server ended the feed");
    } catch (error) {
      if (!stop.signal.aborted) this.#failed(error);
    }
  }

  #failed(error) {
    this.#stop = null;
    if (error instanceof Refused && error.status === 404 && this.#api.replica !== null) {
      this.#api.replica = null; // it is gone: another one is shown
      return this.restart();
    }
    if (error instanceof Refused && error.status === 401) return this.#say("locked", error.message);
    if (error instanceof Refused && error.status === 404) return this.#say("absent", error.message);
    const wait = PATIENCE[Math.min(this.#failures, PATIENCE.length - 1)];
    this.#failures += 1;
    this.#say("lost", `${error.message}; trying again in ${wait} s`);
    this.#timer = setTimeout(() => this.restart(), 1000 * wait);
  }

  #say(state, reason = "") {
    this.state = state;
    this.reason = reason;
    for (const listener of this.#listeners) listener(state, reason);
  }
}
