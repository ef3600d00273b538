// Figure 2: an icicle of one step: its phases, its layers, its operations.

import { el } from "../core/dom.js";
import { bytes, count, digits, duration, key, num, percent } from "../core/format.js";
import { opInWords, phasePaint } from "../core/names.js";
import { legend } from "../draw/legend.js";
import { Plot } from "../draw/plot.js";
import { hatch, write } from "../draw/surface.js";
import { ABOVE, BEYOND, HEATS, arithmeticPeak, heat, leastTime, peaks } from "../model/roofline.js";
import { wall } from "../core/times.js";
import { kind, memoryBytes, phases, positions } from "../model/steps.js";

const ROW = 34;
const GAP = 2;
const STALLED = 5; // times its like: such an operation was held up
const STALL_MS = 0.5; // what is worth a sentence
const MUCH = 0.1; // of the forward pass: what goes by between operations is spoken of

export const anatomy = {
  name: "anatomy",
  number: 2,
  title: "Step anatomy",
  question: "What did this step's milliseconds buy?",
  wide: true,

  onVisible: (visible, app) => app.wantSpans("anatomy", visible),

  view(app) {
    const step = chosenStep(app);
    if (step === null) return { ...app.nothing, phases: [], ops: [] };
    const limits = peaks(app.store.about);
    const ops = app.store.spansOf(step.id).map((span) => described(span, limits));
    const sum = ops.reduce((total, op) => total + op.ms, 0);
    return {
      step: step.id,
      op: app.selection.current.op,
      kind: kind(step),
      positions: positions(step),
      wall_ms: wall(step),
      forward_ms: step.ms.forward,
      phases: phases(step),
      ops,
      ops_ms: sum,
      least: leastOf(step, limits),
      between_ms: ops.length ? Math.max(0, step.ms.forward - sum) : null,
      checks: step.checks ?? [],
    };
  },

  sentence(view) {
    const longest = [...view.phases].sort((a, b) => b.ms - a.ms)[0];
    const said = [
      `Step ${view.step} computed ${view.positions} position${view.positions === 1 ? "" : "s"} in `, num(duration(view.wall_ms)), ", ",
      num(percent(longest.ms / view.wall_ms)), " of it ", key(longest.phase, phasePaint(longest.phase)), ". ",
    ];
    if (view.least) said.push(`It is bound by ${view.least.by}: at best it would take `, num(duration(view.least.ms), "predicted"), ". ");
    if (!view.ops.length) return [...said, "Its operations were not timed: they are while this figure is seen, from the next step on."];
    const kinds = byKind(view.ops);
    const [first] = kinds;
    said.push(`Most of the forward pass went to ${opInWords(first.op)}: `, num(duration(first.ms)));
    if (first.bound_ms > 0) said.push(", ", num(`${digits(first.ms / first.bound_ms, 2)} x`), " what the machine's ", first.by, " allows at best (", num(duration(first.bound_ms), "predicted"), ")");
    said.push(".");
    if (first.bound_ms > ABOVE * first.ms) said.push(` ${BEYOND}`);
    said.push(...late(kinds));
    if (view.between_ms > MUCH * view.forward_ms) said.push(" Between its operations ", num(duration(view.between_ms)), " went by: the call itself, its checks, and whoever else had the processor.");
    if (view.checks.length) said.push(` Does not add up: ${view.checks.join("; ")}.`);
    said.push(...ofKind(kinds.find(({ op }) => op === view.op), view));
    return said;
  },

  table(view) {
    if (!view.ops.length) {
      return {
        caption: `Phases of step ${view.step}`,
        columns: [{ name: "phase", number: false }, { name: "time", unit: "ms", mark: "measured" }],
        rows: view.phases.map(({ phase, ms }) => [phase, ms]),
      };
    }
    return {
      caption: `Operations${of(view).length < view.ops.length ? ` ${view.op}` : ""} of step ${view.step}`,
      columns: [
        { name: "operation", number: false }, { name: "layer" }, { name: "time", unit: "ms", mark: "measured" },
        { name: "least", unit: "ms", mark: "predicted" }, { name: "bound by", number: false }, { name: "times the least" },
        { name: "weights, keys, values", unit: "bytes", mark: "predicted" }, { name: "arithmetic", unit: "operations", mark: "predicted" }, { name: "kernel", number: false },
      ],
      rows: of(view).map((o) => [o.op, o.layer ?? "", o.ms, o.bound_ms, o.by ?? "", o.ratio, o.bytes, o.operations, o.path ?? ""]),
    };
  },

  mount(body, app, redraw) {
    const plot = new Plot(app, "One step: phases above, then layers, then operations");
    plot.onFocusMark = redraw;
    const state = { grouped: false, zoom: null, step: null };
    body.append(plot.element);
    return {
      controls: controls(app, state, redraw),
      draw(view, width) {
        if (state.step !== view.step) [state.step, state.zoom] = [view.step, null];
        draw(plot, app, state, view, width, redraw);
      },
      legend: legend(...HEATS.map((words, i) => [`heat-${i}`, words]), ["phase-unaccounted", "between operations", "hatch"]).concat(document.createTextNode("Click to zoom in, once more to zoom out.")),
    };
  },
};

function chosenStep(app) {
  const { step, request } = app.selection.current;
  if (step !== null) return app.store.step(step);
  const timed = new Set(app.store.stepsWithSpans);
  const steps = app.stepsIn.filter(({ id }) => timed.has(id));
  return steps.findLast(({ batch }) => batch.some((item) => item.request === request)) ?? steps.at(-1) ?? app.step;
}

/** The operations of the kind that is selected; all where the step has none of it. */
function of({ ops, op }) {
  const found = ops.filter((one) => one.op === op);
  return found.length ? found : ops;
}

/** What the selected kind of operation took, in words; of one that the step has none of, nothing. */
function ofKind(found, view) {
  if (!found) return [];
  const said = [` Selected is ${opInWords(found.op)}, ${found.ops.length} times in this step: `, num(duration(found.ms)), ", ", num(percent(found.ms / view.forward_ms)), " of the forward pass"];
  if (found.bound_ms > 0) said.push(", ", num(`${digits(found.ms / found.bound_ms, 2)} x`), " the least");
  return [...said, "."];
}

function described(span, limits) {
  const least = leastTime(span.operations, span.bytes, limits.bandwidth, arithmeticPeak(span.op, limits));
  return {
    op: span.op, layer: span.layer, ms: span.ms, operations: span.operations, bytes: span.bytes,
    path: [span.backend, span.path].filter(Boolean).join(" "),
    bound_ms: least?.ms ?? null, by: least?.by ?? null,
    ratio: least && least.ms > 0 ? span.ms / least.ms : null,
  };
}

/** The least time of a whole step: one operation may read while another computes. */
function leastOf(step, limits) {
  if (limits.bandwidth === null || !step.batch.length) return null;
  return leastTime(step.cost.operations, memoryBytes(step), limits.bandwidth, limits.int8 ?? limits.f32);
}

/** What one operation took far longer than its like in the other layers, in words: nothing of the work explains that. */
function late(kinds) {
  const odd = kinds.filter(({ ops }) => ops.length > 4).flatMap(({ ops }) => {
    const usual = ops.map(({ ms }) => ms).sort((a, b) => a - b)[ops.length >> 1];
    return ops.filter((op) => op.ms > STALLED * usual).map((op) => ({ op, usual }));
  });
  if (!odd.length) return [];
  const { op, usual } = odd.reduce((a, b) => (b.op.ms - b.usual > a.op.ms - a.usual ? b : a));
  if (op.ms - usual < STALL_MS) return [];
  return [` In layer ${op.layer} ${op.op} took `, num(duration(op.ms)), ", in other layers ", num(duration(usual)), ": for that long something else had the processor."];
}

/** How far from the bound, as a colour; grey where the bound is not known. */
const heatPaint = (ratio) => (ratio === null ? "cache" : `heat-${heat(ratio)}`);

/** Operations of one name as one, longest first. */
function byKind(ops) {
  const found = new Map();
  for (const op of ops) {
    const entry = found.get(op.op) ?? { op: op.op, ms: 0, bound_ms: 0, bytes: 0, operations: 0, by: op.by, ops: [] };
    entry.ms += op.ms;
    entry.bound_ms += op.bound_ms ?? 0;
    entry.bytes += op.bytes;
    entry.operations += op.operations;
    entry.ops.push(op);
    found.set(op.op, entry);
  }
  return [...found.values()].sort((a, b) => b.ms - a.ms);
}

/** Neighbours of one layer as one. */
function byLayer(ops) {
  const groups = [];
  for (const op of ops) {
    const last = groups.at(-1);
    if (last && last.layer === op.layer) {
      last.ops.push(op);
      last.ms += op.ms;
    } else {
      groups.push({ layer: op.layer, ms: op.ms, ops: [op] });
    }
  }
  return groups;
}

function controls(app, state, redraw) {
  const go = (by) => {
    const ids = app.store.stepsWithSpans.length ? app.store.stepsWithSpans : app.store.steps.map((s) => s.id);
    const now = chosenStep(app)?.id ?? ids.at(-1);
    const next = by > 0 ? ids.find((id) => id > now) : ids.findLast((id) => id < now);
    if (next !== undefined) app.selection.set({ step: next });
  };
  const grouped = el("input", { type: "checkbox", on: { change: () => ((state.grouped = grouped.checked), (state.zoom = null), redraw()) } });
  return [
    el("span", { class: "stepper" },
      el("button", { type: "button", aria: { label: "The step before" }, on: { click: () => go(-1) } }, "‹"),
      el("button", { type: "button", aria: { label: "The step after" }, on: { click: () => go(1) } }, "›")),
    el("label", {}, grouped, "group by kind of operation"),
    el("button", { type: "button", on: { click: () => ((state.zoom = null), redraw()) } }, "Whole step"),
  ];
}

function draw(plot, app, state, view, width, redraw) {
  const blocks = layOut(view, state.grouped);
  const [from, to] = state.zoom ?? [0, view.wall_ms];
  const scale = width / (to - from || 1);
  const marks = [];
  for (const block of blocks) {
    const x = Math.max(0, (block.from - from) * scale);
    const right = Math.min(width, (block.to - from) * scale);
    if (right <= 0 || x >= width || right - x < 0.25) continue;
    marks.push({
      key: block.key, x, y: block.row * (ROW + GAP), w: right - x, h: ROW, block,
      over: { step: view.step, op: block.op ?? null },
      tip: () => block.tip,
      choose: () => {
        const zoom = block.zoom ?? [block.from, block.to];
        const again = String(state.zoom) === String(zoom) && (!block.op || app.selection.current.op === block.op);
        state.zoom = again ? null : zoom;
        app.selection.set({ step: view.step, ...(block.op ? { op: again ? null : block.op } : {}) }); // or the next step comes in its place
        redraw();
      },
    });
  }
  const rows = view.ops.length ? 3 : 1;
  plot.render(width, rows * (ROW + GAP), marks, (ctx) => marks.forEach((mark) => paint(ctx, app, mark)));
}

/** Rectangles in milliseconds from the step's begin. */
function layOut(view, grouped) {
  const blocks = [];
  let at = 0;
  let forward = 0;
  for (const { phase, ms } of view.phases) {
    if (phase === "forward") forward = at;
    blocks.push({
      key: phase, row: 0, from: at, to: at + ms, label: phase, paint: phasePaint(phase), hatched: phase === "unaccounted",
      tip: { title: phase, paint: phasePaint(phase), rows: [["time", duration(ms), "measured"], ["of the step", percent(ms / view.wall_ms), "measured"]] },
    });
    at += ms;
  }
  const groups = grouped
    ? byKind(view.ops).map((g) => ({ ...g, name: g.op, ops: g.ops }))
    : byLayer(view.ops).map((g) => ({ ...g, name: g.layer === null || g.layer === undefined ? "model" : `layer ${g.layer}` }));
  at = forward;
  groups.forEach((group, i) => {
    const zoom = [at, at + group.ms]; // an operation is looked at beside its neighbours
    blocks.push(groupBlock(group, i, at, grouped));
    for (const [j, op] of group.ops.entries()) {
      blocks.push({ ...opBlock(op, `${i} ${j}`, at, grouped), zoom });
      at += op.ms;
    }
  });
  if (view.between_ms > 0) {
    blocks.push({
      key: "between", row: 1, from: at, to: at + view.between_ms, label: "between", paint: "phase-unaccounted", hatched: true,
      tip: { title: "between operations", rows: [["time", duration(view.between_ms), "measured"]], note: "The forward pass less the time of its operations." },
    });
  }
  return blocks;
}

function groupBlock(group, i, at, grouped) {
  return {
    key: `group ${i}`, row: 1, from: at, to: at + group.ms, label: group.name, short: grouped || group.layer === null ? null : String(group.layer), paint: "free", op: grouped ? group.op : null,
    tip: { title: group.name, rows: [["time", duration(group.ms), "measured"], ["operations in it", String(group.ops.length)]] },
  };
}

function opBlock(op, id, at, grouped) {
  return {
    key: `op ${id}`, row: 2, from: at, to: at + op.ms, op: op.op, paint: heatPaint(op.ratio),
    label: grouped && op.layer !== null ? String(op.layer) : op.op,
    tip: {
      title: opInWords(op.op) + (op.layer === null || op.layer === undefined ? "" : `, layer ${op.layer}`),
      paint: heatPaint(op.ratio),
      rows: [
        ["time", duration(op.ms), "measured"],
        ["least", duration(op.bound_ms), "predicted"],
        ["bound by", op.by ?? "peaks unknown"],
        ["times the least", op.ratio === null ? "–" : `${digits(op.ratio, 2)} x`],
        ["weights, keys, values", bytes(op.bytes), "predicted"],
        ["arithmetic", `${count(op.operations)} operations`, "predicted"],
      ],
      note: op.path,
    },
  };
}

function paint(ctx, app, { x, y, w, h, block }) {
  const { paints } = app;
  const chosen = app.selection.hovered.op ?? app.selection.current.op;
  ctx.globalAlpha = chosen !== null && block.row === 2 && block.op !== chosen ? 0.3 : 1;
  const inner = w > 3 ? w - 1 : w;
  if (block.hatched) {
    hatch(ctx, x, y, inner, h, paints.of(block.paint));
  } else {
    ctx.fillStyle = paints.of(block.paint);
    ctx.fillRect(x, y, inner, h);
  }
  ctx.globalAlpha = 1;
  if (w < (block.short ? 18 : 26) || block.hatched) return;
  const light = block.row === 1 || /heat-[0-2]|wait|cache/.test(block.paint);
  const dark = app.theme.dark;
  const words = block.short && w < 54 ? block.short : block.label;
  write(ctx, words, x + 5, y + h / 2, { paint: light === dark ? "#fff" : "#111", max: w - 8 });
}
