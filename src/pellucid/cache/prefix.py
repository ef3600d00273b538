"""PrefixCache: full pages of the KV cache, found by what they hold.

What a position's key and value are depends on every token up to it. So a page is known by the
tokens of its own positions and by the page before it: pages form chains that begin at a salt.

Invariants:

1. Two cached pages never hold the same: same tokens after the same chain, of the same salt.
2. Whoever owns a cached page owns all pages before it in its chain, and lets go of it no later
   than of them. So a page is idle only if all pages after it are, and has been for no longer: who
   evicts by age never cuts a chain in the middle.
3. A digest only finds a candidate; the tokens and the page before it decide. No collision, by
   accident or made on purpose, can hand out another prompt's page.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from pellucid.cache.pool import PagePool
from pellucid.core.record import CachedPage

Digest = Callable[[bytes, Sequence[int]], bytes]


@dataclass(slots=True, eq=False)
class _Block:
    """A cached page: its tokens, and the block before it, or the salt at a chain's beginning.
    What it holds is never changed; not frozen, which would make it thrice as slow to build. `hits`
    counts who took it, `used` is when it was stored or taken last."""

    page: int
    digest: bytes
    tokens: tuple[int, ...]
    parent: _Block | bytes
    used: int
    hits: int = 0


def keyed_digest(key: bytes) -> Digest:
    """The digest of a page from that of the page before it (or the salt) and its tokens: BLAKE2b
    (RFC 7693) under a secret `key` of at most 64 bytes, so that nobody can make collisions."""

    def digest(parent: bytes, tokens: Sequence[int]) -> bytes:
        return blake2b(parent + array("q", tokens).tobytes(), key=key, digest_size=16).digest()

    return digest


class PrefixCache:
    """Maps content to pages of `page_size` positions. `digest` is by default keyed with random
    bytes of this process."""

    def __init__(self, page_size: int, digest: Digest | None = None) -> None:
        self.page_size = page_size
        self._digest = digest or keyed_digest(os.urandom(32))
        self._blocks: dict[bytes, _Block] = {}
        self._by_page: dict[int, _Block] = {}
        self.now = 0  # whoever counts plans sets it

    def __len__(self) -> int:
        return len(self._by_page)

    def __contains__(self, page: int) -> bool:
        return page in self._by_page

    def extend_digests(
        self, digests: list[bytes], salt: bytes, tokens: Sequence[int], n_pages: int
    ) -> None:
        """Append to `digests`, those of the first pages of `tokens`, until there are `n_pages`."""
        size = self.page_size
        if not digests and n_pages:
            # The salt is digested first, so that no salt can pass for a page's digest.
            digests.append(self._digest(self._digest(salt, ()), tokens[:size]))
        for i in range(len(digests), n_pages):
            digests.append(self._digest(digests[-1], tokens[i * size : (i + 1) * size]))

    def match(self, salt: bytes, tokens: Sequence[int], digests: Sequence[bytes]) -> list[int]:
        """The cached pages of the longest prefix of `tokens`, whose digests are `digests`."""
        size = self.page_size
        pages: list[int] = []
        parent: _Block | bytes = salt
        for i, digest in enumerate(digests):
            block = self._blocks.get(digest)
            if (
                block is None
                or block.parent != parent
                or block.tokens != tuple(tokens[i * size : (i + 1) * size])
            ):
                break
            pages.append(block.page)
            parent = block
        return pages

    def store(
        self, before: int | None, salt: bytes, digest: bytes, tokens: Sequence[int], page: int
    ) -> int | None:
        """Cache `page`, which holds `tokens` after the cached page `before`, or first of all.

        Returns the page that has this content from now on: another one if it was cached already.
        None if the digest collides with other content, or `before` is not cached: `page` is not
        cached then.
        """
        if before is not None and before not in self._by_page:
            return None
        parent: _Block | bytes = salt if before is None else self._by_page[before]
        content = tuple(tokens)
        block = self._blocks.get(digest)
        if block is not None:
            same = block.parent == parent and block.tokens == content
            return block.page if same else None
        block = _Block(page, digest, content, parent, self.now)
        self._blocks[digest] = self._by_page[page] = block
        return page

    def taken(self, pages: Iterable[int]) -> None:
        """Somebody who did not compute them owns `pages`, from now on; those not cached are passed
        over."""
        for page in pages:
            block = self._by_page.get(page)
            if block is not None:
                block.hits += 1
                block.used = self.now

    def contents(self, with_tokens: bool) -> tuple[CachedPage, ...]:
        """What is cached, in the order in which it came."""
        return tuple(
            [
                CachedPage(
                    block.page,
                    block.parent.page if isinstance(block.parent, _Block) else None,
                    block.hits,
                    block.used,
                    block.tokens if with_tokens else (),
                )
                for block in self._by_page.values()
            ]
        )

    def check(self, pool: PagePool) -> None:
        """Assert the invariants, `pool` being where the pages are."""
        assert len(self._blocks) == len(self._by_page)
        for page, block in self._by_page.items():
            assert block.page == page and self._blocks[block.digest] is block
            assert len(block.tokens) == self.page_size
            assert pool.is_kept(page)
            if isinstance(block.parent, _Block):
                before = block.parent.page
                assert self._by_page.get(before) is block.parent, "a chain was cut"
                assert pool.owners(before) >= pool.owners(page)
        assert pool.n_kept == len(self._by_page)

    def forget(self, page: int) -> None:
        """The page is used for something else from now on."""
        del self._blocks[self._by_page.pop(page).digest]
