"""A folder's own sampling settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pellucid import BadInput, FormatError, SamplingParams
from pellucid.engine.defaults import default_params
from pellucid.formats import open_checkpoint


def defaults(folder: Path, config: dict[str, Any] | str | None) -> SamplingParams:
    (folder / "config.json").write_text("{}")
    save_file({"w": np.zeros(1, np.float32)}, folder / "model.safetensors")
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "generation_config.json").write_text(text)
    with open_checkpoint(folder) as checkpoint:
        return default_params(checkpoint)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, {}),
        ({}, {}),
        ({"eos_token_id": [1, 2], "transformers_version": "5"}, {}),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1},
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1},
        ),
        ({"repetition_penalty": 1.1, "top_k": None}, {"repetition_penalty": 1.1}),
        ({"max_new_tokens": 300}, {"max_tokens": 300}),
        ({"do_sample": False}, {"temperature": 0.0}),
    ],
)
def test_what_the_model_says_applies(
    tmp_path: Path, config: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    assert defaults(tmp_path, config) == SamplingParams(**expected)


def test_what_it_says_wrong_is_refused_by_file_and_field(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"generation_config\.json: top_p must be"):
        defaults(tmp_path, {"top_p": "much"})
    with pytest.raises(FormatError, match=r"generation_config\.json"):
        defaults(tmp_path, "[1")
