"""`pellucid quality`: what fewer bits cost, and how certain that is."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pellucid.cli.arguments import find_model, json_option, offline_option, read_text
from pellucid.cli.engine_options import backend_option, threads_option
from pellucid.cli.output import in_bytes, write, write_json
from pellucid.cli.progress import bars
from pellucid.core.errors import BadInput, PellucidError

if TYPE_CHECKING:
    from pellucid.quality import Report, Subject
    from pellucid.quality.intervals import Figure
    from pellucid.quality.report import Measured

MOST = 1 << 24  # of tokens


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1)
@click.option("--against", metavar="MODEL", help="The model that others are held against.")
@click.option(
    "--text",
    "text_file",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="What they read: text in UTF-8, of the kind that matters to you.",
)
@click.option(
    "--types",
    metavar="TYPE,...",
    help="Quantise MODEL at load to each of these (q8_0,q4_k_m; all), and hold it against itself.",
)
@click.option(
    "--requantize", is_flag=True, help="Of a model that is quantised already, too: errors add up."
)
@click.option(
    "--tokens",
    type=click.IntRange(1, MOST),
    metavar="N",
    default=4096,
    show_default=True,
    help="At most so many tokens of the text.",
)
@click.option(
    "--context",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Positions that see one another. [512]",
)
@click.option(
    "--picture",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw quality against bytes per token, as SVG.",
)
@click.option(
    "--repeats",
    type=click.IntRange(0, 10_000),
    metavar="N",
    default=3,
    show_default=True,
    help="Measurements of the speed; 0: none.",
)
@click.option(
    "--kv-cache-dtype",
    metavar="TYPE",
    help="MODEL's keys and values: f32, f16, int8, int4, or two as int8/int4. [f16]",
)
@click.option(
    "--activations",
    metavar="TYPE,...",
    help="What products of quantised weights read: int8, bf16 or f32. Several: each in turn, held "
    "against f32. [int8]",
)
@backend_option
@threads_option
@offline_option
@json_option
def quality(
    models: tuple[str, ...],
    against: str | None,
    text_file: Path,
    types: str | None,
    requantize: bool,
    tokens: int,
    context: int | None,
    picture: Path | None,
    repeats: int,
    kv_cache_dtype: str | None,
    activations: str | None,
    backend: str | None,
    threads: int | None,
    offline: bool,
    json: bool,
) -> None:
    """Measure how well models predict a text.

    Perplexity of each MODEL; against another model (or, with --types, against MODEL as it is) the
    divergence of what they predict, and how often the likeliest token is the same. Each with an
    interval of 95 %, beside size, bytes per token and speed.
    """
    from pellucid.quality import Settings, Text, report_json, run_quality
    from pellucid.quality.picture import picture as drawn

    if picture is not None:
        _check_picture(picture)
    if requantize and types is None:
        raise BadInput("--requantize: nothing is quantised without --types: leave it out")
    text = Text(text_file.name, read_text(text_file))
    subjects, other = _subjects(models, against, types, offline)
    if activations is not None:
        subjects, other = _with_activations(subjects, other, activations)
    settings = Settings(
        tokens=tokens,
        context=context,
        backend=backend or "native",
        threads=threads,
        kv_dtype=kv_cache_dtype,
        repeats=repeats,
        requantize=requantize,
    )
    with bars() as progress:
        report = run_quality(subjects, other, text, settings, progress)
    if json:
        write_json(report_json(report))
    else:
        write(draw(report))
    if picture is not None:  # last: what was measured is not lost with it
        _save(picture, drawn(report))


def _subjects(
    models: Sequence[str], against: str | None, types: str | None, offline: bool
) -> tuple[list[Subject], Subject | None]:
    """Who reads the text, and whom they are held against."""
    from pellucid.hub import DEFAULT_MODEL
    from pellucid.quality import Subject
    from pellucid.quant.mixes import mix_named

    names = list(dict.fromkeys(models)) or [DEFAULT_MODEL]
    paths = {name: find_model(name, offline) for name in names}
    other = None
    if against is not None:
        with _of_flag("--against"):
            other = Subject(_short(against), find_model(against, offline))
    if types is None:
        return [Subject(_short(name), path) for name, path in paths.items()], other
    if len(names) > 1:
        raise BadInput(f"--types are those of one model, and {len(names)} are named: choose one")
    with _of_flag("--types"):
        mixes = {mix_named(word).name: mix_named(word) for word in _type_words(types)}
    [(name, path)] = paths.items()
    return [Subject(type, path, mix) for type, mix in mixes.items()], other or Subject(
        f"{_short(name)}, as stored", path
    )


@contextmanager
def _of_flag(flag: str) -> Iterator[None]:
    """What is wrong in the block is wrong with this flag, and says so."""
    try:
        yield
    except BadInput as error:
        said = str(error)
        raise BadInput(said if said.startswith(flag) else f"{flag}: {said}") from error


def _with_activations(
    subjects: list[Subject], other: Subject | None, activations: str
) -> tuple[list[Subject], Subject | None]:
    """Everybody with the one kind; or each subject with each of several, held against f32."""
    kinds = list(dict.fromkeys(_words(activations, "--activations", "int8,f32")))
    if len(kinds) == 1:
        [kind] = kinds
        alike = [replace(subject, activations=kind) for subject in subjects]
        return alike, other and replace(other, activations=kind)
    if other is None and len(subjects) > 1:
        raise BadInput(
            f"--activations {activations}: held against f32, of one model, and {len(subjects)} are "
            "named: choose one"
        )
    other = other or replace(subjects[0], name=f"{subjects[0].name}, f32")
    each = [
        replace(subject, name=f"{subject.name}, {kind}", activations=kind)
        for subject in subjects
        for kind in kinds
    ]
    return each, replace(other, activations="f32")


def _type_words(types: str) -> list[str]:
    """The names of types; `all` are those that quantise."""
    from pellucid.quant.mixes import MIXES

    words = _words(types)
    if "all" not in (word.lower() for word in words):
        return words
    if len(words) > 1:
        raise BadInput(f"--types {types}: all has the others in it: leave them out")
    return [mix.name for mix in MIXES.values() if mix.quantizes]


def _words(names: str, flag: str = "--types", example: str = "q8_0,q4_k_m") -> list[str]:
    words = [word.strip() for word in names.split(",") if word.strip()]
    if not words:
        raise BadInput(f"{flag}: names none: write {example}")
    return words


def _short(name: str) -> str:
    return Path(name).stem if name.endswith(".gguf") else name.rstrip("/").rpartition("/")[2]


def _check_picture(file: Path) -> None:
    """What can be said before hours of work whose picture would be lost."""
    if file.is_dir():
        raise BadInput(f"{file}: is a folder: name a file")
    if file.suffix.lower() != ".svg":
        raise BadInput(f"--picture {file}: it is drawn as SVG: let the name end in .svg")
    if file.exists() and not file.is_file():
        raise BadInput(f"{file}: is a device or a pipe: name a file")
    if not file.absolute().parent.is_dir():
        raise BadInput(f"{file}: there is no such folder: make it first")


def _save(file: Path, svg: str) -> None:
    """Whole or not at all."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(svg, encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise PellucidError(f"{file}: cannot be written: {error.strerror}") from error


def draw(report: Report) -> str:
    """The report as a table, for people."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", no_wrap=True)
    heads = ["weights", "MB/token", "tokens/s", "perplexity"]
    heads += ["mean KL", "99 % KL", "same top"] if report.compared else []
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for one in report.measured:
        table.add_row(one.name, *_cells(one, report.compared))
    out = io.StringIO()
    console = Console(file=out, width=140)
    console.print(
        f"{report.tokens} tokens of {report.text}, {report.context} positions of context; "
        f"{report.backend} backend, {report.threads} threads",
        highlight=False,
        soft_wrap=True,
    )
    console.print(table)
    console.print(_explained(report), highlight=False, soft_wrap=True)
    return out.getvalue()


def _cells(one: Measured, compared: bool) -> list[str]:
    speed = "-" if one.speed is None else f"{one.speed.tokens_per_second.median:.1f}"
    cells = [in_bytes(one.weights_bytes), f"{one.bytes_per_token / 1e6:.1f}", speed]
    cells.append(_with_interval(one.perplexity, ".2f"))
    if one.divergence is None:
        return [*cells, "-", "-", "-"] if compared else cells
    found = one.divergence
    return [
        *cells,
        _with_interval(found.mean, ".2g"),
        _with_interval(found.p99, ".2g"),
        f"{found.same_likeliest.value:.1%} ±{_half(found.same_likeliest):.1%}",
    ]


def _with_interval(figure: Figure, form: str) -> str:
    return f"{figure.value:{form}} ±{_half(figure):{form}}"


def _half(figure: Figure) -> float:
    return (figure.high - figure.low) / 2


def _explained(report: Report) -> str:
    from pellucid.quality.intervals import BLOCK

    lines = [f"±: half of the 95 % interval, by the bootstrap over blocks of {BLOCK} tokens"]
    if report.compared:
        lines.append(f"KL: divergence from {report.measured[0].name}, in nats")
    return "\n".join(lines)
