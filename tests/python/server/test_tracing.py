"""Traces: a span for the request under the caller's, and in it queue, prefill and decode."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pellucid.core.errors import BadInput
from pellucid.server.tracing import Traces, traces_to
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


def test_a_collector_receives_them(
    make_fake: Callable[..., FakeClient], serve: Callable[..., Running]
) -> None:
    """Through the exporter that `otlp_traces_endpoint` sets up, as its bytes come over HTTP."""
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            zipped = self.headers.get("Content-Encoding") == "gzip"
            received.append(gzip.decompress(content) if zipped else content)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *said: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        traces = traces_to(f"http://127.0.0.1:{collector.server_port}/v1/traces", "tiny")
        server = serve(make_fake(), traces=traces)
        server.post("/v1/completions", {"prompt": SECRET, "max_tokens": 5})
        server.until(lambda: not server.client.live)
        server.close()
        traces.close()
        collector.shutdown()
    names = set()
    for content in received:
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            assert any(a.value.string_value == "pellucid" for a in resource.resource.attributes)
            names |= {span.name for scope in resource.scope_spans for span in scope.spans}
        assert SECRET.encode() not in content
    assert names == {"POST /v1/completions", "generate", "queue", "prefill", "decode"}


@pytest.mark.parametrize("endpoint", ["nonsense", "localhost:4318", "ftp://x/", "http://"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(BadInput, match="otlp_traces_endpoint"):
        traces_to(endpoint, "tiny")
