// Thirty-two weights of the model that runs, put on a grid one by one, and packed.

import { el, svg } from "../../core/dom.js";
import { DEFAULTS } from "../defaults.js";
import { label, picture, scale, visible } from "../draw.js";
import { frame, slider } from "../frame.js";
import { animate } from "../player.js";
import { quantised } from "./quantisation.js";

export function rounding(host) {
  const figure = frame(host, "How does a block of weights become a few bits?", "live");
  let seen = null, player = null;
  const bits = slider("Bits", { min: 2, max: 6, value: 4 }, () => show());
  figure.controls.append(bits.element);
  const show = () => {
    player?.stop();
    const frames = framesOf(seen, bits.value);
    player = animate(figure, frames, { every: 350, first: frames.length - 1 });
  };
  figure.busy(async () => {
    seen = await figure.ask("/guide/look", { prompt: DEFAULTS.prompt });
    show();
  });
}

function framesOf({ row, tokens }, bits) {
  const done = quantised(row, bits);
  const largest = row.reduce((best, w, i) => (Math.abs(w) > Math.abs(row[best]) ? i : best), 0);
  const at = (stage, rounded) => (w) => el("div", {}, chart(row, done, { stage, rounded, largest }, w), codes(done.levels.slice(0, rounded)));
  const before = `These are ${row.length} weights of this model: the first of the row of “${visible(tokens.at(-1).text)}” in its table.`;
  const error = Math.sqrt(row.reduce((sum, w, i) => sum + (w - done.values[i]) ** 2, 0) / row.reduce((sum, w) => sum + w * w, 0));
  return [
    { says: before, picture: at(0, 0) },
    { says: `The one furthest from zero is ${row[largest].toPrecision(3)}. It decides how far the grid must reach.`, picture: at(1, 0) },
    { says: `${2 ** bits} levels, ${done.step.toPrecision(3)} apart: the scale of this block, the only number with many bits that is kept.`, picture: at(2, 0) },
    ...row.map((w, i) => ({ says: `Weight ${i + 1} of ${row.length}: ${w.toPrecision(3)} is nearest to level ${done.levels[i]}, which stands for ${done.values[i].toPrecision(3)}.`, picture: at(2, i + 1) })),
    { says: `Stored: ${row.length} levels of ${bits} bits and a scale of 16, ${(row.length * bits + 16) / 8} bytes instead of ${2 * row.length} in 16 bits. Lost is ${(100 * error).toFixed(1)} % of the block's size.`, picture: at(3, row.length) },
  ];
}

/** The levels so far, as they are stored. */
function codes(levels) {
  return el("p", { class: "codes" }, levels.length ? levels.join(" ") : "nothing is stored yet");
}

function chart(row, { values, step }, { stage, rounded, largest }, room) {
  const most = 1.15 * Math.abs(row[largest]);
  const across = scale(0, row.length - 1, 20, room - 20), down = scale(-most, most, 180, 10);
  const lines = [];
  if (stage >= 2) for (let level = Math.ceil(-most / step); level <= most / step; level++) lines.push(svg("line", { x1: 10, x2: room - 10, y1: down(level * step), y2: down(level * step), class: level ? "grid" : "rule" }));
  return picture(room, 190, "The weights, the grid, and where each was put", lines.length ? lines : svg("line", { x1: 10, x2: room - 10, y1: down(0), y2: down(0), class: "rule" }),
    row.map((w, i) => [
      i < rounded ? [svg("line", { x1: across(i), x2: across(i), y1: down(w), y2: down(values[i]), class: "lost" }), svg("circle", { cx: across(i), cy: down(values[i]), r: 3.5, class: "dot" })] : null,
      svg("circle", { cx: across(i), cy: down(w), r: i === rounded - 1 && stage < 3 ? 6 : 3.5, class: "ring" })]),
    stage === 1 ? label(across(largest) + (largest < row.length / 2 ? 10 : -10), down(row[largest]) + 4, "the largest", { class: "strong", "text-anchor": largest < row.length / 2 ? "start" : "end" }) : null);
}
