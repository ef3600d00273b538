// Figure 3: operations on a log-log chart under the roofs that were measured on this machine.

import { el, replace, say, svg } from "../core/dom.js";
import { bytes, clock, digits, duration, key, num, percent, sentence } from "../core/format.js";
import { opInWords } from "../core/names.js";
import { legend } from "../draw/legend.js";
import { placed } from "../draw/labels.js";
import { decades, log } from "../draw/scales.js";
import { Picture } from "../draw/vector.js";
import { ABOVE, BEYOND, GUESSES, arithmeticPeak, attainable, byOp, cheaper, forBatch, peaks } from "../model/roofline.js";
import { kind, memoryBytes } from "../model/steps.js";

const STEPS = 48;
const MOST_OPS = 12;
const LEAST_SHARE = 0.02; // of the time: what takes less is no dot
const LABELLED = 6;
const WORK = { prefill: "prompt", decode: "answer" };

export const roofline = {
  name: "roofline",
  number: 3,
  title: "Live roofline",
  question: "Memory- or compute-bound, and how far from the roof?",

  onVisible: (visible, app) => app.wantSpans("roofline", visible),

  view(app) {
    const timed = (list) => list.filter((s) => s.batch.length && s.ms.forward > 0);
    const alone = timed([app.store.step(app.selection.current.step)].filter(Boolean));
    const steps = alone.length ? alone : timed(app.stepsShown(STEPS));
    if (!steps.length) return { ...app.nothing, points: [] };
    const limits = peaks(app.store.about);
    const points = ["prefill", "decode"].flatMap((work) => pointsOf(app, steps.filter((s) => workOf(s) === work), work, limits));
    return {
      unit: { intensity: "operations per byte", rate: "billion operations a second" },
      peaks: { gb_per_s: limits.bandwidth, gops_int8: limits.int8, gflops_f32: limits.f32, ...limits.measured },
      step: alone.length ? alone[0].id : null,
      points,
      decode: decodeShape(alone.length && workOf(alone[0]) !== "decode" ? timed(app.store.steps) : steps),
    };
  },

  sentence(view) {
    if (view.peaks.gb_per_s === null) return ["This machine's peaks are not measured yet, so that there is no roof; the dots are."];
    const said = [];
    for (const point of view.points.filter((p) => p.op === "whole")) {
      const roof = point.bound_by === "memory" ? "memory" : "arithmetic";
      const [name, is] = view.step !== null ? [`Step ${view.step}`, "is"] : [point.work === "prefill" ? "Prompts" : "Answers", "are"];
      said.push(said.length ? " " : "", key(name, `stage-${point.work}`), ` ${is} bound by ${roof}: each byte read serves `, num(digits(point.intensity), "predicted"), " operations, at which this machine could do ",
        num(`${digits(point.attainable)} Gop/s`, "predicted"), "; it did ", num(`${digits(point.rate)} Gop/s`), ", ", num(percent(point.rate / point.attainable)), ".");
      if (point.rate > ABOVE * point.attainable) said.push(` ${BEYOND}`);
    }
    const { best_since: since, measured_at: last } = view.peaks;
    if (said.length && last !== null) {
      const [from, to] = [clock(since ?? last, last), clock(last)];
      said.push(from === to ? ` The machine was measured at ${to}.` : ` The roof is the best that was measured from ${from} to ${to}, what was longer ago counting less.`);
    }
    return said;
  },

  table(view) {
    return {
      caption: "Kinds of operation",
      columns: [
        { name: "operation", number: false }, { name: "work", number: false }, { name: "time", unit: "ms", mark: "measured" },
        { name: "intensity", unit: "op/B", mark: "predicted" }, { name: "rate", unit: "Gop/s", mark: "measured" },
        { name: "attainable", unit: "Gop/s", mark: "predicted" }, { name: "bound by", number: false },
      ],
      rows: view.points.map((p) => [p.op, WORK[p.work], p.ms, p.intensity, p.rate, p.attainable, p.bound_by ?? ""]),
    };
  },

  mount(body, app, redraw) {
    const picture = new Picture(app, "Kinds of operation under the machine's roofs");
    const state = { batch: 8 };
    const advice = el("p", { class: "detail" });
    body.append(picture.element, advice);
    return {
      controls: slider(state, redraw),
      draw(view, width) {
        draw(picture, app, state, view, width);
        advise(advice, view, state.batch);
      },
      legend: legend(["stage-prefill", "prompts"], ["stage-decode", "answers", "dot"], ["stage-decode", "predicted for the batch above", "ring"], ["ink", "roofs, measured", "line"]),
    };
  },
};

const workOf = (step) => (kind(step) === "decode" ? "decode" : "prefill");

function slider(state, redraw) {
  const shown = el("output", {}, String(state.batch));
  const input = el("input", { type: "range", min: "0", max: "8", step: "1", value: "3", on: { input: () => {
    state.batch = 2 ** Number(input.value);
    say(shown, String(state.batch));
    redraw();
  } } });
  return [el("label", {}, "Answers decoded together", input, shown)];
}

function pointsOf(app, steps, work, limits) {
  if (!steps.length) return [];
  const whole = {
    op: "whole", ms: sum(steps, (s) => s.ms.forward), operations: sum(steps, (s) => s.cost.operations), bytes: sum(steps, memoryBytes), calls: steps.length,
  };
  const spanned = steps.filter((s) => app.store.spansOf(s.id).length);
  const seen = { answers: work === "decode" ? sum(spanned, (s) => s.batch.length) : 0, steps: spanned.length };
  const timed = sum(spanned, (s) => s.ms.forward);
  const ops = byOp(spanned.flatMap((s) => app.store.spansOf(s.id))).filter((o) => o.ms > LEAST_SHARE * timed).map((o) => ({ ...o, ...seen }));
  return [whole, ...ops.slice(0, MOST_OPS)].filter((o) => o.operations > 0 && o.bytes > 0).map((o) => {
    const intensity = o.operations / o.bytes;
    const arithmetic = o.op === "whole" ? (limits.int8 ?? limits.f32) : arithmeticPeak(o.op, limits);
    const roof = attainable(intensity, limits.bandwidth, arithmetic);
    return {
      ...o, work, intensity, rate: o.operations / o.ms / 1e6,
      attainable: Number.isFinite(roof) ? roof : null,
      bound_by: limits.bandwidth === null ? null : intensity * limits.bandwidth <= (arithmetic ?? Infinity) ? "memory" : "arithmetic",
    };
  });
}

const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);

/** What would make an answer's token cheaper, in words. */
function advise(host, view, batch) {
  const { decode, peaks: limits } = view;
  const found = decode && cheaper(decode, batch, limits.gb_per_s, limits.gops_int8 ?? limits.gflops_f32);
  host.hidden = !found;
  if (!found) return;
  const share = (value) => num(percent(value), "predicted");
  replace(host, sentence([
    "What would make an answer's token cheaper? Of the least time that it takes alone it would need ", share(found.together), ` if ${batch} answers were decoded together, `,
    share(found.half_bits), " if the weights had half the bits, ", share(found.guessed), ` if ${GUESSES.count} tokens were guessed in each step and ${100 * GUESSES.right} % of them were right.`,
  ]));
}

/** What a decode step takes: once for all (weights), and for each answer in it. */
function decodeShape(steps) {
  const step = steps.findLast((s) => workOf(s) === "decode");
  if (!step) return null;
  const n = step.batch.length;
  return { step: step.id, weights: step.cost.weights_read, operations: step.cost.operations / n, bytes: (memoryBytes(step) - step.cost.weights_read) / n };
}

function draw(picture, app, state, view, width) {
  const height = 300;
  const dot = predicted(view, state.batch);
  const points = view.points;
  const limits = { bandwidth: view.peaks.gb_per_s, int8: view.peaks.gops_int8, f32: view.peaks.gflops_f32 };
  const hollows = points.map((point) => (point.answers ? forBatch(point, state.batch, limits) : null)).filter((one) => one !== null && Number.isFinite(one.rate));
  const roofs = [view.peaks.gops_int8, view.peaks.gflops_f32].filter((v) => v !== null);
  const x = log(decades([...points.map((p) => p.intensity), ...hollows.map((p) => p.intensity), dot?.intensity ?? 1, ...roofs.map((r) => r / (view.peaks.gb_per_s ?? r))]), [52, width - 12]);
  const y = log(decades([...points.map((p) => p.rate), ...hollows.map((p) => p.rate), ...roofs, dot?.rate ?? 1]), [height - 34, 10]);
  const chosen = app.selection.hovered.op ?? app.selection.current.op;
  picture.render(width, height, [points.map((p) => [p.op, p.work, Math.round(x(p.intensity)), Math.round(y(p.rate))]), hollows, dot, chosen, roofs], () => [
    axes(x, y, width, height),
    roofLines(view.peaks, x, y),
    ...points.map((point) => mark(picture, app, point, x, y, chosen)),
    ...hollows.map((one) => hollowOp(picture, app, one, x, y, state.batch, chosen)),
    dot ? hollow(picture, dot, x, y, state.batch) : null,
    labels(points, x, y, width),
  ]);
}

function predicted(view, batch) {
  const { decode, peaks: limits } = view;
  if (!decode || limits.gb_per_s === null) return null;
  const moved = decode.weights + batch * decode.bytes;
  const intensity = (batch * decode.operations) / moved;
  const rate = attainable(intensity, limits.gb_per_s, limits.gops_int8 ?? limits.gflops_f32);
  return { intensity, rate, ms: (batch * decode.operations) / rate / 1e6, bytes: moved };
}

function axes(x, y, width, height) {
  const bottom = height - 34;
  return svg("g", { aria: { hidden: "true" } },
    x.ticks().map((t) => [
      svg("line", { class: "grid", x1: x(t), x2: x(t), y1: 10, y2: bottom }),
      svg("text", { x: x(t), y: bottom + 14, "text-anchor": t === x.domain[1] ? "end" : "middle" }, digits(t)),
    ]),
    y.ticks().map((t) => [
      svg("line", { class: "grid", x1: 52, x2: width - 12, y1: y(t), y2: y(t) }),
      svg("text", { x: 46, y: y(t) + 4, "text-anchor": "end" }, digits(t)),
    ]),
    svg("text", { x: width - 12, y: height - 4, "text-anchor": "end" }, "operations per byte"),
    svg("text", { x: 58, y: 8 }, "Gop/s"));
}

function roofLines({ gb_per_s: bandwidth, gops_int8: int8, gflops_f32: f32 }, x, y) {
  if (bandwidth === null) return null;
  const top = Math.max(int8 ?? 0, f32 ?? 0);
  const [low] = x.domain;
  const start = Math.max(low, y.domain[0] / bandwidth);
  const lines = [svg("line", { class: "stroke", "stroke-width": 1.5, data: { paint: "ink" }, x1: x(start), y1: y(start * bandwidth), x2: x(top / bandwidth), y2: y(top) })];
  const [sx, sy] = [x(start) + 0.62 * (x(top / bandwidth) - x(start)), y(start * bandwidth) + 0.62 * (y(top) - y(start * bandwidth))];
  lines.push(svg("text", { class: "strong", x: sx - 8, y: sy - 4, "text-anchor": "end" }, `${digits(bandwidth)} GB/s ●`));
  for (const [peak, name] of [[int8, "8-bit"], [f32, "float"]]) {
    if (peak === null) continue;
    lines.push(svg("line", { class: "stroke", "stroke-width": 1.5, data: { paint: "ink" }, x1: x(peak / bandwidth), y1: y(peak), x2: x.range[1], y2: y(peak) }));
    lines.push(svg("text", { class: "strong", x: x.range[1], y: y(peak) - 5, "text-anchor": "end" }, `${digits(peak)} Gop/s ${name} ●`));
  }
  return svg("g", { aria: { hidden: "true" } }, lines);
}

function mark(picture, app, point, x, y, chosen) {
  const [cx, cy] = [x(point.intensity), y(point.rate)];
  const whole = point.op === "whole";
  const node = svg("g", { class: chosen !== null && point.op !== chosen ? "dim" : null, data: { paint: `stage-${point.work}` } },
    point.attainable === null ? null : svg("line", { class: "stroke", "stroke-dasharray": "2 3", x1: cx, x2: cx, y1: cy, y2: y(point.attainable) }),
    point.work === "prefill"
      ? svg("rect", { class: "paint", x: cx - (whole ? 6 : 4), y: cy - (whole ? 6 : 4), width: whole ? 12 : 8, height: whole ? 12 : 8 })
      : svg("circle", { class: "paint", cx, cy, r: whole ? 7 : 4.5 }));
  return picture.mark(node, {
    key: `${point.work} ${point.op}`,
    over: { op: whole ? null : point.op },
    choose: whole ? null : () => app.selection.toggle({ op: point.op }),
    tip: () => ({
      title: `${whole ? "whole forward pass" : opInWords(point.op)}, ${WORK[point.work]}s`,
      paint: `stage-${point.work}`,
      rows: [
        ["rate", `${digits(point.rate)} Gop/s`, "measured"],
        ["attainable", point.attainable === null ? "–" : `${digits(point.attainable)} Gop/s`, "predicted"],
        ["reached", point.attainable === null ? "–" : percent(point.rate / point.attainable)],
        ["intensity", `${digits(point.intensity)} op/B`, "predicted"],
        ["moved", bytes(point.bytes), "predicted"],
        ["time", duration(point.ms), "measured"],
        ["bound by", point.bound_by ?? "peaks unknown"],
      ],
    }),
  });
}

function hollow(picture, dot, x, y, batch) {
  const node = svg("circle", { class: "stroke", "stroke-width": 2, data: { paint: "stage-decode" }, cx: x(dot.intensity), cy: y(dot.rate), r: 7 });
  return picture.mark(node, {
    key: "predicted",
    tip: () => ({
      title: `${batch} answers decoded together`,
      paint: "stage-decode",
      rows: [
        ["intensity", `${digits(dot.intensity)} op/B`, "predicted"], ["at best", `${digits(dot.rate)} Gop/s`, "predicted"],
        ["a step at best", duration(dot.ms), "predicted"], ["tokens a second at best", digits((1000 * batch) / dot.ms), "predicted"],
      ],
      note: "Weights are read once for all of them; at the last answer step's context.",
    }),
  });
}

/** One kind of operation for that batch. */
function hollowOp(picture, app, { op, intensity, rate }, x, y, batch, chosen) {
  const node = svg("circle", { class: `stroke${chosen !== null && op !== chosen ? " dim" : ""}`, "stroke-width": 1.5, data: { paint: "stage-decode" }, cx: x(intensity), cy: y(rate), r: 4 });
  return picture.mark(node, {
    key: `predicted ${op}`, over: { op }, choose: () => app.selection.toggle({ op }),
    tip: () => ({ title: `${opInWords(op)}, ${batch} answers together`, paint: "stage-decode", rows: [["intensity", `${digits(intensity)} op/B`, "predicted"], ["at best", `${digits(rate)} Gop/s`, "predicted"]] }),
  });
}

/** Names of the longest operations, where they cover neither each other nor a dot. */
function labels(points, x, y, width) {
  const order = points.toSorted((a, b) => (b.op === "whole") - (a.op === "whole") || b.ms - a.ms).slice(0, LABELLED + 2);
  const wanted = order.map((point) => ({
    x: x(point.intensity), y: y(point.rate), r: point.op === "whole" ? 7 : 5,
    text: point.op === "whole" ? (point.work === "prefill" ? "prompts" : "answers") : point.op, strong: point.op === "whole",
  }));
  const dots = points.map((point) => ({ x: x(point.intensity), y: y(point.rate), r: 5 }));
  const nodes = placed(wanted, dots, [52, width]).map((label) => svg("text", { class: label.strong ? "strong" : null, x: label.at[0], y: label.at[1] + 4 }, label.text));
  return svg("g", { aria: { hidden: "true" }, "pointer-events": "none" }, nodes);
}
