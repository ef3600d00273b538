"""The picture of quality against bytes per token, as an SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from pellucid.quality.intervals import Figure
from pellucid.quality.report import Measured, Report

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 110, 46, 50
COLOUR, GREY = "#2a78b5", "#888"
_LABEL = 12  # pixels between labels


def picture(report: Report) -> str:
    """Divergence of each model from the first (perplexity of each, where nothing is compared),
    with its interval, over the bytes that decoding one token moves."""
    shown = [one for one in report.measured if not report.compared or one.divergence is not None]
    figures = [_figure(one) for one in shown]
    across = _Axis.over([0, *(one.bytes_per_token / 1e6 for one in shown)], LEFT, WIDTH - RIGHT)
    up = _scale(report, figures)
    title = (
        f"divergence from {report.measured[0].name}" if report.compared else "perplexity"
    ) + f", {report.tokens} tokens of {report.text}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-weight="bold" font-size="13">{escape(title)}</text>',
        *_axes(report, across, up),
    ]
    labels = _spread([up.place(figure.value) for figure in figures])
    for one, figure, label in zip(shown, figures, labels, strict=True):
        parts += _point(one.name, across.place(one.bytes_per_token / 1e6), figure, up, label)
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
        f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="{GREY}"/>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"MB moved for a token at {report.context} positions</text>",
        f'<text x="{LEFT - 8}" y="{TOP - 8}" text-anchor="start">{unit}</text>',
    ]
    for tick in up.ticks:
        y = up.place(tick)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity="0.25"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for tick in across.ticks:
        x = across.place(tick)
        parts.append(
            f'<path d="M{x:.1f} {bottom}v4" stroke="{GREY}"/>'
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>'
        )
    return parts


def _point(name: str, x: float, figure: Figure, up: _Axis, label: float) -> list[str]:
    y, low, high = (up.place(value) for value in (figure.value, figure.low, figure.high))
    return [
        f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{COLOUR}" stroke-width="1.5"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOUR}"/>',
        f'<text x="{x + 9:.1f}" y="{label + 4:.1f}">{escape(name)}</text>',
    ]


def _spread(places: Sequence[float]) -> list[float]:
    """Heights of labels: as near to their points as fits without one over another."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    labels = list(places)
    for before, after in pairwise(order):
        labels[after] = max(labels[after], labels[before] + _LABEL)
    return labels
