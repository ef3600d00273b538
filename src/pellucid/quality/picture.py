"""The picture of quality against bytes per token, as an SVG."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from pellucid.quality.intervals import Figure
from pellucid.quality.report import Measured, Report

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 110, 46, 50
# Colours that stand out of light paper, and of dark where the reader asks for that; no variables,
# which few programs but browsers know.
STYLE = """<style>
.paper { fill: #fff } text { fill: #333 } .axis, .grid { stroke: #888; fill: none }
.grid { stroke-opacity: 0.3 }
.interval { stroke: #2a78b5; stroke-width: 1.5 } .point { fill: #2a78b5 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #15181c } text { fill: #d6dade } .axis, .grid { stroke: #7b838c }
  .interval { stroke: #6bb4ec } .point { fill: #6bb4ec }
}
</style>"""
_LINE, _LETTER = 12, 7  # pixels of a label's line, and of a letter at most


def picture(report: Report) -> str:
    """Divergence of each model from the first (perplexity of each, where nothing is compared),
    with its interval, over the bytes that decoding one token moves."""
    shown = [one for one in report.measured if not report.compared or one.divergence is not None]
    figures = [_figure(one) for one in shown]
    across = _Axis.over([one.bytes_per_token / 1e6 for one in shown], LEFT, WIDTH - RIGHT)
    up = _scale(report, figures)
    title = (
        f"divergence from {report.measured[0].name}" if report.compared else "perplexity"
    ) + f", {report.tokens} tokens of {report.text}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        STYLE,
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text x="{LEFT}" y="22" font-weight="bold" font-size="13">{escape(title)}</text>',
        *_axes(report, across, up),
    ]
    points = [
        (across.place(one.bytes_per_token / 1e6), up.place(figure.value))
        for one, figure in zip(shown, figures, strict=True)
    ]
    labels = _labels([one.name for one in shown], points)
    for one, (x, _), figure, label in zip(shown, points, figures, labels, strict=True):
        parts += _point(x, figure, up)
        parts.append(f'<text x="{label.x:.1f}" y="{label.y:.1f}">{escape(one.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _figure(one: Measured) -> Figure:
    return one.perplexity if one.divergence is None else one.divergence.mean


class _Axis:
    """From values to pixels; `ticks` are the values that are named."""

    def __init__(self, low: float, high: float, first: float, last: float, ticks: Sequence[float]):
        self.low, self.high, self.first, self.last = low, high, first, last
        self.ticks = ticks

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float) -> _Axis:
        low, high = min(values), max(values)
        step = _round_step((high - low) / 4 or 1.0)
        begin, end = math.floor(low / step), math.ceil(high / step)
        end = max(end, begin + 1)
        return cls(begin * step, end * step, first, last, [i * step for i in range(begin, end + 1)])

    def place(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


class _LogAxis(_Axis):
    """Powers of ten; what is 0 lies at the lower end."""

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float) -> _LogAxis:
        positive = [value for value in values if value > 0] or [1.0]
        low, high = (math.log10(end) for end in (min(positive), max(positive)))
        begin, end = math.floor(low), math.ceil(high)
        end = max(end, begin + 1)
        return cls(begin, end, first, last, [10.0**i for i in range(begin, end + 1)])

    def place(self, value: float) -> float:
        power = math.log10(value) if value > 0 else self.low
        return super().place(min(max(power, self.low), self.high))


def _scale(report: Report, figures: Sequence[Figure]) -> _Axis:
    ends = [end for figure in figures for end in (figure.value, figure.low, figure.high)]
    kind = _LogAxis if report.compared else _Axis
    return kind.over(ends, HEIGHT - BOTTOM, TOP)


def _round_step(size: float) -> float:
    """1, 2 or 5 times a power of ten, at least `size`."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= size * (1 - 1e-9))


def _axes(report: Report, across: _Axis, up: _Axis) -> list[str]:
    bottom = HEIGHT - BOTTOM
    unit = "nats, mean KL divergence" if report.compared else "perplexity"
    parts = [
        f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" class="axis"/>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"MB moved for a token at {report.context} positions</text>",
        f'<text x="{LEFT - 8}" y="{TOP - 8}" text-anchor="start">{unit}</text>',
    ]
    for tick in up.ticks:
        y = up.place(tick)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" class="grid"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for tick in across.ticks:
        x = across.place(tick)
        parts.append(
            f'<path d="M{x:.1f} {bottom}v4" class="axis"/>'
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>'
        )
    return parts


def _point(x: float, figure: Figure, up: _Axis) -> list[str]:
    y, low, high = (up.place(value) for value in (figure.value, figure.low, figure.high))
    return [
        f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" class="interval"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="point"/>',
    ]


@dataclass(frozen=True, slots=True)
class _Box:
    """A rectangle; of a label, `x` and `y` are where its text begins."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def x(self) -> float:
        return self.left

    @property
    def y(self) -> float:
        return self.bottom - 3

    def meets(self, other: _Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def _labels(names: Sequence[str], points: Sequence[tuple[float, float]]) -> list[_Box]:
    """A place for each name: as near to its point as fits without one over another, or over a
    point."""
    taken = [_Box(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    found: dict[int, _Box] = {}
    for i in sorted(range(len(names)), key=lambda i: points[i][1]):
        places = _places(names[i], *points[i])
        found[i] = next(place for place in places if not any(place.meets(one) for one in taken))
        taken.append(found[i])
    return [found[i] for i in range(len(names))]


def _places(name: str, x: float, y: float) -> Iterator[_Box]:
    """Right and left of a point, where there is room, then ever further above and below."""
    width = _LETTER * len(name)
    right, left = x + 9, x - 9 - width
    sides = [at for at in (right, left) if at >= 0 and at + width <= WIDTH] or [right]
    for line in itertools.count():
        for drop in sorted({line * _LINE, -line * _LINE}):
            top = y + drop - _LINE / 2
            for side in sides:
                yield _Box(side, top, side + width, top + _LINE)
