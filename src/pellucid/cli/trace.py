"""`pellucid trace`: a recording as a Chrome trace."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pellucid.cli.output import note


@click.command(
    epilog="A recording is what `pellucid serve --record FILE` writes, or what a server gives "
    "under /live/recording. Open the trace in https://ui.perfetto.dev or chrome://tracing."
)
@click.argument("recording", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def trace(recording: Path, out: Path) -> None:
    """Write a recording's steps and requests as a Chrome trace, for Perfetto."""
    from pellucid.core.errors import BadInput, FormatError
    from pellucid.server.live.recording import read_recording
    from pellucid.server.live.trace import chrome_trace

    found = read_recording(recording)
    try:
        made = chrome_trace(found)
        text = json.dumps(made, separators=(",", ":"), allow_nan=False) + "\n"
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FormatError(recording, "records", f"have another form ({error})") from error
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{out}: cannot be written: {error.strerror}") from error
    note(f"{out}: {len(made['traceEvents'])} events of {len(found['records']['steps'])} steps")
