// Pages: a small pool, three requests, and who owns what, step by step.

import { el, replace } from "../../core/dom.js";
import { frame } from "../frame.js";
import { Player } from "../player.js";

const PAGES = 16;
const SIZE = 4;
const TELLING = 6; // the picture that it begins with: two requests share pages
const SCRIPT = [
  ["take", "A", 3, "Request A arrives with 10 tokens. At four tokens a page it needs three pages, wherever they are free."],
  ["take", "B", 2, "Request B arrives with 7 tokens: two pages more. Nobody had to reserve room for the longest possible answer."],
  ["take", "A", 1, "A's answer grows past its third page, and takes a fourth. It need not lie beside the others: a table says where it is."],
  ["take", "B", 1, "B grows too. The pages of both are mixed in memory, and that costs nothing."],
  ["end", "A", 0, "A ends. Its full pages lose their owner but keep their keys and values: a later prompt may begin the same."],
  ["share", "C", 2, "Request C begins with the same 8 tokens as A did. It takes A's first two pages as they are: eight positions that need not be computed."],
  ["take", "C", 1, "What differs from there on goes to a page of C's own."],
  ["take", "B", 6, "B grows on, and uses the free pages first."],
  ["take", "D", 4, "Request D needs four pages and two are free: the two that nobody has used for longest are given up, and what they held is forgotten."],
  ["end", "B", 0, "B ends. A page goes from hand to hand like this thousands of times a minute, and none may be lost: the tests count them after every step."],
];

export function pages(host) {
  const figure = frame(host, "How do many answers share one memory?", "simulated");
  const states = statesOf(SCRIPT);
  const grid = el("div", { class: "pool" });
  const player = new Player(states.length, (at) => {
    replace(grid, states[at].cells.map((cell, i) => el("span", { class: `cell ${cell.kind}`, data: cell.owners.length ? { paint: `request-${"ABCD".indexOf(cell.owners.at(-1)) * 2}` } : {} }, cell.owners.join("+") || (cell.kind === "cached" ? "kept" : ""), el("small", {}, i))));
    figure.say(states[at].says);
  }, { every: 2600 });
  figure.picture.append(grid, player.element);
  player.show(TELLING);
}

/** The pool after each line of a script: for every page its kind (free, owned, cached) and owners. */
export function statesOf(script) {
  let cells = Array.from({ length: PAGES }, () => ({ kind: "free", owners: [], used: 0 }));
  const states = [{ cells, says: `A pool of ${PAGES} pages, each with room for the keys and values of ${SIZE} tokens. All are free.` }];
  const shared = [];
  script.forEach(([act, who, count, says], now) => {
    cells = cells.map((cell) => ({ ...cell, owners: [...cell.owners] }));
    if (act === "take") take(cells, who, count, now, shared);
    if (act === "share") for (const at of shared.slice(0, count)) own(cells[at], who, now);
    if (act === "end") {
      for (const cell of cells.filter((one) => one.owners.includes(who))) {
        cell.owners = cell.owners.filter((owner) => owner !== who);
        if (!cell.owners.length) Object.assign(cell, { kind: "cached", used: now });
      }
    }
    states.push({ cells, says });
  });
  return states;
}

function take(cells, who, count, now, shared) {
  for (let i = 0; i < count; i++) {
    const free = cells.findIndex((cell) => cell.kind === "free");
    const oldest = cells.reduce((best, cell, at) => (cell.kind === "cached" && (best < 0 || cell.used < cells[best].used) ? at : best), -1);
    const at = free >= 0 ? free : oldest;
    own(cells[at], who, now);
    if (who === "A") shared.push(at);
  }
}

const own = (cell, who, now) => Object.assign(cell, { kind: "owned", owners: [...cell.owners, who], used: now });
