"""What crosses between the processes, in forms that pickle fast and whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pellucid.core import errors
from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the closed set: its class by name, its message, and its attributes."""

    kind: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Any error; one that is none of ours is said to be a fault."""
        if isinstance(error, PellucidError) and hasattr(errors, type(error).__name__):
            return cls(type(error).__name__, str(error), dict(vars(error)))
        return cls("PellucidError", f"{type(error).__name__}: {error}")

    def error(self) -> PellucidError:
        """The error as it was raised."""
        kind: type[PellucidError] = getattr(errors, self.kind)
        error = kind.__new__(kind)
        Exception.__init__(error, self.message)
        vars(error).update(self.facts)
        return error


# An increment as a tuple of its fields, in their order: a third of the time and half of the bytes.
Fields = tuple[Any, ...]


def fields_of(increment: Increment) -> Fields:
    return (
        increment.index,
        increment.text,
        increment.token_ids,
        increment.logprobs,
        increment.finish_reason,
        increment.stop_reason,
        increment.metrics,
    )


def increment_of(fields: Fields) -> Increment:
    return Increment(*fields)
