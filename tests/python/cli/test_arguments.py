from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from pellucid.cli.arguments import split_words, text_or_input
from pellucid.core.errors import BadInput
from pellucid.hub import DEFAULT_MODEL


@pytest.mark.parametrize(
    ("words", "model", "expected"),
    [
        (None, None, (DEFAULT_MODEL, None)),
        (["Why?"], None, (DEFAULT_MODEL, "Why?")),
        (["Why is it so?"], None, (DEFAULT_MODEL, "Why is it so?")),
        (["gpt2"], None, ("gpt2", None)),
        (["gpt2"], "qwen3-0.6b", ("qwen3-0.6b", "gpt2")),
        (["gpt2", "Why?"], None, ("gpt2", "Why?")),
        (["anything", "Why?"], None, ("anything", "Why?")),
        (["owner/name:Q4_0"], None, ("owner/name:Q4_0", None)),
        (["x.gguf"], None, ("x.gguf", None)),
        (["what is x.gguf"], None, (DEFAULT_MODEL, "what is x.gguf")),
        ([""], None, (DEFAULT_MODEL, "")),
        ([], "m", ("m", None)),
    ],
)
def test_model_and_text(
    words: list[str] | None, model: str | None, expected: tuple[str, str | None]
) -> None:
    assert split_words(words, model) == expected


def test_words_without_quotes_are_not_guessed_at() -> None:
    with pytest.raises(BadInput, match="put the text in quotes"):
        split_words(["gpt2", "Why", "me"], None)


def test_text_is_the_argument_or_all_of_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(b"piped \xff\n")

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Input())
    assert text_or_input("given", "text") == b"given"
    assert text_or_input("\udcff", "text") == b"\xff"  # how an argument carries a stray byte
    assert text_or_input("-", "text") == b"piped \xff\n"
    Input.buffer = io.BytesIO(b"")
    assert text_or_input(None, "text") == b""


def test_a_folder_with_a_model_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert split_words(["mine"], None) == (DEFAULT_MODEL, "mine")
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert split_words(["mine"], None) == ("mine", None)
