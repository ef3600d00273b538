"""The native boundary: what does not fit is refused by name before anything is computed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from pellucid import _native
from pellucid.core.errors import BadInput
from pellucid.core.plan import Plan, Span
from pellucid.models.registry import Model
from pellucid.ops import backend
from pellucid.ops.native import NativeOps
from pellucid.ops.step import Sequence, Step, lower
from pellucid.quant.types import TensorType
from tests.native.cases import layer_spec, model_spec, same_bits
from tests.native.families import tiny_model
from tests.native.test_models import logits, tokens_of

N_PAGES, PAGE_SIZE = 8, 16


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("LlamaForCausalLM", NativeOps(threads=2), TensorType.Q8_0)


def good_step(model: Model) -> Step:
    cache = model.ops.new_cache(model.spec, N_PAGES, PAGE_SIZE)
    spans = (Span(0, 0, tokens_of(20), (3, 1), 1), Span(1, 0, tokens_of(5, 1), (7,), 2))
    return lower(Plan(spans, PAGE_SIZE), cache)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def sequence(step: Step, index: int, **changes: Any) -> tuple[Sequence, ...]:
    sequences = list(step.sequences)
    sequences[index] = sequences[index]._replace(**changes)
    return tuple(sequences)


def changed(values: np.ndarray, index: int, value: int) -> np.ndarray:
    values = values.copy()
    values[index] = value
    return values


FAULTS: dict[str, tuple[str, Any]] = {
    "a token above the vocabulary": (
        "token 97 at row 3 is not in the vocabulary of 97",
        lambda s: {"tokens": changed(s.tokens, 3, 97)},
    ),
    "a negative token": ("token -1 at row 0", lambda s: {"tokens": changed(s.tokens, 0, -1)}),
    "too few positions": ("24 positions for 25 tokens", lambda s: {"positions": s.positions[:-1]}),
    "a position out of order": (
        "row 7 has position 9, must be 7",
        lambda s: {"positions": changed(s.positions, 7, 9)},
    ),
    "a logit row beyond the end": (
        "logit row 25 is not among 25 rows",
        lambda s: {"logit_rows": ints(0, 25)},
    ),
    "a negative logit row": ("logit row -1", lambda s: {"logit_rows": ints(-1)}),
    "a page that is not there": (
        "sequence 0: page 8 is not among the cache's 8",
        lambda s: {"sequences": sequence(s, 0, pages=ints(3, 8))},
    ),
    "a negative page": ("page -2", lambda s: {"sequences": sequence(s, 1, pages=ints(-2))}),
    "too few pages": (
        "sequence 0: 1 pages of 16 do not hold positions to 20",
        lambda s: {"sequences": sequence(s, 0, pages=ints(3))},
    ),
    "a gap between sequences": (
        "sequence 1: rows 21 to 26 do not follow row 20 of 25",
        lambda s: {"sequences": sequence(s, 1, first_row=21)},
    ),
    "a sequence too long": (
        "sequence 1: rows 20 to 29",
        lambda s: {"sequences": sequence(s, 1, length=9)},
    ),
    "rows of no sequence": (
        "sequences cover 20 of 25 rows",
        lambda s: {"sequences": s.sequences[:1]},
    ),
    "a page beyond 32 bits": (
        "a number beyond 32 bits",
        lambda s: {"sequences": sequence(s, 0, pages=(3, 1 << 40))},
    ),
    "another page size": ("page_size is 32", lambda s: {"page_size": 32}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_step_is_refused_by_name(model: Model, fault: str) -> None:
    message, changes = FAULTS[fault]
    step = good_step(model)
    expected = model._logits(step)
    with pytest.raises(ValueError, match=message):
        model._logits(dataclasses.replace(step, **changes(step)))
    assert same_bits(model._logits(step), expected)  # and the program is as good as before


@pytest.mark.parametrize(
    ("sequences", "error", "message"),
    [
        (((0, 20, 0),), ValueError, "a sequence is .first row, length, start, pages."),
        ((3,), ValueError, "a sequence is"),
        (((0, 1 << 70, 0, (3, 1)),), ValueError, "beyond 32 bits"),
        (((0, 20, 0, 5),), TypeError, "pages"),
        (((0, 20, 0, ("three",)),), TypeError, "integer"),
    ],
)
def test_sequences_of_another_form_are_refused(
    model: Model, sequences: Any, error: type[Exception], message: str
) -> None:
    step, run = good_step(model), model._logits._program.run  # type: ignore[attr-defined]
    with pytest.raises(error, match=message):
        run(step.cache, step.tokens, step.positions, step.logit_rows, sequences)


def test_another_models_cache_is_refused(model: Model) -> None:
    step = good_step(model)
    few = model.ops.new_cache(model_spec([layer_spec()]), N_PAGES, PAGE_SIZE)
    with pytest.raises(ValueError, match="the cache has 1 layers, the model 2"):
        model._logits(dataclasses.replace(step, cache=few))
    other = model.ops.new_cache(model_spec([layer_spec(head_dim=24)] * 2), N_PAGES, PAGE_SIZE)
    with pytest.raises(ValueError, match="holds 2 heads of 24, the model's 2 of 16"):
        model._logits(dataclasses.replace(step, cache=other))


def test_positions_beyond_a_learnt_table_are_refused() -> None:
    model = tiny_model("GPT2LMHeadModel", NativeOps(threads=1))
    cache = model.ops.new_cache(model.spec, 40, PAGE_SIZE)
    plan = Plan((Span(0, 512, (1,), tuple(range(40)), 1),), PAGE_SIZE)
    with pytest.raises(ValueError, match="position 512 at row 0 is not below 512"):
        model.forward(plan, cache)


@pytest.mark.parametrize(
    ("n_pages", "page_size", "message"),
    [(4, 24, "page_size is 24, must be a multiple of 16"), (0, 16, "n_pages is 0"),
     (4, 0, "page_size is 0"), (1 << 21, 16, "n_pages is 2097152")],
)  # fmt: skip
def test_senseless_caches_are_refused(n_pages: int, page_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NativeOps(threads=1).new_cache(model_spec([layer_spec()]), n_pages, page_size)


def test_a_cache_that_no_memory_holds() -> None:
    huge = model_spec([layer_spec(n_kv_heads=4096, head_dim=4096)] * 64)
    with pytest.raises(MemoryError):
        NativeOps(threads=1).new_cache(huge, 1 << 20, 128)


def test_bad_options_are_refused() -> None:
    for options, message in (
        ({"threads": 0}, "threads must be 1 to 1024, not 0"),
        ({"kv_dtype": "int3"}, "kv_cache_dtype 'int3' is unknown"),
    ):
        with pytest.raises(BadInput, match=message):
            backend("native", **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="unknown instruction set"):
        NativeOps(simd="mmx")
    with pytest.raises(BadInput, match="threads: the reference backend has none"):
        backend("reference", threads=2)


def test_an_empty_step_gives_no_rows(model: Model) -> None:
    cache = model.ops.new_cache(model.spec, N_PAGES, PAGE_SIZE)
    assert model.forward(Plan((), PAGE_SIZE), cache).shape == (0, 97)


def test_a_prompt_whose_logits_nobody_wants(model: Model) -> None:
    """Its keys and values are kept all the same."""
    cache, tokens = model.ops.new_cache(model.spec, N_PAGES, PAGE_SIZE), tokens_of(30)
    plan = Plan((Span(0, 0, tokens[:-1], (0, 1), 0),), PAGE_SIZE)
    assert model.forward(plan, cache).shape == (0, 97)
    last = model.forward(Plan((Span(0, 29, tokens[-1:], (0, 1), 1),), PAGE_SIZE), cache)
    assert same_bits(np.array(last), logits(model, tokens)[-1:])


def test_two_models_in_one_process_do_not_meet(model: Model) -> None:
    other = tiny_model("Qwen2ForCausalLM", NativeOps(threads=3), TensorType.Q4_0)
    tokens = tokens_of(33)
    first = logits(model, tokens), logits(other, tokens)
    second = logits(model, tokens), logits(other, tokens)
    assert same_bits(first[0], second[0]) and same_bits(first[1], second[1])


def test_results_outlive_the_program() -> None:
    model = tiny_model("LlamaForCausalLM", NativeOps(threads=1), TensorType.Q8_0)
    result = model.forward(
        Plan((Span(0, 0, (1, 2), (0,), 2),), 16), model.ops.new_cache(model.spec, 1, 16)
    )
    expected = result.copy()
    del model
    assert same_bits(result, expected)


def test_experts_need_weights_of_one_kind() -> None:
    simd = NativeOps().instruction_set
    raw = np.zeros(32 * 18, np.uint8)
    ordinary = _native.matmul.pack(int(TensorType.Q4_0), raw, 32, 32, simd)
    rounded = _native.matmul.pack(int(TensorType.Q4_0), raw, 32, 32, simd, None, True)
    for weights, message in ((None, "no weight"), (rounded, "for bf16")):
        program = _native.program.Program(_native.program.Pool(1))
        slot = program.add_slot(False, 4 * 96)
        x, router, y = (
            _native.program.Columns(slot, 96, at, width)
            for at, width in ((0, 32), (32, 1), (64, 32))
        )
        for place in range(3):
            given = [[ordinary], [ordinary], [ordinary]]
            given[place] = [weights]
            with pytest.raises(ValueError, match=message):
                program.experts(*given, 1, True, x, router, y)
