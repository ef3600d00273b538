"""What a client keeps on its own side of an engine that is elsewhere: the way in, and names.

Text becomes tokens here. Over there an id is free a step after its request was cut, and here at
once: so a request has a name of its own there each time it is sent.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from pellucid.engine.client import ModelInfo
from pellucid.engine.frontend import Frontend
from pellucid.engine.loading import open_text, tokens_of
from pellucid.formats import open_checkpoint
from pellucid.text import ChatTemplates, Tokenizer, given_chat_template


def open_text_of(path: Path) -> tuple[Tokenizer, ChatTemplates]:
    """What turns text into the tokens of the model at `path`. Errors are those of the parts."""
    with open_checkpoint(path) as checkpoint:
        return open_text(checkpoint)


def front_of(
    model: ModelInfo,
    tokenizer: Tokenizer,
    templates: ChatTemplates,
    seed: int | None,
    chat_template: str | None,
) -> Frontend:
    """The way in to `model`; without a `seed` one is drawn."""
    if chat_template is not None:
        templates = given_chat_template(chat_template, tokenizer)
    return Frontend(
        tokenizer,
        templates,
        model.default_params,
        model.vocab_size,
        model.max_model_len,
        secrets.randbits(64) if seed is None else seed,
        tokens_of(tokenizer, model.vocab_size),
    )


def id_there(name: str, number: int) -> str:
    """What the engine calls a request that is sent for the `number`th time of all."""
    return f"{name}#{number}"


def own_id(name: str) -> str:
    """What a request is called here that the engine calls `name`."""
    return name.rpartition("#")[0]
