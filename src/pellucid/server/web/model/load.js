// What users saw, against how busy the engine was: one point for each finished request.

import { requestPaint, shortName } from "../core/names.js";
import { begin, endOf } from "../core/times.js";

const RATE_S = 10;

/**
 * `{id, load, rate, ttft_ms, itl_ms}`: load is the mean number of sequences in the steps of its life, rate the
 * requests a second in the ten seconds around its arrival. `of`: those that are wanted.
 */
export function measuredPoints(steps, requests, of = requests) {
  const begins = requests.map(begin).sort((a, b) => a - b);
  const sums = [0]; // of sequences in the steps so far
  for (const step of steps) sums.push(sums.at(-1) + step.batch.length);
  return of.filter((r) => r.state === "finished" && r.first_token !== null).map((r) => {
    const from = firstPlace(steps, (s) => endOf(s) >= begin(r));
    const to = firstPlace(steps, (s) => s.start > (r.last_token ?? r.first_token));
    const load = to > from ? (sums[to] - sums[from]) / (to - from) : null;
    const itl = r.output_tokens > 1 ? (1000 * (r.last_token - r.first_token)) / (r.output_tokens - 1) : null;
    return { id: r.id, name: shortName(r.id), paint: requestPaint(r.id), load, rate: rateAround(begins, begin(r)), ttft_ms: 1000 * (r.first_token - begin(r)), itl_ms: itl };
  }).filter((point) => point.load !== null);
}

function rateAround(begins, moment) {
  const [from, to] = [-1, 1].map((side) => firstPlace(begins, (b) => b >= moment + (side * RATE_S) / 2));
  return (to - from) / RATE_S;
}

/** The forecast at `share` of the most: between the two nearest loads of the curve; delays in ms. */
export function at(told, share) {
  const { curve, saturation } = told;
  const rate = share * saturation.requests_per_second;
  const high = Math.max(1, firstPlace(curve, (p) => p.requests_per_second >= rate));
  const [a, b] = [curve[high - 1], curve[Math.min(high, curve.length - 1)]];
  const span = b.requests_per_second - a.requests_per_second;
  const part = span > 0 ? Math.min(1, Math.max(0, (rate - a.requests_per_second) / span)) : 0;
  const mix = (value) => (value(a) === null || value(b) === null ? null : value(a) + part * (value(b) - value(a)));
  const delay = (name, q) => mix((p) => (p[name][q] === null ? null : 1000 * p[name][q].mean));
  return {
    requests_per_second: rate,
    tokens_per_second: mix((p) => p.tokens_per_second),
    prompt_share: mix((p) => p.prompt_share),
    busy: mix((p) => p.busy),
    ttft_p50: delay("ttft", "p50"), ttft_p95: delay("ttft", "p95"), itl_p50: delay("itl", "p50"), itl_p95: delay("itl", "p95"),
  };
}

/** Money for a million tokens at a load, the hour's price divided as the steps' time is. */
export function costs(here, mix, perHour) {
  if (!(perHour > 0) || !(here.tokens_per_second > 0)) return null;
  const second = (perHour * mix.replicas) / 3600;
  const prompts = (here.tokens_per_second * mix.prompt) / mix.output;
  return { prompt: (1e6 * second * here.prompt_share) / prompts, answer: (1e6 * second * (1 - here.prompt_share)) / here.tokens_per_second };
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
