"""The flags that give an answer its form, as one value."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.cli.structure import structured_outputs
from pellucid.core.errors import BadInput
from pellucid.core.structured import StructuredOutputs


def test_each_flag_alone(tmp_path: Path) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "dates.lark"
    schema.write_text('{\n  "const": "é"\n}', encoding="utf-8")
    grammar.write_text('start: "ü"', encoding="utf-8")
    wanted = StructuredOutputs(json={"const": "é"})
    assert structured_outputs(None, None, (), None) is None
    assert structured_outputs(str(schema), None, (), None) == wanted
    assert structured_outputs(' {"const": "é"}', None, (), None) == wanted
    assert structured_outputs(None, "a+", (), None) == StructuredOutputs(regex="a+")
    assert structured_outputs(None, None, ("a", "b"), None) == StructuredOutputs(choice=["a", "b"])
    assert structured_outputs(None, None, (), str(grammar)) == StructuredOutputs(
        grammar='start: "ü"'
    )


def test_what_cannot_be_read(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff\xfe")
    with large.open("wb") as file:
        file.truncate(1 << 23)
    for path, message in (
        (binary, "not UTF-8"),
        (large, "larger than"),
        (tmp_path, "cannot be read"),
        (tmp_path / "no", "No such file"),
    ):
        with pytest.raises(BadInput, match=f"--grammar: .*{message}"):
            structured_outputs(None, None, (), str(path))
    with pytest.raises(BadInput, match="--regex and --choice both"):
        structured_outputs(None, "a", ("b",), None)
