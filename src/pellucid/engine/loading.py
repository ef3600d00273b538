"""From a path to an engine: what is opened, in which order, and what the user is told."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.core.params import SamplingParams
from pellucid.core.spec import ModelSpec
from pellucid.costs import kv_types
from pellucid.engine.defaults import default_params
from pellucid.engine.memory import available_memory, in_words
from pellucid.engine.sizing import NOTHING, Asked, Beside, describe, limits_for
from pellucid.formats import Checkpoint, open_checkpoint
from pellucid.models.packing import Packing, packing_of
from pellucid.models.registry import Model, is_no_weight, load_model, read_spec
from pellucid.models.weights import StoredTensor, locate
from pellucid.ops import Ops
from pellucid.quant.mixes import Mix
from pellucid.quant.types import TensorType, byte_count
from pellucid.scheduling import Limits
from pellucid.text import (
    ChatTemplates,
    Tokenizer,
    folder_chat_templates,
    gguf_chat_templates,
)
from pellucid.text.vocabulary import TokenKind

logger = logging.getLogger("pellucid")


@dataclass(frozen=True, slots=True)
class Loaded:
    model: Model
    tokenizer: Tokenizer
    templates: ChatTemplates
    limits: Limits
    defaults: SamplingParams


def load(
    path: Path,
    ops: Ops,
    asked: Asked,
    kv_budget: int | None,
    note: Callable[[str], None],
    mix: Mix | None = None,
    *,
    requantize: bool = False,
    progress: Callable[[int, int], None] | None = None,
    beside: Beside = NOTHING,
) -> Loaded:
    """Everything an engine is made of, from the model at `path`, its weights prepared by `ops`.

    With `mix` its matrices are quantised, with `requantize` those too that are quantised already;
    `progress(done, total)` counts bytes of the file. `kv_budget` bytes may go to the KV cache; None
    is half of the memory that the weights leave. `beside` is what another model takes of both.
    `note` is told in one line what was decided. Errors are those of the parts.
    """
    with open_checkpoint(path) as checkpoint:
        spec = read_spec(checkpoint, asked.max_model_len)[1]
        weights, form = weights_in_memory(checkpoint, ops)
        packing = packing_of(checkpoint)
        if packing is not None:
            _say(note, _how_unpacked(packing, stored_weights(checkpoint), ops))
        prepare = None
        if mix is not None:
            from pellucid.engine.quantized import AtLoad  # what few starts need

            prepare = AtLoad(mix, spec, path, requantize=requantize)
            quantised = prepare.nbytes(stored_weights(checkpoint))
            if ops.name != "reference":
                weights, form = quantised, f"as {mix.name}"
        free = available_memory()
        free -= beside.weights
        if weights > free:
            raise PellucidError(
                f"{path}: its weights take {in_words(weights)} {form} and {in_words(free)} of "
                "memory are free: close other programs or use a smaller model"
            )
        budget = (free - weights) // 2 if kv_budget is None else kv_budget
        limits = limits_for(spec, asked, budget, ops.kv_dtype, ops.kv_lanes, beside.per_token)
        pool = describe(
            spec,
            limits,
            budget,
            ops.kv_dtype,
            ops.kv_lanes,
            beside.per_token,
            given=kv_budget is not None,
        )
        _say(note, f"weights: {in_words(weights)} {form}; {pool}")
        defaults = default_params(checkpoint)
        # The tokenizer's library keeps Python to itself while it builds; packing needs no Python.
        with ThreadPoolExecutor(1, "pellucid-text") as threads:
            text = threads.submit(open_text, checkpoint)
            model = load_model(
                checkpoint,
                ops,
                context=limits.max_model_len,
                prepare=prepare,
                progress=progress,
            )
            tokenizer, templates = text.result()
        model = knowing_its_keys(model, tokenizer)
    return Loaded(model, tokenizer, templates, limits, defaults)


def knowing_its_keys(model: Model, tokenizer: Tokenizer) -> Model:
    """With keys in int4: the model after it has read a page."""
    page = page_of_keys(model.spec, model.ops, tokenizer)
    if not page:
        return model
    from pellucid.models.key_statistics import with_key_prior  # what few starts need

    return with_key_prior(model, page)


def page_of_keys(spec: ModelSpec, ops: Ops, tokenizer: Tokenizer) -> list[int]:
    """The page that shows what keys are like, as tokens; none where keys are not in int4."""
    if kv_types(ops.kv_dtype).keys != "int4":
        return []
    text = (files("pellucid.engine") / "calibration.txt").read_text(encoding="utf-8")
    return [i for i in tokenizer.encode(text) if i < spec.vocab_size]


def check_quantization(path: Path, mix: Mix, *, requantize: bool = False) -> None:
    """Whether the model at `path` has anything to quantise, by its headers alone. Raises `BadInput`
    if not, and what opening it raises."""
    from pellucid.engine.quantized import AtLoad

    with open_checkpoint(path) as checkpoint:
        spec = read_spec(checkpoint)[1]
        AtLoad(mix, spec, path, requantize=requantize).nbytes(stored_weights(checkpoint))


def tokens_of(tokenizer: Tokenizer, vocab_size: int) -> NDArray[np.bool_]:
    """Which rows of a model's table are tokens, bool [vocab_size].

    Tables are padded past the tokenizer's last token, and a tokenizer may leave ids out. A GGUF
    file gives such a row a name made of its number, but says that it is unused.
    """
    is_token = np.zeros(vocab_size, np.bool_)
    is_token[: tokenizer.vocab_size] = True
    names = tokenizer.vocabulary.tokens
    for token in tokenizer.vocabulary.ids_of_kind(TokenKind.UNUSED):
        if token < vocab_size and names[token] in ("", f"[PAD{token}]"):
            is_token[token] = False
    return is_token


def open_text(checkpoint: Checkpoint) -> tuple[Tokenizer, ChatTemplates]:
    """What turns text into a model's tokens. Errors are those of the parts."""
    path = checkpoint.path
    if checkpoint.kind == "gguf":
        metadata = checkpoint.metadata
        return Tokenizer.from_gguf(metadata, path), gguf_chat_templates(metadata, path)
    folder = path if path.is_dir() else path.parent
    return Tokenizer.from_folder(folder), folder_chat_templates(folder)


def stored_weights(checkpoint: Checkpoint) -> list[StoredTensor]:
    """The model's tensors, packed ones with the shapes that they stand for. Errors are those of
    `locate`."""
    family, spec = read_spec(checkpoint)
    return locate(checkpoint, family.tensors(spec), is_no_weight)


def weights_in_memory(checkpoint: Checkpoint, ops: Ops) -> tuple[int, str]:
    """Bytes that the weights take, and in which form."""
    form = "as float32" if ops.name == "reference" else "as stored"
    if packing_of(checkpoint) is not None:
        return sum(_unpacked_bytes(one, ops) for one in stored_weights(checkpoint)), form
    tensors = checkpoint.tensors.values()
    if ops.name == "reference":
        return sum(4 * math.prod(info.shape) for info in tensors), form
    return sum(info.nbytes for info in tensors), form


def _unpacked_bytes(stored: StoredTensor, ops: Ops) -> int:
    if ops.name == "reference":
        return 4 * math.prod(stored.tensor.shape)
    return byte_count(stored.type, stored.tensor.shape)


def _how_unpacked(packing: Packing, stored: list[StoredTensor], ops: Ops) -> str:
    """What becomes of packed matrices, in one line."""
    types = Counter(one.type for one in stored if one.packed)
    rounded = types.pop(TensorType.F16, 0)
    parts = [f"{n} matrices as {type.name}, exactly" for type, n in sorted(types.items())]
    if rounded:
        how = "F32, exactly" if ops.exact else "F16, to the nearest"
        parts.append(f"{rounded} matrices as {how}: no block type holds them")
    return f"{packing.method.upper()} of {packing.bits} bits: {'; '.join(parts) or 'no matrix'}"


def _say(note: Callable[[str], None], line: str) -> None:
    logger.info(line)
    note(line)
