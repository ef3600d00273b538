// The guide's figures by themselves: what they compute needs no page. Run by tests/browser/test_logic.py.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { getElementById: (id) => (id === "numbers" ? { textContent: "{}" } : null) };
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });

const figure = (name) => import(`../web/guide/figures/${name}.js`);
const { chosen, fromAnswer, pick } = await figure("sampling");
const { rowsOf } = await figure("tokens");
const { agreement } = await figure("positions");
const { bound, MACHINES, stepOf } = await figure("roofline");
const { cacheBytes } = await figure("kv");
const { statesOf } = await figure("pages");
const { block, quantised } = await figure("quantisation");
const { expected, roundsOf } = await figure("speculation");
const { waits } = await figure("serving");
const { firstOfRun } = await figure("layers");
const { summed } = await figure("batching");
const { online } = await figure("tiles");
const { handsOf } = await figure("turning");
const { stagesOf } = await figure("funnel");
const { tripsOf } = await figure("trips");
const { stepsOf } = await figure("growing");
const { placed, summary } = await figure("slots");
const { lifeOf, roundsOf: servedIn } = await figure("queue");
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

test("shares found page by page are those of the whole row, whatever the pages", () => {
  const scores = [-3, 0.5, -9, 2, 7, -1, 6.5];
  const exact = scores.map((score) => Math.exp(score) / sum(scores.map(Math.exp)));
  for (const size of [1, 2, 3, 7, 10]) {
    const steps = online(scores, size);
    steps.at(-1).shares.forEach((share, i) => close(share, exact[i]));
    for (const { shares, factor } of steps) {
      close(sum(shares), 1);
      assert.ok(factor >= 0 && factor <= 1);
    }
  }
});

test("hands turn as far as their pair says", () => {
  const hands = handsOf(10000, 32, 6, 5);
  assert.deepEqual([hands[0].pair, hands.at(-1).pair], [0, 31]);
  close(hands[0].angle, 5);
  close(hands.at(-1).angle, 5 * 10000 ** (-62 / 64));
});

test("each filter leaves no more than the one before it", () => {
  const stages = stagesOf(Array.from({ length: 20 }, (_, i) => -0.3 * i - 1));
  const left = stages.map(({ shares }) => shares.filter(Boolean).length);
  assert.deepEqual(left, left.toSorted((a, b) => b - a));
  assert.ok(left.at(-1) < left[0]);
  for (const { shares } of stages) close(sum(shares), 1);
  assert.deepEqual(fromAnswer({ choices: [{ logprobs: { top_logprobs: [{ a: -2, b: -1 }] } }] }).map((one) => one.text), ["b", "a"]);
});

test("the weights make one trip for the prompt and one for each later token", () => {
  const frames = tripsOf(12, 4, 6);
  assert.equal(frames.at(-1).fetched, 4 * 6);
  assert.equal(frames.filter(({ part, rows }) => part !== null && rows === 12).length, 6);
  assert.equal(frames.at(-1).done, 12 + 3); // the last token has been chosen, and not computed
});

test("a cache holds what was computed, and spares what it would take without", () => {
  const steps = stepsOf(MODEL, 8, 4);
  assert.deepEqual(steps.map(({ held }) => held), [0, 8, 9, 10, 11]);
  assert.equal(steps.at(-1).without, 8 + 9 + 10 + 11);
  close(steps.at(-1).read, 11 * 23040);
  close(sum(steps.map(({ written }) => written)), 11 * 23040);
});

test("no place is taken twice, and continuous batches end sooner with fewer empty places", () => {
  const requests = [[0, 6], [0, 16], [0, 4], [0, 9], [2, 5], [3, 12], [20, 3]];
  const ends = [true, false].map((continuous) => {
    const found = placed(requests, 4, continuous);
    for (const [i, one] of found.entries()) {
      assert.ok(one.start >= one.came);
      assert.equal(one.end - one.start, requests[i][1]);
      for (const other of found.slice(0, i)) assert.ok(other.place !== one.place || other.end <= one.start || other.start >= one.end);
    }
    const all = Math.max(...found.map((one) => one.end));
    const { done, waiting, empty } = summary(found, all);
    assert.deepEqual([done, waiting, empty], [7, 0, 4 * all - sum(requests.map(([, tokens]) => tokens))]);
    return all;
  });
  assert.ok(ends[0] < ends[1]);
});

test("a simulated server gives every request its tokens, in no more places and positions than it has", () => {
  const requests = [[0, 96, 10], [0, 64, 14], [2, 300, 3], [3, 64, 6], [9, 96, 7]];
  const rounds = servedIn(MODEL, MACHINES.laptop, requests, 3, 128);
  const prefilled = new Map();
  for (const { from, to, batch } of rounds.slice(1)) {
    assert.ok(to > from && batch.length > 0 && batch.length <= 3);
    assert.equal(new Set(batch.map(([one]) => one)).size, batch.length);
    for (const [one, kind] of batch) if (kind === "prefill") prefilled.set(one, (prefilled.get(one) ?? 0) + 1);
  }
  requests.forEach(([, prompt, answer], i) => {
    const { came, tokens } = lifeOf(rounds, requests, i, rounds.length - 1);
    assert.equal(tokens.length, answer);
    assert.ok(tokens[0] > came);
    assert.ok(prefilled.get(i) >= Math.ceil(prompt / 128));
  });
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
