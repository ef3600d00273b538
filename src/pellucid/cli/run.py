"""`pellucid run`: one prompt, one answer, streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import sampling as flags
from pellucid.cli.answers import as_json, print_logprobs, say_statistics, say_why_it_ended
from pellucid.cli.arguments import (
    JsonOption,
    ModelOption,
    OfflineOption,
    split_words,
    text_or_input,
)
from pellucid.cli.engine_options import (
    Backend,
    EngineOptions,
    MaxModelLen,
    NoKvCache,
    Threads,
    Verbose,
)
from pellucid.cli.output import note, write, write_json
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid import LLM, RequestOutput, SamplingParams


def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [PROMPT]", help="Standard input without PROMPT, or for -."),
    ] = None,
    model: ModelOption = None,
    system: Annotated[str | None, typer.Option("--system", help="A system message.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Go on from the prompt as it is: no chat template.")
    ] = False,
    temperature: flags.Temperature = None,
    top_k: flags.TopK = None,
    top_p: flags.TopP = None,
    min_p: flags.MinP = None,
    repetition_penalty: flags.RepetitionPenalty = None,
    presence_penalty: flags.PresencePenalty = None,
    frequency_penalty: flags.FrequencyPenalty = None,
    logit_bias: flags.LogitBias = None,
    seed: flags.Seed = None,
    max_tokens: flags.MaxTokens = None,
    stop: flags.Stop = None,
    n: Annotated[int | None, typer.Option("--n", help="Answers to the same prompt. [1]")] = None,
    logprobs: Annotated[
        int | None,
        typer.Option("--logprobs", help="Show each token's log-probability and K alternatives."),
    ] = None,
    backend: Backend = None,
    threads: Threads = None,
    max_model_len: MaxModelLen = None,
    no_kv_cache: NoKvCache = False,
    offline: OfflineOption = False,
    json: JsonOption = False,
    verbose: Verbose = False,
) -> None:
    """Answer one prompt, as it comes.

    The prompt is a chat message where the model has a chat template, and plain text to go on from
    where it has none or with --raw. One line end at the end of standard input is not part of it.
    """
    name, text = split_words(words, model)
    prompt = _decode(text_or_input(text, "prompt"), strip_line_end=text is None or text == "-")
    if raw and system is not None:
        raise BadInput("--system needs the chat template and --raw does without: choose one")
    options = EngineOptions(backend, threads, max_model_len, not no_kv_cache, offline, verbose)
    given = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "logit_bias": logit_bias,
        "seed": seed,
        "max_tokens": max_tokens,
        "stop": stop,
        "n": n,
        "logprobs": logprobs,
    }
    _check_early(given)
    with options.open(name) as llm:
        params = flags.sampling_params(llm.get_default_sampling_params(), **given)
        asked = _as_prompt(llm, prompt, system, raw)
        output = _answer(llm, asked, params, show=not json)
        if json:
            write_json(as_json(name, llm, prompt, output, params))
            return
    if logprobs is not None:
        print_logprobs(output)
    say_why_it_ended(output, params)
    if verbose:
        note(f"sampling: {flags.in_effect(params)}")
        say_statistics(output)


def _check_early(given: dict[str, Any]) -> None:
    """A flag out of range is said at once, not after the model has been fetched and loaded."""
    from pellucid.core.params import SamplingParams

    flags.sampling_params(SamplingParams(), **given)


def _decode(data: bytes, *, strip_line_end: bool) -> str:
    text = data.decode("utf-8", "replace")
    return text.removesuffix("\n") if strip_line_end else text


def _as_prompt(llm: LLM, prompt: str, system: str | None, raw: bool) -> Any:
    """A conversation where there is a template for it, else the text."""
    if raw or not llm.has_chat_template:
        if system is not None:
            raise BadInput("--system: this model has no chat template that could carry it")
        return prompt
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": prompt}]


def _answer(llm: LLM, asked: Any, params: SamplingParams, *, show: bool) -> RequestOutput:
    """Runs it to its end. One answer is shown as it comes, several each when all are there."""
    with llm.stream(asked, params) as stream:
        for increment in stream:
            if show and params.n == 1:
                write(increment.text)
        output = stream.output()
    if show:
        write("\n" if params.n == 1 else _several(output))
    return output


def _several(output: RequestOutput) -> str:
    return "".join(f"[{answer.index}] {answer.text}\n" for answer in output.outputs)
