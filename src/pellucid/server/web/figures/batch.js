// Figure 7: what each step held, request by request, under the budget; and who had to wait, and why.

import { replace, el } from "../core/dom.js";
import { digits, duration, key, num, percent, plural, sentence } from "../core/format.js";
import { KINDS, requestPaint, shortName } from "../core/names.js";
import { wall } from "../core/times.js";
import { yAxis } from "../draw/axes.js";
import { choice } from "../draw/choice.js";
import { columns, fitting, markColumns, stepAxis } from "../draw/columns.js";
import { legend } from "../draw/legend.js";
import { Plot } from "../draw/plot.js";
import { linear, niceEnd } from "../draw/scales.js";
import { hatch, line, write } from "../draw/surface.js";
import { quantile } from "../model/load.js";
import { around, byRequest, kind, positions, whyNamed } from "../model/steps.js";

const MOST = 160;
const SLOWED = 1.5; // times a step alone

export const batchStrip = {
  name: "batch",
  number: 7,
  title: "Batch strip",
  question: "What did the scheduler decide, and why not more?",
  wide: true,

  view(app) {
    const steps = app.stepsShown(MOST);
    if (!steps.length) return { ...app.nothing, steps: [] };
    return { unit: "positions", steps: steps.map((step) => described(app, step)), selected: app.selection.current.step, request: app.selection.current.request, alone_ms: aloneMs(app.store) };
  },

  sentence(view) {
    const step = view.steps.find((s) => s.id === view.selected) ?? view.steps.at(-1);
    const waits = view.steps.filter((s) => s.waiting > 0).length;
    const reason = commonest(view.steps.filter((s) => s.why.length).map((s) => s.why[0][1]));
    return [
      ...inWords(step), " ",
      waits ? `In ${waits} of the ${plural(view.steps.length, "step")} shown somebody waited${reason === null ? "" : `, mostly ${reason.startsWith("waits for ") ? reason.slice(6) : `because: ${reason}`}`}.` : `In none of the ${plural(view.steps.length, "step")} shown did anybody wait.`,
    ];
  },

  table(view) {
    return {
      caption: "Plans of the steps",
      columns: [
        { name: "step" }, { name: "work", number: false }, { name: "positions" }, { name: "budget" }, { name: "sequences" },
        { name: "running" }, { name: "waiting" }, { name: "preempted" }, { name: "step time", unit: "ms", mark: "measured" }, { name: "who waits, and why", number: false },
      ],
      rows: view.steps.map((s) => [
        s.id, s.kind, s.positions, s.budget, s.sequences, s.running, s.waiting, s.preempted, s.wall_ms,
        s.why.map(([name, why]) => `${name}: ${why}`).join("; ") || "nobody",
      ]),
    };
  },

  mount(body, app, redraw) {
    const plot = new Plot(app, "Positions that each step computed, one column per step");
    plot.onFocusMark = redraw;
    const words = el("div", { class: "detail" });
    const state = { by: "positions" };
    body.append(plot.element, words);
    return {
      controls: [choice("Height", [["positions", "positions"], ["sequences", "requests"]], state.by, (by) => ((state.by = by), redraw()))],
      draw(view, width) {
        draw(plot, app, state.by, view, width);
        explain(words, view);
      },
      legend: legend(["quiet", "prompt", "hatch"], ["quiet", "answer"], ["ink", "a chunk: the prompt goes on later", "teeth"], ["bad", "somebody waits", "dot"], ["accent", "preempted", "outline"], ["ink", "budget", "dash"])
        .concat(document.createTextNode("Colours are requests'. Click a column for its plan in words.")),
    };
  },
};

/** Why somebody waits, in words. */
const whoWaits = (name, why) => (why.startsWith("wait") ? `${name} ${why}` : `${name} waits: ${why}`);

/** What occurs most often in a list, null in none. */
function commonest(list) {
  const counts = new Map();
  for (const one of list) counts.set(one, (counts.get(one) ?? 0) + 1);
  return [...counts].reduce((best, one) => (one[1] > (best?.[1] ?? 0) ? one : best), null)?.[0] ?? null;
}

function described(app, step) {
  return {
    id: step.id,
    kind: kind(step),
    positions: positions(step),
    budget: step.budget?.tokens ?? null,
    most_sequences: step.budget?.sequences ?? null,
    sequences: step.batch.length,
    running: step.queue?.running ?? null,
    waiting: step.queue?.waiting ?? 0,
    why: (step.queue?.why ?? []).map(([id, why]) => [shortName(id), whyNamed(why, (sequence) => nameOf(app.store, sequence))]),
    preempted: Object.keys(step.pages?.preempted ?? {}).length,
    wall_ms: wall(step),
    free_pages: step.pages?.free ?? null,
    parts: byRequest(step).map(({ request, kind: what, tokens, context, sequences }) => ({
      request, sequences, name: shortName(request), paint: requestPaint(request), kind: what, tokens, context,
      chunked: what === "prefill" && context < (app.store.request(request)?.prompt_tokens ?? 0),
    })),
  };
}

/** The name of the request that a sequence is of; null where it is not known. */
function nameOf(store, sequence) {
  const owners = store.derived("owners of sequences", ({ requests }) => new Map(requests.flatMap((r) => (r.sequences ?? []).map((one) => [one, shortName(r.id)]))));
  return owners.get(sequence) ?? null;
}

/** The plan of a step, in words. */
export function inWords(step) {
  if (!step.sequences) return [`Step ${step.id} computed nothing.`];
  const prompts = step.parts.filter((p) => p.kind === "prefill");
  const answers = step.parts.filter((p) => p.kind !== "prefill");
  const said = [`Step ${step.id} computed `, num(plural(step.positions, "position"))];
  if (step.budget) said.push(` of at most ${step.budget}`);
  const n = answers.reduce((sum, p) => sum + p.sequences, 0);
  if (n) said.push(`: a token ${n === 1 ? "of " : `each of ${n} answers: `}`, ...names(answers, besides));
  if (prompts.length) said.push(answers.length ? "; and of prompts: " : ": of prompts ", ...names(prompts, (p) => ` (${p.tokens}${p.chunked ? ", a chunk" : ""})`));
  said.push(".");
  if (step.preempted) said.push(` It took the pages of ${plural(step.preempted, "sequence")}, to be computed again.`);
  return said;
}

/** What an answer had in a step besides its token, and how many answers a request had. */
function besides({ kind: what, tokens, sequences }) {
  const said = [sequences > 1 ? `${sequences} answers` : "", what === "verify" ? `${plural(tokens - sequences, "guess", "guesses")} checked` : ""].filter(Boolean);
  return said.length ? ` (${said.join(", ")})` : "";
}

function names(parts, more = () => "") {
  const shown = parts.slice(0, 6).flatMap((p, i) => [i ? ", " : "", key(p.name, p.paint), more(p)]);
  return parts.length > 6 ? [...shown, ` and ${parts.length - 6} more`] : shown;
}

/** The usual time of a step that held one answer's token and nothing else; null where there was none. */
const aloneMs = (store) => store.derived("alone", ({ steps }) => quantile(steps.filter(({ batch: [one, ...more] }) => !more.length && one?.kind === "decode" && one.tokens === 1).map(wall), 0.5));

/** Who was in the step beside the selected request, and what that cost it. */
function neighbours(step, request, alone) {
  const own = step.parts.find((part) => part.request === request);
  if (!own) return [];
  const others = step.positions - own.tokens;
  if (others === 0) return [key(own.name, own.paint), " had this step to itself."];
  const said = [key(own.name, own.paint), ` shared it with ${plural(step.parts.length - 1, "request")}, which had ${digits(others)} of its ${digits(step.positions)} positions. It took `, num(duration(step.wall_ms))];
  if (own.kind === "decode" && alone !== null) said.push("; a step with one answer alone usually takes ", num(duration(alone)), step.wall_ms > SLOWED * alone ? `: they slowed ${own.name} down.` : `: they hardly slowed ${own.name} down.`);
  else said.push(".");
  return said;
}

function explain(host, view) {
  const step = view.steps.find((s) => s.id === view.selected);
  host.hidden = !step;
  if (!step) return;
  const waiting = step.why.length
    ? el("ul", {}, step.why.map(([name, why]) => el("li", {}, whoWaits(name, why))))
    : el("p", { class: "quiet" }, step.waiting ? `${plural(step.waiting, "sequence")} waited; reasons are told while somebody watches.` : "Nobody waited.");
  const beside = neighbours(step, view.request, view.alone_ms);
  replace(host, el("p", {}, sentence(inWords(step))), beside.length ? el("p", {}, sentence(beside)) : null, waiting);
}

/** How much of a column is a part's: its positions, or one for each request. */
const sizeOf = (part, by) => (by === "positions" ? part.tokens : 1);

function draw(plot, app, by, view, width) {
  const { paints } = app;
  const shown = around(view.steps, fitting(width, 44, 4), view.selected);
  const height = 210;
  const bottom = height - 34;
  const places = columns(shown.length, 44, width - 4);
  const most = Math.max(...shown.map((s) => s.parts.reduce((sum, part) => sum + sizeOf(part, by), 0)));
  const budget = Math.max(...shown.map((s) => (by === "positions" ? s.budget : s.most_sequences) ?? 0));
  const y = linear([0, niceEnd(Math.max(most, 4))], [bottom, 12]);
  const ids = shown.map((s) => s.id);
  const marks = shown.flatMap((step, i) => columnMarks(app, step, places[i], y, bottom, by));
  plot.render(width, height, marks, (ctx) => {
    yAxis(ctx, y, { left: 44, right: width - 4, format: (v) => String(v), paints });
    markColumns(ctx, ids, places, 6, bottom, app);
    for (const mark of marks) if (mark.part) paintPart(ctx, app, mark);
    budgetLine(ctx, budget, y, width, paints);
    shown.forEach((step, i) => paintSigns(ctx, step, places[i], bottom, paints));
    stepAxis(ctx, ids, places, bottom + 10, paints);
  });
}

function budgetLine(ctx, budget, y, width, paints) {
  if (!budget) return;
  const inside = budget <= y.domain[1];
  const at = inside ? y(budget) : 9;
  line(ctx, 44, at, width - 4, at, paints.ink, { dash: [5, 4] });
  write(ctx, inside ? `budget ${budget}` : `budget ${budget} ↑`, width - 6, at + (inside && at > 20 ? -7 : 8), { paint: paints.ink, align: "right" });
}

function columnMarks(app, step, place, y, bottom, by) {
  const marks = [{
    key: `step ${step.id}`, x: place.x, y: 6, w: place.w, h: bottom + 10, over: { step: step.id },
    choose: () => app.selection.toggle({ step: step.id }), tip: () => stepTip(step),
  }];
  let at = bottom;
  for (const part of step.parts) {
    const h = bottom - y(sizeOf(part, by));
    at -= h;
    marks.push({
      key: `${step.id} ${part.request}`, x: place.x, y: at, w: place.w, h, part, over: { step: step.id, request: part.request },
      choose: () => app.selection.set({ step: step.id, request: part.request }),
      tip: () => ({
        title: `${part.name} in step ${step.id}`, paint: part.paint,
        rows: [[KINDS[part.kind] ?? part.kind, plural(part.tokens, "position")], ["context then", plural(part.context, "token")], ["of the step", percent(part.tokens / step.positions)]],
        note: part.chunked ? "A chunk: the rest of the prompt came later." : "",
      }),
    });
  }
  return marks;
}

function stepTip(step) {
  return {
    title: `Step ${step.id}`,
    rows: [
      ["positions", String(step.positions)], ["sequences", String(step.sequences)],
      ["running, waiting after it", `${step.running ?? "–"}, ${step.waiting}`], ["free pages", String(step.free_pages ?? "–")],
      ["time", duration(step.wall_ms), "measured"],
    ],
    note: step.why.map(([name, why]) => whoWaits(name, why)).join("; "),
  };
}

function paintPart(ctx, app, { x, y, w, h, part }) {
  const { paints, selection } = app;
  const chosen = selection.hovered.request ?? selection.current.request;
  ctx.globalAlpha = chosen !== null && chosen !== part.request ? 0.35 : 1;
  const inner = h > 3 ? h - 0.75 : h;
  ctx.fillStyle = paints.of(part.paint);
  ctx.fillRect(x, y, w, inner);
  if (part.kind === "prefill") hatch(ctx, x, y, w, inner, paints.of("card"), 5);
  ctx.globalAlpha = 1;
  if (part.chunked) paintChunk(ctx, x, y, w, paints);
}

/** A prompt that goes on in a later step: its upper edge is torn. */
function paintChunk(ctx, x, y, w, paints) {
  const tooth = Math.max(2, Math.min(5, w / 2));
  ctx.fillStyle = paints.ink;
  ctx.beginPath();
  for (let at = x; at + tooth <= x + w + 0.5; at += tooth) {
    ctx.moveTo(at, y);
    ctx.lineTo(at + tooth / 2, y + tooth);
    ctx.lineTo(at + tooth, y);
  }
  ctx.fill();
}

function paintSigns(ctx, step, { mid, w }, bottom, paints) {
  const r = Math.max(1, Math.min(2.5, w / 2));
  if (step.waiting) {
    ctx.fillStyle = paints.of("bad");
    ctx.beginPath();
    ctx.arc(mid, bottom + 5, r, 0, 7);
    ctx.fill();
  }
  if (step.preempted) {
    ctx.strokeStyle = paints.of("accent");
    ctx.lineWidth = 1.5;
    ctx.strokeRect(mid - 3, bottom - 4, 6, 6);
  }
}
