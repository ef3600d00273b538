"""Which names a chat template reads of whoever lays a conversation out."""

from __future__ import annotations

import pytest

from pellucid.text.chat import ChatTemplate


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", {"messages"}),
        ("{% set x = 1 %}{{ x }}{{ bos_token }}", {"bos_token"}),
        (
            "{% if enable_thinking is defined and not enable_thinking %}-{% endif %}",
            {"enable_thinking"},
        ),
        ("{% if not date is defined %}{% set date = 'now' %}{% endif %}{{ date }}", {"date"}),
        ("{% macro f(a) %}{{ a }}{{ b }}{% endmacro %}{{ f(c) }}", {"b", "c"}),
    ],
)
def test_names_that_are_read(source: str, names: set[str]) -> None:
    assert ChatTemplate(source).variables == names
