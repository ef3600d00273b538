// What users saw, against how busy the engine was: one point for each finished request.

import { requestPaint, shortName } from "../core/names.js";
import { begin, endOf } from "../core/times.js";

/** `{id, load, ttft_ms, itl_ms}`: load is the mean number of sequences in the steps of its life. */
export function measuredPoints(steps, requests) {
  const sums = [0]; // of sequences in the steps so far
  for (const step of steps) sums.push(sums.at(-1) + step.batch.length);
  return requests.filter((r) => r.state === "finished" && r.first_token !== null).map((r) => {
    const from = firstPlace(steps, (s) => endOf(s) >= begin(r));
    const to = firstPlace(steps, (s) => s.start > (r.last_token ?? r.first_token));
    const load = to > from ? (sums[to] - sums[from]) / (to - from) : null;
    const itl = r.output_tokens > 1 ? (1000 * (r.last_token - r.first_token)) / (r.output_tokens - 1) : null;
    return { id: r.id, name: shortName(r.id), paint: requestPaint(r.id), load, ttft_ms: 1000 * (r.first_token - begin(r)), itl_ms: itl };
  }).filter((point) => point.load !== null);
}

/** The first place in `list` from which on `holds` is true; the list's length where it never is. */
export function firstPlace(list, holds) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(list[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
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
