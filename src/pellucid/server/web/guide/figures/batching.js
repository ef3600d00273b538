// Batching, measured: the same question asked by one, two, four and eight at once.

import { el, replace } from "../../core/dom.js";
import { ask, completion, recorded, streamed } from "../ask.js";
import { DEFAULTS } from "../defaults.js";
import { bar } from "../draw.js";
import { button, frame } from "../frame.js";

export function batching(host) {
  const figure = frame(host, "What do others in the batch cost me, and what do they bring?", "live");
  const again = button("Measure again", () => measure(), { hidden: recorded !== null });
  figure.controls.append(again);
  replace(figure.picture, el("p", { class: "quiet" }, `The engine is asked ${DEFAULTS.batches.join(", ")} times at once, for ${DEFAULTS.tokens} tokens each.`));
  const measure = () => figure.busy(async () => {
    again.disabled = true;
    try {
      await askAll();
    } finally {
      again.disabled = false;
    }
  });
  const askAll = async () => {
    const rows = recorded ? await ask("batching") : [];
    if (!recorded) {
      for (const many of DEFAULTS.batches) {
        figure.say(`Asking ${many} at once …`);
        rows.push(await together(many, figure.how()));
        draw(rows);
      }
    }
    draw(rows);
    const [one, most] = [rows[0], rows.at(-1)];
    figure.say(`${most.many} at once: ${(most.rate / one.rate).toFixed(1)} times as many tokens a second in all, and each waits ${(most.gap / one.gap).toFixed(1)} times as long for its next one.${most.gap < one.gap ? ` Nobody waits less for having company: something else had the processor while one ran alone.${recorded ? "" : " Measure again."}` : ""}`);
  };
  const draw = (rows) => {
    const [rate, gap] = [Math.max(...rows.map((row) => row.rate)), Math.max(...rows.map((row) => row.gap))];
    replace(figure.picture, el("div", { class: "beside" },
      el("div", {}, el("p", { class: "quiet" }, "tokens a second, all together"), rows.map((row) => bar(`${row.many} at once`, row.rate / rate, row.rate.toFixed(0)))),
      el("div", {}, el("p", { class: "quiet" }, "ms between two tokens of one"), rows.map((row) => bar(`${row.many} at once`, row.gap / gap, row.gap.toFixed(1), "second")))));
  };
  measure();
}

/** `many` answers asked for in the same moment, as `how` says. */
async function together(many, how) {
  const began = performance.now();
  const answers = await Promise.all(Array.from({ length: many }, async (_, i) => {
    const times = [];
    for await (const token of streamed(completion(`${DEFAULTS.short} ${i}`, DEFAULTS.tokens), how)) times.push(token.ms);
    return times;
  }));
  return summed(many, answers, performance.now() - began);
}

/** Tokens a second of all together, and the mean wait in ms between two tokens of one. */
export function summed(many, answers, ms) {
  const gaps = answers.map((times) => (times.at(-1) - times[0]) / Math.max(1, times.length - 1));
  const tokens = answers.reduce((sum, times) => sum + times.length, 0);
  return { many, rate: (1000 * tokens) / ms, gap: gaps.reduce((a, b) => a + b, 0) / many };
}
