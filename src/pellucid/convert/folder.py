"""A safetensors model as GGUF would hold it: keys, tensors under GGUF's names, tokenizer.

Whatever is not said alike when the keys are read back (a window that the architecture has no key
for, an activation) is refused by name: no file comes to be that means another model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pellucid.convert.keys import Keys, differences, model_keys
from pellucid.convert.source import Bytes, Floats, Source, SourceTensor, rows_of
from pellucid.convert.tokens import tokenizer_keys
from pellucid.core.errors import UnsupportedError
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats import Checkpoint, Metadata, TensorInfo
from pellucid.formats.gguf_write import Value
from pellucid.models.registry import is_no_weight, read_spec
from pellucid.models.weights import StoredTensor, locate
from pellucid.ops.rotary import frequencies
from pellucid.quant.dequantize import dequantize
from pellucid.quant.quantize import quantize
from pellucid.quant.types import READABLE_TYPES, TensorType, byte_count

T = TypeVar("T", bound=np.generic)


def folder_model(checkpoint: Checkpoint) -> Source:
    """The model without its tokenizer. Raises `UnsupportedError` for what GGUF cannot say."""
    family, spec = read_spec(checkpoint)
    stored = locate(checkpoint, family.tensors(spec), is_no_weight)
    try:
        keys = {**model_keys(spec), "general.name": Value("string", _name(checkpoint))}
    except UnsupportedError as error:
        raise UnsupportedError(f"{checkpoint.path}: {error}; use the model as it is") from error
    factors = _factor_tensors(checkpoint, spec)
    twin = _read_back(checkpoint.path, keys, stored, factors)
    said = sorted(set(differences(spec, twin)))
    if said:
        named = keys["general.architecture"].value
        raise UnsupportedError(
            f"{checkpoint.path}: a GGUF file of {named} has no key for its {', '.join(said)}; use "
            "the model as it is"
        )
    tensors = [_tensor(one, spec, twin) for one in stored]
    tensors += [_constant(name, values) for name, values in factors.items()]
    return Source(checkpoint.path, keys, tensors, spec.n_layers, spec.tied_head)


def _name(checkpoint: Checkpoint) -> str:
    """What to call the model: GGUF readers show it."""
    given = checkpoint.metadata.get("_name_or_path") or checkpoint.metadata.get("name_or_path")
    path = checkpoint.path
    own = path.name if path.is_dir() else path.parent.name
    return str(given).rstrip("/").rpartition("/")[2] if isinstance(given, str) and given else own


def folder_source(checkpoint: Checkpoint) -> Source:
    """The model with its tokenizer. Raises what `folder_model` and `tokenizer_keys` raise."""
    model = folder_model(checkpoint)
    path = checkpoint.path
    folder = path if path.is_dir() else path.parent
    table = next(t for t in model.tensors if t.name == "token_embd.weight")
    tokens = tokenizer_keys(folder, table.shape[0])
    return dataclasses.replace(model, metadata={**model.metadata, **tokens})


class _Planned(Checkpoint):
    """A GGUF file that is not written yet, as far as a specification is read from it."""

    def __init__(
        self, path: Path, keys: Keys, tensors: dict[str, TensorInfo], small: dict[str, Floats]
    ) -> None:
        values = {key: value.value for key, value in keys.items()}
        types = {key: value.type for key, value in keys.items()}
        super().__init__(path, "gguf", Metadata(path, values, types), tensors, [])
        self._small = small

    def read(self, name: str) -> NDArray[np.float32]:
        return self._small[name]


def _read_back(
    path: Path, keys: Keys, stored: Sequence[StoredTensor], factors: dict[str, Floats]
) -> ModelSpec:
    shapes = {one.tensor.name: one.tensor.shape for one in stored}
    shapes |= {name: values.shape for name, values in factors.items()}
    tensors = {
        name: TensorInfo(name, shape, TensorType.F32, 0, byte_count(TensorType.F32, shape))
        for name, shape in shapes.items()
    }
    return read_spec(_Planned(path, keys, tensors, factors))[1]


def _factor_tensors(checkpoint: Checkpoint, spec: ModelSpec) -> dict[str, Floats]:
    """What frequencies are divided by, where that is a table: Llama 3.1's, LongRoPE's."""
    rope = spec.layers[0].rope
    scaling = None if rope is None else rope.scaling
    if scaling is None or scaling.kind not in ("llama3", "factors"):
        return {}
    if scaling.kind == "llama3":
        return {"rope_freqs.weight": _divisors(spec.layers[0])}
    short = read_spec(checkpoint, scaling.original_context)[1].layers[0]
    long = read_spec(checkpoint, scaling.original_context + 1)[1].layers[0]
    return {
        f"rope_factors_{name}.weight": _divisors(layer)
        for name, layer in (("long", long), ("short", short))
    }


def _divisors(layer: LayerSpec) -> Floats:
    """Plain frequencies over scaled ones, float32 [dims/2]."""
    assert layer.rope is not None
    start = np.zeros(1, np.int32)
    plain = frequencies(dataclasses.replace(layer.rope, scaling=None), start)
    divisors: Floats = (plain / frequencies(layer.rope, start))[0].astype(np.float32)
    return divisors


def _tensor(stored: StoredTensor, spec: ModelSpec, twin: ModelSpec) -> SourceTensor:
    """As GGUF has it: matrices in the checkpoint's own type, all else in F32."""
    name, shape = stored.tensor.name, stored.tensor.shape
    heads = _reordered_heads(name, spec, twin)
    type = stored.type
    if type not in READABLE_TYPES:
        raise UnsupportedError(
            f"{stored.checkpoint.path}: tensor {stored.infos[0].name}: weights of type {type.name} "
            "are not implemented"
        )
    if len(shape) < 2 or name.endswith(("ffn_gate_inp.weight", "position_embd.weight")):
        type = TensorType.F32

    def pieces() -> Iterator[Floats]:
        return _values(stored, heads)

    def bytes_of() -> Bytes:
        if stored.packed and type is not TensorType.F32:
            return _packed_bytes(stored, heads)
        return np.concatenate([quantize(rows, type) for rows in pieces()])

    return SourceTensor(name, shape, type, pieces, bytes_of, partial(_release, stored))


def _release(stored: StoredTensor) -> None:
    for info in stored.infos:
        stored.checkpoint.release(info.name)


def _values(stored: StoredTensor, heads: int | None) -> Iterator[Floats]:
    host = stored.host()
    if heads is not None:
        values = dequantize(host.data, host.type, host.shape)
        yield _neighbours(values, heads).reshape(-1, host.shape[-1])
        return
    parts = host.parts or (host.data,)
    shape = host.shape[1:] if host.parts else host.shape
    for part in parts:
        yield from rows_of(part, host.type, shape)


def _packed_bytes(stored: StoredTensor, heads: int | None) -> Bytes:
    """The very blocks of packed matrices: rows change places, and nothing within them."""
    host = stored.host()
    raw = np.concatenate(host.parts) if host.parts else host.data
    if heads is None:
        return raw
    return _neighbours(raw.reshape(host.shape[0], -1), heads).reshape(-1)


def _reordered_heads(name: str, spec: ModelSpec, twin: ModelSpec) -> int | None:
    """Heads of a Q or K whose features GGUF has in another order, else None."""
    layer, other = spec.layers[0], twin.layers[0]
    if layer.rope is None or other.rope is None or layer.rope.style == other.rope.style:
        return None
    kind = name.rpartition(".")[0].rpartition(".")[2]
    return {"attn_q": layer.n_heads, "attn_k": layer.n_kv_heads}.get(kind)


def _neighbours(rows: NDArray[T], heads: int) -> NDArray[T]:
    """Within each head, features that turn together, half a head apart, side by side."""
    apart = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(apart.swapaxes(1, 2)).reshape(rows.shape)


def _constant(name: str, values: Floats) -> SourceTensor:
    raw = values.view(np.uint8)
    return SourceTensor(
        name,
        values.shape,
        TensorType.F32,
        lambda: iter([values.reshape(1, -1)]),
        lambda: raw,
        lambda: None,
    )
