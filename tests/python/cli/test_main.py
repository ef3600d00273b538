"""How commands end: exit codes, one line of error, nothing else on standard output."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid import __version__
from pellucid.cli import list_models as list_module
from pellucid.cli import main as main_module
from pellucid.core.errors import BadInput, FetchError, PellucidError
from pellucid.hub import CATALOGUE, DEFAULT_MODEL
from pellucid.hub.catalogue import Pinned
from tests.python.cli.conftest import Ended

Command = Callable[..., Ended]
COMMANDS = (
    "run",
    "chat",
    "batch",
    "tokenize",
    "train-tokenizer",
    "inspect",
    "pull",
    "list",
    "explain",
    "quantize",
    "quality",
    "bench",
)


def test_says_its_version(command: Command) -> None:
    assert command("--version") == Ended(0, f"pellucid {__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(command: Command, name: str) -> None:
    ended = command(name, "--help")
    assert ended.code == 0
    assert ended.out.startswith(f"Usage: pellucid {name}")
    assert ended.err == ""
    assert f"  {name} " in command("--help").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nosuch",),
        ("run", "--nosuch"),
        ("run", "--top-k", "many", "hi"),
        ("run", "--top-p", "1.5", "hi"),
        ("run", "--temperature", "-1", "hi"),
        ("run", "--temperature", "nan", "hi"),
        ("run", "--max-tokens", "0", "hi"),
        ("run", "--logit-bias", "x=1", "hi"),
        ("run", "--logit-bias", "5", "hi"),
        ("run", "--logit-bias", "5=1e9", "hi"),
        ("run", "--raw", "--system", "s", "hi"),
        ("run", "--regex", "a", "--choice", "b", "hi"),
        ("run", "--regex", "", "hi"),
        ("run", "--json-schema", "no/such.json", "hi"),
        ("run", "--json-schema", "{", "hi"),
        ("run", "--grammar", ".", "hi"),
        ("run", "--logprobs", "21", "hi"),
        ("run", "model.gguf", "one", "two"),
        ("run", "--model", "gpt2", "one", "two"),
        ("run", "no/such.gguf", "hi"),
        ("chat", "gpt2", "--model", "gpt2"),
        ("tokenize", "nosuch.gguf", "hi"),
        ("tokenize", "nosuchmodel", "hi"),
        ("inspect", "--context", "0"),
        ("inspect", "--machine", "gpt2"),
        ("inspect", "nosuch.safetensors"),
        ("pull", "nosuch"),
        ("pull", "/"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    command: Command, arguments: tuple[str, ...]
) -> None:
    ended = command(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


def test_a_command_that_is_not_there_is_told_those_that_are(command: Command) -> None:
    assert command("rnu").err == (
        "error: no command 'rnu': there are run, chat, serve, batch, tokenize, train-tokenizer, "
        "inspect, pull, list, explain, plan, quantize, quality, bench, trace, selftest "
        "(see `pellucid --help`)\n"
    )


def test_a_damaged_model_is_listed_as_such(command: Command, tmp_path: Path) -> None:
    entry = CATALOGUE[DEFAULT_MODEL]
    assert isinstance(entry, Pinned)
    own = tmp_path / "home" / "models" / entry.name / entry.file
    own.parent.mkdir(parents=True)
    own.write_bytes(b"GGUF")
    ended = command("list")
    assert re.search(f"^{DEFAULT_MODEL} +damaged ", ended.out, re.MULTILINE)
    assert ended.err == "smollm2-135m is damaged: `pellucid pull smollm2-135m` fetches it again\n"


@pytest.mark.parametrize("word", [(), ("-",), ("smollm2-135m",)])
def test_no_prompt_at_all_is_no_prompt(
    command: Command, monkeypatch: pytest.MonkeyPatch, word: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    ended = command("run", *word)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: there is no prompt")


def test_a_model_that_cannot_be_fetched_is_exit_code_1(command: Command) -> None:
    ended = command("tokenize", "smollm2-135m", "hi")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: smollm2-135m is not in the cache")
    assert ended.err.count("\n") == 1


def test_no_command_shows_what_there_is(command: Command) -> None:
    ended = command()
    assert ended.code == 2
    assert ended.out == ""
    assert "Commands:" in ended.err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BadInput("the\nfile is  bad"), 2, "error: the file is bad\n"),
        (FetchError("no way"), 1, "error: no way\n"),
        (PellucidError("broke"), 1, "error: broke\n"),
        (MemoryError(), 1, "error: out of memory: use a smaller model or context\n"),
        (OSError(5, "Input/output error", "/x"), 1, "error: /x: Input/output error\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_goes_wrong_inside_is_one_line(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("pellucid.hub.list_models", fail)
    assert command("list") == Ended(code, "", line)


def test_a_fault_of_ours_names_itself_and_the_way_to_its_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("pellucid.hub.list_models", fail)
    ended = command("list")
    assert ended.code == 1
    assert "ZeroDivisionError: division by zero" in ended.err
    assert "PELLUCID_DEBUG=1" in ended.err
    monkeypatch.setenv("PELLUCID_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        command("list")


def test_a_reader_that_leaves_is_no_error(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(text: str) -> None:
        from pellucid.cli.output import ReaderLeftError

        raise ReaderLeftError

    monkeypatch.setattr(list_module, "write", leave)
    assert command("list") == Ended(141, "", "")


def in_shell(line: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PY": sys.executable,
        "PELLUCID_HOME": str(tmp_path / "home"),
        "HF_HOME": str(tmp_path / "hf"),
    }
    return subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=60
    )


def test_closed_and_full_streams(tmp_path: Path) -> None:
    gone = in_shell("(sleep 1; $PY -m pellucid list; echo $? >&2) | true", tmp_path)
    assert gone.stderr == "141\n"
    closed = in_shell("$PY -m pellucid list >&-", tmp_path)
    assert (closed.returncode, closed.stderr) == (0, "")
    if Path("/dev/full").exists():
        full = in_shell("$PY -m pellucid list >/dev/full", tmp_path)
        assert full.returncode == 1
        assert full.stderr == "error: standard output: No space left on device\n"


def test_bytes_of_standard_input_that_are_no_utf8_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether a command reads lines or bytes, and whatever the terminal's encoding is."""
    bytes_in = io.BytesIO(b"\xff \xc3\xa9\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(bytes_in, "ascii", "surrogateescape"))
    main_module._prepare_streams()
    assert sys.stdin.readline() == "\ufffd \u00e9\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom pellucid.cli.main import main\n"
        "try:\n    main(['run', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'huggingface_hub', 'tokenizers', 'jinja2', 'torch', 'pellucid.hub'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("error", "about"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "standard output"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "the network"),
        (OSError(errno.EMFILE, "Too many open files"), "the system"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "the network"),
        (TimeoutError("timed out"), "the network"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.gguf"), "a.gguf"),
    ],
)
def test_an_error_of_the_systems_says_what_it_is_about(
    error: OSError, about: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(main_module.app, "invoke", fail)
    assert main_module._run(["list"]) == main_module.FAILED
    assert capsys.readouterr().err.startswith(f"error: {about}: ")
