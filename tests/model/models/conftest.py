"""Runs every `FamilySuite` over its cases, each model built once."""

from __future__ import annotations

import pytest

from .runner import Built, FamilySuite


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is None or not issubclass(metafunc.cls, FamilySuite):
        return
    cases = metafunc.cls.CASES
    needs_gguf = "gguf" in metafunc.function.__name__
    if "fault" in metafunc.fixturenames:
        pairs = [(name, fault) for name, case in cases.items() for fault in case.faults]
        metafunc.parametrize(("built", "fault"), pairs, indirect=["built"], scope="class")
    elif "built" in metafunc.fixturenames:
        wanted = [name for name, case in cases.items() if case.gguf or not needs_gguf]
        metafunc.parametrize("built", wanted, indirect=True, scope="class")


@pytest.fixture(scope="class")
def models_built() -> dict[str, Built]:
    """The cases of one suite that were built so far."""
    return {}


@pytest.fixture(scope="class")
def built(
    request: pytest.FixtureRequest,
    models_built: dict[str, Built],
    tmp_path_factory: pytest.TempPathFactory,
) -> Built:
    name: str = request.param
    if name not in models_built:
        models_built[name] = Built(request.cls.CASES[name], tmp_path_factory.mktemp("model"))
    return models_built[name]
