"""`pellucid selftest`: the same answer in any traffic, on this machine and this model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from pellucid.cli.arguments import (
    find_model,
    json_option,
    model_argument,
    model_option,
    named_model,
    offline_option,
)
from pellucid.cli.engine_options import backend_option, kv_cache_dtype_option, threads_option
from pellucid.cli.output import note, table, write, write_json
from pellucid.core.errors import PellucidError


@click.command()
@model_argument
@model_option
@backend_option
@threads_option
@kv_cache_dtype_option
@offline_option
@json_option
def selftest(
    model_name: str | None,
    model: str | None,
    backend: str | None,
    threads: int | None,
    kv_cache_dtype: str | None,
    offline: bool,
    json: bool,
) -> None:
    """Prove that an answer does not depend on the traffic.

    The same prompts alone, in a crowd, in chunks, from the prefix cache, and preempted: tokens and
    logits must be the same bits. The digest is of all of them. Exit code 1 if they are not.
    """
    from pellucid.bench.selftest import run_selftest

    name = named_model(model_name, model)
    path = find_model(name, offline)
    wishes: dict[str, Any] = {
        "backend": backend,
        "threads": threads,
        "kv_cache_dtype": kv_cache_dtype,
    }
    given = {key: value for key, value in wishes.items() if value is not None}
    report = run_selftest(path, note=lambda line: note(f"{line} ..."), **given)
    if json:
        write_json({"model": name, "path": str(path), "ok": report.ok, **asdict(report)})
    else:
        rows = [
            (way.name, "same" if way.same else "DIFFERS", way.proof, f"{way.seconds:.1f} s")
            for way in report.ways
        ]
        write(table(rows, right=[3]) + "\n")
        write(f"digest {report.digest} of {report.n_tokens} tokens and their logits\n")
        write("OK\n" if report.ok else "NOT OK\n")
    if not report.ok:
        raise PellucidError(
            "selftest: answers depend on the traffic on this machine: please report it with the "
            "output of `pellucid selftest --json`"
        )
