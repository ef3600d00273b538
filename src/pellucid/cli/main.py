"""The command line: which commands there are, and how every one of them ends.

Standard output carries the answer and nothing else; notes, progress and errors go to standard
error. An error is one line, `error: ...`. Exit codes: 0 done, 1 failed, 2 bad input, 130 Ctrl-C,
141 when whoever read the output stopped reading.

A command module imports what it needs inside its function, so that `--help` is quick.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from pellucid import __version__
from pellucid.cli.bench import bench
from pellucid.cli.chat import chat
from pellucid.cli.inspect_model import inspect_model
from pellucid.cli.list_models import list_models
from pellucid.cli.output import ReaderLeftError
from pellucid.cli.pull import pull
from pellucid.cli.run import run
from pellucid.cli.tokenize import tokenize
from pellucid.cli.train_tokenizer import train_tokenizer
from pellucid.core.errors import PellucidError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
READER_LEFT = 141

app = typer.Typer(
    name="pellucid",
    help="A language-model inference engine you can see through.",
    epilog="Models: a .gguf file, a folder, a hub id (OWNER/NAME[:QUANT]) or a name of "
    "`pellucid list`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("run")(run)
app.command("chat")(chat)
app.command("tokenize")(tokenize)
app.command("train-tokenizer")(train_tokenizer)
app.command("inspect")(inspect_model)
app.command("pull")(pull)
app.command("list")(list_models)
app.command("bench")(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pellucid {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which it is."),
    ] = False,
) -> None:
    del version  # its callback has printed it


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and leaves the process with its exit code."""
    _prepare_streams()
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    code = _flush(code)
    sys.exit(code)


def _prepare_streams() -> None:
    """Any text can be asked and answered, whatever the terminal's encoding; a closed stream is
    empty."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115, PTH123 - for the whole process
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115, PTH123
        stream.reconfigure(encoding="utf-8", errors="replace")
        setattr(sys, name, stream)


def _run(arguments: list[str]) -> int:
    usage_error = _click_exception()
    try:
        code: Any = app(arguments, prog_name="pellucid", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PellucidError as error:
        return _fail(str(error), error.exit_code)
    except ReaderLeftError:
        return READER_LEFT
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except usage_error as error:
        return _fail_usage(error)
    except OSError as error:
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", FAILED)
    except MemoryError:
        return _fail("out of memory: use a smaller model or context", FAILED)
    except Exception as error:
        if os.environ.get("PELLUCID_DEBUG"):
            raise
        message = f"{type(error).__name__}: {error} (this is a fault of Pellucid; "
        return _fail(message + "PELLUCID_DEBUG=1 shows where it happened)", FAILED)


def _click_exception() -> type[Exception]:
    """The base of all usage errors. Typer carries its own copy of click, or uses click itself."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _fail_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return BAD_INPUT
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    return _fail(f"{error.format_message()}{hint}", BAD_INPUT)


def _fail(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _flush(code: int) -> int:
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        code = READER_LEFT
    except OSError as error:
        code = code or _fail(f"standard output: {error.strerror}", FAILED)
    # The interpreter will flush once more at exit, and must not complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
