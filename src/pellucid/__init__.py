"""Pellucid: a language-model inference engine you can see through.

    from pellucid import LLM, SamplingParams

    llm = LLM()
    for output in llm.chat([{"role": "user", "content": "Why is the sky blue?"}]):
        print(output.outputs[0].text)

Names are imported when they are first used, so that `import pellucid` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.core.errors import (
        BadInput,
        FetchError,
        FormatError,
        PellucidError,
        PromptTooLong,
        UnsupportedError,
    )
    from pellucid.core.outputs import (
        CompletionOutput,
        EmbeddingOutput,
        Increment,
        RequestMetrics,
        RequestOutput,
        TokenLogprob,
    )
    from pellucid.core.params import SamplingParams
    from pellucid.core.structured import StructuredOutputs
    from pellucid.engine.async_llm import AsyncLLM
    from pellucid.engine.async_stream import AsyncStream
    from pellucid.engine.llm import LLM
    from pellucid.engine.stream import Stream

__version__ = "0.1.0"

_HOMES = {
    "pellucid.core.errors": (
        "BadInput",
        "FetchError",
        "FormatError",
        "PellucidError",
        "PromptTooLong",
        "UnsupportedError",
    ),
    "pellucid.core.outputs": (
        "CompletionOutput",
        "EmbeddingOutput",
        "Increment",
        "RequestMetrics",
        "RequestOutput",
        "TokenLogprob",
    ),
    "pellucid.core.params": ("SamplingParams",),
    "pellucid.core.structured": ("StructuredOutputs",),
    "pellucid.engine.async_llm": ("AsyncLLM",),
    "pellucid.engine.async_stream": ("AsyncStream",),
    "pellucid.engine.llm": ("LLM",),
    "pellucid.engine.stream": ("Stream",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "LLM",
    "AsyncLLM",
    "AsyncStream",
    "BadInput",
    "CompletionOutput",
    "EmbeddingOutput",
    "FetchError",
    "FormatError",
    "Increment",
    "PellucidError",
    "PromptTooLong",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "Stream",
    "StructuredOutputs",
    "TokenLogprob",
    "UnsupportedError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
