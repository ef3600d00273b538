"""The base of every request model, and fields of which only one value can be honoured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from annotated_types import MaxLen
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

MOST_KEYS: Final = 10_000
MOST_ITEMS: Final = 4096

NOT_HONOURED: Final = "not_honoured"
"""The type of error of a field whose value means something that this server does not do."""


Item = TypeVar("Item")


class _FailFast(FailFast):
    """Can stand in a union: Python 3.11 asks of an annotation that it has a hash."""

    __hash__ = object.__hash__


Many = Annotated[list[Item], _FailFast()]
"""A list of any length: the first item that is wrong ends its check, as a million errors would cost
a request of some megabytes minutes."""

Some = Annotated[list[Item], _FailFast(), MaxLen(MOST_ITEMS)]
"""A list of things that each cost something: at most `MOST_ITEMS`."""


def few(given: Any) -> Any:
    """An object of at most `MOST_KEYS`, told before any of them is looked at."""
    if isinstance(given, dict) and len(given) > MOST_KEYS:
        raise PydanticCustomError(
            "too_many_keys",
            "has {count} entries and at most {most} are looked at",
            {"count": len(given), "most": MOST_KEYS},
        )
    return given


class Wire(BaseModel):
    """Nothing unknown, nothing converted: the text "5" is no number here."""

    _few = model_validator(mode="before")(few)

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )


def only(*values: Any) -> Any:
    """A field that clients send, of which `values` (and null) ask for nothing special. Anything
    else is refused, or listed as ignored for a lenient caller."""

    def check(value: Any) -> Any:
        if value is None or any(type(value) is type(one) and value == one for one in values):
            return value
        allowed = " or ".join(map(repr, values)) or "null"
        raise PydanticCustomError(
            NOT_HONOURED,
            "is not supported here: leave it out (or at {allowed})",
            {"allowed": allowed},
        )

    schema = {"enum": [None, *values]}
    return Annotated[Any, Only(values), BeforeValidator(check), WithJsonSchema(schema)]


@dataclass(frozen=True, slots=True)
class Only:
    """Marks a field that is taken at `values` alone."""

    values: tuple[Any, ...]


def is_only(metadata: Sequence[Any]) -> list[Any] | None:
    """The values a field is taken at, by its metadata; None if it is honoured."""
    return next(([None, *mark.values] for mark in metadata if isinstance(mark, Only)), None)
