"""`pellucid pull`: fetch a model, or bring it up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from pellucid.cli.arguments import JsonOption, OfflineOption
from pellucid.cli.output import write, write_json


def pull(
    model: Annotated[str | None, typer.Argument(help="A hub id or a short name.")] = None,
    offline: OfflineOption = False,
    json: JsonOption = False,
) -> None:
    """Fetch a model, or bring it up to date.

    Checks every byte and prints where it lies. A download that was cut off goes on from there.
    """
    from pellucid.hub import DEFAULT_MODEL, TerminalProgress
    from pellucid.hub import pull as fetch

    name = model or DEFAULT_MODEL
    path = fetch(name, offline=offline, progress=TerminalProgress())
    if json:
        write_json({"model": name, "path": str(path)})
    else:
        write(f"{path}\n")
