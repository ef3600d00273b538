from __future__ import annotations

from tests.model.conftest import smollm2_path

__all__ = ["smollm2_path"]
