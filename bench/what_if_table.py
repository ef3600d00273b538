"""The table of docs/plan.md on what changes are worth, from what bench/what_if.py wrote:

python bench/what_if_table.py            # write it between the page's markers
python bench/what_if_table.py --check    # exit code 1 if it is not what the results say
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marked import Marked, read_results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "what_if"
PAGE = ROOT / "docs" / "plan.md"
BEGIN = "<!-- what-if: written by bench/what_if_table.py -->"
END = "<!-- end of what-if -->"
BLOCK = Marked(PAGE, "its table of changes", BEGIN, END)


def render(results: list[dict[str, Any]]) -> str:
    """Every result, one under the other."""
    return "\n\n".join(map(_of_result, results)) if results else "Not measured yet."


def _of_result(result: dict[str, Any]) -> str:
    lines = [
        f"{result['model']} on {result['processor']}, {result['date']}: {result['requests']} "
        f"requests a run, {result['rounds']} rounds, the median with the least and the most. Other "
        f"programs took {result['cores_that_others_took']:.2f} cores meanwhile.",
        "",
        "| | predicted | measured | off |",
        "|---|---|---|---|",
    ]
    for row in result["rows"]:
        least, median, most = row["measured"]
        right = "" if row["right"] is None else f" ({row['right']:.0%} of them right)"
        lines.append(
            f"| {row['change']}{right} | {row['predicted']:.2f} times | {median:.2f} times "
            f"({least:.2f} to {most:.2f}) | {row['predicted'] / median - 1:+.0%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    BLOCK.write(render(read_results(RESULTS)))
