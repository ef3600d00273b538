"""`pellucid batch` as a command: what it says, what it refuses, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.python.batch.jobs import line, read_lines, write_lines
from tests.python.cli.conftest import Ended
from tests.python.engine.tiny import write_model

Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    model = write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return ("--model", str(model), "--backend", "reference", "--json")


def test_answers_a_file_and_finds_it_done_the_next_time(
    command: Command, flags: tuple[str, ...], tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    write_lines(source, [line("a", {"prompt": "p", "max_tokens": 3}), b"nope"])
    ended = command("batch", str(source), str(target), *flags)
    assert ended.code == 0
    assert f"{target}: 2 lines, of which 1 failed" in ended.err
    summary = json.loads(ended.out)
    counts = {"lines": 2, "failed": 1, "found_done": 0, "written": 2, "completion_tokens": 3}
    assert counts.items() <= summary.items()
    assert {item["custom_id"] for item in read_lines(target)} == {"a", None}
    before = target.read_bytes()
    again = command("batch", str(source), str(target), *flags)
    assert again.code == 0
    assert {"lines": 2, "failed": 1, "found_done": 2, "written": 0}.items() <= json.loads(
        again.out
    ).items()
    assert target.read_bytes() == before


@pytest.mark.parametrize(
    ("option", "same"),
    [
        (("--max-num-seqs", "1"), True),
        (("--max-num-batched-tokens", "7"), True),
        (("--no-kv-cache",), True),
        (("--speculative-method", "ngram"), True),
        (("--speculative-method", "ngram", "--speculative-rule", "rejection"), False),
        (("--kv-cache-dtype", "int8"), False),
        (("--activations", "f32"), False),
        (("--seed", "1"), False),
        (("--max-model-len", "50"), False),
        (("--quantization", "q4_0"), False),
        (("--lenient",), False),
        (("--served-model-name", "other"), False),
    ],
)
def test_goes_on_under_settings_that_decide_no_answer_and_no_others(
    command: Command, flags: tuple[str, ...], tmp_path: Path, option: tuple[str, ...], same: bool
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    write_lines(source, [line("a", {"prompt": "p", "max_tokens": 2})])
    assert command("batch", str(source), str(target), *flags).code == 0
    write_lines(source, [line("a", {"prompt": "p", "max_tokens": 2}), line("b", {"prompt": "p"})])
    ended = command("batch", str(source), str(target), *flags, *option)
    if same:
        assert (ended.code, len(read_lines(target))) == (0, 2)
    else:
        assert (ended.code, len(read_lines(target))) == (2, 1)
        assert ended.err.startswith(f"error: {target}: line 1 was written under other settings")
        assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no/such", "out"), "no/such: cannot be read"),
        ((".", "out"), "no plain file"),
        (("-", "out"), "name two files"),
        (("in", "-"), "name two files"),
        (("in", "in"), "the same file"),
        (("in", "."), "no plain file"),
        (("in", "no/such/out"), "no such folder"),
        (("in", "foreign"), "foreign: line 1 was not written by a batch"),
        (("twice", "out"), "lines 1 and 2 have the same custom_id 'a'"),
        (("empty", "out"), "no request in it"),
        (("in", "out", "--max-num-seqs", "0"), "max_num_seqs"),
        (("in", "out", "--seed", "x"), "--seed"),
        (("in",), "OUT"),
    ],
)
def test_bad_input_is_one_line_and_touches_nothing(
    command: Command,
    flags: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("in"), [line("a")])
    write_lines(Path("twice"), [line("a"), line("a")])
    Path("empty").touch()
    Path("foreign").write_text("precious\n")
    ended = command("batch", *arguments, *flags)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err and ended.err.startswith("error: ") and ended.err.count("\n") == 1
    assert Path("foreign").read_text() == "precious\n"
    assert not Path("out").exists()
