"""Traces: a span for the request under the caller's, and in it queue, prefill and decode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pellucid.server.tracing import Traces
from tests.python.server.fake import FakeClient
from tests.python.server.running import Running

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "nobody may read it"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(
    exporter: InMemorySpanExporter,
    make_fake: Callable[..., FakeClient],
    serve: Callable[..., Running],
) -> Running:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return serve(make_fake(), traces=Traces(provider, "tiny"))


def spans_of(exporter: InMemorySpanExporter, server: Running) -> dict[str, ReadableSpan]:
    """By name, once the HTTP request's own has ended."""
    server.until(lambda: any(" /v1/" in s.name for s in exporter.get_finished_spans()))
    return {span.name: span for span in exporter.get_finished_spans()}


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_a_tree_of_spans(
    stream: bool, traced: Running, exporter: InMemorySpanExporter
) -> None:
    ask = {"prompt": SECRET, "max_tokens": 5, "stream": stream}
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "X-Request-Id": "mine"}
    traced.post("/v1/completions", ask, headers=headers)
    spans = spans_of(exporter, traced)
    http, whole = spans["POST /v1/completions"], spans["generate"]
    assert f"{http.context.trace_id:032x}" == TRACE
    assert f"{http.parent.span_id:016x}" == CALLER
    assert http.attributes["pellucid.request_id"] == "mine"
    assert http.attributes["http.response.status_code"] == 200
    assert whole.parent.span_id == http.context.span_id
    assert whole.attributes["gen_ai.usage.input_tokens"] == len(SECRET)
    assert whole.attributes["gen_ai.usage.output_tokens"] == 5
    assert whole.attributes["gen_ai.response.finish_reasons"] == ("length",)
    parts = [spans[name] for name in ("queue", "prefill", "decode")]
    assert all(part.parent.span_id == whole.context.span_id for part in parts)
    lengths = [round((part.end_time - part.start_time) / 1e6) for part in parts]
    assert lengths == [1, 10, 100]
    assert [part.start_time for part in parts[1:]] == [part.end_time for part in parts[:-1]]
    assert SECRET not in "".join(span.to_json() for span in spans.values())


def test_a_refusal_is_an_error_without_an_answer(
    traced: Running, exporter: InMemorySpanExporter
) -> None:
    traced.post("/v1/completions", {"prompt": "a", "max_tokens": "five"})
    spans = spans_of(exporter, traced)
    assert set(spans) == {"POST /v1/completions"}
    assert spans["POST /v1/completions"].attributes["http.response.status_code"] == 400
    assert spans["POST /v1/completions"].parent is None
