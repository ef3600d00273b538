// Softmax over a row of scores that is never seen whole: page by page, with a largest so far and a sum so far.

import { el } from "../../core/dom.js";
import { DEFAULTS } from "../defaults.js";
import { bar, visible } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";

const PAGE = 4;

export function tiles(host) {
  const figure = frame(host, "How are shares found that sum to one, without seeing all scores?", "live");
  figure.busy(async () => {
    const seen = await figure.ask("/guide/look", { prompt: DEFAULTS.sentence });
    animate(figure, framesOf(seen), { every: 1800 });
  });
}

function framesOf(seen) {
  const words = seen.tokens.map((token) => visible(token.text));
  const steps = online(seen.logs, PAGE);
  const drawn = (step) => () => el("div", {}, el("p", { class: "formula" }, step === null ? "largest: none, sum: 0" : `largest m = ${step.largest.toFixed(2)}, sum l = ${step.sum.toFixed(3)}`),
    words.map((word, i) => row(word, i, step)));
  const first = `The query of “${words.at(-1)}” meets ${words.length} keys in layer ${seen.layer}, head ${seen.head}. They lie in pages of ${PAGE} (16 in the engine), and only one page is looked at in each step. (Scores are up to a constant, which shares do not feel.)`;
  return [
    { says: first, picture: drawn(null) },
    ...steps.map((step, i) => ({ says: saidOf(step, i), picture: drawn(step) })),
    { says: `${steps.length} pages later the shares are those of the formula to the last digit shown: the head's own largest is ${percent(Math.max(...seen.heads[seen.head].at(-1)))}. No more than one page of scores was ever held.`, picture: drawn(steps.at(-1)) },
  ];
}

function saidOf({ largest, factor, end }, i) {
  if (i === 0) return `Page 1: its largest score is ${largest.toFixed(2)}. Powers of e are taken of what scores lie below it, and summed: shares, as if nothing else came.`;
  return factor < 1
    ? `Page ${i + 1} has a larger score, ${largest.toFixed(2)}. Sum and mixture so far were made for a smaller one: both are multiplied by e to the difference, ${factor.toFixed(3)}.`
    : `Page ${i + 1} up to token ${end}: no larger score. What it brings is added to the sum, and all shares before it shrink alike.`;
}

function row(word, i, step) {
  const page = Math.floor(i / PAGE);
  const seen = step !== null && i < step.end;
  const kind = [i % PAGE === 0 ? "page" : "", step !== null && page === Math.floor((step.end - 1) / PAGE) ? "now" : "", seen ? "" : "out"].join(" ");
  return bar(word, seen ? step.shares[i] : 0, seen ? percent(step.shares[i]) : "–", kind);
}

/** After each page of `size` scores: the largest so far, the sum of e^(score - largest), what the sum before was multiplied by, and
 * the share of every score so far (Milakov and Gimelshein 2018). */
export function online(scores, size) {
  const steps = [];
  let largest = -Infinity, sum = 0;
  for (let start = 0; start < scores.length; start += size) {
    const page = scores.slice(start, start + size);
    const next = Math.max(largest, ...page);
    const factor = Math.exp(largest - next);
    sum = sum * factor + page.reduce((all, score) => all + Math.exp(score - next), 0);
    largest = next;
    const end = start + page.length;
    steps.push({ largest, sum, factor, end, shares: scores.slice(0, end).map((score) => Math.exp(score - next) / sum) });
  }
  return steps;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
