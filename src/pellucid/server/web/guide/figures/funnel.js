// From scores to one token in stages: temperature, min-p, top-k, top-p, a draw.

import { el, svg } from "../../core/dom.js";
import { DEFAULTS } from "../defaults.js";
import { bar, label, picture, visible } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";
import { chosen, fromAnswer, oneToken, pick } from "./sampling.js";

const OFF = { temperature: 1, topK: 0, topP: 1, minP: 0 };
const STAGES = [
  [{}, "The model's own probabilities of the 20 likeliest tokens (as if there were no others)."],
  [{ temperature: 1.4 }, "Temperature 1.4: every score is divided by it, and the bars come closer to one another."],
  [{ minP: 0.2 }, "Min-p 0.2: what has less than a fifth of the best one's probability falls out."],
  [{ topK: 8 }, "Top-k 8: at most eight stay, however close the ninth is."],
  [{ topP: 0.8 }, "Top-p 0.8: from the top, as many as are needed for 80 % of what is left."],
];
const DRAWS = [0.42, 0.07, 0.91];

export function funnel(host) {
  const figure = frame(host, "What is left when each filter has done its part?", "live");
  figure.busy(async () => {
    const top = fromAnswer(await figure.ask("/v1/completions", oneToken(DEFAULTS.sample)));
    animate(figure, framesOf(top), { every: 1800 });
  });
}

function framesOf(top) {
  const stages = stagesOf(top.map((one) => one.logprob));
  const drawn = (shares, before, number = null) => (w) => el("div", {},
    top.map((one, i) => bar(visible(one.text), shares[i], shares[i] ? `${(100 * shares[i]).toFixed(1)} %` : before[i] ? "out" : "", shares[i] === 0 ? "out" : "")),
    line(shares, top, number, w));
  const last = stages.at(-1).shares;
  return [
    ...stages.map(({ says, shares }, i) => ({ says: `${says} ${shares.filter(Boolean).length} can be drawn.`, picture: drawn(shares, stages[Math.max(0, i - 1)].shares) })),
    ...DRAWS.map((number) => ({ says: `A draw: laid end to end the shares are a line from 0 to 1. The random number ${number} falls on “${visible(top[pick(last, number)].text)}”.`, picture: drawn(last, last, number) })),
  ];
}

/** Probabilities after each filter and those before it. */
export function stagesOf(logprobs) {
  const settings = { ...OFF };
  return STAGES.map(([more, says]) => ({ says, shares: chosen(logprobs, Object.assign(settings, more)) }));
}

/** The shares end to end, and where a number falls. */
function line(shares, top, number, w) {
  let from = 8;
  const across = w - 16;
  const parts = shares.map((share, i) => {
    const left = from, width = share * across;
    from += width;
    return share === 0 ? null : [svg("rect", { x: left, y: 22, width: Math.max(1, width - 1), height: 20, class: "paint", "data-paint": `request-${i % 10}` }),
      width > 9 * visible(top[i].text).length + 6 ? label(left + width / 2, 58, visible(top[i].text), { "text-anchor": "middle" }) : null];
  });
  const at = number === null ? null : 8 + number * across;
  return picture(w, 64, "The shares end to end", parts,
    at === null ? null : [svg("path", { d: `M${at} 44 L${at} 18`, class: "tick" }), label(at, 12, String(number), { class: "strong", "text-anchor": "middle" })]);
}
