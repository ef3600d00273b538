// What figures ask: the engine behind the page, or the answers that were recorded with a copy of it.

import { Api, random } from "../core/api.js";
import { eventsOf } from "../core/sse.js";

const kept = document.getElementById("recorded");

/** `{at, model, answers}` in a copy of the guide, else null. */
export const recorded = kept ? JSON.parse(kept.textContent) : null;
export const numbers = JSON.parse(document.getElementById("numbers").textContent);
export const api = new Api();

/** JSON from the server, with `Api`'s options. Throws what `Api` throws, and in a copy an `Error` for what was not recorded. */
export async function ask(path, body, options = {}) {
  return recorded ? answer(path, body) : api.json(path, { body, ...options });
}

function answer(path, body) {
  const found = recorded.answers[keyOf(path, body)];
  if (found === undefined) throw new Error("This was not recorded: run `pellucid serve` and open /guide to ask it.");
  return found;
}

/** What a question is kept under. */
export function keyOf(path, body) {
  return body === undefined ? path : `${path} ${JSON.stringify(body)}`;
}

/** The body of a streamed completion: greedy, so that it can be asked again. */
export function completion(prompt, tokens) {
  return { prompt, max_tokens: tokens, temperature: 0, logprobs: 5, ignore_eos: true, stream: true };
}

/** Tokens as they come: `{ms, text, logprob}`, `ms` by this browser's clock since the question was sent; with `Api`'s options. */
export async function* streamed(body, options = {}) {
  if (recorded) {
    yield* answer("/v1/completions", body);
    return;
  }
  const began = performance.now();
  // A salt of its own: nothing of the prompt is in the prefix cache, as if nobody had read this page before.
  const response = await api.open("/v1/completions", { body: { ...body, cache_salt: random() }, ...options });
  for await (const { data } of eventsOf(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const given = chunk.choices?.[0]?.logprobs;
    for (const [i, text] of (given?.tokens ?? []).entries()) {
      yield { ms: performance.now() - began, text, logprob: given.token_logprobs[i] };
    }
  }
}
