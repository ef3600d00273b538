"""`pellucid run`: one prompt, one answer, streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pellucid.cli import sampling as flags
from pellucid.cli.answers import as_json, print_logprobs, say_statistics, say_why_it_ended
from pellucid.cli.arguments import json_option, model_option, split_words, text_or_input
from pellucid.cli.engine_options import EngineOptions, engine_options, pipeline_options
from pellucid.cli.output import note, write, write_json
from pellucid.cli.structure import structure_options, structured_outputs
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid import LLM, RequestOutput, SamplingParams


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]")
@model_option
@click.option("--system", help="A system message.")
@click.option("--raw", is_flag=True, help="Go on from the prompt as it is: no chat template.")
@flags.sampling_options
@structure_options
@click.option("--n", type=int, help="Answers to the same prompt. [1]")
@click.option("--logprobs", type=int, help="Show each token's log-probability and K alternatives.")
@engine_options
@pipeline_options
@json_option
def run(
    words: tuple[str, ...],
    model: str | None,
    system: str | None,
    raw: bool,
    engine: EngineOptions,
    json: bool,
    json_schema: str | None,
    regex: str | None,
    choice: tuple[str, ...],
    grammar: str | None,
    **sampling: Any,
) -> None:
    """Answer one prompt, as it comes.

    The prompt is a chat message where the model has a chat template, and plain text to go on from
    where it has none or with --raw. Without PROMPT, or for -, it is read from standard input; one
    line end at its end is not part of it.
    """
    name, text = split_words(words, model)
    prompt = _prompt(text)
    if raw and system is not None:
        raise BadInput("--system needs the chat template and --raw does without: choose one")
    sampling["structured_outputs"] = structured_outputs(json_schema, regex, choice, grammar)
    flags.check_early(sampling)
    with engine.open(name) as llm:
        params = flags.sampling_params(llm.get_default_sampling_params(), **sampling)
        asked = _as_prompt(llm, prompt, system, raw)
        output = _answer(llm, asked, params, show=not json)
        if json:
            write_json(as_json(name, llm, prompt, output, params))
            return
    if params.logprobs is not None:
        print_logprobs(output)
    say_why_it_ended(output, params)
    if engine.verbose:
        note(f"sampling: {flags.in_effect(params)}")
        say_statistics(output)


def _prompt(text: str | None) -> str:
    """What was given, or is read from standard input. Raises `BadInput` where there is nothing."""
    prompt = text_or_input(text, "prompt").decode("utf-8", "replace")
    if text is not None and text != "-":
        return prompt
    if not prompt:
        raise BadInput("there is no prompt: give one in quotes, or write it to standard input")
    return prompt.removesuffix("\n")


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
