"""The flags that say how a model is run, and the engine made from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import find_model, offline_option
from pellucid.cli.output import note
from pellucid.core.errors import BadInput
from pellucid.speculation.settings import FIELDS, from_flags

if TYPE_CHECKING:
    from pellucid import LLM

backend_option = click.option(
    "--backend", metavar="NAME", help="What computes: native or reference. [native]"
)
kv_cache_dtype_option = click.option(
    "--kv-cache-dtype",
    metavar="TYPE",
    help="Keys and values: f32, f16, int8, int4, or two as int8/int4. [f16]",
)
activations_option = click.option(
    "--activations",
    metavar="TYPE",
    help="What products of quantised weights read: int8, bf16 or f32. [int8]",
)
threads_option = click.option("--threads", type=int, help="Threads to compute with. [all cores]")
quantization_option = click.option(
    "--quantization",
    metavar="TYPE",
    help="Quantise matrices in f32, f16 or bf16 at load: q8_0, q4_k_m and others.",
)

_SPECULATIVE = (
    click.option(
        "--speculative-method",
        metavar="NAME",
        help="Guess tokens ahead: ngram, draft or early-exit. Answers stay the same.",
    ),
    click.option(
        "--speculative-model", metavar="MODEL", help="A smaller model that guesses, for draft."
    ),
    click.option("--speculative-tokens", type=int, metavar="N", help="The most guessed at once."),
    click.option(
        "--speculative-rule",
        metavar="NAME",
        help="exact: the very answer; rejection: its distribution. [exact]",
    ),
    click.option(
        "--speculative-layers", type=int, metavar="N", help="Layers that guess, for early-exit."
    ),
    click.option(
        "--speculative-quantization", metavar="TYPE", help="Of the draft's weights. [as stored]"
    ),
    click.option(
        "--speculative-vocabulary",
        type=int,
        metavar="N",
        help="First tokens that the draft scores.",
    ),
    click.option(
        "--speculative-adaptive/--no-speculative-adaptive",
        default=True,
        help="As long a draft as pays, or always the most. [as pays]",
    ),
)


def speculative_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags of guessing; the command is given what they say as `speculative`, as
    `from_flags` makes it."""

    @wraps(command)
    def gathered(**given: Any) -> Any:
        flags = {name: given.pop(f"speculative_{name}") for name in FIELDS}
        return command(speculative=from_flags(flags), **given)

    for option in reversed(_SPECULATIVE):
        gathered = option(gathered)
    return gathered


_OPTIONS = (
    backend_option,
    threads_option,
    kv_cache_dtype_option,
    activations_option,
    quantization_option,
    speculative_options,
    click.option("--max-model-len", type=int, help="Context: prompt and answer. [the model's]"),
    click.option(
        "--no-kv-cache",
        is_flag=True,
        help="Compute everything anew for each token: the naive loop.",
    ),
    offline_option,
    click.option(
        "--verbose", "-v", is_flag=True, help="Say on standard error what is decided and used."
    ),
)

_PIPELINE = (
    click.option(
        "--pipeline-parallel-size",
        type=int,
        metavar="N",
        help="Cut the model into N stages, each a process with some of its layers, on Ray. [no]",
    ),
    click.option(
        "--ray-address", metavar="ADDRESS", help="A Ray cluster for them: HOST:PORT, or auto."
    ),
)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags; the command is given them as one `EngineOptions`, named `engine`."""

    @wraps(command)
    def gathered(
        backend: str | None,
        threads: int | None,
        kv_cache_dtype: str | None,
        activations: str | None,
        quantization: str | None,
        speculative: dict[str, Any] | None,
        max_model_len: int | None,
        no_kv_cache: bool,
        offline: bool,
        verbose: bool,
        **others: Any,
    ) -> Any:
        engine = EngineOptions(
            backend,
            threads,
            kv_cache_dtype,
            activations,
            quantization,
            max_model_len,
            not no_kv_cache,
            offline,
            verbose,
            speculative,
        )
        return command(engine=engine, **others)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered


def pipeline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags that cut a model into stages, below `engine_options`."""

    @wraps(command)
    def gathered(
        engine: EngineOptions,
        pipeline_parallel_size: int | None,
        ray_address: str | None,
        **others: Any,
    ) -> Any:
        if pipeline_parallel_size is None and ray_address is not None:
            raise BadInput("--ray-address is for --pipeline-parallel-size: add it")
        engine = replace(engine, stages=pipeline_parallel_size, ray_address=ray_address)
        return command(engine=engine, **others)

    for option in reversed(_PIPELINE):
        gathered = option(gathered)
    return gathered


@dataclass(frozen=True, slots=True)
class EngineOptions:
    backend: str | None = None
    threads: int | None = None
    kv_cache_dtype: str | None = None
    activations: str | None = None
    quantization: str | None = None
    max_model_len: int | None = None
    kv_cache: bool = True
    offline: bool = False
    verbose: bool = False
    speculative: dict[str, Any] | None = None
    stages: int | None = None
    ray_address: str | None = None

    def open(self, model: str) -> LLM:
        """The model, ready. Raises what finding, opening and loading it raise."""
        if self.stages is not None:
            return self._open_in_stages(model, self.stages)
        from pellucid import LLM

        return LLM(find_model(model, self.offline), **self.arguments())

    def _open_in_stages(self, model: str, stages: int) -> LLM:
        from pellucid.distributed.pipeline.llm import PipelineLLM

        return PipelineLLM.connect(
            find_model(model, self.offline),
            stages=stages,
            ray_address=self.ray_address,
            **self.arguments(),
        )

    def arguments(self) -> dict[str, Any]:
        """What was asked for, as `LLM` takes it."""
        wishes: dict[str, Any] = {
            "backend": self.backend,
            "threads": self.threads,
            "kv_cache_dtype": self.kv_cache_dtype,
            "activations": self.activations,
            "quantization": self.quantization,
            "max_model_len": self.max_model_len,
            "speculative": self.speculative,
        }
        given = {name: value for name, value in wishes.items() if value is not None}
        return {"kv_cache": self.kv_cache, "progress": _Loading(self.verbose), **given}


class _Loading:
    """What the engine says and shows while it loads."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose

    def note(self, message: str) -> None:
        if self._verbose:
            note(message)

    def bar(self, label: str, total: int) -> Any:
        from pellucid.hub import TerminalProgress

        return TerminalProgress().bar(label, total)
