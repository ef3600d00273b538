// One answer, streamed from /v1: its text as it comes, its tokens, and what it cost at the end.

import { eventsOf } from "../core/sse.js";

/**
 * Asks and reads. `asked`: `{chat, messages | prompt, params, probabilities}`. `on.text(text)` and
 * `on.tokens([{text, logprob, top}])` are called as it comes. Gives `{usage, timings, finish, clock}`, where
 * `clock` is this browser's own: milliseconds to the first text and to the end.
 */
export async function ask(api, asked, id, signal, on) {
  const began = performance.now();
  const clock = { first_ms: null, total_ms: null };
  const end = { usage: null, timings: null, finish: null, clock };
  const response = await api.open(asked.chat ? "/v1/chat/completions" : "/v1/completions", {
    body: bodyOf(asked), headers: { "X-Request-Id": id }, signal,
  });
  for await (const { data } of eventsOf(response)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const [choice] = chunk.choices ?? [];
    const text = choice ? (asked.chat ? choice.delta?.content : choice.text) : "";
    if (text) {
      clock.first_ms ??= performance.now() - began;
      on.text(text);
    }
    const tokens = tokensOf(choice?.logprobs);
    if (tokens.length) on.tokens(tokens);
    end.finish = choice?.finish_reason ?? end.finish;
    end.usage = chunk.usage ?? end.usage;
    end.timings = chunk.timings ?? end.timings;
  }
  clock.total_ms = performance.now() - began;
  return end;
}

function bodyOf({ chat, messages, prompt, params, probabilities }) {
  const body = { ...params, stream: true, stream_options: { include_usage: true } };
  if (chat) return { ...body, messages, ...(probabilities ? { logprobs: true, top_logprobs: 5 } : {}) };
  return { ...body, prompt, ...(probabilities ? { logprobs: 5 } : {}) };
}

/** Tokens in either form of the API. */
export function tokensOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map((t) => ({ text: readable(t.token), logprob: t.logprob, top: t.top_logprobs.map((a) => [null, readable(a.token), a.logprob]) }));
  }
  return (logprobs.tokens ?? []).map((text, i) => ({
    text: readable(text), logprob: logprobs.token_logprobs[i], top: Object.entries(logprobs.top_logprobs?.[i] ?? {}).map(([token, logprob]) => [null, readable(token), logprob]),
  }));
}

/** A token that is part of a character comes as `bytes:\xf0\x9f`: read as ‹F0 9F›. */
export function readable(token) {
  if (!/^bytes:(\\x[0-9a-f]{2})+$/.test(token)) return token;
  return `‹${token.slice("bytes:".length).replaceAll("\\x", " ").trim().toUpperCase()}›`;
}
