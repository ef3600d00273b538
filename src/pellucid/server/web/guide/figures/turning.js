// A token's row is looked up, and turned pair by pair as its position grows.

import { svg } from "../../core/dom.js";
import { numbers } from "../ask.js";
import { DEFAULTS } from "../defaults.js";
import { cells, label, picture, visible } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";

const POSITIONS = 48;

export function turning(host) {
  const figure = frame(host, "What becomes of a token's number?", "live");
  figure.busy(async () => {
    const seen = await figure.ask("/guide/look", { prompt: DEFAULTS.prompt });
    animate(figure, framesOf(seen), { every: 260 });
  });
}

function framesOf(seen) {
  const { id, text } = seen.tokens.at(-1);
  const base = numbers.rope_base ?? 10000, pairs = (numbers.rope_dims ?? numbers.head_size) / 2;
  const at = (position, stage) => (w) => drawn(w, { seen, id, text: visible(text), stage, hands: handsOf(base, pairs, w > 480 ? 6 : 4, position) });
  const row = `row ${id.toLocaleString("en")} of ${numbers.vocab.toLocaleString("en")}`;
  return [
    { says: `The last token of “${DEFAULTS.prompt}” is “${visible(text)}”, number ${id.toLocaleString("en")}. The number itself means nothing.`, picture: at(0, 0) },
    { says: `It picks a row: ${row} in the table. These are the first ${seen.row.length} of its ${numbers.hidden} numbers, as they are in this model.`, picture: at(0, 1) },
    { says: "Each layer makes queries and keys of it, and reads their features in pairs, each pair as a hand of a clock. At position 0 no hand is turned.", picture: at(0, 2) },
    ...Array.from({ length: POSITIONS }, (_, i) => ({ says: said(base, pairs, i + 1), picture: at(i + 1, 2) })),
  ];
}

function said(base, pairs, position) {
  const turns = (pair) => (position * base ** (-pair / pairs)) / (2 * Math.PI);
  return `Position ${position}: the first hand has gone round ${turns(0).toFixed(1)} times, the one in the middle ${turns(Math.floor(pairs / 2)).toFixed(3)}, the last ${turns(pairs - 1).toPrecision(2)}. Together they tell near places and far ones.`;
}

/** `count` pairs of all, from the first to the last: how far each is turned at `position`, in radians. */
export function handsOf(base, pairs, count, position) {
  return Array.from({ length: count }, (_, i) => {
    const pair = Math.round((i * (pairs - 1)) / (count - 1));
    return { pair, angle: position * base ** (-pair / pairs) };
  });
}

function drawn(w, { seen, id, text, stage, hands }) {
  const most = Math.max(...seen.row.map(Math.abs));
  const [x, width] = [8, w - 16];
  return picture(w, 226, "A token, its row of the table, and the hands of its pairs",
    label(x, 16, `token “${text}”, number ${id.toLocaleString("en")}`, { class: "strong" }),
    svg("rect", { x, y: 54, width, height: 24, class: "slot" }),
    stage < 1 ? null : [label(x, 46, `its row: ${seen.row.length} of ${numbers.hidden} numbers, ${w > 480 ? "blue above zero and orange below" : "orange below zero"}`), cells(seen.row, { x, y: 54, width, height: 24, most })],
    hands.map(({ pair, angle }, i) => clock(x + ((i + 0.5) * width) / hands.length, 146, pair, stage < 2 ? null : angle)));
}

function clock(x, y, pair, angle) {
  const [r, shown] = [34, Math.min(angle, 2 * Math.PI - 1e-3)];
  const end = (radius, by) => `${(x + radius * Math.cos(by)).toFixed(2)} ${(y - radius * Math.sin(by)).toFixed(2)}`;
  const swept = `M${end(r, 0)} A${r} ${r} 0 ${shown > Math.PI ? 1 : 0} 0 ${end(r, shown)}`;
  return [
    svg("circle", { cx: x, cy: y, r, class: "rule" }), label(x, y + 54, `pair ${pair}`, { "text-anchor": "middle" }),
    angle === null ? null : [svg("path", { d: `M${x} ${y} L${end(r - 4, angle)}`, class: "hand query" }), label(x, y + 70, `${turned(angle)} turns`, { "text-anchor": "middle" })],
    angle > 0 ? svg("path", { d: swept, class: "curve" }) : null,
  ];
}

function turned(angle) {
  const turns = angle / (2 * Math.PI);
  return turns === 0 || turns >= 0.01 ? turns.toFixed(2) : turns.toPrecision(2);
}
