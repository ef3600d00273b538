// What is known of the tokens of answers: from the steps, from this page's own streams, from the server.

import { begin, endOf } from "./times.js";

const KEPT = 64;
const AGAIN_MS = 1000;
const NOT_OURS = "it is another client's, and this server was not started with --show-prompts.";
const NOT_YET = "it is told once the answer is complete and the request is selected.";

/** Tokens of a request, put together from every source there is. */
export class Answers {
  #app;
  #own = new Map();
  #told = new Map();
  #read = new Map();

  constructor(app) {
    this.#app = app;
  }

  /** This page's own stream of the request `id` (as it was sent) brought tokens `{text, logprob, top}`. */
  streamed(id, tokens) {
    this.#own.set(id, [...(this.#own.get(id) ?? []), ...tokens]);
  }

  /**
   * `{tokens, texts, why, funnel}` of the answer of that number: `why` says why there are no texts, `funnel` whether the server draws again.
   * The server computes what it tells anew, so that it is asked once, and only for what was selected.
   */
  of(request, number = 0) {
    const tokens = fromSteps(this.#app.store.steps, request, number);
    const own = this.#own.get(request.id.replace(/\.\d+$/, "")); // one answer: the playground asks for no more
    const ours = this.#mayRead(request);
    const funnel = ours && over(request);
    if (own) return { tokens: joined(own, tokens), texts: true, funnel };
    const told = ours ? this.#ask(request, number) : { why: NOT_OURS };
    if (told.tokens) return { tokens: joined(told.tokens, tokens), texts: true, funnel };
    return { tokens, texts: false, funnel: false, why: told.why };
  }

  /**
   * The texts of an answer's positions, prompt first, `{pieces, why}`: what the engine computed is not computed again for it. Asked
   * for once, and now and then again while there are fewer than `wanted` of them.
   */
  positions(request, number, wanted) {
    if (this.#app.recording !== null) return { pieces: null, why: "a recording holds no texts." };
    if (!this.#mayRead(request)) return { pieces: null, why: NOT_OURS };
    const name = `${request.id} ${number}`;
    const known = this.#read.get(name) ?? { pieces: null, why: "it is being read.", grown: -1, at: -Infinity, asking: false };
    const more = known.grown !== request.output_tokens && (known.pieces?.length ?? 0) < wanted;
    if (more && !known.asking && performance.now() - known.at > AGAIN_MS) this.#readAgain(name, request, number, known);
    return known;
  }

  #readAgain(name, request, number, entry) {
    this.#read.set(name, entry);
    if (this.#read.size > KEPT) this.#read.delete(this.#read.keys().next().value);
    [entry.asking, entry.grown, entry.at] = [true, request.output_tokens, performance.now()];
    this.#app.api.json(`/live/requests/${encodeURIComponent(request.id)}?answer=${number}&chances=0`)
      .then((told) => ([entry.pieces, entry.why] = [[...told.prompt, ...told.tokens].map(({ text }) => text), ""]), (error) => (entry.why = error.message))
      .then(() => ((entry.asking = false), this.#app.changed()));
  }

  #mayRead(request) {
    if (this.#app.recording !== null) return false;
    return this.#app.store.about?.shows_prompts === true || this.#app.api.owns(request.id);
  }

  #ask(request, number) {
    const name = `${request.id} ${number}`;
    const known = this.#told.get(name);
    if (known) return known;
    if (!over(request) || this.#app.selection.current.request !== request.id) return { why: NOT_YET };
    const entry = { tokens: null, why: "it is being computed again." };
    this.#told.set(name, entry);
    if (this.#told.size > KEPT) this.#told.delete(this.#told.keys().next().value);
    this.#app.api.json(`/live/requests/${encodeURIComponent(request.id)}?answer=${number}`, { waits: (why) => ((entry.why = `the server is busy (${why}).`), this.#app.changed()) })
      .then((told) => (entry.tokens = told.tokens), (error) => (entry.why = error.message))
      .then(() => this.#app.changed());
    return entry;
  }
}

const over = (request) => ["finished", "failed", "cancelled"].includes(request.state);

/** Tokens of one answer as the steps tell them: id, step, and milliseconds since the one before. */
export function fromSteps(steps, request, number = 0) {
  const sequence = request.sequences?.[number] ?? null;
  const found = [];
  let before = begin(request);
  for (const step of steps) {
    for (const token of step.tokens) {
      if (token.request !== request.id || (sequence !== null && token.sequence !== sequence)) continue;
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
  return rich.map((token, i) => ({ ...timed[i - shift], ...known(token), index: token.index ?? i }));
}

const known = (token) => Object.fromEntries(Object.entries(token).filter(([, value]) => value !== null && value !== undefined));
