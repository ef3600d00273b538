"""pellucid quantize, on a small file made here."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pellucid import LLM
from pellucid.convert.calibrate import calibrate
from pellucid.formats import open_checkpoint
from pellucid.formats.gguf_write import Entry, Value, write_gguf
from pellucid.quant.quantize import quantize
from pellucid.quant.types import TensorType
from pellucid.text import Tokenizer
from tests.python.cli.conftest import Ended
from tests.python.convert.tiny import tiny_llama

Command = Callable[..., Ended]
F32, F16, BF16 = TensorType.F32, TensorType.F16, TensorType.BF16
SHAPES = {
    "token_embd.weight": (40, 256),
    "output_norm.weight": (256,),
    "blk.0.attn_norm.weight": (256,),
    "blk.0.attn_q.weight": (256, 256),
    "blk.0.attn_v.weight": (64, 256),
    "blk.0.ffn_gate_inp.weight": (4, 256),
    "blk.0.ffn_down.weight": (256, 96),
}
KEYS = {
    "general.architecture": Value("string", "llama"),
    "general.file_type": Value("uint32", 1),
    "llama.block_count": Value("uint32", 1),
    "tokenizer.ggml.tokens": Value("array of string", [f"t{i}" for i in range(40)]),
    "tokenizer.ggml.scores": Value("array of float32", np.arange(40, dtype=np.float32)),
    "split.count": Value("uint16", 1),
}


def values(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    rng = np.random.default_rng(len(name))
    return rng.standard_normal(SHAPES[name]).astype(np.float32)


def write(
    path: Path,
    type: TensorType = F16,
    spoilt: float | None = None,
    where: str = "blk.0.attn_q.weight",
) -> Path:
    def data(entry: Entry) -> list[bytes]:
        array = values(entry.name)
        if spoilt is not None and entry.name == where:
            array.reshape(-1)[5] = spoilt
        if entry.type is F32:
            return [array.tobytes()]
        if entry.type is F16:
            return [array.astype(np.float16).tobytes()]
        return [quantize(array, entry.type).tobytes()]

    entries = [
        Entry(name, shape, type if len(shape) > 1 and "inp" not in name else F32)
        for name, shape in SHAPES.items()
    ]
    write_gguf(path, KEYS, entries, data)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "in.gguf")


@pytest.mark.parametrize("source", [F32, F16, BF16], ids=lambda t: t.name)
def test_a_mix(command: Command, tmp_path: Path, source: TensorType) -> None:
    model, out = write(tmp_path / "in.gguf", source), tmp_path / "out.gguf"
    ended = command("quantize", str(model), str(out), "--type", "q4_k_m", "--json")
    assert ended.code == 0, ended.err
    facts = json.loads(ended.out)
    types = {tensor["name"]: tensor["type"] for tensor in facts["tensors"]}
    assert types == {
        "token_embd.weight": "Q6_K",  # the head too
        "output_norm.weight": "F32",
        "blk.0.attn_norm.weight": "F32",
        "blk.0.attn_q.weight": "Q4_K",
        "blk.0.attn_v.weight": "Q6_K",
        "blk.0.ffn_gate_inp.weight": "F32",
        "blk.0.ffn_down.weight": "Q8_0",  # for Q6_K: rows of 96
    }
    assert "blk.0.ffn_down.weight: rows do not divide" in ended.err
    assert facts["bytes"] == out.stat().st_size and facts["bytes_before"] == model.stat().st_size
    errors = {tensor["name"]: tensor["error"] for tensor in facts["tensors"]}
    assert 0.05 < errors["blk.0.attn_q.weight"] < 0.08
    assert errors["output_norm.weight"] == 0
    with open_checkpoint(out) as written:
        assert {name: info.type.name for name, info in written.tensors.items()} == types
        for name in SHAPES:
            lost = values(name) - written.read(name)
            relative = np.sqrt(np.mean(lost**2) / np.mean(values(name) ** 2))
            assert relative == pytest.approx(errors[name], abs=0.003)
        metadata = written.metadata
        assert metadata["general.file_type"] == 15
        assert metadata["general.quantization_version"] == 2
        assert metadata["tokenizer.ggml.tokens"] == KEYS["tokenizer.ggml.tokens"].value
        assert metadata.type_of("tokenizer.ggml.scores") == "array of float32"
        assert "split.count" not in metadata


def test_a_folder(command: Command, tmp_path: Path) -> None:
    """A tiny Llama: what is written answers as the folder does, and tokenises as it does."""
    folder, out = tiny_llama(tmp_path / "model"), tmp_path / "out.gguf"
    text = "the newest wide"
    for mix, allowed in ("f32", 1e-5), ("q8_0", 0.05):
        ended = command("quantize", str(folder), str(out), "-t", mix, "--force", "--json")
        assert ended.code == 0, ended.err
        answers = []
        for path in folder, out:
            with LLM(path, backend="reference") as llm:
                answers.append(llm.logits(list(llm.tokenizer.encode(text))))
        assert np.abs(answers[0] - answers[1]).max() <= allowed * np.abs(answers[0]).max()
        assert np.abs(answers[0]).max() > 0


def test_a_text_to_calibrate_with(command: Command, tmp_path: Path) -> None:
    """Matrices lose less of what their inputs make of them than without."""
    folder, text = tiny_llama(tmp_path / "model"), tmp_path / "text"
    text.write_text("low lower lowest new newer newest wide wider widest " * 20)
    with open_checkpoint(folder) as checkpoint:
        tokenizer = Tokenizer.from_folder(folder)
        importance = calibrate(checkpoint, tokenizer, text.read_text()).squares
    lost: list[float] = []
    for name, extra in ("plain.gguf", []), ("weighed.gguf", ["--calibrate", str(text)]):
        out = tmp_path / name
        ended = command("quantize", str(folder), str(out), "-t", "q4_0", *extra)
        assert ended.code == 0, ended.err
        with open_checkpoint(out) as written, open_checkpoint(folder) as given:
            name, key = "blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight"
            error = written.read(name) - given.read(key)
            lost.append(float((error**2 * importance[name]).sum()))
    assert lost[1] < 0.98 * lost[0]


def test_an_importance_matrix_is_kept_and_taken(command: Command, tmp_path: Path) -> None:
    """The same bytes from the file as from the text."""
    folder, text, kept = tiny_llama(tmp_path / "model"), tmp_path / "text", tmp_path / "imatrix"
    text.write_text("low lower lowest new newer newest wide wider widest " * 20)
    files = [tmp_path / name for name in ("text.gguf", "file.gguf", "plain.gguf")]
    ways: list[tuple[str, ...]] = [
        ("--calibrate", str(text), "--save-imatrix", str(kept)),
        ("--imatrix", str(kept)),
        (),
    ]
    for out, extra in zip(files, ways, strict=True):
        ended = command("quantize", str(folder), str(out), "-t", "q4_0", *extra)
        assert ended.code == 0, ended.err
    of_text, of_file, plain = (file.read_bytes() for file in files)
    assert of_text == of_file != plain
    again = ("quantize", str(folder), str(tmp_path / "n.gguf"), "-t", "q4_0")
    refused(command(*again, *ways[0]), str(kept), "exists")
    refused(command(*again, *ways[1], "--calibrate", str(text)), "--imatrix", "choose one")
    refused(command(*again, "--save-imatrix", "x"), "nothing to keep without --calibrate")
    refused(command(*again, "--imatrix", str(tmp_path / "none")), "none", "cannot be opened")
    refused(command(*again, "--imatrix", "/dev/zero"), "/dev/zero", "not a regular file")
    refused(command(*again, "--imatrix", str(plain_file := files[2])), str(plain_file), "in_sum2")
    refused(command(*again, "--imatrix", str(text)), str(text), "it is no importance matrix")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("in.gguf", "is the model itself"),
        ("out.gguf", "is OUT itself"),
        ("text", "is the text itself"),
        ("none/x", "is no folder"),
        (".", "is a folder"),
    ],
)
def test_where_an_importance_matrix_is_not_kept(
    command: Command, tmp_path: Path, place: str, words: str
) -> None:
    """Said before the text is read, and nothing is overwritten, even with --force."""
    model, text = write(tmp_path / "in.gguf"), tmp_path / "text"
    text.write_text("a text")
    before = model.read_bytes()
    ended = command(
        *("quantize", str(model), str(tmp_path / "out.gguf"), "-t", "q4_0", "--force"),
        *("--calibrate", str(text), "--save-imatrix", str(tmp_path / place)),
    )
    refused(ended, words)
    assert ended.err.count("\n") == 1
    assert (model.read_bytes(), text.read_text()) == (before, "a text")
    assert not (tmp_path / "out.gguf").exists()


def test_texts_that_cannot_calibrate(command: Command, tmp_path: Path) -> None:
    folder, out = tiny_llama(tmp_path / "model"), tmp_path / "out.gguf"
    text = tmp_path / "text"
    arguments = ("quantize", str(folder), str(out), "-t", "q4_0", "--calibrate", str(text))
    refused(command(*arguments), str(text), "cannot be read")
    text.write_bytes(b"\xff\xfe\xff")
    refused(command(*arguments), str(text), "not text in UTF-8")
    text.write_text("")
    refused(command(*arguments), "has 0 tokens")
    assert not out.exists()


def test_the_threads_change_no_byte(command: Command, model: Path, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("a.gguf", "b.gguf")]
    for out, threads in zip(outs, "13", strict=True):
        command("quantize", str(model), str(out), "-t", "q4_0", "--threads", threads)
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_table_for_people(command: Command, model: Path, tmp_path: Path) -> None:
    ended = command("quantize", str(model), str(tmp_path / "out.gguf"), "-t", "q8_0")
    header, *rows, last = ended.out.splitlines()
    assert header.split() == ["TYPE", "TENSORS", "WEIGHTS", "ERROR"]
    assert [row.split()[0] for row in rows] == ["F32", "Q8_0"]
    assert "out.gguf: " in last and last.endswith(" bits per weight")


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2 and ended.out == ""
    assert "Traceback" not in ended.err
    assert all(word in ended.err.splitlines()[-1] for word in words), ended.err


def test_quantised_input_is_taken_only_when_asked_for(command: Command, tmp_path: Path) -> None:
    model, out = write(tmp_path / "in.gguf", TensorType.Q8_0), tmp_path / "out.gguf"
    refused(
        command("quantize", str(model), str(out), "-t", "q4_0"), "quantised already", "--requantize"
    )
    assert not out.exists()
    ended = command("quantize", str(model), str(out), "-t", "q4_0", "--requantize")
    assert ended.code == 0 and "warning: " in ended.err
    # What has its type already is copied as it is.
    again = tmp_path / "again.gguf"
    ended = command("quantize", str(model), str(again), "-t", "q8_0")
    assert ended.code == 0
    with open_checkpoint(model) as before, open_checkpoint(again) as after:
        for name in SHAPES:
            np.testing.assert_array_equal(before.raw(name), after.raw(name))


def test_pure(command: Command, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    refused(
        command("quantize", str(model), str(out), "-t", "q4_k", "--pure"),
        "blk.0.ffn_down.weight",
        "rows of 96 do not divide into Q4_K blocks of 256",
    )
    assert command("quantize", str(model), str(out), "-t", "q4_1", "--pure").code == 0
    with open_checkpoint(out) as written:
        assert written.tensors["token_embd.weight"].type is TensorType.Q4_1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_that_is_no_number(command: Command, tmp_path: Path, bad: float) -> None:
    model, out = write(tmp_path / "in.gguf", spoilt=bad), tmp_path / "out.gguf"
    out.write_text("old")
    ended = command("quantize", str(model), str(out), "-t", "q4_0", "--force")
    refused(ended, "blk.0.attn_q.weight", "infinite or not a number")
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.gguf", "out.gguf"]


@pytest.mark.parametrize(
    ("where", "type"),
    [
        ("output_norm.weight", "q4_0"),
        ("blk.0.ffn_gate_inp.weight", "q4_0"),
        ("blk.0.attn_q.weight", "f16"),
    ],
)
def test_what_is_copied_must_be_numbers_too(
    command: Command, tmp_path: Path, where: str, type: str
) -> None:
    model, out = write(tmp_path / "in.gguf", F16, np.nan, where), tmp_path / "out.gguf"
    refused(command("quantize", str(model), str(out), "-t", type), where, "not a number")
    assert not out.exists()


def test_a_norm_of_a_folder_that_is_no_number(command: Command, tmp_path: Path) -> None:
    file = tiny_llama(tmp_path / "model") / "model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"][2] = np.inf
    save_file(weights, file)
    out = tmp_path / "out.gguf"
    ended = command("quantize", str(file.parent), str(out), "-t", "q4_0")
    refused(ended, "output_norm.weight", "not a number")
    assert not out.exists()


def test_outputs_that_are_refused(command: Command, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("old")
    refused(command("quantize", str(model), str(out), "-t", "q4_0"), "exists", "--force")
    refused(command("quantize", str(model), str(model), "-t", "q4_0", "--force"), "itself")
    refused(command("quantize", str(model), str(tmp_path), "-t", "q4_0"), "is a folder")
    refused(command("quantize", str(model), str(out), "-t", "q3_k"), "'q3_k'", "q4_k_m")
    refused(command("quantize", str(model), str(tmp_path / "no" / "o"), "-t", "q4_0"), "no folder")
    assert out.read_text() == "old"
    assert command("quantize", str(model), str(out), "-t", "q4_0", "--force").code == 0


@pytest.mark.parametrize("flags", [[], ["--force"]])
def test_what_is_no_file_is_left_alone(
    command: Command, model: Path, tmp_path: Path, flags: list[str]
) -> None:
    """A rename would put a file in the place of a device, /dev/null's for all programs."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(command("quantize", str(model), str(pipe), "-t", "q4_0", *flags), "device or a pipe")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_one(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "real.gguf", tmp_path / "link.gguf"
    link.symlink_to(target)
    assert command("quantize", str(model), str(link), "-t", "q4_0").code == 0
    assert link.is_symlink() and target.stat().st_size > 1000
    assert [p.name for p in target.parent.iterdir()] == ["real.gguf"]


def test_run_quantises_at_load(command: Command, tmp_path: Path) -> None:
    folder, text = tiny_llama(tmp_path / "model"), "the newest wide"
    flags = ("--raw", "--backend", "reference", "--temperature", "0", "--logprobs", "0", "--json")
    found = []
    for quantization in None, "q4_0":
        given = ("--quantization", quantization) if quantization else ()
        ended = command("run", str(folder), text, "--max-tokens", "1", *flags, *given)
        assert ended.code == 0, ended.err
        assert ("quantising to q4_0" in ended.err) == bool(quantization)
        token = json.loads(ended.out)["outputs"][0]["logprobs"][0]
        found.append(token["logprob"])
        with LLM(folder, backend="reference", quantization=quantization) as llm:
            row = llm.logits(list(llm.tokenizer.encode(text)))[-1].astype(np.float64)
        assert row.argmax() == token["token_id"]
        assert token["logprob"] == pytest.approx(row.max() - np.log(np.exp(row).sum()), abs=1e-4)
    assert abs(found[0] - found[1]) > 1e-3
    ended = command("run", str(folder), text, "--quantization", "q9")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "quantization='q9'" in ended.err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_ended_by_a_signal(
    command: Command,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    """In the middle of a tensor: what stood there stays, and nothing else is left."""
    out = tmp_path / "folder" / "out.gguf"
    out.parent.mkdir()
    out.write_bytes(b"old")

    def ended(*_: object) -> None:
        assert len(list(out.parent.iterdir())) == 2  # begun under another name
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    at_hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("pellucid.convert.write._quantized", ended)
    ending = command("quantize", str(model), str(out), "-t", "q4_0", "--threads", "1", "--force")
    assert ending.code == code
    assert [file.name for file in out.parent.iterdir()] == ["out.gguf"]
    assert out.read_bytes() == b"old"
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.signal(signal.SIGHUP, at_hangup) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--types", "q9"], "--types: "),
        (["--types", "q4_0,,all"], "--types "),
        (["--against", "nowhere/at-all.gguf"], "--against: "),
    ],
)
def test_quality_says_which_flag_is_wrong(
    command: Command, model: Path, tmp_path: Path, flags: list[str], said: str
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a text")
    ended = command("quality", str(model), *flags, "--text", str(text), "--offline")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {said}"), ended.err
