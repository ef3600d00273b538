"""GPTQ and AWQ checkpoints on the native backend."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import LLM
from pellucid.core.plan import Plan, Span
from pellucid.engine.quantized import AtLoad
from pellucid.formats import open_checkpoint
from pellucid.models.registry import load_model, read_spec
from pellucid.ops.native import NativeOps
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.mixes import mix_named
from tests.python.models.pack_by_hand import packed_llama
from tests.python.models.test_packed import FORMS, TEXT


@pytest.mark.parametrize("form", list(FORMS))
def test_native_answers_as_the_reference(tmp_path: Path, form: str) -> None:
    """But for activations of 8 bits, and half precision where no block type holds the weights."""
    packed, plain = packed_llama(tmp_path, **FORMS[form][0])
    answers = []
    for path, backend in (packed, "native"), (packed, "reference"), (plain, "native"):
        with LLM(path, backend=backend, kv_cache_dtype="f32") as llm:
            answers.append(llm.logits(list(llm.tokenizer.encode(TEXT))))
    ours, exact, unpacked = answers
    size = float(np.abs(exact).max())
    assert np.abs(ours - exact).max() < 0.03 * size
    assert np.abs(ours - unpacked).max() < 0.03 * size
    assert not np.array_equal(ours, exact)


def test_quantised_further_at_load(tmp_path: Path) -> None:
    """What no block type holds is quantised when it is asked for; what one holds stays. Activations
    are not rounded: with both roundings little of the difference would be that of weights."""
    packed, plain = packed_llama(tmp_path, scattered=True)
    answers = []
    for path in packed, plain:
        with LLM(path, quantization="q8_0", activations="f32") as llm:
            answers.append(llm.logits(list(llm.tokenizer.encode(TEXT))))
    np.testing.assert_allclose(*answers, atol=0.03 * float(np.abs(answers[0]).max()))


@pytest.mark.parametrize("way", ["packed", "quantised at load"])
def test_bytes_of_our_own_are_not_kept_beside_what_was_packed(tmp_path: Path, way: str) -> None:
    packed, plain = packed_llama(tmp_path)
    arrays: dict[str, weakref.ref[Any]] = {}
    path, mix = (packed, None) if way == "packed" else (plain, mix_named("q4_0"))
    with open_checkpoint(path) as checkpoint:
        at_load = mix and AtLoad(mix, read_spec(checkpoint)[1], path)

        def prepare(host: HostTensor) -> HostTensor:
            made = at_load(host) if at_load else host
            if len(made.shape) > 1 and made.release is None:
                arrays[made.name] = weakref.ref(made.data)
            return made

        model = load_model(checkpoint, NativeOps(), prepare=prepare)
    gc.collect()
    kept = {name for name, array in arrays.items() if array() is not None}
    assert len(arrays) == (7 if way == "packed" else 8)
    assert kept == arrays.keys() & {"token_embd.weight"}  # rows of it are read token by token
    assert all(weight.nbytes > 0 for _, weight in model.weights.items())
    with LLM(path, quantization=mix and mix.name) as llm:
        ids = list(llm.tokenizer.encode(TEXT))
        span = Span(0, 0, tuple(ids), (0,), n_logits=len(ids))
        cache = model.ops.new_cache(model.spec, 1, 64)
        rows = model.ops.to_numpy(model.forward(Plan((span,), 64), cache))
        np.testing.assert_array_equal(rows, llm.logits(ids))
