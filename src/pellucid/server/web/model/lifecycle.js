// The life of a request: when each part began and ended, and what no clock covers.

import { STAGES } from "../core/names.js";
import { begin, endOf, lastMoment } from "../core/times.js";
import { byRequest } from "./steps.js";

/**
 * Milliseconds by stage, from the moment the server has the request's head to the last byte sent; `unaccounted`
 * is what is left of the total. `receive` is reading, checking and handing it to the engine. Turning tokens into text is timed by itself and taken out of the answer's time.
 */
export function stages(request) {
  const { queued, started, first_token, last_token } = request;
  const end = lastMoment(request);
  const detokenize = request.detokenize_ms ?? 0;
  const tokenize = request.tokenize_ms ?? 0;
  const found = {
    receive: Math.max(0, between(request.received, queued) - tokenize),
    tokenize,
    queue: between(queued, started ?? (request.state === "queued" ? end : undefined)),
    prefill: between(started, first_token ?? end),
    decode: Math.max(0, between(first_token, last_token) - detokenize),
    detokenize,
    send: last_token === null || last_token === undefined ? 0 : between(last_token, end),
  };
  const total = 1000 * (end - begin(request));
  const known = STAGES.reduce((sum, stage) => sum + (found[stage] ?? 0), 0);
  return { ...found, unaccounted: Math.max(0, total - known), total };
}

/** Stretches of a request's lane that are no steps: `{stage, from, to}` in seconds. */
export function stretches(request) {
  const { queued, started, last_token } = request;
  const received = begin(request);
  const end = lastMoment(request);
  const found = [];
  const tokenize = (request.tokenize_ms ?? 0) / 1000;
  const read = known(request.received) && known(queued) ? Math.max(received, queued - tokenize) : received;
  found.push({ stage: "receive", from: received, to: read });
  if (tokenize > 0) found.push({ stage: "tokenize", from: read, to: Math.min(read + tokenize, queued ?? end) });
  if (known(queued)) found.push({ stage: "queue", from: queued, to: started ?? end });
  if (known(last_token) && end > last_token) found.push({ stage: "send", from: last_token, to: end });
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

const known = (time) => time !== null && time !== undefined;

function between(from, to) {
  return known(from) && known(to) ? Math.max(0, 1000 * (to - from)) : 0;
}
