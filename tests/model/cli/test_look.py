"""tokenize, inspect, pull and list on the default model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Pellucid = Callable[..., subprocess.CompletedProcess[str]]
TEXT = "Michael Jordan\tplayed  👩🏽‍🚀 naïve"


def test_tokenize_gives_exactly_three_lists(pellucid: Pellucid, smollm2_path: Path) -> None:
    done = pellucid("tokenize", str(smollm2_path), TEXT, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert list(answer) == ["ids", "pieces", "offsets"]
    assert len(answer["ids"]) == len(answer["pieces"]) == len(answer["offsets"])
    for piece, (start, end) in zip(answer["pieces"], answer["offsets"], strict=True):
        if "\ufffd" not in piece:
            assert TEXT[start:end] == piece
    assert answer["offsets"][-1][1] == len(TEXT)


def test_tokenize_agrees_with_the_library(pellucid: Pellucid, smollm2_path: Path) -> None:
    from pellucid.formats import open_checkpoint
    from pellucid.text import Tokenizer

    with open_checkpoint(smollm2_path) as checkpoint:
        ids = Tokenizer.from_gguf(checkpoint.metadata, smollm2_path).encode(TEXT)
    done = pellucid("tokenize", "--model", str(smollm2_path), "--json", input=TEXT)
    assert json.loads(done.stdout)["ids"] == ids


def test_tokenize_shows_special_tokens_as_text_unless_asked(
    pellucid: Pellucid, smollm2_path: Path
) -> None:
    spelled = "<|im_start|>user"
    plain = json.loads(pellucid("tokenize", str(smollm2_path), spelled, "--json").stdout)
    special = json.loads(
        pellucid("tokenize", str(smollm2_path), spelled, "--special", "--json").stdout
    )
    assert "<|im_start|>" not in plain["pieces"]
    assert special["pieces"][0] == "<|im_start|>"


def test_tokenize_draws_partial_characters_as_bytes(pellucid: Pellucid, smollm2_path: Path) -> None:
    lines = pellucid("tokenize", str(smollm2_path), "a\n👩").stdout.splitlines()
    assert lines[0].split() == ["ID", "FROM", "TO", "PIECE"]
    assert lines[2].endswith("'\\n'")
    assert "f0 9f" in lines[3]
    assert lines[-1] == f"{len(lines) - 2} tokens"


def test_inspect_counts_every_byte(pellucid: Pellucid, smollm2_path: Path) -> None:
    done = pellucid("inspect", str(smollm2_path), "--context", "1000", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["file_bytes"] == smollm2_path.stat().st_size
    assert answer["weight_bytes"] == sum(group["bytes"] for group in answer["groups"])
    assert answer["parameters"] == 134_515_008
    memory = answer["memory"]
    weights = {"reference": 4 * answer["parameters"], "native": answer["weight_bytes"]}
    for backend, width in (("reference", 4), ("native", 2)):
        need = memory[backend]
        # 30 layers, a key and a value of 3 heads of 64
        assert need["kv_cache"] == 1000 * 30 * 2 * 3 * 64 * width
        assert need["weights"] == weights[backend]
        assert need["total"] == need["kv_cache"] + need["weights"]


def test_inspect_draws_the_file(pellucid: Pellucid, smollm2_path: Path) -> None:
    picture = pellucid("inspect", str(smollm2_path)).stdout
    for fact in ("llama", "134.5 M", "layers 0-29, each", "attn_q.weight", "Q4_1", "576 x 1536"):
        assert fact in picture


@pytest.mark.parametrize("context", ["8193", "-1"])
def test_inspect_refuses_a_context_the_model_lacks(
    pellucid: Pellucid, smollm2_path: Path, context: str
) -> None:
    done = pellucid("inspect", str(smollm2_path), "--context", context)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")


def test_pull_and_list_know_the_default_model(pellucid: Pellucid, smollm2_path: Path) -> None:
    pulled = pellucid("pull", "--offline", "--json")
    assert json.loads(pulled.stdout) == {"model": "smollm2-135m", "path": str(smollm2_path)}
    models = json.loads(pellucid("list", "--json").stdout)["models"]
    assert models[0]["name"] == "smollm2-135m"
    assert models[0]["path"] == str(smollm2_path)
    assert models[0]["size"] == 98_362_432
