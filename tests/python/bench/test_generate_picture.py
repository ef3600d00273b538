"""The picture of the two policies: well-formed, small, and true to its figures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from generate_picture import HEIGHT, LEFT, TOP, WIDTH, picture


def steps(n: int, seconds: float, sequences: int) -> list[tuple[float, float, int]]:
    return [(i * seconds, seconds, sequences) for i in range(n)]


def test_the_area_is_as_high_and_as_long_as_the_run() -> None:
    half = steps(5000, 0.01, 32) + [(50 + i * 0.01, 0.01, 8) for i in range(2500)]
    policies = {
        "continuous": {"running": steps(3000, 0.01, 32), "steps": 3000, "tokens": 9},
        "static": {"running": half, "steps": 7500, "tokens": 9},
    }
    svg = picture(policies)
    assert len(svg) < 20_000
    root = ElementTree.fromstring(svg)
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert "continuous: 30.0 s, 3000 steps, 9 tokens" in texts
    assert "static: 75.0 s, 7500 steps, 9 tokens" in texts
    areas = [e.get("d") or "" for e in root.iter() if e.get("fill-opacity")]
    ends = [max(map(int, re.findall(r"H(\d+)", area))) - LEFT for area in areas]
    assert abs(ends[0] - WIDTH * 30 / 75) <= 2
    assert abs(ends[1] - WIDTH) <= 2
    heights = {int(y) for y in re.findall(r"V(\d+)", areas[0])}
    assert TOP in heights  # full, from the beginning
    lower = TOP + HEIGHT + 64 + round(HEIGHT * 3 / 4)
    assert any(abs(int(y) - lower) <= 1 for y in re.findall(r"V(\d+)", areas[1]))
