"""How long a step takes: a cost model in place of the kernels.

A step is given as its spans (sequence, start, n_tokens, n_logits). Two models:

- `Roofline`, for a machine known by its peaks: the bytes and operations of `pellucid.costs`, over
  the share of the peaks that is reached, whichever takes longer, and a fixed time for each step.
- `Fitted`, for a machine at hand: a sum of few terms, each at least 0, fitted to measured steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Protocol

from pellucid.core.cost import Cost
from pellucid.core.record import SpanRecord
from pellucid.core.spec import ModelSpec
from pellucid.costs.roofline import Limits, Priced
from pellucid.costs.step import StepCosts

Spans = Sequence[SpanRecord]


class StepTime(Protocol):
    """A cost model."""

    def seconds(self, spans: Spans) -> float:
        """Of the step that computes these."""
        ...

    def parts(self, spans: Spans) -> dict[str, float]:
        """The same seconds by what they go to, in words."""
        ...

    def draft_seconds(self, spans: Spans, guesses: int, size: float) -> float:
        """To guess so many tokens for each span that decodes, with a model of `size` times this
        one's own cost; 0 for one that costs nothing."""
        ...


def without_caches(one: Any) -> dict[str, Any]:
    """The state of a dataclass that crosses to another process: what it was made from."""
    return {each.name: getattr(one, each.name) for each in fields(one)}


@dataclass(frozen=True)
class Roofline:
    """By the peaks of a machine. `bandwidth` and `arithmetic` are the shares of them that kernels
    reach, `fixed` the seconds that a step takes beside its kernels."""

    priced: Priced
    limits: Limits
    bandwidth: float = 0.7
    arithmetic: float = 0.5
    fixed: float = 0.001

    def seconds(self, spans: Spans) -> float:
        cost = self.cost(spans)
        return self.fixed + max(self._memory(cost), self._arithmetic(cost))

    def parts(self, spans: Spans) -> dict[str, float]:
        cost = self.cost(spans)
        memory, arithmetic = self._memory(cost), self._arithmetic(cost)
        found = {FIXED: self.fixed}
        if arithmetic > memory:
            return {**found, ARITHMETIC: arithmetic}
        weights = memory * cost.weights_read / max(cost.bytes_moved, 1)
        return {**found, WEIGHTS: weights, KV: memory - weights}

    def draft_seconds(self, spans: Spans, guesses: int, size: float) -> float:
        if not size:
            return 0.0
        each = [SpanRecord(0, span.start, 1, 1) for span in spans if span.n_logits]
        return guesses * size * self.seconds(each)

    def __getstate__(self) -> dict[str, Any]:
        return without_caches(self)

    def cost(self, spans: Spans) -> Cost:
        """Bytes and operations of the step: what its record would say."""
        return self._costs.of(spans)

    @cached_property
    def _costs(self) -> StepCosts:
        priced = self.priced
        return StepCosts(priced.spec, priced.weights, priced.kv_dtype, priced.kv_lanes)

    def _memory(self, cost: Cost) -> float:
        return cost.bytes_moved / (self.bandwidth * self.limits.bandwidth)

    def _arithmetic(self, cost: Cost) -> float:
        return cost.operations / (self.arithmetic * self.limits.operations)


FIXED: Final = "each step's fixed part"
WEIGHTS: Final = "reading the weights"
KV: Final = "reading keys and values"
ARITHMETIC: Final = "arithmetic"
ROWS: Final = "positions (products with the weights)"
LOGITS: Final = "answer tokens (head, choice, delivery)"
ATTENTION: Final = "attention of prompts"


# Rows and answer tokens between two knots cost alike; the slope changes where other kernels begin.
ROW_KNOTS: Final = (1, 4, 16, 64, 256)
LOGIT_KNOTS: Final = (1, 8)

TERMS: Final = (
    "fixed",
    *(f"rows from {low}" for low in ROW_KNOTS),
    *(f"answer tokens from {low}" for low in LOGIT_KNOTS),
    "KV positions of decode",
    "KV positions of prompts",
    "pairs of prompts",
)
_GROUPS: Final = (
    FIXED,
    *(ROWS for _ in ROW_KNOTS),
    *(LOGITS for _ in LOGIT_KNOTS),
    KV,
    ATTENTION,
    ATTENTION,
)


class Windows:
    """Of a model's layers, how many see at most so many positions."""

    def __init__(self, spec: ModelSpec) -> None:
        n = spec.n_layers
        kinds = Counter(layer.window for layer in spec.layers)
        self._shares = [(window, count / n) for window, count in kinds.items()]
        self.plain = all(window is None for window in kinds)

    def seen(self, start: int, length: int) -> float:
        """Positions that any of a span's rows sees, a mean over layers."""
        end = start + length
        return sum(
            share * (end if window is None else min(end, window + length - 1))
            for window, share in self._shares
        )


def features(spans: Spans, windows: Windows) -> list[float]:
    """What a step's time is made of: a number for each of `TERMS`."""
    rows = logits = 0
    decode = prompts = pairs = 0.0
    plain = windows.plain
    for _, start, length, n_logits in spans:
        rows += length
        logits += n_logits
        seen = start + length if plain else windows.seen(start, length)
        if length == n_logits:  # decode, or the check of a draft
            decode += seen
        else:
            prompts += seen
            pairs += length * (seen - length / 2)
    return [
        1.0,
        *_segments(rows, ROW_KNOTS),
        *_segments(logits, LOGIT_KNOTS),
        decode,
        prompts,
        pairs,
    ]


def _segments(count: int, knots: tuple[int, ...]) -> list[float]:
    """How much of `count` lies above each knot and below the next."""
    last = len(knots) - 1
    return [
        float(max(0, (count if i == last else min(count, knots[i + 1])) - low))
        for i, low in enumerate(knots)
    ]


@dataclass(frozen=True)
class Fitted:
    """A sum of `TERMS` by their `seconds_each`, measured on a machine. `kv_factor`: bytes of a
    position's keys and values over those it was measured with."""

    spec: ModelSpec
    seconds_each: tuple[float, ...]
    kv_factor: float = 1.0

    def __post_init__(self) -> None:
        if len(self.seconds_each) != len(TERMS):
            raise ValueError(f"{len(self.seconds_each)} terms, and the model has {len(TERMS)}")

    def seconds(self, spans: Spans) -> float:
        rows = logits = 0
        decode = prompts = pairs = 0.0
        windows = self._windows
        if not windows.plain:
            return self._sum(features(spans, windows))
        for _, start, length, n_logits in spans:
            rows += length
            logits += n_logits
            end = start + length
            if length == n_logits:
                decode += end
            else:
                prompts += end
                pairs += length * (end - length / 2)
        of_decode, of_prompts, of_pairs = self._of_kv
        return (
            self._of_counts(rows, logits)
            + of_decode * decode
            + of_prompts * prompts
            + of_pairs * pairs
        )

    def parts(self, spans: Spans) -> dict[str, float]:
        found: dict[str, float] = {}
        for each, value, group in zip(
            self._scaled, features(spans, self._windows), _GROUPS, strict=True
        ):
            found[group] = found.get(group, 0.0) + each * value
        return found

    def draft_seconds(self, spans: Spans, guesses: int, size: float) -> float:
        if not size:
            return 0.0
        each = [SpanRecord(0, span.start, 1, 1) for span in spans if span.n_logits]
        return guesses * size * self.seconds(each)

    def with_kv(self, factor: float) -> Fitted:
        """Keys and values of `factor` times as many bytes: what reads them in decode takes so many
        times as long."""
        return replace(self, kv_factor=self.kv_factor * factor)

    def __getstate__(self) -> dict[str, Any]:
        return without_caches(self)

    def _sum(self, values: list[float]) -> float:
        return sum(each * value for each, value in zip(self._scaled, values, strict=True))

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.spec)

    @cached_property
    def _scaled(self) -> tuple[float, ...]:
        at = TERMS.index("KV positions of decode")
        each = self.seconds_each
        return (*each[:at], each[at] * self.kv_factor, *each[at + 1 :])

    @cached_property
    def _of_kv(self) -> tuple[float, float, float]:
        decode, prompts, pairs = self._scaled[-3:]
        return decode, prompts, pairs

    @cached_property
    def _of_counts(self) -> Callable[[int, int], float]:
        each = self._scaled

        @lru_cache(maxsize=4096)
        def seconds(rows: int, logits: int) -> float:
            values = [1.0, *_segments(rows, ROW_KNOTS), *_segments(logits, LOGIT_KNOTS)]
            return sum(a * b for a, b in zip(each, values, strict=False))

        return seconds
