"""The engine: requests in, outputs out."""

from pellucid.engine.llm import LLM
from pellucid.engine.stream import Stream

__all__ = ["LLM", "Stream"]
