"""`pellucid serve`: a model behind OpenAI's API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import model_argument, model_option
from pellucid.cli.engine_options import EngineOptions, engine_options
from pellucid.cli.output import note
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid.server import Settings


@click.command(epilog="Clients: any of OpenAI's API, with base_url http://HOST:PORT/v1.")
@model_argument
@model_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=int, default=8000, show_default=True, help="0 chooses a free one.")
@click.option(
    "--api-key", "api_keys", multiple=True, metavar="KEY", help="Asked of clients; may be repeated."
)
@click.option(
    "--served-model-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="What clients call the model; may be repeated, the first is said back. [its name]",
)
@click.option("--max-num-seqs", type=int, help="Answers that run at once.")
@click.option("--max-num-batched-tokens", type=int, help="Positions of one step.")
@click.option(
    "--chat-template", metavar="FILE", help="A Jinja2 file in place of the model's own template."
)
@engine_options
def serve(
    model_name: str | None,
    model: str | None,
    host: str,
    port: int,
    api_keys: tuple[str, ...],
    names: tuple[str, ...],
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    chat_template: str | None,
    engine: EngineOptions,
) -> None:
    """Serve a model over HTTP: OpenAI's API, and Anthropic's messages.

    It listens on this machine alone unless --host says otherwise. SIGTERM and Ctrl-C let what runs
    finish; a second one ends it at once.
    """
    from pellucid import AsyncLLM
    from pellucid.cli.arguments import find_model
    from pellucid.engine.client import LocalClient
    from pellucid.hub import DEFAULT_MODEL
    from pellucid.server import create_app
    from pellucid.server.serving import address, listen, run

    if model is not None and model_name is not None:
        raise BadInput("the model is given twice: as the first argument and with --model")
    name = model or model_name or DEFAULT_MODEL
    settings = _settings(name, names, api_keys)
    bound = listen(host, port)  # before the model is loaded: a port that is taken is said at once
    arguments: dict[str, Any] = {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "chat_template": None if chat_template is None else _read(chat_template),
    }
    given = {key: value for key, value in arguments.items() if value is not None}
    llm = AsyncLLM(find_model(name, engine.offline), **engine.arguments(), **given)
    try:
        client = LocalClient(llm)
        app = create_app(client, settings)
        run(app, bound, ready=lambda: note(f"{settings.model_name} at {address(bound)}/v1"))
    finally:
        bound.close()
        llm.close()


def _settings(name: str, names: tuple[str, ...], api_keys: tuple[str, ...]) -> Settings:
    from pellucid.server import Settings

    own = Path(name).stem if name.endswith(".gguf") else name
    return Settings(served_model_names=names or (own,), api_keys=api_keys)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: a chat template is UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
