"""Does it fit: weights, and then pages, by the very function that sizes an engine."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.capacity.machine import HERE, Machine, roomy_machines
from pellucid.capacity.subject import Subject
from pellucid.core.errors import BadInput
from pellucid.costs import kv_bytes_per_token
from pellucid.engine.memory import in_words
from pellucid.engine.sizing import Asked, limits_for
from pellucid.scheduling import Limits


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes of memory, of weights, and that pages may take and take; what the scheduler's limits
    come to; and what does not fit, in words."""

    memory: int
    weights: int
    budget: int
    pages: int
    per_token: int
    limits: Limits
    warnings: tuple[str, ...]


def fit_memory(subject: Subject, machine: Machine, asked: Asked) -> Fit:
    """Raises `BadInput` if the weights do not fit, or a context that was asked for does not."""
    weights, memory = subject.weight_bytes, machine.memory
    free = memory - weights
    if free <= 0:
        raise BadInput(_too_heavy(subject, machine))
    # Here half of what the weights leave, as an engine takes it unless told; a chip's is its own.
    budget = free // 2 if machine.name == HERE else free
    priced = subject.priced
    per_token = kv_bytes_per_token(priced.spec, priced.kv_dtype, priced.kv_lanes)
    try:
        limits = limits_for(priced.spec, asked, budget, priced.kv_dtype, priced.kv_lanes)
    except BadInput as error:
        if asked.max_model_len is None or asked.max_model_len <= priced.spec.context_length:
            raise BadInput(f"the weights fit and this context does not: {error}") from error
        raise
    warnings = []
    if asked.max_model_len is None and limits.max_model_len < priced.spec.context_length:
        warnings.append(
            f"this context does not fit: the model's {priced.spec.context_length} positions take "
            f"{in_words(priced.spec.context_length * per_token)} of keys and values and "
            f"{in_words(budget)} are there: {limits.max_model_len} positions do"
        )
    pages = limits.n_pages * limits.page_size * per_token
    return Fit(memory, weights, budget, pages, per_token, limits, tuple(warnings))


def _too_heavy(subject: Subject, machine: Machine) -> str:
    weights = subject.weight_bytes
    roomy = roomy_machines(weights)
    fewer = [
        name for name in ("q8_0", "q4_k_m") if subject.quantized(name).weight_bytes < machine.memory
    ]
    mends = []
    if fewer:
        mends.append(f"--quantization {fewer[0]}")
    if roomy:
        mends.append(f"--hardware {roomy[0]}")
    n_chips = -(-weights // max(machine.memory, 1))
    mends.append(f"{n_chips} of these at the least, over which nothing here splits a model")
    return (
        f"the weights do not fit: {subject.name} takes {in_words(weights)} ({subject.bits}) and "
        f"{machine.what} has {in_words(machine.memory)} for it: {', or '.join(mends)}"
    )
