"""The flags that give an answer its form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid.core.structured import StructuredOutputs

_MAX_FILE = 1 << 22  # bytes; a form's own bounds are lower

_OPTIONS = (
    click.option("--json-schema", metavar="FILE|TEXT", help="The answer is JSON of this schema."),
    click.option("--regex", help="The whole answer matches this regular expression."),
    click.option(
        "--choice", multiple=True, metavar="TEXT", help="The answer is TEXT; give it once for each."
    ),
    click.option("--grammar", metavar="FILE", help="The answer follows this Lark grammar."),
)


def structure_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags; `structured_outputs` makes one value of theirs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def structured_outputs(
    json_schema: str | None, regex: str | None, choice: tuple[str, ...], grammar: str | None
) -> StructuredOutputs | None:
    """What the flags ask for; None for nothing.

    Raises `BadInput` for two of them at once, a file that cannot be read, and as
    `StructuredOutputs` does.
    """
    flags = {
        "--json-schema": json_schema,
        "--regex": regex,
        "--choice": choice or None,
        "--grammar": grammar,
    }
    given = [flag for flag, value in flags.items() if value is not None]
    if not given:
        return None
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} both give the answer its form: choose one")
    from pellucid.core.structured import StructuredOutputs

    return StructuredOutputs(
        json=None if json_schema is None else _schema(json_schema),
        regex=regex,
        choice=choice or None,
        grammar=None if grammar is None else _read("--grammar", grammar),
    )


def _schema(given: str) -> str:
    written_out = given.lstrip().startswith("{") or given.strip() in ("true", "false")
    return given if written_out else _read("--json-schema", given)


def _read(flag: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise BadInput(f"{flag}: {path} is larger than {_MAX_FILE} bytes")
        return data.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{flag}: {path} cannot be read: {reason}") from None
