// App: the parts that figures share, and the few questions that all of them ask.

import { Answers } from "./answers.js";
import { Api } from "./api.js";
import { Feed } from "./feed.js";
import { Selection } from "./selection.js";
import { Snapshots } from "./snapshots.js";
import { Store } from "./store.js";
import { Theme } from "./theme.js";
import { Ticker } from "./ticker.js";
import { Tip } from "./tip.js";
import { endOfLife } from "../model/lifecycle.js";
import { around } from "../model/steps.js";
import { begin, endOf } from "./times.js";
import { latest, windowOf } from "./window.js";

const SPANS_SETTLE_MS = 800;

export class App {
  #listeners = new Set();
  api = new Api();
  store = new Store();
  theme = new Theme();
  ticker = new Ticker();
  tip = new Tip();
  selection = new Selection(window.location);
  feed = new Feed(this.api, this.store);
  answers = new Answers(this);
  snapshots = new Snapshots(this);
  recording = null;
  #spansFor = new Set();
  #replica = this.selection.current.replica;
  #spansTimer = null;

  constructor() {
    const tell = () => this.changed();
    this.api.replica = this.#replica;
    this.store.onChange(tell);
    this.selection.onChange(({ replica }) => this.#look(replica));
    this.selection.onChange(tell);
    this.theme.onChange(tell);
    this.feed.onState(tell);
    this.selection.follow(window);
  }

  /** Other records, where another replica is selected. */
  #look(replica) {
    if (replica === this.#replica) return;
    this.#replica = this.api.replica = replica;
    if (this.recording !== null) return;
    this.store.reset();
    if (this.feed.state !== "paused") this.feed.start();
  }

  /** Called after every change of records, selection, theme or source. */
  onChange(listener) {
    this.#listeners.add(listener);
  }

  /** Something that figures show is another now. */
  changed() {
    for (const listener of this.#listeners) listener();
  }

  /** Colours for canvases, by their names in the stylesheet. */
  get paints() {
    const paint = (name) => this.theme.paint(name);
    return { grid: paint("grid"), rule: paint("rule"), quiet: paint("quiet"), ink: paint("ink"), of: paint };
  }

  /** The selected step, else the last one, of the time that is selected if one is. */
  get step() {
    const { step } = this.selection.current;
    return step === null ? (this.stepsIn.at(-1) ?? null) : this.store.step(step);
  }

  /** Seconds from and to that figures over time show: what is selected, else the last requests. */
  get time() {
    if (this.selection.current.time) return this.selection.current.time;
    return windowOf(this.store, this.selection.current.request);
  }

  /** A figure that draws spans is seen, or no longer: they are stamped only while one is. */
  wantSpans(figure, seen) {
    if (seen) this.#spansFor.add(figure);
    else this.#spansFor.delete(figure);
    clearTimeout(this.#spansTimer);
    this.#spansTimer = setTimeout(() => this.feed.watchSpans(this.#spansFor.size > 0), SPANS_SETTLE_MS);
  }

  /** The steps of the time that is selected, else all. */
  get stepsIn() {
    const { time } = this.selection.current;
    const { steps } = this.store;
    return time ? steps.filter((s) => s.start <= time[1] && endOf(s) >= time[0]) : steps;
  }

  /** The requests of the time that is selected, else all. */
  get requestsIn() {
    const { time } = this.selection.current;
    const { requests } = this.store;
    return time ? requests.filter((r) => begin(r) <= time[1] && endOfLife(r, latest(this.store)) >= time[0]) : requests;
  }

  /** The last `most` of `stepsIn`; around the selected one. */
  stepsShown(most) {
    return around(this.stepsIn, most, this.selection.current.step);
  }

  /** Why there is nothing to show, in words: `{empty, why}`. */
  get nothing() {
    const { time, step, request } = this.selection.current;
    if (this.store.steps.length) {
      if (step !== null && this.store.step(step) === null) return { empty: "not known", why: `Step ${step} is not among those that are kept. Select another one, or none.` };
      if (time !== null && this.stepsShown(1).length === 0) return { empty: "nothing then", why: "No step ran in the time that is selected: the engine was idle. Select another time, or none." };
      if (request !== null && this.store.request(request) === null) return { empty: "not known", why: "The request that is selected is not among those that are kept. Select another one, or none." };
    }
    if (this.recording !== null) return { empty: "no traffic", why: "This recording holds no such records." };
    const why = {
      absent: "This server has no live records.",
      locked: "The server asks for an API key: give it above.",
      lost: "The server cannot be reached.",
      paused: "The feed is paused.",
    }[this.feed.state];
    return { empty: "no traffic", why: why ?? "Ask something in the playground, or send a request to this server." };
  }
}
