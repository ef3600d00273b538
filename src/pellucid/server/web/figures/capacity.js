// Figure 12: latency against load: simulated by the scheduler that serves, real requests as dots.

import { el, say, svg } from "../core/dom.js";
import { digits, duration, num, percent, plural } from "../core/format.js";
import { legend } from "../draw/legend.js";
import { linear, log, niceEnd, roundSteps } from "../draw/scales.js";
import { Picture } from "../draw/vector.js";
import { at, costs, measuredPoints, quantile, throughput } from "../model/load.js";

const SETTLE_MS = 500;
const LONGEST_S = 60; // that the server gives a forecast
const WHAT_GOES_ON = "The scheduler that serves runs on made requests, at several loads and with several seeds, at the lowest priority";
const WAITS = { places: "a place in the batch", "tokens of a step": "room in a step's budget of positions", pages: "pages of memory" };
const MOST_STEPS = 7; // on the axis of delays; more: powers of ten
const WAITING = { prompt: 256, output: 64, shared: 0, replicas: 1 };

export const capacity = {
  name: "capacity",
  number: 12,
  title: "Capacity and cost",
  question: "How many users, at what latency and price?",
  wide: true,

  view(app) {
    const points = measuredPoints(app.store.steps, app.store.requests, app.requestsIn);
    const { mix, load, price } = asked;
    const recorded = app.recording !== null;
    const told = recorded ? null : asked.told;
    const trouble = recorded ? NOT_RECORDED : asked.trouble;
    const pending = recorded || asked.since === null ? null : { seconds: Math.round((performance.now() - asked.since) / 1000), busy: asked.busy || null };
    if (!points.length && !told && !pending) return { ...app.nothing, why: `${app.nothing.why} ${trouble}`.trim(), points: [], simulated: null };
    const first = points.map((p) => p.ttft_ms);
    const between = points.map((p) => p.itl_ms).filter((ms) => ms !== null);
    return {
      unit: { load: "requests a second", latency: "ms" },
      points,
      ttft_ms: { median: quantile(first, 0.5), p95: quantile(first, 0.95) },
      itl_ms: { median: quantile(between, 0.5), p95: quantile(between, 0.95) },
      rate: quantile(points.map((p) => p.rate), 0.5),
      tokens_per_s: throughput(app.store.steps),
      mix,
      simulated: told,
      at_load: told ? at(told, load) : null,
      at_twice: told && 2 * load <= 1 ? at(told, 2 * load) : null,
      cost: told ? costs(at(told, load), told.mix, price) : null,
      pending,
      missing: trouble || null,
    };
  },

  sentence(view) {
    const said = [];
    const { simulated, at_load: here } = view;
    if (simulated) {
      said.push(`${plural(simulated.mix.replicas, "engine")} like this one, prompts of ${digits(simulated.mix.prompt)} tokens and answers of ${digits(simulated.mix.output)} on average: at the most `,
        num(`${digits(simulated.saturation.requests_per_second)} requests a second`, "simulated"), ", or ", num(`${digits(simulated.saturation.tokens_per_second)} answer tokens`, "simulated"), ". At ",
        `${digits(here.requests_per_second)} a second, the load chosen, one user in twenty waits longer than `, num(duration(here.ttft_p95), "simulated"), " for the first token and ", num(duration(here.itl_p95), "simulated"), " between two; ", ...twice(view.at_twice), ". ");
    }
    if (view.points.length) {
      said.push(`${plural(view.points.length, "finished request")} came at about `, num(`${digits(view.rate, 2)} a second`), ": first token after ", num(duration(view.ttft_ms.median)), " in the median, ", num(duration(view.itl_ms.median)), " between tokens. ");
    }
    if (view.pending) said.push(...inProgress(view.pending, simulated !== null));
    if (view.missing) said.push(view.missing);
    return said;
  },

  table(view) {
    const simulated = (view.simulated?.curve ?? []).map((p) => [`simulated${p.keeps_up ? "" : ", not kept up with"}`, p.requests_per_second, ms(p.ttft.p50), ms(p.ttft.p95), ms(p.itl.p50), ms(p.itl.p95)]);
    const measured = view.points.map((p) => [p.name, p.rate, p.ttft_ms, null, p.itl_ms, null]);
    return {
      caption: "Latency against load, simulated ◇ and of finished requests ●",
      columns: [{ name: "what", number: false }, { name: "load", unit: "requests/s" }, { name: "first token", unit: "ms" }, { name: "its p95", unit: "ms" }, { name: "between tokens", unit: "ms" }, { name: "its p95", unit: "ms" }],
      rows: [...simulated, ...measured],
    };
  },

  onVisible(visible, app) {
    if (visible && !asked.told && asked.since === null) ask(app, 0);
  },

  mount(body, app, redraw) {
    asked.redraw = redraw;
    const left = new Picture(app, "Time to the first token against load");
    const right = new Picture(app, "Time between tokens against load");
    const why = el("p", { class: "detail" });
    const progress = el("progress", { max: String(LONGEST_S), hidden: true, aria: { label: "The simulation, of the time that it may take" } });
    const cost = el("output", {});
    const price = el("input", { type: "number", min: "0", step: "0.01", value: String(asked.price), inputmode: "decimal", on: { input: () => ((asked.price = Number(price.value)), redraw()) } });
    body.append(progress, el("div", { class: "columns" }, left.element, right.element), why);
    const changed = () => (redraw(), ask(app, SETTLE_MS));
    return {
      controls: [
        slider("load", [5, 120], asked.load * 100, (v) => `${v} % of the most`, (v) => ((asked.load = v / 100), redraw())),
        slider("prompt", [4, 12], Math.log2(asked.mix.prompt), (v) => `${digits(2 ** v)} tokens`, (v) => ((asked.mix.prompt = 2 ** v), changed())),
        slider("answer", [2, 10], Math.log2(asked.mix.output), (v) => `${digits(2 ** v)} tokens`, (v) => ((asked.mix.output = 2 ** v), changed())),
        slider("same beginning", [0, 9], asked.mix.shared * 10, (v) => `${v * 10} % of each prompt`, (v) => ((asked.mix.shared = v / 10), changed())),
        slider("replicas", [1, 16], asked.mix.replicas, digits, (v) => ((asked.mix.replicas = v), changed())),
        el("label", {}, "price of a replica per hour", price), cost,
      ],
      draw(view, width) {
        const each = width > 700 ? (width - 15) / 2 : width;
        latency(left, app, view, "ttft", "first token after", each);
        latency(right, app, view, "itl", "between tokens", each);
        progress.hidden = view.pending === null;
        progress.value = Math.min(LONGEST_S, view.pending?.seconds ?? 0);
        say(why, reasons(view.simulated));
        say(cost, priced(view.cost));
      },
      legend: legend(["accent", "◇ half of users wait less", "line"], ["accent", "◇ 19 of 20 do; shaded: where the true value lies with 95 %", "dash"], ["quiet", "a finished request ●", "dot"]),
    };
  },
};

const NOT_RECORDED = "A recording holds no forecast: it is made by the engine that serves.";

/** What is asked of the simulator, and what it told; `since` is when it was asked, null when nothing is. The page has one such figure. */
const asked = { mix: { ...WAITING }, load: 0.7, price: 0.1, told: null, trouble: "", busy: "", since: null, timer: 0, stop: null, redraw: () => {} };

/** Asks after a moment; what was asked before is not waited for any more. */
function ask(app, after) {
  clearTimeout(asked.timer);
  if (app.recording !== null) return;
  asked.since ??= performance.now();
  asked.timer = setTimeout(() => simulate(app), after);
}

async function simulate(app) {
  asked.stop?.abort();
  const stop = (asked.stop = new AbortController());
  asked.since = performance.now();
  const ticking = setInterval(() => asked.redraw(), 1000);
  const waits = (words) => ((asked.busy = words), asked.redraw());
  asked.redraw();
  try {
    const found = await app.api.json(`/live/capacity?${new URLSearchParams(asked.mix)}`, { signal: stop.signal, waits });
    [asked.told, asked.trouble] = found.missing ? [null, `Not simulated: ${found.missing}.`] : [found, ""];
  } catch (error) {
    if (!stop.signal.aborted) asked.trouble = `Not simulated: ${error.message}.`;
  }
  clearInterval(ticking);
  if (asked.stop === stop) [asked.since, asked.stop, asked.busy] = [null, null, ""];
  asked.redraw();
}

/** What is going on while there is no forecast yet, or none of the sliders' mix. */
function inProgress({ seconds, busy }, before) {
  if (busy) return [`The server is busy (${busy}): the forecast is asked for again.`];
  return [`${before ? "Being simulated anew for these sliders" : "The forecast is being simulated"}: ${seconds} s so far, at most ${LONGEST_S} s. ${WHAT_GOES_ON}. `];
}

function slider(words, [low, high], value, shown, change) {
  const out = el("output", {}, shown(value));
  const input = el("input", { type: "range", min: String(low), max: String(high), step: "1", value: String(value), on: { input: () => {
    say(out, shown(Number(input.value)));
    change(Number(input.value));
  } } });
  return el("label", {}, words, input, out);
}

/** What becomes of it at twice the load. */
function twice(there) {
  if (there === null) return ["twice that load is more than it can do: the queue would grow for as long as it lasted"];
  return [`at twice that load `, num(duration(there.ttft_p95), "simulated"), " and ", num(duration(there.itl_p95), "simulated")];
}

const ms = (band) => (band === null ? null : 1000 * band.mean);

function reasons(told) {
  if (!told) return "";
  const parts = Object.entries(told.saturation.parts).sort((a, b) => b[1] - a[1]).filter(([, share]) => share > 0.03);
  const waits = Object.entries(told.saturation.waiting_for).sort((a, b) => b[1] - a[1])[0];
  const known = told.step_times === "calibrated" ? "step times calibrated on this machine" : "step times by this machine's peaks at an assumed efficiency; pellucid plan --calibrate measures them";
  return `At the most, a step's time goes to ${parts.map(([name, share]) => `${name} ${percent(share)}`).join(", ")}${waits ? `; who waits, waits for ${WAITS[waits[0]] ?? waits[0]}` : ""}. ${known[0].toUpperCase()}${known.slice(1)}.`;
}

function priced(cost) {
  if (!cost) return "";
  return `${digits(cost.prompt)} a million prompt tokens ◇, ${digits(cost.answer)} a million answer tokens ◇, at the load chosen`;
}

function latency(picture, app, view, field, words, width) {
  const height = 190;
  const points = view.points.filter((p) => p[`${field}_ms`] !== null && p.rate !== null);
  const curve = (view.simulated?.curve ?? []).filter((p) => p[field].p95 !== null);
  const most = Math.max(0.1, ...points.map((p) => p.rate), ...curve.map((p) => p.requests_per_second));
  const steps = roundSteps([...points.map((p) => p[`${field}_ms`]), ...curve.flatMap((p) => [ms(p[field].p50), ms(p[field].p95)])]);
  const x = linear([0, niceEnd(most)], [44, width - 8]);
  const y = log([steps[0], steps.at(-1)], [height - 30, 16]);
  const chosen = app.selection.hovered.request ?? app.selection.current.request;
  picture.render(width, height, [points.map((p) => [p.id, p.rate, p[`${field}_ms`]]), curve, view.at_load, chosen], () => [
    grid(x, y, steps.length > MOST_STEPS ? steps.filter((step) => /^0*\.?0*1/.test(String(step))) : steps, width, height, words),
    ...curve.length ? forecast(picture, view, curve, field, x, y, width) : [],
    ...points.map((p) => dot(picture, app, p, x(p.rate), y(p[`${field}_ms`]), chosen)),
  ]);
}

function grid(x, y, steps, width, height, words) {
  return svg("g", { aria: { hidden: "true" } },
    steps.map((t) => [svg("line", { class: "grid", x1: 44, x2: width - 8, y1: y(t), y2: y(t) }), svg("text", { x: 38, y: y(t) + 4, "text-anchor": "end" }, duration(t).replace(/ (?=\S+$)/, "\u2009"))]),
    x.ticks(5).map((t) => svg("text", { x: x(t), y: height - 16, "text-anchor": "middle" }, digits(t))),
    svg("text", { x: 0, y: 8 }, words),
    svg("text", { x: width - 8, y: height - 2, "text-anchor": "end" }, "requests a second"));
}

function forecast(picture, view, curve, field, x, y, width) {
  const [low, high] = y.range;
  const inside = (v) => Math.min(2 * low, Math.max(-low, y(1000 * v))); // what leaves the axis is cut off, not laid on its end
  const place = (p, share, side) => `${x(p.requests_per_second)},${inside(p[field][share][side])}`;
  const line = (share, dash) => svg("polyline", { class: "stroke", data: { paint: "accent" }, fill: "none", "stroke-width": 1.5, "stroke-dasharray": dash, points: curve.map((p) => place(p, share, "mean")).join(" ") });
  const band = (share) => svg("polygon", { class: "paint", data: { paint: "accent" }, opacity: 0.15, points: [...curve.map((p) => place(p, share, "high")), ...curve.toReversed().map((p) => place(p, share, "low"))].join(" ") });
  const most = x(view.simulated.saturation.requests_per_second);
  const here = x(view.at_load.requests_per_second);
  const cut = `inside-${field}`;
  return [
    svg("clipPath", { id: cut }, svg("rect", { x: x.range[0], y: high, width: x.range[1] - x.range[0], height: low - high + 1 })),
    svg("g", { "clip-path": `url(#${cut})`, aria: { hidden: "true" } }, band("p95"), band("p50"), line("p50", null), line("p95", "5 3")),
    svg("line", { class: "stroke", data: { paint: "bad" }, x1: most, x2: most, y1: 16, y2: y.range[0] }),
    svg("text", { x: most + 4, y: low - 6 }, "the most ◇"),
    svg("line", { class: "stroke", data: { paint: "ink" }, "stroke-dasharray": "2 3", x1: here, x2: here, y1: 16, y2: y.range[0] }),
    ...curve.map((p, i) => picture.mark(svg("circle", { class: "paint", data: { paint: "accent" }, cx: x(p.requests_per_second), cy: inside(p[field].p95.mean), r: 3.5 }), {
      key: `load ${i}`,
      tip: () => ({
        title: `${digits(p.requests_per_second)} requests a second${p.keeps_up ? "" : ", not kept up with"}`, paint: "accent",
        rows: [["median", duration(ms(p[field].p50)), "simulated"], ["19 of 20 within", duration(ms(p[field].p95)), "simulated"], ["95 % sure", `${duration(1000 * p[field].p95.low)} to ${duration(1000 * p[field].p95.high)}`, "simulated"], ["tokens a second", digits(p.tokens_per_second), "simulated"], ["busy", percent(p.busy), "simulated"]],
      }),
    })),
  ];
}

function dot(picture, app, p, cx, cy, chosen) {
  return picture.mark(
    svg("circle", { class: `paint${chosen !== null && chosen !== p.id ? " dim" : ""}`, data: { paint: p.paint }, cx, cy, r: 4 }),
    {
      key: p.id, over: { request: p.id }, choose: () => app.selection.toggle({ request: p.id }),
      tip: () => ({ title: p.name, paint: p.paint, rows: [["load", `${digits(p.rate)} requests a second`, "measured"], ["sequences in a step", digits(p.load), "measured"], ["first token", duration(p.ttft_ms), "measured"], ["between tokens", duration(p.itl_ms), "measured"]] }),
    },
  );
}
