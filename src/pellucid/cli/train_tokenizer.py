"""`pellucid train-tokenizer`: learn a byte-level BPE vocabulary from text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import json_option
from pellucid.cli.output import printable, write, write_json
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid.text import LearntVocabulary

_SHOWN = 10


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@click.option(
    "--vocab-size",
    type=int,
    default=4096,
    show_default=True,
    help="Tokens, the 256 bytes and special ones included.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("tokenizer.json"),
    show_default=True,
    help="The file to write, or a folder for it.",
)
@click.option(
    "--special-token", multiple=True, metavar="TEXT", help="A control token; may be given again."
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@json_option
def train_tokenizer(
    files: tuple[Path, ...],
    vocab_size: int,
    output: Path,
    special_token: tuple[str, ...],
    force: bool,
    json: bool,
) -> None:
    """Learn a tokenizer from text by byte-pair encoding.

    The most frequent pair of neighbours becomes a token, again and again, until the vocabulary is
    full or no pair occurs twice. The same text gives the same vocabulary. FILE is text in UTF-8;
    without one, or for -, it is standard input.
    """
    from pellucid.text import train_bpe

    target = output / "tokenizer.json" if output.is_dir() else output
    if target.exists() and not force:
        raise BadInput(f"{target}: it exists already: choose another --output or give --force")
    if not target.parent.is_dir():
        raise BadInput(f"{target.parent}: no such folder: make it first")
    with _merges_bar() as report:
        learnt = train_bpe(
            _texts(files or (Path("-"),)),
            vocab_size,
            special_tokens=special_token,
            progress=report,
        )
    learnt.save(target)
    if json:
        write_json({"path": str(target), **_facts(learnt)})
    else:
        write(_told(target, learnt, vocab_size))


def _texts(files: tuple[Path, ...]) -> Iterator[bytes]:
    for file in files:
        if str(file) == "-":
            yield sys.stdin.buffer.read()
            continue
        try:
            yield file.read_bytes()
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror or error}") from error


@contextmanager
def _merges_bar() -> Iterator[Callable[[int, int], None] | None]:
    """A bar that counts merges, where standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("Learning merges"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, wanted: bar.update(task, completed=done, total=wanted)


def _facts(learnt: LearntVocabulary) -> dict[str, Any]:
    return {
        "vocab_size": len(learnt),
        "merges": len(learnt.merges),
        "special_tokens": list(learnt.special_tokens),
    }


def _told(target: Path, learnt: LearntVocabulary, wanted: int) -> str:
    first = learnt.merges[:_SHOWN]
    lines = [f"{target}: {len(learnt)} tokens, {len(learnt.merges)} of them merges"]
    if len(learnt) < wanted:
        lines.append(f"fewer than the {wanted} asked for: no other pair occurs twice")
    if first:
        lines.append("the first: " + ", ".join(_shown(learnt, merge.token_id) for merge in first))
    return "\n".join(lines) + "\n"


def _shown(learnt: LearntVocabulary, token_id: int) -> str:
    return f"'{printable(learnt.tokens[token_id].decode('utf-8', 'replace'))}'"
