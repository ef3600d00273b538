"""What several commands take, read in one way."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

    from pellucid.hub import Progress

model_argument = click.argument("model_name", metavar="[MODEL]", required=False)
model_option = click.option(
    "--model", "-m", metavar="MODEL", help="The model, if not the first argument."
)
offline_option = click.option("--offline", is_flag=True, help="Fetch nothing.")
json_option = click.option(
    "--json", is_flag=True, help="One JSON object on standard output, nothing else."
)


def named_model(argument: str | None, option: str | None) -> str:
    """The model that was named, or the default. Raises `BadInput` if it was named twice."""
    from pellucid.hub import DEFAULT_MODEL

    if argument and option:
        raise BadInput("the model is named twice: as an argument and by --model")
    return option or argument or DEFAULT_MODEL


def split_words(words: Sequence[str] | None, model: str | None) -> tuple[str, str | None]:
    """The model and the text among `[MODEL] [TEXT]`; the text is None where it is not given.

    A lone word is the model if it can be the name of one, else the text for the default model.
    Raises `BadInput` for more words than that.
    """
    from pellucid.hub import DEFAULT_MODEL, is_model_name

    given = list(words or ())
    if model is None and (len(given) == 2 or (given and is_model_name(given[0]))):
        model = given.pop(0)
    if len(given) > 1:
        raise BadInput(f"too many arguments: {' '.join(given[1:])!r}: put the text in quotes")
    return model or DEFAULT_MODEL, given[0] if given else None


def text_or_input(text: str | None, what: str) -> bytes:
    """The text as bytes: the argument, or all of standard input where there is none or `-`."""
    if text is not None and text != "-":
        return os.fsencode(text)
    if sys.stdin.isatty():
        print(f"reading the {what} from the terminal; end it with Ctrl-D", file=sys.stderr)
    return sys.stdin.buffer.read()


def find_model(name: str, offline: bool, progress: Progress | None = None) -> Path:
    """The model's path, fetched with a bar on standard error if need be."""
    from pellucid.hub import TerminalProgress, resolve

    return resolve(name, offline=offline, progress=progress or TerminalProgress())


def find_config(name: str, offline: bool) -> Path:
    """The path of a model whose weights nobody will ask for: they are not fetched."""
    from pellucid.hub import TerminalProgress, resolve_config

    return resolve_config(name, offline=offline, progress=TerminalProgress())


MAX_TEXT = 1 << 26  # bytes of a text file that are looked at


def read_text(file: Path) -> str:
    """The text of a file in UTF-8, of a very long one its beginning. Raises `BadInput`."""
    import codecs

    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_TEXT)
        # A character that the end cuts in two is left out; any other that is none is an error.
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) < MAX_TEXT)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text in UTF-8"
        raise BadInput(f"{file}: cannot be read: {reason}") from error
