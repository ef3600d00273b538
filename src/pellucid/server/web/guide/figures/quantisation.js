// A block of weights on a grid of few levels: what rounding loses, and what an outlier does to the others.

import { el, replace, svg } from "../../core/dom.js";
import { label, picture, random, scale } from "../draw.js";
import { frame, slider } from "../frame.js";

const BLOCK = 32;

export function quantisation(host) {
  const figure = frame(host, "What is lost when a weight has few bits?", "simulated");
  const outlier = el("input", { type: "checkbox", on: { change: () => draw() } });
  const draw = () => {
    const weights = block(outlier.checked);
    const done = quantised(weights, bits.value);
    replace(figure.picture, chart(weights, done, figure.room()));
    const exact = Math.sqrt(weights.reduce((sum, w) => sum + w * w, 0));
    const lost = Math.sqrt(weights.reduce((sum, w, i) => sum + (w - done.values[i]) ** 2, 0));
    figure.say(`${2 ** bits.value} levels, ${done.step.toFixed(3)} apart. The error is ${(100 * lost / exact).toFixed(1)} % of the weights' size; stored are ${BLOCK} numbers of ${bits.value} bits and one scale of 16: ${(bits.value + 16 / BLOCK).toFixed(1)} bits a weight.`);
  };
  const bits = slider("Bits", { min: 2, max: 8, value: 4 }, () => draw());
  figure.controls.append(bits.element, el("label", {}, outlier, "One weight is four times as large"));
  draw();
  figure.onRoom(draw);
}

/** The same bell curve each time; one of them large if asked. */
export function block(large) {
  const draw = random(8);
  const weights = Array.from({ length: BLOCK }, () => Math.sqrt(-2 * Math.log(draw() || 1e-9)) * Math.cos(2 * Math.PI * draw()));
  if (large) weights[20] = 4 * Math.max(...weights.map(Math.abs));
  return weights;
}

/** Nearest of 2^bits levels, symmetric about 0, the largest weight on the last one. */
export function quantised(weights, bits) {
  const step = Math.max(...weights.map(Math.abs)) / (2 ** (bits - 1) - 1 || 1);
  const levels = weights.map((w) => Math.max(-(2 ** (bits - 1)), Math.min(2 ** (bits - 1) - 1, Math.round(w / step))));
  return { step, levels, values: levels.map((level) => level * step) };
}

function chart(weights, { values, step }, room) {
  const most = 1.08 * Math.max(...weights.map(Math.abs));
  const across = scale(0, BLOCK - 1, 30, room - 20), down = scale(-most, most, 190, 10);
  const lines = [];
  for (let level = -Math.floor(most / step); level <= most / step && lines.length < 130; level++) lines.push(svg("line", { x1: 20, x2: room - 10, y1: down(level * step), y2: down(level * step), class: "grid" }));
  return picture(room, 212, "Thirty-two weights, and the levels that they are rounded to", lines,
    weights.map((w, i) => [svg("line", { x1: across(i), x2: across(i), y1: down(w), y2: down(values[i]), class: "lost" }), svg("circle", { cx: across(i), cy: down(w), r: 3.5, class: "ring" }), svg("circle", { cx: across(i), cy: down(values[i]), r: 3.5, class: "dot" })]),
    label(20, 208, room > 420 ? "rings: the weights; dots: what is stored; lines between: what is lost" : "ring: weight; dot: stored; line: lost"));
}
