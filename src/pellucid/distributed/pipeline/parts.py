"""Part: a stage of a pipeline as seen from here, and how long anybody waits for one.

    starting --first sign of life, within `start_s`--> loading, then answering
        |                                                 |  asked each `_LOOK_S` whether it lives
        `--none--> Unavailable                            `--none for `silence_s`--> Unavailable

What a stage computes may take as long as it takes: a wait ends by its answer, by its end, or once
it gives no sign of life.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError, RayTaskError

from pellucid.core.errors import PellucidError, Unavailable
from pellucid.models.stage import LayerRange

_LOOK_S: Final = 2.0
_AGAIN: Final = "load the model again"


@dataclass(frozen=True, slots=True)
class Part:
    """A stage: its actor, and what it has."""

    actor: Any
    layers: LayerRange


@dataclass(frozen=True, slots=True)
class Parts:
    """All stages, in order. In seconds, `start_s`: for their processes to come up; `silence_s`:
    without a sign of life from one that is up."""

    all: Sequence[Part]
    silence_s: float = 30.0
    start_s: float = 180.0

    def check_started(self) -> None:
        """Raises `Unavailable` if not every stage gives a sign of life in time."""
        silent = self._silent(self.start_s)
        if silent:
            up = len(self.all) - len(silent)
            raise Unavailable(
                f"{up} of {len(self.all)} stages started in {self.start_s:g} s: the cluster has no "
                f"processors free for the others, or is too busy: wait for room, or {_AGAIN} "
                "with fewer stages"
            )

    def each(self, method: str, *arguments: Any) -> list[Any]:
        """What a method of every stage gives, all at once. Raises as `value`."""
        asked = [getattr(part.actor, method).remote(*arguments) for part in self.all]
        return [self.value(one) for one in asked]

    def value(self, asked: Any) -> Any:
        """What was asked of a stage. Raises `Unavailable` if one has ended or is silent, and what
        it raised."""
        try:
            while True:
                try:
                    return ray.get(asked, timeout=_LOOK_S)
                except GetTimeoutError:
                    self._check_alive()
        except RayError as error:
            self._fail(error)

    def _check_alive(self) -> None:
        silent = self._silent(self.silence_s)
        if silent:
            raise Unavailable(
                f"a stage of the pipeline ({silent[0].layers}) gives no sign of life for "
                f"{self.silence_s:g} s: {_AGAIN}"
            )

    def _silent(self, within_s: float) -> list[Part]:
        """Those that do not say within so many seconds that they live. One that has ended says what
        it is asked, and that is an error."""
        said = [part.actor.alive.remote() for part in self.all]
        late = set(ray.wait(said, num_returns=len(said), timeout=within_s)[1])
        try:
            ray.get([one for one in said if one not in late], timeout=within_s)
        except RayError as error:
            self._fail(error)
        return [part for part, one in zip(self.all, said, strict=True) if one in late]

    def _fail(self, error: RayError) -> NoReturn:
        cause = getattr(error, "cause", None)
        if isinstance(cause, PellucidError | ValueError | MemoryError):
            raise cause from error
        for one in (error, cause):
            if isinstance(one, RayActorError | ObjectLostError):
                raise Unavailable(
                    f"a stage of the pipeline{self._which(one)} has ended, and its keys and values "
                    f"with it: {_AGAIN}"
                ) from error
        if isinstance(error, RayTaskError):
            raise PellucidError(f"a stage of the pipeline failed: {_last(error)}") from error
        raise Unavailable(f"the pipeline's cluster does not answer: {_last(error)}") from error

    def _which(self, error: Any) -> str:
        gone = getattr(error, "actor_id", None)
        for part in self.all:
            if gone is not None and part.actor._actor_id.hex() == gone:
                return f" ({part.layers})"
        return ""


def _last(error: Exception) -> str:
    """The last line of what was said over there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
