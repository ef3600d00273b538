"""What Prometheus reads: the names that people know, numbers that add up, a dashboard that fits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pellucid.engine.stats import STEP_SIZES
from pellucid.server.counted import Counted
from pellucid.server.metrics import Metrics
from tests.python.server.fake import NO_STATS, FakeClient
from tests.python.server.running import Running

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
ASK = {"prompt": "abc", "max_tokens": 5}

# vLLM's endings, which dashboards are made of.
KNOWN = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "prefix_cache_queries": "counter",
    "prefix_cache_hits": "counter",
    "num_preemptions": "counter",
    "prompt_tokens": "counter",
    "generation_tokens": "counter",
    "request_success": "counter",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram",
    "request_queue_time_seconds": "histogram",
    "request_prefill_time_seconds": "histogram",
    "request_decode_time_seconds": "histogram",
    "request_inference_time_seconds": "histogram",
    "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram",
    "request_max_num_generation_tokens": "histogram",
    "request_prefill_kv_computed_tokens": "histogram",
    "request_time_per_output_token_seconds": "histogram",
    "request_params_n": "histogram",
    "request_params_max_tokens": "histogram",
    "iteration_tokens_total": "histogram",
    "cache_config_info": "gauge",
    "kv_block_lifetime_seconds": "histogram",
    "kv_block_idle_before_evict_seconds": "histogram",
    "kv_block_reuse_gap_seconds": "histogram",
}


def families(server: Running) -> dict[str, Any]:
    answer = server.http.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def samples(server: Running) -> dict[str, float]:
    """Of one model: each sample by its name, labels other than the model's behind it."""
    found = {}
    for family in families(server).values():
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
            found[" ".join([sample.name, *(labels[name] for name in sorted(labels))])] = (
                sample.value
            )
    return found


def wait_for(
    server: Running, handler: str, status: str, count: int, *, method: str = "POST"
) -> None:
    """Until so many requests are counted: that comes after their answer."""
    labels = {"handler": handler, "method": method, "status": status}
    registry = server.app.state.metrics.registry
    server.until(lambda: registry.get_sample_value("pellucid_http_requests_total", labels) == count)


@pytest.fixture
def alone(make_fake: Callable[..., FakeClient], serve: Callable[..., Running]) -> Running:
    return serve(make_fake())


def test_names_end_as_people_know_them(alone: Running) -> None:
    found = families(alone)
    for name, kind in KNOWN.items():
        assert found["pellucid_" + name].type == kind, name


def test_numbers_add_up(alone: Running) -> None:
    alone.post("/v1/completions", {**ASK, "n": 2})
    with alone.http.stream("POST", "/v1/completions", json={**ASK, "stream": True}) as answer:
        answer.read()
    wait_for(alone, "/v1/completions", "200", 2)
    found = samples(alone)
    assert found["pellucid_request_success_total length"] == 3
    assert found["pellucid_prompt_tokens_total"] == 6
    assert found["pellucid_generation_tokens_total"] == 15
    assert found["pellucid_inter_token_latency_seconds_count"] == 12
    for name in "time_to_first_token", "e2e_request_latency", "request_queue_time":
        assert found[f"pellucid_{name}_seconds_count"] == 2
    assert found["pellucid_time_to_first_token_seconds_sum"] == pytest.approx(0.022)
    assert found["pellucid_request_decode_time_seconds_sum"] == pytest.approx(0.2)
    assert found["pellucid_http_requests_total /v1/completions POST 200"] == 2
    assert found["pellucid_request_generation_tokens_sum"] == 15
    assert found["pellucid_request_max_num_generation_tokens_sum"] == 10
    assert found["pellucid_request_prefill_kv_computed_tokens_sum"] == 0  # 3 of 3 are cached
    assert found["pellucid_request_time_per_output_token_seconds_sum"] == pytest.approx(0.05)


def test_strangers_make_no_new_series(alone: Running) -> None:
    for path in "/a", "/b", "/v1/models/x", "/v1/models/y":
        alone.http.get(path)
    alone.http.request("PROPFIND", "/a")
    wait_for(alone, "other", "404", 1, method="other")
    found = samples(alone)
    assert found["pellucid_http_requests_total other GET 404"] == 2
    assert found["pellucid_http_requests_total /v1/models/{name} GET 404"] == 2


def test_guesses_are_counted_by_place() -> None:
    metrics = Metrics("m", 100)
    of = {"model_name": "m", "engine": "0"}

    def seen(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"pellucid_spec_decode_{name}", of | labels)

    for accepted_at in (), (5, 3), (6, 3, 1):
        counts = {"drafts": 7, "draft_tokens": 20, "accepted_tokens": sum(accepted_at)}
        guessed_at = tuple(2 * count for count in accepted_at)
        counts |= {"accepted_at": accepted_at, "guessed_at": guessed_at, "seconds_won": -0.5}
        metrics.engine(replace(NO_STATS, **counts), 0)
    assert seen("num_drafts_total") == 7
    assert seen("num_draft_tokens_total") == 20
    assert seen("num_accepted_tokens_total") == 10
    found = [seen("num_accepted_tokens_per_pos_total", position=str(i)) for i in range(4)]
    assert found == [6, 3, 1, None]
    found = [seen("num_draft_tokens_per_pos_total", position=str(i)) for i in range(4)]
    assert found == [12, 6, 2, None]
    assert seen("seconds_won") == -0.5


def test_steps_are_counted_by_their_size_through_a_new_engine() -> None:
    iterations = Counted("tokens", "Of a step.", STEP_SIZES, ("model_name",), ("m",))
    sizes = [0] * (len(STEP_SIZES) + 1)

    def read(positions: int, **counts: int) -> tuple[list[float], float]:
        of = sizes.copy()
        for place, count in counts.items():
            of[int(place[1:])] = count
        iterations.read(of, positions)
        [family] = iterations.collect()
        found = {s.labels.get("le", s.name): s.value for s in family.samples}
        return [found["1.0"], found["8.0"], found["+Inf"]], found["tokens_sum"]

    assert read(9, p0=2, p1=1) == ([2, 3, 3], 9)
    assert read(20_009, p0=2, p1=1, p13=1) == ([2, 3, 4], 20_009)
    assert read(5, p1=1) == ([2, 4, 5], 20_014)


def test_counters_never_fall_when_an_engine_begins_again() -> None:
    metrics = Metrics("m", 100)

    def seen(steps: int, hits: int) -> tuple[float, float]:
        metrics.engine(replace(NO_STATS, steps=steps, prefix_hits=hits), 0)
        of = {"model_name": "m", "engine": "0"}
        value = metrics.registry.get_sample_value
        steps_seen = value("pellucid_engine_steps_total", of)
        hits_seen = value("pellucid_prefix_cache_hits_total", of)
        assert steps_seen is not None
        assert hits_seen is not None
        return steps_seen, hits_seen

    assert seen(10, 4) == (10, 4)
    assert seen(12, 4) == (12, 4)
    assert seen(3, 0) == (15, 4)  # another engine
    assert seen(5, 1) == (17, 5)


def test_pages_of_an_engine(alone: Running) -> None:
    alone.client.pages = (10, 20, 70)
    found = samples(alone)
    assert found["pellucid_kv_cache_usage_perc"] == 0.7
    assert found["pellucid_kv_cache_pages cached"] == 20
    assert found["pellucid_engine_up"] == 1


def test_without_an_engine_there_are_metrics_that_say_so(alone: Running) -> None:
    alone.client.pages = None
    assert samples(alone)["pellucid_engine_up"] == 0


def queries() -> list[str]:
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.extend(value for key, value in node.items() if key in ("expr", "query"))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(DASHBOARD)
    return [text for text in found if isinstance(text, str) and text != "prometheus"]


def test_every_query_of_the_dashboard_is_about_what_exists(alone: Running) -> None:
    alone.post("/v1/completions", ASK)
    existing = {
        sample.name: set(sample.labels)
        for family in families(alone).values()
        for sample in family.samples
    }
    asked = queries()
    assert len(asked) > 12
    for query in asked:
        used = re.findall(r"(pellucid_\w+)(?:\{([^}]*)\})?", query)
        assert used, query
        for name, matchers in used:
            assert name in existing, f"{name} in {query}"
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", matchers))
            assert labels <= existing[name], f"{labels} of {name} in {query}"
        for grouped in re.findall(r"by \(([^)]*)\)", query):
            names = {label.strip() for label in grouped.split(",")}
            assert any(names <= labels for labels in existing.values()), query
