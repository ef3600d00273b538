from __future__ import annotations

from tests.python.engine.conftest import make_llm, tiny_path

__all__ = ["make_llm", "tiny_path"]
