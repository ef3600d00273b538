from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.cli.output import in_bytes, printable, table, write_json


@given(st.text())
def test_printable_text_is_one_harmless_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


def test_printable_keeps_what_can_be_seen() -> None:
    assert printable("naïve 비빔밥 ✅") == "naïve 비빔밥 ✅"
    assert printable("a\nb\t\x1b[31m\u202e") == "a\\nb\\t\\x1b[31m\\u202e"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (98_362_432, "98.4 MB"),
        (4_350_000_000, "4.35 GB"),
    ],
)
def test_sizes_for_people(size: int, shown: str) -> None:
    assert in_bytes(size) == shown


def test_table_aligns_its_columns() -> None:
    assert table([("a", "1"), ("bbb", "22")], right=(1,)) == "a     1\nbbb  22"


@given(
    st.dictionaries(
        st.text(), st.floats() | st.text() | st.lists(st.floats() | st.integers()), max_size=5
    )
)
def test_json_is_one_line_that_any_parser_reads(value: dict[str, object]) -> None:
    import contextlib
    import io

    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        write_json(value)
    assert stream.getvalue().count("\n") == 1

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(stream.getvalue(), parse_constant=refuse).keys() == value.keys()
