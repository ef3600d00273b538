// Formulas with the running model's numbers in them.

import { bytes, digits } from "../core/format.js";

/** What each kind of traffic of a step is made of, in words. */
export function byteFormulas(about, step) {
  const model = about?.model;
  if (!model || !step) return {};
  const context = step.batch.reduce((sum, item) => sum + (item.context ?? 0), 0);
  const fresh = step.batch.reduce((sum, item) => sum + item.tokens, 0);
  const perToken = kvPerToken(model);
  return {
    weights_read: `Every weight that the step needs, once, for all ${digits(fresh)} positions together: ${bytes(step.cost.weights_read)}.`,
    kv_read: `${perToken} a position; ${digits(context)} positions of context in ${step.batch.length} sequence${step.batch.length === 1 ? "" : "s"}.`,
    kv_written: `${perToken} a position, for ${digits(fresh)} new.`,
    activations: `What the layers hand to each other for ${digits(fresh)} positions: read and written.`,
  };
}

/** "2 x 30 layers x 3 KV heads x 64 x 2 B = 46.1 kB", as far as the layers are alike. */
export function kvPerToken(model) {
  const total = bytes(model.kv_bytes_per_token);
  const parts = model.kv_parts;
  const [first] = parts ?? [];
  const alike = first && parts.every((p) => p.kv_heads === first.kv_heads && p.key_size === first.key_size && p.value_size === first.value_size);
  if (!alike) return `the sum over ${model.layers} layers = ${total}`;
  const sizes = first.key_size === first.value_size ? `2 x ${first.key_size}` : `(${first.key_size} + ${first.value_size})`;
  return `${parts.length} layers x ${first.kv_heads} KV heads x ${sizes} x ${first.element_bytes} B = ${total}`;
}
