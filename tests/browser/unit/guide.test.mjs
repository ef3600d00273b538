// The guide's figures by themselves: what they compute needs no page. Run by tests/browser/test_logic.py.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { getElementById: (id) => (id === "numbers" ? { textContent: "{}" } : null) };
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });

const figure = (name) => import(`../web/guide/figures/${name}.js`);
const { chosen, pick } = await figure("sampling");
const { rowsOf } = await figure("tokens");
const { agreement } = await figure("positions");
const { bound, stepOf } = await figure("roofline");
const { cacheBytes } = await figure("kv");
const { statesOf } = await figure("pages");
const { block, quantised } = await figure("quantisation");
const { expected, roundsOf } = await figure("speculation");
const { waits } = await figure("serving");
const { firstOfRun } = await figure("layers");
const { summed } = await figure("batching");
const { random } = await import("../web/guide/draw.js");

const close = (a, b, within = 1e-9) => assert.ok(Math.abs(a - b) <= within, `${a} is not ${b}`);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const MODEL = { layers: 30, heads: 9, head_size: 64, operations: 269e6, weight_bytes: 96.6e6, kv_bytes: 23040 };

test("filters keep probabilities that sum to one, and cut the tail", () => {
  const logprobs = [-0.5, -1, -2, -3, -6];
  const all = chosen(logprobs, { temperature: 1, topK: 0, topP: 1, minP: 0 });
  close(sum(all), 1);
  close(all[0] / all[1], Math.exp(0.5));
  assert.deepEqual(chosen(logprobs, { temperature: 0, topK: 0, topP: 1, minP: 0 }), [1, 0, 0, 0, 0]);
  for (const setting of [{ topK: 2 }, { topP: 0.7 }, { minP: 0.3 }]) {
    const cut = chosen(logprobs, { temperature: 1, topK: 0, topP: 1, minP: 0, ...setting });
    close(sum(cut), 1);
    assert.ok(cut[0] > all[0] && cut.at(-1) === 0);
  }
  // Min-p comes before top-p: of 0.5 and 0.25, all that it leaves, the first has two thirds, which is more than 0.6.
  assert.deepEqual(chosen([0.5, 0.25, 0.15, 0.1].map(Math.log), { temperature: 1, topK: 0, topP: 0.6, minP: 0.4 }), [1, 0, 0, 0]);
  assert.ok(chosen(logprobs, { temperature: 2, topK: 0, topP: 1, minP: 0 })[0] < all[0]);
});

test("a draw falls where its number says, and never on what was cut", () => {
  const shares = [0.5, 0.25, 0, 0.25];
  assert.deepEqual([0, 0.49, 0.5, 0.74, 0.76, 0.999999].map((x) => pick(shares, x)), [0, 0, 1, 1, 3, 3]);
  assert.equal(pick([0.3, 0.3, 0], 0.99), 1); // what rounding leaves over goes to the last that is possible
});

test("merges one by one end in the tokens", () => {
  const piece = { symbols: ["t", "h", "e", "n"], steps: [
    { left: "h", right: "e", merged: "he", position: 1, rank: 3 }, { left: "t", right: "he", merged: "the", position: 0, rank: null },
  ] };
  assert.deepEqual(rowsOf(piece).map((row) => row.symbols), [["t", "h", "e", "n"], ["t", "he", "n"], ["the", "n"]]);
});

test("rotary products depend on the distance and fall with it", () => {
  close(agreement(10000, 32, 0), 1);
  close(agreement(10000, 32, 7), agreement(10000, 32, -7));
  assert.ok(agreement(10000, 32, 40) < 0.8);
});

test("a step's bound is the later of memory and arithmetic", () => {
  const machine = { read: 60e9, operations: 2e12 };
  const one = bound(stepOf(MODEL, 1, 256), machine);
  assert.equal(one.by, "memory");
  close(one.seconds, (96.6e6 + 256 * 23040) / 60e9, 1e-12);
  assert.equal(bound(stepOf(MODEL, 512, 1), machine).by, "arithmetic");
  close(cacheBytes(MODEL, 1000, 2, 1), 1000 * 23040);
});

test("no page is lost, shared or given away by mistake", () => {
  const states = statesOf([["take", "A", 3, ""], ["end", "A", 0, ""], ["share", "C", 2, ""], ["take", "B", 14, ""]]);
  for (const { cells } of states) {
    assert.equal(cells.length, 16);
    for (const cell of cells) assert.equal(cell.kind === "owned", cell.owners.length > 0);
  }
  const last = states.at(-1).cells;
  assert.equal(last.filter((cell) => cell.owners.includes("C")).length, 2);
  assert.equal(last.filter((cell) => cell.owners.includes("B")).length, 14);
});

test("every bit more halves the error, and an outlier costs all others", () => {
  const error = (weights, bits) => Math.sqrt(sum(weights.map((w, i) => (w - quantised(weights, bits).values[i]) ** 2)));
  const weights = block(false);
  assert.deepEqual(weights, block(false));
  for (let bits = 3; bits < 8; bits++) assert.ok(error(weights, bits + 1) < 0.75 * error(weights, bits));
  const others = (values) => values.filter((_, i) => i !== 20);
  const lost = (large) => {
    const given = block(large);
    return sum(others(given.map((w, i) => (w - quantised(given, 4).values[i]) ** 2)));
  };
  assert.ok(lost(true) > 2 * lost(false));
});

test("rounds give what the formula says on average", () => {
  close(expected(4, 0), 1);
  close(expected(4, 1), 5);
  close(expected(3, 0.5), 1.875);
  for (const { marks, tokens } of roundsOf(4, 0.6, 1)) {
    assert.equal(marks.length, 5);
    assert.equal(tokens, marks.filter((mark) => mark === "kept").length + 1);
  }
  assert.equal(roundsOf(4, 1, 1).at(-1).total, 60);
});

test("waiting grows with load, and falls with places", () => {
  assert.ok(waits(0.95, 8).late > waits(0.5, 8).late);
  assert.ok(waits(0.8, 32).late < waits(0.8, 1).late);
  assert.equal(waits(0.05, 32).half, 0);
});

test("small things", () => {
  assert.equal(firstOfRun(["a", "b", "c", "c", "c"]), 2);
  assert.equal(firstOfRun(["c"]), 0);
  close(summed(2, [[10, 20, 30], [10, 30, 50]], 100).rate, 60);
  close(summed(2, [[10, 20, 30], [10, 30, 50]], 100).gap, 15);
  const draw = random(1);
  const values = Array.from({ length: 1000 }, draw);
  assert.ok(values.every((x) => x >= 0 && x < 1));
  close(sum(values) / 1000, 0.5, 0.05);
});
