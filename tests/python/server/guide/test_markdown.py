"""Chapters from Markdown: figures, videos, numbers, and no markup of anybody else's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.guide.markdown import render
from pellucid.server.guide.maths import FormulaError


def test_a_video_is_a_captioned_clip_of_our_own() -> None:
    html = render('![Short description](assets/video/demo.mp4 "Caption & all")', {})
    assert html.strip() == (
        '<figure><video controls preload="metadata" aria-label="Short description">'
        '<source src="/guide/assets/video/demo.mp4" type="video/mp4"></video>'
        "<figcaption>Caption &amp; all</figcaption></figure>"
    )
    assert 'type="video/webm"' in render("![x](assets/a.webm)", {})
    assert '<img src="/guide/assets/a.svg" alt="x"' in render("![x](assets/a.svg)", {})


def test_a_picture_in_a_line_stays_in_its_paragraph() -> None:
    assert render("a ![x](assets/a.svg) b", {}).startswith("<p>a <figure>")


@pytest.mark.parametrize(
    "source",
    ["https://elsewhere.example/a.mp4", "assets/../secret.mp4", "//x/a.png", "other/a.png"],
)
def test_what_is_elsewhere_is_not_shown(source: str) -> None:
    with pytest.raises(ValueError, match="assets"):
        render(f"![x]({source})", {})


def test_a_figure_stands_alone_on_its_line() -> None:
    html = render('before\n\n<pellucid-figure name="kv-cache"></pellucid-figure>\n\nafter', {})
    assert '<pellucid-figure name="kv-cache">' in html
    assert "JavaScript" in html
    assert "&lt;pellucid-figure" in render('in <pellucid-figure name="a"></pellucid-figure> it', {})


def test_numbers_are_filled_in_before_anything_is_read() -> None:
    assert "<p>30 of <math><mn>30</mn></math></p>" in render(
        "{{layers}} of ${{layers}}$", {"layers": "30"}
    )
    with pytest.raises(KeyError):
        render("{{nothing}}", {"layers": "30"})


def test_formulas_and_what_only_looks_like_one() -> None:
    assert '<math display="block">' in render("$$a = b$$", {})
    assert "<math" not in render("It costs 5$ and no more.", {})
    assert "<code>$a$</code>" in render("`$a$`", {})
    with pytest.raises(FormulaError):
        render(r"$\nosuch$", {})


@given(st.text(alphabet="<>&\"'ab/=! -script[]()`*_#\n", max_size=60))
def test_no_markup_but_our_own_comes_out(source: str) -> None:
    try:
        html = render(source, {})
    except ValueError:
        return
    assert "<script" not in html
    assert "<b" not in html.replace("<blockquote", "").replace("<br", "")
