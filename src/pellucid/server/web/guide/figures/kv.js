// The KV cache's bytes by the formula, with the running model's numbers.

import { el, replace } from "../../core/dom.js";
import { numbers } from "../ask.js";
import { bar } from "../draw.js";
import { frame, slider } from "../frame.js";

export function kvCache(host) {
  const figure = frame(host, "How much memory does remembering take?", "computed");
  const draw = () => {
    const bytes = cacheBytes(numbers, length.value, sequences.value, 2 ** bits.value / 8);
    const most = Math.max(bytes, numbers.weight_bytes);
    const { layers, kv_heads: heads, head_size: size } = numbers;
    replace(figure.picture,
      el("p", { class: "formula" }, `2 × ${layers} layers × ${heads} KV heads × ${size} features × ${length.value} tokens × ${2 ** bits.value / 8} bytes × ${sequences.value} sequence${sequences.value === 1 ? "" : "s"} = ${mega(bytes)}`),
      bar("keys and values", bytes / most, mega(bytes)), bar("weights", numbers.weight_bytes / most, mega(numbers.weight_bytes)));
    const share = bytes / numbers.weight_bytes;
    figure.say(share > 1 ? `The cache is ${share.toFixed(1)} times as large as the weights: each step reads it all.` : `The cache is ${(100 * share).toFixed(0)} % of the weights' size.`);
  };
  const length = slider("Tokens in each", { min: 64, max: numbers.context, step: 64, value: Math.min(1024, numbers.context) }, draw);
  const sequences = slider("Sequences", { min: 1, max: 64, value: 1 }, draw);
  const bits = slider("Bits of each number", { min: 2, max: 5, value: 4, shown: (v) => String(2 ** v) }, draw);
  figure.controls.append(length.element, sequences.element, bits.element);
  draw();
}

export function cacheBytes(model, length, sequences, bytesEach) {
  return (model.kv_bytes / 2) * length * sequences * bytesEach; // kv_bytes is at two bytes each
}

const mega = (bytes) => (bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(1)} MB`);
