// Serving: how long requests wait as the load rises, simulated with batches that go on without a pause.

import { replace, svg } from "../../core/dom.js";
import { label, picture, random, scale } from "../draw.js";
import { frame, slider } from "../frame.js";

const REQUESTS = 600;
const LOADS = Array.from({ length: 20 }, (_, i) => 0.05 + i * 0.05);

export function serving(host) {
  const figure = frame(host, "How many users can it serve before they wait?", "simulated");
  const draw = () => {
    const curve = LOADS.map((load) => ({ load, ...waits(load, slots.value) }));
    const now = waits(load.value, slots.value);
    replace(figure.picture, chart(curve, load.value, now));
    figure.say(`At ${(100 * load.value).toFixed(0)} % of what it can do, half of the requests wait less than ${now.half.toFixed(1)} steps for a place, and one in twenty more than ${now.late.toFixed(1)}.`);
  };
  const load = slider("Load", { min: 0.05, max: 1, step: 0.05, value: 0.6, shown: (v) => `${(100 * v).toFixed(0)} %` }, draw);
  const slots = slider("Places in the batch", { min: 1, max: 32, value: 8 }, draw);
  figure.controls.append(load.element, slots.element);
  draw();
}

/**
 * Steps that a request waits for one of `slots` places, answers having 10 to 90 tokens and one token of each
 * running answer coming every step: the middle request, and the one that 95 % wait less than.
 */
export function waits(load, slots, seed = 3) {
  const draw = random(seed);
  const between = 50 / (slots * load); // steps between two arrivals, an answer having 50 tokens on average
  const free = Array.from({ length: slots }, () => 0);
  const found = [];
  let now = 0;
  for (let i = 0; i < REQUESTS; i++) {
    now += -Math.log(1 - draw()) * between;
    const place = free.indexOf(Math.min(...free));
    const start = Math.max(now, free[place]);
    free[place] = start + 10 + 80 * draw();
    found.push(start - now);
  }
  found.sort((a, b) => a - b);
  return { half: found[REQUESTS / 2], late: found[Math.floor(0.95 * REQUESTS)] };
}

function chart(curve, load, now) {
  const most = Math.max(10, ...curve.map((point) => point.late));
  const across = scale(0, 1, 60, 600), down = scale(0, most, 190, 14);
  const line = (name) => curve.map((point) => `${across(point.load).toFixed(1)},${down(point[name]).toFixed(1)}`).join(" ");
  return picture(620, 226, "Waiting against load: the middle request, and the one in twenty that waits longest",
    [0, 0.25, 0.5, 0.75, 1].map((x) => [svg("line", { x1: across(x), x2: across(x), y1: 14, y2: 190, class: "grid" }), label(across(x), 206, `${100 * x} %`, { "text-anchor": "middle" })]),
    svg("polyline", { points: line("late"), class: "curve second" }), svg("polyline", { points: line("half"), class: "curve" }),
    svg("circle", { cx: across(load), cy: down(now.late), r: 5, class: "dot second" }), svg("circle", { cx: across(load), cy: down(now.half), r: 5, class: "dot" }),
    label(66, 24, `${most.toFixed(0)} steps`), label(330, 222, "load, of what the server can do", { "text-anchor": "middle" }));
}
