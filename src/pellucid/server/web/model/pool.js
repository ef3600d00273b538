// The pool of pages: whose they are after each step, replayed from a map of one moment.

/** What is known of the pool at one moment. `step`: the number of the next step; `complete`: nothing is missing. */
export class Pool {
  tables = new Map();
  cached = new Map();
  since = new Map();
  /** Who owned a page last, and as which of theirs: `{sequence, request, index}`. */
  last = new Map();
  step = 0;
  complete = true;

  /** The pool that `/live/pages` tells. */
  static of(told) {
    const pool = new Pool();
    pool.step = told.step;
    for (const { sequence, request, pages } of told.sequences) {
      pool.tables.set(sequence, { request, pages: [...pages] });
      pages.forEach((page, index) => {
        pool.since.set(page, told.step);
        pool.last.set(page, { sequence, request, index });
      });
    }
    for (const page of told.cached) pool.cached.set(page, told.step);
    return pool;
  }

  copy() {
    const pool = new Pool();
    for (const [sequence, { request, pages }] of this.tables) pool.tables.set(sequence, { request, pages: [...pages] });
    pool.cached = new Map(this.cached);
    pool.since = new Map(this.since);
    pool.last = new Map(this.last);
    pool.step = this.step;
    pool.complete = this.complete;
    return pool;
  }

  /** These sequences own nothing any more. */
  end(sequences) {
    for (const sequence of sequences) this.tables.delete(sequence);
  }

  /** What a step did to it: who ended owns nothing more, tables go on from a page number, the cache changes. */
  apply(step) {
    const { ended = [], preempted = {}, owners = [], evicted = [], cached_now: cachedNow = [] } = step.pages ?? {};
    this.end([...ended, ...Object.keys(preempted).map(Number)]);
    const requests = new Map(step.batch.map((item) => [item.sequence, item.request]));
    for (const [sequence, first, pages] of owners) {
      const table = this.tables.get(sequence) ?? { request: requests.get(sequence) ?? null, pages: [] };
      table.pages.length = Math.min(first, table.pages.length);
      table.pages.push(...pages);
      table.request ??= requests.get(sequence) ?? null;
      this.tables.set(sequence, table);
      pages.forEach((page, i) => {
        this.since.set(page, step.id);
        this.last.set(page, { sequence, request: table.request, index: first + i });
      });
    }
    for (const page of evicted) this.cached.delete(page);
    for (const page of cachedNow) this.cached.set(page, step.id);
    this.step = step.id + 1;
  }

  /** Pages that are not free: `{page, owners: [{sequence, request, index}], last, cached, since}`, by number; `last` had it last. */
  cells() {
    const found = new Map([...this.cached.keys()].map((page) => [page, []]));
    for (const [sequence, { request, pages }] of this.tables) {
      pages.forEach((page, index) => {
        if (!found.has(page)) found.set(page, []);
        found.get(page).push({ sequence, request, index });
      });
    }
    return [...found].map(([page, owners]) => ({
      page, owners, last: this.last.get(page) ?? null, cached: this.cached.has(page), since: this.since.get(page) ?? this.cached.get(page) ?? null,
    })).sort((a, b) => a.page - b.page);
  }
}

/** Whether steps say who owns their pages. */
export const tellsOwners = (steps) => steps.some((step) => Array.isArray(step.pages?.owners));

/**
 * The pool after step `until`, from `base` (a `Pool`, or null) and the steps of the window. A step tells who ended
 * since the one before; of the last step `isOver(request)` says it, for requests that had no step after it.
 */
export function replay(steps, base, until = Infinity, isOver = () => false) {
  const usable = base !== null && base.step <= until + 1 && (steps.length === 0 || base.step >= steps[0].id);
  const pool = usable ? base.copy() : new Pool();
  if (!usable) pool.complete = steps[0]?.id === 0;
  let owned = null;
  for (const step of steps) {
    if (step.id > until) {
      if (step.id === pool.step) pool.end(step.pages?.ended ?? []);
      break;
    }
    if (step.id >= pool.step) pool.apply(step);
    owned = step.pages?.owned ?? null;
  }
  if (owned === 0) pool.tables.clear();  // who has no request, as a look at one's tokens, ends untold
  pool.end([...pool.tables].filter(([, { request }]) => request !== null && isOver(request)).map(([sequence]) => sequence));
  return pool;
}

/**
 * The tree that `/live/prefix` tells, as runs: pages that follow each other without a fork are one node
 * `{pages, tokens, depth, hits, used, sequences, text, children}`; tokens and depth in tokens.
 */
export function prefixRuns({ nodes, page_size: size }) {
  const byPage = new Map(nodes.map((node) => [node.page, node]));
  const children = new Map();
  for (const node of nodes) {
    const parent = byPage.has(node.parent) ? node.parent : null;
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(node);
  }
  const run = (first, depth) => {
    const chain = [first];
    const next = () => children.get(chain.at(-1).page) ?? [];
    const alike = (node) => node.hits === first.hits && node.sequences.length === first.sequences.length;
    while (next().length === 1 && alike(next()[0])) chain.push(next()[0]);
    const tokens = chain.length * size;
    return {
      pages: chain.map((node) => node.page), tokens, depth,
      hits: first.hits,
      used: Math.max(...chain.map((node) => node.used)),
      sequences: first.sequences,
      text: chain.every((node) => typeof node.text === "string") ? chain.map((node) => node.text).join("") : null,
      children: next().map((child) => run(child, depth + tokens)),
    };
  };
  return (children.get(null) ?? []).map((node) => run(node, 0));
}
