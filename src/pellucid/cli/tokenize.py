"""`pellucid tokenize`: text to pieces, ids and offsets."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import (
    find_model,
    json_option,
    model_option,
    offline_option,
    split_words,
    text_or_input,
)
from pellucid.cli.merges import draw_merges
from pellucid.cli.output import printable, table, write, write_json
from pellucid.engine.tokenizer_file import open_tokenizer

if TYPE_CHECKING:
    from pellucid.text import MergedPiece, Piece


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [TEXT]")
@model_option
@click.option("--special", is_flag=True, help="Read control tokens spelled in the text as such.")
@click.option(
    "--bos/--no-bos",
    "added",
    default=True,
    help="Add what the file adds around a text: BOS, EOS. [yes]",
)
@click.option("--merges", is_flag=True, help="Show every merge in the order BPE applies them.")
@offline_option
@json_option
def tokenize(
    words: tuple[str, ...],
    model: str | None,
    special: bool,
    added: bool,
    merges: bool,
    offline: bool,
    json: bool,
) -> None:
    """Show the tokens of a text: pieces, ids, offsets.

    Offsets count characters. Without TEXT, or for -, it is all of standard input: every byte
    counts, a line end at its end too.
    """
    name, text = split_words(words, model)
    data = text_or_input(text, "text")
    tokenizer = open_tokenizer(find_model(name, offline))
    pieces = tokenizer.pieces(data, parse_special=special, add_special=added)
    steps = tokenizer.merge_steps(data, parse_special=special) if merges else None
    if json:
        write_json(_as_json(pieces, steps))
    else:
        write(_drawn(pieces) if steps is None else draw_merges(steps) + _drawn(pieces))


def _as_json(pieces: list[Piece], steps: list[MergedPiece] | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "ids": [piece.id for piece in pieces],
        "pieces": [piece.text for piece in pieces],
        "offsets": [[piece.start, piece.end] for piece in pieces],
    }
    if steps is not None:
        answer["merges"] = [asdict(piece) for piece in steps]
    return answer


def _drawn(pieces: list[Piece]) -> str:
    rows = [("ID", "FROM", "TO", "PIECE")]
    for piece in pieces:
        rows.append((str(piece.id), str(piece.start), str(piece.end), _shown(piece)))
    count = f"{len(pieces)} token{'' if len(pieces) == 1 else 's'}"
    return f"{table(rows, right=(0, 1, 2))}\n{count}\n"


def _shown(piece: Piece) -> str:
    """The piece in quotes; its bytes where they are only a part of a character."""
    if "\ufffd" in piece.text and piece.text.encode() != piece.bytes:
        return " ".join(f"{byte:02x}" for byte in piece.bytes)
    return f"'{printable(piece.text)}'"
