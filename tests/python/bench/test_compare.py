"""bench/compare.py: workers that answer, fail, hang and die; ratios pair by pair."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import compare
import pytest
from peers.client import Worker, WorkerError
from peers.machine import first_output

from tests.python.engine.tiny import N_ROWS, D, write_model

PEERS = Path(compare.__file__).parent / "peers"
FAKE = f"""
import os, sys, time
sys.path.insert(0, {str(PEERS)!r})
from serve import prompt, serve

class Fake:
    def __init__(self, given):
        if given["model"] == "missing":
            raise FileNotFoundError("no such model")
        print("a library says hello on standard output")

    def info(self):
        return {{"name": "fake"}}

    def measure(self, case, salt):
        print("and again")
        if case["kind"] == "hang":
            time.sleep(60)
        if case["kind"] == "die":
            print("my last words", file=sys.stderr, flush=True)
            os._exit(3)
        if case["kind"] == "fail":
            raise RuntimeError("out of luck")
        return case["tokens"], 0.5 + salt

serve(Fake)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "fake_worker.py"
    path.write_text(FAKE)
    return path


def start(script: Path, model: str = "m", timeout: float = 30.0) -> Worker:
    log = script.with_suffix(".log")
    return Worker(sys.executable, script, {"model": model}, log, timeout=timeout)


def test_a_worker_answers_whatever_its_libraries_print(script: Path) -> None:
    worker = start(script)
    try:
        assert worker.info == {"name": "fake"}
        assert worker.measure({"kind": "decode", "tokens": 10}, salt=0) == 20.0
        assert worker.measure({"kind": "decode", "tokens": 10}, salt=2) == 4.0
    finally:
        worker.close()


def test_a_failure_is_the_worker_s_own_words_and_it_goes_on(script: Path) -> None:
    worker = start(script)
    try:
        with pytest.raises(WorkerError, match="fake_worker: RuntimeError: out of luck"):
            worker.measure({"kind": "fail"}, salt=0)
        assert worker.measure({"kind": "decode", "tokens": 1}, salt=0) == 2.0
    finally:
        worker.close()


def test_a_model_that_cannot_be_loaded(script: Path) -> None:
    with pytest.raises(WorkerError, match="FileNotFoundError: no such model"):
        start(script, "missing")


def test_a_worker_that_dies_or_hangs_is_an_error(script: Path) -> None:
    worker = start(script)
    with pytest.raises(WorkerError, match="has ended: my last words"):
        worker.measure({"kind": "die"}, salt=0)
    with pytest.raises(WorkerError, match="has ended"):
        worker.measure({"kind": "decode", "tokens": 1}, salt=0)
    worker.close()
    worker = start(script)
    worker._timeout = 0.2
    with pytest.raises(WorkerError, match="no answer within"):
        worker.measure({"kind": "hang"}, salt=0)
    worker.close()


def test_an_interpreter_without_the_peer(tmp_path: Path) -> None:
    script = tmp_path / "llama_worker.py"
    script.write_text("import a_module_that_is_not_there\n")
    with pytest.raises(WorkerError, match="No module named 'a_module_that_is_not_there'"):
        start(script)


def test_ratios_are_of_pairs_and_shares_of_the_read_beside_them() -> None:
    case = {"kind": "decode", "sequences": 2, "context": 0, "tokens": 4}
    rates = {"pellucid": [200.0, 100.0], "llama.cpp": [100.0, 25.0]}
    found = compare._case("decode 2", case, rates, [1e9, 2e9], weights=4_000_000)
    assert found["ratios"] == {"llama.cpp": [2.0, 4.0]}
    assert found["share_of_read"] == [100 * 4e6 / 1e9, 50 * 4e6 / 2e9]


def test_weights_of_a_step(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf")
    matrices = 2 * (2 * D * D + 2 * 16 * D + 3 * 48 * D) + N_ROWS * D
    norms = 5 * D
    assert compare.weight_bytes(path) == 4 * (matrices + norms + D)


def test_first_output_waits_for_a_byte() -> None:
    assert 0 < first_output([sys.executable, "-c", "print('x')"]) < 60
    with pytest.raises(RuntimeError, match="wrote nothing"):
        first_output([sys.executable, "-c", "pass"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peer-python", "vllm=python"], "'vllm' is none of llama.cpp"),
        (["--q4-0"], "give its --peer-python"),
        (["--rounds", "0"], "at least 1"),
        (["--case", "decode 7"], "invalid choice"),
    ],
)
def test_arguments(
    arguments: list[str], message: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        compare._arguments()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
