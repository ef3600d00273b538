"""From a checkpoint's tensors to weights: all there, of the right shape, none left over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.formats import Checkpoint, open_checkpoint
from pellucid.models.weights import Tensor, Weights, load_weights
from pellucid.ops.reference import ReferenceOps
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.types import TensorType

ONE, TWO = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float32)


class Listening(ReferenceOps):
    """Remembers the types that it was handed."""

    def __init__(self) -> None:
        self.types: dict[str, TensorType] = {}

    def load(self, tensor: HostTensor) -> NDArray[np.float32]:
        self.types[tensor.name] = tensor.type
        return super().load(tensor)


def checkpoint(folder: Path, **tensors: NDArray[np.generic]) -> Checkpoint:
    path = folder / "model.safetensors"
    save_file({name.replace("__", "."): array for name, array in tensors.items()}, path)
    return open_checkpoint(path)


def test_loads_by_our_names(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    weights = load_weights(
        checkpoint(tmp_path, a=ONE, b=TWO),
        [Tensor("blk.0.x", (2, 3), "a"), Tensor("blk.11.y", (4,), "b")],
        ReferenceOps(),
        progress=lambda done, total: seen.append((done, total)),
    )
    np.testing.assert_array_equal(weights["blk.0.x"], ONE)
    np.testing.assert_array_equal(weights.layer(11)["y"], TWO)
    assert "x" in weights.layer(0) and "x" not in weights.layer(1)
    assert weights.layer(0).get("z") is None
    assert seen == [(24, 40), (40, 40)]  # bytes


def test_a_layer_is_not_another_with_its_first_digit() -> None:
    weights = Weights({"blk.1.x": 1, "blk.11.x": 2})
    assert dict(weights.layer(1).items()) == {"x": 1}


def test_missing_and_optional(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, a=ONE)
    a = Tensor("x", (2, 3), "a")
    with pytest.raises(FormatError, match=r"model.safetensors: tensor b: is missing"):
        load_weights(found, [a, Tensor("y", (4,), "b")], ReferenceOps())
    weights = load_weights(found, [a, Tensor("y", (4,), "b", optional=True)], ReferenceOps())
    assert "y" not in weights


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"tensor a: has shape \[2, 3\] where .* \[3, 2\]"):
        load_weights(checkpoint(tmp_path, a=ONE), [Tensor("x", (3, 2), "a")], ReferenceOps())


def test_tensors_without_a_place_are_refused(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, a=ONE, b=TWO, c=TWO)
    wanted = [Tensor("x", (2, 3), "a")]
    with pytest.raises(UnsupportedError, match=r"2 tensors have no place in this model: b, c"):
        load_weights(found, wanted, ReferenceOps())
    load_weights(found, wanted, ReferenceOps(), skip=lambda name: name in "bc")


def test_converted(tmp_path: Path) -> None:
    transposed = Tensor("x", (3, 2), "a", convert=np.transpose, hf_shape=(2, 3))
    weights = load_weights(checkpoint(tmp_path, a=ONE), [transposed], ReferenceOps())
    np.testing.assert_array_equal(weights["x"], ONE.T)


def test_stacked_keeps_the_type(tmp_path: Path) -> None:
    halves = {f"e__{e}": (ONE + e).astype(np.float16) for e in range(3)}
    ops = Listening()
    weights = load_weights(
        checkpoint(tmp_path, **halves),
        [Tensor("x", (3, 2, 3), stacked=("e.0", "e.1", "e.2"))],
        ops,
    )
    np.testing.assert_array_equal(weights["x"], [ONE, ONE + 1, ONE + 2])
    assert ops.types == {"x": TensorType.F16}


def test_stacked_wants_every_part_of_one_shape_and_type(tmp_path: Path) -> None:
    def load(**parts: NDArray[np.generic]) -> None:
        wanted = [Tensor("x", (2, 2, 3), stacked=("e.0", "e.1"))]
        load_weights(checkpoint(tmp_path, **parts), wanted, ReferenceOps())

    with pytest.raises(FormatError, match=r"tensor e\.1: is missing"):
        load(e__0=ONE)
    with pytest.raises(FormatError, match=r"tensor e\.1: has shape \[3, 2\]"):
        load(e__0=ONE, e__1=np.ascontiguousarray(ONE.T))
    with pytest.raises(FormatError, match=r"tensor e\.1: is of type F16, and e\.0 of F32"):
        load(e__0=ONE, e__1=ONE.astype(np.float16))
