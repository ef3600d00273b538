"""From what a caller asks of speculation to what the engine uses: drafters, and draft models."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pellucid.core.errors import BadInput
from pellucid.core.spec import ModelSpec
from pellucid.costs import kv_bytes_per_token
from pellucid.engine.caches import new_cache
from pellucid.engine.loading import (
    Loaded,
    check_quantization,
    knowing_its_keys,
    open_text,
    stored_weights,
    tokens_of,
    weights_in_memory,
)
from pellucid.engine.sizing import Beside
from pellucid.engine.speculating import Speculation
from pellucid.formats import open_checkpoint
from pellucid.hub import Progress, resolve
from pellucid.models.registry import Model, load_model, read_spec
from pellucid.models.short_head import with_short_head
from pellucid.ops import Ops
from pellucid.quant.mixes import Mix, mix_named
from pellucid.sampling import Sampler
from pellucid.speculation.drafter import Drafter
from pellucid.speculation.filled import Filled
from pellucid.speculation.lengths import Lengths
from pellucid.speculation.lookup import PromptLookup
from pellucid.speculation.model_drafter import Head, ModelDrafter
from pellucid.speculation.settings import SpeculativeSettings
from pellucid.text import Tokenizer

# Of the layers of a model, the share that guesses where early exit does not say how many.
_EARLY_SHARE = 3
# Rows of a draft model's short head, for vocabularies of more than twice as many.
_SHORT_HEAD = 32_768

NewSampler = Callable[[ModelSpec], Sampler]
Speculate = Callable[[object], Speculation]


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A draft model that is to be loaded: where it is, its sizes, and what it takes beside the
    model that it guesses for."""

    path: Path
    n_parameters: int
    beside: Beside
    mix: Mix | None = None


def find_draft(
    settings: SpeculativeSettings, ops: Ops, *, offline: bool, progress: Progress
) -> DraftFile | None:
    """The draft model that is asked for, if one is. Raises as finding and opening it do."""
    if settings.model is None:
        return None
    path = resolve(settings.model, offline=offline, progress=progress)
    mix = None if settings.quantization is None else _mix(settings.quantization)
    if mix is not None:
        check_quantization(path, mix, requantize=True)
    with open_checkpoint(path) as checkpoint:
        _, spec = read_spec(checkpoint)
        weights, _ = weights_in_memory(checkpoint, ops)
        stored = stored_weights(checkpoint)
        if mix is not None and ops.name != "reference":
            from pellucid.engine.quantized import AtLoad  # what few starts need

            weights = AtLoad(mix, spec, path, requantize=True).nbytes(stored)
        n_parameters = sum(math.prod(one.tensor.shape) for one in stored)
        per_token = kv_bytes_per_token(spec, ops.kv_dtype, ops.kv_lanes)
        return DraftFile(path, n_parameters, Beside(weights, per_token), mix)


def _mix(quantization: str) -> Mix:
    try:
        return mix_named(quantization)
    except BadInput as error:
        raise BadInput(f"speculative: quantization: {error}") from error


def prepare_speculation(
    settings: SpeculativeSettings, loaded: Loaded, draft: DraftFile | None, new_sampler: NewSampler
) -> Speculate:
    """What makes the speculation of an engine from its cache; a draft model is loaded now.

    Raises `BadInput` for a draft model with another vocabulary or larger than the model itself, and
    for early exit after no layer or the last; and as `load_model`.
    """
    limits = loaded.limits
    rejecting = settings.rule == "rejection"

    def speculation(drafter: Drafter) -> Speculation:
        lengths = Lengths(settings.most, adaptive=settings.adaptive)
        return Speculation(drafter, lengths, rejecting=rejecting, told=settings.told())

    def head(model: Model, n_rows: int) -> Head:
        return Head(model, new_sampler(replace(model.spec, vocab_size=n_rows)), n_rows)

    def drafter(
        model: Model, cache: object, filled: Filled | None = None, short: Head | None = None
    ) -> Drafter:
        whole, most = head(model, model.spec.vocab_size), limits.max_num_batched_tokens
        return ModelDrafter(
            whole, cache, limits.page_size, most, filled, short=short, rejecting=rejecting
        )

    if settings.method == "ngram":
        return lambda cache: speculation(PromptLookup(settings.most))
    if settings.method == "early-exit":
        early = _early(loaded.model, settings.layers)
        return lambda cache: speculation(drafter(early, cache))
    assert draft is not None
    model, cut = _load_draft(draft, loaded, settings.vocabulary)
    own, filled = new_cache(model, limits), Filled(limits.n_pages, limits.page_size)
    short = None if cut is None else head(*cut)
    return lambda cache: speculation(drafter(model, own, filled, short))


def _early(model: Model, layers: int | None) -> Model:
    """The first layers of the model, with its final norm and its head."""
    n_layers = model.spec.n_layers
    wanted = max(n_layers // _EARLY_SHARE, 1) if layers is None else layers
    if wanted >= n_layers:
        raise BadInput(
            f"speculative: layers must be from 1 to {n_layers - 1} for this model of {n_layers}, "
            f"not {wanted}"
        )
    spec = replace(model.spec, layers=model.spec.layers[:wanted])
    return Model(spec, model.ops, model.weights, model.family)


def _load_draft(
    draft: DraftFile, loaded: Loaded, vocabulary: int | None
) -> tuple[Model, tuple[Model, int] | None]:
    """The model that guesses, and the same with a short head of so many rows, if it is to have
    one."""
    with open_checkpoint(draft.path) as checkpoint:
        size = sum(math.prod(weight.shape) for _, weight in loaded.model.weights.items())
        if draft.n_parameters > size:
            raise BadInput(
                f"speculative: the draft {draft.path} has {_millions(draft.n_parameters)} "
                f"parameters, the model itself {_millions(size)}: a draft is smaller"
            )
        _, spec = read_spec(checkpoint)
        text = open_text(checkpoint)[0]
        _check_vocabulary(draft.path, text, spec, loaded)
        context = min(spec.context_length, loaded.limits.max_model_len)
        prepare = None
        if draft.mix is not None:
            from pellucid.engine.quantized import AtLoad  # what few starts need

            prepare = AtLoad(draft.mix, spec, draft.path, requantize=True)
        model = load_model(checkpoint, loaded.model.ops, context=context, prepare=prepare)
        model = knowing_its_keys(model, text)
        n_rows = _short_rows(spec.vocab_size, vocabulary)
        if n_rows is None:
            return model, None
        return model, (with_short_head(model, checkpoint, n_rows, prepare), n_rows)


def _short_rows(vocab_size: int, vocabulary: int | None) -> int | None:
    if vocabulary is None:
        return _SHORT_HEAD if vocab_size > 2 * _SHORT_HEAD else None
    return vocabulary if vocabulary < vocab_size else None


def _check_vocabulary(path: Path, theirs: Tokenizer, spec: ModelSpec, loaded: Loaded) -> None:
    """A token must mean the same to both; rows that pad a table do not matter."""
    ours = loaded.tokenizer
    ids = tokens_of(ours, loaded.model.spec.vocab_size).nonzero()[0].tolist()
    mine, other = ours.vocabulary, theirs.vocabulary
    begin = f"speculative: the draft {path} has another vocabulary"
    mend = "choose a draft that was made with the same tokenizer"
    n_there = min(len(other), spec.vocab_size)
    if mine.spelling != other.spelling or ids[-1] >= n_there:
        raise BadInput(f"{begin}: {n_there} tokens, the model itself {ids[-1] + 1}; {mend}")
    for id in ids:
        if mine.tokens[id] != other.tokens[id]:
            raise BadInput(
                f"{begin}: token {id} is {other.tokens[id]!r} there and {mine.tokens[id]!r} here; "
                f"{mend}"
            )


def _millions(count: int) -> str:
    return f"{count / 1e6:.4g} million"
