"""What the server says of itself is so: /props, /v1/models and the OpenAPI document."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pellucid import __version__
from tests.python.server.running import Running


def test_props_say_what_is_honoured(server: Running) -> None:
    props = server.http.get("/props").json()
    assert props["model"] == "tiny" and props["max_model_len"] == 2000
    assert props["default_generation_settings"]["temperature"] == 1.0
    assert props["limits"]["n"] == 64
    for path, said in props["honours"].items():
        for name in said["fields"]:
            error = server.post(path, {name: object_of_no_kind()}).json()["error"]
            assert "not a field" not in error["message"], (path, name)
        for name, values in said["only"].items():
            error = server.post(path, {name: object_of_no_kind()}).json()["error"]
            assert error["param"] == name or error["message"].endswith("is required"), error
            assert None in values


def object_of_no_kind() -> dict[str, Any]:
    return {"no": {"such": ["value"]}}


def test_the_models_are_the_names_served(server: Running) -> None:
    found = server.http.get("/v1/models").json()
    assert [card["id"] for card in found["data"]] == ["tiny", "alias"]
    assert server.http.get("/v1/models/alias").json()["id"] == "alias"
    assert server.http.get("/v1/models/no/such").status_code == 404
    assert server.http.get("/version").json() == {"version": __version__}


def test_the_document_is_true(server: Running) -> None:
    """schemathesis asks what the document allows, and what it does not; what comes is what the
    document says, and never a fault of the server."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 13
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    for operation in operations:

        @settings(max_examples=6, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=checks)

        ask()
