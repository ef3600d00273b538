"""`pellucid list`: the models that have a name, and those that are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import json_option
from pellucid.cli.output import in_bytes, note, table, write, write_json

if TYPE_CHECKING:
    from pellucid.hub import ListedModel


@click.command()
@json_option
def list_models(json: bool) -> None:
    """Show which models have a name, and which are here."""
    from pellucid.hub import list_models as rows_of_models

    rows = rows_of_models()
    if json:
        write_json({"models": [_as_json(row) for row in rows]})
        return
    lines = [("NAME", "ON DISK", "LICENCE", "FROM")]
    for row in rows:
        size = in_bytes(row.size) if row.size is not None else "-"
        lines.append((row.name, "damaged" if row.damaged else size, row.licence, row.source))
    write(table(lines, right=(1,)) + "\n")
    for row in rows:
        if row.damaged:
            note(f"{row.name} is damaged: `pellucid pull {row.name}` fetches it again")


def _as_json(row: ListedModel) -> dict[str, Any]:
    return {
        "name": row.name,
        "title": row.title,
        "licence": row.licence,
        "source": row.source,
        "path": str(row.path) if row.path else None,
        "size": row.size,
        "damaged": row.damaged,
    }
