// What users saw, against how busy the engine was: one point for each finished request.

import { requestPaint, shortName } from "../core/names.js";
import { begin, endOf } from "../core/times.js";

/** `{id, load, ttft_ms, itl_ms}`: load is the mean number of sequences in the steps of its life. */
export function measuredPoints(steps, requests) {
  return requests.filter((r) => r.state === "finished" && r.first_token !== null).map((r) => {
    const inside = steps.filter((s) => endOf(s) >= begin(r) && s.start <= (r.last_token ?? r.first_token));
    const load = inside.length ? inside.reduce((sum, s) => sum + s.batch.length, 0) / inside.length : null;
    const itl = r.output_tokens > 1 ? (1000 * (r.last_token - r.first_token)) / (r.output_tokens - 1) : null;
    return { id: r.id, name: shortName(r.id), paint: requestPaint(r.id), load, ttft_ms: 1000 * (r.first_token - begin(r)), itl_ms: itl };
  }).filter((point) => point.load !== null);
}

/** Tokens chosen a second while the engine worked, over these steps. */
export function throughput(steps) {
  const tokens = steps.reduce((sum, s) => sum + s.tokens.length, 0);
  const seconds = steps.reduce((sum, s) => sum + (endOf(s) - s.start), 0);
  return seconds > 0 ? tokens / seconds : null;
}

/** The value below which a share `q` of `values` lies. */
export function quantile(values, q) {
  if (!values.length) return null;
  const sorted = values.toSorted((a, b) => a - b);
  const place = (sorted.length - 1) * q;
  const low = Math.floor(place);
  return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
