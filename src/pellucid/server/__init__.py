"""The HTTP server: OpenAI's API, and Anthropic's messages, over an engine.

    bytes -> wire model (strict) -> SamplingParams and token ids -> engine client -> increments
          -> choices -> JSON or server-sent events

`create_app(client, settings)` makes the application; nothing else is shared between requests. A
request's life:

1. The outer layers give it an id, check the key and bound its body (`middleware`).
2. `reading` makes it a model of `wire`: a field that is not honoured is refused by name, or left
   out and listed when the caller asked for leniency.
3. `service` turns text into tokens and opens a stream of the engine. What can be refused is refused
   here, with a status, before the response begins.
4. A route of `routes` turns increments into that API's form; `events` carries a stream, with
   keep-alive comments while nothing is to be said. A client that leaves ends its request.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.server.app import create_app as create_app
    from pellucid.server.settings import Settings as Settings

__all__ = ["Settings", "create_app"]


def __getattr__(name: str) -> object:
    """Loads FastAPI when the server is first asked for."""
    homes = {"create_app": "app", "Settings": "settings"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
