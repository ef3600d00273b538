"""What the stages of a program cost adds up to what a step costs, whichever way they are cut."""

from __future__ import annotations

from functools import reduce
from operator import add

import pytest

from pellucid.core.cost import Cost
from pellucid.core.plan import Plan, Span
from pellucid.costs import WeightSize, step_cost
from pellucid.costs.stages import StageCosts
from pellucid.models.registry import Model
from pellucid.ops.native import NativeOps
from pellucid.ops.reference import ReferenceOps
from pellucid.quant.types import TensorType
from tests.native.families import CONFIGS, tiny_model
from tests.native.test_models import tokens_of

PAGE = 16
# start, length, rows of logits: a chunk, an answer that goes on, a whole prompt.
PARTS = ((20, 13, 0), (45, 1, 1), (0, 9, 1))


def plan_of() -> Plan:
    spans = [
        Span(n, start, tokens_of(length, n), tuple(range(4 * n, 4 * n + 4)), n_logits)
        for n, (start, length, n_logits) in enumerate(PARTS)
    ]
    return Plan(tuple(spans), PAGE)


def run(model: Model) -> tuple[list[str], list[float], list[Cost]]:
    """The stages of a step: their names, seconds and costs."""
    model.stamp(True)
    model.forward(plan_of(), model.ops.new_cache(model.spec, 12, PAGE))
    told = model.stamps()
    assert told is not None
    stages, seconds = told
    costs = StageCosts(model.spec, stages, model.ops.kv_dtype, model.ops.kv_lanes)
    spans = [(start, length) for start, length, _ in PARTS]
    return [stage.op for stage in stages], list(seconds), costs.of(spans, 2)


def whole(model: Model) -> Cost:
    sizes = {
        name: WeightSize(tuple(weight.shape), int(weight.nbytes))
        for name, weight in model.weights.items()
    }
    return step_cost(model.spec, sizes, plan_of().spans, model.ops.kv_dtype, model.ops.kv_lanes)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("architecture", CONFIGS)
def test_stages_cost_what_their_step_costs(architecture: str, fuse: bool) -> None:
    model = tiny_model(architecture, NativeOps(threads=1, fuse=fuse))
    names, seconds, costs = run(model)
    assert len(names) == len(seconds) == len(costs)
    assert all(took > 0 for took in seconds)
    total, expected = reduce(add, costs, Cost()), whole(model)
    for moved in "weights_read", "kv_read", "kv_written":
        assert getattr(total, moved) == getattr(expected, moved), moved
    assert total.operations >= expected.operations  # rotations and the like come on top
    if not fuse:
        plain = [cost for name, cost in zip(names, costs, strict=True) if counted(name)]
        counts = reduce(add, plain, Cost()).operations
        # Experts are computed for all rows, also where no logits are wanted of them.
        assert counts > expected.operations if "experts" in names else counts == expected.operations


def counted(name: str) -> bool:
    """Whether the step's cost counts such operations."""
    elementwise = "rope quantize take_rows copy add scale clamp softcap gelu gelu_tanh silu_mul"
    return name not in (*elementwise.split(), "gelu_tanh_mul", "store")


@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_reference_names_its_operations_too(architecture: str) -> None:
    model = tiny_model(architecture, ReferenceOps())
    before = model.forward(plan_of(), model.ops.new_cache(model.spec, 12, PAGE))
    assert model.stamps() == ((), model.stamps()[1])  # type: ignore[index]
    names, seconds, costs = run(model)
    assert len(names) == len(seconds) == len(costs)
    total, expected = reduce(add, costs, Cost()), whole(model)
    for moved in "weights_read", "kv_read", "kv_written":
        assert getattr(total, moved) == getattr(expected, moved), moved
    model.stamp(False)
    after = model.forward(plan_of(), model.ops.new_cache(model.spec, 12, PAGE))
    assert before.tobytes() == after.tobytes()
    assert not [name for name in vars(model.ops) if name in ("linear", "rope")]


def test_layers_and_their_parts_are_named() -> None:
    model = tiny_model("LlamaForCausalLM", NativeOps(threads=1), TensorType.Q8_0)
    run(model)
    stages, _ = model.stamps()  # type: ignore[misc]
    assert [stage.op for stage in stages if stage.layer == 0] == [
        "qkv",
        "rope+store",
        "attention",
        "quantize",
        "attn_out",
        "norm+quantize",
        "gate+up",
        "down",
    ]
    ends = [(stage.op, stage.layer) for stage in (stages[0], stages[-1])]
    assert ends == [("embedding+norm+quantize", None), ("head", None)]
