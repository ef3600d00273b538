"""Compiled from native/; every name's meaning is in its docstring there."""

from typing import Any

def __getattr__(name: str) -> Any: ...
