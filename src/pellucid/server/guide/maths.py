"""Formulas: the part of LaTeX's mathematics that the guide uses, as MathML Core.

    formula  = item*
    item     = atom [_ argument] [^ argument], in either order
    argument = atom | { formula }
    atom     = number | letter | operator | command | { formula } | \\left D formula \\right D

What is not among the commands below is refused by name: a formula is never shown half.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Final

_TOKEN: Final = re.compile(
    r"\\[A-Za-z]+|\\.|\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?|\s+|.", re.DOTALL
)
_TEXT: Final = re.compile(r"\s*\{([^{}]*)\}")
_GREEK: Final = "alpha beta gamma delta epsilon theta lambda mu pi rho sigma tau phi omega"
_GREEK_SIGNS: Final = "αβγδεθλμπρστφω"
_LETTERS: Final = dict(zip(_GREEK.split(), _GREEK_SIGNS, strict=True)) | {
    "infty": "∞", "ell": "ℓ", "top": "⊤",
}  # fmt: skip
_OPERATORS: Final = {
    "times": "×", "cdot": "·", "odot": "⊙", "pm": "±", "le": "≤", "ge": "≥", "ne": "≠",
    "approx": "≈", "in": "∈", "to": "→", "gets": "←", "ldots": "…", "cdots": "⋯", "mid": "|",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "{": "{", "}": "}", "%": "%",
}  # fmt: skip
_LARGE: Final = {"sum": "∑", "prod": "∏"}
_NAMES: Final = ("max", "min", "exp", "log", "cos", "sin", "tanh")
_DELIMITERS: Final = (*"()[]|.", "\\{", "\\}", "\\lfloor", "\\rfloor", "\\lceil", "\\rceil")
_SPACES: Final = {",": "0.17em", ";": "0.28em", " ": "0.3em", "quad": "1em"}
_UNDER: Final = {*_LARGE, "max", "min"}  # what takes its limits below and above, displayed


class FormulaError(ValueError):
    """A formula that cannot be read; the message says what in it."""


def mathml(source: str, *, display: bool = False) -> str:
    """`source` as a `math` element. Raises `FormulaError`."""
    parser = _Parser(source, display)
    row = parser.row(end=None)
    kind = ' display="block"' if display else ""
    return f"<math{kind}>{_grouped(row)}</math>"


class _Parser:
    def __init__(self, source: str, display: bool) -> None:
        self._source, self._display, self._at = source, display, 0

    def row(self, end: str | None) -> list[str]:
        """Items up to `end`, which is taken; None is the end of all."""
        items: list[str] = []
        while (token := self._next()) != end:
            if token is None or token in ("}", "\\right"):
                raise self._wrong(f"{end or 'nothing'!r} was expected, not {token!r}")
            items.append(self._with_scripts(token))
        return items

    def _with_scripts(self, token: str) -> str:
        base, under, over = self._atom(token), "", ""
        while (mark := self._peek()) in ("_", "^"):
            self._next()
            script = self._argument()
            if (mark == "_" and under) or (mark == "^" and over):
                raise self._wrong(f"two {mark} on one base")
            under, over = (script, over) if mark == "_" else (under, script)
        if not under and not over:
            return base
        limits = self._display and token.removeprefix("\\") in _UNDER
        kind = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
        name = kind[2] if under and over else kind[0] if under else kind[1]
        return f"<{name}>{base}{under}{over}</{name}>"

    def _atom(self, token: str) -> str:
        if token.startswith("\\"):
            return self._command(token[1:])
        if token == "{":
            return _grouped(self.row("}"))
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in "_^&$#~":
            raise self._wrong(f"{token!r} stands where a symbol should")
        return f"<mo>{'−' if token == '-' else escape(token)}</mo>"

    def _command(self, name: str) -> str:
        special: dict[str, Callable[[], str]] = {
            "frac": lambda: f"<mfrac>{self._argument()}{self._argument()}</mfrac>",
            "sqrt": lambda: f"<msqrt>{self._argument()}</msqrt>",
            "hat": lambda: f"<mover>{self._argument()}<mo>^</mo></mover>",
            "text": lambda: f"<mtext>{escape(self._braced())}</mtext>",
            "operatorname": lambda: f"<mi>{escape(self._braced())}</mi><mo>&#x2061;</mo>",
            "mathrm": lambda: f"<mi>{escape(self._braced())}</mi>",
            "left": self._fenced,
        }
        if name in special:
            made = special[name]()
            return f"<mrow>{made}</mrow>" if name == "operatorname" else made
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{_OPERATORS[name]}</mo>"
        if name in _LARGE:
            return f'<mo movablelimits="false">{_LARGE[name]}</mo>'
        if name in _NAMES:
            return f"<mi>{name}</mi>"
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"/>'
        raise self._wrong(f"\\{name} is not among the commands of the guide")

    def _fenced(self) -> str:
        opening = self._delimiter()
        inside = _grouped(self.row("\\right"))
        return f"<mrow>{opening}{inside}{self._delimiter()}</mrow>"

    def _delimiter(self) -> str:
        token = self._next()
        if token is None or token not in _DELIMITERS:
            raise self._wrong(f"{token!r} is no delimiter")
        if token == ".":
            return ""
        return f'<mo fence="true">{_OPERATORS.get(token.removeprefix(chr(92)), token)}</mo>'

    def _argument(self) -> str:
        token = self._next()
        if token is None or token in "}_^":
            raise self._wrong("an argument is missing")
        return self._atom(token)

    def _braced(self) -> str:
        match = _TEXT.match(self._source, self._at)
        if match is None:
            raise self._wrong("a text in braces is missing")
        self._at = match.end()
        return match[1]

    def _next(self) -> str | None:
        while (match := _TOKEN.match(self._source, self._at)) is not None:
            self._at = match.end()
            if not match[0].isspace():
                return match[0]
        return None

    def _peek(self) -> str | None:
        at = self._at
        token = self._next()
        self._at = at
        return token

    def _wrong(self, what: str) -> FormulaError:
        return FormulaError(f"formula {self._source!r}, before character {self._at}: {what}")


def _grouped(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"<mrow>{''.join(items)}</mrow>"
