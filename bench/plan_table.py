"""The table of docs/plan.md, from what bench/plan_validation.py wrote in bench/results/plan:

python bench/plan_table.py            # write it between the page's markers
python bench/plan_table.py --check    # exit code 1 if it is not what the results say
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marked import Marked, read_results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "plan"
PAGE = ROOT / "docs" / "plan.md"
BEGIN = "<!-- validation: written by bench/plan_table.py -->"
END = "<!-- end of validation -->"
BLOCK = Marked(PAGE, "its table", BEGIN, END)


def render(results: list[dict[str, Any]]) -> str:
    """Every result, one under the other."""
    return "\n\n".join(map(_of_result, results)) if results else "Not measured yet."


def _of_result(result: dict[str, Any]) -> str:
    machine, error = result["machine"], result["calibration"]["error"]
    others, pace = machine["cores_that_others_took"], result["pace"]
    parts = [value for name, value in pace.items() if name.startswith("calibration")]
    lines = [
        f"{result['model_title']}, {machine['threads']} threads on {machine['processor']}, "
        f"{machine['date']}; {result['places']} places, prompts {result['prompt_tokens']}, answers "
        f"{result['output_tokens']} tokens. Steps that the fit did not see were off by "
        f"{error['step']:.0%} in the median, phases of them by {error['phase']:.0%}. Of "
        f"{machine['cores']} cores, others took {min(others.values()):.2f} to "
        f"{max(others.values()):.2f} meanwhile. Steps took {_range(parts)} times what the whole "
        "calibration says in its three parts, and in the loads' two turns "
        + ", ".join(
            f"{_range([v for k, v in pace.items() if k.startswith(load['load'])])} ({load['load']})"
            for load in result["loads"]
        )
        + ".",
        "",
        "| load | | predicted | measured | off | allowed | | with the pace as it was |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for load in result["loads"]:
        name = f"{load['load']}: {load['requests_per_second']:.2f} requests/s"
        for row in load["rows"]:
            lines.append(f"| {name} | {_row(row)} |")
            name = ""
    rows = [row for load in result["loads"] for row in load["rows"]]
    within = sum(row["within"] for row in rows)
    known = [row for row in rows if row["known_pace_off"] is not None]
    alike = sum(abs(row["known_pace_off"]) <= row["allowed"] for row in known)
    told = f"{within} of {len(rows)} figures are within what is allowed"
    if known:
        told += f"; with the pace as it was {alike} of {len(known)}"
    return "\n".join([*lines, "", f"{told}."])


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _row(row: dict[str, Any]) -> str:
    rate = row["what"] == "tokens/s"
    predicted, measured = (
        f"{row[key]:.0f}" if rate else _milliseconds(row[key]) for key in ("predicted", "measured")
    )
    chance = row["scatter"] / row["predicted"]
    verdict = "yes" if row["within"] else "**no**"
    known = "" if row["known_pace_off"] is None else f"{row['known_pace_off']:+.0%}"
    return (
        f"{row['what']} | {predicted} ±{chance:.0%} | {measured} | {row['off']:+.0%} | "
        f"{row['allowed']:.0%} | {verdict} | {known}"
    )


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


if __name__ == "__main__":
    BLOCK.write(render(read_results(RESULTS)))
