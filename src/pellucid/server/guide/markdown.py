"""Chapters from Markdown: CommonMark and tables, formulas, figures, and videos.

    $a^2$ and $$a^2$$                       a formula in the line, and one by itself (`maths`)
    <pellucid-figure name="attention">      a live figure, alone on its line
    ![What it shows](assets/x.mp4 "Words")  a captioned video; of a picture, a captioned figure
    {{layers}}                              a number of the model that runs

HTML in a chapter is text: nothing but what is above reaches the page as markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from pellucid.server.guide.maths import mathml

_FIGURE: Final = re.compile(r'<pellucid-figure name="([a-z-]+)">(?:</pellucid-figure>)?\s*')
_NUMBER: Final = re.compile(r"\{\{([a-z0-9_]+)\}\}")
_VIDEOS: Final = {".mp4": "video/mp4", ".webm": "video/webm"}
_OWN: Final = re.compile(r"assets/[A-Za-z0-9_./-]+")


def render(source: str, numbers: Mapping[str, str]) -> str:
    """HTML of a chapter.

    Raises `KeyError` for a number that is not known, `FormulaError`, and `ValueError` for a picture
    that is not the guide's own.
    """
    filled = _NUMBER.sub(lambda match: numbers[match[1]], source)
    return str(_parser().render(filled))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.block.ruler.before("paragraph", "figure", _figure)
    parser.core.ruler.push("alone", _unwrap_pictures)
    parser.add_render_rule("formula", _render_formula)
    parser.add_render_rule("figure", _render_figure)
    parser.add_render_rule("image", _render_picture)
    return parser


def _formula(state: StateInline, silent: bool) -> bool:
    source, start = state.src, state.pos
    if source[start] != "$":
        return False
    fence = "$$" if source.startswith("$$", start) else "$"
    end = source.find(fence, start + len(fence))
    inside = source[start + len(fence) : end]
    if end < 0 or not inside.strip():
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content = inside
        token.meta = {"display": fence == "$$"}
    state.pos = end + len(fence)
    return True


def _figure(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
    match = _FIGURE.fullmatch(text)
    if match is None:
        return False
    if not silent:
        state.push("figure", "", 0).content = match[1]
    state.line = line + 1
    return True


def _unwrap_pictures(state: StateCore) -> None:
    """A picture that is a paragraph by itself is a figure, and no paragraph's part."""
    tokens = state.tokens
    for before, inline, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = inline.children or []
        if before.type == "paragraph_open" and [child.type for child in children] == ["image"]:
            before.hidden = after.hidden = True


def _render_formula(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    return mathml(tokens[index].content, display=bool(tokens[index].meta["display"]))


def _render_figure(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    said = (  # not before a figure comes near the window, nor between pages
        '<noscript><p class="quiet">This figure is drawn by JavaScript, which this browser does '
        "not run.</p></noscript>"
    )
    return f'<pellucid-figure name="{tokens[index].content}">{said}</pellucid-figure>\n'


def _render_picture(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[index]
    source, caption = str(token.attrGet("src")), token.attrGet("title")
    if not _OWN.fullmatch(source) or ".." in source:
        raise ValueError(f"{source[:200]}: the guide shows files under assets/ alone")
    described, link = escape(token.content), f"/guide/{escape(source)}"
    kind = next((kind for suffix, kind in _VIDEOS.items() if source.endswith(suffix)), None)
    shown = (
        f'<img src="{link}" alt="{described}" loading="lazy">'
        if kind is None
        else f'<video controls preload="metadata" aria-label="{described}">'
        f'<source src="{link}" type="{kind}"></video>'
    )
    said = f"<figcaption>{escape(str(caption))}</figcaption>" if caption else ""
    return f"<figure>{shown}{said}</figure>"
