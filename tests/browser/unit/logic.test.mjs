// The pages' logic by itself: what needs no page. Run by tests/browser/test_logic.py.

import assert from "node:assert/strict";
import { test } from "node:test";

import { fromSteps } from "../web/core/answers.js";
import { bytes, clock, count, digits, duration } from "../web/core/format.js";
import { requestPaint, shortName } from "../web/core/names.js";
import { parseRecording } from "../web/core/recording.js";
import { NOTHING, Selection, read, write } from "../web/core/selection.js";
import { EventParser } from "../web/core/sse.js";
import { BOUNDS, Store } from "../web/core/store.js";
import { busy, endOf, wall } from "../web/core/times.js";
import { latest, windowOf } from "../web/core/window.js";
import { placed } from "../web/draw/labels.js";
import { hit, neighbour } from "../web/draw/plot.js";
import { decades, linear, log, niceEnd, niceStep, roundSteps } from "../web/draw/scales.js";
import { company, stages, stepsByRequest, stretches } from "../web/model/lifecycle.js";
import { at, costs, measuredPoints, quantile } from "../web/model/load.js";
import { Pool, prefixRuns, replay } from "../web/model/pool.js";
import { cheaper, heat, leastTime, peaks } from "../web/model/roofline.js";
import { acceptance, netTime, roundsOf } from "../web/model/rounds.js";
import { inWords } from "../web/figures/batch.js";
import { achieved, around, byRequest, kind, phases, totalBytes, whyNamed } from "../web/model/steps.js";
import { tokensOf } from "../web/playground/stream.js";

const step = (id, fields = {}) => ({
  id, start: id, ms: { wait: 1, schedule: 2, prepare: null, forward: 10, unaccounted: 0.5, wall: 13.5 },
  batch: [], tokens: [], pages: {}, cost: { operations: 1e6, weights_read: 1e6, kv_read: 2e5, kv_written: 1e5, activations_read: 3e4, activations_written: 2e4 }, ...fields,
});
const request = (id, received, fields = {}) => ({
  id, state: "finished", received, queued: received + 0.01, started: received + 0.03, first_token: received + 0.1, last_token: received + 0.5,
  finished: received + 0.5, sent: received + 0.52, tokenize_ms: 8, detokenize_ms: 4, ...fields,
});

test("scales go to and fro, and their ticks are round and inside", () => {
  for (const [from, to] of [[0, 1], [3, 17], [-5, 5], [0, 0.0007], [1e9, 3e9]]) {
    const scale = linear([from, to], [20, 400]);
    assert.equal(scale(from), 20);
    assert.equal(scale(to), 400);
    assert.ok(Math.abs(scale.invert(scale((from + to) / 2)) - (from + to) / 2) < 1e-9 * Math.max(1, to));
    for (const tick of scale.ticks(5)) assert.ok(tick >= from - 1e-12 && tick <= to * (1 + 1e-12) + 1e-12);
    assert.ok(scale.ticks(5).length <= 6);
  }
  const scale = log([0.1, 1000], [0, 4]);
  assert.ok(Math.abs(scale(10) - 2) < 1e-12);
  assert.ok(Math.abs(scale.invert(3) - 100) < 1e-9);
  assert.deepEqual(scale.ticks(), [0.1, 1, 10, 100, 1000]);
  assert.ok(Number.isFinite(scale(0)));
});

test("axes end at round numbers that hold what is drawn", () => {
  assert.deepEqual([0.3, 1, 7, 999].map((v) => niceEnd(v)), [0.3, 1, 8, 1000]);
  assert.deepEqual([1, 3, 10].map((v) => niceStep(v, 5)), [0.2, 1, 2]);
  assert.equal(niceEnd(0), 1);
  assert.deepEqual(decades([3, 250]), [1, 1000]);
  assert.deepEqual(decades([0, -1]), [0.1, 10]);
});

test("numbers are short, and what is not known is a dash", () => {
  assert.deepEqual([0, 4, 4.2163, 42.16, 421.6, 12345.6, 0.0421].map((v) => digits(v)), ["0", "4", "4.22", "42.2", "422", "12,346", "0.0421"]);
  assert.deepEqual([null, undefined, NaN].map((v) => digits(v)), ["–", "–", "–"]);
  assert.deepEqual([1500, 12.34, 0.0123].map(duration), ["1.5 s", "12.3 ms", "12 µs"]);
  assert.deepEqual([96_580_440, 23_040, 12].map(bytes), ["96.6 MB", "23 kB", "12 B"]);
  assert.equal(count(1_685_795_328), "1.69 G");
});

test("a selection and its hash are one", () => {
  const all = { replica: "east 1", request: "page-ab%&#=.7", step: 12, op: "linear q & k", time: [1.5, 2.25] };
  assert.deepEqual(read(`#${write(all)}`), all);
  assert.deepEqual(read(""), NOTHING);
  assert.deepEqual(read("#step=x&time=5-2&op="), NOTHING);
  assert.equal(write(NOTHING), "");
});

test("a selection tells who listens, once for each change", () => {
  const place = { hash: "#step=3" };
  const selection = new Selection(place);
  let told = 0;
  selection.onChange(() => (told += 1));
  assert.equal(selection.current.step, 3);
  selection.set({ step: 4 });
  selection.set({ step: 4 });
  assert.equal(told, 1);
  assert.equal(place.hash, "step=4");
  selection.toggle({ step: 4 });
  assert.equal(selection.current.step, null);
  selection.set({ replica: "west", step: 5 });
  selection.clear();
  assert.equal(place.hash, "replica=west");
  selection.set({ replica: null });
  selection.hover({ request: "a" });
  assert.equal(selection.hovered.request, "a");
  assert.equal(place.hash, "");
});

test("the store is bounded, keeps what is newest, and forgets another life of the engine", () => {
  const store = new Store();
  const many = Array.from({ length: BOUNDS.steps + 10 }, (_, i) => step(i));
  store.add({ engine: "1", steps: many });
  assert.equal(store.steps.length, BOUNDS.steps);
  assert.equal(store.steps[0].id, 10);
  store.add({ engine: "1", requests: [request("a.1", 5), request("b.2", 3)] });
  store.add({ engine: "1", requests: [{ id: "b.2", state: "failed" }] });
  assert.deepEqual(store.requests.map((r) => r.id), ["b.2", "a.1"]);
  assert.equal(store.request("b.2").state, "failed");
  assert.equal(store.request("b.2").received, 3);
  store.add({ engine: "1", spans: [{ step: 7, op: "x" }, { step: 7, op: "y" }], dropped: 4 });
  assert.equal(store.spansOf(7).length, 2);
  assert.equal(store.dropped, 4);
  store.add({ engine: "2", steps: [step(0)] });
  assert.deepEqual(store.steps.map((s) => s.id), [0]);
  assert.equal(store.requests.length, 0);
});

test("what was saved opens to the same records", () => {
  const store = new Store();
  store.add({ engine: "1", steps: [step(1), step(2)], requests: [request("a.1", 1)], spans: [{ step: 2, op: "x" }] });
  const saved = parseRecording(JSON.stringify(store));
  const again = new Store();
  again.add(saved.records);
  assert.deepEqual(again.toJSON(), store.toJSON());
});

test("what is no recording is refused in words", () => {
  for (const text of ["{", "[]", "{}", '{"version": 2}', '{"version": 1, "records": {}}', '{"version":1,"records":{"steps":[{}],"requests":[]}}']) {
    assert.throws(() => parseRecording(text), /recording|JSON/);
  }
});

test("a damaged recording is refused with the place of what is wrong in it", () => {
  const whole = () => ({
    version: 1, about: { model: { kv_bytes_per_token: 9, layers: 2, context: 64 }, machine: {}, tensors: [{ bytes: 5 }], cache: { n_pages: 4, page_size: 16, bytes_per_page: 144 } },
    records: {
      steps: [step(0), step(1, { batch: [{ request: null, kind: "decode", tokens: 1 }], pages: { taken: [1], owners: [[0, 0, [1]]] } })], requests: [request("a.1", 1)], spans: [{ step: 1, op: "x" }],
    },
  });
  const open = (spoil) => {
    const recording = whole();
    spoil(recording, recording.records);
    return parseRecording(JSON.stringify(recording));
  };
  open(() => {});
  open((recording) => { recording.about = null; });
  for (const [place, spoil] of [
    ["records.steps[1].batch", (_, { steps }) => delete steps[1].batch], ["records.steps[1].batch[0].kind", (_, { steps }) => delete steps[1].batch[0].kind],
    ["records.steps[0].tokens", (_, { steps }) => delete steps[0].tokens], ["records.steps[0].pages", (_, { steps }) => delete steps[0].pages], ["records.steps[0].cost", (_, { steps }) => delete steps[0].cost],
    ["records.steps[0].ms", (_, { steps }) => { steps[0].ms = "x"; }], ["records.steps[0].ms.forward", (_, { steps }) => { steps[0].ms.forward = "x"; }], ["records.steps[0].start", (_, { steps }) => { steps[0].start = null; }],
    ["records.steps[1].pages.owners[0]", (_, { steps }) => { steps[1].pages.owners = [7]; }], ["records.requests[1]", (_, { requests }) => requests.push(null)], ["records.requests[0].id", (_, { requests }) => { requests[0].id = 5; }],
    ["records.spans", (_, records) => { records.spans = {}; }], ["about.model", (recording) => { recording.about = {}; }], ["about.cache.n_pages", ({ about }) => { about.cache.n_pages = 1e12; }],
  ]) assert.throws(() => open(spoil), (error) => error.message.includes(`damaged, or of another version: ${place} is no `), place);
});

test("each answer of a request has its own tokens, and its own times between them", () => {
  const both = [7, 8].map((sequence) => ({ request: "a.1", sequence, id: null }));
  const steps = [0, 1, 2].map((id) => step(id, { tokens: [...both, { request: "b.2", sequence: 9, id: null }] }));
  for (const number of [0, 1]) {
    const found = fromSteps(steps, request("a.1", 0, { sequences: [7, 8] }), number);
    assert.deepEqual(found.map(({ index, sequence, step: of }) => [index, sequence, of]), [[0, 7 + number, 0], [1, 7 + number, 1], [2, 7 + number, 2]]);
    assert.ok(found.slice(1).every(({ ms_since_last: ms }) => Math.abs(ms - 1000) < 1e-6));
  }
});

test("who waits for whom is told by name, not by the number of a sequence", () => {
  const nameOf = (sequence) => (sequence === 3 ? "r2" : null);
  assert.equal(whyNamed("2 before it, first 3: needs 3 pages, 1 free", nameOf), "2 before it, first r2: needs 3 pages, 1 free");
  assert.equal(whyNamed("waits for 3 to compute the prefix they share", nameOf), "waits for r2 to compute the prefix they share");
  assert.equal(whyNamed("waits for 9 to compute the prefix they share", nameOf), "waits for another to compute the prefix they share");
  assert.equal(whyNamed("all 4 places are taken", nameOf), "all 4 places are taken");
});

test("a step of several answers says how many", () => {
  const parts = [{ request: "a.5", name: "r5", kind: "decode", tokens: 3, sequences: 3 }, { request: "b.0", name: "r0", kind: "verify", tokens: 5, sequences: 1 }];
  const said = inWords({ id: 20, sequences: 4, positions: 8, budget: 128, parts }).map((part) => part.text ?? part).join("");
  assert.equal(said, "Step 20 computed 8 positions of at most 128: a token each of 4 answers: r5 (3 answers), r0 (4 guesses checked).");
});

test("events are whole however their bytes are cut", () => {
  const text = ': hello\n\nevent: records\ndata: {"a":1}\n\ndata: x\r\ndata: y\r\n\r\n';
  for (let size = 1; size < text.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let i = 0; i < text.length; i += size) events.push(...parser.push(text.slice(i, i + size)));
    assert.deepEqual(events, [{ event: "records", data: '{"a":1}' }, { event: "message", data: "x\ny" }]);
  }
});

test("a request's parts and what is not accounted for are its total", () => {
  const parts = stages(request("a.1", 10));
  const { total, ...rest } = parts;
  assert.ok(Math.abs(total - 520) < 1e-6);
  assert.ok(Math.abs(Object.values(rest).reduce((a, b) => a + b, 0) - total) < 1e-6);
  assert.ok(Math.abs(parts.receive - 2) < 1e-6);
  assert.deepEqual(stretches(request("a.1", 10)).map((s) => s.stage), ["receive", "tokenize", "queue", "send"]);
  const waiting = stages({ id: "b.2", state: "queued", received: null, queued: 1, started: null, first_token: null, last_token: null, finished: null, sent: null, tokenize_ms: null, detokenize_ms: null });
  assert.equal(waiting.total, 0);
});

test("a step's phases and bytes are its own; null is not 0", () => {
  const s = step(1);
  assert.deepEqual(phases(s).map((p) => p.phase), ["wait", "schedule", "forward", "unaccounted"]);
  assert.equal(wall(s), 13.5);
  assert.equal(busy(s), 12.5);
  assert.equal(endOf(s), 1.0125);
  assert.equal(totalBytes(s), 1.35e6);
  assert.equal(achieved(s), 0.13);
  assert.equal(achieved(step(1, { ms: { forward: 0 } })), null);
});

test("a batch is told by request; texts that are only scored belong to none", () => {
  const batch = [
    { request: "a.1", kind: "decode", tokens: 1, context: 9 }, { request: "a.1", kind: "decode", tokens: 1, context: 12 },
    { request: "b.2", kind: "prefill", tokens: 30, context: 30 }, { request: null, kind: "prefill", tokens: 5, context: 5 },
  ];
  assert.deepEqual(byRequest({ batch }), [{ request: "a.1", kind: "decode", tokens: 2, context: 12, sequences: 2 }, { request: "b.2", kind: "prefill", tokens: 30, context: 30, sequences: 1 }]);
  assert.equal(kind({ batch }), "mixed");
  assert.equal(kind({ batch: batch.slice(0, 2) }), "decode");
  const lanes = stepsByRequest([step(3, { batch })], [0, 10]);
  assert.deepEqual([...lanes.keys()], ["a.1", "b.2"]);
  assert.equal(lanes.get("a.1")[0].of, 32);
});

test("names and colours are of the request's number", () => {
  assert.equal(shortName("page-12ab.37"), "r37");
  assert.equal(requestPaint("page-12ab.37"), requestPaint("other.7"));
  assert.match(requestPaint("<script>"), /^request-\d$/);
});

test("least times and heats", () => {
  assert.deepEqual(leastTime(0, 1e9, 10, 100), { ms: 100, by: "memory" });
  assert.deepEqual(leastTime(1e12, 1, 10, 100), { ms: 10000, by: "arithmetic" });
  assert.equal(leastTime(1, 1, null, null), null);
  assert.deepEqual([1, 2, 4, 8, 20, null].map(heat), [0, 1, 2, 3, 4, 0]);
});

test("the pool is what its events make of it", () => {
  const pages = (fields) => ({ ended: [], preempted: {}, owners: [], evicted: [], cached_now: [], ...fields });
  const batch = [{ sequence: 0, request: "a.1" }, { sequence: 1, request: "b.2" }, { sequence: 2, request: "c.3" }];
  const events = [
    step(0, { batch, pages: pages({ owners: [[0, 0, [1, 2]], [1, 0, [3]]], cached_now: [1, 2] }) }),
    step(1, { batch, pages: pages({ ended: [0], owners: [[2, 0, [1]]] }) }),
    step(2, { batch, pages: pages({ preempted: { 2: 16 }, owners: [[1, 1, [2]]], evicted: [2] }) }),
  ];
  const after = (id, base = null) => Object.fromEntries(replay(events, base, id).cells().map((c) => [c.page, [c.owners.map((o) => o.request).join(), c.cached]]));
  assert.deepEqual(after(0), { 1: ["", true], 2: ["", true], 3: ["b.2", false] });
  const last = replay(events.slice(0, 1), null, 0, (request) => request === "b.2");
  assert.deepEqual(last.cells().map((c) => [c.page, c.owners.length]), [[1, 1], [2, 1]]);
  assert.deepEqual(after(1), { 1: ["c.3", true], 2: ["", true], 3: ["b.2", false] });
  assert.deepEqual(after(2), { 1: ["", true], 2: ["b.2", false], 3: ["b.2", false] });
  const base = Pool.of({ step: 2, sequences: [{ sequence: 1, request: "b.2", pages: [3] }, { sequence: 2, request: "c.3", pages: [1] }], cached: [1, 2] });
  assert.deepEqual(after(2, base), after(2));
  assert.equal(replay(events, base, 1).complete, true);
  assert.equal(replay(events.slice(1), null, 2).complete, false);
});

test("pages that leave the window stay in the map", () => {
  const store = new Store();
  const steps = Array.from({ length: BOUNDS.steps + 5 }, (_, i) => step(i, {
    batch: [{ sequence: i, request: `a.${i}` }], pages: { ended: i ? [i - 1] : [], owners: [[i, 0, [i % 7]]] },
  }));
  store.add({ engine: "1", steps });
  const pool = replay(store.steps, store.pool, steps.at(-1).id);
  assert.equal(pool.complete, true);
  assert.deepEqual(pool.cells().map((c) => c.owners[0].request), [`a.${steps.length - 1}`]);
});

test("a prefix tree is runs of pages without a fork", () => {
  const node = (page, parent, hits = 0, sequences = []) => ({ page, parent, hits, used: page, sequences, text: "x" });
  const [root, ...others] = prefixRuns({ page_size: 16, nodes: [node(4, null, 2), node(5, 4, 2), node(6, 5), node(7, 5, 0, [3])] });
  assert.equal(others.length, 0);
  assert.deepEqual([root.pages, root.tokens, root.hits, root.text], [[4, 5], 32, 2, "xx"]);
  assert.deepEqual(root.children.map((c) => [c.pages, c.depth, c.sequences]), [[[6], 32, []], [[7], 32, [3]]]);
});

test("rounds of guessing", () => {
  const round = (id, n, accepted) => step(id, {
    ms: { draft: 1, forward: 15 }, batch: [{ request: "a.1", sequence: 4, kind: "verify", tokens: n + 1, context: 20 }],
    drafts: [{ request: "a.1", sequence: 4, guessed: Array.from({ length: n }, (_, i) => i), accepted }],
  });
  const steps = [round(1, 3, 3), round(2, 3, 0), round(3, 1, 1), step(4, { batch: [{ kind: "decode", tokens: 1 }] })];
  const rounds = roundsOf(steps);
  assert.deepEqual(rounds.map((r) => [r.drafted, r.accepted]), [[3, 3], [3, 0], [1, 1]]);
  assert.deepEqual(acceptance(rounds), [2 / 3, 1 / 2, 1 / 2]);
  assert.deepEqual(roundsOf(steps, "b.2"), []);
  assert.deepEqual(netTime(steps), { saved: 40, spent: 18, net: 22 });
  assert.equal(netTime(steps.slice(0, 3)), null);
  // Of a batch of four one sequence got four tokens more: as much as one plain step gives.
  const batch = Array.from({ length: 4 }, (_, i) => ({ request: `a.${i}`, sequence: i, kind: i ? "decode" : "verify", tokens: 1 }));
  const one = step(5, { ms: { draft: 1, forward: 12 }, batch, drafts: [{ request: "a.0", sequence: 0, guessed: 4, accepted: 4 }] });
  assert.deepEqual(netTime([one, step(6, { batch })]), { saved: 10, spent: 3, net: 7 });
  // Two requests in a step: each has its own tokens, and the part of the time that its guesses had.
  const both = { ...one, drafts: [{ request: "a.0", guessed: 3, accepted: 2 }, { request: "a.1", guessed: 1, accepted: 0 }] };
  const each = ["a.0", "a.1", null].map((request) => netTime([both, step(6, { batch })], request));
  assert.deepEqual(each.map(({ saved, spent }) => [saved, spent]), [[5, 2.25], [0, 0.75], [5, 3]]);
  assert.equal(netTime([both, step(6, { batch })], "a.2"), null);
});

test("a round tells p, q and what was drawn, as far as they are known", () => {
  const drafts = [{ request: "a.1", sequence: 4, guessed: [5, 6, 7], accepted: 1, checks: [[0.5, null, 0.25], [0.125, 0.5, 0.75]] }];
  const [round] = roundsOf([step(1, { drafts })]);
  assert.deepEqual(round.checks, [{ p: 0.5, q: null, drawn: 0.25 }, { p: 0.125, q: 0.5, drawn: 0.75 }]);
  assert.deepEqual(roundsOf([step(1, { drafts: [{ request: "a.1", guessed: 1, accepted: 0 }] })])[0].checks, []);
});

test("marks are found by place and walked by direction", () => {
  const marks = [[0, 0], [20, 0], [40, 0], [20, 20]].map(([x, y], i) => ({ key: i, x, y, w: 10, h: 10 }));
  assert.equal(hit(marks, 25, 5).key, 1);
  assert.equal(hit(marks, 15, 5), null);
  assert.equal(neighbour(marks, marks[0], [1, 0]).key, 1);
  assert.equal(neighbour(marks, marks[1], [0, 1]).key, 3);
  assert.equal(neighbour(marks, marks[2], [1, 0]).key, 2);
});

test("quantiles", () => {
  assert.equal(quantile([3, 1, 2], 0.5), 2);
  assert.equal(quantile([], 0.5), null);
});

test("a token that is part of a character is read by its bytes", () => {
  const content = [{ token: "bytes:\\xf0\\x9f", logprob: -1, top_logprobs: [{ token: " cat", logprob: -2 }] }];
  assert.deepEqual(tokensOf({ content }), [{ text: "‹F0 9F›", logprob: -1, top: [[null, " cat", -2]] }]);
  const bytes = { tokens: ["bytes:\\x98", "bytes: no"], token_logprobs: [-1, -3], top_logprobs: [{ "bytes:\\x98": -1 }, null] };
  assert.deepEqual(tokensOf(bytes).map((t) => t.text), ["‹98›", "bytes: no"]);
});

test("names go where they cover neither a dot nor each other, and are left out where there is no room", () => {
  const dots = [{ x: 100, y: 50, r: 5 }, { x: 115, y: 50, r: 5 }];
  const [first, second] = placed([{ ...dots[0], text: "left" }, { ...dots[1], text: "right" }], dots, [0, 400]);
  assert.ok(first.at[0] < 95 && second.at[0] > 120);
  const crowd = Array.from({ length: 40 }, () => ({ x: 100, y: 50, r: 5, text: "one of many" }));
  const kept = placed(crowd, crowd, [0, 400]);
  assert.ok(kept.length > 1 && kept.length < 9);
  assert.equal(new Set(kept.map(({ at }) => at.join())).size, kept.length);
  assert.deepEqual(placed([{ x: 10, y: 50, r: 5, text: "a name that is wider than all there is" }], [], [0, 60]), []);
});

test("what makes a token cheaper follows from bytes and operations", () => {
  const shape = { weights: 90e6, bytes: 10e6, operations: 1e6 };
  const bound = cheaper(shape, 10, 10, 1e6); // nothing but memory counts
  assert.ok(Math.abs(bound.together - (90 + 100) / 10 / 100) < 1e-9);
  assert.ok(Math.abs(bound.half_bits - 0.55) < 1e-9);
  assert.ok(Math.abs(bound.guessed - 1 / 2.7731) < 1e-4);
  const busy = cheaper({ weights: 1, bytes: 0, operations: 1e9 }, 8, 10, 10); // nothing but arithmetic does
  assert.ok(Math.abs(busy.together - 1) < 1e-9 && Math.abs(busy.half_bits - 1) < 1e-9 && busy.guessed > 1);
  assert.equal(cheaper(shape, 8, null, null), null);
});

const simulated = (rate, ttft) => ({
  requests_per_second: rate, tokens_per_second: 100 * rate, prompt_share: 0.25, busy: rate / 4, keeps_up: true,
  ttft: { p50: { mean: ttft, low: ttft, high: ttft }, p95: { mean: 2 * ttft, low: ttft, high: 3 * ttft } }, itl: { p50: null, p95: null },
});

test("a forecast is read between the loads it was made for", () => {
  const told = { saturation: { requests_per_second: 4 }, curve: [simulated(1, 0.1), simulated(3, 0.3), simulated(4, 0.9)] };
  assert.equal(Math.round(at(told, 0.5).ttft_p50), 200);
  assert.equal(Math.round(at(told, 0.5).ttft_p95), 400);
  assert.equal(at(told, 0.01).ttft_p50, 100); // below the first load: that of the first
  assert.equal(at(told, 2).ttft_p50, 900);
  assert.equal(at(told, 0.5).itl_p50, null);
});

test("an hour's price is divided as the steps' time is", () => {
  const here = { tokens_per_second: 50, prompt_share: 0.2 };
  const { prompt, answer } = costs(here, { prompt: 100, output: 50, replicas: 2 }, 3.6);
  const spent = (prompt * 100 + answer * 50) / 1e6; // a second: 100 prompt tokens, 50 of answers
  assert.ok(Math.abs(spent - (2 * 3.6) / 3600) < 1e-12);
  assert.equal(costs(here, { prompt: 1, output: 1, replicas: 1 }, 0), null);
});

test("a request's load is how many came around it", () => {
  const requests = [100, 101, 104, 130].map((at_) => request(`r${at_}`, at_, { output_tokens: 3 }));
  const steps = Array.from({ length: 40 }, (_, i) => step(i, { start: 99 + i, batch: [{}, {}] }));
  assert.deepEqual(measuredPoints(steps, requests).map((p) => p.rate), [0.3, 0.3, 0.3, 0.1]);
});

test("who is not over waits, or answers, until now", () => {
  const waiting = request("e.1", 10, { state: "queued", started: null, first_token: null, last_token: null, finished: null, sent: null });
  assert.equal(Math.round(stages(waiting, 15).queue), 4990);
  assert.equal(Math.round(stages(waiting, 15).total), 5000);
  assert.equal(stages(waiting, 15).unaccounted < 1e-6, true);
  assert.deepEqual(stretches(waiting, 15).at(-1), { stage: "queue", from: 10.01, to: 15 });
  const running = request("e.2", 10, { state: "running", last_token: 10.2, finished: null, sent: null });
  const told = stages(running, 12);
  assert.equal(Math.round(told.decode), 1896); // to now, less the text made of it
  assert.equal(told.send, 0);
  assert.equal(stretches(running, 12).some(({ stage }) => stage === "send"), false);
  assert.equal(stages(request("e.3", 10), 99).total.toFixed(0), "520"); // one that is over does not grow
});

const heldBy = (id, start, ...parts) => step(id, { start, batch: parts.map(([owner, tokens]) => ({ request: owner, sequence: 1, kind: "decode", tokens, context: 5 })) });

test("the company of a request before its first token", () => {
  const steps = [heldBy(1, 1, ["a", 4]), heldBy(2, 2, ["a", 1], ["b", 9], ["c", 20]), heldBy(3, 3, ["b", 2])];
  assert.deepEqual(company(steps, "b", 1.5, 2.5), { own: 9, of: 30, steps: 1, others: ["c", "a"] });
  assert.deepEqual(company(steps, "b", 3.5, 9), { own: 0, of: 0, steps: 0, others: [] });
});

test("a selected step is among those that are shown", () => {
  const steps = Array.from({ length: 50 }, (_, id) => step(id));
  assert.deepEqual(around(steps, 3, null).map((s) => s.id), [47, 48, 49]);
  assert.deepEqual(around(steps, 3, 49).map((s) => s.id), [47, 48, 49]);
  for (const id of [0, 1, 20, 46]) assert.ok(around(steps, 4, id).some((s) => s.id === id));
  assert.equal(around(steps, 4, 0).length, 4);
  assert.equal(around(steps, 99, 0).length, 50);
});

test("the time that is shown is that of the last requests, or of one that ended before them", () => {
  const store = new Store();
  assert.equal(windowOf(store, null), null);
  const nobodys = step(9, { start: 500, batch: [{ request: null, sequence: 3, kind: "prefill", tokens: 4 }] });
  store.add({ steps: [heldBy(1, 200, ["e.2", 1]), nobodys], requests: [request("e.1", 10), request("e.2", 200)] });
  assert.ok(latest(store) < 201); // a second look at somebody's scores is not traffic
  const [from, to] = windowOf(store, null);
  assert.ok(from > 199 && from < 200 && to > 200.52 && to < 201);
  const [early, late] = windowOf(store, "e.1");
  assert.ok(early < 10 && late > 10.52 && late < 11);
  assert.deepEqual(windowOf(store, "nobody"), [from, to]);
});

test("a short logarithmic axis has round steps that hold all values", () => {
  assert.deepEqual(roundSteps([3, 41]), [2, 5, 10, 20, 50]);
  assert.deepEqual(roundSteps([5]), [5, 10]);
  assert.deepEqual(roundSteps([0.02, 0.2]), [0.02, 0.05, 0.1, 0.2]);
  assert.deepEqual(roundSteps([0, -1]), [0.1, 1]);
  for (const values of [[0.0007, 900], [999, 1001], [1, 1]]) {
    const steps = roundSteps(values);
    assert.ok(steps[0] <= values[0] && steps.at(-1) >= values[1] && steps.length > 1);
  }
});

test("a roof says from when to when it was measured", () => {
  const machine = { peak_gb_per_s: 30, peak_gops_int8: 0, best_since: 1000, measured_at: 1900 };
  assert.deepEqual(peaks({ machine }), { bandwidth: 30, int8: null, f32: null, measured: { best_since: 1000, measured_at: 1900 } });
  assert.deepEqual(peaks(null).measured, { best_since: null, measured_at: null });
  assert.match(clock(1900), /^\d\d:\d\d$/);
  assert.notEqual(clock(1000), clock(1900));
});
