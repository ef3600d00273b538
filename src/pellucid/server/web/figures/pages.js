// Figure 5: the pool of pages, a cell each: whose it is, whether it is shared, kept or free.

import { el } from "../core/dom.js";
import { num, percent, plural, bytes } from "../core/format.js";
import { requestPaint, shortName } from "../core/names.js";
import { legend } from "../draw/legend.js";
import { Plot } from "../draw/plot.js";
import { hatch, write } from "../draw/surface.js";
import { replay, tellsOwners } from "../model/pool.js";

const HEIGHT = 170;
const LEAST = 96;

export const pageMap = {
  name: "pages",
  number: 5,
  title: "Page map",
  question: "Who owns the KV memory?",

  view(app) {
    const { step } = app;
    const cache = app.store.about?.cache;
    if (!step || !cache) return { ...app.nothing, cells: [] };
    if (!tellsOwners(app.store.steps)) return { empty: "not known", why: "These records do not say who owns which page.", cells: [] };
    const pool = app.store.derived(`pool ${step.id}`, (store) => replay(store.steps, store.pool, step.id, (id) => isOver(store.request(id), step.id)));
    const cells = pool.cells();
    return {
      step: step.id, n_pages: cache.n_pages, page_size: cache.page_size, bytes_per_page: cache.bytes_per_page, complete: pool.complete,
      counts: { free: step.pages.free, cached: step.pages.cached, owned: step.pages.owned },
      cells,
      shown_pages: pagesShown(app, cache.n_pages),
      checks: (step.checks ?? []).filter((check) => /page/i.test(check)),
    };
  },

  sentence(view) {
    const { owned, cached, free } = view.counts;
    const owners = new Set(view.cells.flatMap(requestsOf));
    const shared = view.cells.filter((cell) => cell.owners.length > 1).length;
    const said = [
      `After step ${view.step} `, num(plural(owned, "page")), ` of ${view.n_pages} belonged to ${owners.size ? plural(owners.size, "request") : "requests"} (`, num(bytes(owned * view.bytes_per_page)), "), ",
      num(String(cached)), " were kept for whoever begins alike, ", num(percent(free / view.n_pages)), " were free",
    ];
    if (shared) said.push("; ", num(plural(shared, "page")), " had more than one owner");
    said.push(".");
    if (!view.complete) said.push(" Pages that were taken before the window began are drawn as free.");
    if (view.checks.length) said.push(` Does not add up: ${view.checks.join("; ")}.`);
    return said;
  },

  table(view) {
    return {
      caption: `Pages that are not free after step ${view.step}`,
      columns: [{ name: "page" }, { name: "owners", number: false }, { name: "holds tokens", number: false }, { name: "in the prefix cache", number: false }, { name: "since step" }],
      rows: view.cells.map((c) => [c.page, whose(c), span(view, c), c.cached ? "yes" : "no", c.since]),
    };
  },

  mount(body, app, redraw) {
    const plot = new Plot(app, "Pages of the KV cache");
    plot.onFocusMark = redraw;
    const scrub = el("input", { type: "range", min: "0", max: "0", step: "1", aria: { label: "Step" }, on: { input: () => {
      const step = app.store.steps[Number(scrub.value)];
      if (step) app.selection.set({ step: step.id });
    } } });
    body.append(plot.element);
    return {
      controls: [el("label", {}, "step back in time", scrub), el("button", { type: "button", on: { click: () => app.selection.set({ step: null, time: null }) } }, "Now")],
      draw(view, width) {
        const steps = app.store.steps;
        scrub.max = String(Math.max(0, steps.length - 1));
        scrub.value = String(steps.findIndex((s) => s.id === view.step));
        draw(plot, app, view, width);
      },
      legend: legend(["request-4", "owned (hue: request)"], ["request-4", "shared by several", "outline"], ["cache", "kept, nobody's"], ["free", "free"]),
    };
  },
};

/** Pages from 0 on that hold every page of the window's events: drawing thousands that were never used says nothing. */
function pagesShown(app, all) {
  const last = app.store.derived("highest page", (store) => {
    const events = store.steps.flatMap(({ pages }) => [...(pages?.taken ?? []), ...(pages?.shared ?? []), ...(pages?.released ?? [])]);
    const known = store.pool === null ? [] : store.pool.cells().map((cell) => cell.page);
    return [...events, ...known].reduce((a, b) => Math.max(a, b), 0);
  });
  return Math.min(all, Math.max(LEAST, Math.ceil((last + 1) / 32) * 32));
}

/** Whether a request's last step was `step` or one before. */
const isOver = (request, step) => Boolean(request) && !["queued", "running"].includes(request.state) && (request.steps?.[1] ?? Infinity) <= step;

function draw(plot, app, view, width) {
  const { paints, selection } = app;
  const shown = view.shown_pages;
  const size = Math.max(4, Math.min(20, Math.floor(Math.sqrt((width * HEIGHT) / shown))));
  const across = Math.max(1, Math.floor(width / size));
  const bottom = Math.ceil(shown / across) * size;
  const place = (page) => [(page % across) * size, Math.floor(page / across) * size];
  const chosen = selection.hovered.request ?? selection.current.request;
  const marks = view.cells.map((cell) => {
    const [x, y] = place(cell.page);
    return {
      key: `page ${cell.page}`, x, y, w: size - 1, h: size - 1, cell, over: { request: requestsOf(cell)[0] ?? null },
      choose: requestsOf(cell).length ? () => selection.toggle({ request: requestsOf(cell)[0] }) : undefined, tip: () => tip(app, view, cell),
    };
  });
  const rest = view.n_pages - shown;
  plot.render(width, bottom + (rest ? 20 : 2), marks, (ctx) => {
    ctx.fillStyle = paints.of("free");
    for (let page = 0; page < shown; page += 1) {
      const [x, y] = place(page);
      ctx.fillRect(x, y, size - 1, size - 1);
    }
    for (const mark of marks) paintCell(ctx, paints, mark, chosen);
    if (rest) write(ctx, `and ${rest} more pages, none of them used in the window`, 0, bottom + 11, { paint: paints.quiet });
  });
}

function paintCell(ctx, paints, { x, y, w, h, cell }, chosen) {
  const requests = requestsOf(cell);
  ctx.globalAlpha = chosen !== null && !requests.includes(chosen) ? 0.3 : 1;
  const owner = requests.includes(chosen) ? chosen : requests[0];
  ctx.fillStyle = paints.of(owner ? requestPaint(owner) : cell.owners.length ? "quiet" : "cache");
  ctx.fillRect(x, y, w, h);
  if (cell.owners.length > 1) {
    if (w > 5) hatch(ctx, x, y, w, h, paints.of("card"), 4);
    ctx.strokeStyle = paints.ink;
    ctx.lineWidth = 1;
    ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  }
  ctx.globalAlpha = 1;
}

const requestsOf = (cell) => [...new Set(cell.owners.map((owner) => owner.request))].filter((request) => request !== null);

/** Who owns a page, in words; a sequence that is no request's has no name. */
const whose = (cell) => [...new Set(cell.owners.map(({ request }) => (request === null ? "a text that is scored" : shortName(request))))].join(", ") || "nobody";

/** Whose text tells what a page holds: an owner's, or where nobody owns it, that of who had it last. */
const reader = ({ owners, last }) => owners.find(({ request }) => request !== null) ?? (last?.request ? last : null);

/** Which tokens of its owners' texts a page holds. */
function span(view, cell) {
  const at = cell.owners[0] ?? cell.last;
  return at ? `${at.index * view.page_size + 1} to ${(at.index + 1) * view.page_size}` : "a prefix";
}

/** `{text, why}` of a page: of the prefix tree where that tells texts, else of a request that has or had it. */
function textOf(app, view, cell) {
  const node = app.store.prefix?.nodes.find(({ page }) => page === cell.page);
  if (cell.cached && typeof node?.text === "string") return { text: node.text };
  const at = reader(cell);
  const request = at && app.store.request(at.request);
  if (!request) return { text: null, why: cell.owners.length ? "it is no request's." : "who had it is not known any more." };
  const [from, to] = [at.index * view.page_size, (at.index + 1) * view.page_size];
  const { pieces, why } = app.answers.positions(request, Math.max(0, (request.sequences ?? []).indexOf(at.sequence)), to);
  return pieces === null ? { text: null, why } : { text: pieces.slice(from, to).join("") };
}

const MOST_TEXT = 240;

function clipped(text) {
  if (text === "") return "(nothing as yet)";
  return JSON.stringify(text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text);
}

function tip(app, view, cell) {
  const last = app.store.step(view.step);
  const since = app.store.step(cell.since);
  const { text, why } = textOf(app, view, cell);
  const rows = [
    ["owners", whose(cell)],
    ...(cell.owners.length || !cell.last?.request ? [] : [["had last by", shortName(cell.last.request)]]),
    ["holds tokens", span(view, cell)],
    ["in the prefix cache", cell.cached ? "yes" : "no"],
    ["since", `step ${cell.since}`],
    ["size", bytes(view.bytes_per_page)],
  ];
  if (since && last) rows.push(["age", `${(last.start - since.start).toFixed(2)} s`, "measured"]);
  return {
    title: `Page ${cell.page}`, paint: requestsOf(cell).length ? requestPaint(requestsOf(cell)[0]) : "cache", rows,
    note: text === null ? `Its text is not shown: ${why}` : clipped(text),
  };
}
