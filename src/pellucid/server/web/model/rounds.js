// Rounds of guessing, from the steps that checked guesses: what was drafted, what was right.

import { shortName } from "../core/names.js";

/** A round is a sequence's part in a step that checked guesses: one position more than it guessed. */
export function roundsOf(steps, request = null) {
  const rounds = [];
  for (const step of steps) {
    for (const item of step.batch) {
      if (item.kind !== "verify" || item.request === null) continue;
      if (request !== null && item.request !== request) continue;
      const given = step.tokens.filter((token) => token.sequence === item.sequence).length;
      rounds.push({
        step: step.id, request: item.request, name: shortName(item.request), sequence: item.sequence,
        drafted: item.tokens - 1, accepted: Math.max(0, given - 1), forward_ms: step.ms.forward,
      });
    }
  }
  return rounds;
}

/** For each position of a guess, the share of rounds in which it was reached and right. */
export function acceptance(rounds) {
  const longest = Math.max(0, ...rounds.map((round) => round.drafted));
  return Array.from({ length: longest }, (_, i) => {
    const tried = rounds.filter((round) => round.drafted > i);
    return tried.filter((round) => round.accepted > i).length / tried.length;
  });
}
