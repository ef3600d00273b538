"""The tables and pictures of docs/quality.md, from the results in bench/results/types:

    python bench/quality_table.py            # write them
    python bench/quality_table.py --check    # exit code 1 if they are not what the results say

A result is what `pellucid quality MODEL --types ... --json` told of one model, without its paths;
MODEL-1.json, MODEL-2.json and so on are parts with different types, held against the same. Types
measured one after the other are not measured alike, so speeds are those of
`bench/weight_types.py --mixes --json`, which decodes with all in turn, in bench/results/speeds.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from marked import Marked

from pellucid.quality import Report, report_of
from pellucid.quality.intervals import Figure
from pellucid.quality.picture import picture
from pellucid.quality.report import Measured

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "types"
SPEEDS = ROOT / "bench" / "results" / "speeds"
PAGE = ROOT / "docs" / "quality.md"
BEGIN = "<!-- types: written by bench/quality_table.py -->"
END = "<!-- end of types -->"
BLOCK = Marked(PAGE, "its tables", BEGIN, END)
HEAD = (
    "| | weights | MB/token | perplexity | mean KL | 99 % KL | same top | tokens/s | times F16 "
    "| of a read |"
)
STORED = "f16"  # what the models here are stored as


def read(folder: Path) -> dict[str, Report]:
    """By model, its parts put together; types in the order of their bytes."""
    parts: dict[str, list[Report]] = {}
    for file in sorted(folder.glob("*.json")):
        name = file.stem.rpartition("-")[0]
        parts.setdefault(name, []).append(report_of(json.loads(file.read_text())))
    return {name: _joined(each) for name, each in parts.items()}


def _joined(parts: list[Report]) -> Report:
    types = [one for part in parts for one in part.measured[1:]]
    types.sort(key=lambda one: -one.bytes_per_token)
    return replace(parts[0], measured=(parts[0].measured[0], *types))


def render(results: dict[str, Report]) -> str:
    return "\n\n".join(_of_model(name, report) for name, report in results.items())


def _of_model(name: str, report: Report) -> str:
    speeds = json.loads((SPEEDS / f"{name}.json").read_text())
    machine = speeds["machine"]
    about = (
        f"**{name}**: {report.tokens} tokens of {report.text}, {report.context} positions of "
        f"context. Speeds: decoding one sequence with {machine['threads']} threads on "
        f"{machine['processor']}, {machine['date']}, medians of {speeds['rounds']} rounds of all "
        "types in turn, with the least and the most."
    )
    rows = [_row(one, speeds["types"]) for one in report.measured]
    table = [HEAD, f"|{'---|' * (HEAD.count('|') - 1)}", *rows]
    alt = f"divergence of each type of {name} over the bytes that a token moves"
    return "\n".join([about, "", *table, "", f"![{alt}]({drawing(name).name})"])


def _row(one: Measured, speeds: dict[str, Any]) -> str:
    name = f"`{one.quantization}`" if one.quantization else "as stored (F16)"
    cells = [name, f"{one.weights_bytes / 1e6:.0f} MB", f"{one.bytes_per_token / 1e6:.0f}"]
    cells.append(_figure(one.perplexity, ".2f"))
    if one.divergence is None:
        cells += ["", "", ""]
    else:
        found = one.divergence
        cells += [_figure(found.mean, ".2g"), _figure(found.p99, ".2g")]
        cells.append(_figure(found.same_likeliest, ".1%"))
    speed = speeds[one.quantization or STORED]
    times = sorted(speed["times_first"])
    cells.append(f"{statistics.median(speed['tokens_per_second']):.0f}")
    cells.append(f"{statistics.median(times):.2f} ({times[0]:.2f} - {times[-1]:.2f})")
    cells.append(f"{statistics.median(speed['share_of_read']):.0%}")
    return f"| {' | '.join(cells)} |"


def _figure(figure: Figure, form: str) -> str:
    return f"{figure.value:{form}} ±{(figure.high - figure.low) / 2:{form}}"


def drawing(name: str) -> Path:
    return PAGE.parent / f"quality-{name}.svg"


def main() -> None:
    results = read(RESULTS)
    for name, report in results.items():
        file, drawn = drawing(name), picture(report)
        if "--check" not in sys.argv[1:]:
            file.write_text(drawn, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != drawn:
            sys.exit(f"{file.name}: is out of date")
    BLOCK.write(render(results))


if __name__ == "__main__":
    main()
