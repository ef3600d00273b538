// Figure 1: one lane per request on a shared time axis.

import { digits, duration, key, num, percent, plural } from "../core/format.js";
import { KINDS, STAGES, requestPaint, shortName, stagePaint } from "../core/names.js";
import { secondsFormat, xAxis } from "../draw/axes.js";
import { legend } from "../draw/legend.js";
import { Plot } from "../draw/plot.js";
import { linear } from "../draw/scales.js";
import { hatch, line, write } from "../draw/surface.js";
import { begin, endOf } from "../core/times.js";
import { latest } from "../core/window.js";
import { company, endOfLife, stages, stepsByRequest, stretches } from "../model/lifecycle.js";

const MOST_LANES = 14;
const LANE = 24;
const BAR = 14;
const MUCH = 0.1; // of the time to the first token: what is worth a sentence
const VERBS = { finished: "took", failed: "failed after", cancelled: "was cancelled after", running: "has run for", queued: "has waited for" };
const WORDS = { receive: "read and checked", tokenize: "tokenize", queue: "in the queue", prefill: "prompt", decode: "answer", detokenize: "detokenize", send: "send", unaccounted: "unaccounted" };

export const waterfall = {
  name: "waterfall",
  number: 1,
  title: "Request waterfall",
  question: "Where did the wall time go, from socket to last byte?",
  wide: true,

  view(app) {
    const time = app.time;
    if (time === null) return { ...app.nothing, lanes: [] };
    const [lanes, left] = lanesShown(app, time);
    if (!lanes.length) return { empty: "no traffic", why: "No request falls into the time that is selected. Select another time, or none.", lanes: [] };
    return { from: time[0], to: time[1], unit: { time: "s of the engine's clock", stages: "ms" }, lanes, left_out: left };
  },

  sentence(view) {
    const lane = view.lanes.find((l) => l.selected) ?? view.lanes.findLast((l) => l.state === "finished") ?? view.lanes.at(-1);
    const { total, ...parts } = lane.stages;
    const largest = STAGES.filter((s) => s !== "unaccounted" && parts[s] > 0).sort((a, b) => parts[b] - parts[a]).slice(0, 3);
    const shares = largest.flatMap((stage, i) => [
      i ? ", " : "", key(WORDS[stage], stagePaint(stage)), " ", num(percent(parts[stage] / total)),
    ]);
    const first = ["receive", "tokenize", "queue", "prefill"].filter((stage) => parts[stage] >= 0.05 * lane.ttft_ms).flatMap((stage, i) => [i ? ", " : "", `${WORDS[stage]} `, num(duration(parts[stage]))]);
    return [
      key(lane.name, lane.paint), ` ${VERBS[lane.state] ?? "is there for"} `, num(duration(total)),
      lane.ttft_ms === null ? "" : `${lane.state === "finished" ? " to its last byte" : ""}, its first token after `, lane.ttft_ms === null ? "" : num(duration(lane.ttft_ms)),
      ...(first.length && lane.ttft_ms !== null ? [" (", ...first, ")"] : []),
      ". ", ...whyLate(lane), "Of the whole: ", ...shares, "; unaccounted ", num(percent(parts.unaccounted / total)), ". ", ...shared(lane),
      view.left_out ? ` The last ${view.lanes.length} requests of this time are drawn; ${plural(view.left_out, "earlier one")} ${view.left_out === 1 ? "is" : "are"} left out: select a shorter time.` : "",
    ];
  },

  table(view) {
    return {
      caption: "Requests and where their time went",
      columns: [
        { name: "request", number: false }, { name: "state", number: false },
        ...["total", "first token", ...STAGES].map((name) => ({ name, unit: "ms", mark: "measured" })),
        { name: "its share of the steps", unit: "ms", mark: "estimated" },
        { name: "prompt", unit: "tokens" }, { name: "from cache", unit: "tokens" }, { name: "answer", unit: "tokens" },
      ],
      rows: view.lanes.map((l) => [
        l.name, l.state, l.stages.total, l.ttft_ms, ...STAGES.map((s) => l.stages[s]),
        l.share_ms, l.prompt_tokens, l.cached_tokens, l.output_tokens,
      ]),
    };
  },

  mount(body, app, redraw) {
    const plot = new Plot(app, "Requests over time, one lane each; T selects the time of a mark");
    plot.onFocusMark = redraw;
    body.append(plot.element);
    return {
      draw: (view, width) => draw(plot, app, view, width),
      legend: legend(
        ...["receive", "tokenize", "queue", "prefill", "decode", "send"].map((s) => [stagePaint(s), WORDS[s]]),
        ["stage-unaccounted", "between its steps, or unaccounted", "hatch"],
      ).concat(hint()),
    };
  },
};

/** What the first token waited for, where that was others. */
function whyLate({ ttft_ms: ttft, stages: parts, before_first: seen }) {
  if (ttft === null) return [];
  const said = [];
  const others = (list) => list.slice(0, 3).flatMap(({ name, paint }, i) => [i ? ", " : "", key(name, paint)]).concat(list.length > 3 ? ` and ${list.length - 3} more` : "");
  if (parts.queue >= MUCH * ttft && seen.queue.others.length) said.push("While it was in the queue the engine computed for ", ...others(seen.queue.others), ". ");
  if (seen.prompt.of > 0 && seen.prompt.own < 0.5 * seen.prompt.of) {
    said.push(`The ${seen.prompt.steps === 1 ? "step" : plural(seen.prompt.steps, "step")} of its prompt computed ${plural(seen.prompt.of, "position")}, ${digits(seen.prompt.own)} of them its own, the rest of `, ...others(seen.prompt.others), ". ");
  }
  return said;
}

function shared({ steps, share_ms: share }) {
  if (!steps.length) return [];
  if (steps.every(({ tokens, of }) => tokens === of)) return ["It had its steps to itself."];
  return ["It shared its steps: by positions its own part of them is ", num(duration(share), "estimated"), "."];
}

const hint = () => document.createTextNode("Drag, or press T at a mark, to select a time; click a lane or a step.");

function lanesShown(app, time) {
  const { request } = app.selection.current;
  const now = latest(app.store);
  const inside = app.store.requests.filter((r) => begin(r) <= time[1] && endOfLife(r, now) >= time[0]);
  const shown = inside.slice(-MOST_LANES);
  const chosen = inside.find((r) => r.id === request);
  if (chosen && !shown.includes(chosen)) shown.splice(0, 1, chosen);
  const steps = stepsByRequest(app.store.steps, time);
  const lanes = shown.map((r) => ({
    id: r.id,
    name: shortName(r.id),
    paint: requestPaint(r.id),
    selected: r.id === request,
    state: r.state,
    begin: begin(r),
    end: endOfLife(r, now),
    ttft_ms: r.first_token ? 1000 * (r.first_token - begin(r)) : null,
    stages: stages(r, now),
    stretches: stretches(r, now),
    steps: steps.get(r.id) ?? [],
    share_ms: (steps.get(r.id) ?? []).reduce((sum, s) => sum + (1000 * (s.to - s.from) * s.tokens) / s.of, 0),
    before_first: beforeFirst(r, app.store.steps),
    checks: r.checks ?? [],
    prompt_tokens: r.prompt_tokens,
    cached_tokens: r.cached_tokens,
    output_tokens: r.output_tokens,
  }));
  return [lanes, inside.length - shown.length];
}

/** Who had the engine before the first token of a request: while it was in the queue, and beside its prompt. */
function beforeFirst(request, steps) {
  const named = ({ others, ...rest }) => ({ ...rest, others: others.map((id) => ({ name: shortName(id), paint: requestPaint(id) })) });
  const { queued, started, first_token: first, id } = request;
  const none = { own: 0, of: 0, steps: 0, others: [] };
  return {
    queue: named(queued && started ? company(steps, id, queued, started) : none),
    prompt: named(started && first ? company(steps, id, started, first) : none),
  };
}

function draw(plot, app, view, width) {
  const { paints } = app;
  const right = width < 520 ? 58 : 86;
  const x = linear([view.from, view.to], [width < 520 ? 44 : 60, width - right]);
  const height = view.lanes.length * LANE + 30;
  const bottom = view.lanes.length * LANE + 4;
  const inside = (at) => x.invert(Math.max(x.range[0], Math.min(x.range[1], at)));
  plot.onBrush = (from, to) => app.selection.set({ time: [inside(from), inside(to)] });
  const marks = view.lanes.flatMap((lane, i) => laneMarks(app, lane, i, x, width));
  const lit = app.selection.hovered.step ?? app.selection.current.step;
  plot.render(width, height, marks, (ctx) => {
    const relative = linear([0, view.to - view.from], x.range);
    xAxis(ctx, relative, { y: bottom, top: 0, format: secondsFormat(view.to - view.from), paints, most: width < 520 ? 3 : 7 });
    view.lanes.forEach((lane, i) => paintLane(ctx, app, lane, i, x, width));
    if (lit !== null) paintStep(ctx, app, lit, x, bottom);
  });
}

function laneMarks(app, lane, i, x, width) {
  const y = i * LANE + 4;
  const marks = [{
    key: `lane ${lane.id}`, x: 0, y: i * LANE, w: width, h: LANE, over: { request: lane.id },
    choose: () => app.selection.toggle({ request: lane.id }), tip: () => laneTip(lane),
  }];
  for (const part of lane.stretches) {
    marks.push({
      ...placed(x, part, y), key: `${lane.id} ${part.stage}`, over: { request: lane.id },
      choose: () => app.selection.toggle({ request: lane.id }),
      tip: () => ({ title: `${lane.name}: ${WORDS[part.stage]}`, paint: stagePaint(part.stage), rows: [["length", duration(1000 * (part.to - part.from)), "measured"]] }),
    });
  }
  for (const part of lane.steps) {
    marks.push({
      ...placed(x, part, y), key: `${lane.id} ${part.step}`, over: { request: lane.id, step: part.step },
      choose: () => app.selection.set({ request: lane.id, step: part.step }),
      tip: () => stepTip(app, lane, part),
    });
  }
  return marks.filter((mark) => mark.x + mark.w >= x.range[0] || mark.key.startsWith("lane"));
}

function placed(x, { from, to }, y) {
  const left = Math.max(x(from), x.range[0]);
  return { x: left, y, w: Math.max(Math.min(x(to), x.range[1]) - left, 0.5), h: BAR };
}

function laneTip(lane) {
  return {
    title: `${lane.name} (${lane.id})`,
    paint: lane.paint,
    rows: [
      ["state", lane.state],
      ["total", duration(lane.stages.total), "measured"],
      ...STAGES.filter((s) => lane.stages[s] > 0).map((s) => [WORDS[s], duration(lane.stages[s]), "measured"]),
      ["its share of its steps", duration(lane.share_ms), "estimated"],
    ],
    note: lane.checks.length ? `Does not add up: ${lane.checks.join("; ")}.` : "",
  };
}

function stepTip(app, lane, part) {
  const step = app.store.step(part.step);
  const company = new Set(step?.batch.map((item) => shortName(item.request)) ?? []);
  const ms = 1000 * (part.to - part.from);
  return {
    title: `${lane.name} in step ${part.step}`,
    paint: stagePaint(part.kind === "prefill" ? "prefill" : "decode"),
    rows: [
      [KINDS[part.kind] ?? part.kind, `${part.tokens} of ${part.of} positions`],
      ["whole step", duration(ms), "measured"],
      ["its share by positions", duration((ms * part.tokens) / part.of), "estimated"],
    ],
    note: `In this step: ${[...company].join(", ")}`,
  };
}

function paintLane(ctx, app, lane, i, x, width) {
  const { paints } = app;
  const y = i * LANE + 4;
  const { request, step } = app.selection.hovered;
  const dim = step === null ? request !== null && request !== lane.id : !sharedBy(app, step, lane);
  ctx.globalAlpha = dim ? 0.35 : 1;
  ctx.fillStyle = paints.of(lane.paint);
  ctx.fillRect(0, y, 4, BAR);
  write(ctx, lane.name, 9, y + BAR / 2 + 0.5, { paint: lane.selected ? paints.ink : paints.quiet, weight: lane.selected ? 700 : 400, max: x.range[0] - 12 });
  const whole = placed(x, { from: lane.begin, to: lane.end }, y);
  hatch(ctx, whole.x, y, whole.w, BAR, paints.of("stage-unaccounted"));
  for (const part of lane.stretches) {
    const place = placed(x, part, y);
    ctx.fillStyle = paints.of(stagePaint(part.stage));
    ctx.fillRect(place.x, y, place.w, BAR);
  }
  paintSteps(ctx, paints, lane, x, y);
  write(ctx, duration(lane.stages.total), width - 2, y + BAR / 2 + 0.5, { paint: paints.ink, align: "right" });
  ctx.globalAlpha = 1;
}

/** Whether a lane was in a step; of one that is not known nothing is said. */
function sharedBy(app, id, lane) {
  const step = app.store.step(id);
  return step === null || step.batch.some(({ request }) => request === lane.id);
}

function paintSteps(ctx, paints, lane, x, y) {
  for (const part of lane.steps) {
    const place = placed(x, part, y);
    if (place.x > x.range[1] || place.x + place.w < x.range[0]) continue;
    ctx.fillStyle = paints.of(stagePaint(part.kind === "prefill" ? "prefill" : "decode"));
    ctx.fillRect(place.x, y, place.w > 3 ? place.w - 0.75 : place.w, BAR);
  }
}

function paintStep(ctx, app, id, x, bottom) {
  const step = app.store.step(id);
  if (!step) return;
  const left = x(step.start);
  const right = x(endOf(step));
  if (right < x.range[0] || left > x.range[1]) return;
  ctx.fillStyle = app.paints.of("accent");
  ctx.globalAlpha = 0.16;
  ctx.fillRect(left, 0, Math.max(right - left, 2), bottom);
  ctx.globalAlpha = 1;
  line(ctx, left, 0, left, bottom, app.paints.of("accent"));
}
