"""A whole benchmark of one model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pellucid.bench.cases import BATCHES, PAGE_SIZE, Case, sweep
from pellucid.bench.clock import TimedNativeOps
from pellucid.bench.forward import measure, weight_sizes
from pellucid.bench.report import Report, best_peaks
from pellucid.bench.speculation import SpeculationReport, measure_speculation
from pellucid.bench.whole import measure_whole
from pellucid.core.errors import BadInput
from pellucid.core.spec import ModelSpec
from pellucid.costs import kv_bytes_per_token
from pellucid.engine.llm import LLM
from pellucid.engine.loading import load
from pellucid.engine.machine import remember_peaks
from pellucid.engine.memory import available_memory, in_words
from pellucid.engine.sizing import Asked
from pellucid.formats import open_checkpoint
from pellucid.models.registry import read_spec
from pellucid.ops import Ops, backend
from pellucid.ops.native.backend import available_threads
from pellucid.ops.native.peaks import Probe
from pellucid.quant.mixes import Mix
from pellucid.speculation.settings import SpeculativeSettings

# Of answers with drafts and without.
_N_TASKS: Final = 4
_SPECULATION_LENGTH: Final = 128
_SPECULATION_CONTEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """`decode`: steps of a decode measurement. `prefill`, `contexts`: None are the usual ones.
    `threads`, `kv_dtype`, `activations`: None is the backend's choice. `mix`: what to quantise to
    at load."""

    prefill: tuple[int, ...] | None = None
    decode: int = 32
    batches: tuple[int, ...] = BATCHES
    contexts: tuple[int, ...] | None = None
    repeats: int = 5
    backend: str = "native"
    threads: int | None = None
    kv_dtype: str | None = None
    activations: str | None = None
    mix: Mix | None = None
    speculative: dict[str, Any] | None = None
    """How tokens are guessed, as `LLM` takes it; None measures no speculation."""


def run_bench(path: Path, settings: Settings, note: Callable[[str], None]) -> Report:
    """Measure the model at `path`; `note` is told what is being done.

    Raises what loading raises, and `BadInput` for a case that the model or the memory cannot
    hold, before anything is measured.
    """
    ops = _ops(settings)
    with open_checkpoint(path) as checkpoint:
        spec = read_spec(checkpoint)[1]
    given = settings.decode, settings.prefill, settings.batches, settings.contexts
    cases = sweep(spec, *given)
    for case in cases:
        _check_memory(case, spec, ops)
    speculation = None
    if settings.speculative is not None:
        if spec.context_length < _SPECULATION_CONTEXT:
            raise BadInput(
                f"speculation is measured on answers within {_SPECULATION_CONTEXT} positions, and "
                f"{path} has {spec.context_length}: leave the speculative flags out"
            )
        speculation = _speculation(path, settings, note)
    loaded = load(path, ops, Asked(), None, note, settings.mix)
    sizes = weight_sizes(loaded.model)
    weights_bytes = sum(weight.nbytes for weight in sizes.values())
    threads = settings.threads or available_threads()
    probe = Probe(threads, max(weights_bytes, 1))
    measured, whole = [], []
    began = time.perf_counter()
    for case in cases:
        note(f"measuring {case.name}")
        measured.append(measure(loaded.model, case, settings.repeats, probe, sizes))
    if measured:
        took = time.perf_counter() - began
        remember_peaks(threads, best_peaks(measured), weights_bytes, took)
    kind = getattr(ops, "activations", "f32")
    clock = ops.clock if isinstance(ops, TimedNativeOps) else None
    for batch in settings.batches:
        note(f"measuring the whole engine, batch {batch}")
        whole.append(measure_whole(loaded, batch, settings.decode, settings.repeats, clock))
    return Report(
        model=str(path),
        quantization=None if settings.mix is None else settings.mix.name,
        backend=settings.backend,
        threads=threads,
        kv_dtype=ops.kv_dtype,
        weights_bytes=weights_bytes,
        activations=kind,
        arithmetic="f32" if kind == "f32" else "int8",
        measured=tuple(measured),
        whole=tuple(whole),
        speculation=speculation,
    )


def _speculation(path: Path, settings: Settings, note: Callable[[str], None]) -> SpeculationReport:
    from pellucid.bench.tasks import TASKS

    given = SpeculativeSettings.of(settings.speculative)
    # A model guesses anything, what is looked up has to stand there.
    tasks = TASKS["code" if given.method == "draft" else "quoting"]
    with LLM(
        path,
        backend=settings.backend,
        threads=settings.threads,
        kv_cache_dtype=settings.kv_dtype,
        quantization=None if settings.mix is None else settings.mix.name,
        speculative=settings.speculative,
        enable_prefix_caching=False,
        max_model_len=_SPECULATION_CONTEXT,
    ) as llm:
        first = dict(list(tasks.items())[:_N_TASKS])
        return measure_speculation(llm, given.told(), first, _SPECULATION_LENGTH, note)


def _ops(settings: Settings) -> Ops:
    if settings.backend == "native":
        return TimedNativeOps(
            threads=settings.threads,
            kv_dtype=settings.kv_dtype or "f16",
            activations=settings.activations or "",
        )
    return backend(
        settings.backend,
        threads=settings.threads,
        kv_dtype=settings.kv_dtype,
        activations=settings.activations,
    )


def _check_memory(case: Case, spec: ModelSpec, ops: Ops) -> None:
    page_bytes = PAGE_SIZE * kv_bytes_per_token(spec, ops.kv_dtype, ops.kv_lanes)
    needed, free = case.n_pages * page_bytes, available_memory()
    if needed > free:
        raise BadInput(
            f"{case.name}: it needs {in_words(needed)} of KV cache and {in_words(free)} are "
            "free: measure fewer sequences or a shorter context"
        )
