// The KV cache while an answer grows: one column is written in each step, and all are read.

import { el, svg } from "../../core/dom.js";
import { bytes } from "../../core/format.js";
import { numbers } from "../ask.js";
import { bar, label, picture } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";
import { cacheBytes } from "./kv.js";

const PROMPT = 8, ANSWER = 16, LAYERS = 4;

export function growing(host) {
  const figure = frame(host, "What does a step write, and what does it read?", "computed");
  animate(figure, stepsOf(numbers, PROMPT, ANSWER).map((step) => ({ says: said(step), picture: (w) => drawn(step, w) })), { every: 700 });
}

/** For each step the positions it computes, those that the cache then holds, the bytes written and read, and how many positions would
 * have been computed until then if nothing were kept. */
export function stepsOf(model, prompt, answer) {
  const steps = [{ fresh: 0, held: 0, written: 0, read: 0, without: 0 }];
  for (let i = 0; i < answer; i++) {
    const fresh = i === 0 ? prompt : 1;
    const held = steps.at(-1).held + fresh;
    steps.push({ fresh, held, written: cacheBytes(model, fresh, 1, 2), read: cacheBytes(model, held, 1, 2), without: steps.at(-1).without + held });
  }
  return steps;
}

function said({ fresh, held, without }) {
  if (held === 0) return `An empty cache, with room for the keys and values of ${PROMPT + ANSWER - 1} tokens in ${numbers.layers} layers.`;
  const kept = `Kept are ${bytes(cacheBytes(numbers, held, 1, 2))}.`;
  return fresh > 1
    ? `Prefill: the keys and values of ${fresh} tokens are computed and written, together. ${kept}`
    : `Decode: one token is computed and written, and the query reads all ${held}. ${kept} Without the cache ${without} positions would have been computed by now, instead of ${held}.`;
}

function drawn(step, w) {
  const last = cacheBytes(numbers, PROMPT + ANSWER - 1, 1, 2);
  return el("div", {}, board(step, w), bar("written", step.written / last, bytes(step.written), "second"), bar("read", step.read / last, bytes(step.read)));
}

function board({ fresh, held }, w) {
  const x = 74, cell = (w - x - 8) / (PROMPT + ANSWER - 1), height = 12;
  const names = [...Array.from({ length: LAYERS - 1 }, (_, i) => `layer ${i + 1}`), `layer ${numbers.layers}`];
  return picture(w, 30 + LAYERS * 34, "Keys and values of each token in some of the layers", label(x, 12, "tokens →"),
    names.map((name, row) => {
      const y = 22 + row * 34;
      return [label(x - 8, y + 17, row === LAYERS - 1 ? `… ${name}` : name, { "text-anchor": "end" }),
        [0, 1].map((which) => Array.from({ length: PROMPT + ANSWER - 1 }, (_, i) => svg("rect", { x: x + i * cell, y: y + which * (height + 1), width: cell - 2, height, rx: 2, class: i >= held ? "slot" : i >= held - fresh ? "token second" : which ? "token value" : "token" })))];
    }),
    label(w - 8, 26 + LAYERS * 34, w > 420 ? "above keys, below values; orange: written in this step" : "keys above values; orange: new", { "text-anchor": "end" }));
}
