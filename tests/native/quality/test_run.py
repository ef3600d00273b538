"""pellucid quality, from the text to the table, on tiny models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import LLM
from pellucid.core.errors import BadInput, PellucidError
from pellucid.quality import Settings, Subject, Text, report_json, report_of, run_quality
from pellucid.quality.scores import Spool
from pellucid.quant.mixes import MIXES
from tests.python.cli.conftest import Ended, command  # noqa: F401 - a fixture
from tests.python.convert.tiny import tiny_llama
from tests.python.engine.tiny import CONTEXT, write_model

Command = Callable[..., Ended]
WORDS = "the theory that the tea is hot and then that he thinks "
TEXT = Text("words", WORDS * 20)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("quality") / "tiny.gguf")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text"
    file.write_text(TEXT.text)
    return file


def quiet(label: str, done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_perplexity_is_that_of_the_engine_s_own_scores(path: Path, backend: str) -> None:
    settings = Settings(tokens=300, context=96, backend=backend, repeats=0)
    report = run_quality([Subject("tiny", path)], None, TEXT, settings, quiet)
    with LLM(path, backend=backend) as llm:
        ids = list(llm.tokenizer.encode(TEXT.text))[:300]
        width = llm.tokenizer.vocab_size
        surprises: list[float] = []
        for end in (96, 144, 192, 240, 288, 299):  # windows begin every 48 tokens
            start = max(0, end - 96)
            rows = llm.logits(ids[start:end])[:, :width].astype(np.float64)
            rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
            first = len(surprises)
            surprises += [-rows[row - start, ids[row + 1]] for row in range(first, end)]
    assert report.tokens == len(surprises) == 299
    [one] = report.measured
    assert one.perplexity.value == pytest.approx(np.exp(np.mean(surprises)), rel=1e-6)
    assert one.perplexity.low < one.perplexity.value < one.perplexity.high
    assert one.divergence is None and one.speed is None and not report.compared


def test_all_types_of_one_model(command: Command, path: Path, text: Path) -> None:  # noqa: F811
    flags = ("--text", str(text), "--repeats", "0", "--tokens", "300", "--json")
    ended = command("quality", str(path), *flags, "--types", "ALL", "--context", "64")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    kinds = [one["quantization"] for one in told["models"][1:]]
    assert kinds == [name for name in MIXES if name not in ("f32", "f16", "bf16")]
    assert report_json(report_of(told)) == told  # for pages that are made of what was told
    refused = command("quality", str(path), *flags, "--types", "all,q8_0")
    assert refused.code == 2 and "leave them out" in refused.err


def test_types_of_one_model(command: Command, path: Path, text: Path, tmp_path: Path) -> None:  # noqa: F811
    picture = tmp_path / "p.svg"
    flags = ("--text", str(text), "--types", "q8_0, Q4_0,q8_0", "--repeats", "1", "--json")
    ended = command("quality", str(path), *flags, "--picture", str(picture))
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert [one["name"] for one in report["models"]] == ["tiny, as stored", "q8_0", "q4_0"]
    plain, q8, q4 = report["models"]
    assert report["against"] == "tiny, as stored" and report["context"] == CONTEXT
    assert plain["divergence"] is None
    assert 0 < 10 * q8["divergence"]["mean"]["value"] < q4["divergence"]["mean"]["value"]
    assert q8["divergence"]["same_likeliest"]["value"] > q4["divergence"]["same_likeliest"]["value"]
    ratio = q4["divergence"]["perplexity_ratio"]
    both = q4["perplexity"]["value"] / plain["perplexity"]["value"]
    assert ratio["value"] == pytest.approx(both) and ratio["low"] < ratio["value"] < ratio["high"]
    assert plain["weights_bytes"] > q8["weights_bytes"] > q4["weights_bytes"]
    for one in report["models"]:
        assert one["weights_bytes"] - 264 * 32 * 4 < one["bytes_per_token"]  # but for the table
        assert one["tokens_per_second"]["median"] > 0
    svg = picture.read_text()
    assert "q8_0" in svg and "q4_0" in svg
    table = command("quality", str(path), *flags[:-1])
    assert table.code == 0 and "mean KL" in table.out and "tiny, as stored" in table.out


def test_a_type_is_as_far_as_the_file_of_it(
    command: Command,  # noqa: F811
    path: Path,
    text: Path,
    tmp_path: Path,
) -> None:
    """And the model against itself is not far at all."""
    file = tmp_path / "q4_0.gguf"
    assert command("quantize", str(path), str(file), "-t", "q4_0").code == 0
    flags = ("--text", str(text), "--repeats", "0", "--tokens", "300", "--json")
    files = command("quality", str(file), str(path), "--against", str(path), *flags)
    types = command("quality", str(path), "--types", "q4_0", *flags)
    of_file, itself = json.loads(files.out)["models"][1:]
    of_type = json.loads(types.out)["models"][1]
    assert of_file["divergence"] == of_type["divergence"]
    assert of_file["bytes_per_token"] == of_type["bytes_per_token"]
    assert itself["divergence"]["mean"] == {"value": 0, "low": 0, "high": 0}
    assert itself["divergence"]["same_likeliest"]["value"] == 1


def test_a_model_that_is_quantised_already(
    command: Command,  # noqa: F811
    text: Path,
    tmp_path: Path,
) -> None:
    folder, file = tiny_llama(tmp_path / "model"), tmp_path / "q4_0.gguf"
    assert command("quantize", str(folder), str(file), "-t", "q4_0").code == 0
    flags = ("--text", str(text), "--repeats", "0", "--types", "q4_1", "--json")
    ended = command("quality", str(file), *flags)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "quantised already" in ended.err
    ended = command("quality", str(file), "--requantize", *flags)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["models"][1]["divergence"]["mean"]["value"] > 0


def test_the_cache_s_type_is_not_that_of_what_it_is_held_against(path: Path) -> None:
    settings = Settings(tokens=300, kv_dtype="f32", repeats=0)
    subject = Subject("tiny", path)
    report = run_quality([subject], Subject("same", path), TEXT, settings, quiet)
    assert [one.kv_dtype for one in report.measured] == ["f16", "f32"]
    divergence = report.measured[1].divergence
    assert divergence is not None and 0 < divergence.mean.value < 1e-4


def test_activations_of_one_model(command: Command, tmp_path: Path, text: Path) -> None:  # noqa: F811
    folder, file = tiny_llama(tmp_path / "model"), tmp_path / "q8_0.gguf"
    assert command("quantize", str(folder), str(file), "-t", "q8_0").code == 0
    flags = ("--text", str(text), "--repeats", "0", "--json", "--activations")
    ended = command("quality", str(file), *flags, "int8,f32")
    assert ended.code == 0, ended.err
    first, int8, f32 = json.loads(ended.out)["models"]
    assert [one["activations"] for one in (first, int8, f32)] == ["f32", "int8", "f32"]
    assert [one["name"] for one in (int8, f32)] == ["q8_0, int8", "q8_0, f32"]
    assert int8["divergence"]["mean"]["value"] > f32["divergence"]["mean"]["value"] == 0
    ended = command("quality", str(file), "--against", str(folder), *flags, "f32")
    assert [one["activations"] for one in json.loads(ended.out)["models"]] == ["f32", "f32"]
    assert command("quality", str(file), str(folder), *flags, "int8,f32").code == 2


def test_another_vocabulary(command: Command, path: Path, text: Path, tmp_path: Path) -> None:  # noqa: F811
    other = tiny_llama(tmp_path / "other")
    ended = command("quality", str(path), "--against", str(other), "--text", str(text))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "only models of one" in ended.err and str(path) in ended.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--tokens", "100"), "at least 257 are needed"),
        (("--context", "97"), "was made for 96 positions"),
        (("--context", "2"), "the least that say anything"),
        (("--types", ","), "--types: names none"),
        (("--types", "q9"), "type 'q9' is none of those"),
        (("--requantize",), "nothing is quantised without --types"),
        (("--picture", "no/such/p.svg"), "there is no such folder"),
        (("--picture", "p.png"), "end in .svg"),
        (("--kv-cache-dtype", "int3"), "int3"),
        (("--activations", "int8,int3"), "activations 'int3' are unknown"),
        (("--activations", ","), "--activations: names none"),
        (("--backend", "reference", "--activations", "int8"), "has f32 alone"),
        (("--backend", "magic"), "backend 'magic' is unknown"),
        (("--against", "no/such.gguf"), "no/such.gguf"),
        (("--text", "no/such"), "cannot be read: No such file"),
        (("--text", "/dev/null"), "has 0 tokens"),
    ],
)
def test_bad_input_is_one_line(
    command: Command,  # noqa: F811
    path: Path,
    text: Path,
    flags: tuple[str, ...],
    message: str,
) -> None:
    ended = command("quality", str(path), "--text", str(text), *flags)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err


def test_what_is_no_text_and_two_models_of_types(
    command: Command,  # noqa: F811
    path: Path,
    tmp_path: Path,
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    ended = command("quality", str(path), "--text", str(binary))
    assert (ended.code, ended.err.count("\n")) == (2, 1) and "is not text in UTF-8" in ended.err
    ended = command("quality", str(path), "x.gguf", "--types", "q8_0", "--text", str(binary))
    assert ended.code == 2


def test_a_damaged_model(tmp_path: Path, path: Path) -> None:
    from pellucid.formats import open_checkpoint

    damaged = tmp_path / "damaged.gguf"
    data = bytearray(path.read_bytes())
    with open_checkpoint(path) as checkpoint:
        offset = checkpoint.tensors["output_norm.weight"].offset
    data[offset : offset + 4] = np.float32(np.nan).tobytes()
    damaged.write_bytes(data)
    settings = Settings(tokens=300, repeats=0)
    with pytest.raises(PellucidError, match=r"damaged\.gguf: its scores of the text"):
        run_quality([Subject("d", damaged)], None, TEXT, settings, quiet)


def test_scores_that_the_disk_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Any = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(BadInput, match="compare fewer tokens"):
        Spool(11, 23)
    spool = Spool(10, 23)
    rows = np.arange(230, dtype=np.float32).reshape(10, 23)
    spool.append(rows[:7])
    spool.append(rows[7:])
    np.testing.assert_array_equal(spool.rows(5, 4), rows[5:9])
    spool.close()


def test_a_picture_that_cannot_be_written_loses_no_figure(
    command: Command,  # noqa: F811
    path: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(self: Path, *given: object, **more: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    picture = tmp_path / "p.svg"
    flags = ("--text", str(text), "--tokens", "300", "--repeats", "0", "--json")
    ended = command("quality", str(path), *flags, "--picture", str(picture))
    assert ended.code == 1 and "No space left" in ended.err
    assert json.loads(ended.out)["models"][0]["perplexity"]["value"] > 1
    assert not picture.exists()
