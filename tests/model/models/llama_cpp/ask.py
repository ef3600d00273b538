"""Ask llama.cpp for the logits of the models that `write_models.py` made; see there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

ANSWERS = Path(__file__).parent / "answers"
F32 = 0  # ggml's number of the type, for the cache


def ask(path: Path, tokens: list[int], context: int) -> np.ndarray[Any, Any]:
    """Logits of every position, [T, vocabulary], all in float32."""
    llama = llama_cpp.Llama(
        str(path),
        n_ctx=context,
        n_batch=context,
        n_threads=1,
        logits_all=True,
        type_k=F32,
        type_v=F32,
        flash_attn=False,
        verbose=False,
    )
    llama.eval(tokens)
    return np.array(llama.scores[: len(tokens)], np.float32)


def main(folder: Path) -> None:
    ANSWERS.mkdir(exist_ok=True)
    by_suite: dict[str, dict[str, object]] = {}
    for question in json.loads((folder / "questions.json").read_text()):
        suite, name = question["name"].split(": ", 1)
        logits = ask(folder / question["file"], question["tokens"], question["context"])
        rows = {
            str(position): [float(f"{value:.7g}") for value in logits[position]]
            for position in question["positions"]
        }
        by_suite.setdefault(suite, {})[name] = {"tokens": question["tokens"], "logits": rows}
        print(question["name"], f"logits up to {np.abs(logits).max():.3g}")
    for suite, answers in by_suite.items():
        (ANSWERS / f"{suite}.json").write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
