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
    replace(figure.picture, chart(curve, load.value, now, figure.room()));
    figure.say(`At ${(100 * load.value).toFixed(0)} % of what it can do, ${now.half < 0.05 ? "half of the requests do not wait at all" : `half of the requests wait less than ${now.half.toFixed(1)} steps`} for a place, and one in twenty waits more than ${now.late.toFixed(1)} steps.`);
  };
  const load = slider("Load", { min: 0.05, max: 1, step: 0.05, value: 0.6, shown: (v) => `${(100 * v).toFixed(0)} %` }, draw);
  const slots = slider("Places in the batch", { min: 1, max: 32, value: 8 }, draw);
  figure.controls.append(load.element, slots.element);
  draw();
  figure.onRoom(draw);
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

/** Round numbers from 0 to `most`. */
function ticksTo(most) {
  const raw = most / 4, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

function chart(curve, load, now, w) {
  const most = Math.max(10, ...curve.map((point) => point.late));
  const across = scale(0, 1, 60, w - 20), down = scale(0, most, 190, 14);
  const line = (name) => curve.map((point) => `${across(point.load).toFixed(1)},${down(point[name]).toFixed(1)}`).join(" ");
  return picture(w, 226, "Waiting against load: the middle request, and the one in twenty that waits longest",
    (w > 400 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1]).map((x) => [svg("line", { x1: across(x), x2: across(x), y1: 14, y2: 190, class: "grid" }), label(across(x), 206, `${100 * x} %`, { "text-anchor": "middle" })]),
    svg("polyline", { points: line("late"), class: "curve second" }), svg("polyline", { points: line("half"), class: "curve" }),
    svg("circle", { cx: across(load), cy: down(now.late), r: 5, class: "dot second" }), svg("circle", { cx: across(load), cy: down(now.half), r: 5, class: "dot" }),
    ticksTo(most).map((y) => [svg("line", { x1: 60, x2: w - 20, y1: down(y), y2: down(y), class: "grid" }), label(54, down(y) + 4, String(y), { "text-anchor": "end" })]),
    label(4, 10, "steps of waiting"),
    label(across(0.03), 34, "one request in twenty waits longer", { class: "second" }), label(across(0.03), 52, "the middle request", { class: "first" }),
    label((40 + w) / 2, 222, "load, of what the server can do", { "text-anchor": "middle" }));
}
