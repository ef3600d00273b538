"""Reading a configuration: every key is read, harmless or refused, every value checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.models.fields import FIXED_CONFIG_VALUES, HARMLESS_CONFIG_KEYS, Fields
from pellucid.models.registry import read_spec

from . import configs
from .test_registry import LLAMA_GGUF, checkpoint


def fields(**values: Any) -> Fields:
    return Fields(values, "file")


def test_values_of_each_kind() -> None:
    given = fields(whole=3, number=2, ratio=0.5, flag=False, text="a")
    assert given.whole("whole") == 3
    assert given.number("number") == 2.0 and isinstance(given.number("number"), float)
    assert given.positive("ratio") == 0.5
    assert given.flag("flag") is False
    assert given.text("text") == "a"
    assert given.whole("absent", 7) == 7
    given.finish()


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("whole", 1.0),
        ("whole", "1"),
        ("whole", True),
        ("whole", 0),
        ("whole", 2**31 + 1),
        ("number", "1"),
        ("number", False),
        ("number", float("nan")),
        ("number", float("inf")),
        ("number", 10**400),
        ("positive", 0.0),
        ("positive", -1.0),
        ("flag", 1),
        ("text", 5),
        ("layers", 5000),
        ("heads", 0),
        ("section", [1]),
    ],
)
def test_values_of_another_kind_are_refused(method: str, value: Any) -> None:
    with pytest.raises(FormatError, match="file: key"):
        getattr(fields(key=value), method)("key")


def test_a_missing_key_is_named_with_its_prefix() -> None:
    with pytest.raises(FormatError, match=r"file: llama\.block_count: is missing"):
        Fields({}, "file", "llama.").whole("block_count")


def test_null_is_as_good_as_absent_but_can_be_told_from_it() -> None:
    given = fields(window=None)
    assert given.whole("window", 5) == 5
    assert "window" not in given and given.given("window") and not given.given("other")
    given.finish()


def test_wholes_for_every_layer() -> None:
    assert fields(heads=4).wholes("heads", 3) == (4, 4, 4)
    assert fields(heads=[1, 2, 3]).wholes("heads", 3) == (1, 2, 3)
    assert fields(heads=np.array([1, 2, 3], np.uint32)).wholes("heads", 3) == (1, 2, 3)
    for wrong in ([1, 2], [1, 2, "3"], "123", None, np.array([1.0, 2.0, 3.0])):
        with pytest.raises(FormatError, match="3 whole numbers"):
            fields(heads=wrong).wholes("heads", 3)


def test_only_what_is_implemented_passes() -> None:
    fields(act="silu").only("act", "silu", "swish")
    fields().only("act", "silu")
    fields(step=1).only("step", 1)
    for value, allowed in (("relu", "silu"), (True, 1), (0, False), (np.array([1, 2]), 1)):
        with pytest.raises(UnsupportedError, match=r"act = .* is not implemented"):
            fields(act=value).only("act", allowed)


def test_what_nobody_read_is_refused_by_name() -> None:
    given = Fields({"llama.a": 1, "llama.b": 2, "llama.c": None, "other.d": 3}, "file", "llama.")
    given.raw("a")
    with pytest.raises(UnsupportedError, match=r"llama\.b, and will not guess"):
        given.finish()
    given.harmless(["b"])
    given.finish()


def test_a_long_value_makes_no_long_error() -> None:
    for value in ("x" * 10_000, list(range(10_000)), 10**3000):
        with pytest.raises(BadInput) as caught:
            fields(key=value).whole("key")
        assert len(str(caught.value)) < 300


def test_no_key_is_both_harmless_and_fixed() -> None:
    assert not HARMLESS_CONFIG_KEYS & set(FIXED_CONFIG_VALUES)


def test_no_harmless_key_is_one_that_computes() -> None:
    """Words of keys that change what a model computes, in any family known."""
    telling = "scal multipl window rope theta cap norm rank expert quantization_ types act_fn"
    for key in HARMLESS_CONFIG_KEYS:
        assert not any(word in key for word in telling.split()), key


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["silu", "default", "yarn", "longrope", "full_attention", ""])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "rope_type type factor rope_theta short_factor long_factor beta_fast "
                "original_max_position_embeddings low_freq_factor high_freq_factor".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)
CONFIGS = [c for c in vars(configs).values() if isinstance(c, dict) and "architectures" in c]


@given(st.sampled_from(CONFIGS), st.data())
def test_any_value_of_any_config_key_is_understood_or_refused(
    config: dict[str, Any], data: st.DataObject
) -> None:
    known = sorted({*config, "rope_scaling", "rope_parameters", "sliding_window", "layer_types"})
    keys = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    changed = {**config, **{key: data.draw(JSON) for key in keys}}
    try:
        read_spec(checkpoint(changed))
    except BadInput as error:
        assert "\n" not in str(error)


GGUF_VALUES = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.booleans()
    | st.sampled_from(["linear", "yarn", "longrope", "none", "x"])
    | st.lists(st.integers(0, 2**31 - 1), max_size=3).map(lambda v: np.array(v, np.int32))
    | st.lists(st.floats(width=32), max_size=3).map(lambda v: np.array(v, np.float32))
)


@given(st.data())
def test_any_value_of_any_gguf_key_is_understood_or_refused(data: st.DataObject) -> None:
    more = (
        "rope.freq_base rope.scaling.type rope.scaling.factor rope.scale_linear expert_count "
        "rope.scaling.original_context_length rope.scaling.attn_factor attention.key_length "
        "rope.scaling.yarn_beta_fast rope.scaling.yarn_log_multiplier attention.sliding_window "
        "rope.scaling.yarn_attn_factor rope.scaling.yarn_ext_factor expert_used_count"
    )
    known = sorted({*LLAMA_GGUF, *(f"llama.{key}" for key in more.split())})
    keys = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    changed = {**LLAMA_GGUF, **{key: data.draw(GGUF_VALUES) for key in keys}}
    try:
        read_spec(checkpoint(changed, "gguf"))
    except BadInput as error:
        assert "\n" not in str(error)
