"""`pellucid plan`: what it answers of a configuration alone, and how it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.python.cli.conftest import Ended

Command = Callable[..., Ended]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
}
LOGGED = ("--requests", "20", "--seeds", "2", "--max-num-seqs", "4", "--processes", "1",
          "--hardware", "t4")  # fmt: skip
QUICK = ("--prompt-tokens", "60", "--output-tokens", "8", *LOGGED)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def huge(model: Path) -> Path:
    changes = {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126}
    (model / "config.json").write_text(json.dumps(CONFIG | changes | {"num_attention_heads": 128}))
    return model


def test_a_plan_of_a_configuration(command: Command, model: Path) -> None:
    ended = command("plan", str(model), *QUICK, "--ttft-p95", "1", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found["mark"] == "simulated"
    assert found["model"]["weight_bytes"] == 2 * found["model"]["parameters"]
    assert found["machine"]["usd_per_hour"] == 0.15
    assert found["machine"]["sources"]
    assert found["met"] is True
    assert found["goals"][0]["reached"]["mean"] < 1
    most = found["saturation"]["requests_per_second"]
    for load in found["curve"]:
        assert load["served_per_second"]["mean"] < 1.5 * most
        assert load["ttft"]["p50"]["mean"] <= load["ttft"]["p95"]["mean"]
        assert load["requests"] >= 40
    cost = found["saturation"]["cost"]
    assert cost["usd_per_million_answer_tokens"] > cost["usd_per_million_prompt_tokens"] > 0
    changes = [one["change"] for one in found["what_if"]]
    for word in ("max-num-seqs", "batched", "kv-cache", "quantization", "guesses", "prefix"):
        assert any(word in change for change in changes), word
    assert any("nothing was run" in warning for warning in found["warnings"])


def objects(value: object, name: str = "plan") -> Iterator[tuple[str, dict[str, object]]]:
    """Every object in the JSON, with the key that it stands under."""
    if isinstance(value, dict):
        yield name, value
        for key, one in value.items():
            yield from objects(one, key)
    for one in value if isinstance(value, list) else ():
        yield from objects(one, name)


def told_keys() -> dict[str, set[str]]:
    """What docs/plan.md says of the JSON: lines of a name and the keys of its object."""
    page = (Path(__file__).parents[3] / "docs/plan.md").read_text(encoding="utf-8")
    block = page.partition("<!-- keys of the JSON -->")[2].split("```")[1]
    lines = [line.partition(": ") for line in block.strip().splitlines()]
    return {name: set(keys.split(", ")) for name, _, keys in lines}


def test_the_page_tells_of_every_key_and_of_no_other(command: Command, model: Path) -> None:
    flags = ("--ttft-p95", "1", "--rate", "3", "--speculative-tokens", "2", "--json")
    found = json.loads(command("plan", str(model), *QUICK, *flags).out)
    told = told_keys()
    seen: dict[str, set[str]] = {name: set() for name in told}
    for name, one in objects(found):
        keys = set(one)
        if "served_per_second" in keys:
            seen["point"] |= keys & told["point"]
            keys -= told["point"]
        if name in ("ttft", "itl", "e2e", "per_token"):
            name = "delays"
        elif keys == told["band"]:
            name = "band"
        elif name.startswith("cost"):
            name = "cost"
        if keys and name not in ("parts", "waiting_for"):  # whatever there is
            assert keys <= told.get(name, set()), name
            seen[name] |= keys
    del told["calibration"], seen["calibration"]  # of no machine of the table
    assert seen == told


def test_the_same_seed_gives_the_same_plan(command: Command, model: Path) -> None:
    flags = ("plan", str(model), *QUICK, "--json", "--no-what-if")
    first = command(*flags).out
    assert command(*flags).out == first
    assert command(*flags, "--seed", "9").out != first


def test_a_plan_in_a_terminal(command: Command, model: Path) -> None:
    found = command(
        "plan", str(model), *QUICK, "--rate", "5", "--itl-p95", "0.1", "--rates", "5,9"
    ).out
    heads = ("Where it saturates, and why", "Latency against load", "What would change it")
    for words in ("it fits", *heads, "goal itl-p95", "a million tokens cost", "note:"):
        assert words in found


def test_a_narrow_terminal_holds_it(
    command: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (str(model), *QUICK, "--rate", "5", "--itl-p95", "0.1", "--rates", "5,9,4000")
    monkeypatch.setenv("COLUMNS", "80")
    found = command("plan", *flags).out
    assert max(map(len, found.splitlines())) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in found
    assert "\x1b" not in found  # no terminal, no colours
    monkeypatch.setenv("COLUMNS", "200")
    wide = command("plan", *flags).out
    assert 80 < max(map(len, wide.splitlines())) <= 118


def test_replicas_are_as_many_as_the_goals_need(command: Command, model: Path) -> None:
    flags = ("plan", str(model), *QUICK, "--no-what-if", "--json")
    most = json.loads(command(*flags).out)["saturation"]["requests_per_second"]
    found = json.loads(command(*flags, "--rate", str(3 * most)).out)
    assert 3 <= found["replicas"] <= 6
    enough = {one["replicas"]: one["enough"] for one in found["replicas_tried"]}
    assert enough[found["replicas"]]
    assert not enough.get(found["replicas"] - 1, False)


def test_a_log_is_traffic(command: Command, model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    lines = [
        {"arrival_s": i * 0.01, "prompt_tokens": 20 + i, "output_tokens": 4} for i in range(30)
    ]
    log.write_text("\n".join(map(json.dumps, lines)))
    ended = command("plan", str(model), *LOGGED, "--log", str(log), "--json", "--no-what-if")
    found = json.loads(ended.out)
    assert found["load"]["requests_per_second"] == pytest.approx(100)
    assert found["traffic"]["mean_prompt_tokens"] == pytest.approx(34.5)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--hardware", "h1000"), "h100"),
        (("--hardware", "3TB/s"), "memory"),
        (("--max-num-seqs", "100000", "--max-num-batched-tokens", "100000"), "lower it"),
        (("--speculative-acceptance", "0.5"), "counts for nothing"),
        (("--log", "x.jsonl", "--burstiness", "2"), "counts for nothing"),
        (("--rate", "-1"), "above 0"),
        (("--rate", "0"), "above 0"),
        (("--rate", "nan"), "above 0"),
        (("--rates", "1,x"), "commas"),
        (("--rates", "1,-2"), "above 0"),
        (("--prompt-tokens", "none"), "--prompt-tokens"),
        (("--output-tokens", "9-3"), "--output-tokens"),
        (("--prompt-tokens", "600"), "does not fit the traffic"),
        (("--shared-prefix", "1.5"), "share"),
        (("--burstiness", "-1"), "burstiness"),
        (("--ttft-p95", "1e-9"), "cannot be met by any number of replicas"),
        (("--itl-p50", "-1"), "above 0"),
        (("--replicas", "0"), "replicas"),
        (("--replicas", "5000"), "replicas"),
        (("--price", "-3"), "--price"),
        (("--quantization", "q9"), "q8_0"),
        (("--kv-cache-dtype", "f8"), "kv_cache_dtype"),
        (("--max-model-len", "1000"), "512"),
        (("--max-num-seqs", "0"), "max_num_seqs"),
        (("--routing", "random"), "round-robin"),
        (("--speculative-tokens", "0"), "guesses"),
        (("--speculative-tokens", "2", "--speculative-acceptance", "2"), "acceptance"),
        (("--efficiency", "1,1"), "three"),
        (("--efficiency", "2,1,1"), "bandwidth"),
        (("--requests", "1"), "requests"),
        (("--seeds", "0"), "seeds"),
        (("--calibrate",), "measures this machine"),
    ],
)
def test_what_cannot_be_is_one_line(
    command: Command, model: Path, flags: tuple[str, ...], words: str
) -> None:
    ended = command("plan", str(model), *QUICK, "--no-what-if", *flags)
    assert ended.code == 2
    assert ended.out == ""
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]


def test_an_empty_log_is_no_traffic(command: Command, model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n")
    ended = command("plan", str(model), *LOGGED, "--log", str(log.parent))
    assert ended.code == 2
    assert "cannot be read" in ended.err
    ended = command("plan", str(model), *LOGGED, "--log", str(log))
    assert (ended.code, ended.out) == (2, "")
    assert "no request" in ended.err


def test_weights_and_a_context_that_do_not_fit_are_two_errors(
    command: Command, model: Path
) -> None:
    ended = command("plan", str(model), *QUICK, "--hardware", "1TB/s,1MB")
    assert ended.code == 2
    ended = command("plan", str(model), *QUICK, "--hardware", "1TB/s,9TFLOPS,0.0002GB")
    assert "the weights do not fit" in ended.err
    ended = command("plan", str(model), *QUICK, "--hardware", "1TB/s,9TFLOPS,0.0003GB",
                    "--max-model-len", "512")  # fmt: skip
    assert "the weights fit and this context does not" in ended.err


def test_a_model_too_large_says_what_would_hold_it(command: Command, model: Path) -> None:
    ended = command("plan", str(huge(model)), *QUICK)
    assert ended.code == 2
    assert "the weights do not fit" in ended.err
    assert "epyc" in ended.err
