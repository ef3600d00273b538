"""`pellucid explain`: where an answer comes from, what it costs, and what would change that."""

from __future__ import annotations

from pathlib import Path

import click

from pellucid.cli.arguments import (
    find_config,
    find_model,
    json_option,
    model_option,
    offline_option,
    split_words,
    text_or_input,
)
from pellucid.cli.engine_options import (
    backend_option,
    kv_cache_dtype_option,
    threads_option,
)
from pellucid.cli.output import note, write, write_json
from pellucid.core.errors import BadInput


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]")
@model_option
@click.option(
    "--tokens",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=16,
    show_default=True,
    help="Tokens of the answer that is timed.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 100),
    metavar="N",
    default=5,
    show_default=True,
    help="Likeliest next tokens to show.",
)
@click.option("--layer", type=int, metavar="N", help="Layer to show attention of. [most focused]")
@click.option("--head", type=int, metavar="N", help="Head to show attention of. [most focused]")
@click.option(
    "--follow", metavar="TEXT", help="Token to follow through the layers. [the likeliest]"
)
@click.option(
    "--position",
    type=int,
    metavar="N",
    help="Token of the prompt to look after, from 0; -1 is the last. [the last]",
)
@click.option("--measure", is_flag=True, help="Measure here what would change it: takes seconds.")
@click.option("--draft", metavar="MODEL", help="A smaller model that could guess ahead.")
@click.option(
    "--hardware",
    metavar="NAME",
    help="Predict for a machine not at hand: h100, epyc-9654, 3TB/s, ... Needs no weights and no "
    "prompt.",
)
@click.option("--bits", type=float, metavar="N", help="Bits of each weight, for --hardware.")
@click.option(
    "--context",
    type=click.IntRange(1, 1 << 31),
    metavar="N",
    help="Positions, for --hardware. [the prompt's, or 1024]",
)
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write one page, all in it."
)
@backend_option
@threads_option
@kv_cache_dtype_option
@offline_option
@json_option
def explain(
    words: tuple[str, ...],
    model: str | None,
    tokens: int,
    top: int,
    layer: int | None,
    head: int | None,
    follow: str | None,
    position: int | None,
    measure: bool,
    draft: str | None,
    hardware: str | None,
    bits: float | None,
    context: int | None,
    html: Path | None,
    backend: str | None,
    threads: int | None,
    kv_cache_dtype: str | None,
    offline: bool,
    json: bool,
) -> None:
    """Show where an answer comes from, what it costs, and what would change that.

    The next token, layer by layer; what a head looks at; where the time of the first token and of
    each later one goes; arithmetic and bytes beside what the machine can do; the KV cache. The
    prompt is read as it stands, without a chat template.
    """
    from pellucid.cli.explanation import draw
    from pellucid.explain import Wishes, find_hardware, to_json
    from pellucid.explain import explain as make
    from pellucid.explain.page import page

    if html is not None:
        check_output(html)
    machine = None if hardware is None else find_hardware(hardware)
    name, prompt = split_words(words, model)
    if machine is None or prompt is not None:
        prompt = text_or_input(prompt, "prompt").decode("utf-8", "replace")
    wishes = Wishes(
        top,
        tokens,
        layer,
        head,
        follow,
        measure,
        machine,
        bits,
        context,
        backend or "native",
        threads,
        None if draft is None else find_model(draft, offline),
        kv_cache_dtype,
        position,
    )
    find = find_model if prompt is not None else find_config
    explanation = make(find(name, offline), prompt, wishes, note)
    if html is not None:
        try:
            html.write_text(page(explanation), "utf-8")
        except OSError as error:
            raise BadInput(f"--html {html}: cannot be written: {error.strerror}") from error
    if json:
        write_json(to_json(explanation))
    elif html is not None:
        note(f"written to {html}")
    else:
        write(draw(explanation))


def check_output(path: Path) -> None:
    """Raises `BadInput` for a place that nothing can be written to, before anything is computed."""
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"--html {path}: there is no folder {path.parent} or it is a folder itself")
