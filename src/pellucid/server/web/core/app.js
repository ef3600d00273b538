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
import { begin, endOf, lastMoment } from "./times.js";

const AUTO_REQUESTS = 8;
const AUTO_SECONDS = 30;
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
  #spansTimer = null;

  constructor() {
    const tell = () => this.changed();
    this.store.onChange(tell);
    this.selection.onChange(tell);
    this.theme.onChange(tell);
    this.feed.onState(tell);
    this.selection.follow(window);
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

  /** The selected step, else the last one. */
  get step() {
    const { step } = this.selection.current;
    if (step !== null) return this.store.step(step);
    return this.store.steps.at(-1) ?? null;
  }

  /** Seconds from and to that figures over time show: what is selected, else the last requests. */
  get time() {
    if (this.selection.current.time) return this.selection.current.time;
    return autoTime(this.store, this.selection.current.request);
  }

  /** A figure that draws spans is seen, or no longer: they are stamped only while one is. */
  wantSpans(figure, seen) {
    if (seen) this.#spansFor.add(figure);
    else this.#spansFor.delete(figure);
    clearTimeout(this.#spansTimer);
    this.#spansTimer = setTimeout(() => this.feed.watchSpans(this.#spansFor.size > 0), SPANS_SETTLE_MS);
  }

  /** The last `most` steps of the time that is selected, else of all; around the selected one. */
  stepsShown(most) {
    const { time, step } = this.selection.current;
    let steps = this.store.steps;
    if (time) steps = steps.filter((s) => s.start <= time[1] && endOf(s) >= time[0]);
    if (steps.length <= most) return steps;
    const place = step === null ? -1 : steps.findIndex((s) => s.id === step);
    const end = place < 0 || place >= steps.length - most ? steps.length : Math.min(steps.length, Math.max(most, place + Math.floor(most / 2)));
    return steps.slice(end - most, end);
  }

  /** Why there is nothing to show, in words. */
  get nothing() {
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


function autoTime(store, requestId) {
  const requests = store.requests;
  const last = store.steps.at(-1);
  if (!last && !requests.length) return null;
  const to = Math.max(last ? endOf(last) : 0, ...requests.map(lastMoment));
  let from = requests.length ? busyFrom(requests, to) : store.steps[0].start;
  from = Math.max(from, to - AUTO_SECONDS);
  const chosen = requestId === null ? null : store.request(requestId);
  if (chosen) from = Math.min(from, begin(chosen));
  const margin = Math.max((to - from) * 0.015, 1e-4);
  return [from - margin, to + margin];
}

/** Where the last requests began; an idle stretch longer than half of what follows it is left out. */
function busyFrom(requests, to) {
  const recent = requests.slice(-AUTO_REQUESTS).toSorted((a, b) => lastMoment(b) - lastMoment(a));
  let from = begin(recent[0]);
  for (const request of recent) {
    if (from - lastMoment(request) > Math.max(1, (to - from) / 2)) break;
    from = Math.min(from, begin(request));
  }
  return from;
}
