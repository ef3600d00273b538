"""Metrics for Prometheus: names end as vLLM's, so that its dashboards port by one replacement.

The engine's own counts are read at each scrape; an engine that was started again begins at zero,
and only what it adds is counted here, so that no counter falls. Times of requests are the
engine's (`RequestMetrics`); the time between tokens is as a reader sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment
from pellucid.distributed.report import Fleet
from pellucid.engine.records import EngineAbout
from pellucid.engine.stats import RESIDENCY_SECONDS, STEP_SIZES, EngineStats
from pellucid.server.counted import Counted
from pellucid.server.fleet import FleetMetrics
from pellucid.server.guard import Watched
from pellucid.server.rising import Rising
from pellucid.server.tallies import Tally

_NOTHING: Final = 0.0, 0

PREFIX: Final = "pellucid_"
ENDS: Final = ("stop", "length", "abort", "error")
REFUSALS: Final = ("queue_full", "queue_tokens")
LABELS: Final = ("model_name", "engine")
CACHE_LABELS: Final = ("block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching")
"""vLLM's names, whatever the blocks lie in."""

# Seconds. From what one person alone sees to what a full queue does.
FIRST_TOKEN: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
BETWEEN_TOKENS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
WHOLE_REQUEST: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


class Metrics:
    """Everything that `/metrics` says of one server. A `Watcher` of its requests."""

    def __init__(self, model_name: str, max_model_len: int) -> None:
        self.registry = CollectorRegistry()
        self._of = {"model_name": model_name, "engine": "0"}
        self._running = self._gauge("num_requests_running", "Answers that the engine computes.")
        self._waiting = self._gauge("num_requests_waiting", "Answers that wait for the engine.")
        self._usage = self._gauge(
            "kv_cache_usage_perc", "Share of the KV cache's pages that requests own, 0 to 1."
        )
        self._tasks = self._gauge("event_loop_tasks", "Tasks of the server's event loop.")
        self._up = self._gauge("engine_up", "1 if there is an engine that answers.")
        self._pages = self._gauge("kv_cache_pages", "Pages of the KV cache.", "state")
        self._engine_counts = Rising(
            {
                field: self._counter(name, words)
                for field, name, words in (
                    ("prefix_queries", "prefix_cache_queries", "Tokens looked up in the cache."),
                    ("prefix_hits", "prefix_cache_hits", "Tokens found in the cache."),
                    ("preemptions", "num_preemptions", "Answers preempted."),
                    ("steps", "engine_steps", "Steps of the engine."),
                    ("positions_computed", "engine_positions", "Positions computed."),
                    ("drafts", "spec_decode_num_drafts", "Drafts checked."),
                    ("draft_tokens", "spec_decode_num_draft_tokens", "Tokens guessed."),
                    ("accepted_tokens", "spec_decode_num_accepted_tokens", "And accepted."),
                    ("draft_seconds", "spec_decode_draft_seconds", "Seconds spent guessing."),
                )
            }
        )
        # At most as many positions as a draft may have.
        self._by_place = [
            self._counter(f"spec_decode_num_{what}_tokens_per_pos", words, "position")
            for what, words in (
                ("draft", "Tokens guessed, by place in the draft."),
                ("accepted", "And accepted."),
            )
        ]
        self._places: list[list[Rising]] = [[], []]
        self._won = self._gauge(
            "spec_decode_seconds_won", "Seconds won by guessing, less those lost; an estimate."
        )
        self._iterations = self._counted(
            "iteration_tokens_total", "Tokens computed in one step.", STEP_SIZES
        )
        self._residency = [
            self._counted(f"kv_block_{name}_seconds", words, RESIDENCY_SECONDS)
            for name, words in (
                ("lifetime", "Of a page, from when it was taken to its eviction."),
                ("idle_before_evict", "From a page's last use to its eviction."),
                ("reuse_gap", "From one sharing of a page to the next."),
            )
        ]
        self.knows_cache = False
        self._cache = Gauge(
            PREFIX + "cache_config_info",
            "What the KV cache is, in labels; always 1.",
            (*LABELS, *CACHE_LABELS),
            registry=self.registry,
        )
        restarts = self._counter("engine_restarts", "Engines started after the first.")
        self._restarts = Rising({"restarts": restarts})
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts, cached or not.")
        self._answer_tokens = self._counter("generation_tokens", "Tokens of answers.")
        self._ended = self._counter(
            "request_success", "Answers that ended, by how they did.", "finished_reason"
        )
        self._refused = self._counter("admission_rejections", "Requests refused.", "reason")
        for reason in ENDS:  # a series that is not there cannot be asked about
            self._ended.labels(**self._of, finished_reason=reason)
        for reason in REFUSALS:
            self._refused.labels(**self._of, reason=reason)
        counts = _one_two_five(max_model_len)
        self._first = self._histogram("time_to_first_token_seconds", "To the first.", FIRST_TOKEN)
        self._between = Tally(
            PREFIX + "inter_token_latency_seconds",
            "From a token of an answer to the next.",
            BETWEEN_TOKENS,
            LABELS,
            tuple(self._of.values()),
        )
        self.registry.register(self._between)
        self._whole = self._histogram(
            "e2e_request_latency_seconds", "From arrival to the end.", WHOLE_REQUEST
        )
        self._queue = self._histogram(
            "request_queue_time_seconds", "Until it is computed.", WHOLE_REQUEST
        )
        self._prefill = self._histogram(
            "request_prefill_time_seconds", "From there to the first token.", WHOLE_REQUEST
        )
        self._decode = self._histogram(
            "request_decode_time_seconds", "From the first token to the end.", WHOLE_REQUEST
        )
        self._inference = self._histogram(
            "request_inference_time_seconds", "Prefill and decode.", WHOLE_REQUEST
        )
        self._prompt_sizes = self._histogram("request_prompt_tokens", "Of one request.", counts)
        self._answer_sizes = self._histogram("request_generation_tokens", "Of one request.", counts)
        self._computed_sizes = self._histogram(
            "request_prefill_kv_computed_tokens", "Of one prompt, not found in the cache.", counts
        )
        self._longest = self._histogram(
            "request_max_num_generation_tokens", "Of the longest answer of one request.", counts
        )
        self._pace = self._histogram(
            "request_time_per_output_token_seconds",
            "After the first, the mean of one request.",
            BETWEEN_TOKENS,
        )
        self._ns = self._histogram("request_params_n", "Answers asked for.", (1, 2, 5, 10, 20))
        self._limits = self._histogram("request_params_max_tokens", "Asked for.", counts)
        self._http = Counter(
            PREFIX + "http_requests",
            "HTTP requests.",
            ("handler", "method", "status"),
            registry=self.registry,
        )
        self._growing: dict[str, dict[int, tuple[float, int]]] = {}
        """Of each answer under way when it grew last, and its tokens; by request."""
        self._fleet: FleetMetrics | None = None
        self._uncounted = 0  # tokens of answers

    def page(self, accept: str) -> tuple[bytes, str]:
        """The metrics as text in a form that `accept` names, and its content type."""
        self._answer_tokens.inc(self._uncounted)
        self._uncounted = 0
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def tasks(self, count: int) -> None:
        """Of the event loop, now: a number that only grows is a leak."""
        self._tasks.set(count)

    def engine(self, stats: EngineStats | None, restarts: int) -> None:
        """The engine's own numbers; None if it does not answer."""
        self._up.set(stats is not None)
        self._restarts.read({"restarts": restarts})
        if stats is None:
            for gauge in (self._running, self._waiting, self._usage):
                gauge.set(0)
            return
        self._running.set(stats.running_sequences)
        self._waiting.set(stats.waiting_sequences)
        pages = {
            "free": stats.pages_free,
            "cached": stats.pages_cached,
            "owned": stats.pages_owned,
        }
        for state, count in pages.items():
            self._pages.labels(**self._of, state=state).set(count)
        self._usage.set(stats.pages_owned / max(1, sum(pages.values())))
        self._engine_counts.read(asdict(stats))
        self._iterations.read(stats.step_sizes, stats.positions_computed)
        told = stats.page_lifetimes, stats.page_idle, stats.page_reuse_gaps
        for histogram, durations in zip(self._residency, told, strict=True):
            histogram.read(*durations)
        self._won.set(stats.seconds_won)
        for counter, places, counts in zip(
            self._by_place, self._places, (stats.guessed_at, stats.accepted_at), strict=True
        ):
            for place, count in enumerate(counts):
                if place == len(places):
                    of_place = counter.labels(**self._of, position=str(place))
                    places.append(Rising({"tokens": of_place}))
                places[place].read({"tokens": count})

    def fleet(self, fleet: Fleet) -> None:
        """The replicas, where there are some."""
        if self._fleet is None:
            self._fleet = FleetMetrics(self.registry, PREFIX, self._of["model_name"])
        self._fleet.see(fleet)

    def cache(self, about: EngineAbout) -> None:
        """What the engine's KV cache is."""
        limits = about.limits
        values = (limits.page_size, limits.n_pages, about.kv_dtype, limits.prefix_caching)
        self.knows_cache = True
        self._cache.labels(
            **self._of, **dict(zip(CACHE_LABELS, map(str, values), strict=True))
        ).set(1)

    def answered(self, handler: str, method: str, status: int) -> None:
        """An HTTP request was."""
        self._http.labels(handler, method, str(status)).inc()

    def began(self, request: Watched) -> None:
        self._prompt_tokens.inc(len(request.prompt_token_ids))
        self._prompt_sizes.observe(len(request.prompt_token_ids))
        self._ns.observe(request.params.n)
        if request.params.max_tokens is not None:
            self._limits.observe(request.params.max_tokens)

    def grew(self, request: Watched, increment: Increment, now: float) -> None:
        n_tokens = len(increment.token_ids)
        if not n_tokens:
            return
        self._uncounted += n_tokens
        answers = self._growing.setdefault(request.request_id, {})
        last, size = answers.get(increment.index, _NOTHING)
        if size:
            self._between.observe((now - last) / n_tokens)
        answers[increment.index] = now, size + n_tokens

    def ended(self, request: Watched, error: PellucidError | None) -> None:
        sizes = [size for _, size in self._growing.pop(request.request_id, {}).values()]
        longest = max(sizes, default=0)
        for reason in request.finish_reasons:
            self._ended.labels(**self._of, finished_reason=reason).inc()
        unfinished = request.params.n - len(request.finish_reasons)
        reason = "abort" if error is None else "error"
        self._ended.labels(**self._of, finished_reason=reason).inc(unfinished)
        times = request.metrics
        if times is None:
            return
        self._first.observe(times.time_to_first_token)
        self._whole.observe(times.finished_time)
        self._queue.observe(times.queue_time)
        self._prefill.observe(times.time_to_first_token - times.queue_time)
        self._decode.observe(times.finished_time - times.time_to_first_token)
        self._inference.observe(times.finished_time - times.queue_time)
        self._answer_sizes.observe(times.generation_tokens)
        self._computed_sizes.observe(times.prompt_tokens - times.cached_tokens)
        self._longest.observe(longest)
        if longest > 1:  # answers of one request go on side by side
            self._pace.observe((times.finished_time - times.time_to_first_token) / (longest - 1))

    def refused(self, reason: str) -> None:
        self._refused.labels(**self._of, reason=reason).inc()

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        named = self._named(name, words, labels)
        gauge = Gauge(*named, registry=self.registry)
        return gauge if labels else gauge.labels(**self._of)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        named = self._named(name, words, labels)
        counter = Counter(*named, registry=self.registry)
        return counter if labels else counter.labels(**self._of)

    def _histogram(self, name: str, words: str, buckets: Sequence[float]) -> Histogram:
        named = self._named(name, words, ())
        return Histogram(*named, registry=self.registry, buckets=buckets).labels(**self._of)

    def _counted(self, name: str, words: str, bounds: Sequence[float]) -> Counted:
        counted = Counted(PREFIX + name, words, bounds, LABELS, tuple(self._of.values()))
        self.registry.register(counted)
        return counted

    def _named(
        self, name: str, words: str, labels: Sequence[str]
    ) -> tuple[str, str, tuple[str, ...]]:
        return PREFIX + name, words, (*LABELS, *labels)


def _one_two_five(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, ... up to what holds `most`."""
    found: list[int] = []
    for power in range(12):
        for digit in (1, 2, 5):
            found.append(digit * 10**power)
            if found[-1] >= most:
                return tuple(found)
    return tuple(found)
