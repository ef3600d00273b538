// Requests that come, wait, are prefilled and answered: rounds of the engine as the model's numbers have them.

import { svg } from "../../core/dom.js";
import { duration } from "../../core/format.js";
import { numbers } from "../ask.js";
import { label, picture, scale } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";
import { bound, MACHINES, stepOf } from "./roofline.js";

const PLACES = 3, CHUNK = 128;
const REQUESTS = [[0, 96, 10], [0, 64, 14], [1, 128, 8], [2, 512, 8], [3, 64, 6], [9, 96, 7]]; // at which round's end each comes, prompt, answer
const NAMES = "ABCDEF";

export function queue(host) {
  const figure = frame(host, "Who waits for what, when six requests come?", "simulated");
  const rounds = roundsOf(numbers, MACHINES.laptop, REQUESTS, PLACES, CHUNK);
  animate(figure, rounds.map((round, now) => ({ says: said(rounds, now), picture: (w) => drawn(rounds, now, w) })), { every: 500, first: rounds.length - 1 });
}

/**
 * Round by round `{from, to, batch}` in seconds: each running answer gets its next token, and what is left of `chunk` positions goes to
 * prompts, oldest first. A round takes what the roofline says at least. `batch` has `[request, "prefill" | "decode", gives a token]`.
 */
export function roundsOf(model, machine, requests, places, chunk) {
  const states = requests.map(([comes, prompt, answer]) => ({ comes, prompt, answer, done: 0, given: 0 }));
  const rounds = [{ from: 0, to: 0, batch: [] }];
  while (states.some((one) => one.given < one.answer)) {
    const here = states.filter((one) => one.comes < rounds.length && one.given < one.answer);
    const running = here.slice().sort((a, b) => Number(b.done > 0) - Number(a.done > 0)).slice(0, places);
    const batch = [];
    let left = chunk, operations = 0, bytes = model.weight_bytes;
    for (const one of running.toSorted((a, b) => Number(b.given > 0) - Number(a.given > 0))) {
      const rows = one.given > 0 ? 1 : Math.min(left, one.prompt - one.done);
      if (!rows) continue;
      left -= rows;
      const step = stepOf(model, 1, one.done + rows);
      operations += rows * step.operations;
      bytes += step.bytes - model.weight_bytes;
      one.done += rows;
      const gives = one.done >= one.prompt;
      batch.push([states.indexOf(one), one.given > 0 ? "decode" : "prefill", gives]);
      one.given += gives ? 1 : 0;
    }
    const from = rounds.at(-1).to;
    rounds.push({ from, to: from + bound({ operations, bytes }, machine).seconds, batch });
  }
  return rounds;
}

/** When a request came, and when each of its tokens did, until round `now`; in seconds. */
export function lifeOf(rounds, requests, request, now) {
  const came = requests[request][0] === 0 ? 0 : rounds[requests[request][0]].to;
  const seen = rounds.slice(0, now + 1).filter(({ batch }) => batch.some(([one]) => one === request));
  return { came, spans: seen, tokens: seen.filter(({ batch }) => batch.some(([one, , gives]) => one === request && gives)).map(({ to }) => to) };
}

function said(rounds, now) {
  if (now === 0) return `${PLACES} places, and at most ${CHUNK} positions in a round. Prompts are computed in the order in which they came. The times are the least for this model on ${MACHINES.laptop.name}.`;
  const { from, to, batch } = rounds[now];
  const prefilled = batch.filter(([, kind]) => kind === "prefill").map(([one]) => NAMES[one]), decoding = batch.length - prefilled.length;
  const waiting = REQUESTS.filter(([comes], i) => comes < now && !lifeOf(rounds, REQUESTS, i, now).spans.length).length;
  const parts = [decoding ? `${decoding} ${decoding === 1 ? "answer gets" : "answers get"} a token` : "", prefilled.length ? `a part of the prompt of ${prefilled.join(", ")} is computed` : ""].filter(Boolean).join(", ");
  return `Round ${now} takes ${duration(1000 * (to - from))}: ${parts}.${waiting ? ` ${waiting} ${waiting === 1 ? "waits" : "wait"} for a place.` : ""}${prefilled.length && decoding ? " The answers beside it feel it: this gap between their tokens is longer." : ""}`;
}

function drawn(rounds, now, w) {
  const end = rounds.at(-1).to, x = 26, across = scale(0, end, x, w - 10), each = 38;
  return picture(w, 40 + REQUESTS.length * each, "Each request's wait, prefill and tokens", REQUESTS.map((_, i) => lane(i, rounds, now, across, 8 + i * each, w)),
    label(x, 26 + REQUESTS.length * each, "0"), label(w - 10, 26 + REQUESTS.length * each, duration(1000 * end), { "text-anchor": "end" }),
    svg("line", { x1: across(rounds[now].to), x2: across(rounds[now].to), y1: 4, y2: 10 + REQUESTS.length * each, class: "rule" }));
}

function lane(i, rounds, now, across, y, w) {
  const { came, spans, tokens } = lifeOf(rounds, REQUESTS, i, now);
  const name = label(8, y + 15, NAMES[i], { class: "strong" });
  if (came > rounds[now].to || (now === 0 && REQUESTS[i][0] > 0)) return name;
  const begins = spans[0]?.from ?? rounds[now].to, box = (from, to, kind) => svg("rect", { x: across(from), y, width: Math.max(0, across(to) - across(from)), height: 16, class: kind });
  const first = tokens[0], gaps = tokens.slice(1).map((when, k) => when - tokens[k]);
  const words = first === undefined ? "" : `TTFT ${duration(1000 * (first - came))}${gaps.length ? `, ITL ${duration((1000 * gaps.reduce((a, b) => a + b, 0)) / gaps.length)}` : ""}`;
  const right = across(came) > w * 0.55;
  return [name, svg("circle", { cx: across(came), cy: y + 8, r: 3, class: "dot" }), box(came, begins, "slot"), spans.length ? box(begins, first ?? spans.at(-1).to, "wait") : null,
    tokens.map((when) => svg("line", { x1: across(when), x2: across(when), y1: y - 1, y2: y + 17, class: "tick" })),
    label(right ? w - 10 : across(came), y + 28, words, right ? { "text-anchor": "end" } : {})];
}
