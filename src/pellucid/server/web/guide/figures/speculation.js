// Speculation: what guesses bring, and round by round what becomes of them.

import { el, replace } from "../../core/dom.js";
import { bar, random } from "../draw.js";
import { frame, slider } from "../frame.js";
import { Player } from "../player.js";

const ROUNDS = 12;

export function speculation(host) {
  const figure = frame(host, "When does guessing pay?", "simulated");
  const bars = el("div", {}), row = el("div", { class: "chips" }), said = el("p", { class: "quiet" });
  let player = null;
  const draw = () => {
    const [k, a, cost] = [guesses.value, accepted.value, draft.value];
    const tokens = expected(k, a), speed = tokens / (1 + k * cost);
    replace(bars, bar("tokens a round", tokens / (k + 1), tokens.toFixed(2)), bar("cost of a round", (1 + k * cost) / (k + 1), `${(1 + k * cost).toFixed(2)} steps`), bar("speed", speed / (k + 1), `${speed.toFixed(2)} ×`, "second"));
    figure.say(speed > 1 ? `Pays: ${speed.toFixed(2)} times as fast, if a step that checks ${k} guesses takes as long as a plain one. Memory-bound steps nearly do.` : `Does not pay: ${speed.toFixed(2)} times as fast. The guesses cost more than they bring.`);
    const rounds = roundsOf(k, a, 5);
    player?.stop();
    player = new Player(rounds.length, (at) => {
      replace(row, rounds[at].marks.map((mark) => el("span", { class: `guess ${mark}` }, { kept: "✓ kept", wrong: "✗ wrong", unused: "· not looked at", own: "+ the model's own" }[mark])));
      said.textContent = `Round ${at + 1}: ${rounds[at].tokens} ${rounds[at].tokens === 1 ? "token" : "tokens"} for one step of the model; ${rounds[at].total} after ${at + 1} steps.`;
    }, { every: 1200 });
    replace(figure.picture, bars, row, said, player.element);
    player.show(0);
  };
  const guesses = slider("Guesses in a round", { min: 1, max: 8, value: 4 }, draw);
  const accepted = slider("Share that is right", { min: 0, max: 1, step: 0.05, value: 0.7, shown: (v) => v.toFixed(2) }, draw);
  const draft = slider("A guess costs, of a step", { min: 0, max: 0.6, step: 0.02, value: 0.1, shown: (v) => v.toFixed(2) }, draw);
  figure.controls.append(guesses.element, accepted.element, draft.element);
  draw();
}

/** 1 + a + ... + a^k */
export function expected(k, a) {
  let sum = 0;
  for (let i = 0; i <= k; i++) sum += a ** i;
  return sum;
}

/** Rounds as they may fall: guesses are kept up to the first wrong one, and the model adds its own token. */
export function roundsOf(k, a, seed) {
  const draw = random(seed);
  let total = 0;
  return Array.from({ length: ROUNDS }, () => {
    const marks = [];
    let right = true;
    for (let i = 0; i < k; i++) {
      const good = right && draw() < a;
      marks.push(good ? "kept" : right ? "wrong" : "unused");
      right = good;
    }
    const tokens = marks.filter((mark) => mark === "kept").length + 1;
    total += tokens;
    return { marks: [...marks, "own"], tokens, total };
  });
}
