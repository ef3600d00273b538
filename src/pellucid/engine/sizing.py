"""How long a context and how many pages: the limits of an engine from its model and its memory."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.errors import BadInput
from pellucid.core.spec import ModelSpec
from pellucid.costs import kv_bytes_per_token, pages_for
from pellucid.engine.memory import in_words
from pellucid.scheduling import Limits

MAX_NUM_SEQS = 32
MAX_NUM_BATCHED_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller asked for; None leaves it to `limits_for`."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    page_size: int = 16
    kv_cache: bool = True
    prefix_caching: bool = True
    policy: str = "continuous"

    def check(self) -> None:
        """Raises `BadInput` naming a count that is none."""
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "page_size"):
            value = getattr(self, name)
            if value is None and name != "page_size":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"{name} must be a whole number from 1, not {value!r}")


@dataclass(frozen=True, slots=True)
class Beside:
    """Bytes of another model that is loaded, too: of its weights, and of each position in a cache
    of its own that has the same pages."""

    weights: int = 0
    per_token: int = 0


NOTHING = Beside()


def limits_for(
    spec: ModelSpec,
    asked: Asked,
    kv_budget: int,
    kv_dtype: str,
    kv_lanes: int = 1,
    beside: int = 0,
) -> Limits:
    """Limits whose KV pool takes at most `kv_budget` bytes, elements being `kv_dtype`, with
    `beside` bytes more for each position.

    The pool has pages for `max_num_seqs` sequences of `max_model_len`, or as many as the budget
    buys. A context that was not asked for is the model's own, cut to what the pool holds. Raises
    `BadInput` with the numbers for one that was asked for and does not fit, and for values that
    are out of range.
    """
    asked.check()
    if asked.max_model_len is not None and asked.max_model_len > spec.context_length:
        raise BadInput(
            f"max_model_len {asked.max_model_len} is above the {spec.context_length} positions "
            "that the model was made for: lower it"
        )
    page_bytes = asked.page_size * (kv_bytes_per_token(spec, kv_dtype, kv_lanes) + beside)
    affordable = kv_budget // page_bytes
    length = asked.max_model_len or min(spec.context_length, affordable * asked.page_size)
    needed = pages_for(max(length, 2), asked.page_size)
    if needed > affordable:
        raise BadInput(
            f"a context of {max(length, 2)} needs {in_words(needed * page_bytes)} of KV cache and "
            f"{in_words(kv_budget)} may be used: lower max_model_len, or raise "
            "kv_cache_memory_bytes"
        )
    batched = asked.max_num_batched_tokens or max(MAX_NUM_BATCHED_TOKENS, asked.max_num_seqs or 0)
    n_seqs = asked.max_num_seqs or min(MAX_NUM_SEQS, batched)
    n_pages = min(affordable, n_seqs * needed)
    return Limits(
        length,
        n_seqs,
        batched,
        n_pages,
        asked.page_size,
        asked.kv_cache,
        asked.prefix_caching,
        asked.policy,
    )


def describe(
    spec: ModelSpec,
    limits: Limits,
    kv_budget: int,
    kv_dtype: str,
    kv_lanes: int = 1,
    beside: int = 0,
    *,
    given: bool = False,
) -> str:
    """One line about what the pool takes and why, and the context. `given`: the budget is the
    caller's, and not half of what is free."""
    page_bytes = limits.page_size * (kv_bytes_per_token(spec, kv_dtype, kv_lanes) + beside)
    line = (
        f"KV cache: up to {in_words(limits.n_pages * page_bytes)} in {limits.n_pages} pages of "
        f"{limits.page_size} positions ({kv_dtype}, {(1 << 30) // page_bytes} pages a GiB); "
        f"context {limits.max_model_len}"
    )
    if limits.max_model_len < spec.context_length:
        line += f" of the model's {spec.context_length}"
    if limits.n_pages == limits.max_num_seqs * pages_for(
        max(limits.max_model_len, 2), limits.page_size
    ):
        return f"{line}: {limits.max_num_seqs} sequences of it fit at once"
    whose = "kv_cache_memory_bytes" if given else "half of the memory free beside the weights"
    return f"{line}: as much as {in_words(kv_budget)} hold, {whose}"
