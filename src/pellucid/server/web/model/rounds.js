// Rounds of guessing: what was drafted, and what of it the model accepted.

import { shortName } from "../core/names.js";

/** The drafts that the steps checked, one row each; of one request if it is given. */
export function roundsOf(steps, request = null) {
  return steps.flatMap((step) => (step.drafts ?? [])
    .filter((draft) => draft.request !== null && (request === null || draft.request === request))
    .map((draft) => ({
      step: step.id, request: draft.request, name: shortName(draft.request), sequence: draft.sequence,
      drafted: Array.isArray(draft.guessed) ? draft.guessed.length : draft.guessed, accepted: draft.accepted,
      checks: (draft.checks ?? []).map(([p, q = null, drawn = null]) => ({ p, q, drawn })),
      forward_ms: step.ms.forward, draft_ms: step.ms.draft ?? null,
    }))
    .filter((round) => round.drafted > 0));
}

/** For each position of a guess, the share of rounds in which it was reached and right. */
export function acceptance(rounds) {
  const longest = Math.max(0, ...rounds.map((round) => round.drafted));
  return Array.from({ length: longest }, (_, i) => {
    const tried = rounds.filter((round) => round.drafted > i);
    return tried.filter((round) => round.accepted > i).length / tried.length;
  });
}

/**
 * What guessing gave and cost, in milliseconds, to one request if it is given: `saved` is the tokens that came with a guess, over
 * the sequences that a step gives one each, times a plain decode step's time (the median of those without drafts), `spent` the time
 * of drafting and what steps with drafts took beyond a plain one; of that a request has its part of the guesses. null where there is
 * no plain step among `all` to compare with.
 */
export function netTime(steps, request = null, all = steps) {
  const decodes = (some) => some.filter((s) => s.batch.length && s.batch.every((item) => item.kind !== "prefill"));
  const plain = decodes(all).filter((s) => !s.drafts?.length).map((s) => s.ms.forward).sort((a, b) => a - b);
  const drafted = decodes(steps).filter((s) => s.drafts?.some((draft) => isOf(draft, request)));
  if (!plain.length || !drafted.length) return null;
  const usual = plain[Math.floor(plain.length / 2)];
  let saved = 0;
  let spent = 0;
  for (const step of drafted) {
    const own = step.drafts.filter((draft) => isOf(draft, request));
    const accepted = own.reduce((sum, draft) => sum + draft.accepted, 0);
    saved += (accepted / step.batch.length) * usual;
    spent += (guesses(own) / guesses(step.drafts)) * ((step.ms.draft ?? 0) + Math.max(0, step.ms.forward - usual));
  }
  return { saved, spent, net: saved - spent };
}

const isOf = (draft, request) => request === null || draft.request === request;

const guesses = (drafts) => drafts.reduce((sum, { guessed }) => sum + (Array.isArray(guessed) ? guessed.length : guessed), 0) || 1;
