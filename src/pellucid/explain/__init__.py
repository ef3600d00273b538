"""Explain: where one answer came from, what it cost and what would change that."""

from pellucid.costs.hardware import find_hardware
from pellucid.explain.explain import MAX_PROMPT, Wishes, explain
from pellucid.explain.report import Explanation
from pellucid.explain.shown import to_json

__all__ = ["MAX_PROMPT", "Explanation", "Wishes", "explain", "find_hardware", "to_json"]
