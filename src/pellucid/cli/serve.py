"""`pellucid serve`: a model behind OpenAI's API."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pellucid.cli.arguments import (
    find_model,
    model_argument,
    model_option,
    named_model,
    offline_option,
)
from pellucid.server.options import CONFIG, OPTIONS, Option, choose, speculation_of


def _flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each option of the table; one that is not given is None, or empty."""
    for option in reversed(OPTIONS):
        command = click.option(*_names(option), **_manner(option))(command)
    return command


def _names(option: Option) -> tuple[str, ...]:
    if option.kind == "switch":
        return (f"{option.flag}/--no-{option.flag[2:]}", option.name)
    return (option.flag, option.name)


def _manner(option: Option) -> dict[str, Any]:
    default = option.default_in_words
    words = option.help.rstrip(".") + "." + (f" [{default}]" if default else "")
    if option.kind == "switch":
        return {"default": None, "help": words}
    metavar = {"count": "N", "seconds": "SECONDS", "size": "SIZE"}.get(option.kind, "TEXT")
    return {"multiple": option.kind == "texts", "metavar": metavar, "help": words}


@click.command(
    epilog="Clients: any of OpenAI's API, with base_url http://HOST:PORT/v1. Each flag is also a "
    "variable (PELLUCID_MAX_NUM_SEQS) and a key of the settings file (max_num_seqs)."
)
@model_argument
@model_option
@click.option(
    "--config", metavar="FILE", help=f"A settings file in TOML. [the one {CONFIG} names, if any]"
)
@_flags
@offline_option
def serve(
    model_name: str | None,
    model: str | None,
    config: str | None,
    offline: bool,
    **flags: Any,
) -> None:
    """Serve a model over HTTP: OpenAI's API, and Anthropic's messages.

    It listens on this machine alone unless --host says otherwise. SIGTERM and Ctrl-C let what runs
    finish; a second one ends it at once.
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    chosen = choose(given, os.environ, config)
    name = named_model(model_name, model)
    speculation_of(chosen)  # what cannot be is said before anything is fetched
    path = find_model(name, offline)

    from pellucid.core.logs import LogForm, log_to_stderr
    from pellucid.server.operation import operate
    from pellucid.server.serving import run

    log_to_stderr(LogForm(chosen["log_level"], chosen["log_format"]))
    own_name = Path(name).stem if name.endswith(".gguf") else name
    run(operate(path, own_name, chosen))
