"""Quantises a source tensor by tensor, several pieces at once, in bounded memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from pellucid.convert.source import Bytes, Floats, Source, SourceTensor
from pellucid.core.errors import BadInput
from pellucid.formats.gguf_write import Entry, Value, write_gguf
from pellucid.quant.dequantize import dequantize
from pellucid.quant.mixes import Mix, fitting_type, is_quantized_in, wanted_type
from pellucid.quant.quantize import QUANTIZED_TYPES, quantize
from pellucid.quant.types import TensorType, layout

# The version of block layouts that `general.quantization_version` names.
QUANTIZATION_VERSION = 2
_PLAIN = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})
_HEADS = ("output.weight", "token_embd.weight")

Progress = Callable[[int, int], None]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of one tensor. `wanted` is what the mix has for it, `type` what its rows take;
    `copied`: the bytes are the source's own."""

    source: SourceTensor
    type: TensorType
    wanted: TensorType
    copied: bool

    @property
    def entry(self) -> Entry:
        return Entry(self.source.name, self.source.shape, self.type)


@dataclass(slots=True)
class Written:
    """One tensor of the new file. `error` is the root mean square error over the root mean square
    of its values; 0 for what was copied."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    wanted: TensorType
    squared_error: float = 0.0
    squared_values: float = 0.0

    @property
    def error(self) -> float:
        return math.sqrt(self.squared_error / self.squared_values) if self.squared_values else 0.0


@dataclass(slots=True)
class Report:
    """What was written, in all `nbytes`."""

    nbytes: int = 0
    tensors: list[Written] = field(default_factory=list)


def choose(source: Source, mix: Mix, *, pure: bool, requantize: bool) -> list[Choice]:
    """A type for every tensor.

    With `pure` every matrix gets the mix's main type. Raises `BadInput` for a source that is
    quantised already, unless `requantize`; and for rows that do not fit a pure type.
    """
    choices = [_choice(source, tensor, mix, pure) for tensor in source.tensors]
    again = [c for c in choices if not c.copied and c.source.type not in _PLAIN]
    if again and not requantize:
        raise BadInput(
            f"{source.path}: {len(again)} tensors are quantised already ({again[0].source.name} is "
            f"{again[0].source.type.name}), and quantising again adds to their errors: use the "
            "unquantised model, or ask for it with --requantize"
        )
    return choices


def _choice(source: Source, tensor: SourceTensor, mix: Mix, pure: bool) -> Choice:
    if not is_quantized_in(tensor.name, tensor.shape):
        return Choice(tensor, tensor.type, tensor.type, copied=True)
    is_head = tensor.name == _HEADS[source.tied]
    wanted = mix.base if pure else wanted_type(mix, tensor.name, source.n_layers, is_head=is_head)
    type = fitting_type(wanted, tensor.shape[-1])
    if pure and type is not wanted:
        raise BadInput(
            f"{source.path}: tensor {tensor.name}: rows of {tensor.shape[-1]} do not divide into "
            f"{wanted.name} blocks of {layout(wanted).elements}; leave out --pure, and such "
            f"tensors become {type.name}"
        )
    return Choice(tensor, type, wanted, copied=tensor.type is type)


def write_quantized(
    source: Source,
    choices: list[Choice],
    mix: Mix,
    path: Path,
    *,
    threads: int = 1,
    importance: Mapping[str, Floats] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write the new file. `importance` has a weight for each input of a matrix, float32 [row], by
    tensor name; `progress(done, total)` counts elements.

    Raises `BadInput` naming a tensor with values that cannot be quantised, and what `write_gguf`
    raises.
    """
    metadata = {
        **source.metadata,
        "general.file_type": Value("uint32", mix.file_type),
        "general.quantization_version": Value("uint32", QUANTIZATION_VERSION),
    }
    by_name = {choice.source.name: choice for choice in choices}
    total = sum(math.prod(choice.source.shape) for choice in choices)
    report, done = Report(), 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        if progress is not None:
            progress(done, total)

    with ThreadPoolExecutor(threads, "pellucid-quantize") as pool:

        def data(entry: Entry) -> Iterator[Bytes]:
            choice = by_name[entry.name]
            written = Written(entry.name, entry.shape, entry.type, choice.wanted)
            report.tensors.append(written)
            weights = (importance or {}).get(entry.name)
            yield from _tensor_bytes(source.path, choice, weights, pool, threads, written, advance)
            choice.source.release()

        entries = [choice.entry for choice in choices]
        report.nbytes = write_gguf(path, metadata, entries, data)
    return report


def _tensor_bytes(
    path: Path,
    choice: Choice,
    importance: Floats | None,
    pool: ThreadPoolExecutor,
    threads: int,
    written: Written,
    advance: Callable[[int], None],
) -> Iterator[Bytes]:
    def work(rows: Floats) -> tuple[Bytes, int, float, float]:
        return _quantized(rows, choice.type, importance)

    try:
        if choice.copied:
            yield _copied(choice.source)
            advance(math.prod(choice.source.shape))
            return
        for raw, n, error, values in in_order(pool, work, choice.source.pieces(), 2 * threads):
            written.squared_error += error
            written.squared_values += values
            yield raw
            advance(n)
    except BadInput as error:
        raise BadInput(f"{path}: tensor {choice.source.name}: {error}") from error


def _copied(source: SourceTensor) -> Bytes:
    """Its own bytes. Raises `BadInput` for floats that are no numbers: norms must be some, too."""
    if source.type in _PLAIN and not all(np.isfinite(rows).all() for rows in source.pieces()):
        raise BadInput("holds a value that is infinite or not a number")
    return source.stored()


def _quantized(
    rows: Floats, type: TensorType, importance: Floats | None
) -> tuple[Bytes, int, float, float]:
    """Bytes, number of values, and the squares of errors and of values."""
    raw = quantize(rows, type, importance if type in QUANTIZED_TYPES else None)
    restored = dequantize(raw, type, rows.shape)
    error = np.subtract(rows, restored).reshape(-1)
    flat = rows.reshape(-1)
    return raw, rows.size, float(np.dot(error, error)), float(np.dot(flat, flat))


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[T], R], items: Iterable[T], ahead: int
) -> Iterator[R]:
    """`work` of each item, in order, at most `ahead` of them begun before they are asked for."""
    begun: deque[Future[R]] = deque()
    try:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) >= ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
