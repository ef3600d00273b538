"""The KV cache of one sequence: the textbook's formula beside what the allocator gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pellucid.core.spec import ModelSpec
from pellucid.costs import KV_ELEMENT_BYTES, kv_bytes_per_token, kv_types, pages_for
from pellucid.ops import Ops


@dataclass(frozen=True, slots=True)
class KvTerm:
    """sides x layers x kv_heads x head_size x length x bytes_each, of layers that are alike.

    sides: 2 for keys and values, 1 where they are of two types. bytes_each may be a half.
    """

    sides: int
    layers: int
    kv_heads: int
    head_size: int
    length: int
    bytes_each: float

    @property
    def bytes(self) -> int:
        count = self.sides * self.layers * self.kv_heads * self.head_size * self.length
        return int(count * self.bytes_each)

    @property
    def formula(self) -> str:
        counts = (self.sides, self.layers, self.kv_heads, self.head_size, self.length)
        return f"{' x '.join(map(str, counts))} x {self.bytes_each:g}"


@dataclass(frozen=True, slots=True)
class KvAccount:
    """The keys and values of `length` positions.

    padding: bytes beyond the formula's, where a backend rounds a head's features up, and the scales
    of blocks. held: bytes of the whole pages that hold them. allocated: what the backend's own
    cache of so many pages says that it takes.
    """

    terms: tuple[KvTerm, ...]
    dtype: str
    length: int
    padding: int
    pages: int
    page_size: int
    held: int
    allocated: int | None

    @property
    def formula(self) -> str:
        """In words; the terms have the numbers. Keys and values of two types have a term each."""
        sides = "2" if all(term.sides == 2 for term in self.terms) else "1"
        return f"{sides} x layers x kv heads x head size x length x bytes"

    @property
    def bytes(self) -> int:
        """By the formula."""
        return sum(term.bytes for term in self.terms)

    @property
    def trouble(self) -> str | None:
        """What does not add up, in words."""
        per_position, left = divmod(self.bytes + self.padding, max(self.length, 1))
        by_formula = per_position * self.pages * self.page_size
        if left or by_formula != self.held:
            return f"the formula gives {by_formula} bytes for the pages and they hold {self.held}"
        if self.allocated is not None and self.allocated != self.held:
            return f"the allocator took {self.allocated} bytes and the pages hold {self.held}"
        return None


def kv_account(
    spec: ModelSpec,
    length: int,
    page_size: int,
    dtype: str,
    lanes: int = 1,
    ops: Ops | None = None,
) -> KvAccount:
    """The account of one sequence of `length` positions; `ops` allocates its pages, once."""
    alike = Counter((layer.n_kv_heads, layer.head_dim) for layer in spec.layers)
    types = kv_types(dtype)
    sides = Counter((types.keys, types.values))
    terms = tuple(
        KvTerm(n_sides, count, heads, size, length, KV_ELEMENT_BYTES[type])
        for (heads, size), count in alike.items()
        for type, n_sides in sides.items()
    )
    pages = pages_for(length, page_size)
    per_position = kv_bytes_per_token(spec, dtype, lanes)
    padding = per_position * length - sum(term.bytes for term in terms)
    held = per_position * pages * page_size
    allocated = None if ops is None else int(ops.new_cache(spec, pages, page_size).nbytes)  # type: ignore[attr-defined]
    return KvAccount(terms, dtype, length, padding, pages, page_size, held, allocated)
