"""`pellucid bench` on a tiny model: what is reported is what was done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM, _native
from pellucid.bench import Settings, report_json, run_bench
from pellucid.bench.clock import TimedNativeOps
from pellucid.bench.forward import measure, weight_sizes
from pellucid.bench.whole import _engine
from pellucid.cli.main import main
from pellucid.core.errors import BadInput
from pellucid.engine.loading import load
from pellucid.engine.sizing import Asked
from pellucid.formats import open_checkpoint
from pellucid.models.registry import load_model
from pellucid.ops import backend as make_ops
from pellucid.ops.native.peaks import Peaks
from tests.python.engine.tiny import CONTEXT, LAYERS, N_ROWS, D, write_model

WISHES = {"prefill": (40,), "decode": 3, "batches": (1, 2), "contexts": (50,), "repeats": 2}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("bench") / "tiny.gguf")


def quiet(_: str) -> None:
    pass


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_every_case_is_there_with_every_repeat(path: Path, backend: str) -> None:
    report = report_json(run_bench(path, Settings(**WISHES, backend=backend), quiet))  # type: ignore[arg-type]
    names = ["prefill 40", "decode 1, context 32", "decode 2, context 32", "decode 1, context 50"]
    assert [case["name"] for case in report["cases"]] == names
    for case in report["cases"]:
        assert len(case["tokens_per_second"]["values"]) == len(case["peaks"]) == 2
        rate = case["sequences"] * case["tokens"] / case["steps"] / case["step_seconds"]["median"]
        low, high = case["tokens_per_second"]["min"], case["tokens_per_second"]["max"]
        assert low * 0.999 <= rate <= high * 1.001
        assert case["arithmetic_peak"] == ("int8" if backend == "native" else "f32")
    assert [whole["batch"] for whole in report["whole_engine"]] == [1, 2]
    for whole in report["whole_engine"]:
        assert whole["steps"] == 3
        if backend == "native":
            assert 0 < whole["python_share"]["median"] < 1
        else:
            assert whole["python_share"] is None
    json.dumps(report)


def test_cost_and_shares_of_a_case(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        model = load_model(checkpoint, TimedNativeOps(threads=1))
        sizes = weight_sizes(model)
        assert {n: t.nbytes for n, t in checkpoint.tensors.items()} == {
            name: size.nbytes for name, size in sizes.items()
        }

        class Steady:
            def measure(self) -> Peaks:
                return Peaks(1e9, 2e9, 4e9)

        from pellucid.bench.cases import Case

        case = Case("decode", 4, 2, 10)
        measured = measure(model, case, 3, Steady(), sizes)  # type: ignore[arg-type]
    stored = sum(size.nbytes for size in sizes.values())
    table = sizes["token_embd.weight"].nbytes
    assert measured.cost.weights_read == 4 * (stored - table + 2 * 4 * D)
    # 2 kv heads of 8, in halves; a value head takes 16.
    assert measured.cost.kv_written == 4 * 2 * LAYERS * 2 * (8 + 16) * 2
    assert table == 4 * N_ROWS * D
    for rate, share in zip(
        measured.weights_per_second.values, measured.share_of_read.values, strict=True
    ):
        assert share == pytest.approx(rate / 1e9)
    operations = measured.operations_per_second.median
    assert measured.share_of_arithmetic("int8").median == pytest.approx(operations / 2e9)
    assert measured.share_of_arithmetic("f32").median == pytest.approx(operations / 4e9)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_the_whole_engine_is_the_one_that_users_have(path: Path, backend: str) -> None:
    llm = LLM(path, backend=backend)
    loaded = load(path, make_ops(backend), Asked(), None, quiet)
    users = llm.engine.sampler
    assert type(_engine(loaded, 1, 40).sampler) is type(users)


def test_the_clock_counts_what_is_inside_the_program(path: Path) -> None:
    ops = TimedNativeOps(threads=1)
    with open_checkpoint(path) as checkpoint:
        model = load_model(checkpoint, ops)
        assert ops.clock.seconds == 0.0
        from pellucid.bench.cases import Case

        case = Case("prefill", 8)
        cache = model.ops.new_cache(model.spec, case.n_pages, 16)
        for plan in case.plans(model.spec.vocab_size):
            model.forward(plan, cache)
    within = ops.clock.seconds
    assert within > 0.0
    whole = _native.sampling.choose
    with pytest.raises(TypeError), ops.clock.counting_sampling():
        _native.sampling.choose()
    assert _native.sampling.choose is whole
    assert ops.clock.seconds > within


def test_too_much_is_refused_before_anything_is_measured(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with pytest.raises(BadInput, match=f"made for {CONTEXT}"):
        run_bench(path, Settings(prefill=(CONTEXT + 1,)), told.append)
    with monkeypatch.context() as patch:
        patch.setattr("pellucid.bench.run.available_memory", lambda: 100_000)
        with pytest.raises(BadInput, match=r"decode 64.*: it needs .* of KV cache and"):
            run_bench(path, Settings(batches=(64,), decode=60), told.append)
    assert not any("measuring" in line for line in told)


def test_more_pages_than_the_backend_has_are_refused(path: Path) -> None:
    with pytest.raises(BadInput, match="n_pages"):
        run_bench(path, Settings(prefill=(), batches=(1 << 20,), decode=30), quiet)


def run_cli(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


SHORT = ("--prefill", "8", "--batch", "1", "--context", "", "--decode", "2", "--repeats", "1")


def test_json_is_one_object_and_nothing_else(path: Path, capsys: Any) -> None:
    code, out, _ = run_cli(capsys, str(path), *SHORT, "--json")
    report = json.loads(out)
    assert code == 0
    assert out.count("\n") == 1
    assert report["machine"]["cores"] >= 1
    assert [case["name"] for case in report["cases"]] == ["prefill 8", "decode 1, context 32"]


def test_quantised_at_load(path: Path, capsys: Any) -> None:
    code, out, _ = run_cli(capsys, str(path), *SHORT, "--quantization", "Q8_0", "--json")
    report = json.loads(out)
    plain = report_json(run_bench(path, Settings((8,), 2, (1,), (), 1), quiet))
    assert (code, report["quantization"], plain["quantization"]) == (0, "q8_0", None)
    assert report["weights_bytes"] < 0.6 * plain["weights_bytes"]
    read = [r["cases"][0]["cost"]["weights_read"] for r in (report, plain)]
    assert read[0] < 0.6 * read[1]


def test_activations_are_those_asked_for(path: Path, capsys: Any) -> None:
    code, out, _ = run_cli(capsys, str(path), *SHORT, "--activations", "f32", "--json")
    assert (code, json.loads(out)["activations"]) == (0, "f32")
    code, out, err = run_cli(capsys, str(path), *SHORT, "--activations", "int3", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1) and "'int3' are unknown" in err


def test_the_table_shows_each_case(path: Path, capsys: Any) -> None:
    code, out, _ = run_cli(capsys, str(path), *SHORT)
    assert code == 0
    assert "prefill 8 " in out
    assert "decode 1, context 32 " in out
    assert "whole engine" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch", "1,x"), "--batch: 'x' is no number"),
        (("--prefill", "0"), "--prefill: '0' is no number"),
        (("--context", "9" * 400), "--context: '999"),
        (("--context", "²"), "--context: '²' is no number"),
        (("--backend", "magic"), "backend 'magic' is unknown"),
        (("--kv-cache-dtype", "int3"), "int3"),
        (("--threads", "0"), "threads"),
        (("--quantization", "q3_k"), "type 'q3_k' is none of those that are written"),
    ],
)
def test_bad_flags_are_one_line(
    path: Path, capsys: Any, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run_cli(capsys, str(path), *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
