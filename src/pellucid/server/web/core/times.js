// Times of steps and requests. What is not known is null in the records, and never 0.

/** Milliseconds of a step in all, the wait before its start included. */
export function wall(step) {
  const { wall: told, ...parts } = step.ms;
  return told ?? Object.values(parts).reduce((sum, ms) => sum + (ms ?? 0), 0);
}

/** Milliseconds from a step's start to its end. */
export const busy = (step) => wall(step) - (step.ms.wait ?? 0);

/** When a step ended, in seconds. */
export const endOf = (step) => step.start + busy(step) / 1000;

/** When a request began: its first byte, or where nobody saw that, its place in the queue. */
export const begin = (request) => request.received ?? request.queued;

/** The last moment known of a request. */
export function lastMoment(request) {
  const { sent, finished, last_token, first_token, started, queued, received } = request;
  return sent ?? finished ?? last_token ?? first_token ?? started ?? queued ?? received;
}
