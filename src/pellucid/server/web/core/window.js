// The stretch of time that figures show while none is selected.

import { begin, endOf, lastMoment } from "./times.js";

const REQUESTS = 8;
const SECONDS = 30;
const MARGIN = 0.015;
const AROUND = 0.1; // of a request's life, on both sides of one that is long over

/** The end of the last step that somebody asked for (a second look at a token's scores is nobody's), or of any request. */
export function latest({ steps, requests }) {
  const asked = steps.findLast((step) => step.batch.some(({ request }) => request !== null)) ?? steps.at(-1);
  return Math.max(asked ? endOf(asked) : -Infinity, ...requests.map(lastMoment));
}

/** Seconds from and to: the last requests, all of the one of number `id` among them; where it ended before them, its own life alone. Null where there is nothing. */
export function windowOf(store, id) {
  const { steps, requests } = store;
  if (!steps.length && !requests.length) return null;
  const to = latest(store);
  const from = Math.max(requests.length ? busyFrom(requests, to) : steps[0].start, to - SECONDS);
  const chosen = id === null ? null : store.request(id);
  if (chosen && lastMoment(chosen) < from) return widened(begin(chosen), lastMoment(chosen), AROUND);
  return widened(chosen ? Math.min(from, begin(chosen)) : from, to, MARGIN);
}

function widened(from, to, share) {
  const margin = Math.max((to - from) * share, 1e-4);
  return [from - margin, to + margin];
}

/** Where the last requests began; an idle stretch longer than half of what follows it is left out. */
function busyFrom(requests, to) {
  const recent = requests.slice(-REQUESTS).toSorted((a, b) => lastMoment(b) - lastMoment(a));
  let from = begin(recent[0]);
  for (const request of recent) {
    if (from - lastMoment(request) > Math.max(1, (to - from) / 2)) break;
    from = Math.min(from, begin(request));
  }
  return from;
}
