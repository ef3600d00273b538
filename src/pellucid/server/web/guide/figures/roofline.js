// The roofline: what bounds a step, and what a batch does about it.

import { el, replace, svg } from "../../core/dom.js";
import { ask, numbers } from "../ask.js";
import { label, picture, scale } from "../draw.js";
import { choice, frame, slider } from "../frame.js";
import { Player } from "../player.js";

export const MACHINES = {
  laptop: { name: "a laptop, 60 GB/s and 2 T operations/s", read: 60e9, operations: 2e12 },
  h100: { name: "NVIDIA H100, 3350 GB/s and 1979 T operations/s", read: 3350e9, operations: 1979e12 },
};
const LARGEST = 10; // batches of 1 to 2^10

export function roofline(host) {
  const figure = frame(host, "Is a step bound by memory or by arithmetic?", "computed");
  const machines = { ...MACHINES };
  const where = choice("On", Object.entries(machines).map(([key, one]) => [key, one.name]), () => draw());
  const batch = slider("Sequences in the step", { min: 0, max: LARGEST, value: 0, shown: (v) => String(2 ** v) }, (v) => player.to(v));
  const context = slider("Context of each", { min: 0, max: 13, value: 6, shown: (v) => `${2 ** v} tokens` }, () => draw());
  figure.controls.append(where.element, batch.element, context.element);
  const chartOf = el("div", {});
  const draw = () => {
    const machine = machines[where.field.value];
    const step = stepOf(numbers, 2 ** batch.value, 2 ** context.value);
    const found = bound(step, machine);
    const path = Array.from({ length: batch.value + 1 }, (_, i) => bound(stepOf(numbers, 2 ** i, 2 ** context.value), machine));
    replace(chartOf, chart(machine, path, figure.room()));
    figure.say(`${(step.bytes / 1e6).toFixed(0)} MB and ${(step.operations / 1e9).toFixed(2)} G operations: ${found.intensity.toFixed(1)} operations a byte, and the ridge is at ${found.ridge.toFixed(0)}. So it is bound by ${found.by}: at least ${(1000 * found.seconds).toPrecision(3)} ms, at most ${(2 ** batch.value / found.seconds).toFixed(0)} tokens a second together.`);
  };
  const player = new Player(LARGEST + 1, (at) => {
    batch.set(at);
    draw();
  }, { every: 1100, playing: (on) => figure.words.setAttribute("aria-live", on ? "off" : "polite") });
  replace(figure.picture, chartOf, player.element);
  player.show(0);
  figure.onRoom(draw);
  ask("/live/about").then(({ machine }) => {
    if (!machine?.peak_gb_per_s) return;
    const read = machine.peak_gb_per_s * 1e9, operations = machine.peak_gops_int8 * 1e9;
    machines.here = { name: `this server's machine, measured: ${machine.peak_gb_per_s.toFixed(0)} GB/s`, read, operations };
    where.field.prepend(new Option(machines.here.name, "here"));
    where.field.value = "here";
    draw();
  }).catch(() => {}); // a server without records, or a key that is not given: the machines above stay
}

/** The least that a step of decode moves and computes, for `batch` sequences of `context` positions. */
export function stepOf(model, batch, context) {
  const perToken = model.operations + 4 * model.layers * model.heads * model.head_size * context;
  return { operations: batch * perToken, bytes: model.weight_bytes + batch * context * model.kv_bytes };
}

export function bound({ operations, bytes }, machine) {
  const memory = bytes / machine.read, arithmetic = operations / machine.operations;
  return { intensity: operations / bytes, ridge: machine.operations / machine.read, seconds: Math.max(memory, arithmetic), by: memory >= arithmetic ? "memory" : "arithmetic", rate: operations / Math.max(memory, arithmetic) };
}

/** `path` are the steps with ever more sequences; the last is the one that is asked about. */
function chart(machine, path, w) {
  const found = path.at(-1);
  const top = machine.operations * 2, low = machine.operations / 3000;
  const across = scale(0.5, 4096, 60, w - 10, true), down = scale(low, top, 220, 14, true);
  const at = (x) => Math.min(machine.operations, x * machine.read);
  const points = [0.5, found.ridge, 4096].map((x) => `${across(x).toFixed(1)},${Math.min(225, down(at(x))).toFixed(1)}`).join(" ");
  const ticks = (w > 400 ? [1, 10, 100, 1000] : [1, 30, 1000]).map((x) => [svg("line", { x1: across(x), x2: across(x), y1: 14, y2: 224, class: "grid" }), label(across(x), 240, String(x), { "text-anchor": "middle" })]);
  const rates = powers(low, top).map((x) => [svg("line", { x1: 60, x2: w - 10, y1: down(x), y2: down(x), class: "grid" }), label(54, down(x) + 4, short(x), { "text-anchor": "end" })]);
  const slope = found.ridge / (Math.abs(Math.log10(found.ridge / 2.5 / found.intensity)) < 0.4 ? 12 : 2.5); // where the memory's roof is named: not at the dot
  const right = across(found.intensity) < w * 0.7;
  return picture(w, 262, "Roofline: operations a second against operations a byte", ticks, rates,
    svg("polyline", { points, class: "curve" }),
    path.slice(0, -1).map((one) => svg("circle", { cx: across(one.intensity), cy: down(one.rate), r: 3.5, class: "ring" })),
    svg("circle", { cx: across(found.intensity), cy: down(found.rate), r: 7, class: "dot" }),
    label(across(found.intensity) + (right ? 13 : -13), down(found.rate) + (right ? 14 : -10), "this step", { class: "strong", "text-anchor": right ? "start" : "end" }),
    label(across(slope) + 10, down(at(slope)) + 12, `memory, ${short(machine.read)}B/s`),
    label(w - 14, down(machine.operations) - 7, `arithmetic, ${short(machine.operations)} op/s`, { "text-anchor": "end" }),
    label((50 + w) / 2, 258, "operations a byte", { "text-anchor": "middle" }), label(4, 10, "operations a second"));
}

/** Powers of ten between two values. */
function powers(low, high) {
  const found = [];
  for (let x = 10 ** Math.ceil(Math.log10(low)); x <= high; x *= 10) found.push(x);
  return found;
}

function short(value) {
  const [size, prefix] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1, ""]].find(([least]) => value >= least * 0.9995) ?? [1, ""];
  return `${Number((value / size).toPrecision(3))} ${prefix}`;
}
