// Figure 6: the prefix cache as a tree: what it holds, and what it saved.

import { digits, duration, key, num, plural, bytes } from "../core/format.js";
import { requestPaint, shortName } from "../core/names.js";
import { xAxis } from "../draw/axes.js";
import { legend } from "../draw/legend.js";
import { Plot } from "../draw/plot.js";
import { linear, niceEnd } from "../draw/scales.js";
import { line, write } from "../draw/surface.js";
import { prefixRuns, replay } from "../model/pool.js";
import { kind, positions } from "../model/steps.js";

const ROW = 17;
const MOST_ROWS = 24;

export const prefixTree = {
  name: "prefix",
  number: 6,
  title: "Prefix tree",
  question: "What did the cache save?",

  view(app) {
    const { step } = app;
    const { about } = app.store;
    if (!step || !about) return { ...app.nothing, by_request: [], tree: null };
    if (app.store.requests.length === 0) return { ...app.nothing, by_request: [], tree: null };
    app.snapshots.tree();
    const { prefix } = app.store;
    const saved = app.requestsIn.filter((r) => r.cached_tokens > 0).map((r) => ({ request: r.id, name: shortName(r.id), paint: requestPaint(r.id), cached_tokens: r.cached_tokens, prompt_tokens: r.prompt_tokens }));
    const rate = msPerPosition(app.store.steps);
    const tokens = saved.reduce((sum, r) => sum + r.cached_tokens, 0);
    return {
      step: prefix?.step ?? step.id, unit: "tokens", page_size: about.cache.page_size,
      prompt_tokens: app.requestsIn.reduce((sum, r) => sum + (r.prompt_tokens ?? 0), 0),
      saved_tokens: tokens, saved_ms: rate === null ? null : tokens * rate, saved_bytes: tokens * about.model.kv_bytes_per_token,
      by_request: saved, selected: ofSelected(app, rate),
      kept_pages: step.pages.cached, ms_per_token: rate, bytes_per_token: about.model.kv_bytes_per_token,
      tree: prefix === null ? null : named(prefixRuns(prefix), sequencesOf(app.store.requests)),
      next_victim: prefix?.next_victim ?? null,
    };
  },

  sentence(view) {
    if (view.selected) return inWords(view.selected);
    if (!view.saved_tokens) return ["No prompt in the window began like one before it: the cache saved nothing, and keeps ", num(plural(view.kept_pages, "page")), " for those to come."];
    const said = [num(plural(view.saved_tokens, "prompt token")), ` of ${view.prompt_tokens} were not computed but taken from pages that were there`];
    if (view.saved_ms !== null) said.push(": about ", num(duration(view.saved_ms), "estimated"), " and ", num(bytes(view.saved_bytes), "predicted"), " of keys and values not spent");
    const [most] = view.by_request.toSorted((a, b) => b.cached_tokens - a.cached_tokens);
    return [...said, "; most for ", key(most.name, most.paint), ` (${most.cached_tokens} of ${most.prompt_tokens}).`];
  },

  table(view) {
    return {
      caption: "Requests that took pages from the cache",
      columns: [{ name: "request", number: false }, { name: "from the cache", unit: "tokens", mark: "measured" }, { name: "prompt", unit: "tokens", mark: "measured" }],
      rows: view.by_request.map((r) => [r.name, r.cached_tokens, r.prompt_tokens]),
    };
  },

  mount(body, app, redraw) {
    const plot = new Plot(app, "Prefixes that are kept, from left to right");
    plot.onFocusMark = redraw;
    body.append(plot.element);
    return {
      draw: (view, width) => (view.tree?.length ? drawTree(plot, app, view, width) : drawSaved(plot, app, view, width)),
      legend: legend(["heat-3", "used of late"], ["heat-0", "used longest ago"], ["ink", "the selected request's", "line"]),
    };
  },
};

/** What the selected request took from the cache, and the pages of its text; null where none is selected. */
function ofSelected(app, rate) {
  const { store } = app;
  const request = store.request(app.selection.current.request);
  if (!request) return null;
  const { id, cached_tokens: cached, prompt_tokens: prompt } = request;
  return {
    request: id, name: shortName(id), paint: requestPaint(id), cached_tokens: cached, prompt_tokens: prompt,
    saved_ms: rate === null ? null : cached * rate, saved_bytes: cached * store.about.model.kv_bytes_per_token,
    pages: store.derived(`pages of ${id}`, () => pagesOf(store, id)),
  };
}

/** The pages that a request had at the last: before the step that ended it, since after that nobody has any. */
function pagesOf({ steps, pool }, id) {
  const last = steps.filter((step) => step.batch.some((item) => item.request === id)).slice(-2)[0];
  const tables = last ? [...replay(steps, pool, last.id).tables.values()] : [];
  return tables.filter(({ request }) => request === id).flatMap(({ pages }) => pages);
}

function inWords({ name, paint, cached_tokens: cached, prompt_tokens: prompt, saved_ms: ms, saved_bytes: size }) {
  if (!cached) return [key(name, paint), ` took nothing from the cache: all ${plural(prompt, "token")} of its prompt were computed.`];
  const said = [key(name, paint), " took ", num(plural(cached, "token")), ` of its prompt's ${digits(prompt)} from the cache, and computed ${digits(prompt - cached)}: `];
  if (ms !== null) said.push("about ", num(duration(ms), "estimated"), " and ");
  return [...said, num(bytes(size), "predicted"), " of keys and values not spent."];
}

/** Sequences' requests, by the sequences' numbers. */
const sequencesOf = (requests) => new Map(requests.flatMap((r) => (r.sequences ?? []).map((sequence) => [sequence, r.id])));

/** The runs with the requests that own them now, in place of sequences. */
function named(runs, owner) {
  return runs.map(({ sequences, children, ...run }) => ({
    ...run, owners: [...new Set(sequences.map((s) => owner.get(s)).filter(Boolean))], owned: sequences.length > 0, children: named(children, owner),
  }));
}

/** Milliseconds of the forward pass for one more position of a prompt: by the step that computed most of them at once,
 * since in a short one it is the weights that take the time. */
function msPerPosition(steps) {
  const prompts = steps.filter((s) => kind(s) === "prefill");
  if (!prompts.length) return null;
  const longest = prompts.reduce((a, b) => (positions(b) > positions(a) ? b : a));
  return longest.ms.forward / positions(longest);
}

function layOut(tree) {
  const rows = [];
  const place = (node, parent) => {
    const row = { node, parent, y: rows.length };
    if (node.children.length === 0) rows.push(row);
    const kids = node.children.toSorted((a, b) => b.used - a.used).map((child) => place(child, row));
    row.y = kids.length ? (kids[0].y + kids.at(-1).y) / 2 : row.y;
    all.push(row);
    return row;
  };
  const all = [];
  for (const node of tree.toSorted((a, b) => b.used - a.used)) place(node, null);
  return { all, leaves: rows.length };
}

function drawTree(plot, app, view, width) {
  const { all, leaves } = layOut(view.tree);
  const shown = all.filter((row) => row.y < MOST_ROWS);
  const deepest = Math.max(1, ...shown.map(({ node }) => node.depth + node.tokens));
  const x = linear([0, niceEnd(deepest)], [4, width - 76]);
  const height = Math.min(leaves, MOST_ROWS) * ROW + 40;
  const uses = shown.map(({ node }) => node.used);
  const [old, fresh] = [Math.min(...uses), Math.max(...uses)];
  const victim = shown.find(({ node }) => node.pages.includes(view.next_victim))?.node ?? null;
  const chosen = app.selection.hovered.request ?? app.selection.current.request;
  const own = chosen === view.selected?.request ? pathOf(shown, view.selected) : new Set();
  const marks = shown.map(({ node, y }) => ({
    key: `run ${node.pages[0]}`, x: x(node.depth) + 1, y: y * ROW + 3, w: Math.max(2, x(node.depth + node.tokens) - x(node.depth) - 2), h: 11,
    node, own: chosen !== null && (node.owners.includes(chosen) || own.has(node)), heat: fresh === old ? 3 : Math.round((3 * (node.used - old)) / (fresh - old)),
    over: { request: node.owners[0] ?? null }, choose: node.owners.length ? () => app.selection.toggle({ request: node.owners[0] }) : undefined,
    tip: () => runTip(app, view, node, node === victim),
  }));
  plot.render(width, height, marks, (ctx) => {
    for (const { node, parent, y } of shown) {
      if (!parent) continue;
      line(ctx, x(node.depth), parent.y * ROW + 8, x(node.depth), y * ROW + 8, app.paints.rule);
    }
    for (const mark of marks) {
      ctx.fillStyle = app.paints.of(`heat-${mark.heat}`);
      ctx.fillRect(mark.x, mark.y, mark.w, mark.h);
      if (mark.own) {
        ctx.strokeStyle = app.paints.ink;
        ctx.lineWidth = 2;
        ctx.strokeRect(mark.x, mark.y, mark.w, mark.h);
      }
      if (!mark.node.children.length) write(ctx, mark.node === victim ? "next to go" : plural(mark.node.depth + mark.node.tokens, "token"), mark.x + mark.w + 5, mark.y + 6, { paint: app.paints.quiet });
    }
    xAxis(ctx, x, { y: height - 32, format: digits, paints: app.paints, most: 4 });
    write(ctx, leaves > MOST_ROWS ? `tokens from the beginning of a prompt; ${leaves - MOST_ROWS} more branches` : "tokens from the beginning of a prompt", 4, height - 6, { paint: app.paints.quiet });
  });
}

/** The runs that hold a request's text, from its first page on: a page further down may have another text by now. */
function pathOf(rows, { pages }) {
  const [held, found] = [new Set(pages), new Set()];
  for (const { node, parent } of rows.toSorted((a, b) => a.node.depth - b.node.depth)) {
    const goesOn = parent ? found.has(parent.node) : node.pages[0] === pages[0];
    if (goesOn && held.has(node.pages[0])) found.add(node);
  }
  return found;
}

/** `{text, why}` of a run: of the tree where that tells texts, else of a request of this viewer's that has or had its pages. */
function textOf(app, view, { text, pages, depth, tokens }) {
  if (text !== null) return { text };
  const { steps, pool } = app.store;
  const { last } = app.store.derived("pool now", () => replay(steps, pool));
  const at = pages.map((page, i) => ({ ...last.get(page), page: i })).find(({ request, index, page }) => request && index === depth / view.page_size + page && app.api.owns(request));
  const request = at && app.store.request(at.request);
  if (!request) return { text: null, why: "another client's is shown only by a server that was started with --show-prompts." };
  const { pieces, why } = app.answers.positions(request, Math.max(0, (request.sequences ?? []).indexOf(at.sequence)), depth + tokens);
  return pieces === null ? { text: null, why } : { text: pieces.slice(depth, depth + tokens).join("") };
}

function runTip(app, view, node, victim) {
  const { text, why } = textOf(app, view, node);

  const saved = node.hits * node.tokens;
  const spared = [
    ...(view.ms_per_token === null ? [] : [["time not spent", duration(saved * view.ms_per_token), "estimated"]]),
    ["keys and values not computed", bytes(saved * view.bytes_per_token), "predicted"],
  ];
  return {
    title: plural(node.tokens, "token"),
    rows: [["pages", String(node.pages.length)], ["after", plural(node.depth, "token")], ["taken again", `${node.hits} times`, "measured"], ["tokens not computed", digits(saved), "measured"], ...spared, ["used now by", node.owners.map(shortName).join(", ") || (node.owned ? "somebody" : "nobody")]],
    note: [text === null ? `Its text is not shown: ${why}` : clipped(text), victim ? "The next to be evicted: nobody owns it and nothing that follows it, for the longest time." : ""].filter(Boolean).join(" "),
  };
}

const clipped = (text) => JSON.stringify(text.length > 300 ? `${text.slice(0, 300)}…` : text);

/** Where the tree is not told: what each request took. */
function drawSaved(plot, app, view, width) {
  const rows = view.by_request.slice(-MOST_ROWS);
  const most = Math.max(1, ...rows.map((r) => r.prompt_tokens));
  const x = linear([0, niceEnd(most)], [50, width - 60]);
  const marks = rows.map((r, i) => ({
    key: r.request, x: 50, y: i * ROW + 3, w: Math.max(2, x(r.cached_tokens) - 50), h: 11, r, over: { request: r.request }, choose: () => app.selection.toggle({ request: r.request }),
    tip: () => ({ title: r.name, paint: r.paint, rows: [["from the cache", plural(r.cached_tokens, "token"), "measured"], ["prompt", plural(r.prompt_tokens, "token"), "measured"]] }),
  }));
  plot.render(width, Math.max(1, rows.length) * ROW + 8, marks, (ctx) => {
    for (const mark of marks) {
      ctx.fillStyle = app.paints.of("free");
      ctx.fillRect(50, mark.y, x(mark.r.prompt_tokens) - 50, mark.h);
      ctx.fillStyle = app.paints.of(mark.r.paint);
      ctx.fillRect(mark.x, mark.y, mark.w, mark.h);
      write(ctx, mark.r.name, 0, mark.y + 6, { paint: app.paints.quiet });
      write(ctx, `${mark.r.cached_tokens} of ${mark.r.prompt_tokens}`, x(mark.r.prompt_tokens) + 5, mark.y + 6, { paint: app.paints.quiet });
    }
  });
}
