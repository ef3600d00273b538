"""`pellucid batch`: requests from a file, answers to a file."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import find_model, json_option, model_option, named_model
from pellucid.cli.engine_options import EngineOptions, engine_options
from pellucid.cli.output import note, write_json
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid import AsyncLLM
    from pellucid.batch.index import Index
    from pellucid.batch.output import Output
    from pellucid.batch.run import Manner, Tally


@click.command(
    epilog='A line of IN: {"custom_id": ..., "method": "POST", "url": '
    '"/v1/chat/completions", "body": {...}}; also /v1/completions, /v1/responses and '
    "/v1/embeddings."
)
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@model_option
@click.option("--seed", type=int, default=0, show_default=True, help="Of lines that give none.")
@click.option(
    "--served-model-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="What lines call the model; may be repeated, the first is said back. [its name]",
)
@click.option("--lenient", is_flag=True, help="Leave out fields that are not honoured.")
@click.option("--max-num-seqs", type=int, help="Answers that run at once.")
@click.option("--max-num-batched-tokens", type=int, help="Positions of one step.")
@click.option("--ray", is_flag=True, help="Shard the lines over a cluster, with Ray Data.")
@click.option("--replicas", type=int, help="Engines in the cluster. [one for each node]")
@click.option(
    "--ray-address", metavar="ADDRESS", help="Of a Ray cluster: HOST:PORT, or auto. [its own]"
)
@engine_options
@json_option
def batch(
    source: str,
    target: str,
    model: str | None,
    seed: int,
    names: tuple[str, ...],
    lenient: bool,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    ray: bool,
    replicas: int | None,
    ray_address: str | None,
    engine: EngineOptions,
    json: bool,
) -> None:
    """Answer the requests of a file, in OpenAI's batch format.

    OUT gets a line for each line of IN, in the order in which they end. Given again after whatever
    stopped it, the same command does what is left.
    """
    from pellucid.batch.identity import model_digest
    from pellucid.batch.index import Index
    from pellucid.batch.output import Output
    from pellucid.batch.run import Manner
    from pellucid.engine.sizing import MAX_NUM_SEQS
    from pellucid.server.settings import RequestLimits

    begin = time.monotonic()
    limits = {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens}
    _check(limits, Path(source), Path(target))
    sharding = _sharding(ray, replicas, ray_address)
    index = Index(Path(source), RequestLimits().body_bytes)
    name = named_model(None, model)
    own_names = names or (Path(name).stem if name.endswith(".gguf") else name,)
    path = find_model(name, engine.offline)
    manner = Manner(
        model_digest(path),
        _settings_digest(engine, seed, own_names, lenient),
        seed,
        2 * (max_num_seqs or MAX_NUM_SEQS),
        lenient,
    )
    with Output(Path(target)) as output:
        index.strike_off(output, manner.model, manner.settings)
        n_before = index.n_done
        job = _Job(path, own_names, engine, limits, index, output, manner, sharding)
        tally = job.run()
    failed = index.n_failed + tally.failed
    note(f"{target}: {len(index)} lines" + (f", of which {failed} failed" if failed else ""))
    if json:
        write_json(
            {
                "input": source,
                "output": target,
                "model": own_names[0],
                "model_path": str(path),
                "lines": len(index),
                "failed": failed,
                "found_done": n_before,
                "written": tally.lines,
                "prompt_tokens": tally.prompt_tokens,
                "completion_tokens": tally.completion_tokens,
                "seconds": round(time.monotonic() - begin, 3),
            }
        )


@dataclass(frozen=True, slots=True)
class _Sharding:
    """Over how many engines of which cluster."""

    engines: int | None
    address: str | None


@dataclass(slots=True)
class _Job:
    """What is left of a batch."""

    path: Path
    names: tuple[str, ...]
    engine: EngineOptions
    limits: dict[str, int | None]
    index: Index
    output: Output
    manner: Manner
    sharding: _Sharding | None = None

    def run(self) -> Tally:
        """Does it. Raises as `Run.answer`."""
        from pellucid.batch.run import Tally

        tally = Tally()
        self._say_what_was_found()
        if self.index.n_done == len(self.index):
            return tally
        try:
            if self.sharding is None:
                self._answer(tally)
            else:
                self._answer_in_shards(self.sharding, tally)
        except KeyboardInterrupt:
            done = self.index.n_done + tally.lines
            note(
                f"stopped: {done} of {len(self.index)} lines are in {self.output.path}; the same "
                "command does the rest"
            )
            raise
        return tally

    def _answer(self, tally: Tally) -> None:
        from pellucid import AsyncLLM

        given: dict[str, Any] = {k: v for k, v in self.limits.items() if v is not None}
        llm = AsyncLLM(self.path, **self.engine.arguments(), **given)
        try:
            asyncio.run(self._answer_with(llm, tally))
        finally:
            llm.close()

    async def _answer_with(self, llm: AsyncLLM, tally: Tally) -> None:
        from pellucid.batch.run import Run
        from pellucid.engine.bar import progress_bar
        from pellucid.engine.client import LocalClient
        from pellucid.server.offline import Offline
        from pellucid.server.settings import Settings

        offline = Offline(LocalClient(llm), Settings(served_model_names=self.names))
        with progress_bar(llm, len(self.index), self.index.n_done) as ended:
            run = Run(offline, self.output, self.manner, ended, tally)
            await run.answer(self.index.undone())

    def _answer_in_shards(self, sharding: _Sharding, tally: Tally) -> None:
        from pellucid.distributed.cluster import connected

        with connected(sharding.address, sharding.engines or 1, "--ray") as cluster:
            from pellucid.batch.shards import ShardedRun, Shared
            from pellucid.distributed.shares import shared_out
            from pellucid.engine.bar import counting_bar

            engines = sharding.engines or cluster.workers
            given = {key: value for key, value in self.limits.items() if value is not None}
            arguments = {**self.engine.arguments(), **given}
            del arguments["progress"]  # theirs is nobody's to see
            arguments = shared_out(self.path, engines, cluster, arguments)
            shared = Shared(str(self.path), arguments, self.names, self.manner)
            with counting_bar(len(self.index), self.index.n_done) as ended:
                cpus = cluster.asks(arguments.get("threads"))
                run = ShardedRun(shared, self.output, engines, cpus, ended, tally)
                run.answer(self.index.undone())

    def _say_what_was_found(self) -> None:
        if self.output.n_cut:
            note(f"{self.output.path}: {self.output.n_cut} bytes of a line that was begun: redone")
        if self.index.n_done:
            note(f"{self.output.path}: {self.index.n_done} of {len(self.index)} lines are done")


def _sharding(ray: bool, engines: int | None, address: str | None) -> _Sharding | None:
    """Raises `BadInput` for what says how, without `ray`."""
    if not ray:
        if engines is not None or address is not None:
            raise BadInput("--replicas and --ray-address are for --ray: add it")
        return None
    if engines is not None and engines < 1:
        raise BadInput(f"--replicas must be at least 1, not {engines}")
    return _Sharding(engines, address)


def _check(limits: dict[str, int | None], source: Path, target: Path) -> None:
    """What can be said before anything is read. Raises `BadInput`."""
    from pellucid.batch.source import check_file
    from pellucid.engine.sizing import Asked

    if "-" in (str(source), str(target)):
        raise BadInput("-: a batch reads IN twice and OUT when it goes on: name two files")
    Asked(None, limits["max_num_seqs"], limits["max_num_batched_tokens"]).check()
    check_file(source)
    if target.exists() and target.samefile(source):
        raise BadInput(f"{target}: IN and OUT are the same file: give OUT another name")
    if not target.absolute().parent.is_dir():
        raise BadInput(f"{target}: there is no such folder: make it first")


def _settings_digest(
    engine: EngineOptions, seed: int, names: tuple[str, ...], lenient: bool
) -> bytes:
    """Of what decides answers; threads, limits, whether there is a cache and guesses do not, unless
    guesses are taken by rejection sampling."""
    from pellucid import __version__
    from pellucid.batch.identity import settings_digest

    ahead = engine.speculative
    settings: dict[str, Any] = {
        "version": __version__,
        "backend": engine.backend or "native",
        "quantization": engine.quantization,
        "kv_cache_dtype": engine.kv_cache_dtype,
        "activations": engine.activations,
        "speculative": ahead if ahead and ahead.get("rule") == "rejection" else None,
        "max_model_len": engine.max_model_len,
        "seed": seed,
        "names": names,
        "lenient": lenient,
    }
    return settings_digest(settings)
