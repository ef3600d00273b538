// Figure 12: latency against load, as it was measured; the simulator that would go beyond is not there.

import { el, say, svg } from "../core/dom.js";
import { digits, duration, num, plural } from "../core/format.js";
import { legend } from "../draw/legend.js";
import { linear, niceEnd } from "../draw/scales.js";
import { Picture } from "../draw/vector.js";
import { measuredPoints, quantile, throughput } from "../model/load.js";

const MISSING = "A forecast for other loads needs the simulator, which is not built: the scheduler can be driven by it, but step times measured here do not feed it yet.";

export const capacity = {
  name: "capacity",
  number: 12,
  title: "Capacity and cost",
  question: "How many users, at what latency and price?",

  view(app) {
    const points = measuredPoints(app.store.steps, app.store.requests);
    if (!points.length) return { ...app.nothing, why: `${app.nothing.why} ${MISSING}` };
    const first = points.map((p) => p.ttft_ms);
    const between = points.map((p) => p.itl_ms).filter((ms) => ms !== null);
    return {
      unit: { load: "sequences in a step", latency: "ms" },
      points,
      ttft_ms: { median: quantile(first, 0.5), p95: quantile(first, 0.95) },
      itl_ms: { median: quantile(between, 0.5), p95: quantile(between, 0.95) },
      tokens_per_s: throughput(app.store.steps),
      simulated: null,
      missing: MISSING,
    };
  },

  sentence(view) {
    return [
      `Over ${plural(view.points.length, "finished request")}: first token after `, num(duration(view.ttft_ms.median)), " in the median, ", num(duration(view.ttft_ms.p95)),
      " at the 95th percentile; ", num(duration(view.itl_ms.median)), " between tokens. ", view.missing,
    ];
  },

  table(view) {
    return {
      caption: "Finished requests: load and latency",
      columns: [{ name: "request", number: false }, { name: "load", unit: "sequences", mark: "measured" }, { name: "first token", unit: "ms", mark: "measured" }, { name: "between tokens", unit: "ms", mark: "measured" }],
      rows: view.points.map((p) => [p.name, p.load, p.ttft_ms, p.itl_ms]),
    };
  },

  mount(body, app, redraw) {
    const left = new Picture(app, "Time to the first token against load");
    const right = new Picture(app, "Time between tokens against load");
    const price = el("input", { type: "number", min: "0", step: "0.01", value: "0.10", inputmode: "decimal", on: { input: redraw } });
    const cost = el("output", {});
    const pair = el("div", { class: "columns" }, left.element, right.element);
    body.append(pair);
    return {
      controls: [el("label", {}, "price of this machine per hour", price), cost],
      draw(view, width) {
        const each = width > 700 ? (width - 15) / 2 : width;
        dots(left, app, view, "ttft_ms", "first token after (ms)", each);
        dots(right, app, view, "itl_ms", "between tokens (ms)", each);
        say(cost, priced(Number(price.value), view.tokens_per_s));
      },
      legend: legend(["quiet", "a finished request, measured", "dot"]).concat(document.createTextNode("Simulated quantiles: not there yet.")),
    };
  },
};

function priced(perHour, rate) {
  if (!(perHour > 0) || rate === null) return "";
  const each = (1e6 * perHour) / (rate * 3600);
  return `${digits(each)} per million answer tokens ≈, at the ${digits(rate)} tokens a second ● of the steps shown, always busy`;
}

function dots(picture, app, view, field, words, width) {
  const height = 170;
  const points = view.points.filter((p) => p[field] !== null);
  const x = linear([0, niceEnd(Math.max(1, ...points.map((p) => p.load)))], [44, width - 8]);
  const y = linear([0, niceEnd(Math.max(...points.map((p) => p[field]), 0.1))], [height - 30, 16]);
  const chosen = app.selection.hovered.request ?? app.selection.current.request;
  picture.render(width, height, [points.map((p) => [p.id, p.load, p[field]]), chosen], () => [
    svg("g", { aria: { hidden: "true" } },
      y.ticks(4).map((t) => [svg("line", { class: "grid", x1: 44, x2: width - 8, y1: y(t), y2: y(t) }), svg("text", { x: 38, y: y(t) + 4, "text-anchor": "end" }, digits(t))]),
      x.ticks(5).map((t) => svg("text", { x: x(t), y: height - 16, "text-anchor": "middle" }, digits(t))),
      svg("text", { x: 0, y: 8 }, words),
      svg("text", { x: width - 8, y: height - 2, "text-anchor": "end" }, "sequences in a step, mean")),
    ...points.map((p) => picture.mark(
      svg("circle", { class: `paint${chosen !== null && chosen !== p.id ? " dim" : ""}`, data: { paint: p.paint }, cx: x(p.load), cy: y(p[field]), r: 4 }),
      {
        key: p.id, over: { request: p.id }, choose: () => app.selection.toggle({ request: p.id }),
        tip: () => ({ title: p.name, paint: p.paint, rows: [["load", digits(p.load), "measured"], ["first token", duration(p.ttft_ms), "measured"], ["between tokens", duration(p.itl_ms), "measured"]] }),
      },
    )),
  ]);
}
