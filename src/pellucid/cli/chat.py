"""`pellucid chat`: a conversation in the terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli import sampling as flags
from pellucid.cli.answers import say_statistics, say_why_it_ended
from pellucid.cli.arguments import model_argument, model_option, named_model
from pellucid.cli.engine_options import EngineOptions, engine_options, pipeline_options
from pellucid.cli.output import note, write
from pellucid.core.errors import BadInput, PellucidError

if TYPE_CHECKING:
    from pellucid import LLM, SamplingParams

HELP = """\
/reset         forget the conversation
/system TEXT   set the system message, and forget the conversation
/exit, /quit   leave; Ctrl-D does the same
/help          this
Ctrl-C stops an answer; what has come of it stays in the conversation."""
PROMPT = ">>> "


@click.command()
@model_argument
@model_option
@click.option("--system", help="A system message.")
@flags.sampling_options
@engine_options
@pipeline_options
def chat(
    model_name: str | None,
    model: str | None,
    system: str | None,
    engine: EngineOptions,
    **sampling: Any,
) -> None:
    """Talk with a model. /help shows what can be typed.

    Where standard input is not a terminal, each of its lines is a message.
    """
    name = named_model(model_name, model)
    flags.check_early(sampling)
    with engine.open(name) as llm:
        if not llm.has_chat_template:
            raise BadInput(
                f"{llm.model_path}: this model has no chat template: use `pellucid run --raw`"
            )
        params = flags.sampling_params(llm.get_default_sampling_params(), **sampling)
        Conversation(llm, params, system, verbose=engine.verbose).hold()


class Conversation:
    """The messages so far, and the loop that adds to them."""

    def __init__(
        self, llm: LLM, params: SamplingParams, system: str | None, *, verbose: bool = False
    ) -> None:
        self._llm = llm
        self._params = params
        self._verbose = verbose
        self._system = system
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = []
        if self._system is not None:
            self.messages.append({"role": "system", "content": self._system})

    def hold(self) -> None:
        """Reads lines and answers them until the end of the input or /exit."""
        _enable_line_editing()
        while (line := _read_line()) is not None:
            if line.startswith("/"):
                if not self._obey(line):
                    return
            elif line.strip():
                self._answer(line)

    def _obey(self, line: str) -> bool:
        """Carries out a command; False: the conversation is over."""
        command, _, rest = line.strip().partition(" ")
        if command in ("/exit", "/quit", "/bye"):
            return False
        if command == "/reset":
            self.reset()
            note("the conversation is forgotten")
        elif command == "/system":
            self._system = rest.strip() or None
            self.reset()
            note("the system message is set" if self._system else "there is no system message")
        elif command == "/help":
            note(HELP)
        else:
            note(f"{command} is no command: /help shows those there are")
        return True

    def _answer(self, text: str) -> None:
        """Adds a message and its answer; neither, where there is no answer at all."""
        asked = [*self.messages, {"role": "user", "content": text}]
        parts: list[str] = []
        try:
            with self._llm.stream(asked, self._params) as stream:
                for increment in stream:
                    parts.append(increment.text)
                    write(increment.text)
                output = stream.output()
            write("\n")
            say_why_it_ended(output, self._params)
            if self._verbose:
                say_statistics(output)
        except KeyboardInterrupt:
            write("\n")
            note("stopped")
        except PellucidError as error:
            note(f"error: {' '.join(str(error).split())} (/reset begins anew)")
            return
        if parts:
            self.messages = [*asked, {"role": "assistant", "content": "".join(parts)}]


def _read_line() -> str | None:
    """The next line without its end; None at the end of the input. Ctrl-C drops the line."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.removesuffix("\n") if line else None
    while True:
        try:
            return input(PROMPT)
        except EOFError:
            write("\n")
            return None
        except KeyboardInterrupt:
            write("\n")
            note("Ctrl-D or /exit leaves")


def _enable_line_editing() -> None:
    """Arrow keys and a history of this session, where the platform has readline."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - `input` uses it once it is imported
