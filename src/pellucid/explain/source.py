"""What MODEL names: a whole model, or a configuration that says what its weights would be."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pellucid.core.errors import BadInput
from pellucid.core.spec import ModelSpec
from pellucid.costs import WeightSize, kv_types
from pellucid.costs.roofline import Priced
from pellucid.formats import Checkpoint, Metadata, open_checkpoint
from pellucid.formats.folder import read_config
from pellucid.models.registry import is_no_weight, read_spec
from pellucid.models.weights import locate
from pellucid.quant.types import byte_count

CONFIG = "config.json"
_BITS = {"float32": 32.0, "float16": 16.0, "bfloat16": 16.0}


@dataclass(frozen=True, slots=True)
class Source:
    """A model at `path`, priced as it would run elsewhere: weights as stored. `whole` is False
    where there is a configuration alone; `bits` says of which weights."""

    path: Path
    priced: Priced
    whole: bool
    bits: str

    @property
    def spec(self) -> ModelSpec:
        return self.priced.spec


def open_source(path: Path, bits: float | None = None, kv_dtype: str = "f16") -> Source:
    """Reads headers alone. `bits` are of every weight, in place of those the model has.

    Raises `BadInput` for a `kv_dtype` that is none, and what opening the model and reading its
    configuration raise.
    """
    kv_types(kv_dtype)
    folder = path.parent if path.name == CONFIG else path
    if is_config_alone(path):
        return _from_config(folder, bits, kv_dtype)
    with open_checkpoint(path) as checkpoint:
        family, spec = read_spec(checkpoint)
        stored = locate(checkpoint, family.tensors(spec), is_no_weight)
        sizes = {
            one.tensor.name: WeightSize(one.tensor.shape, byte_count(one.type, one.tensor.shape))
            for one in stored
        }
    if bits is not None:
        sizes = {name: _in_bits(size.shape, bits) for name, size in sizes.items()}
    how = "as stored" if bits is None else f"in {bits:g} bits"
    return Source(path, Priced(spec, sizes, kv_dtype), True, how)


def is_config_alone(path: Path) -> bool:
    """Whether there is a configuration, and no weights beside it."""
    if path.name == CONFIG:
        return path.is_file()
    return (path / CONFIG).is_file() and not any(path.glob("*.safetensors"))


def _from_config(folder: Path, bits: float | None, kv_dtype: str) -> Source:
    config = read_config(folder)
    family, spec = read_spec(
        Checkpoint(folder, "safetensors", Metadata(folder / CONFIG, config), {}, [])
    )
    each = _bits_of(config) if bits is None else bits
    sizes = {
        tensor.name: _in_bits(tensor.shape, each)
        for tensor in family.tensors(spec)
        if not tensor.optional
    }
    return Source(folder, Priced(spec, sizes, kv_dtype), False, f"in {each:g} bits")


def _bits_of(config: dict[str, Any]) -> float:
    """What the configuration says that its weights are stored in; 16 where it does not say."""
    named = config.get("dtype", config.get("torch_dtype"))
    return _BITS.get(named, 16.0) if isinstance(named, str) else 16.0


def _in_bits(shape: tuple[int, ...], bits: float) -> WeightSize:
    return WeightSize(shape, round(prod(shape) * bits / 8))


def check_bits(bits: float | None) -> None:
    """Raises `BadInput` for bits that no weight has."""
    if bits is not None and not 1 <= bits <= 64:
        raise BadInput(f"--bits {bits:g}: a weight has from 1 to 64 bits")
