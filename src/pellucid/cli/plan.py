"""`pellucid plan`: what a model needs, before it is paid for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pellucid.cli.arguments import (
    find_config,
    find_model,
    json_option,
    model_argument,
    model_option,
    named_model,
    offline_option,
)
from pellucid.cli.engine_options import kv_cache_dtype_option, threads_option
from pellucid.cli.output import note, write, write_json
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid.capacity.wishes import Wishes
    from pellucid.simulate.goals import Goal
    from pellucid.simulate.setup import Guessing
    from pellucid.simulate.traffic import Traffic

_RATE, _PROMPT, _OUTPUT = 1.0, "512", "128"
_OF_TRAFFIC = ("prompt_tokens", "output_tokens", "shared_prefix", "prefixes", "burstiness")


def _goals(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each goal there is."""
    from pellucid.simulate.goals import DELAYS, SHARES

    for delay in reversed(DELAYS):
        for share in reversed(SHARES):
            words = f"Goal: the {share} of the {DELAYS[delay]}."
            option = click.option(f"--{delay}-{share}", type=float, metavar="SECONDS", help=words)
            command = option(command)
    return command


@click.command()
@model_argument
@model_option
@click.option(
    "--hardware",
    metavar="NAME",
    help="A machine of the table (h100, l4, epyc-9654, ...) or by its numbers "
    "(3TB/s,989TFLOPS,80GB). [this machine]",
)
@click.option("--calibrate", is_flag=True, help="Measure step times here first: under a minute.")
@click.option("--rate", type=float, metavar="N", help="Requests a second. [0.7 of what it can do]")
@click.option("--rates", metavar="A,B,...", help="Loads of the curve. [shares of what it can do]")
@click.option(
    "--prompt-tokens", metavar="N", default=_PROMPT, show_default=True,
    help="500, 100-900 (each alike) or lognormal:MEAN:CV.",
)  # fmt: skip
@click.option("--output-tokens", metavar="N", default=_OUTPUT, show_default=True, help="Likewise.")
@click.option(
    "--shared-prefix", type=float, metavar="SHARE", default=0.0, show_default=True,
    help="Share of each prompt that comes first and is the same for all.",
)  # fmt: skip
@click.option(
    "--prefixes", type=int, metavar="N", default=1, show_default=True,
    help="How many such beginnings there are.",
)  # fmt: skip
@click.option(
    "--burstiness", type=float, metavar="CV", default=1.0, show_default=True,
    help="Variation of the time between arrivals: 1 Poisson, 0 a clock.",
)  # fmt: skip
@click.option(
    "--log", type=click.Path(path_type=Path), metavar="FILE",
    help="Recorded traffic, a JSON object a line, in place of the flags above.",
)  # fmt: skip
@_goals
@click.option("--replicas", type=int, metavar="N", help="How many. [what the goals need, or 1]")
@click.option("--routing", metavar="RULE", default="prefix", show_default=True,
              help="prefix (the longest cached one), least-loaded or round-robin.")  # fmt: skip
@click.option("--price", type=float, metavar="USD", help="Of an hour of one. [the table's]")
@click.option("--max-model-len", type=int, metavar="N", help="Context. [the model's, or what fits]")
@click.option("--max-num-seqs", type=int, metavar="N", help="Sequences at once. [32]")
@click.option("--max-num-batched-tokens", type=int, metavar="N", help="Of a step. [512]")
@click.option("--quantization", metavar="TYPE", help="Weights as they would be: q8_0, q4_k_m, ...")
@kv_cache_dtype_option
@threads_option
@click.option("--speculative-tokens", type=int, metavar="N", help="Guesses at once.")
@click.option(
    "--speculative-acceptance", type=float, metavar="CHANCE", default=0.6, show_default=True,
    help="Of a guess, if those before it were right.",
)  # fmt: skip
@click.option(
    "--speculative-size", type=float, metavar="SHARE", default=0.0, show_default=True,
    help="Size of the model that guesses, over this one's; 0: from the text.",
)  # fmt: skip
@click.option("--no-prefix-caching", is_flag=True, help="Compute every prompt whole.")
@click.option(
    "--efficiency", metavar="BW,OPS,MS",
    help="Shares of bandwidth and arithmetic that kernels reach, ms a step. [0.7,0.5,1]",
)  # fmt: skip
@click.option("--requests", type=int, metavar="N", default=200, show_default=True,
              help="Requests of a run.")  # fmt: skip
@click.option("--seed", type=int, metavar="N", default=0, show_default=True, help="Of the draws.")
@click.option("--seeds", type=int, metavar="N", default=5, show_default=True,
              help="Runs of each load, for the bands.")  # fmt: skip
@click.option("--no-what-if", is_flag=True, help="Leave out what would change it.")
@click.option("--processes", type=click.IntRange(1, 256), help="To simulate in. [all cores]")
@offline_option
@json_option
def plan(model_name: str | None, model: str | None, **flags: Any) -> None:
    """Say whether a model fits a machine, how fast it serves which load, and what that costs.

    The scheduler and page tables that serve are driven through simulated traffic, with a cost model
    in place of the kernels. Of the model only its headers or its config.json are read.
    """
    from pellucid.capacity.forms import report_json
    from pellucid.capacity.planning import make_plan
    from pellucid.cli.capacity import draw
    from pellucid.cli.progress import bar
    from pellucid.simulate.sweep import Sweep

    name = named_model(model_name, model)
    wishes = _wishes(flags)
    if flags["calibrate"]:
        _calibrate(find_model(name, flags["offline"]), name, wishes)
    path = find_config(name, flags["offline"])
    with bar("simulating") as show, Sweep(flags["processes"], show) as sweep:
        report = make_plan(path, name, wishes, sweep)
    if flags["json"]:
        write_json(report_json(report))
    else:
        write(draw(report))


def _wishes(flags: dict[str, Any]) -> Wishes:
    from pellucid.capacity.wishes import Wishes
    from pellucid.engine.sizing import Asked

    asked = Asked(
        flags["max_model_len"],
        flags["max_num_seqs"],
        flags["max_num_batched_tokens"],
        prefix_caching=not flags["no_prefix_caching"],
    )
    traffic = _traffic(flags)
    rate = flags["rate"]
    return Wishes(
        traffic if rate is None else traffic.at_rate(_positive("--rate", rate)),
        flags["hardware"],
        traffic.rate if rate is None and flags["log"] is not None else rate,
        _rates(flags["rates"]),
        _goals_of(flags),
        flags["replicas"],
        flags["price"],
        asked,
        flags["kv_cache_dtype"] or "f16",
        flags["quantization"],
        _guessing(flags),
        flags["routing"],
        flags["threads"],
        _efficiency(flags["efficiency"]),
        flags["seed"],
        flags["seeds"],
        flags["requests"],
        not flags["no_what_if"],
    )


def _traffic(flags: dict[str, Any]) -> Traffic:
    from pellucid.simulate.lengths import parse_lengths
    from pellucid.simulate.recorded import read_log
    from pellucid.simulate.traffic import Made

    if flags["log"] is not None:
        _check_alone("--log", "tells its own traffic", *_OF_TRAFFIC)
        with _opened(flags["log"]) as lines:
            return read_log(lines, str(flags["log"]))
    return Made(
        _RATE,
        parse_lengths(flags["prompt_tokens"], "--prompt-tokens"),
        parse_lengths(flags["output_tokens"], "--output-tokens"),
        flags["burstiness"],
        flags["shared_prefix"],
        flags["prefixes"],
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Iterator[bytes]]:
    try:
        with path.open("rb") as lines:
            yield lines
    except OSError as error:
        raise BadInput(f"--log {path}: cannot be read: {error.strerror}") from error


def _goals_of(flags: dict[str, Any]) -> tuple[Goal, ...]:
    from pellucid.simulate.goals import DELAYS, SHARES, Goal

    return tuple(
        Goal(delay, share, seconds)
        for delay in DELAYS
        for share in SHARES
        if (seconds := flags[f"{delay}_{share}"]) is not None
    )


def _guessing(flags: dict[str, Any]) -> Guessing | None:
    from pellucid.simulate.setup import Guessing

    if flags["speculative_tokens"] is None:
        sizes = "speculative_acceptance", "speculative_size"
        _check_alone("no --speculative-tokens", "guesses nothing", *sizes)
        return None
    return Guessing(
        flags["speculative_tokens"], flags["speculative_acceptance"], flags["speculative_size"]
    )


def _check_alone(what: str, why: str, *names: str) -> None:
    """Raises `BadInput` for a flag that would count for nothing."""
    source = click.get_current_context().get_parameter_source
    for name in names:
        if source(name) is ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise BadInput(f"{flag} counts for nothing with {what}, which {why}: leave it out")


def _rates(text: str | None) -> tuple[float, ...]:
    return () if text is None else tuple(_numbers("--rates", text))


def _numbers(flag: str, text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"{flag} {text[:60]!r}: write numbers with commas between") from None
    return [_positive(flag, number) for number in found]


def _positive(flag: str, number: float) -> float:
    if not 0 < number <= 1e6:
        raise BadInput(f"{flag} {number:g}: it must be above 0, to 1e6")
    return number


def _efficiency(text: str | None) -> Any:
    from pellucid.capacity.machine import Efficiency

    if text is None:
        return Efficiency()
    numbers = _numbers("--efficiency", text)
    if len(numbers) != 3:
        raise BadInput(f"--efficiency {text[:60]!r}: write three numbers, as in 0.7,0.5,1")
    return Efficiency(numbers[0], numbers[1], numbers[2] / 1000)


def _calibrate(path: Path, name: str, wishes: Wishes) -> None:
    from pellucid.capacity.calibrate import calibrate, server_flags
    from pellucid.capacity.kept import keep
    from pellucid.capacity.machine import HERE, calibration_key, lanes_of, threads_of
    from pellucid.capacity.subject import open_subject
    from pellucid.cli.progress import bar

    if wishes.hardware not in (None, HERE):
        raise BadInput(f"--calibrate measures this machine, not {wishes.hardware}: leave one out")
    subject = open_subject(path, name, wishes.kv_dtype, lanes_of(None))
    if wishes.quantization is not None:
        subject = subject.quantized(wishes.quantization)
    threads = threads_of(wishes.threads)
    flags = server_flags(threads, wishes.kv_dtype, wishes.quantization, wishes.asked.max_num_seqs)
    with bar("measuring") as show:
        found = calibrate(path, subject.spec, flags, show)
    kept = keep(calibration_key(subject, threads), found)
    note(
        f"calibrated on {found.steps} steps in {found.seconds:.0f} s: a step that the fit did not "
        f"see is off by {found.error.step:.0%} in the median, a phase of them by "
        f"{found.error.phase:.0%} (at worst {found.error.worst_phase:.0%}); kept in {kept}"
    )
