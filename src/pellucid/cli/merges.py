"""The merges of a text, drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pellucid.cli.output import printable

if TYPE_CHECKING:
    from pellucid.text import MergedPiece, MergeStep


def draw_merges(pieces: Sequence[MergedPiece]) -> str:
    """Each stretch that merges by itself: its symbols, every merge in order, its tokens."""
    return "".join(_piece(piece) for piece in pieces)


def _piece(piece: MergedPiece) -> str:
    lines = [f"{_quoted(piece.text)} at {piece.start}-{piece.end}"]
    if piece.steps:
        lines.append(f"  {_row(piece.symbols)}")
        lines += [f"  {number:>3}. {_step(step)}" for number, step in enumerate(piece.steps, 1)]
    tokens = zip(piece.tokens, piece.ids, strict=True)
    lines.append("  = " + "  ".join(f"{_quoted(text)} {token}" for text, token in tokens))
    return "\n".join(lines) + "\n"


def _step(step: MergeStep) -> str:
    why = f"rank {step.rank}" if step.rank is not None else f"score {step.score:g}"
    return (
        f"{_quoted(step.left)} + {_quoted(step.right)} = {_quoted(step.merged)} {step.id} ({why})"
    )


def _row(texts: Iterable[str]) -> str:
    return " ".join(_quoted(text) for text in texts)


def _quoted(text: str) -> str:
    return f"'{printable(text)}'"
