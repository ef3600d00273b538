"""Write the GGUF twins of all cases, for llama.cpp to be asked about.

    python -m tests.model.models.llama_cpp.write_models FOLDER

Then, with any Python that has llama-cpp-python and NumPy,

    python tests/model/models/llama_cpp/ask.py FOLDER

which puts llama.cpp's answers into answers/, where `test_llama_cpp.py` compares them with ours.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.model.models.runner import Built, Case, FamilySuite

HERE = Path(__file__).parent
POSITIONS = 3  # the first, the middle and the last of a prompt


def cases() -> Iterator[tuple[str, Case]]:
    """Every case with a GGUF form that llama.cpp computes as its makers do, by suite and name."""
    for path in sorted(HERE.parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.model.models.{path.stem}")
        for suite in vars(module).values():
            if (
                isinstance(suite, type)
                and issubclass(suite, FamilySuite)
                and suite.__module__ == module.__name__
            ):
                for name, case in suite.CASES.items():
                    if case.gguf is not None and not case.llama_cpp_differs:
                        yield f"{suite.__name__}: {name}", case


def asked_positions(length: int) -> list[int]:
    return sorted({0, length // 2, length - 1})


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    questions = []
    for number, (name, case) in enumerate(cases()):
        with tempfile.TemporaryDirectory() as place:
            built = Built(case, Path(place))
            shutil.copy(built.gguf_path, folder / f"{number}.gguf")
            tokens = built.tokens(max(case.lengths))
        questions.append(
            {
                "name": name,
                "file": f"{number}.gguf",
                "tokens": tokens,
                "positions": asked_positions(len(tokens)),
                "context": case.context or 256,
            }
        )
    (folder / "questions.json").write_text(json.dumps(questions))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
