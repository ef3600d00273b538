"""`pellucid bench`: how fast a model runs here, and how far that is from the machine's best."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import (
    find_model,
    json_option,
    model_argument,
    model_option,
    named_model,
    offline_option,
)
from pellucid.cli.engine_options import (
    activations_option,
    backend_option,
    kv_cache_dtype_option,
    quantization_option,
    speculative_options,
    threads_option,
)
from pellucid.cli.output import in_bytes, note, write, write_json
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from pellucid.bench import Report
    from pellucid.bench.speculation import SpeculationReport
    from pellucid.bench.spread import Spread

MOST = 1 << 20  # of any number in a list
COUNTS = "NUMBER,..."


@click.command()
@model_argument
@model_option
@backend_option
@threads_option
@quantization_option
@click.option("--prefill", metavar=COUNTS, help="Prompt lengths. [512]")
@click.option(
    "--decode",
    type=click.IntRange(1, MOST),
    metavar="N",
    default=32,
    show_default=True,
    help="Steps of a decode measurement.",
)
@click.option(
    "--batch",
    metavar=COUNTS,
    default="1,8,32",
    show_default=True,
    help="Sequences decoded together.",
)
@click.option("--context", metavar=COUNTS, help="Contexts to decode one sequence at. [1024,4096]")
@click.option(
    "--repeats",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=5,
    show_default=True,
    help="Measurements of each case.",
)
@kv_cache_dtype_option
@speculative_options
@activations_option
@offline_option
@json_option
def bench(
    model_name: str | None,
    model: str | None,
    backend: str | None,
    threads: int | None,
    quantization: str | None,
    prefill: str | None,
    decode: int,
    batch: str,
    context: str | None,
    repeats: int,
    kv_cache_dtype: str | None,
    speculative: dict[str, Any] | None,
    activations: str | None,
    offline: bool,
    json: bool,
) -> None:
    """Measure speed beside the machine's own peaks.

    Prefill and decode, in tokens a second. Shares are of what the same threads reached in the same
    moments: of a plain read of as many bytes as the weights have, and of arithmetic in registers
    alone. An empty list measures none of its kind. With a speculative method: what it can bring at
    most here, and what it brought on a few tasks.
    """
    from pellucid.bench import Settings, report_json, run_bench
    from pellucid.cli.machine import describe_machine
    from pellucid.quant.mixes import mix_named

    name = named_model(model_name, model)
    settings = Settings(
        prefill=None if prefill is None else numbers("--prefill", prefill),
        decode=decode,
        batches=numbers("--batch", batch),
        contexts=None if context is None else numbers("--context", context),
        repeats=repeats,
        backend=backend or "native",
        threads=threads,
        kv_dtype=kv_cache_dtype,
        activations=activations,
        mix=None if quantization is None else mix_named(quantization),
        speculative=speculative,
    )
    path = find_model(name, offline)
    report = run_bench(path, settings, note)
    if json:
        write_json({"machine": describe_machine(), **report_json(report)})
    else:
        write(draw(report))


def numbers(flag: str, text: str) -> tuple[int, ...]:
    """`1,8,32` as numbers, in their order, each once. Raises `BadInput` naming the flag."""
    found: dict[int, None] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        if not (word.isascii() and word.isdigit()) or not 1 <= int(word[:20]) <= MOST:
            raise BadInput(f"{flag}: {word!r} is no number from 1 to {MOST}: write 1,8,32")
        found[int(word)] = None
    return tuple(found)


def draw(report: Report) -> str:
    """The report as tables, for people."""
    from rich.console import Console

    peaks = report.peaks
    columns = ("tokens/s", "min - max", "ms/step", "GB/s", "of read", "GOP/s")
    table = _table("forward pass", "case", *columns, f"of {report.arithmetic}")
    for measured in report.measured:
        rate = measured.tokens_per_second
        table.add_row(
            measured.case.name,
            f"{rate.median:.1f}",
            _range(rate),
            f"{1e3 * measured.step_seconds.median:.2f}",
            f"{measured.weights_per_second.median / 1e9:.1f}",
            f"{measured.share_of_read.median:.0%}",
            f"{measured.operations_per_second.median / 1e9:.0f}",
            f"{measured.share_of_arithmetic(report.arithmetic).median:.0%}",
        )
    out = io.StringIO()
    console = Console(file=out, width=100)
    console.print(
        f"{report.model}{_quantised(report)}\n"
        f"{report.backend} backend, {report.threads} threads, weights "
        f"{in_bytes(report.weights_bytes)}, KV cache {report.kv_dtype}\n"
        f"peaks of these threads: read {peaks.read / 1e9:.1f} GB/s, int8 {peaks.int8 / 1e9:.0f} "
        f"GOP/s, float32 {peaks.f32 / 1e9:.0f} GFLOP/s\n",
        highlight=False,
        soft_wrap=True,
    )
    console.print(table)
    if report.whole:
        console.print(_whole_table(report))
    if report.speculation is not None:
        console.print(_bound_table(report.speculation))
        console.print(_speculation_table(report.speculation))
    return out.getvalue()


def _quantised(report: Report) -> str:
    return f", quantised to {report.quantization}" if report.quantization else ""


def _table(title: str, first: str, *others: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _whole_table(report: Report) -> Table:
    title = "whole engine: decode, greedy, text out"
    table = _table(title, "batch", "tokens/s", "min - max", "ms/step", "Python's own")
    for whole in report.whole:
        share = whole.python_share
        table.add_row(
            str(whole.batch),
            f"{whole.tokens_per_second.median:.1f}",
            _range(whole.tokens_per_second),
            f"{1e3 * whole.step_seconds.median:.2f}",
            "-" if share is None else f"{share.median:.1%}",
        )
    return table


def _bound_table(speculation: SpeculationReport) -> Table:
    seconds = speculation.seconds
    table = _table("speculation: what it can bring", "rows of a step", *map(str, seconds))
    table.add_row("its time, x", *(f"{took / seconds[1]:.2f}" for took in seconds.values()))
    table.add_row("bound, x", *(f"{speculation.bound(rows):.2f}" for rows in seconds))
    return table


def _speculation_table(speculation: SpeculationReport) -> Table:
    method = speculation.told.get("method")
    columns = ("plain", "with drafts", "ratio", "bound", "of bound", "accepted", "ms a token")
    table = _table(f"speculation by {method}: tokens/s, greedy, one at a time", "task", *columns)
    for result in speculation.results:
        table.add_row(
            result.task,
            f"{result.plain:.1f}",
            f"{result.speculative:.1f}",
            f"{result.ratio:.2f}",
            f"{result.bound:.2f}",
            f"{result.share:.0%}",
            f"{result.accepted}/{result.guessed}",
            f"{result.draft_ms:.1f} + {result.forward_ms:.1f} + {result.rest_ms:.1f}",
        )
    table.caption = "bound: by the rows of the same drafts alone; ms: drafting + model + rest"
    return table


def _range(spread: Spread) -> str:
    return f"{spread.low:.1f} - {spread.high:.1f}"
