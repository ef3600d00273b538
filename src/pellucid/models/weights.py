"""From a checkpoint's tensors to a backend's weights, each one's shape checked.

Weights go by the names that GGUF gives them (`blk.3.attn_q.weight`), since those are the same
for every family; a family says how a Hugging Face checkpoint calls them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.formats import Checkpoint, TensorInfo
from pellucid.models.packed import PackedMatrix, common_type, is_packed
from pellucid.models.packing import Packing, packing_of
from pellucid.ops.vocabulary import HostTensor, Ops, Weight
from pellucid.quant.types import TensorType

Float32 = NDArray[np.float32]

# Checkpoints of the same weights begin their names otherwise: a base model leaves the prefix of
# the model with a head off, one that also sees puts its language model under its own.
_PREFIXES = (
    ("transformer.", ""),
    ("model.", ""),
    ("model.", "model.language_model."),
    ("model.", "language_model.model."),
    ("lm_head.", "language_model.lm_head."),
)


class Rows(NamedTuple):
    """The rows [first, first + n) of a tensor `whole` that has `total`."""

    whole: str
    first: int
    total: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight of a family.

    `name` and `shape` as in GGUF (rows first). `hf` is its name in a Hugging Face checkpoint;
    where that stores it in another form, `convert` turns the stored array, which has `hf_shape`,
    into ours. Matrices stored one by one under the names in `stacked` are put together along a
    new first axis. Some GGUF files hold it as the `rows` of a larger tensor. An optional one may be
    missing.
    """

    name: str
    shape: tuple[int, ...]
    hf: str = ""
    optional: bool = False
    convert: Callable[[Float32], Float32] | None = None
    hf_shape: tuple[int, ...] | None = None
    stacked: tuple[str, ...] = ()
    rows: Rows | None = None


class Weights:
    """Weights by name; `layer(i)` is the view of one layer with the `blk.i.` left off. `seconds`
    are what loading each of them took, where that was seen.

    `learned` are no part of the model, only known of it: found by name, but not among `items`.
    """

    def __init__(
        self,
        by_name: dict[str, Weight],
        seconds: Mapping[str, float] | None = None,
        learned: dict[str, Weight] | None = None,
    ) -> None:
        self._items = by_name
        self._by_name = {**by_name, **learned} if learned else by_name
        self.seconds: Mapping[str, float] = seconds or {}

    def __getitem__(self, name: str) -> Weight:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Weight | None:
        return self._by_name.get(name)

    def items(self) -> Iterator[tuple[str, Weight]]:
        yield from self._items.items()

    def with_one(self, name: str, weight: Weight) -> Weights:
        """The same with `weight` as `name`, whether there was one or not."""
        learned = {key: one for key, one in self._by_name.items() if key not in self._items}
        return Weights({**self._items, name: weight}, self.seconds, learned)

    def layer(self, index: int) -> Weights:
        return Weights(self._by_layer.get(str(index), {}))

    @cached_property
    def _by_layer(self) -> dict[str, dict[str, Weight]]:
        layers: dict[str, dict[str, Weight]] = {}
        for name, weight in self._by_name.items():
            if name.startswith("blk."):
                _, index, rest = name.split(".", 2)
                layers.setdefault(index, {})[rest] = weight
        return layers


def load_weights(
    checkpoint: Checkpoint,
    tensors: Iterable[Tensor],
    ops: Ops,
    *,
    skip: Callable[[str], bool] = lambda _: False,
    only: Callable[[str], bool] = lambda _: True,
    prepare: Callable[[HostTensor], HostTensor] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Weights:
    """Hand every declared tensor of `checkpoint` to `ops.load`, as `prepare` makes it; `only` says
    which of them, by our names.

    `skip` names tensors that carry nothing to compute with (buffers, or what the spec has read
    already); `progress(done, total)` counts bytes of the checkpoint. Raises `FormatError` for a
    missing tensor or a wrong shape, `UnsupportedError` naming tensors that nobody declared.
    """
    wanted = list(tensors)
    found: dict[str, Weight] = {}
    seconds: dict[str, float] = {}
    located = [one for one in locate(checkpoint, wanted, skip) if only(one.tensor.name)]
    sizes = [sum(info.nbytes for info in stored.infos) for stored in located]
    done = 0
    for stored, size in zip(located, sizes, strict=True):
        began = time.perf_counter()
        host = stored.host(exact=ops.exact and prepare is None)
        found[host.name] = ops.load(host if prepare is None else prepare(host))
        seconds[host.name] = time.perf_counter() - began
        if progress is not None:
            done += size
            progress(done, sum(sizes))
    return Weights(found, seconds)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A declared tensor and what of the checkpoint it is made of; `packed` are its matrices where
    those are packed."""

    checkpoint: Checkpoint
    tensor: Tensor
    infos: tuple[TensorInfo, ...]
    packed: tuple[PackedMatrix, ...] = ()

    @property
    def type(self) -> TensorType:
        """The type of what `host` will give, unless that shall be exact."""
        converted = self.checkpoint.kind != "gguf" and self.tensor.convert is not None
        if converted:
            return TensorType.F32
        return self._packed_type(TensorType.F16) if self.packed else self.infos[0].type

    def host(self, *, exact: bool = False) -> HostTensor:
        """The tensor itself; `exact`: in float32 where nothing shorter holds it to the bit. Raises
        `FormatError` for a wrong shape."""
        if self.packed:
            return self._unpacked(TensorType.F32 if exact else TensorType.F16)
        checkpoint, tensor, names = self.checkpoint, self.tensor, [i.name for i in self.infos]
        if tensor.stacked and names != [tensor.name]:
            return _stacked(checkpoint, tensor, list(self.infos))
        if tensor.rows is not None and names == [tensor.rows.whole]:
            return _some_rows(checkpoint, tensor, tensor.rows, self.infos[0])
        return _host_tensor(checkpoint, tensor, self.infos[0])

    def _packed_type(self, otherwise: TensorType) -> TensorType:
        return common_type(self.packed) or otherwise

    def _unpacked(self, otherwise: TensorType) -> HostTensor:
        name, shape = self.tensor.name, self.tensor.shape
        if self.tensor.convert is not None:
            [matrix] = self.packed
            values = matrix.encoded(TensorType.F32).view(np.float32).reshape(matrix.shape)
            array = np.ascontiguousarray(self.tensor.convert(values), np.float32)
            return HostTensor(name, shape, TensorType.F32, array.reshape(-1).view(np.uint8))
        type = self._packed_type(otherwise)
        parts = tuple(matrix.encoded(type) for matrix in self.packed)
        if len(parts) == 1 and not self.tensor.stacked:
            return HostTensor(name, shape, type, parts[0])
        return HostTensor(name, shape, type, np.empty(0, np.uint8), None, parts)


def locate(
    checkpoint: Checkpoint, tensors: Iterable[Tensor], skip: Callable[[str], bool]
) -> list[StoredTensor]:
    """Where every declared tensor lies, but for optional ones that are not there.

    Raises `FormatError` for a missing one, `UnsupportedError` naming those nobody declared.
    """
    found: list[StoredTensor] = []
    used: set[str] = set()
    packing = packing_of(checkpoint)
    for tensor in tensors:
        packed = () if packing is None else _packed(checkpoint, tensor, packing)
        if packed:
            infos = tuple(info for matrix in packed for info in matrix.infos)
            used.update(info.name for info in infos)
            used.update(_empty_biases(checkpoint, packed))
            found.append(StoredTensor(checkpoint, tensor, infos, packed))
            continue
        names = _stored_names(checkpoint, tensor)
        missing = [name for name in names if name not in checkpoint.tensors]
        if missing and tensor.optional:
            continue
        if missing:
            raise FormatError(checkpoint.path, f"tensor {missing[0]}", "is missing")
        used.update(names)
        infos = tuple(checkpoint.tensors[name] for name in names)
        found.append(StoredTensor(checkpoint, tensor, infos))
    unknown = sorted(name for name in checkpoint.tensors if name not in used and not skip(name))
    if unknown:
        listed = ", ".join(unknown[:4]) + (", ..." if len(unknown) > 4 else "")
        raise UnsupportedError(
            f"{checkpoint.path}: {len(unknown)} tensors have no place in this model: {listed}"
        )
    return found


def _packed(checkpoint: Checkpoint, tensor: Tensor, packing: Packing) -> tuple[PackedMatrix, ...]:
    """The matrices of a tensor that are packed, all or none."""
    names = tensor.stacked or (tensor.hf,)
    if not all(name.endswith(".weight") for name in names):
        return ()
    bases = [name.removesuffix("weight") for name in names]
    bases = [_hf_name(checkpoint, f"{base}qweight").removesuffix("qweight") for base in bases]
    if not all(is_packed(checkpoint, base) for base in bases):
        return ()
    shape = tensor.shape if tensor.convert is None else tensor.hf_shape or tensor.shape
    out, inputs = shape[-2:]
    return tuple(PackedMatrix(checkpoint, base, (out, inputs), packing) for base in bases)


def _empty_biases(checkpoint: Checkpoint, packed: tuple[PackedMatrix, ...]) -> Iterator[str]:
    """Biases of nothing but zeros, which some tools write beside every matrix."""
    for matrix in packed:
        name = f"{matrix.base}bias"
        if name in checkpoint.tensors and not checkpoint.read(name).any():
            yield name


def _stored_names(checkpoint: Checkpoint, tensor: Tensor) -> list[str]:
    if checkpoint.kind == "gguf":
        return _gguf_names(checkpoint, tensor)
    return [_hf_name(checkpoint, name) for name in tensor.stacked or (tensor.hf,)]


def _gguf_names(checkpoint: Checkpoint, tensor: Tensor) -> list[str]:
    """The tensor's own name, or what other generations of converters put in its place: experts one
    by one (until 2024), or Q, K and V in one tensor."""
    if tensor.name not in checkpoint.tensors:
        first, last = tensor.name.split("_exps") if tensor.stacked else ("", "")
        experts = [f"{first}.{e}{last}" for e in range(len(tensor.stacked))]
        if experts and experts[0] in checkpoint.tensors:
            return experts
        if tensor.rows is not None and tensor.rows.whole in checkpoint.tensors:
            return [tensor.rows.whole]
    return [tensor.name]


def _hf_name(checkpoint: Checkpoint, name: str) -> str:
    """The name that a Hugging Face checkpoint has `name` under."""
    others = (new + name[len(old) :] for old, new in _PREFIXES if name.startswith(old))
    return next((found for found in (name, *others) if found in checkpoint.tensors), name)


def _host_tensor(checkpoint: Checkpoint, tensor: Tensor, info: TensorInfo) -> HostTensor:
    converted = checkpoint.kind != "gguf" and tensor.convert is not None
    _check_shape(checkpoint, info, (tensor.hf_shape or tensor.shape) if converted else tensor.shape)
    if not converted:
        return HostTensor(
            tensor.name,
            tensor.shape,
            info.type,
            checkpoint.raw(info.name),
            partial(checkpoint.release, info.name),
        )
    assert tensor.convert is not None
    array = np.ascontiguousarray(tensor.convert(checkpoint.read(info.name)), np.float32)
    data = array.reshape(-1).view(np.uint8)
    return HostTensor(tensor.name, tensor.shape, TensorType.F32, data)


def _some_rows(checkpoint: Checkpoint, tensor: Tensor, rows: Rows, info: TensorInfo) -> HostTensor:
    _check_shape(checkpoint, info, (rows.total, *tensor.shape[1:]))
    row_bytes = info.nbytes // rows.total
    first, last = rows.first, rows.first + tensor.shape[0]
    data = checkpoint.raw(info.name)[first * row_bytes : last * row_bytes]
    release = partial(checkpoint.release, info.name)
    return HostTensor(tensor.name, tensor.shape, info.type, data, release)


def _stacked(checkpoint: Checkpoint, tensor: Tensor, infos: list[TensorInfo]) -> HostTensor:
    """Matrices of one type, each where it lies."""
    for info in infos:
        _check_shape(checkpoint, info, tensor.shape[1:])
        if info.type != infos[0].type:
            problem = f"is of type {info.type.name}, and {infos[0].name} of {infos[0].type.name}"
            raise FormatError(checkpoint.path, f"tensor {info.name}", problem)

    def release() -> None:
        for info in infos:
            checkpoint.release(info.name)

    parts = tuple(checkpoint.raw(info.name) for info in infos)
    none = np.empty(0, np.uint8)
    return HostTensor(tensor.name, tensor.shape, infos[0].type, none, release, parts)


def _check_shape(checkpoint: Checkpoint, info: TensorInfo, expected: tuple[int, ...]) -> None:
    if info.shape != expected:
        raise FormatError(
            checkpoint.path,
            f"tensor {info.name}",
            f"has shape {list(info.shape)} where the configuration asks for {list(expected)}",
        )
