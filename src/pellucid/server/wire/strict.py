"""The base of every request model, and fields of which only one value can be honoured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic_core import PydanticCustomError

NOT_HONOURED: Final = "not_honoured"
"""The type of error of a field whose value means something that this server does not do."""


class Wire(BaseModel):
    """Nothing unknown, nothing converted: the text "5" is no number here."""

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
