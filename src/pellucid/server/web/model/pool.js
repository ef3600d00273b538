// The pool of pages, replayed from the events of the steps.

/**
 * Who owns each page after step `until`. `pages`: page to `{owners, cached, since, parent, tokens, used}`; pages
 * that are free are not in it. `known` is false where the window begins in the middle of things, so that
 * pages without an event in it may be owned by somebody.
 */
export function replay(steps, snapshot, until = Infinity) {
  const pool = { pages: new Map(), known: false, hits: [] };
  if (snapshot) restore(pool, snapshot);
  const first = steps[0];
  if (first?.id === 0) pool.known = true;
  for (const step of steps) {
    if (step.id > until) break;
    if (snapshot && step.id <= snapshot.step) continue;
    apply(pool, step);
  }
  return pool;
}

function restore(pool, { step, owned = [], cached = [] }) {
  pool.known = true;
  for (const [page, owners] of owned) at(pool, page, step).owners = new Set(owners);
  for (const [page, parent, tokens, used] of cached) {
    Object.assign(at(pool, page, step), { cached: true, parent, tokens, used: used ?? step });
  }
}

function apply(pool, step) {
  const { taken = [], shared = [], released = [], evicted = [], cached_now: cached = [] } = step.pages ?? {};
  for (const [page] of cached.map(pair)) at(pool, page, step.id);
  for (const page of evicted) {
    const entry = pool.pages.get(page);
    if (entry) entry.cached = false;
    tidy(pool, page);
  }
  for (const [page, owner] of released.map(pair)) release(pool, page, owner);
  for (const [page, owner] of taken.map(pair)) {
    pool.pages.set(page, { owners: new Set([owner]), cached: false, since: step.id, parent: null, tokens: null, used: step.id });
  }
  for (const [page, owner] of shared.map(pair)) {
    const entry = at(pool, page, step.id);
    entry.owners.add(owner);
    entry.used = step.id;
    pool.hits.push({ step: step.id, page, request: owner });
  }
  for (const item of cached) {
    const [page, parent, tokens] = Array.isArray(item) ? item : [item, undefined, null];
    Object.assign(at(pool, page, step.id), { cached: true, parent, tokens, used: step.id });
  }
}

const pair = (item) => (Array.isArray(item) ? item : [item, null]);

function at(pool, page, step) {
  if (!pool.pages.has(page)) pool.pages.set(page, { owners: new Set(), cached: false, since: step, parent: null, tokens: null, used: step });
  return pool.pages.get(page);
}

function release(pool, page, owner) {
  const entry = pool.pages.get(page);
  if (!entry) return;
  if (owner === null) entry.owners.clear();
  else entry.owners.delete(owner);
  tidy(pool, page);
}

function tidy(pool, page) {
  const entry = pool.pages.get(page);
  if (entry && !entry.owners.size && !entry.cached) pool.pages.delete(page);
}

/**
 * The prefix cache as a tree of runs: pages that follow each other without a fork are one node
 * `{pages, tokens, used, owners, children, depth}`; depth is in tokens.
 */
export function prefixRuns(pool, pageSize) {
  const children = new Map();
  const cached = [...pool.pages].filter(([, entry]) => entry.cached);
  const present = new Set(cached.map(([page]) => page));
  for (const [page, entry] of cached) {
    const parent = present.has(entry.parent) ? entry.parent : null;
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(page);
  }
  const run = (page, depth) => {
    const pages = [page];
    while (children.get(pages.at(-1))?.length === 1) pages.push(children.get(pages.at(-1))[0]);
    const entries = pages.map((p) => pool.pages.get(p));
    const tokens = entries.reduce((sum, entry) => sum + (entry.tokens ?? pageSize), 0);
    return {
      pages, tokens, depth,
      used: Math.max(...entries.map((entry) => entry.used)),
      owners: [...new Set(entries.flatMap((entry) => [...entry.owners]))].filter((owner) => owner !== null),
      children: (children.get(pages.at(-1)) ?? []).map((child) => run(child, depth + tokens)),
    };
  };
  return (children.get(null) ?? []).map((page) => run(page, 0));
}

/** Whether the events say which page follows which. */
export const hasParents = (pool) => [...pool.pages.values()].some((entry) => entry.cached && entry.parent !== undefined && entry.tokens !== null);
