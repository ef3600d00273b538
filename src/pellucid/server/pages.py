"""Pages: the files under `web/`, read once and held in memory.

What can be asked for is what was found there, by exact name: no path of a request reaches the file
system. They hold no data of anyone's, so that they are served without a key; what they then ask
for needs one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

WEB: Final = Path(__file__).parent / "web"
INDEX: Final = "index.html"

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Nothing from elsewhere, no inline script or style, and no way to make markup out of text.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again, and answered with 304
}


@dataclass(frozen=True, slots=True)
class Page:
    """One file: its bytes, its media type and a tag that changes with the bytes."""

    content: bytes
    media_type: str
    tag: str


@cache
def pages() -> dict[str, Page]:
    """Every file of `web/` by its path there, with forward slashes."""
    files = sorted(path for path in WEB.rglob("*") if path.suffix in _TYPES and path.is_file())
    return {path.relative_to(WEB).as_posix(): _page(path) for path in files}


# Comments on lines of their own: a tenth of what is sent, for nobody who looks at figures.
_COMMENT: Final = re.compile(rb"^[ \t]*(?://[^\n]*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)$", re.MULTILINE)


def without_comments(script: bytes) -> bytes:
    """A module of ours without comments that have lines of their own; what is left keeps its line,
    so that a browser's errors name the places of the source."""
    return _COMMENT.sub(lambda found: b"\n" * found[0].count(b"\n"), script)


def _page(path: Path) -> Page:
    content = path.read_bytes()
    if path.suffix == ".js":
        content = without_comments(content)
    tag = hashlib.blake2b(content, digest_size=12).hexdigest()
    return Page(content, _TYPES[path.suffix], f'"{tag}"')
