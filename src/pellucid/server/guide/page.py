"""The guide's pages: a chapter between its neighbours, and the table of contents."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from pellucid.server.guide.chapters import CHAPTERS, TITLE, Chapter, chapters
from pellucid.server.guide.markdown import render
from pellucid.server.guide.numbers import in_words

_CLIP: Final = re.compile(r"^!\[[^\]\n]*\]\((assets/video/[\w.-]+)[^\n]*\)$", re.MULTILINE)


def contents_page(numbers: Mapping[str, Any]) -> str:
    """What there is to read."""
    items = "".join(
        f'<li><a href="/guide/{one.name}">{escape(one.title)}</a> '
        f'<span class="quiet">{one.minutes} min</span>'
        f'<span class="asks">{escape(one.opening)}</span></li>\n'
        for one in chapters().values()
    )
    minutes = sum(one.minutes for one in chapters().values())
    words = in_words(numbers)
    body = (
        f"<h1>{TITLE}</h1>\n"
        "<p>How a language model answers, from the first token of one prompt to a server with a "
        "thousand of them. For whoever can read a little code and wants to know what the numbers "
        "on the bill mean.</p>\n"
        f"<p>The figures are asked of an engine that runs {escape(words['name'])}, "
        f"{words['parameters']} parameters in {words['layers']} layers: of the one that serves "
        "this page or, in a copy, of the one that it was recorded with. The formulas have the "
        "model's numbers in them.</p>\n"
        f'<p class="quiet">About {minutes} minutes, without the figures.</p>\n'
        f'<ol class="contents">\n{items}</ol>\n'
    )
    return _shell(TITLE, body, numbers)


def chapter_page(chapter: Chapter, numbers: Mapping[str, Any]) -> str:
    """One chapter. Raises what `render` raises."""
    body = render(_shown(chapter.source), in_words(numbers)) + _neighbours(chapter)
    return _shell(f"{chapter.title} · {TITLE}", body, numbers)


def _shown(source: str) -> str:
    """A chapter without the clips that were not made here: `make docs` films them."""
    return _CLIP.sub(lambda line: line[0] if (CHAPTERS / line[1]).is_file() else "", source)


def _neighbours(chapter: Chapter) -> str:
    every = list(chapters().values())
    at = every.index(chapter)
    before = every[at - 1] if at else None
    after = every[at + 1] if at + 1 < len(every) else None
    links = (
        ""
        if before is None
        else f'<a rel="prev" href="/guide/{before.name}">← {escape(before.title)}</a>',
        '<a href="/guide">Contents</a>',
        ""
        if after is None
        else f'<a rel="next" href="/guide/{after.name}">{escape(after.title)} →</a>',
    )
    return f'<nav class="neighbours" aria-label="Chapters">{"".join(links)}</nav>\n'


def _shell(title: str, body: str, numbers: Mapping[str, Any]) -> str:
    data = json.dumps(numbers).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        '<link rel="icon" href="/web/icon.svg" type="image/svg+xml">\n'
        '<link rel="stylesheet" href="/web/base.css">\n'
        '<link rel="stylesheet" href="/web/guide/guide.css">\n'
        f'<script type="application/json" id="numbers">{data}</script>\n'
        '<script type="module" src="/web/guide/main.js"></script>\n'
        '</head>\n<body class="guide">\n'
        '<a class="skip" href="#text">To the text</a>\n'
        f'<header class="top"><a href="/guide">{TITLE}</a><span class="tools"></span></header>\n'
        f'<main id="text" tabindex="-1">\n{body}</main>\n</body>\n</html>\n'
    )
