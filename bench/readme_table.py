"""The README's performance table, from the results in bench/results:

    python bench/readme_table.py            # write it between the README's markers
    python bench/readme_table.py --check    # exit code 1 if it is not what the results say

Results are written by `bench/compare.py --json`.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from marked import Marked, read_results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
BEGIN = "<!-- performance: written by bench/readme_table.py -->"
END = "<!-- end of performance -->"
BLOCK = Marked(README, "its performance table", BEGIN, END)


def render(results: list[dict[str, Any]]) -> str:
    """Every result's tables, one under the other."""
    return "\n\n".join(_of_result(result) for result in results)


def _of_result(result: dict[str, Any]) -> str:
    machine = result["machine"]
    busy = ", beside a process that keeps one core busy" if result["spinner"] else ""
    form = result.get("activations", "int8")
    ours = "" if form == "int8" else f", Pellucid with `--activations {form}`"
    lines = [
        f"Tokens a second with {result['threads']} threads on {machine['processor']}{busy}{ours}, "
        f"{machine['date']}. A ratio is the median of {result['rounds']} pairs measured in turn, "
        "with the least and the most.",
    ]
    for found in result["files"]:
        lines += ["", *_of_file(found)]
    lines += ["", *_notes(result)]
    return "\n".join(lines).rstrip()


def _of_file(found: dict[str, Any]) -> list[str]:
    peers = [engine for engine in found["engines"] if engine != "pellucid"]
    heads = [f"{peer} | ratio" for peer in peers]
    lines = [
        f"| {found['model']} | Pellucid | {' | '.join(heads)} |",
        f"|---|---|{'---|---|' * len(peers)}",
    ]
    for case in found["cases"]:
        cells = [case["name"], _rate(case, "pellucid")]
        for peer in peers:
            cells += [_rate(case, peer), _ratio(case["ratios"].get(peer))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rate(case: dict[str, Any], engine: str) -> str:
    rates = case["tokens_per_second"].get(engine)
    if not rates:
        return ""
    rate = statistics.median(rates)
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"


def _ratio(ratios: list[float] | None) -> str:
    if not ratios:
        return ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})"


def _notes(result: dict[str, Any]) -> list[str]:
    """What else was measured in the same call, a sentence each."""
    notes = []
    for case in result["files"][0]["cases"]:
        if case["name"] == "decode 1":
            share = statistics.median(case["share_of_read"])
            read = statistics.median(case["read_bytes_per_second"]) / 1e9
            notes.append(
                f"Decoding one sequence streams the weights at {share:.0%} of the speed of a "
                f"plain read ({read:.1f} GB/s)."
            )
    starts = result.get("first_token_seconds", {})
    if starts:
        each = ", ".join(f"{e} {statistics.median(s):.2f} s" for e, s in starts.items())
        notes.append(f"From process start to the first token of a short prompt: {each}.")
    shares = [
        f"{statistics.median(whole['python_share']):.1%} at batch {whole['batch']}"
        for whole in result.get("whole_engine", [])
    ]
    if shares:
        notes.append(f"Python's own share of a decode step: {', '.join(shares)}.")
    return [" ".join(notes)] if notes else []


if __name__ == "__main__":
    BLOCK.write(render(read_results(RESULTS)))
