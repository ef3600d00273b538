"""The model of a plan: its sizes alone, in the weights that it has or would have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pellucid.core.spec import ModelSpec
from pellucid.costs import WeightSize
from pellucid.costs.roofline import Priced
from pellucid.quant.mixes import Mix, fitting_type, is_quantized_in, mix_named, wanted_type
from pellucid.quant.types import byte_count


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that could be served: `bits` says in words how its weights are kept."""

    path: Path
    name: str
    priced: Priced
    bits: str

    @property
    def spec(self) -> ModelSpec:
        return self.priced.spec

    @property
    def weight_bytes(self) -> int:
        return self.priced.weight_bytes

    def quantized(self, quantization: str) -> Subject:
        """The same with its matrices in a mix. Raises `BadInput` for a mix that there is not."""
        mix = mix_named(quantization)
        sizes = {
            name: _in_mix(mix, self.spec, name, size) for name, size in self.priced.weights.items()
        }
        return replace(self, priced=replace(self.priced, weights=sizes), bits=f"as {mix.name}")

    def with_kv(self, kv_dtype: str) -> Subject:
        """The same with another type of keys and values."""
        return replace(self, priced=replace(self.priced, kv_dtype=kv_dtype))


def open_subject(path: Path, name: str, kv_dtype: str, kv_lanes: int) -> Subject:
    """Reads headers, or a configuration alone. Raises what opening them raises."""
    from pellucid.explain.source import open_source  # much that a server does not need to start

    source = open_source(path, None, kv_dtype)
    return Subject(path, name, replace(source.priced, kv_lanes=kv_lanes), source.bits)


def _in_mix(mix: Mix, spec: ModelSpec, name: str, size: WeightSize) -> WeightSize:
    if not is_quantized_in(name, size.shape):
        return size
    head = "token_embd.weight" if spec.tied_head else "output.weight"
    wanted = wanted_type(mix, name, spec.n_layers, is_head=name == head)
    type = fitting_type(wanted, size.shape[-1])
    return WeightSize(size.shape, byte_count(type, size.shape))
