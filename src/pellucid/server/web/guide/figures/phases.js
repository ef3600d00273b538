// Prefill and decode: a short and a long prompt, each token's wait by this browser's clock.

import { el, replace, svg } from "../../core/dom.js";
import { completion, streamed } from "../ask.js";
import { DEFAULTS } from "../defaults.js";
import { label, picture, scale } from "../draw.js";
import { button, frame } from "../frame.js";

export function phases(host) {
  const figure = frame(host, "Why does the first token take longer than the next?", "live");
  figure.controls.append(button("Ask both prompts", () => run()));
  const run = () => figure.busy(async () => {
    const lanes = [];
    for (const [name, prompt] of [["a short prompt", DEFAULTS.short], ["a long prompt", DEFAULTS.long]]) {
      const times = [];
      lanes.push({ name, words: prompt.split(" ").length, times });
      for await (const token of streamed(completion(prompt, DEFAULTS.tokens), figure.how())) {
        times.push(token.ms);
        replace(figure.picture, chart(lanes, figure.room()));
      }
    }
    replace(figure.picture, chart(lanes, figure.room()));
    const [short, long] = lanes.map(({ times }) => ({ first: times[0], gap: (times.at(-1) - times[0]) / (times.length - 1) }));
    figure.say(`First token: ${short.first.toFixed(0)} ms after ${lanes[0].words} words, ${long.first.toFixed(0)} ms after ${lanes[1].words}. Then one every ${short.gap.toFixed(1)} ms and ${long.gap.toFixed(1)} ms: the prompt's length is paid for at the start.`);
  });
  replace(figure.picture, el("p", { class: "quiet" }, "Two prompts are sent one after the other, and the time of each token is drawn as it arrives."));
  run();
}

/** The time to the first token: in its bar, or where that is too short above it. */
function named(text, right, left, y) {
  return right > left + 60 ? label(right - 6, y + 15, text, { class: "inverse", "text-anchor": "end" }) : label(left, y - 7, text);
}

function chart(lanes, w) {
  const left = w > 400 ? 110 : 92;
  const end = Math.max(50, ...lanes.flatMap((lane) => lane.times)) * 1.02;
  const across = scale(0, end, left, w - 10);
  const rows = lanes.map((lane, i) => {
    const y = 26 + i * 54;
    const first = lane.times[0] ?? 0;
    return [
      label(left - 6, y + 15, lane.name, { "text-anchor": "end" }),
      svg("rect", { x: left, y, width: Math.max(0, across(first) - left), height: 22, class: "wait" }),
      lane.times.length ? named(`${first.toFixed(0)} ms`, across(first), left, y) : null,
      lane.times.map((ms) => svg("line", { x1: across(ms), x2: across(ms), y1: y - 3, y2: y + 25, class: "tick" })),
    ];
  });
  return picture(w, 140, "When each token came, for both prompts", rows, label(left, 136, "0"), label(w - 10, 136, `${end.toFixed(0)} ms`, { "text-anchor": "end" }));
}
