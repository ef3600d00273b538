// The trips of the weights: one for a whole prompt, one for each token of the answer.

import { el, svg } from "../../core/dom.js";
import { bytes } from "../../core/format.js";
import { numbers } from "../ask.js";
import { bar, label, picture } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";

const PROMPT = 12, ANSWER = 4, PARTS = 6;

export function trips(host) {
  const figure = frame(host, "How often are the weights fetched?", "computed");
  animate(figure, tripsOf(PROMPT, ANSWER, PARTS).map((now) => ({ says: said(now), picture: (w) => drawn(now, w) })), { every: 450 });
}

/** Frame by frame: which of `parts` of the layers meets how many positions, and how many parts were fetched until then. */
export function tripsOf(prompt, answer, parts) {
  const frames = [{ fetched: 0, part: null, rows: prompt, done: 0 }];
  for (let round = 0; round < answer; round++) {
    const rows = round === 0 ? prompt : 1;
    for (let part = 0; part < parts; part++) {
      const whole = part === parts - 1 ? 1 : 0;
      frames.push({ fetched: frames.at(-1).fetched + 1, part, rows, round, done: round === 0 ? whole * prompt : prompt + round - 1 + whole });
    }
  }
  return frames;
}

/** How many tokens of the answer there are: the pass of the prompt gives the first, each later one the next. */
const answered = ({ round, part }) => (part === null ? 0 : round + (part === PARTS - 1 ? 1 : 0));

function said(now) {
  const { part, rows, round } = now;
  if (part === null) return `A prompt of ${PROMPT} tokens. The weights lie in memory, ${bytes(numbers.weight_bytes)}; they must come to where the arithmetic is done, layer after layer.`;
  const what = round === 0 ? `Prefill: these layers are fetched once, and all ${rows} positions of the prompt use them.` : `Decode, token ${round + 1}: the same layers are fetched again, for one position.`;
  if (part < PARTS - 1) return what;
  const each = bytes(numbers.weight_bytes / rows);
  return `${what} Token ${round + 1} of the answer is there, after ${round + 1} ${round === 0 ? "trip" : "trips"}: ${each} were fetched for each position.`;
}

function drawn(now, w) {
  const read = (now.fetched / PARTS) * numbers.weight_bytes;
  const most = numbers.weight_bytes * ANSWER;
  const rounds = { prefill: Math.min(read, numbers.weight_bytes), decode: Math.max(0, read - numbers.weight_bytes) };
  return el("div", {}, board(now, w),
    bar("for the prompt", rounds.prefill / most, bytes(rounds.prefill)), bar("for the answer", rounds.decode / most, bytes(rounds.decode), "second"));
}

function board(now, w) {
  const gap = 4, width = (w - 16 - gap * (PARTS - 1)) / PARTS, cell = Math.min(26, (w - 16) / (PROMPT + ANSWER));
  const first = (i) => Math.round((i * numbers.layers) / PARTS) + 1;
  const lit = now.part === null ? null : 8 + now.part * (width + gap) + width / 2;
  const meets = (i) => now.part !== null && (now.round === 0 ? i < PROMPT : i === PROMPT + now.round - 1);
  const known = PROMPT + answered(now);
  return picture(w, 196, "Layers in memory, and the tokens that meet them", label(8, 14, "the weights in memory, by layers"),
    Array.from({ length: PARTS }, (_, i) => [
      svg("rect", { x: 8 + i * (width + gap), y: 22, width, height: 40, rx: 3, class: i === now.part ? "filled-first" : "slot" }),
      label(8 + i * (width + gap) + width / 2, 47, w > 480 ? `${first(i)} to ${first(i + 1) - 1}` : String(first(i)), { "text-anchor": "middle", class: i === now.part ? "inverse" : null })]),
    lit === null ? null : Array.from({ length: PROMPT + ANSWER }, (_, i) => (meets(i) ? svg("line", { x1: lit, y1: 64, x2: 8 + (i + 0.5) * cell, y2: 122, class: now.round === 0 ? "beam" : "beam second" }) : null)),
    Array.from({ length: PROMPT + ANSWER }, (_, i) => svg("rect", { x: 9 + i * cell, y: 124, width: cell - 3, height: cell - 3, rx: 3, class: meets(i) ? "filled-first" : i < PROMPT ? "token" : i < known ? "token second" : "slot" })),
    label(8, 168, "the prompt"), label(8 + PROMPT * cell, 168, "the answer"),
    label(8, 188, now.part === null ? "nothing fetched yet" : `${now.fetched} of ${PARTS * ANSWER} fetches`));
}
