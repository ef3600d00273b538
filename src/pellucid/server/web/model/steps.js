// Facts of a step: what it held, moved and took.

import { PHASES, TRAFFIC } from "../core/names.js";
import { wall } from "../core/times.js";

/** Milliseconds by phase, in order; what no clock covers is "unaccounted". */
export function phases(step) {
  const named = PHASES.filter((phase) => typeof step.ms[phase] === "number").map((phase) => ({ phase, ms: step.ms[phase] }));
  const sum = named.reduce((total, { ms }) => total + ms, 0);
  const rest = wall(step) - sum;
  if (rest > 1e-3 && typeof step.ms.unaccounted !== "number") named.push({ phase: "unaccounted", ms: rest });
  return named;
}

/** "prompt" work, "answer" work, or both. */
export function kind(step) {
  const kinds = new Set(step.batch.map((item) => item.kind));
  if (kinds.size === 0) return "idle";
  if (kinds.has("prefill")) return kinds.size === 1 ? "prefill" : "mixed";
  return "decode";
}

/** Bytes by kind of traffic, predicted. */
export function traffic(step) {
  const { cost } = step;
  return {
    weights_read: cost.weights_read,
    kv_read: cost.kv_read,
    kv_written: cost.kv_written,
    activations: (cost.activations_read ?? 0) + (cost.activations_written ?? 0),
  };
}

export const totalBytes = (step) => TRAFFIC.reduce((sum, name) => sum + (traffic(step)[name] ?? 0), 0);

/** Bytes that come from memory: weights, keys and values. Activations mostly stay in the processor's caches. */
export const memoryBytes = ({ cost }) => cost.weights_read + cost.kv_read + cost.kv_written;

/** Gigabytes a second: predicted bytes of memory over the measured time of the forward pass. */
export function achieved(step) {
  const ms = step.ms.forward;
  return ms > 0 ? memoryBytes(step) / ms / 1e6 : null;
}

/** Positions computed. */
export const positions = (step) => step.batch.reduce((sum, item) => sum + item.tokens, 0);

/** Requests of a step with their positions and how many sequences they are, each once. */
export function byRequest(step) {
  const found = new Map();
  for (const { request, kind: what, tokens, context } of step.batch) {
    if (request === null) continue; // texts that are only scored or embedded
    const entry = found.get(request) ?? { request, kind: what, tokens: 0, context: 0, sequences: 0 };
    entry.sequences += 1;
    entry.tokens += tokens;
    entry.context = Math.max(entry.context, context ?? 0);
    if (what === "prefill") entry.kind = "prefill";
    found.set(request, entry);
  }
  return [...found.values()];
}

/** Why somebody waits, with the name of a request (`nameOf(sequence)`) where the scheduler tells a sequence's number. */
export const whyNamed = (why, nameOf) => why.replace(/\b(first|waits for) (\d+)\b/, (_, words, sequence) => `${words} ${nameOf(Number(sequence)) ?? "another"}`);

/** As many of `steps` as `most`, the newest; where step `id` would be left out, those around it. */
export function around(steps, most, id) {
  const place = id === null ? -1 : steps.findIndex((step) => step.id === id);
  const end = place < 0 || place >= steps.length - most ? steps.length : Math.max(most, place + (most >> 1));
  return steps.slice(Math.max(0, end - most), end);
}
