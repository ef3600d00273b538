"""A packed matrix of a quantised safetensors checkpoint, as a type that backends compute with.

A weight is scale * (number - zero), with a scale and a zero for each output and group of inputs.
Where groups are runs of whole blocks of 32 inputs this is a block type of ours to the bit:

    4 bits, every zero 8     Q4_0    d (q - 8)
    4 bits                   Q5_0    d (q - 16), since number - zero is within -16 and 15
    8 bits, every zero 128   Q8_0    d q

Q4_1 would take half a bit less than Q5_0, but its offset -scale * zero is not exact in half
precision. Everything else (8 bits with other zeros; groups of inputs that do not lie together, as
`desc_act` makes them) is exact in float32 and to the nearest in half precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import FormatError
from pellucid.formats import Checkpoint, TensorInfo
from pellucid.formats.shown import shown
from pellucid.models.packing import Packing
from pellucid.quant import pack
from pellucid.quant.quantize import quantize
from pellucid.quant.types import TensorType

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Numbers = NDArray[np.int16]

BLOCK = 32
_PIECE = 1 << 22  # numbers unpacked at a time
_SCALES = frozenset({TensorType.F16, TensorType.BF16, TensorType.F32})
_EXACT = (TensorType.Q4_0, TensorType.Q5_0, TensorType.Q8_0)


def is_packed(checkpoint: Checkpoint, base: str) -> bool:
    """Whether `base` + "weight" is packed."""
    return f"{base}qweight" in checkpoint.tensors


@dataclass(frozen=True)
class PackedMatrix:
    """The matrix (out, in) whose tensors' names begin with `base` ("...q_proj.").

    Making one checks every shape. Raises `FormatError` naming the tensor that is missing or wrong.
    """

    checkpoint: Checkpoint
    base: str
    shape: tuple[int, int]
    packing: Packing

    def __post_init__(self) -> None:
        out, inputs = self.shape
        per_word, group = self.packing.per_word, self.packing.group or inputs
        if inputs % group:
            raise self._error("qweight", f"{inputs} inputs do not divide into groups of {group}")
        packed_along = inputs if self.packing.rows else out
        if packed_along % per_word or out % per_word:
            raise self._error(
                "qweight", f"a matrix {list(self.shape)} does not divide into words of {per_word}"
            )
        words = (inputs // per_word, out) if self.packing.rows else (inputs, out // per_word)
        self._check("qweight", {TensorType.I32}, words)
        self._check("qzeros", {TensorType.I32}, (inputs // group, out // per_word))
        self._check("scales", _SCALES, (inputs // group, out))
        if f"{self.base}g_idx" in self.checkpoint.tensors:
            self._check("g_idx", {TensorType.I32}, (inputs,))

    @property
    def infos(self) -> tuple[TensorInfo, ...]:
        """What it is made of, the numbers first."""
        names = (f"{self.base}{part}" for part in ("qweight", "qzeros", "scales", "g_idx"))
        tensors = self.checkpoint.tensors
        return tuple(tensors[name] for name in names if name in tensors)

    @cached_property
    def exact_type(self) -> TensorType | None:
        """The block type that holds it to the bit, if there is one."""
        halves = self._scales.astype(np.float16).astype(np.float32)
        group = self.packing.group or self.shape[1]
        if not self._runs or group % BLOCK or not np.array_equal(halves, self._scales):
            return None
        middle = 1 << (self.packing.bits - 1)
        symmetric = bool((self._zeros == middle).all())
        if self.packing.bits == 8:
            return TensorType.Q8_0 if symmetric else None
        return TensorType.Q4_0 if symmetric else TensorType.Q5_0

    def encoded(self, type: TensorType) -> Bytes:
        """Its bytes in `type`: one that holds `exact_type`, F32 (exact too) or F16."""
        found = np.concatenate([_encoded(type, *piece) for piece in self._pieces()])
        for info in self.infos:
            self.checkpoint.release(info.name)
        return found

    def _pieces(self) -> Iterator[tuple[Numbers, Floats]]:
        """Some outputs at a time: number - zero [n, in], and scales [n, in]."""
        out, inputs = self.shape
        step = max(8, _PIECE // inputs // 8 * 8)
        for first in range(0, out, step):
            columns = slice(first, min(out, first + step))
            numbers = self._numbers(columns) - self._zeros[self._groups, columns]
            scales = self._scales[self._groups, columns]
            yield np.ascontiguousarray(numbers.T), np.ascontiguousarray(scales.T)

    def _numbers(self, columns: slice) -> Numbers:
        """Of some outputs, [in, n]."""
        words = self._words("qweight")
        if self.packing.rows:
            return _spread(words[:, columns], self.packing, axis=0)
        per_word = self.packing.per_word
        some = slice(columns.start // per_word, columns.stop // per_word)
        return _spread(words[:, some], self.packing, axis=1)

    @cached_property
    def _zeros(self) -> Numbers:
        """[groups, out]"""
        stored = _spread(self._words("qzeros"), self.packing, axis=1)
        shifted: Numbers = (stored + self.packing.zero_shift) & ((1 << self.packing.bits) - 1)
        return shifted

    @cached_property
    def _scales(self) -> Floats:
        """[groups, out]"""
        scales = self.checkpoint.read(f"{self.base}scales")
        if not np.isfinite(scales).all():
            raise self._error("scales", "holds a number that is infinite or none")
        return scales

    @cached_property
    def _groups(self) -> NDArray[np.int32]:
        """The group of each input, [in]."""
        inputs = self.shape[1]
        group = self.packing.group or inputs
        if f"{self.base}g_idx" not in self.checkpoint.tensors:
            return np.arange(inputs, dtype=np.int32) // group
        found = self._words("g_idx").astype(np.int32)
        last = inputs // group - 1
        if inputs and not 0 <= int(found.min()) <= int(found.max()) <= last:
            problem = f"names group {int(found.min() if found.min() < 0 else found.max())}"
            raise self._error("g_idx", f"{problem}, and there are 0 to {last}")
        return found

    @cached_property
    def _runs(self) -> bool:
        """Whether each group is the inputs of one run, in order."""
        group = self.packing.group or self.shape[1]
        return np.array_equal(self._groups, np.arange(self.shape[1]) // group)

    def _words(self, part: str) -> NDArray[np.int32]:
        info = self.checkpoint.info(f"{self.base}{part}")
        return self.checkpoint.raw(info.name).view("<i4").reshape(info.shape)

    def _check(
        self, part: str, types: frozenset[TensorType] | set[TensorType], shape: tuple[int, ...]
    ) -> None:
        info = self.checkpoint.info(f"{self.base}{part}")
        if info.type not in types:
            wanted = " or ".join(sorted(type.name for type in types))
            raise self._error(part, f"is of type {info.type.name} and not {wanted}")
        if info.shape != shape:
            packing = self.packing
            raise self._error(
                part,
                f"has shape {list(info.shape)} where {packing.method} of {packing.bits} bits in "
                f"groups of {packing.group or self.shape[1]} asks for {list(shape)} of a matrix "
                f"{list(self.shape)}",
            )

    def _error(self, part: str, problem: str) -> FormatError:
        return FormatError(self.checkpoint.path, f"tensor {shown(self.base + part)}", problem)


def common_type(matrices: tuple[PackedMatrix, ...]) -> TensorType | None:
    """A type that holds every one to the bit, if there is one."""
    types = {matrix.exact_type for matrix in matrices}
    if types == {TensorType.Q4_0, TensorType.Q5_0}:
        return TensorType.Q5_0
    return types.pop() if len(types) == 1 else None


def _spread(words: NDArray[np.int32], packing: Packing, axis: int) -> Numbers:
    """Words [n, m] as the numbers in them, along `axis`: [n * per_word, m] or [n, m * per_word]."""
    shifts = np.arange(0, 32, packing.bits, dtype=np.uint32)
    mask = np.uint32((1 << packing.bits) - 1)
    n, m = words.shape
    unsigned = np.ascontiguousarray(words).view(np.uint32)
    if axis == 0:
        rows: Numbers = ((unsigned[:, None, :] >> shifts[:, None]) & mask).astype(np.int16)
        return rows.reshape(n * len(shifts), m)
    apart: Numbers = ((unsigned[:, :, None] >> shifts) & mask).astype(np.int16)
    if packing.order is not None:
        apart = apart[:, :, np.argsort(packing.order)]
    return apart.reshape(n, m * len(shifts))


def _encoded(type: TensorType, numbers: Numbers, scales: Floats) -> Bytes:
    """Rows [n, in] of number - zero and of scales, in `type`."""
    if type not in _EXACT:
        return quantize(scales * numbers.astype(np.float32), type)
    d = scales.reshape(-1, BLOCK)[:, 0].astype(np.float16)
    whole = numbers.reshape(-1, BLOCK)
    if type is TensorType.Q8_0:
        blocks = pack.q8_0(d, whole.astype(np.int8))
    elif type is TensorType.Q4_0:
        blocks = pack.four_bits(type, d, None, (whole + 8).astype(np.uint8))
    else:
        blocks = pack.five_bits(type, d, None, (whole + 16).astype(np.uint8))
    return blocks.view(np.uint8)
