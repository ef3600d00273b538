"""Operation: from chosen options to a server that runs, and to its end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pellucid import __version__
from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.logs import LogForm
from pellucid.core.params import SamplingParams
from pellucid.distributed.wanted import Wanted
from pellucid.engine.client import EngineClient
from pellucid.engine.process.rest import at_rest
from pellucid.engine.sizing import MAX_NUM_SEQS
from pellucid.server.app import create_app
from pellucid.server.events import dumps
from pellucid.server.guard import GuardLimits
from pellucid.server.live.about import about_json
from pellucid.server.live.hub import Hub
from pellucid.server.live.recording import Recorder
from pellucid.server.options import Chosen, speculation_of
from pellucid.server.params import sampling_in_effect
from pellucid.server.serving import address, allow_connections, listen, serve, tell_supervisor
from pellucid.server.settings import RequestLimits, Settings
from pellucid.server.tracing import Traces, traces_to

logger = logging.getLogger("pellucid.server")

# That a replica is asked beside answers: how it is, what it records, embeddings.
_CALLS: Final = 256

# An engine's argument: the option that sets it. What is None is the engine's to choose.
_ENGINE = {
    "backend": "backend",
    "threads": "threads",
    "quantization": "quantization",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "kv_cache_dtype": "kv_cache_dtype",
    "activations": "activations",
    "kv_cache_memory_bytes": "kv_cache_memory",
    "enable_prefix_caching": "enable_prefix_caching",
    "seed": "seed",
}
_LIMITS = {
    "body_bytes": "max_body_size",
    "prompts": "max_prompts",
    "n": "max_n",
    "choices": "max_choices",
    "logprobs": "max_logprobs",
    "stop_strings": "max_stop_strings",
    "stop_length": "max_stop_length",
    "stop_token_ids": "max_stop_token_ids",
    "bias_entries": "max_bias_entries",
    "schema_bytes": "max_schema_size",
    "schema_depth": "max_schema_depth",
    "tools": "max_tools",
}


def settings_of(chosen: Chosen, own_name: str) -> Settings:
    """What the application is told. `own_name` is the model's, where no other was given."""
    wanted = replicas_wanted(chosen)
    return Settings(
        served_model_names=chosen["served_model_name"] or (own_name,),
        api_keys=chosen["api_key"],
        allowed_origins=chosen["allowed_origins"],
        limits=RequestLimits(**{limit: chosen[name] for limit, name in _LIMITS.items()}),
        keep_alive_s=chosen["keep_alive_interval"],
        stalled_client_s=chosen["stalled_client_timeout"],
        guard=GuardLimits(
            running=(chosen["max_num_seqs"] or MAX_NUM_SEQS) * (wanted.most if wanted else 1),
            queued=chosen["max_num_queued_reqs"],
            queued_tokens=chosen["max_num_queued_tokens"],
            timeout_s=chosen["request_timeout"],
        ),
        access_log=chosen["access_log"],
        log_prompts=chosen["log_prompts"],
        show_prompts=chosen["show_prompts"],
    )


def engine_arguments(chosen: Chosen) -> dict[str, Any]:
    """What the engine is told. Raises `BadInput` for a template that cannot be read."""
    arguments = {argument: chosen[name] for argument, name in _ENGINE.items()}
    arguments["speculative"] = speculation_of(chosen)
    if chosen["chat_template"] is not None:
        arguments["chat_template"] = _read(chosen["chat_template"])
    return {name: value for name, value in arguments.items() if value is not None}


async def operate(path: Path, own_name: str, chosen: Chosen) -> None:
    """Serve the model at `path` until a signal. Raises what keeps it from starting."""
    settings = settings_of(chosen, own_name)
    arguments = engine_arguments(chosen)
    endpoint = chosen["otlp_traces_endpoint"]
    traces = None if endpoint is None else traces_to(endpoint, settings.model_name)
    allow_connections()
    bound = listen(chosen["host"], chosen["port"])  # a port that is taken is said at once
    try:
        recorder = None if chosen["record"] is None else Recorder(Path(chosen["record"]))
        _say_choices(path, chosen)
        async with _engine(path, chosen, arguments) as client:
            await _serve(client, settings, traces, recorder, bound, chosen)
    finally:
        bound.close()
        if traces is not None:
            await asyncio.to_thread(traces.close)
    logger.info("ended")


def replicas_wanted(chosen: Chosen) -> Wanted | None:
    """How many replicas on Ray, None for an engine without Ray. Raises `BadInput`."""
    count, least, most = (chosen[f"{name}replicas"] for name in ("", "min_", "max_"))
    stages = chosen["pipeline_parallel_size"]
    if (count, least, most) == (None, None, None) and (stages or chosen["ray_address"] is None):
        return None
    if stages:
        raise BadInput(
            "replicas of a model in stages are not there: choose replicas or pipeline_parallel_size"
        )
    if count is not None and (least, most) != (None, None):
        raise BadInput("replicas is a fixed number: leave min_replicas and max_replicas out")
    least = count or least or 1
    running = chosen["max_num_seqs"] or MAX_NUM_SEQS
    wanted = Wanted(
        least,
        count or most or least,
        address=chosen["ray_address"],
        policy=chosen["routing"],
        requests=running + chosen["max_num_queued_reqs"] + _CALLS,
        target=0.75 * running,
        start_wait_s=chosen["engine_start_wait"],
        hang_s=chosen["engine_hang_timeout"],
        drain_s=chosen["shutdown_timeout"],
    )
    wanted.check()
    return wanted


@contextlib.asynccontextmanager
async def _engine(
    path: Path, chosen: Chosen, arguments: dict[str, Any]
) -> AsyncIterator[EngineClient]:
    """Whatever answers, as long as this lasts."""
    wanted = replicas_wanted(chosen)
    if wanted is not None:
        from pellucid.distributed.serving import replicas

        log = LogForm(chosen["log_level"], chosen["log_format"])
        async with replicas(path, wanted, log, arguments, "--replicas") as found:
            yield found
        return
    if chosen["pipeline_parallel_size"]:
        with _in_stages(chosen, arguments) as arguments:
            async with _one(path, chosen, arguments) as one:
                yield one
        return
    async with _one(path, chosen, arguments) as one:
        yield one


@contextlib.contextmanager
def _in_stages(chosen: Chosen, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What has an engine's model cut into stages, and a cluster for them: it outlives an engine
    that is started again."""
    from pellucid.distributed.cluster import connected
    from pellucid.distributed.pipeline.llm import PipelineLLM, check_stages

    stages = chosen["pipeline_parallel_size"]
    check_stages(stages, arguments)
    with connected(chosen["ray_address"], stages, "--pipeline-parallel-size") as cluster:
        cpus = cluster.asks(arguments.get("threads"))
        cluster.check_room(stages, cpus, "stages")
        yield {
            **arguments,
            "kind": PipelineLLM.connect,
            "stages": stages,
            "cpus": cpus,
            "ray_address": cluster.address,
        }


@contextlib.asynccontextmanager
async def _one(
    path: Path, chosen: Chosen, arguments: dict[str, Any]
) -> AsyncIterator[EngineClient]:
    client = await _client(path, chosen, arguments)
    try:
        yield client
    finally:
        await client.close()


async def _client(path: Path, chosen: Chosen, arguments: dict[str, Any]) -> EngineClient:
    if not chosen["engine_process"]:
        from pellucid.engine.async_llm import AsyncLLM
        from pellucid.engine.client import LocalClient

        llm = await asyncio.to_thread(AsyncLLM, path, progress=_Notes(), **arguments)
        return LocalClient(llm)
    from pellucid.engine.process.client import ProcessClient
    from pellucid.engine.process.supervisor import Patience

    return await ProcessClient.start(
        path,
        note=_say_nothing,  # the engine logs it itself
        log=LogForm(chosen["log_level"], chosen["log_format"]),
        patience=Patience(
            start_wait_s=chosen["engine_start_wait"], hang_s=chosen["engine_hang_timeout"]
        ),
        **arguments,
    )


async def _serve(
    client: EngineClient,
    settings: Settings,
    traces: Traces | None,
    recorder: Recorder | None,
    bound: Any,
    chosen: Chosen,
) -> None:
    await _measure(client)
    app = create_app(client, settings, traces)
    _say_defaults(client)

    def ready() -> None:
        url = address(bound)
        logger.info("listening", extra={"url": url, "model": settings.model_name})
        tell_supervisor("READY=1")

    hub: Hub = app.state.hub
    if recorder is not None:
        about = about_json(await hub.about(), settings.model_name, settings.show_prompts)
        recorder.start(hub, dumps(about))
    with at_rest(), _rolled_at_hangup(client):
        await serve(app, bound, ready=ready, shutdown_timeout_s=chosen["shutdown_timeout"])
    if recorder is not None:
        await recorder.finish(hub)


@contextlib.contextmanager
def _rolled_at_hangup(client: EngineClient) -> Iterator[None]:
    """SIGHUP has replicas replaced; without replicas it means what it always does."""
    roll = getattr(client, "roll", None)
    if roll is None:
        yield
        return
    rolling: list[asyncio.Task[None]] = []

    def begin() -> None:
        if not rolling or rolling[-1].done():
            logger.info("replicas are replaced, some at a time")
            rolling[:] = [asyncio.ensure_future(_rolled(roll))]

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, begin)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for task in rolling:
            task.cancel()


async def _rolled(roll: Callable[[], Awaitable[None]]) -> None:
    try:
        await roll()
        logger.info("the replicas were replaced")
    except PellucidError as error:
        logger.error("the replicas were not replaced: %s", error)


async def _measure(client: EngineClient) -> None:
    """The machine's peaks, for whoever looks at the live pages; without them all else works."""
    try:
        await client.measure_machine()
    except Exception:
        logger.exception("the machine's peaks could not be measured")


def _say_choices(path: Path, chosen: Chosen) -> None:
    logger.info("pellucid %s serves %s", __version__, path, extra=chosen.told())
    if not chosen["api_key"] and not _is_loopback(chosen["host"]):
        logger.warning("anybody who reaches %s may use it: no api_key is set", chosen["host"])


def _say_defaults(client: EngineClient) -> None:
    """Whose sampling defaults apply, and what they are."""
    ours = SamplingParams()
    given = client.model.default_params
    own = [
        name
        for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
        if getattr(given, name) != getattr(ours, name)
    ]
    whose = f"the model's own for {', '.join(own)}, else OpenAI's" if own else "OpenAI's"
    logger.info("sampling defaults: %s", whose, extra=sampling_in_effect(given))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Notes:
    """What an engine in this process decides goes to the log."""

    def note(self, message: str) -> None:
        logger.info(message)

    def bar(self, label: str, total: int) -> Any:
        from pellucid.hub import SilentProgress

        return SilentProgress().bar(label, total)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: a chat template is UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def _say_nothing(message: str) -> None:
    del message
