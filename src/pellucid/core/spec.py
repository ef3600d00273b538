"""ModelSpec: everything about a model that is not a weight, as plain data.

A family (`pellucid.models`) reads one from a file's metadata. The forward pass, the page
allocator, the cost functions and the simulator read it and nothing else of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RopeScalingKind = Literal["linear", "dynamic", "yarn", "llama3", "factors"]
RopeStyle = Literal["half", "interleaved"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context a model was trained on.

    linear    positions divided by `factor` (Chen et al. 2023)
    dynamic   the base grows with the position reached (NTK-aware); here a function of each
              token's own position, so that a cached key never depends on what came later
    yarn      low frequencies interpolated, high ones kept, attention scaled (Peng et al. 2023)
    llama3    like yarn with other ramps and no attention scale (Llama 3.1)
    factors   each frequency divided by its own factor (LongRoPE, Ding et al. 2024: the short or
              the long ones by the context in use; Llama 3.1 in GGUF form)
    """

    kind: RopeScalingKind
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None  # None: the kind's own rule
    factors: tuple[float, ...] = ()  # one per frequency


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding (Su et al. 2021) over the first `dims` features of a head.

    `half` rotates feature i with i + dims/2 (GPT-NeoX, Hugging Face checkpoints);
    `interleaved` rotates 2i with 2i + 1 (the paper; GGUF files of Llama).
    """

    base: float
    dims: int
    style: RopeStyle = "half"
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One decoder layer. `window` counts the visible positions, the token itself included."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn_dim: int
    attention_scale: float
    window: int | None = None
    rope: RopeSpec | None = None
    alibi_slopes: tuple[float, ...] = ()
    attention_softcap: float | None = None
    n_experts: int = 0
    n_experts_used: int = 0
    normalize_expert_weights: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A whole model. `extra` carries what only one family reads, under documented keys."""

    family: str
    d_model: int
    vocab_size: int
    context_length: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    embedding_scale: float = 1.0
    logit_softcap: float | None = None
    logit_scale: float = 1.0
    tied_head: bool = False
    name: str = ""
    extra: dict[str, float | int | str | bool] = field(default_factory=dict)

    @property
    def n_layers(self) -> int:
        return len(self.layers)
