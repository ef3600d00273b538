"""The flags of guessing, in every command that runs a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pellucid.server.options import BY_NAME
from pellucid.speculation.settings import FIELDS

COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("-m", "nowhere.gguf", "text"),
    "chat": ("nowhere.gguf",),
    "serve": ("nowhere.gguf",),
    "batch": ("in.jsonl", "out.jsonl", "-m", "nowhere.gguf"),
    "bench": ("nowhere.gguf",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_setting_has_its_flag(command: Callable[..., Any], name: str) -> None:
    told = command(name, "--help").out
    for field in FIELDS:
        assert f"--speculative-{field}" in told
        assert f"speculative_{field}" in BY_NAME
    assert "--no-speculative-adaptive" in told


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--speculative-rule", "exact"), "rule without a method"),
        (("--no-speculative-adaptive",), "adaptive without a method"),
        (("--speculative-method", "ngram", "--speculative-layers", "2"), "layers are for early"),
        (("--speculative-method", "ngram", "--speculative-rule", "hope"), "exact, rejection"),
        (("--speculative-model", "x", "--speculative-tokens", "33"), "1 to 32"),
        (("--speculative-method", "ngram", "--speculative-quantization", "q4_0"), "draft model"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_line(
    command: Callable[..., Any], name: str, flags: tuple[str, ...], said: str
) -> None:
    ended = command(name, *COMMANDS[name], *flags)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not ended.out
