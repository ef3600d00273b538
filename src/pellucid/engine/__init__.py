"""The engine: requests in, outputs out."""

from pellucid.engine.async_llm import AsyncLLM
from pellucid.engine.async_stream import AsyncStream
from pellucid.engine.llm import LLM
from pellucid.engine.stream import Stream

__all__ = ["LLM", "AsyncLLM", "AsyncStream", "Stream"]
