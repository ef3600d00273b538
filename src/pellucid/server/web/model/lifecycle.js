// The life of a request: when each part began and ended, and what no clock covers.

import { STAGES } from "../core/names.js";
import { begin, endOf, lastMoment } from "../core/times.js";
import { firstPlace } from "./load.js";
import { byRequest } from "./steps.js";

/**
 * Milliseconds by stage, from the moment the server has the request's head to the last byte sent; `unaccounted`
 * is what is left of the total. `receive` is reading, checking and handing it to the engine. Turning tokens into text is timed by itself and taken out of the answer's time.
 * One that is not over lasts until `now`, in seconds.
 */
export function stages(request, now = -Infinity) {
  const { queued, started, first_token } = request;
  const end = endOfLife(request, now);
  const last_token = isOver(request) ? request.last_token : end;
  const detokenize = request.detokenize_ms ?? 0;
  const tokenize = request.tokenize_ms ?? 0;
  const found = {
    receive: Math.max(0, between(request.received, queued) - tokenize),
    tokenize,
    queue: between(queued, started ?? end),
    prefill: between(started, first_token ?? end),
    decode: Math.max(0, between(first_token, last_token) - detokenize),
    detokenize,
    send: known(last_token) ? between(last_token, end) : 0,
  };
  const total = 1000 * (end - begin(request));
  const told = STAGES.reduce((sum, stage) => sum + (found[stage] ?? 0), 0);
  return { ...found, unaccounted: Math.max(0, total - told), total };
}

const isOver = ({ state }) => state !== "queued" && state !== "running";

/** When a request ended; `now` where it has not, but nothing before it. */
export const endOfLife = (request, now) => (isOver(request) ? lastMoment(request) : Math.max(lastMoment(request), now));

/** Stretches of a request's lane that are no steps: `{stage, from, to}` in seconds. */
export function stretches(request, now = -Infinity) {
  const { queued, started, last_token } = request;
  const received = begin(request);
  const end = endOfLife(request, now);
  const found = [];
  const tokenize = (request.tokenize_ms ?? 0) / 1000;
  const read = known(request.received) && known(queued) ? Math.max(received, queued - tokenize) : received;
  found.push({ stage: "receive", from: received, to: read });
  if (tokenize > 0) found.push({ stage: "tokenize", from: read, to: Math.min(read + tokenize, queued ?? end) });
  if (known(queued)) found.push({ stage: "queue", from: queued, to: started ?? end });
  if (known(last_token) && isOver(request)) found.push({ stage: "send", from: last_token, to: end });
  return found.filter(({ from, to }) => to > from);
}

/** The steps of each request within a time: id to `[{step, from, to, kind, tokens, of}]`. */
export function stepsByRequest(steps, [from, to]) {
  const lanes = new Map();
  for (const step of steps) {
    const end = endOf(step);
    if (end < from || step.start > to) continue;
    const parts = byRequest(step);
    const all = parts.reduce((sum, part) => sum + part.tokens, 0);
    for (const part of parts) {
      if (!lanes.has(part.request)) lanes.set(part.request, []);
      lanes.get(part.request).push({ step: step.id, from: step.start, to: end, kind: part.kind, tokens: part.tokens, of: all });
    }
  }
  return lanes;
}

/**
 * Whom the steps that ran between two moments computed for: `{own, of, steps, others}`, positions of the request of number
 * `id` and of all, and the other requests, whoever had most first.
 */
export function company(steps, id, from, to) {
  const sums = new Map();
  let count = 0;
  for (let i = firstPlace(steps, (step) => endOf(step) > from); i < steps.length && steps[i].start < to; i += 1) {
    const step = steps[i];
    count += 1;
    for (const { request, tokens } of byRequest(step)) sums.set(request, (sums.get(request) ?? 0) + tokens);
  }
  const all = [...sums].sort((a, b) => b[1] - a[1]);
  return { own: sums.get(id) ?? 0, of: all.reduce((total, [, n]) => total + n, 0), steps: count, others: all.map(([one]) => one).filter((one) => one !== id) };
}

const known = (time) => time !== null && time !== undefined;

function between(from, to) {
  return known(from) && known(to) ? Math.max(0, 1000 * (to - from)) : 0;
}
