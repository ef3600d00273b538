"""Explain: where one answer came from, what it cost and what would change that."""

from pellucid.explain.explain import MAX_PROMPT, Wishes, explain
from pellucid.explain.hardware import find_hardware
from pellucid.explain.report import Explanation
from pellucid.explain.shown import to_json

__all__ = ["MAX_PROMPT", "Explanation", "Wishes", "explain", "find_hardware", "to_json"]
