"""The command line: which commands there are, and how every one of them ends.

Standard output carries the answer and nothing else; notes, progress and errors go to standard
error. An error is one line, `error: ...`. Exit codes: 0 done, 1 failed, 2 bad input, 130 Ctrl-C,
141 when whoever read the output stopped reading.

A command module imports what it needs inside its function, so that `--help` is quick.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from pellucid import __version__
from pellucid.cli.output import ReaderLeftError
from pellucid.core.errors import PellucidError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
READER_LEFT = 141

# The commands in the order of --help, each a function of a module of its own.
_COMMANDS = {
    "run": "run:run",
    "chat": "chat:chat",
    "serve": "serve:serve",
    "batch": "batch:batch",
    "tokenize": "tokenize:tokenize",
    "train-tokenizer": "train_tokenizer:train_tokenizer",
    "inspect": "inspect_model:inspect_model",
    "pull": "pull:pull",
    "list": "list_models:list_models",
    "explain": "explain:explain",
    "plan": "plan:plan",
    "quantize": "quantize:quantize",
    "quality": "quality:quality",
    "bench": "bench:bench",
    "trace": "trace:trace",
    "selftest": "selftest:selftest",
}


# Errors that name no file.
_OF_WRITING = {errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EPIPE}
_OF_SOCKETS = {
    errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EHOSTUNREACH, errno.ENETDOWN,
    errno.ENETUNREACH, errno.ENOTCONN,
}  # fmt: skip


class _Commands(click.Group):
    """Commands whose module is imported when one is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in _COMMANDS:
            ctx.fail(f"no command {cmd_name!r}: there are {', '.join(_COMMANDS)}")
        module, function = _COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(f"pellucid.cli.{module}"), function)
        return command


@click.group(
    cls=_Commands,
    epilog="Models: a .gguf file, a folder, a hub id (OWNER/NAME[:QUANT]) or a name of "
    "`pellucid list`.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="pellucid %(version)s", help="Say which it is.")
def app() -> None:
    """A language-model inference engine you can see through."""


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
    try:
        with app.make_context("pellucid", arguments) as context:
            app.invoke(context)
        return 0
    except click.exceptions.Exit as done:  # --help or --version
        return done.exit_code
    except PellucidError as error:
        return _fail(str(error), error.exit_code)
    except ReaderLeftError:
        return READER_LEFT
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.ClickException as error:
        return _fail_usage(error)
    except OSError as error:
        return _fail(f"{_failed_at(error)}: {error.strerror or error}", FAILED)
    except MemoryError:
        return _fail("out of memory: use a smaller model or context", FAILED)
    except Exception as error:
        if os.environ.get("PELLUCID_DEBUG"):
            raise
        message = f"{type(error).__name__}: {error} (this is a fault of Pellucid; "
        return _fail(message + "PELLUCID_DEBUG=1 shows where it happened)", FAILED)


def _failed_at(error: OSError) -> str:
    """What an error of the system's is about: a file, what is written to, or else the network."""
    if error.filename:
        return str(error.filename)
    if error.errno in _OF_WRITING:
        return "standard output"
    sockets = isinstance(error, ConnectionError | TimeoutError) or error.errno in _OF_SOCKETS
    return "the network" if sockets else "the system"


def _fail_usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return BAD_INPUT
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    return _fail(f"{error.format_message().rstrip('.')}{hint}", BAD_INPUT)


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
