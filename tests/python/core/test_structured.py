"""StructuredOutputs: one form, of bounded size, or an error that names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pellucid.core.errors import BadInput
from pellucid.core.params import SamplingParams
from pellucid.core.structured import MAX_CHOICES, StructuredOutputs


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def shared() -> dict[str, Any]:
    """Small, and of 2^60 parts when written out."""
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"a": schema, "b": schema}
    return schema


def cyclic() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    schema["items"] = schema
    return schema


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of .*none"),
        ({"regex": "a", "choice": ["b"]}, "regex and choice"),
        ({"json": "{"}, "json: this is no JSON"),
        ({"json": "[1]"}, "a schema is an object"),
        ({"json": 3}, "a schema is an object"),
        ({"json": '{"a": 1, "a": 2}'}, "'a' stands twice"),
        ({"json": '{"minimum": NaN}'}, "NaN is no JSON number"),
        ({"json": {"minimum": float("inf")}}, "inf is no JSON value"),
        ({"json": {"minimum": {1}}}, "is no JSON value"),
        ({"json": {1: 2}}, "keys are strings"),
        ({"json": {"const": 10**5000}}, "too many digits"),
        ({"json": {"const": "\ud800"}}, "surrogate"),
        ({"json": nested(20_000)}, "nested deeper than 100"),
        ({"json": '{"items":' * 20_000 + "{}" + "}" * 20_000}, "nested deeper than 100"),
        ({"json": cyclic()}, "nested deeper than 100"),
        ({"json": shared()}, "more than the 1048576 characters"),
        ({"json": {"const": "x" * 2_000_000}}, "more than the 1048576 characters"),
        ({"json": '"' + "x" * 2_000_000}, "2000001 characters"),
        ({"regex": ""}, "regex must be a text that is not empty"),
        ({"regex": 5}, "regex must be a text"),
        ({"regex": "a" * 100_000}, "regex has 100000 characters, and 65536"),
        ({"grammar": "\udc00"}, "surrogate"),
        ({"choice": "ab"}, "choice must be a list"),
        ({"choice": []}, "choice must be a list"),
        ({"choice": ["a", ""]}, "choice: each must be a text that is not empty"),
        ({"choice": [1]}, "choice: each must be a text"),
        ({"choice": ["a"] * (MAX_CHOICES + 1)}, "choice has 10001 strings"),
        ({"choice": ["a" * 100_000 + str(i) for i in range(5)]}, "all together has"),
        ({"json_object": False}, "json_object must be True"),
    ],
)  # fmt: skip
def test_what_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        StructuredOutputs(**fields)
    assert len(str(caught.value)) < 400


def test_equal_forms_are_equal_and_hash_alike() -> None:
    schema = {"type": "object", "properties": {"é": {"const": [1, 2.5, None]}}}
    forms = {
        StructuredOutputs(json=schema),
        StructuredOutputs(json=json.dumps(schema)),
        StructuredOutputs(json=json.dumps(schema, indent=4)),
    }
    assert len(forms) == 1
    assert StructuredOutputs(choice=["b", "a", "b"]) == StructuredOutputs(choice=("b", "a"))


def test_a_schema_that_changes_later_changes_nothing() -> None:
    schema = {"type": "string"}
    asked = StructuredOutputs(json=schema)
    schema["type"] = "integer"
    assert asked.json == '{"type":"string"}'


def test_sampling_params_take_the_fields_as_a_mapping() -> None:
    given = SamplingParams(structured_outputs={"regex": "a+"})  # type: ignore[arg-type]
    assert given.structured_outputs == StructuredOutputs(regex="a+")
    with pytest.raises(BadInput, match="structured_outputs has no 'regexp'"):
        SamplingParams(structured_outputs={"regexp": "a+"})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="must be StructuredOutputs"):
        SamplingParams(structured_outputs="a+")  # type: ignore[arg-type]
