"""The table of docs/distributed.md on stages, from what bench/stages.py wrote:

python bench/stages_table.py            # write it between the page's markers
python bench/stages_table.py --check    # exit code 1 if it is not what the results say
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marked import Marked, read_results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "stages"
PAGE = ROOT / "docs" / "distributed.md"
BEGIN = "<!-- stages: written by bench/stages_table.py -->"
END = "<!-- end of stages -->"
BLOCK = Marked(PAGE, "its table of stages", BEGIN, END)


def render(results: list[dict[str, Any]]) -> str:
    """Every result, one under the other."""
    return "\n\n".join(map(_of_result, results)) if results else "Not measured yet."


def _of_result(result: dict[str, Any]) -> str:
    lines = [
        f"{result['model']} on {result['processor']}, {result['date']}: {result['threads']} "
        f"threads in one process, and as many shared out among {result['stages']} stages on the "
        f"same machine; {result['pairs']} pairs in turn, medians, the ratio with the least and the "
        f"most. "
        f"Other programs took {result['cores_that_others_took']:.2f} cores meanwhile.",
        "",
        "| | one process | in stages | ratio |",
        "|---|---|---|---|",
    ]
    for what in ("decode", "prefill"):
        found = result[what]
        least, median, most = found["ratio"]
        lines.append(
            f"| {what}, {found['unit']} | {found['one']:.3g} | {found['staged']:.3g} | "
            f"{median:.2f} ({least:.2f} to {most:.2f}) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    BLOCK.write(render(read_results(RESULTS)))
