"""chat on the default model: through a pipe, and in a terminal with Ctrl-C."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pellucid import LLM, SamplingParams
from pellucid.cli.chat import Conversation

pty = pytest.importorskip("pty", reason="no pseudo-terminals on this platform")

Pellucid = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path)


def test_lines_of_a_pipe_are_messages(pellucid: Pellucid, smollm2_path: Path) -> None:
    lines = "/nosuch\n\n/system Be brief.\nSay hi.\n/reset\n/help\n/exit\nnever read\n"
    done = pellucid(
        "chat", str(smollm2_path), "--temperature", "0", "--max-tokens", "4", input=lines
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "/nosuch is no command" in done.stderr
    assert "the system message is set" in done.stderr
    assert "the conversation is forgotten" in done.stderr
    assert "/reset         forget the conversation" in done.stderr


def test_the_model_reads_what_was_said_before(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", iter_lines("One.", "Two.", "/reset", "Three."))
    params = SamplingParams(temperature=0, max_tokens=3)
    conversation = Conversation(llm, params, "Be kind.")
    conversation.hold()
    assert [message["role"] for message in conversation.messages] == ["system", "user", "assistant"]
    first, second, third = capsys.readouterr().out.splitlines()
    system = {"role": "system", "content": "Be kind."}
    asked = [system, {"role": "user", "content": "One."}]
    assert llm.chat(asked, params)[0].outputs[0].text == first
    asked += [{"role": "assistant", "content": first}, {"role": "user", "content": "Two."}]
    assert llm.chat(asked, params)[0].outputs[0].text == second
    assert (
        llm.chat([system, {"role": "user", "content": "Three."}], params)[0].outputs[0].text
        == third
    )


def test_a_conversation_too_long_is_refused_and_goes_on(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", iter_lines("word " * 200, "Hi."))
    small = LLM(smollm2_path, max_model_len=100)
    conversation = Conversation(small, SamplingParams(temperature=0, max_tokens=2), None)
    conversation.hold()
    out, err = capsys.readouterr()
    assert "the prompt has" in err
    assert "/reset begins anew" in err
    assert out.count("\n") == 1
    assert conversation.messages[0]["content"] == "Hi."


def iter_lines(*lines: str) -> object:
    class Lines:
        def __init__(self) -> None:
            self._lines: Iterator[str] = iter([f"{line}\n" for line in lines])

        def isatty(self) -> bool:
            return False

        def readline(self) -> str:
            return next(self._lines, "")

    return Lines()


class Terminal:
    """The command line in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.environ["TERM"] = "dumb"
            os.execv(sys.executable, [sys.executable, "-m", "pellucid", *arguments])
        self.seen = self._coming = ""

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Reads until `text` has come, and leaves what came behind it for the next call."""
        assert self.comes(text, seconds), f"no {text!r} in {self._coming!r} after {self.seen!r}"

    def comes(self, text: str, seconds: float) -> bool:
        """`wait_for` that says whether it came."""
        end = time.monotonic() + seconds
        while not self._coming or text not in self._coming:
            ready, _, _ = select.select([self._file], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return False
            self._coming += os.read(self._file, 4096).decode(errors="replace")
        cut = self._coming.index(text) + max(1, len(text))
        self.seen += self._coming[:cut]
        self._coming = self._coming[cut:]
        return True

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def end(self) -> int:
        """Waits for the process; its exit code."""
        while True:
            try:
                if not os.read(self._file, 4096):
                    break
            except OSError:  # how Linux says that the other side is closed
                break
        _, status = os.waitpid(self._pid, 0)
        os.close(self._file)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(smollm2_path: Path) -> None:
    terminal = Terminal("chat", str(smollm2_path), "--temperature", "0")
    try:
        terminal.wait_for(">>> ")
        terminal.type("Write a very long story about a dragon.\n")
        terminal.wait_for("dragon.\r\n")  # the echo of the question
        terminal.wait_for("")  # the answer begins
        terminal.type("\x03")
        terminal.wait_for("stopped")
        terminal.wait_for(">>> ")
        terminal.type("half a line")
        terminal.wait_for("half a line")
        # CPython's readline asks for signals and then waits for a key: one that comes in between is
        # seen with the next. So press again, as a person would.
        for _ in range(20):
            terminal.type("\x03")
            if terminal.comes("Ctrl-D or /exit leaves", 3):
                break
        else:
            pytest.fail(f"Ctrl-C does nothing: {terminal.seen!r}")
        terminal.wait_for(">>> ")
        terminal.type("\x04")
    except BaseException:
        terminal.kill()
        raise
    assert terminal.end() == 0
    assert "Traceback" not in terminal.seen


def test_ctrl_c_while_the_model_loads_is_quiet(smollm2_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "run", str(smollm2_path), "Count to a thousand."],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(1)  # it answers
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b""
