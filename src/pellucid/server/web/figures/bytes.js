// Figure 4: a stacked bar of bytes per step, and the rate at which they moved.

import { bytes, digits, duration, key, num, percent, plural } from "../core/format.js";
import { TRAFFIC, trafficPaint } from "../core/names.js";
import { yAxis } from "../draw/axes.js";
import { choice } from "../draw/choice.js";
import { columns, fitting, markColumns, stepAxis } from "../draw/columns.js";
import { legend } from "../draw/legend.js";
import { Plot } from "../draw/plot.js";
import { linear, niceEnd } from "../draw/scales.js";
import { line, path, write } from "../draw/surface.js";
import { byteFormulas } from "../model/formulas.js";
import { ABOVE, BEYOND, peaks } from "../model/roofline.js";
import { achieved, around, kind, positions, totalBytes, traffic } from "../model/steps.js";

const MOST = 160;
const WORDS = { weights_read: "weights read", kv_read: "KV read", kv_written: "KV written", activations: "activations" };

export const byteLedger = {
  name: "bytes",
  number: 4,
  title: "Byte ledger",
  question: "What was read and written for one token?",

  view(app) {
    const steps = app.stepsShown(MOST).filter((step) => step.batch.length);
    if (!steps.length) return { ...app.nothing, steps: [] };
    return {
      unit: { bytes: "bytes", rate: "GB/s" },
      peak_gb_per_s: peaks(app.store.about).bandwidth,
      steps: steps.map((step) => ({
        id: step.id, kind: kind(step), positions: positions(step), tokens: step.tokens.length, forward_ms: step.ms.forward,
        ...traffic(step), total: totalBytes(step), gb_per_s: achieved(step),
      })),
      selected: app.selection.current.step,
    };
  },

  sentence(view) {
    const step = view.steps.find((s) => s.id === view.selected) ?? view.steps.findLast((s) => s.kind === "decode") ?? view.steps.at(-1);
    const main = TRAFFIC.toSorted((a, b) => step[b] - step[a])[0];
    const said = [
      `Step ${step.id} moved `, num(bytes(step.total), "predicted"), ` for ${plural(step.positions, "position")}`, ...(step.positions > 1 ? [", ", num(bytes(step.total / step.positions), "predicted"), " each"] : []), "; ",
      num(percent(step[main] / step.total), "predicted"), " of it ", key(WORDS[main], trafficPaint(main)),
    ];
    if (step.gb_per_s !== null) said.push("; weights, keys and values came at ", num(`${digits(step.gb_per_s)} GB/s`));
    if (step.gb_per_s !== null && view.peak_gb_per_s) said.push(": ", num(percent(step.gb_per_s / view.peak_gb_per_s)), " of what this machine's memory was seen to give");
    said.push(".");
    if (view.peak_gb_per_s && step.gb_per_s > ABOVE * view.peak_gb_per_s) said.push(` ${BEYOND}`);
    return said;
  },

  table(view) {
    return {
      caption: "Bytes of each step",
      columns: [
        { name: "step" }, { name: "work", number: false }, { name: "positions" },
        ...TRAFFIC.map((name) => ({ name: WORDS[name], unit: "bytes", mark: "predicted" })),
        { name: "total", unit: "bytes", mark: "predicted" }, { name: "forward", unit: "ms", mark: "measured" }, { name: "rate of weights and KV", unit: "GB/s", mark: "measured" },
      ],
      rows: view.steps.map((s) => [s.id, s.kind, s.positions, ...TRAFFIC.map((name) => s[name]), s.total, s.forward_ms, s.gb_per_s]),
    };
  },

  mount(body, app, redraw) {
    const plot = new Plot(app, "Bytes read and written, one column per step");
    plot.onFocusMark = redraw;
    const state = { per: "step" };
    body.append(plot.element);
    return {
      controls: [choice("Bytes", [["step", "per step"], ["position", "per position"]], state.per, (per) => ((state.per = per), redraw()))],
      draw: (view, width) => draw(plot, app, state, view, width),
      legend: legend(...TRAFFIC.map((name) => [trafficPaint(name), WORDS[name]]), ["ink", "weights, keys and values a second (right axis)", "line"], ["ink", "peak of this machine (right axis)", "dash"]),
    };
  },
};

function draw(plot, app, state, view, width) {
  const { paints } = app;
  const shown = around(view.steps, fitting(width), view.selected);
  const by = (step) => (state.per === "step" ? 1 : Math.max(1, step.positions));
  const height = 300;
  const bottom = height - 22;
  const places = columns(shown.length, 56, width - 46);
  const y = linear([0, niceEnd(Math.max(...shown.map((s) => s.total / by(s))))], [bottom, 20]);
  const rates = shown.map((s) => s.gb_per_s ?? 0);
  const rate = linear([0, niceEnd(Math.max(view.peak_gb_per_s ?? 0, ...rates))], [bottom, 20]);
  const marks = shown.flatMap((step, i) => columnMarks(app, step, places[i], y, by(step), bottom, state.per));
  const ids = shown.map((s) => s.id);
  plot.render(width, height, marks, (ctx) => {
    yAxis(ctx, y, { left: 56, right: width - 46, format: bytes, paints });
    markColumns(ctx, ids, places, 4, bottom, app);
    for (const mark of marks) {
      if (!mark.paint) continue;
      ctx.fillStyle = paints.of(mark.paint);
      ctx.fillRect(mark.x, mark.y, mark.w, mark.h);
    }
    rateAxis(ctx, rate, width, paints);
    const peak = rate(view.peak_gb_per_s ?? 0);
    if (view.peak_gb_per_s) {
      line(ctx, 56, peak, width - 46, peak, paints.of("card"), { width: 3 });
      line(ctx, 56, peak, width - 46, peak, paints.ink, { dash: [5, 4] });
    }
    const curve = shown.map((s, i) => [places[i].mid, s.gb_per_s === null ? null : rate(s.gb_per_s)]);
    path(ctx, curve, paints.of("card"), { width: 4 }); // so that the line is seen on the columns
    path(ctx, curve, paints.ink);
    stepAxis(ctx, ids, places, bottom, paints);
  });
}

function rateAxis(ctx, rate, width, paints) {
  for (const tick of rate.ticks(4)) write(ctx, String(tick), width - 40, rate(tick), { paint: paints.quiet });
  write(ctx, "GB/s", width, 7, { paint: paints.quiet, align: "right" });
}

function columnMarks(app, step, place, y, by, bottom, per) {
  let at = bottom;
  const choose = () => app.selection.toggle({ step: step.id });
  const marks = [{
    key: `step ${step.id}`, x: place.x, y: 4, w: place.w, h: bottom - 4, over: { step: step.id }, choose,
    tip: () => columnTip(step),
  }];
  for (const name of TRAFFIC) {
    const h = bottom - y(step[name] / by);
    at -= h;
    marks.push({
      key: `${step.id} ${name}`, x: place.x, y: at, w: place.w, h, paint: trafficPaint(name), over: { step: step.id }, choose,
      tip: () => ({
        title: `${WORDS[name]}, step ${step.id}`,
        paint: trafficPaint(name),
        rows: [[`per ${per}`, bytes(step[name] / by), "predicted"], ["of the step", percent(step[name] / step.total), "predicted"]],
        note: byteFormulas(app.store.about, app.store.step(step.id))[name],
      }),
    });
  }
  return marks;
}

function columnTip(step) {
  return {
    title: `Step ${step.id}`,
    rows: [
      ...TRAFFIC.map((name) => [WORDS[name], bytes(step[name]), "predicted"]),
      ["in all", bytes(step.total), "predicted"],
      ["forward pass", duration(step.forward_ms), "measured"],
      ["rate of weights, keys, values", step.gb_per_s === null ? "–" : `${digits(step.gb_per_s)} GB/s`, "measured"],
    ],
  };
}
