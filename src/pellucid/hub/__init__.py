"""Where models come from: paths, short names and hub ids, fetched once, checked, and kept.

Importing this is cheap; what talks to a network is imported when something must be fetched.
"""

from pellucid.hub.catalogue import CATALOGUE, DEFAULT_MODEL
from pellucid.hub.inventory import ListedModel, list_models
from pellucid.hub.names import is_model_name
from pellucid.hub.progress import Progress, SilentProgress, TerminalProgress
from pellucid.hub.resolver import pull, resolve

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
]
