"""Bounds and what would change them: properties that hold for every model and machine."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.cost import Cost
from pellucid.core.errors import BadInput
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import WeightSize
from pellucid.costs.hardware import find_hardware, table
from pellucid.costs.roofline import Limits, Priced, bound
from pellucid.explain.kv import kv_account
from pellucid.explain.whatif import GUESSES, Change, tokens_of_a_round, what_ifs

LAYER = LayerSpec(n_heads=8, n_kv_heads=2, head_dim=24, ffn_dim=64, attention_scale=1.0)


def spec(n_layers: int = 3) -> ModelSpec:
    return ModelSpec("llama", 192, 500, 512, 1e-5, (LAYER,) * n_layers, tied_head=True)


def priced(n_layers: int = 3, bits: float = 16.0) -> Priced:
    shapes = {"attn_q.weight": (192, 192), "ffn_up.weight": (64, 192), "attn_norm.weight": (192,)}
    sizes = {
        f"blk.{i}.{name}": WeightSize(shape, round(math.prod(shape) * bits / 8))
        for i in range(n_layers)
        for name, shape in shapes.items()
    }
    sizes["token_embd.weight"] = WeightSize((500, 192), round(500 * 192 * bits / 8))
    return Priced(spec(n_layers), sizes, "f16")


machines = st.builds(
    Limits,
    st.just("m"),
    st.floats(1e9, 1e13),
    st.floats(1e10, 1e16),
    st.just("f16"),
    st.just("stated"),
)


@given(machines, st.integers(0, 400), st.integers(1, 40))
def test_a_bound_is_the_later_of_memory_and_arithmetic(
    limits: Limits, context: int, batch: int
) -> None:
    found = bound(priced().decode(context, batch), limits)
    assert found.seconds == max(found.memory_seconds, found.arithmetic_seconds)
    # The ridge tells the same as the times do.
    if not math.isclose(found.intensity, found.ridge, rel_tol=1e-9):
        assert (found.limited_by == "arithmetic") == (found.intensity > found.ridge)


@given(machines, st.integers(0, 400))
def test_more_never_costs_less(limits: Limits, context: int) -> None:
    model = priced()
    one, many = model.decode(context), model.decode(context, 32)
    assert many.operations == 32 * one.operations
    # Matrices are read once for all; each sequence has its own keys, values and embedding row.
    own_row = 192 * 2
    assert many.weights_read - 32 * own_row == one.weights_read - own_row
    assert many.kv_read == 32 * one.kv_read
    for change in what_ifs(model, limits, context):
        assert change.predicted.before.seconds == bound(one, limits).seconds
        assert change.predicted.after.seconds > 0
        assert change.measured is None


@given(machines, st.integers(0, 400))
def test_half_the_bits_halve_the_matrices_alone(limits: Limits, context: int) -> None:
    model = priced(bits=16)
    half = model.with_matrices(0.5)
    assert half.matrix_bits == pytest.approx(8, rel=1e-3)
    assert half.weights["blk.0.attn_norm.weight"] == model.weights["blk.0.attn_norm.weight"]
    change = next(c for c in what_ifs(model, limits, context) if c.kind is Change.HALF_BITS)
    assert 1.0 <= change.predicted.times <= 2.0 + 1e-9


@given(st.integers(0, 20), st.floats(0.0, 1.0))
def test_a_round_gives_one_token_and_at_most_its_guesses_more(guesses: int, share: float) -> None:
    tokens = tokens_of_a_round(guesses, share)
    assert 1.0 <= tokens <= guesses + 1 + 1e-9
    if share < 1.0:  # the closed form of the paper
        assert tokens == pytest.approx((1 - share ** (guesses + 1)) / (1 - share), rel=1e-6)


def test_checking_guesses_reads_the_weights_once() -> None:
    model = priced()
    assert model.decode(64, 1, 1 + GUESSES).weights_read - model.decode(64).weights_read == (
        GUESSES * 192 * 2  # a row of the embedding table each
    )


@given(st.integers(1, 600), st.sampled_from([1, 16, 32]), st.sampled_from([1, 16]))
def test_the_formula_and_the_pages_agree(length: int, page_size: int, lanes: int) -> None:
    account = kv_account(spec(), length, page_size, "f16", lanes)
    assert account.trouble is None
    assert account.bytes == 2 * 3 * 2 * 24 * length * 2
    # 24 features of a value become 32 in lanes of 16.
    assert account.padding == (3 * 2 * 8 * length * 2 if lanes == 16 else 0)
    assert account.held >= account.bytes + account.padding


@given(
    st.integers(1, 600),
    st.sampled_from(["f32", "int8", "int4", "f16/int8", "int8/int4"]),
    st.sampled_from([1, 16]),
)
def test_the_formula_and_the_pages_agree_for_each_type(length: int, dtype: str, lanes: int) -> None:
    account = kv_account(spec(), length, 16, dtype, lanes)
    assert account.trouble is None
    assert len(account.terms) == (2 if "/" in dtype else 1)
    each = {"f32": 8, "int8": 2, "int4": 1, "f16/int8": 3, "int8/int4": 1.5}[dtype]
    assert account.bytes == 3 * 2 * 24 * length * each
    if account.dtype == "int4":  # 24 features become 32, with a scale and a minimum
        assert account.padding == 2 * 3 * 2 * length * (4 + 4)


def test_an_account_that_does_not_add_up_says_so() -> None:
    account = kv_account(spec(), 20, 16, "f16")
    import dataclasses

    assert "hold" in str(dataclasses.replace(account, held=account.held + 2).trouble)
    assert "allocator" in str(dataclasses.replace(account, allocated=account.held - 2).trouble)


def test_bytes_are_those_of_weights_and_cache() -> None:
    assert Cost(1, 2, 4, 8, 16, 32).bytes_moved == 14


# The table of machines


def test_every_row_has_what_a_bound_needs_and_a_source() -> None:
    assert len(table()) >= 15
    assert len({row.name for row in table()}) == len(table())
    for row in table():
        assert find_hardware(row.name) is row
        assert find_hardware(row.name.upper().replace("-", " ")) is row
        assert row.memory is not None
        assert row.memory >= 8e9
        assert 1e11 <= row.bandwidth <= 2e13
        assert row.operations
        assert all(source.startswith("https://") for source in row.sources)
        assert row.sources
        assert len(row.date) == 10
        if row.price is not None:
            assert 0.01 < row.price.usd_per_hour < 100
            assert row.price.source.startswith("https://")
            assert len(row.price.date) == 10
        widest_first = [row.operations[k] for k in ("f32", "f16", "int8") if k in row.operations]
        assert widest_first == sorted(widest_first)
        # Peaks of more than a thousand operations a byte would be a slip of the powers of ten.
        for bits in (4, 8, 16, 32):
            assert 1 < row.limits(bits).ridge < 2000


@pytest.mark.parametrize(
    ("asked", "near"),
    [("h300", "h100"), ("mi300", "mi300x"), ("rtx4090", "rtx-4090"), ("", "empty")],
)
def test_an_unknown_machine_lists_the_near_ones(asked: str, near: str) -> None:
    with pytest.raises(BadInput, match=near):
        find_hardware(asked)


@pytest.mark.parametrize("name", ["H100 SXM", "h100-sxm", "h100_sxm", "h100  sxm5", "rtx 4090"])
def test_words_of_a_name_may_be_set_apart_as_one_likes(name: str) -> None:
    assert find_hardware(name).name in ("h100", "rtx-4090")


def test_a_machine_by_its_numbers() -> None:
    machine = find_hardware("3TB/s, 989 TFLOPS, 80GB")
    assert (machine.bandwidth, machine.memory) == (3e12, 80e9)
    assert machine.limits(16).operations == 989e12
    assert find_hardware("3tb/s").limits(16).operations == math.inf


@pytest.mark.parametrize("asked", ["3TB/s,3TB/s", "3 parsecs/s", "0TB/s", "3TB/s,x", "3,4/s"])
def test_numbers_that_are_none(asked: str) -> None:
    with pytest.raises(BadInput, match="--hardware"):
        find_hardware(asked)
