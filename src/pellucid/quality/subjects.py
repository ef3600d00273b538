"""The models of a comparison, and whether they can be compared on a text at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pellucid.core.errors import BadInput
from pellucid.engine.loading import check_quantization, open_text
from pellucid.formats import open_checkpoint
from pellucid.models.registry import read_spec
from pellucid.quality.intervals import BLOCK, MIN_BLOCKS
from pellucid.quant.mixes import Mix
from pellucid.text import Tokenizer

CONTEXT = 512
MIN_CONTEXT = 8
MIN_TOKENS = BLOCK * MIN_BLOCKS + 1
# No tokenizer makes fewer tokens of this many characters of anything people write.
_CHARACTERS_PER_TOKEN = 32


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, quantised to `mix` at load if there is one. `activations`: what its products of
    quantised weights read; None is the backend's choice."""

    name: str
    path: Path
    mix: Mix | None = None
    activations: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Common:
    """What all models of a comparison share: the tokens `ids` of the text, windows of `context`
    positions, and the first `width` entries of their vocabularies."""

    ids: tuple[int, ...]
    context: int
    width: int


@dataclass(frozen=True, slots=True)
class _Read:
    """One model's view of the text."""

    ids: list[int]
    tokenizer: Tokenizer
    rows: int
    context: int


def check(
    subjects: Sequence[Subject], text: Text, n_tokens: int, context: int | None, requantize: bool
) -> Common:
    """What they share, by reading headers alone.

    Raises `BadInput` naming the model and the mend: for a text that is too short, a context that a
    model does not have, models that read the text as other tokens, and one with nothing to
    quantise; and what opening a model raises.
    """
    limit = n_tokens * _CHARACTERS_PER_TOKEN
    read: dict[Path, _Read] = {}
    for subject in subjects:
        if subject.path not in read:
            read[subject.path] = _read(subject.path, text.text[:limit], n_tokens)
        if subject.mix is not None:
            check_quantization(subject.path, subject.mix, requantize=requantize)
    first = next(iter(read.values()))
    width = min(min(one.rows, one.tokenizer.vocab_size) for one in read.values())
    for path, one in read.items():
        _check_tokens(subjects[0].path, first, path, one, width)
    if len(first.ids) < MIN_TOKENS:
        raise BadInput(
            f"{text.name}: has {len(first.ids)} tokens for {subjects[0].path}, and "
            f"{min(n_tokens, len(first.ids))} are to be read: at least {MIN_TOKENS} are needed to "
            "say how certain the figures are; give a longer text"
            + (", or raise --tokens" if n_tokens < MIN_TOKENS else "")
        )
    shortest = min(read, key=lambda path: read[path].context)
    longest = read[shortest].context
    size = min(CONTEXT, longest) if context is None else context
    if not MIN_CONTEXT <= size <= longest:
        raise BadInput(
            f"--context {size}: {shortest} was made for {longest} positions, and "
            f"{MIN_CONTEXT} are the least that say anything"
        )
    return Common(tuple(first.ids), size, width)


def _read(path: Path, text: str, n_tokens: int) -> _Read:
    with open_checkpoint(path) as checkpoint:
        spec = read_spec(checkpoint)[1]
        tokenizer = open_text(checkpoint)[0]
    ids = tokenizer.encode(text, add_special=False)[:n_tokens]
    return _Read(ids, tokenizer, spec.vocab_size, spec.context_length)


def _check_tokens(base: Path, first: _Read, path: Path, one: _Read, width: int) -> None:
    ours, theirs = first.tokenizer.vocabulary.tokens, one.tokenizer.vocabulary.tokens
    differ = next((i for i in range(width) if ours[i] != theirs[i]), None)
    if differ is not None:
        raise BadInput(
            f"{path}: has another vocabulary than {base} (token {differ} is {theirs[differ]!r}, "
            f"there {ours[differ]!r}): only models of one vocabulary can be held against each other"
        )
    if one.ids != first.ids:
        raise BadInput(
            f"{path}: reads the text as other tokens than {base}: only models of one tokenizer can "
            "be held against each other"
        )
    if max(one.ids, default=0) >= width:
        raise BadInput(
            f"{path}: the text has tokens beyond the {width} that {base} has scores for: only "
            "models of one vocabulary can be held against each other"
        )
