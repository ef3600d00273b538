"""Which stages' results each thread may compute for itself."""

from __future__ import annotations

from pellucid.ops.native.graph import Node
from pellucid.ops.native.schedule import schedule


def node(op: str, *inputs: Node, quantized: bool = False) -> Node:
    return Node(op, inputs, 64, False, quantized=quantized)


def test_only_results_for_the_next_product_alone_are_a_threads_own() -> None:
    x = node("embedding")
    first = node("quantize", x, quantized=True)
    y = node("product", first)
    normed = node("rms_norm", y)
    second = node("quantize", normed, quantized=True)
    z = node("product", second, x)  # added to x, where it lies
    nodes = [x, first, y, normed, second, z]
    plan = schedule(nodes, z)
    assert [[n.op for n in stage] for stage in plan.stages] == [
        ["embedding", "quantize"],  # x is read again by the last stage
        ["product"],
        ["rms_norm", "quantize"],
        ["product"],
    ]
    assert plan.own == [False, False, True, False]
    assert not any(schedule(nodes, z, merge=False).own)


def test_what_a_thread_may_still_read_is_not_written_by_the_next_stage() -> None:
    x = node("embedding")
    y = node("product", node("quantize", x, quantized=True))
    copy = node("quantize", y, quantized=True)
    onto = node("product", copy, y)  # y is read to make the copy, and written
    plan = schedule([x, y.inputs[0], y, copy, onto], onto)
    assert plan.own[2] is False


def test_inputs_of_own_results_keep_their_memory_until_the_next_stage_is_over() -> None:
    x = node("embedding")
    copy = node("quantize", x, quantized=True)
    y = node("product", copy)
    normed = node("rms_norm", y)
    again = node("quantize", normed, quantized=True)
    z = node("product", again)
    plan = schedule([x, copy, y, normed, again, z], z)
    assert plan.own[2]
    assert plan.places[z].slot != plan.places[y].slot
