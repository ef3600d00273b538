"""The picture: every model where its figures put it, and well-formed whatever its name."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from pellucid.quality.intervals import Figure
from pellucid.quality.picture import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, picture
from pellucid.quality.report import Divergence, Measured, Report

SVG = "{http://www.w3.org/2000/svg}"


def measured(name: str, megabytes: float, kl: float | None) -> Measured:
    one = Figure(1.0, 1.0, 1.0)
    divergence = None
    if kl is not None:
        divergence = Divergence(Figure(kl, kl * 0.8, kl * 1.3), one, one, one)
    nbytes = int(megabytes * 1e6)
    perplexity = Figure(20 + megabytes, 19 + megabytes, 22 + megabytes)
    return Measured(name, "/m", None, "f16", "int8", nbytes, nbytes, perplexity, divergence, None)


def drawn(*models: Measured, compared: bool) -> tuple[list[tuple[float, float]], list[str]]:
    """Where the points are, and every text."""
    report = Report("a <text>", 500, 512, "native", 2, compared, models)
    root = ElementTree.fromstring(picture(report))
    points = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]
    for x, y in points:
        assert LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM
    return points, [text.text or "" for text in root.iter(f"{SVG}text")]


def test_divergence_over_bytes() -> None:
    base = measured("base & all", 270, None)
    models = [measured("q8_0", 143, 0.001), measured("q4<_0", 78, 0.1), measured("tiny", 20, 1.0)]
    points, texts = drawn(base, *models, compared=True)
    assert len(points) == 3  # not the one that others are held against
    assert points[0][0] > points[1][0] > points[2][0]  # more bytes, further right
    assert points[0][1] > points[1][1] > points[2][1]  # less divergence, further down
    decades = (points[0][1] - points[1][1]) / (points[1][1] - points[2][1])
    assert abs(decades - 2) < 0.02  # a factor of 100 and one of 10
    assert any("divergence from base & all, 500 tokens of a <text>" in text for text in texts)
    assert "q4<_0" in texts


def test_perplexity_where_nothing_is_compared() -> None:
    points, texts = drawn(measured("a", 100, None), measured("b", 50, None), compared=False)
    assert len(points) == 2 and points[0][1] < points[1][1]
    assert any(text.startswith("perplexity") for text in texts)


def test_one_point_and_no_divergence_at_all() -> None:
    points, _ = drawn(measured("m", 9, None), measured("m", 9, 0.0), compared=True)
    assert len(points) == 1
    assert len(drawn(measured("m", 9, None), compared=False)[0]) == 1


@given(st.lists(st.tuples(st.floats(1, 300), st.floats(1e-6, 10)), min_size=1, max_size=12))
def test_labels_cover_neither_each_other_nor_a_point(at: list[tuple[float, float]]) -> None:
    names = [f"name{i}" for i in range(len(at))]
    models = [measured(name, *place) for name, place in zip(names, at, strict=True)]
    report = Report("t", 9, 9, "native", 1, True, (measured("base", 300, None), *models))
    root = ElementTree.fromstring(picture(report))
    texts = {text.text: text.attrib for text in root.iter(f"{SVG}text")}
    labels = [(float(texts[name]["x"]), float(texts[name]["y"])) for name in names]
    for (x, y), (other_x, other_y) in combinations(labels, 2):
        assert abs(x - other_x) >= 34.9 or abs(y - other_y) >= 11.9
    for circle in root.iter(f"{SVG}circle"):
        cx, cy = float(circle.attrib["cx"]), float(circle.attrib["cy"])
        for x, y in labels:
            assert not (x < cx < x + 30 and y - 9 < cy < y)


def test_dark_paper_has_colours_of_its_own() -> None:
    report = Report("t", 9, 9, "native", 1, False, (measured("m", 9, None),))
    light, _, dark = picture(report).partition("@media (prefers-color-scheme: dark)")
    for part in (".paper", "text", ".point", ".interval", ".grid"):
        assert part in light and part in dark
