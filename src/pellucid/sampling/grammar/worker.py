"""The process in which grammars are tried: `python -m` this module, with MEMORY and SECONDS.

Reads a vocabulary from standard input, then grammars, each a length and UTF-8 text. Answers each
on standard output with a length and the reason why it is refused, no text for none; the first
answer says that the vocabulary is ready. Ends with its input.

A grammar that takes too much memory, stack or time ends the process, and no other.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pellucid.sampling.grammar.limits import TRIAL_STACK, parser_limits
from pellucid.sampling.grammar.threads import run_with_stack
from pellucid.sampling.grammar.trial import reason_against
from pellucid.sampling.grammar.vocabulary import TokenBytes, compiled

if TYPE_CHECKING:
    from llguidance import LLTokenizer

LENGTH = struct.Struct("<I")


def serve(source: IO[bytes], sink: IO[bytes], memory: int, seconds: float) -> None:
    """Answers until `source` ends."""
    tokenizer = compiled(TokenBytes.read(source))
    _bound_memory(memory)
    _send(sink, "")
    while header := source.read(LENGTH.size):
        text = source.read(LENGTH.unpack(header)[0]).decode()
        _bound_time(seconds)
        _send(sink, _tried(tokenizer, text))


def _tried(tokenizer: LLTokenizer, grammar: str) -> str:
    reasons: list[str] = []
    run_with_stack(
        TRIAL_STACK,
        lambda: reasons.append(reason_against(tokenizer, grammar, parser_limits())),
    )
    return reasons[0]


def _send(sink: IO[bytes], text: str) -> None:
    data = text.encode()
    sink.write(LENGTH.pack(len(data)) + data)
    sink.flush()


def _bound_memory(more: int) -> None:
    """At most `more` bytes of address space beyond what is taken now; where the system can say."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound_time(more: float) -> None:
    """Whoever asked may be gone before it could end us: at most so many more seconds of work."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + more) + 2, most))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]), float(sys.argv[2]))
