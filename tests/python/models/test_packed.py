"""GPTQ and AWQ checkpoints: every number where the formats put it, and every value exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pellucid import LLM
from pellucid.convert.folder import folder_model
from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.engine.drafting import find_draft
from pellucid.formats import inspect, open_checkpoint
from pellucid.hub import SilentProgress
from pellucid.models.packed import PackedMatrix
from pellucid.models.packing import Packing, packing_of
from pellucid.models.registry import is_no_weight, read_spec
from pellucid.models.weights import Tensor, locate
from pellucid.ops import backend as make_ops
from pellucid.quant.dequantize import dequantize
from pellucid.quant.types import TensorType
from pellucid.speculation.settings import SpeculativeSettings
from tests.python.models.pack_by_hand import describe, matrix, packed_llama, quantization_config

Q4_0, Q5_0, Q8_0 = TensorType.Q4_0, TensorType.Q5_0, TensorType.Q8_0
F16, F32 = TensorType.F16, TensorType.F32
TEXT = "the newest wide widest"

FORMS: dict[str, tuple[dict[str, Any], TensorType]] = {
    "gptq": ({}, Q5_0),
    "gptq symmetric": ({"symmetric": True}, Q4_0),
    "gptq v2": ({"v2": True}, Q5_0),
    "gptq v2 symmetric": ({"v2": True, "symmetric": True}, Q4_0),
    "gptq 8 bits": ({"bits": 8}, F16),
    "gptq 8 bits symmetric": ({"bits": 8, "symmetric": True}, Q8_0),
    "gptq one group": ({"group": -1}, Q5_0),
    "gptq groups of 16": ({"group": 16, "symmetric": True}, F16),
    "gptq desc_act": ({"scattered": True}, F16),
    "gptq desc_act 8 bits": ({"scattered": True, "bits": 8, "symmetric": True}, F16),
    "awq": ({"method": "awq"}, Q5_0),
    "awq one group": ({"method": "awq", "group": -1}, Q5_0),
}


def packed_matrix(folder: Path, shape: tuple[int, int], **how: Any) -> tuple[PackedMatrix, Any]:
    """A matrix in a file of its own, and its meaning."""
    parts, meaning = matrix(np.random.default_rng(3), *shape, **how)
    file = folder / "m.safetensors"
    save_file({f"m.{name}": array for name, array in parts.items()}, file)
    (folder / "config.json").write_text(
        json.dumps({"quantization_config": quantization_config(**how)})
    )
    checkpoint = open_checkpoint(file)
    packing = packing_of(checkpoint)
    assert packing is not None
    return PackedMatrix(checkpoint, "m.", shape, packing), meaning


@pytest.mark.parametrize("shape", [(8, 128), (48, 256), (104, 384)])
@pytest.mark.parametrize("group", [32, 64, 128, -1])
@pytest.mark.parametrize("form", ["gptq", "gptq symmetric", "gptq 8 bits symmetric", "awq"])
def test_blocks_hold_every_value_to_the_bit(
    tmp_path: Path, form: str, group: int, shape: tuple[int, int]
) -> None:
    how, type = FORMS[form]
    found, meaning = packed_matrix(tmp_path, shape, **{**how, "group": group})
    assert found.exact_type is type
    for way in (type, F32):
        np.testing.assert_array_equal(dequantize(found.encoded(way), way, shape), meaning)
    if type is Q4_0:
        np.testing.assert_array_equal(dequantize(found.encoded(Q5_0), Q5_0, shape), meaning)
    halves = dequantize(found.encoded(F16), F16, shape)
    np.testing.assert_array_equal(halves, meaning.astype(np.float16).astype(np.float32))


def test_pieces_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, meaning = packed_matrix(tmp_path, (104, 64), method="awq")
    monkeypatch.setattr("pellucid.models.packed._PIECE", 64 * 24)
    assert len(list(found._pieces())) == 5
    np.testing.assert_array_equal(dequantize(found.encoded(Q5_0), Q5_0, (104, 64)), meaning)


def test_zeros_of_zero_wrap_in_the_first_format(tmp_path: Path) -> None:
    """Such a zero is stored as -1, which is 15."""
    packed_matrix(tmp_path, (8, 64), v2=True)
    words = load_file(tmp_path / "m.safetensors")
    words["m.qzeros"] = np.full_like(words["m.qzeros"], -1)
    save_file(words, tmp_path / "m.safetensors")
    zeros = {}
    for shift in (0, 1):
        packing = Packing("gptq", 4, 32, shift)
        again = PackedMatrix(open_checkpoint(tmp_path / "m.safetensors"), "m.", (8, 64), packing)
        zeros[shift] = set(again._zeros.reshape(-1).tolist())
    assert zeros == {0: {15}, 1: {0}}


def test_scales_that_half_precision_does_not_hold_are_not_rounded_unseen(tmp_path: Path) -> None:
    found, _ = packed_matrix(tmp_path, (8, 64), symmetric=True)
    assert found.exact_type is Q4_0
    words = load_file(tmp_path / "m.safetensors")
    words["m.scales"] = words["m.scales"].astype(np.float32) * np.float32(1.0001)
    save_file(words, tmp_path / "m.safetensors")
    again = PackedMatrix(open_checkpoint(tmp_path / "m.safetensors"), "m.", (8, 64), found.packing)
    assert again.exact_type is None


@pytest.mark.parametrize("form", list(FORMS))
def test_a_model_answers_as_its_values_do(tmp_path: Path, form: str) -> None:
    how, type = FORMS[form]
    packed, plain = packed_llama(tmp_path, **how)
    answers = []
    for path in packed, plain:
        with LLM(path, backend="reference") as llm:
            answers.append(llm.logits(list(llm.tokenizer.encode(TEXT))))
    np.testing.assert_array_equal(*answers)
    assert np.ptp(answers[0]) > 0
    with open_checkpoint(packed) as checkpoint:
        family, spec = read_spec(checkpoint)
        stored = locate(checkpoint, family.tensors(spec), is_no_weight)
        assert {one.type for one in stored if one.packed} == {type}
        assert len([one for one in stored if one.packed]) == 7
        for one in stored:
            assert one.host().type is one.type


@pytest.mark.parametrize("form", ["gptq", "gptq desc_act", "awq"])
def test_written_as_gguf(tmp_path: Path, form: str) -> None:
    """Blocks are copied, their rows in GGUF's order."""
    packed, plain = packed_llama(tmp_path, **FORMS[form][0])
    with open_checkpoint(packed) as ours, open_checkpoint(plain) as theirs:
        pairs = zip(folder_model(ours).tensors, folder_model(theirs).tensors, strict=True)
        for one, other in pairs:
            shape = one.shape
            values = np.concatenate(list(other.pieces())).reshape(shape)
            found = dequantize(one.stored(), one.type, shape)
            again = np.concatenate(list(one.pieces())).reshape(shape)
            np.testing.assert_array_equal(found, again)
            if one.type is F16:
                values = values.astype(np.float16).astype(np.float32)
            np.testing.assert_array_equal(found, values, err_msg=one.name)


def test_what_is_done_is_said(tmp_path: Path) -> None:
    said: list[str] = []

    class Notes:
        def note(self, message: str) -> None:
            said.append(message)

        def bar(self, label: str, total: int) -> Any:
            raise AssertionError

    for name, how in ("exact", {}), ("rounded", {"scattered": True}):
        (tmp_path / name).mkdir()
        packed, _ = packed_llama(tmp_path / name, **how)
        LLM(packed, backend="reference", progress=Notes()).close()
    assert said[0] == "GPTQ of 4 bits: 7 matrices as Q5_0, exactly"
    assert "7 matrices as F32, exactly: no block type holds them" in "".join(said)


@pytest.mark.parametrize("form", ["gptq", "gptq 8 bits", "awq"])
def test_inspect_counts_weights_and_not_words(tmp_path: Path, form: str) -> None:
    counts = []
    for folder in packed_llama(tmp_path, **FORMS[form][0]):
        with open_checkpoint(folder) as checkpoint:
            counts.append(inspect.describe(checkpoint).parameters)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("form", ["gptq", "awq"])
def test_a_packed_draft_is_as_large_as_what_it_stands_for(tmp_path: Path, form: str) -> None:
    """Else one that is larger than its target would pass, and take memory that nobody kept."""
    ops = make_ops("reference")
    found = []
    for folder in packed_llama(tmp_path, **FORMS[form][0]):
        settings = SpeculativeSettings("draft", folder)
        found.append(find_draft(settings, ops, offline=True, progress=SilentProgress()))
    packed, plain = found
    assert packed is not None and plain is not None
    assert packed.n_parameters == plain.n_parameters > 0
    assert packed.beside == plain.beside


def test_experts_one_by_one_share_a_type(tmp_path: Path) -> None:
    rng, tensors, meanings = np.random.default_rng(0), {}, []
    for e, symmetric in enumerate((True, False)):
        parts, meaning = matrix(rng, 16, 64, symmetric=symmetric)
        tensors |= {f"e{e}.{name}": array for name, array in parts.items()}
        meanings.append(meaning)
    file = tmp_path / "m.safetensors"
    save_file(tensors, file)
    (tmp_path / "config.json").write_text(
        json.dumps({"quantization_config": quantization_config()})
    )
    declared = Tensor("x_exps.weight", (2, 16, 64), stacked=("e0.weight", "e1.weight"))
    [stored] = locate(open_checkpoint(file), [declared], lambda _: False)
    host = stored.host()
    assert host.type is stored.type is Q5_0
    for part, meaning in zip(host.parts, meanings, strict=True):
        np.testing.assert_array_equal(dequantize(part, Q5_0, (16, 64)), meaning)


@pytest.mark.parametrize(
    ("method", "name", "said"),
    [
        ("gptq", "quantize_config.json", {"bits": 4, "group_size": 32, "model_name_or_path": None}),
        ("awq", "quant_config.json", {"w_bit": 4, "q_group_size": 32, "version": "GEMM"}),
    ],
)
def test_said_in_a_file_of_its_own(
    tmp_path: Path, method: str, name: str, said: dict[str, Any]
) -> None:
    """As AutoGPTQ and AutoAWQ did before config.json had a place for it."""
    packed, plain = packed_llama(tmp_path, method=method)
    config = json.loads((packed / "config.json").read_text())
    del config["quantization_config"]
    (packed / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match=r"q_proj\.weight.*is missing"):
        LLM(packed, backend="reference")
    (packed / name).write_text(json.dumps(said))
    answers = []
    for path in packed, plain:
        with LLM(path, backend="reference") as llm:
            answers.append(llm.logits(list(llm.tokenizer.encode(TEXT))))
    np.testing.assert_array_equal(*answers)


def test_biases_of_zeros_are_let_go_and_others_are_not(tmp_path: Path) -> None:
    packed, _ = packed_llama(tmp_path)
    file = packed / "model.safetensors"
    weights, name = load_file(file), "model.layers.0.mlp.up_proj.bias"
    save_file({**weights, name: np.zeros(96, np.float16)}, file)
    LLM(packed, backend="reference").close()
    save_file({**weights, name: np.full(96, 0.5, np.float16)}, file)
    with pytest.raises(UnsupportedError, match=r"up_proj\.bias"):
        LLM(packed, backend="reference")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 3}, "bits = 3 is not implemented"),
        ({"bits": "4"}, "bits"),
        ({"bits": None}, "bits: is missing"),
        ({"group_size": 0}, "group_size: 0 is not within"),
        ({"group_size": 48}, "do not divide into groups of 48"),
        ({"checkpoint_format": "marlin"}, "checkpoint_format = 'marlin' is not implemented"),
        ({"is_marlin_format": True}, "is_marlin_format"),
        ({"dynamic": {"-:.*down.*": {}}}, "dynamic"),
        ({"new_trick": 1}, "does not know what to do with new_trick"),
        ({"quant_method": "fp8"}, "only GPTQ and AWQ"),
        ({"quant_method": "awq", "version": "gemv"}, "version = 'gemv' is not implemented"),
        ({"quant_method": "awq", "zero_point": False}, "zero_point = False is not implemented"),
        ({"quant_method": "awq", "bits": 8}, "bits = 8 is not implemented"),
    ],
)
def test_what_is_not_read_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    packed, _ = packed_llama(tmp_path)
    quantization = {**quantization_config(), **change}
    if change.get("quant_method") == "awq":
        quantization.pop("checkpoint_format")
    describe(packed, quantization)
    with pytest.raises(BadInput, match=message):
        LLM(packed, backend="reference")


Q_PROJ = "model.layers.0.self_attn.q_proj."


@pytest.mark.parametrize(
    ("part", "spoil", "message"),
    [
        ("qweight", lambda a: a[:-1], "qweight.*has shape"),
        ("qweight", lambda a: a.astype(np.float32), "is of type F32 and not I32"),
        ("qzeros", lambda a: a[:, :-1], "qzeros.*has shape"),
        ("scales", lambda a: a.T.copy(), "scales.*has shape"),
        ("scales", lambda a: np.full_like(a, np.inf), "scales.*infinite"),
        ("g_idx", lambda a: a + 1, "names group 2, and there are 0 to 1"),
        ("g_idx", lambda a: a - 1, "names group -1"),
        ("g_idx", lambda a: a[:5].copy(), "g_idx.*has shape"),
        ("qzeros", None, "qzeros.*is missing"),
    ],
)
def test_damaged_tensors_are_named(
    tmp_path: Path, part: str, spoil: Callable[[Any], Any] | None, message: str
) -> None:
    packed, _ = packed_llama(tmp_path)
    file = packed / "model.safetensors"
    weights = load_file(file)
    array = weights.pop(Q_PROJ + part)
    if spoil is not None:
        weights[Q_PROJ + part] = spoil(array)
    save_file(weights, file)
    with pytest.raises(FormatError, match=message):
        LLM(packed, backend="reference")
