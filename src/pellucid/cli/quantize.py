"""`pellucid quantize`: a smaller model file, and what it cost."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import find_model, json_option, offline_option, read_text
from pellucid.cli.output import in_bytes, note, table, write, write_json
from pellucid.cli.progress import bar, ending_on_signals
from pellucid.core.errors import BadInput, PellucidError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pellucid.convert.imatrix import Importance
    from pellucid.convert.source import Source
    from pellucid.convert.write import Choice, Report, Written
    from pellucid.formats import Checkpoint

_SHOWN = 3  # names in a note


@click.command()
@click.argument("model", metavar="IN")
@click.argument("output", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--type",
    "-t",
    "type_name",
    required=True,
    metavar="TYPE",
    help="q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0, or f32 f16 bf16.",
)
@click.option("--pure", is_flag=True, help="The same type for every matrix, the head too.")
@click.option(
    "--requantize", is_flag=True, help="Take a model that is quantised already: errors add up."
)
@click.option(
    "--calibrate",
    "calibration",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A text whose inputs to each matrix weigh its errors.",
)
@click.option(
    "--imatrix",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The same from a file: ours (--save-imatrix) or llama.cpp's.",
)
@click.option(
    "--save-imatrix",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Keep what --calibrate found, as llama.cpp's GGUF form.",
)
@click.option(
    "--threads", type=click.IntRange(1, 1024), metavar="N", help="[the cores of this process]"
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@offline_option
@json_option
def quantize(
    model: str,
    output: Path,
    type_name: str,
    pure: bool,
    requantize: bool,
    calibration: Path | None,
    imatrix: Path | None,
    save_imatrix: Path | None,
    threads: int | None,
    force: bool,
    offline: bool,
    json: bool,
) -> None:
    """Write a model as a smaller GGUF file.

    IN is a safetensors folder or a GGUF file in f32, f16 or bf16, or a model's name. Each block's
    scale is searched for the least squared error. OUT appears whole or not at all.
    """
    from pellucid.convert.folder import folder_source
    from pellucid.convert.source import gguf_source
    from pellucid.convert.write import choose, write_quantized
    from pellucid.formats import open_checkpoint
    from pellucid.quant.mixes import mix_named

    mix = mix_named(type_name)
    path = find_model(model, offline)
    _check_output(path, output, force)
    _check_importance(calibration, imatrix, save_imatrix, force)
    if save_imatrix is not None:
        _check_kept(save_imatrix, {"the model": path, "OUT": output, "the text": calibration})
    with open_checkpoint(path) as checkpoint:
        source = (gguf_source if checkpoint.kind == "gguf" else folder_source)(checkpoint)
        choices = choose(source, mix, pure=pure, requantize=requantize)
        _say_what_does_not_fit(choices)
        if requantize:
            _say_what_is_quantised(source)
        importance = _importance(checkpoint, source, calibration, imatrix, save_imatrix)
        with bar(output.name) as progress, ending_on_signals():
            report = write_quantized(
                source,
                choices,
                mix,
                output,
                threads=threads or _cores(),
                importance=importance,
                progress=progress,
            )
        before = checkpoint.file_bytes
    facts = _facts(output, mix.name, before, report)
    if json:
        write_json(facts)
    else:
        write(_drawn(facts))


def _check_output(source: Path, output: Path, force: bool) -> None:
    from pellucid.formats.gguf_write import check_place

    if output.exists() and output.samefile(source):
        raise BadInput(f"{output}: is the model itself; write to another file")
    check_place(output, 0)  # before the work whose result would be lost
    if output.exists() and not force:
        raise BadInput(f"{output}: exists; name another file, or replace it with --force")


def _check_importance(
    calibration: Path | None, imatrix: Path | None, save: Path | None, force: bool
) -> None:
    if calibration is not None and imatrix is not None:
        raise BadInput("--calibrate and --imatrix: each says what inputs weigh: choose one")
    if save is not None and calibration is None:
        raise BadInput("--save-imatrix: there is nothing to keep without --calibrate")
    if save is not None and save.exists() and not force:
        raise BadInput(f"{save}: exists; name another file, or replace it with --force")


def _check_kept(save: Path, others: Mapping[str, Path | None]) -> None:
    """Before the work whose result would be lost, or would take the place of something else."""
    from pellucid.formats.gguf_write import check_place

    for what, other in others.items():
        if other is not None and os.path.realpath(save) == os.path.realpath(other):
            raise BadInput(f"--save-imatrix {save}: is {what} itself; name another file")
    check_place(save, 0)


def _importance(
    checkpoint: Checkpoint,
    source: Source,
    calibration: Path | None,
    imatrix: Path | None,
    save: Path | None,
) -> Mapping[str, NDArray[np.float32]] | None:
    """What the inputs of each matrix weigh, if anything says so."""
    from pellucid.convert.imatrix import check_fits, read_imatrix, write_imatrix

    if imatrix is not None:
        squares = read_imatrix(imatrix)
        check_fits(imatrix, squares, ((one.name, one.shape) for one in source.tensors))
        return squares
    if calibration is None:
        return None
    found = _calibrated(checkpoint, calibration)
    if save is not None:
        write_imatrix(save, found)
    return found.squares


def _calibrated(checkpoint: Checkpoint, file: Path) -> Importance:
    """The weight of each input of each matrix, by running the text of `file`."""
    from pellucid.convert.calibrate import calibrate
    from pellucid.engine.loading import open_text
    from pellucid.engine.memory import available_memory

    text = read_text(file)
    need = sum(4 * info.n_elements for info in checkpoint.tensors.values())
    if need > available_memory():
        raise PellucidError(
            f"{checkpoint.path}: to calibrate takes {in_bytes(need)} of memory, its weights in "
            "float32: close other programs, or leave out --calibrate"
        )
    with bar(file.name) as progress:
        return calibrate(checkpoint, open_text(checkpoint)[0], text, progress, file.name)


def _say_what_does_not_fit(choices: list[Choice]) -> None:
    odd = [choice for choice in choices if choice.type is not choice.wanted]
    if odd:
        pairs = sorted({(c.wanted.name, c.type.name) for c in odd})
        instead = ", ".join(f"{type} for {wanted}" for wanted, type in pairs)
        note(
            f"{_listed([c.source.name for c in odd])}: rows do not divide into blocks of their "
            f"type: {instead}"
        )


def _say_what_is_quantised(source: Source) -> None:
    from pellucid.quant.quantize import QUANTIZED_TYPES

    names = [tensor.name for tensor in source.tensors if tensor.type in QUANTIZED_TYPES]
    if names:
        note(f"warning: {_listed(names)}: quantised already; what that lost stays lost")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _facts(output: Path, type_name: str, before: int, report: Report) -> dict[str, Any]:
    weights = sum(math.prod(tensor.shape) for tensor in report.tensors)
    return {
        "path": str(output),
        "type": type_name,
        "bytes_before": before,
        "bytes": report.nbytes,
        "bits_per_weight": 8 * report.nbytes / weights,
        "types": _by_type(report.tensors),
        "tensors": [
            {"name": t.name, "type": t.type.name, "shape": list(t.shape), "error": t.error}
            for t in report.tensors
        ],
    }


def _by_type(tensors: list[Written]) -> list[dict[str, Any]]:
    """For each type: tensors, weights, and their error together, relative to the weights' root
    mean square."""
    rows = []
    for type in sorted({t.type for t in tensors}):
        of_type = [t for t in tensors if t.type is type]
        lost, there = sum(t.squared_error for t in of_type), sum(t.squared_values for t in of_type)
        rows.append(
            {
                "type": type.name,
                "tensors": len(of_type),
                "weights": sum(math.prod(t.shape) for t in of_type),
                "error": math.sqrt(lost / there) if there else 0.0,
            }
        )
    return rows


def _drawn(facts: dict[str, Any]) -> str:
    rows = [("TYPE", "TENSORS", "WEIGHTS", "ERROR")]
    for row in facts["types"]:
        error = f"{row['error']:.3%}" if row["error"] else "-"
        rows.append((row["type"], f"{row['tensors']}", f"{row['weights']:,}", error))
    sizes = f"{in_bytes(facts['bytes_before'])} -> {in_bytes(facts['bytes'])}"
    last = f"{facts['path']}: {sizes}, {facts['bits_per_weight']:.2f} bits per weight"
    return table(rows, right=(1, 2, 3)) + f"\n{last}\n"
