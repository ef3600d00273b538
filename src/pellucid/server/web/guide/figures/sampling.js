// From scores to a token: temperature, min-p, top-k and top-p on the model's own scores.

import { el, replace } from "../../core/dom.js";
import { DEFAULTS } from "../defaults.js";
import { bar, visible } from "../draw.js";
import { button, frame, slider, textField } from "../frame.js";

export function sampling(host) {
  const figure = frame(host, "How is one token chosen?", "live");
  let top = [], drawn = new Map(), times = 0;
  const field = textField("Prompt", DEFAULTS.sample, () => fetchTop());
  const again = () => {
    drawn = new Map();
    times = 0;
    draw();
  };
  const temperature = slider("Temperature", { min: 0, max: 2, step: 0.05, value: 0.8, shown: (v) => v.toFixed(2) }, again);
  const topK = slider("Top-k", { min: 0, max: 20, value: 0, shown: (v) => (v ? String(v) : "off") }, again);
  const topP = slider("Top-p", { min: 0.05, max: 1, step: 0.05, value: 1, shown: (v) => v.toFixed(2) }, again);
  const minP = slider("Min-p", { min: 0, max: 0.5, step: 0.01, value: 0, shown: (v) => v.toFixed(2) }, again);
  figure.controls.append(field.element, temperature.element, minP.element, topK.element, topP.element,
    button("Draw once", () => take(1)), button("Draw 100 times", () => take(100)));

  const fetchTop = () => figure.busy(async () => {
    top = fromAnswer(await figure.ask("/v1/completions", oneToken(field.field.value)));
    again();
  });
  const settings = () => ({ temperature: temperature.value, topK: topK.value, topP: topP.value, minP: minP.value });
  const draw = () => {
    const shares = chosen(top.map((one) => one.logprob), settings());
    replace(figure.picture, el("div", { class: "sampled" }, top.map((one, i) =>
      bar(visible(one.text), shares[i], `${(100 * shares[i]).toFixed(1)} %${times ? `  drawn ${drawn.get(i) ?? 0}` : ""}`, shares[i] === 0 ? "out" : ""))));
    const left = shares.filter((share) => share > 0).length;
    const whole = top.reduce((sum, one) => sum + Math.exp(one.logprob), 0);
    figure.say(`${left} of the 20 likeliest tokens can be drawn. Before any setting they had ${(100 * whole).toFixed(0)} % of all probability${times ? `; ${times} draws so far` : ""}.`);
  };
  const take = (n) => {
    const shares = chosen(top.map((one) => one.logprob), settings());
    for (let i = 0; i < n; i++) {
      const at = pick(shares, Math.random());
      drawn.set(at, (drawn.get(at) ?? 0) + 1);
    }
    times += n;
    draw();
  };
  fetchTop();
}

/** A question for the 20 likeliest next tokens. */
export const oneToken = (prompt) => ({ prompt, max_tokens: 1, temperature: 0, logprobs: 20 });

/** Its answer as `{text, logprob}`, the likeliest first. */
export function fromAnswer({ choices }) {
  return Object.entries(choices[0].logprobs.top_logprobs[0]).map(([text, logprob]) => ({ text, logprob })).toSorted((a, b) => b.logprob - a.logprob);
}

/** Probabilities after temperature, then min-p, top-k and top-p, as the engine's sampler has them; `logprobs` in falling order. */
export function chosen(logprobs, { temperature, topK, topP, minP }) {
  if (!logprobs.length) return [];
  if (temperature === 0) return logprobs.map((_, i) => (i === 0 ? 1 : 0));
  let shares = normed(logprobs.map((one) => Math.exp((one - logprobs[0]) / temperature)));
  shares = normed(shares.map((share) => (share >= minP * shares[0] ? share : 0)));
  if (topK > 0) shares = normed(shares.map((share, i) => (i < topK ? share : 0)));
  let before = 0;
  return normed(shares.map((share) => {
    const kept = before < topP ? share : 0;
    before += share;
    return kept;
  }));
}

/** The place in `shares` where a number between 0 and 1 falls. */
export function pick(shares, number) {
  let left = number;
  const at = shares.findIndex((share) => (left -= share) < 0);
  return at < 0 ? shares.findLastIndex((share) => share > 0) : at;
}

function normed(values) {
  const sum = values.reduce((a, b) => a + b, 0);
  return values.map((value) => value / sum);
}
