// The residual stream, layer by layer: what is on the board, how large it is, and what each layer adds.

import { el, svg } from "../../core/dom.js";
import { numbers } from "../ask.js";
import { DEFAULTS } from "../defaults.js";
import { bar, cells, label, picture, scale, visible } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";

const SHADE = 0.4; // the last layers add so much more that a plain scale would show nothing else

export function stream(host) {
  const figure = frame(host, "What do the layers make of a vector?", "live");
  figure.busy(async () => {
    const seen = await figure.ask("/guide/look", { prompt: DEFAULTS.prompt });
    animate(figure, seen.sizes.map((_, at) => ({ says: said(seen, at), picture: (w) => drawn(seen, at, w) })), { every: 500, first: seen.sizes.length - 1 });
  });
}

function said({ tokens, sizes, added, lens }, at) {
  const now = `Read out now, it would say “${visible(lens[at][0].text)}”.`;
  if (at === 0) return `The stream of the last token, “${visible(tokens.at(-1).text)}”, begins as its row of the table. ${now}`;
  const times = sizes[at] / sizes[0];
  return `Layer ${at} has added a vector of size ${short(added[at])}; the stream has size ${short(sizes[at])}, ${times >= 2 ? `${times.toFixed(times < 10 ? 1 : 0)} times as much as at the beginning` : "not twice that of the beginning"}. ${now}`;
}

function drawn(seen, at, w) {
  const most = Math.max(...seen.sizes);
  return el("div", {}, board(seen, at, w), bar("the stream", seen.sizes[at] / most, short(seen.sizes[at])), bar(at ? `layer ${at} added` : "the table gave", seen.added[at] / most, short(seen.added[at]), "second"));
}

/** Every layer so far as a row of cells, and the sizes beside them. */
function board(seen, at, w) {
  const rows = seen.stream.length, each = Math.min(12, 260 / rows), x = 64, width = (w - x) * 0.62;
  const most = Math.max(...seen.stream.flat().map(Math.abs)) ** SHADE;
  const left = x + width + 14;
  const across = scale(0, Math.max(...seen.sizes), left, w - 8), down = (row) => 24 + (row + 0.5) * each;
  const named = (row) => (row === 0 ? "table" : `layer ${row}`);
  return picture(w, 30 + rows * each, "The largest numbers of the stream after each layer, and its size",
    label(x, 14, `${seen.features.length} of ${numbers.hidden} numbers, the largest`), label(left, 14, "size"),
    svg("rect", { x, y: 24, width, height: rows * each, class: "slot" }),
    seen.stream.slice(0, at + 1).map((row, i) => cells(row.map((v) => Math.sign(v) * Math.abs(v) ** SHADE), { x, y: 24 + i * each, width, height: each - 1, most })),
    [0, at].map((row) => label(x - 6, down(row) + 4, named(row), { "text-anchor": "end", class: row === at ? "strong" : null })).slice(at === 0 || at * each < 12 ? 1 : 0),
    svg("polyline", { points: seen.sizes.slice(0, at + 1).map((size, row) => `${across(size).toFixed(1)},${down(row).toFixed(1)}`).join(" "), class: "curve" }),
    svg("circle", { cx: across(seen.sizes[at]), cy: down(at), r: 4, class: "dot" }));
}

const short = (value) => Number(value.toPrecision(3)).toLocaleString("en");
