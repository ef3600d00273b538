// The roofline: what the machine could do at best, and how far from it something was.

/**
 * Peaks of the machine: GB/s, and billions of operations a second of quantised and of float products; and
 * when they were measured, in seconds since 1970: last, and since when the best counts.
 */
export function peaks(about) {
  const machine = about?.machine ?? {};
  return {
    bandwidth: positive(machine.peak_gb_per_s),
    int8: positive(machine.peak_gops_int8),
    f32: positive(machine.peak_gflops_f32),
    measured: { best_since: positive(machine.best_since), measured_at: positive(machine.measured_at) },
  };
}

const positive = (value) => (typeof value === "number" && value > 0 ? value : null);

const PRODUCTS = /linear|qkv|(^|\+)[qkv](\+|$)|attn_out|gate|up|down|head|experts|router/;

/** The arithmetic peak that applies to an operation: products of stored weights run on 8-bit integers. */
export function arithmeticPeak(op, { int8, f32 }) {
  return PRODUCTS.test(op) ? (int8 ?? f32) : (f32 ?? int8);
}

/**
 * The least time for so many operations and bytes: `{ms, by}`, `by` being "memory" or "arithmetic";
 * null where the machine's peaks are not known.
 */
export function leastTime(operations, bytes, bandwidth, arithmetic) {
  if (bandwidth === null && arithmetic === null) return null;
  const memory = bandwidth === null ? 0 : bytes / bandwidth / 1e6;
  const compute = arithmetic === null ? 0 : operations / arithmetic / 1e6;
  return memory >= compute ? { ms: memory, by: "memory" } : { ms: compute, by: "arithmetic" };
}

/** Billions of operations a second that an intensity (operations per byte) allows. */
export function attainable(intensity, bandwidth, arithmetic) {
  return Math.min(arithmetic ?? Infinity, bandwidth === null ? Infinity : intensity * bandwidth);
}

/** Guesses of a round and the share of them that is right, where nobody measured them (Leviathan et al. 2023). */
export const GUESSES = { count: 4, right: 0.7 };

/**
 * The least time of an answer's token, as a share of what it takes decoded alone: with `batch` answers in a step,
 * with weights in half the bits, and with guesses checked. `shape`: `{weights, bytes, operations}`, a step's weights
 * and what each answer adds; null where the peaks are not known.
 */
export function cheaper({ weights, bytes, operations }, batch, bandwidth, arithmetic) {
  const least = (read, answers) => leastTime(answers * operations, read + answers * bytes, bandwidth, arithmetic)?.ms ?? null;
  const alone = least(weights, 1);
  if (!(alone > 0)) return null;
  const { count, right } = GUESSES;
  const tokens = (1 - right ** (count + 1)) / (1 - right);
  return {
    together: least(weights, batch) / batch / alone,
    half_bits: least(weights / 2, 1) / alone,
    guessed: leastTime((count + 1) * operations, weights + bytes, bandwidth, arithmetic).ms / tokens / alone,
  };
}

/**
 * An operation of answers for `batch` of them: weights are read once for all, each answer's keys and values by itself. `{op, intensity,
 * rate}` at best; `point` is what was seen of `answers` in `steps`. null where the peaks are not known.
 */
export function forBatch({ op, operations, bytes, answers, steps }, batch, limits) {
  if (limits.bandwidth === null || !answers) return null;
  const work = (batch * operations) / answers;
  const moved = PRODUCTS.test(op) ? bytes / steps : (batch * bytes) / answers;
  const intensity = work / moved;
  return { op, intensity, rate: attainable(intensity, limits.bandwidth, arithmeticPeak(op, limits)) };
}

/** What is faster than its bound by more than this factor has not been bound by it. */
export const ABOVE = 1.05;

/** Why something may be faster than memory was seen to be. */
export const BEYOND = "That is more than the memory gave when it was measured: a part came from the processor's caches, or the machine was busy then.";

/** Which of the five heats a ratio of measured to least time has. */
export function heat(ratio) {
  if (ratio === null || !Number.isFinite(ratio)) return 0;
  return [1.5, 2.5, 5, 10].filter((limit) => ratio > limit).length;
}

export const HEATS = ["within 1.5 x of the bound", "to 2.5 x", "to 5 x", "to 10 x", "above 10 x"];

/** Sums of spans by kind of operation: `[{op, ms, operations, bytes, calls}]`, longest first. */
export function byOp(spans) {
  const found = new Map();
  for (const { op, ms, operations, bytes } of spans) {
    const entry = found.get(op) ?? { op, ms: 0, operations: 0, bytes: 0, calls: 0 };
    entry.ms += ms;
    entry.operations += operations;
    entry.bytes += bytes;
    entry.calls += 1;
    found.set(op, entry);
  }
  return [...found.values()].sort((a, b) => b.ms - a.ms);
}
