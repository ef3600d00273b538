"""From a checkpoint to a model that runs: finds the family, reads the spec, loads the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, cast

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.core.plan import Plan
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats.checkpoint import Checkpoint
from pellucid.models import (
    bloom,
    gemma,
    gemma2,
    gemma3,
    gpt2,
    llama,
    mistral,
    mixtral,
    mpt,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
)
from pellucid.models.fields import Fields
from pellucid.models.packing import read_packing
from pellucid.models.parts import head
from pellucid.models.weights import Tensor, Weights, load_weights
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Array, HostTensor, Ops, Stamps


class Family(Protocol):
    """What a family's file offers. `context` is the length the model will be used at.

    A forward pass is `enter`, each `decoder_layer`, and `leave` for the rows that are asked for;
    between any two of them it may be cut, with float32 rows [T, d] on the way.
    """

    GGUF_ARCHITECTURES: tuple[str, ...]
    HF_ARCHITECTURES: tuple[str, ...]

    def spec_from_config(self, config: Fields, context: int | None) -> ModelSpec: ...

    def spec_from_gguf(
        self, fields: Fields, checkpoint: Checkpoint, context: int | None
    ) -> ModelSpec: ...

    def tensors(self, spec: ModelSpec) -> Iterable[Tensor]: ...

    def enter(self, ops: Ops, spec: ModelSpec, weights: Weights, step: Step) -> Array: ...

    def decoder_layer(
        self,
        ops: Ops,
        spec: ModelSpec,
        layer: LayerSpec,
        w: Weights,
        x: Array,
        index: int,
        step: Step,
    ) -> Array: ...

    def leave(self, ops: Ops, spec: ModelSpec, weights: Weights, x: Array) -> Array: ...


FAMILIES = cast(
    "tuple[Family, ...]",
    (
        bloom,
        gemma,
        gemma2,
        gemma3,
        gpt2,
        llama,
        mistral,
        mixtral,
        mpt,
        phi3,
        qwen2,
        qwen3,
        qwen3_moe,
    ),
)

# Buffers that old converters left in checkpoints, and rotary factors that the spec has read.
_NOT_WEIGHTS = (
    "rotary_emb.inv_freq",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    ".attn.bias",
    ".attn.masked_bias",
    "lm_head.weight",
)

# The eyes of a model that also sees; what it says of text does not need them.
_VISION = tuple(
    wrapper + part
    for wrapper in ("", "model.")
    for part in ("vision_tower.", "multi_modal_projector.")
)


@dataclass(frozen=True, slots=True)
class Model:
    """A family's forward pass with its weights in one backend."""

    spec: ModelSpec
    ops: Ops
    weights: Weights
    family: Family
    _logits: Callable[[Step], Array] = field(init=False, repr=False)
    _hidden: list[Callable[[Step], Array]] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_logits", self.ops.compile(self._of_logits))

    def forward(self, plan: Plan, cache: object) -> Array:
        """Logits [R, vocabulary] of the positions that `plan` asks for, in its order."""
        return self.logits(self.ops.lower(plan, cache))

    def logits(self, step: Step) -> Array:
        """The same, of a plan that was lowered."""
        return self._logits(step)

    def stamp(self, on: bool) -> None:
        """Have the parts of the passes to logits timed from now on, where that costs something."""
        if hasattr(self._logits, "stamping"):
            self._logits.stamping = on

    def stamps(self) -> Stamps | None:
        """The parts of the last pass to logits and their seconds, if the backend tells."""
        told = getattr(self._logits, "stamps", None)
        return None if told is None else told()

    def hidden(self, step: Step) -> Array:
        """What the logits would be read from: final, normed rows [R, d]."""
        if not self._hidden:  # few models are asked for it: compiled when one is
            self._hidden.append(self.ops.compile(self._of_hidden))
        return self._hidden[0](step)

    def _of_logits(self, step: Step) -> Array:
        return head(self.ops, self.spec, self.weights, self._of_hidden(step))

    def _of_hidden(self, step: Step) -> Array:
        """Final rows [R, d], normed, of those that the step asks for."""
        ops, spec, weights, family = self.ops, self.spec, self.weights, self.family
        x = family.enter(ops, spec, weights, step)  # [T, d]
        for index, layer in enumerate(spec.layers):
            x = family.decoder_layer(ops, spec, layer, weights.layer(index), x, index, step)
        return family.leave(ops, spec, weights, ops.take_rows(x, step.logit_rows))


def read_spec(checkpoint: Checkpoint, context: int | None = None) -> tuple[Family, ModelSpec]:
    """The family and specification of a checkpoint, nothing loaded.

    Raises `UnsupportedError` naming an architecture or configuration value that is not
    implemented, `FormatError` for a configuration that is broken.
    """
    if checkpoint.kind == "gguf":
        return _from_gguf(checkpoint, context)
    return _from_config(checkpoint, context)


def load_model(
    checkpoint: Checkpoint,
    ops: Ops,
    *,
    context: int | None = None,
    prepare: Callable[[HostTensor], HostTensor] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Model:
    """The model in `checkpoint`, its weights as `prepare` makes them of the stored ones. Errors as
    `read_spec` and `load_weights`."""
    family, spec = read_spec(checkpoint, context)
    weights = load_weights(
        checkpoint,
        family.tensors(spec),
        ops,
        skip=is_no_weight,
        prepare=prepare,
        progress=progress,
    )
    return Model(spec, ops, weights, family)


def is_no_weight(name: str) -> bool:
    """Whether a tensor of a checkpoint carries nothing for the language model to compute with."""
    return name.endswith(_NOT_WEIGHTS) or name.startswith(_VISION)


def _from_gguf(checkpoint: Checkpoint, context: int | None) -> tuple[Family, ModelSpec]:
    general = Fields(checkpoint.metadata, checkpoint.path)
    general.only("general.type", "model")  # not an adapter, a projector or a vocabulary
    architecture = general.text("general.architecture")
    for family in FAMILIES:
        if architecture in family.GGUF_ARCHITECTURES:
            fields = Fields(checkpoint.metadata, checkpoint.path, f"{architecture}.")
            spec = family.spec_from_gguf(fields, checkpoint, context)
            fields.finish()
            return family, _checked(checkpoint, spec)
    known = sorted(name for family in FAMILIES for name in family.GGUF_ARCHITECTURES)
    raise UnsupportedError(
        f"{checkpoint.path}: architecture {architecture!r} is not implemented "
        f"(known: {', '.join(known)})"
    )


def _from_config(checkpoint: Checkpoint, context: int | None) -> tuple[Family, ModelSpec]:
    config = Fields(checkpoint.metadata, checkpoint.path)
    given = config.raw("architectures")
    names = given if isinstance(given, list) else []
    if not names or not isinstance(names[0], str):
        raise FormatError(checkpoint.path, "config.json: architectures", "is missing or empty")
    for family in FAMILIES:
        if names[0] in family.HF_ARCHITECTURES:
            read_packing(config)  # or refused
            spec = family.spec_from_config(config, context)
            config.finish_config()
            return family, _checked(checkpoint, spec)
    known = sorted(name for family in FAMILIES for name in family.HF_ARCHITECTURES)
    raise UnsupportedError(
        f"{checkpoint.path}: architecture {names[0]!r} is not implemented "
        f"(known: {', '.join(known)})"
    )


def _checked(checkpoint: Checkpoint, spec: ModelSpec) -> ModelSpec:
    """Relations that every family relies on."""
    for layer in spec.layers:
        if layer.n_heads % layer.n_kv_heads:
            raise FormatError(
                checkpoint.path,
                "attention heads",
                f"{layer.n_heads} query heads cannot share {layer.n_kv_heads} key-value heads",
            )
        if layer.rope is not None and (
            layer.rope.dims % 2 or not 0 < layer.rope.dims <= layer.head_dim
        ):
            raise FormatError(
                checkpoint.path,
                "rotary dimensions",
                f"{layer.rope.dims} is odd or not within a head's {layer.head_dim}",
            )
    return spec
