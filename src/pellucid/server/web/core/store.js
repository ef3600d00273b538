// The bounded window of records that every figure reads, live or from a recording.

import { Pool } from "../model/pool.js";
import { begin } from "./times.js";

/** What is kept of a live feed, and what a recording may bring. */
export const BOUNDS = { steps: 2048, requests: 512, spanSteps: 96 };
export const RECORDED = { steps: 8192, requests: 4096, spanSteps: 512 };

/** Steps by id in order, requests by id in order of arrival, spans by step. Takes messages of `/live/feed`. */
export class Store {
  #steps = new Map();
  #requests = new Map();
  #spans = new Map();
  #listeners = new Set();
  #cache = new Map();
  about = null;
  stats = null;
  dropped = 0;
  /** A `Pool` to begin a replay with. */
  pool = null;
  /** What `/live/prefix` told last. */
  prefix = null;
  engine = null;
  bounds = BOUNDS;
  version = 0;

  /** Calls `listener` after each change; what it gives ends that. */
  onChange(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Forgets everything: another source begins. */
  reset(about = null, bounds = BOUNDS) {
    this.about = about;
    this.bounds = bounds;
    this.#anew(null);
    this.#changed();
  }

  /** Another life of the engine: its steps are counted from 0 again. */
  #anew(engine) {
    this.#steps.clear();
    this.#requests.clear();
    this.#spans.clear();
    this.engine = engine;
    this.stats = null;
    this.dropped = 0;
    this.pool = null;
    this.prefix = null;
  }

  /** Steps that were lost leave no map to go on from. */
  #lost(dropped) {
    if (dropped > this.dropped) this.pool = null;
    this.dropped = dropped;
  }

  /** What leaves the window goes into the map of pages, so that a replay can go on from it. */
  #boundSteps() {
    for (const [id, step] of this.#steps) {
      if (this.#steps.size <= this.bounds.steps) return;
      if (this.pool === null && id === 0) this.pool = new Pool();
      if (this.pool !== null && this.pool.step === id) this.pool.apply(step);
      this.#steps.delete(id);
    }
  }

  describe(about) {
    this.about = about;
    this.#changed();
  }

  /** Takes a message. A step or request that came before is replaced: the later one knows more. */
  add({ engine, steps = [], requests = [], spans = [], stats, dropped, pool, prefix }) {
    if (engine !== undefined && engine !== this.engine) this.#anew(engine);
    for (const step of steps) this.#steps.set(step.id, step);
    for (const request of requests) this.#requests.set(request.id, { ...this.#requests.get(request.id), ...request });
    this.#addSpans(spans);
    if (stats !== undefined) this.stats = stats;
    if (dropped !== undefined) this.#lost(dropped);
    if (pool) this.pool = Pool.of(pool);
    if (prefix) this.prefix = prefix;
    this.#boundSteps();
    bound(this.#requests, this.bounds.requests);
    bound(this.#spans, this.bounds.spanSteps);
    this.#changed();
  }

  #addSpans(spans) {
    const fresh = new Map();
    for (const span of spans) {
      if (!fresh.has(span.step)) fresh.set(span.step, []);
      fresh.get(span.step).push(span);
    }
    for (const [step, list] of fresh) this.#spans.set(step, list);
  }

  #changed() {
    this.version += 1;
    this.#cache.clear();
    for (const listener of this.#listeners) listener();
  }

  /** A value derived from the records, computed once for each state of the store. */
  derived(name, compute) {
    if (!this.#cache.has(name)) this.#cache.set(name, compute(this));
    return this.#cache.get(name);
  }

  get steps() {
    return this.derived("steps", () => [...this.#steps.values()].sort((a, b) => a.id - b.id));
  }

  get requests() {
    return this.derived("requests", () => [...this.#requests.values()].sort((a, b) => begin(a) - begin(b)));
  }

  get stepsWithSpans() {
    return this.derived("spanned", () => [...this.#spans.keys()].sort((a, b) => a - b));
  }

  step(id) {
    return this.#steps.get(id) ?? null;
  }

  request(id) {
    return this.#requests.get(id) ?? null;
  }

  spansOf(step) {
    return this.#spans.get(step) ?? [];
  }

  /** Whole, as a recording holds it. */
  toJSON() {
    return {
      version: 1,
      about: this.about,
      records: {
        engine: this.engine,
        steps: this.steps,
        requests: this.requests,
        spans: this.stepsWithSpans.flatMap((id) => this.spansOf(id)),
        stats: this.stats,
        dropped: this.dropped,
        pool: this.pool === null ? null : pageMap(this.pool),
        prefix: this.prefix,
      },
    };
  }
}

/** A pool in the form of `/live/pages`. */
function pageMap({ step, tables, cached }) {
  const sequences = [...tables].map(([sequence, { request, pages }]) => ({ sequence, request, pages }));
  return { step, sequences, cached: [...cached.keys()] };
}

function bound(map, most) {
  for (const key of map.keys()) {
    if (map.size <= most) return;
    map.delete(key);
  }
}
