"""A whole comparison: one model after the other reads the text, never two in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.bench.cases import Case
from pellucid.bench.forward import measure, weight_sizes
from pellucid.core.plan import Span
from pellucid.costs import WeightSize, pages_for, step_cost
from pellucid.engine.loading import Loaded, load
from pellucid.engine.sizing import Asked
from pellucid.models.registry import Model
from pellucid.ops import Ops, backend
from pellucid.ops.native.backend import available_threads
from pellucid.ops.native.peaks import Probe
from pellucid.quality.divergence import PerToken, joined, per_token
from pellucid.quality.intervals import Bootstrap
from pellucid.quality.report import Measured, Report, Speed, figures
from pellucid.quality.scores import PAGE_SIZE, Spool, scores
from pellucid.quality.subjects import Common, Subject, Text, check
from pellucid.text import Tokenizer

DECODE_STEPS = 24

# What is being done, how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """`tokens`: at most so many of the text. `context`: positions of a window; None is 512, or the
    shortest context among the models. `threads`, `kv_dtype`: None is the backend's choice;
    `kv_dtype` is not for the model that others are held against. `repeats` of measuring the
    speed."""

    tokens: int = 4096
    context: int | None = None
    backend: str = "native"
    threads: int | None = None
    kv_dtype: str | None = None
    repeats: int = 3
    requantize: bool = False


def run_quality(
    subjects: Sequence[Subject],
    against: Subject | None,
    text: Text,
    settings: Settings,
    progress: Progress,
) -> Report:
    """Let every one of `subjects` read `text`, and hold it against `against`.

    Raises `BadInput` before anything is computed for a text that is too short, a context that a
    model does not have and another vocabulary, and what loading raises.
    """
    everyone = list(subjects) if against is None else [against, *subjects]
    for kind in {subject.activations for subject in everyone}:  # or refused
        _ops(settings, settings.kv_dtype, kind)
    common = check(everyone, text, settings.tokens, settings.context, settings.requantize)
    bootstrap = Bootstrap(len(common.ids) - 1)
    measured: list[Measured] = []
    spool = None if against is None else Spool(len(common.ids) - 1, common.width)
    first: PerToken | None = None
    try:
        for subject in everyone:
            reads = Reading(subject, settings, common, progress, plain=subject is against)
            try:
                found = reads.text(spool, first)
                measured.append(reads.measured(found, first, bootstrap))
            finally:
                reads.close()
            if subject is against:
                first = found
    finally:
        if spool is not None:
            spool.close()
    return Report(
        text=text.name,
        tokens=len(common.ids) - 1,
        context=common.context,
        backend=settings.backend,
        threads=settings.threads or available_threads(),
        compared=against is not None,
        measured=tuple(measured),
    )


def _ops(settings: Settings, kv_dtype: str | None, activations: str | None) -> Ops:
    return backend(
        settings.backend, threads=settings.threads, kv_dtype=kv_dtype, activations=activations
    )


class Reading:
    """One model, loaded to read the text. `plain`: it is what others are held against."""

    def __init__(
        self,
        subject: Subject,
        settings: Settings,
        common: Common,
        progress: Progress,
        *,
        plain: bool,
    ) -> None:
        self.subject, self._common = subject, common
        self._settings, self._progress = settings, progress
        kv_dtype = None if plain else settings.kv_dtype
        ops = _ops(settings, kv_dtype, subject.activations)
        asked = Asked(max_model_len=common.context, max_num_seqs=1)
        self._loaded: Loaded | None = load(
            subject.path,
            ops,
            asked,
            None,
            lambda _: None,
            subject.mix,
            requantize=settings.requantize,
            progress=lambda done, total: progress(f"{subject.name}: loading", done, total),
        )

    @property
    def model(self) -> Model:
        assert self._loaded is not None
        return self._loaded.model

    def text(self, spool: Spool | None, first: PerToken | None) -> PerToken:
        """Read it: into the spool, or, where `first` has filled that, beside it."""
        assert self._loaded is not None
        ids, context, width = self._common.ids, self._common.context, self._common.width
        following = np.asarray(ids[1:], np.int64)
        label, begins = f"{self.subject.name}: reading", beginning(self._loaded.tokenizer)
        parts: list[PerToken] = []
        done = 0
        for scored in scores(self.model, ids, begins, context, self.subject.path):
            rows = np.ascontiguousarray(scored[:, :width])
            against = None
            if spool is not None and first is None:
                spool.append(rows)
            elif spool is not None:
                against = spool.rows(done, len(rows))
            parts.append(per_token(rows, following[done : done + len(rows)], against))
            done += len(rows)
            self._progress(label, done, len(following))
        return joined(parts)

    def measured(self, found: PerToken, first: PerToken | None, bootstrap: Bootstrap) -> Measured:
        """What it found, with sizes and speed."""
        context = self._common.context
        sizes = weight_sizes(self.model)
        perplexity, divergence = figures(found, first, bootstrap)
        mix = self.subject.mix
        return Measured(
            name=self.subject.name,
            path=str(self.subject.path),
            quantization=None if mix is None else mix.name,
            kv_dtype=self.model.ops.kv_dtype,
            activations=getattr(self.model.ops, "activations", "f32"),
            weights_bytes=sum(weight.nbytes for weight in sizes.values()),
            bytes_per_token=bytes_per_token(self.model, sizes, context),
            perplexity=perplexity,
            divergence=divergence,
            speed=self._speed(sizes, context) if self._settings.repeats else None,
        )

    def _speed(self, sizes: dict[str, WeightSize], context: int) -> Speed:
        """Of decoding the last tokens of a context."""
        label = f"{self.subject.name}: speed"
        self._progress(label, 0, 1)
        steps = min(DECODE_STEPS, context // 2)
        threads = self._settings.threads or available_threads()
        nbytes = sum(weight.nbytes for weight in sizes.values())
        case = Case("decode", steps, 1, context - steps)
        done = measure(self.model, case, self._settings.repeats, Probe(threads, nbytes), sizes)
        self._progress(label, 1, 1)
        return Speed(done.tokens_per_second, done.share_of_read)

    def close(self) -> None:
        """Its memory is needed for the next."""
        self._loaded = None
        gc.collect()


def bytes_per_token(model: Model, sizes: dict[str, WeightSize], context: int) -> int:
    """The least that decoding the last token of a context moves: weights, keys and values."""
    pages = tuple(range(pages_for(context, PAGE_SIZE)))
    span = Span(0, context - 1, (0,), pages, 1)
    return step_cost(model.spec, sizes, [span], model.ops.kv_dtype, model.ops.kv_lanes).bytes_moved


def beginning(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What the model expects before any text."""
    return (tokenizer.bos_id,) if tokenizer.add_bos and tokenizer.bos_id is not None else ()
