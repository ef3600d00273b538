"""A reference forward pass whose operations can be timed, one by one."""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pellucid.costs.stages import Part, Stage
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import Stamps

if TYPE_CHECKING:
    from pellucid.ops.reference.backend import ReferenceOps

Float32 = NDArray[np.float32]

_TIMED: Final = (
    "embedding", "take_rows", "linear", "experts", "layer_norm", "rms_norm", "rope", "attention",
    "gelu", "gelu_tanh", "silu_mul", "gelu_tanh_mul", "scale", "clamp", "softcap",
)  # fmt: skip
_LAYER: Final = re.compile(r"blk\.(\d+)\.(.+)")
_ROWS: Final = frozenset({"rms_norm", "layer_norm"})


class ReferenceForward:
    """`forward`, which calls the operations of `ops`. While `stamping` each is timed; else nothing
    is done to them at all."""

    def __init__(self, ops: ReferenceOps, forward: Callable[[Step], Float32]) -> None:
        self.stamping = False
        self._ops = ops
        self._forward = forward
        self._stages: tuple[Stage, ...] = ()
        self._seconds: array[float] = array("d")

    def __call__(self, step: Step) -> Float32:
        with np.errstate(all="ignore"):  # numbers that are none are found by who reads them
            return self._stamped(step) if self.stamping else self._forward(step)

    def stamps(self) -> Stamps:
        """The operations of the last call that was stamped, and the seconds of each. What a model
        adds up by itself is none of them."""
        return self._stages, self._seconds

    def _stamped(self, step: Step) -> Float32:
        clock = _Clock(self._ops)
        try:
            for name in _TIMED:
                setattr(self._ops, name, clock.timed(name, getattr(self._ops, name)))
            return self._forward(step)
        finally:
            for name in _TIMED:
                vars(self._ops).pop(name, None)
            stages = tuple(clock.stages)
            if stages != self._stages:  # the same in every step, but for another program's
                self._stages = stages
            self._seconds = clock.seconds


class _Clock:
    """The stages of one forward pass. Operations within an operation are its own."""

    def __init__(self, ops: ReferenceOps) -> None:
        self.stages: list[Stage] = []
        self.seconds: array[float] = array("d")
        self._ops = ops
        self._inside = self._wanted = False
        self._layer: int | None = None

    def timed(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return operation(*arguments, **named)
            self._inside = True
            began = time.perf_counter()
            try:
                result = operation(*arguments, **named)
            finally:
                self._inside = False
            self.seconds.append(time.perf_counter() - began)
            self._wanted |= name == "take_rows"
            self.stages.append(self._stage(name, arguments, result))
            return result

        return run

    def _stage(self, name: str, arguments: tuple[Any, ...], result: Float32) -> Stage:
        op = "norm" if name in _ROWS else name
        if name == "attention":
            self._layer = int(arguments[3])
            parts = [Part(kind, layer=self._layer) for kind in ("store", "attend")]
            return Stage("store+attention", self._layer, tuple(parts))
        weights = [known for x in arguments if (known := self._ops.name_of(x)) is not None]
        if weights:
            matched = _LAYER.match(weights[0])
            self._layer = None if matched is None else int(matched[1])
            if name in ("linear", "experts"):
                part = weights[0] if matched is None else matched[2]
                op = part.removesuffix(".weight")
        return Stage(op, self._layer, tuple(self._parts(name, arguments, result)))

    def _parts(self, name: str, arguments: tuple[Any, ...], result: Float32) -> list[Part]:
        wanted, width = self._wanted, int(result.shape[-1])
        match name:
            case "linear":
                weight = arguments[1]
                product = Part("linear", wanted, weight.shape[1], weight.shape[0], weight.nbytes)
                return [product, *_bias(arguments[2:3], wanted)]
            case "experts":
                layer = self._layer or 0
                return [
                    Part("experts", wanted, nbytes=w.nbytes, layer=layer) for w in arguments[2:5]
                ]
            case "layer_norm" | "rms_norm":
                norm = Part("norm", wanted, n_out=width, nbytes=arguments[1].nbytes)
                return [norm, *_bias(arguments[2:3], wanted)]
            case "embedding":
                table = arguments[1]
                row = table.nbytes // len(table)
                return [Part("embedding", wanted, n_out=width, nbytes=row)]
        x = [x.shape[-1] for x in arguments if isinstance(x, np.ndarray) and x.ndim == 2]
        return [Part("rows", wanted, sum(x), width)]


def _bias(given: tuple[Any, ...], wanted: bool) -> list[Part]:
    """Of what may be a bias (a norm without one has a number there, or nothing)."""
    return [
        Part("bias", wanted, n_out=len(bias), nbytes=bias.nbytes)
        for bias in given
        if isinstance(bias, np.ndarray)
    ]
