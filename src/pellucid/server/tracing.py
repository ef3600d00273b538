"""OpenTelemetry traces: a span for each request, and in it queue, prefill and decode.

An extra (`pip install pellucid[otel]`): the library is imported when traces are asked for. A
`traceparent` header is honoured. Spans say sizes, times and ends, never what was asked or answered.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import Increment
from pellucid.server.guard import Watched

_NS = 1_000_000_000


class Traces:
    """Makes spans with `provider`, an OpenTelemetry `TracerProvider`. A `Watcher`."""

    def __init__(self, provider: Any, model_name: str) -> None:
        from opentelemetry import context, propagate, trace

        self._context, self._propagate, self._trace = context, propagate, trace
        self._provider = provider
        self._tracer = provider.get_tracer("pellucid")
        self._model_name = model_name

    def serve(self, scope: Scope) -> tuple[Any, Any]:
        """A span for an HTTP request, made the current one. Returns it and what `left` needs."""
        headers = Headers(scope=scope)
        parent = self._propagate.extract(dict(headers))
        span = self._tracer.start_span(
            f"{scope['method']} {scope['path'][:200]}",
            context=parent,
            kind=self._trace.SpanKind.SERVER,
            attributes={
                "http.request.method": scope["method"],
                "url.path": scope["path"][:200],
                "pellucid.request_id": scope["state"]["request_id"],
            },
        )
        return span, self._context.attach(self._trace.set_span_in_context(span, parent))

    def left(self, span: Any, token: Any, status: int) -> None:
        """The HTTP request has ended."""
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end()
        self._context.detach(token)

    def began(self, request: Watched) -> None:
        request.context = self._context.get_current()

    def grew(self, request: Watched, increment: Increment, now: float) -> None:
        """Spans are made at the end, from the engine's own times."""

    def refused(self, reason: str) -> None:
        self._trace.get_current_span().add_event("refused", {"reason": reason})

    def ended(self, request: Watched, error: PellucidError | None) -> None:
        parent = request.context
        times = request.metrics
        attributes = {
            "gen_ai.request.model": self._model_name,
            "gen_ai.usage.input_tokens": len(request.prompt_token_ids),
            "gen_ai.response.finish_reasons": tuple(request.finish_reasons) or ("abort",),
        }
        if request.replica is not None:
            attributes["pellucid.replica"] = request.replica
        if times is not None:
            attributes["gen_ai.usage.output_tokens"] = times.generation_tokens
            attributes["pellucid.cached_tokens"] = times.cached_tokens
        span = self._tracer.start_span(
            "generate", parent, attributes=attributes, start_time=request.began_ns
        )
        if error is not None:
            span.set_status(self._trace.StatusCode.ERROR, str(error))
        if times is None:
            span.end()
            return
        inside = self._trace.set_span_in_context(span, parent)
        begin = request.began_ns
        ends = (times.queue_time, times.time_to_first_token, times.finished_time)
        for name, seconds in zip(("queue", "prefill", "decode"), ends, strict=True):
            end = max(begin, request.began_ns + int(seconds * _NS))
            self._tracer.start_span(name, inside, start_time=begin).end(end)
            begin = end
        span.end(begin)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class Traced:
    """An outer layer that gives each request its span."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        span, token = self._traces.serve(scope)
        status = 499

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._traces.left(span, token, status)


def traces_to(endpoint: str, model_name: str) -> Traces:
    """Traces that are sent to `endpoint` by OTLP over HTTP.

    Raises `BadInput` without the extra, and for what is no address.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(
            f"otlp_traces_endpoint {endpoint!r} is no address such as "
            "http://localhost:4318/v1/traces"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise BadInput(
            f"otlp_traces_endpoint needs the extra `otel`: pip install 'pellucid[otel]' ({error})"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "pellucid"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    return Traces(provider, model_name)
