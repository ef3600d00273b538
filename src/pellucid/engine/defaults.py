"""Whose sampling defaults apply when a call gives none: the model's own, else ours.

A folder says them in `generation_config.json`, a GGUF file under `general.sampling.`. What they
do not say is as in `SamplingParams()`, max_tokens 16 included, unless max_new_tokens is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pellucid.core.errors import BadInput
from pellucid.core.params import SamplingParams
from pellucid.formats import Checkpoint
from pellucid.formats.folder import contained
from pellucid.formats.strict_json import read_json_object

GENERATION_CONFIG = "generation_config.json"

# Their name: ours.
_FOLDER_KEYS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}
_GGUF_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


def default_params(checkpoint: Checkpoint) -> SamplingParams:
    """The parameters of a call that gives none.

    Raises `BadInput` naming file and field if the model's own are out of range.
    """
    source, values = _own(checkpoint)
    try:
        return SamplingParams(**values)
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from error


def _own(checkpoint: Checkpoint) -> tuple[str, dict[str, Any]]:
    if checkpoint.kind == "gguf":
        return str(checkpoint.path), _renamed(checkpoint.metadata, _GGUF_KEYS)
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    if not (folder / GENERATION_CONFIG).exists():
        return str(folder), {}
    path = contained(folder, GENERATION_CONFIG)
    config = read_json_object(path)
    values = _renamed(config, _FOLDER_KEYS)
    if config.get("do_sample") is False:
        values["temperature"] = 0.0
    return str(path), values


def _renamed(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {ours: config[key] for key, ours in names.items() if config.get(key) is not None}
