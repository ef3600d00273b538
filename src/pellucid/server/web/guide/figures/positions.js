// Rotary positions: each pair of features is a hand of a clock; only the difference of two positions counts.

import { el, replace, svg } from "../../core/dom.js";
import { numbers } from "../ask.js";
import { label, picture, scale } from "../draw.js";
import { frame, slider } from "../frame.js";

const HANDS = [6, 3]; // as many clocks as have room, on a desk and on a phone

export function positions(host) {
  const figure = frame(host, "How does a vector know where its token stands?", "computed");
  const base = numbers.rope_base ?? 10000;
  const pairs = (numbers.rope_dims ?? numbers.head_size) / 2;
  const draw = () => {
    const [q, k, w] = [query.value, key.value, figure.room()];
    const hands = HANDS[w > 480 ? 0 : 1];
    const shown = Array.from({ length: hands }, (_, i) => Math.round((i * (pairs - 1)) / (hands - 1)));
    const clocks = shown.map((pair, i) => clock(((i + 0.5) * w) / hands, base ** (-pair / pairs), q, k, pair));
    replace(figure.picture,
      picture(w, 164, "Some pairs of features as clocks, with the hand of the query and the hand of the key", clocks,
        svg("line", { x1: 18, x2: 40, y1: 158, y2: 158, class: "hand query" }), label(46, 162, "query", { class: "first" }),
        svg("line", { x1: 96, x2: 118, y1: 158, y2: 158, class: "hand key" }), label(124, 162, "key", { class: "second" })),
      curve(base, pairs, q - k, w));
    figure.say(`Distance ${q - k}: the product of query and key is ${agreement(base, pairs, q - k).toFixed(2)} of what it is at distance 0. Move both sliders by the same amount: the hands turn, the product stays.`);
  };
  const query = slider("Query at", { min: 0, max: 100, value: 24 }, draw);
  const key = slider("Key at", { min: 0, max: 100, value: 20 }, draw);
  figure.controls.append(query.element, key.element);
  if (numbers.rope_base === null) figure.controls.append(el("p", { class: "quiet" }, "The model that runs has no rotary positions; the figure shows them with a base of 10,000."));
  draw();
  figure.onRoom(draw);
}

/** The mean of cos(angle difference) over all pairs: q k for a query and a key of ones. */
export function agreement(base, pairs, distance) {
  let sum = 0;
  for (let i = 0; i < pairs; i++) sum += Math.cos(distance * base ** (-i / pairs));
  return sum / pairs;
}

function clock(x, frequency, q, k, pair) {
  const hand = (at, kind) => svg("line", { x1: x, y1: 60, x2: x + 36 * Math.cos(at * frequency), y2: 60 - 36 * Math.sin(at * frequency), class: `hand ${kind}` });
  return [svg("circle", { cx: x, cy: 60, r: 42, class: "rule" }), hand(q, "query"), hand(k, "key"), label(x, 122, `pair ${pair}`, { "text-anchor": "middle" }), label(x, 138, `${frequency.toPrecision(2)} a step`, { "text-anchor": "middle" })];
}

function curve(base, pairs, distance, w) {
  const across = scale(0, 100, 40, w - 10), down = scale(-0.4, 1, 130, 12);
  const points = Array.from({ length: 101 }, (_, d) => `${across(d).toFixed(1)},${down(agreement(base, pairs, d)).toFixed(1)}`).join(" ");
  const at = Math.abs(distance);
  return picture(w, 172, "The product of query and key against their distance",
    svg("line", { x1: 40, x2: w - 10, y1: down(0), y2: down(0), class: "rule" }),
    svg("polyline", { points, class: "curve" }), svg("circle", { cx: across(at), cy: down(agreement(base, pairs, at)), r: 5, class: "dot" }),
    [0, 0.5, 1].map((y) => [y ? svg("line", { x1: 40, x2: w - 10, y1: down(y), y2: down(y), class: "grid" }) : null, label(34, down(y) + 4, String(y), { "text-anchor": "end" })]),
    [0, 25, 50, 75, 100].map((x) => label(across(x), 148, String(x), { "text-anchor": "middle" })),
    label((30 + w) / 2, 166, "distance between query and key", { "text-anchor": "middle" }), label(w - 10, 10, "their product, where 1 is that at distance 0", { "text-anchor": "end" }));
}
