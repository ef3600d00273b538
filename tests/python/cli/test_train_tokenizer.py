"""train-tokenizer and tokenize --merges, on a vocabulary learnt here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.python.cli.conftest import Ended

Command = Callable[..., Ended]
TEXT = "low low low low low lower lower newest newest newest newest newest newest widest widest\n"


@pytest.fixture
def learnt(command: Command, tmp_path: Path) -> Path:
    (tmp_path / "text").write_text(TEXT)
    target = tmp_path / "tokenizer.json"
    ended = command("train-tokenizer", str(tmp_path / "text"), "-o", str(target))
    assert ended.code == 0
    assert ended.err == ""
    assert "fewer than the 4096 asked for" in ended.out
    return target


def test_what_is_learnt_can_be_used(command: Command, learnt: Path) -> None:
    ended = command("tokenize", str(learnt), "lower newest", "--json")
    assert json.loads(ended.out) == {
        "ids": json.loads(ended.out)["ids"],
        "pieces": ["low", "er", " newest"],
        "offsets": [[0, 3], [3, 5], [5, 12]],
    }


def test_merges_are_shown_in_their_order(command: Command, learnt: Path) -> None:
    answer = json.loads(command("tokenize", str(learnt), "newest", "--merges", "--json").out)
    assert list(answer) == ["ids", "pieces", "offsets", "merges"]
    [piece] = answer["merges"]
    assert piece["symbols"] == list("newest")
    ranks = [step["rank"] for step in piece["steps"]]
    assert ranks == sorted(ranks)
    assert all(step["merged"] == step["left"] + step["right"] for step in piece["steps"])
    assert piece["ids"] == answer["ids"]
    drawn = command("tokenize", str(learnt), "newest", "--merges").out
    assert drawn.startswith("'newest' at 0-6\n  'n' 'e' 'w' 'e' 's' 't'\n    1. 'e' + 's' = 'es' ")
    assert drawn.endswith(f"{len(answer['ids'])} tokens\n")


def test_special_tokens_come_last_and_are_told(command: Command, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    arguments = ("--vocab-size", "262", "--special-token", "<a>", "--special-token", "<b>")
    ended = command(
        "train-tokenizer", str(tmp_path / "text"), "-o", str(tmp_path), *arguments, "--json"
    )
    assert json.loads(ended.out) == {
        "path": str(tmp_path / "tokenizer.json"),
        "vocab_size": 262,
        "merges": 4,
        "special_tokens": ["<a>", "<b>"],
    }
    written = json.loads((tmp_path / "tokenizer.json").read_text())
    assert [(token["id"], token["content"]) for token in written["added_tokens"]] == [
        (260, "<a>"),
        (261, "<b>"),
    ]


def test_the_same_text_gives_the_same_file(command: Command, learnt: Path) -> None:
    first = learnt.read_bytes()
    again = command("train-tokenizer", str(learnt.parent / "text"), "-o", str(learnt), "--force")
    assert again.code == 0
    assert learnt.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("missing",), "missing: No such file"),
        (("text", "--vocab-size", "255"), "vocabulary of 255"),
        (("text", "--vocab-size", "99999999999"), "vocabulary of 99999999999"),
        (("text", "-o", "no/such/folder/t.json"), "no such folder"),
        (("text", "-o", "text"), "exists already"),
        (("text", "--special-token", ""), "special tokens"),
        (("empty",), "no text"),
    ],
)
def test_refuses_in_one_line_and_writes_nothing(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text(TEXT)
    Path("empty").write_text("")
    ended = command("train-tokenizer", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert reason in ended.err
    assert Path("text").read_text() == TEXT
    assert not Path("tokenizer.json").exists()
