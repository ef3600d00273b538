"""Where models come from: paths, short names and hub ids, fetched once, checked, and kept.

Importing this is cheap; what talks to a network is imported when something must be fetched.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pellucid.hub.catalogue import CATALOGUE, DEFAULT_MODEL
from pellucid.hub.names import is_model_name
from pellucid.hub.progress import Progress, SilentProgress, TerminalProgress

if TYPE_CHECKING:
    from pellucid.hub.inventory import ListedModel, list_models
    from pellucid.hub.resolver import pull, resolve, resolve_config

_HOMES = {
    "ListedModel": "inventory",
    "list_models": "inventory",
    "pull": "resolver",
    "resolve": "resolver",
    "resolve_config": "resolver",
}

__all__ = [
    "CATALOGUE",
    "DEFAULT_MODEL",
    "ListedModel",
    "Progress",
    "SilentProgress",
    "TerminalProgress",
    "is_model_name",
    "list_models",
    "pull",
    "resolve",
    "resolve_config",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
