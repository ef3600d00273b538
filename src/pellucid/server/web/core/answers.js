// What is known of the tokens of answers: from the steps, from this page's own streams, from the server.

import { Refused } from "./api.js";
import { endOf, begin } from "./times.js";

const AGAIN_MS = 700;
const WHY = "it is another client's, and this server was not started with --show-prompts.";

/** Tokens of a request, put together from every source there is. */
export class Answers {
  #app;
  #own = new Map();
  #told = new Map();

  constructor(app) {
    this.#app = app;
  }

  /** This page's own stream of the request `id` (as it was sent) brought tokens `{text, logprob, top}`. */
  streamed(id, tokens) {
    this.#own.set(id, [...(this.#own.get(id) ?? []), ...tokens]);
  }

  /** `{tokens, texts, why}`: `why` says why there are no texts. Asks the server for more where it may know it. */
  of(request) {
    const tokens = fromSteps(this.#app.store.steps, request);
    const own = this.#own.get(request.id.replace(/\.\d+$/, "")) ?? this.#own.get(request.id);
    const told = this.#mayAsk(request) ? this.#fetched(request) : { why: WHY };
    const funnel = this.#app.recording === null && Boolean(this.#app.store.about?.features?.funnel);
    if (told?.tokens) return { tokens: joined(told.tokens, tokens), texts: true, prompt: told.prompt ?? null, funnel };
    if (own) return { tokens: joined(own, tokens), texts: true, prompt: null, funnel };
    return { tokens, texts: false, prompt: null, funnel: false, why: told?.why ?? "" };
  }

  #mayAsk(request) {
    if (this.#app.recording !== null) return true;
    const { about } = this.#app.store;
    return Boolean(about?.features?.tokens) && (about.shows_prompts === true || this.#app.owns(request.id));
  }

  #fetched(request) {
    if (this.#app.recording !== null) return this.#app.recording.tokens?.[request.id] ?? { why: "The recording holds no texts of this request." };
    const known = this.#told.get(request.id);
    const stale = !known || (known.outputs !== request.output_tokens || known.state !== request.state);
    if (stale && !known?.asking && performance.now() - (known?.asked ?? -Infinity) > AGAIN_MS) this.#ask(request, known);
    return known;
  }

  async #ask(request, known) {
    const entry = { ...known, asking: true, asked: performance.now(), outputs: request.output_tokens, state: request.state };
    this.#told.set(request.id, entry);
    if (this.#told.size > 64) this.#told.delete(this.#told.keys().next().value);
    try {
      const own = this.#app.owns(request.id) ? `?own=${encodeURIComponent(request.id.replace(/\.\d+$/, ""))}` : "";
      const told = await this.#app.api.json(`/live/requests/${encodeURIComponent(request.id)}${own}`);
      entry.tokens = told.tokens ?? null;
      entry.prompt = told.prompt ?? null;
      entry.why = told.why ?? "";
    } catch (error) {
      entry.why = error instanceof Refused && error.status === 404 ? "" : error.message;
    }
    entry.asking = false;
    this.#app.changed();
  }
}

/** Tokens as the steps tell them: id, step, and milliseconds since the one before. */
function fromSteps(steps, request) {
  const found = [];
  let before = begin(request);
  for (const step of steps) {
    for (const token of step.tokens) {
      if (token.request !== request.id) continue;
      const at = endOf(step);
      found.push({ index: found.length, id: token.id, sequence: token.sequence, step: step.id, ms_since_last: 1000 * (at - before) });
      before = at;
    }
  }
  return found;
}

/** What one source knows, filled up with the times and ids of the steps; the last tokens are the same ones. */
function joined(rich, timed) {
  const shift = Math.max(0, rich.length - timed.length);
  return rich.map((token, i) => ({ ...timed[i - shift], ...drop(token), index: token.index ?? i }));
}

const drop = (token) => Object.fromEntries(Object.entries(token).filter(([, value]) => value !== null && value !== undefined));
