"""The whole explanation of one prompt, as data that the terminal, a page and JSON show alike."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.spec import ModelSpec
from pellucid.costs.hardware import Hardware
from pellucid.costs.roofline import Bound, Limits, Priced, bound
from pellucid.explain.kv import KvAccount, kv_account
from pellucid.explain.seen import Attention, LensRow, Likely
from pellucid.explain.source import Source
from pellucid.explain.timed import Timed
from pellucid.explain.whatif import WhatIf, what_ifs

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Token:
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model is, in numbers. Where layers differ, `heads`, `kv_heads` and `head_size` are the
    first layer's."""

    name: str
    family: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    width: int
    vocabulary: int
    context: int
    parameters: int
    weight_bytes: int
    matrix_bits: float

    @staticmethod
    def of(name: str, priced: Priced) -> ModelFacts:
        spec: ModelSpec = priced.spec
        first = spec.layers[0]
        return ModelFacts(
            name,
            spec.family,
            spec.n_layers,
            first.n_heads,
            first.n_kv_heads,
            first.head_dim,
            spec.d_model,
            spec.vocab_size,
            spec.context_length,
            priced.parameters,
            priced.weight_bytes,
            priced.matrix_bits,
        )


@dataclass(frozen=True, slots=True)
class Looked:
    """What the reference computed: exact, float32, after the prompt's token `position`. `followed`
    is the token that the lens follows, with the probability that the model gives it."""

    position: int
    top: tuple[Likely, ...]
    followed: Likely
    lens: tuple[LensRow, ...]
    attention: Attention


@dataclass(frozen=True, slots=True)
class Here:
    """What the engine did on this machine, beside what it could have done. what_ifs: predicted from
    this machine's limits for a sequence as long as prompt and answer."""

    backend: str
    threads: int
    limits: Limits
    timed: Timed
    prefill: Bound
    decode: Bound | None
    kv: KvAccount
    what_ifs: tuple[WhatIf, ...]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What another machine must take at the least: nothing here is measured.

    length: positions of the prompt, and of the context that decode is priced at. whole_read:
    seconds to read every weight once, the embedding table too. needed: bytes of weights and KV.
    """

    hardware: Hardware
    limits: Limits
    bits: str
    length: int
    whole_read: float
    prefill: Bound
    decode: Bound
    kv: KvAccount
    needed: int
    what_ifs: tuple[WhatIf, ...]

    @property
    def chips(self) -> int | None:
        """How many of these machines hold the weights and this one sequence; None: not said."""
        if self.hardware.memory is None:
            return None
        return -(-self.needed // int(self.hardware.memory))


@dataclass(frozen=True, slots=True)
class Explanation:
    model: ModelFacts
    prompt: tuple[Token, ...] = ()
    looked: Looked | None = None
    here: Here | None = None
    elsewhere: Elsewhere | None = None


def elsewhere(source: Source, hardware: Hardware, length: int) -> Elsewhere:
    """Predictions for `length` positions on `hardware`, from costs alone."""
    priced = source.priced
    limits = hardware.limits(priced.matrix_bits)
    kv = kv_account(priced.spec, length, PAGE_SIZE, priced.kv_dtype)
    return Elsewhere(
        hardware,
        limits,
        source.bits,
        length,
        priced.weight_bytes / limits.bandwidth,
        bound(priced.prefill(length), limits),
        bound(priced.decode(length - 1), limits),
        kv,
        priced.weight_bytes + kv.held,
        tuple(what_ifs(priced, limits, length - 1)),
    )
