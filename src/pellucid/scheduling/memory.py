"""Memory: the pages of sequences, taken, shared, copied, kept and given back.

Invariants:

1. A running sequence has pages for all positions that it is about to compute, in order.
2. It writes only to pages that it alone owns and that are not in the prefix cache: what it takes
   from others are full pages, and the one page it must write into is copied first.
3. A page enters the prefix cache when all its positions are computed. If the same content is there
   already, the sequence lets go of its own page and owns the other: one page for one content.
4. The source of a copy is owned by the copying sequence until the copy is done.
5. Between steps a sequence has no page beyond those of its tokens: what was taken for a draft goes
   back when the step is applied, or before the next plan.
6. A sequence in `_grown` has other pages than was told last, from that number on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pellucid.cache import Digest, PagePool, PrefixCache
from pellucid.core.record import Owned, PageChanges, PageCounts, PageMap, PageTable
from pellucid.costs import pages_for
from pellucid.scheduling.limits import Limits
from pellucid.scheduling.sequence import Sequence, State


@dataclass(frozen=True, slots=True)
class Reuse:
    """What a sequence need not compute: whole pages to share, a page to copy, and how many
    positions they hold for it."""

    pages: tuple[int, ...] = ()
    source: int | None = None
    computed: int = 0


_NOTHING = Reuse()


class Memory:
    """The pool, the prefix cache, and what happens to them. `changes` is written, never read."""

    def __init__(self, limits: Limits, digest: Digest | None = None) -> None:
        self.page_size = limits.page_size
        self.pool = PagePool(limits.n_pages)
        self.changes = PageChanges()
        self._plan = 0
        self._keeps = limits.kv_cache
        caching = limits.kv_cache and limits.prefix_caching
        self.prefix = PrefixCache(limits.page_size, digest) if caching else None
        self._grown: dict[Sequence, int] = {}

    @property
    def available(self) -> int:
        """Pages that can be had at once."""
        return self.pool.n_available

    def counts(self) -> PageCounts:
        pool = self.pool
        return PageCounts(pool.n_free, pool.n_idle, pool.n_pages - pool.n_available)

    def tick(self) -> None:
        """Another plan begins."""
        self._plan += 1
        if self.prefix is not None:
            self.prefix.now = self._plan

    def tell_owned(self) -> None:
        """Say in `changes` who came to own what."""
        self.changes.owned = [
            Owned(sequence.id, first, sequence.pages[first:])
            for sequence, first in self._grown.items()
            if first < len(sequence.pages)
        ]

    def told(self) -> None:
        """What was said has reached who asks for it."""
        self._grown.clear()

    def page_map(self, sequences: Iterable[Sequence], with_tokens: bool) -> PageMap:
        """The state of all pages, `sequences` being all that have some."""
        running = list(sequences)
        return PageMap(
            self._plan,
            tuple([PageTable(x.id, x.pages, x.computed, x.n_prompt) for x in running]),
            () if self.prefix is None else self.prefix.contents(with_tokens),
            self.pool.idle(),
            tuple([(x.id, x.copy[0]) for x in running if x.copy is not None]),
        )

    def known_pages(self, sequence: Sequence) -> list[int]:
        """Cached pages of the sequence's longest known prefix."""
        if self.prefix is None or sequence.all_logits:
            return []
        self._digest_all(sequence)
        return self.prefix.match(sequence.salt, sequence.tokens, sequence.digests)

    def reuse(self, sequence: Sequence, known: list[int]) -> Reuse:
        """What the sequence can take from its sibling or from the `known` pages of the cache.

        The last token is always computed: its logits are wanted.
        """
        if not self._keeps or sequence.all_logits:
            return _NOTHING
        size, last = self.page_size, len(sequence.tokens) - 1
        whole, within = divmod(last, size)
        leader = sequence.sibling_of
        if leader is not None and _has_prompt_of(leader, sequence):
            return Reuse(leader.pages[:whole], leader.pages[whole] if within else None, last)
        if len(known) > whole:  # the cache has the last token's page too
            return Reuse(tuple(known[:whole]), known[whole] if within else None, last)
        return Reuse(tuple(known), None, len(known) * size)

    def without_copy(self, reuse: Reuse) -> Reuse:
        """The same, but the positions on the page to copy are computed."""
        return Reuse(reuse.pages, None, len(reuse.pages) * self.page_size)

    def cost(self, sequence: Sequence, reuse: Reuse) -> int:
        """By how many pages `admit` makes `available` smaller."""
        owners = self.pool.owners
        idle = sum(not owners(page) for page in reuse.pages)
        if reuse.source is not None:
            idle += not owners(reuse.source)
        return pages_for(len(sequence.tokens), self.page_size) - len(reuse.pages) + idle

    def admit(self, sequence: Sequence, reuse: Reuse) -> None:
        """Give the sequence pages for all its tokens, some of them computed by others."""
        shared = reuse.pages if reuse.source is None else (*reuse.pages, reuse.source)
        for page in shared:  # before any page is taken, which could evict them
            self.pool.share(page)
        self.changes.shared.extend(shared)
        if self.prefix is not None:
            self.prefix.taken(shared)
        sequence.pages = reuse.pages
        self._grown[sequence] = 0
        self.grow(sequence)
        sequence.computed = reuse.computed
        if reuse.source is not None:
            sequence.copy = reuse.source, sequence.pages[len(reuse.pages)]
        if self.prefix is not None:
            n_cached = [page in self.prefix for page in (*reuse.pages, -1)].index(False)
            sequence.n_stored = n_cached
            sequence.stores = n_cached == len(reuse.pages)

    def missing(self, sequence: Sequence) -> int:
        """Pages that the sequence's known tokens need beyond those it has."""
        return pages_for(len(sequence.tokens), self.page_size) - len(sequence.pages)

    def grow(self, sequence: Sequence) -> None:
        """Take what is missing."""
        self._add(sequence, self.missing(sequence))

    def reserve(self, sequence: Sequence, positions: int) -> int:
        """Take pages for positions after the last token; returns for how many there is room.

        Free pages are taken, and of those kept for their content one: the sequence would need it
        soon anyway.
        """
        wanted = pages_for(len(sequence.tokens) + positions, self.page_size) - len(sequence.pages)
        count = min(wanted, self.pool.n_free + bool(self.pool.n_idle))
        self._add(sequence, count)
        return min(positions, len(sequence.pages) * self.page_size - len(sequence.tokens))

    def trim(self, sequence: Sequence) -> None:
        """Give back the pages beyond those of the known tokens."""
        kept = pages_for(len(sequence.tokens), self.page_size)
        for page in reversed(sequence.pages[kept:]):
            self._release(page)
        sequence.pages = sequence.pages[:kept]

    def copied(self, sequence: Sequence) -> None:
        """The sequence's copy is done: its source is no longer needed."""
        if sequence.copy is not None:
            self._release(sequence.copy[0])
            sequence.copy = None

    def store(self, sequence: Sequence) -> None:
        """Put the sequence's full pages that are not yet there into the prefix cache."""
        if self.prefix is None or not sequence.stores:
            return
        size, prefix = self.page_size, self.prefix
        while (sequence.n_stored + 1) * size <= sequence.computed:
            i = sequence.n_stored
            prefix.extend_digests(sequence.digests, sequence.salt, sequence.tokens, i + 1)
            kept = prefix.store(
                sequence.pages[i - 1] if i else None,
                sequence.salt,
                sequence.digests[i],
                sequence.tokens[i * size : (i + 1) * size],
                sequence.pages[i],
            )
            if kept is None:  # and so nothing after it can be found either
                sequence.stores = False
                return
            if kept == sequence.pages[i]:
                self.pool.keep(kept)
                self.changes.cached.append(kept)
            else:
                self._replace(sequence, i, kept)
            sequence.n_stored = i + 1

    def release(self, sequence: Sequence) -> None:
        """Give back all that the sequence has; nothing of it is computed then."""
        # Last pages first: in the prefix cache a page goes before the page that it follows.
        if sequence.copy is not None:
            self._release(sequence.copy[0])
            sequence.copy = None
        for page in reversed(sequence.pages):
            self._release(page)
        self._grown.pop(sequence, None)
        sequence.pages = ()
        sequence.n_stored = sequence.computed = 0

    def lost(self, sequence: Sequence) -> tuple[int, int]:
        """If the sequence were preempted: positions to compute again, and pages it would free.

        Pages that others own too, in the prefix cache, survive. The rest is counted as lost, for
        when pages are short the idle ones are what is taken next.
        """
        pages, owners = sequence.pages, self.pool.owners
        low, high = 0, len(pages)
        while low < high:  # who owns a page owns those before it, so the shared ones come first
            middle = (low + high) // 2
            if owners(pages[middle]) > 1:
                low = middle + 1
            else:
                high = middle
        surviving = min(low, sequence.n_stored) * self.page_size
        return max(sequence.computed - surviving, 0), len(pages) - low

    def check(self, sequences: list[Sequence]) -> None:
        """Assert the invariants, `sequences` being all that have pages."""
        self.pool.check()
        held = Counter(page for x in sequences for page in x.pages)
        sources = Counter(x.copy[0] for x in sequences if x.copy is not None)
        for page in range(self.pool.n_pages):
            assert self.pool.owners(page) == held[page] + sources[page], f"page {page} miscounted"
        for sequence in sequences:
            assert sequence.computed <= len(sequence.pages) * self.page_size
            for page in sequence.pages[sequence.computed // self.page_size :]:
                assert held[page] == 1, f"page {page} is written and has two owners"
                assert self.prefix is None or page not in self.prefix
            if self.prefix is not None:
                assert all(page in self.prefix for page in sequence.pages[: sequence.n_stored])
        if self.prefix is not None:
            self.prefix.check(self.pool)

    def _digest_all(self, sequence: Sequence) -> None:
        assert self.prefix is not None
        n_pages = len(sequence.tokens) // self.page_size
        self.prefix.extend_digests(sequence.digests, sequence.salt, sequence.tokens, n_pages)

    def _add(self, sequence: Sequence, count: int) -> None:
        if count > 0:
            self._changed(sequence, len(sequence.pages))
            sequence.pages += tuple([self._take() for _ in range(count)])

    def _changed(self, sequence: Sequence, first: int) -> None:
        self._grown[sequence] = min(first, self._grown.get(sequence, first))

    def _take(self) -> int:
        if not self.pool.n_free:
            page = self.pool.evict()
            assert self.prefix is not None
            self.prefix.forget(page)
            self.changes.evicted.append(page)
        page = self.pool.take()
        self.changes.taken.append(page)
        return page

    def _release(self, page: int) -> None:
        if self.pool.release(page):
            self.changes.released.append(page)

    def _replace(self, sequence: Sequence, index: int, page: int) -> None:
        """Own the cached page of the same content in place of the sequence's own."""
        self.pool.share(page)
        self.changes.shared.append(page)
        self._release(sequence.pages[index])
        pages = sequence.pages
        self._changed(sequence, index)
        sequence.pages = (*pages[:index], page, *pages[index + 1 :])


def _has_prompt_of(leader: Sequence, sequence: Sequence) -> bool:
    """Whether the leader has computed the sequence's prompt and the sequence has nothing more."""
    return (
        leader.state is State.RUNNING
        and leader.computed >= leader.n_prompt
        and len(sequence.tokens) == sequence.n_prompt
    )
