"""Starting a child process that is an engine."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Final

# The child finds its modules where its parent does, whatever way those were given.
_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from pellucid.engine.process.host import main; main({descriptor})"
)


def launch() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A new interpreter that runs `host.main`, and our end of its socket.

    Nothing of this process is inherited but the environment and standard error. Raises `OSError`
    if the system starts no process.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        program = _PROGRAM.format(path=sys.path, descriptor=theirs.fileno())
        try:
            child = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        except BaseException:
            ours.close()
            raise
    return child, ours
