"""`pellucid pull`: fetch a model, or bring it up to date."""

from __future__ import annotations

import click

from pellucid.cli.arguments import json_option, offline_option
from pellucid.cli.output import write, write_json


@click.command()
@click.argument("model", metavar="[MODEL]", required=False)
@offline_option
@json_option
def pull(model: str | None, offline: bool, json: bool) -> None:
    """Fetch a model, or bring it up to date.

    Checks every byte and prints where it lies. A download that was cut off goes on from there.
    MODEL is a hub id or a short name.
    """
    from pellucid.hub import DEFAULT_MODEL, TerminalProgress
    from pellucid.hub import pull as fetch

    name = model or DEFAULT_MODEL
    path = fetch(name, offline=offline, progress=TerminalProgress())
    if json:
        write_json({"model": name, "path": str(path)})
    else:
        write(f"{path}\n")
