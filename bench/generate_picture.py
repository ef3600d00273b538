"""The picture of continuous and static batching: sequences that run, over time."""

from __future__ import annotations

from typing import Any

WIDTH, HEIGHT, LEFT, TOP, GAP = 720, 150, 60, 34, 64
COLOURS = {"continuous": "#2a78b5", "static": "#c2571a"}


def picture(policies: dict[str, Any]) -> str:
    """An SVG: for each policy, how many sequences each step computed, step beside step.

    policies: as `generate.py` reports them: {policy: {"running": [(start, seconds, sequences)]}}.
    """
    longest = max(_end(policies[policy]["running"]) for policy in COLOURS)
    most = max(n for policy in COLOURS for _, _, n in policies[policy]["running"])
    height = TOP + len(COLOURS) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        'font-family="sans-serif" font-size="13" fill="#333">',
        f'<rect width="{LEFT + WIDTH + 20}" height="{height}" fill="#fff"/>',
    ]
    for place, (policy, colour) in enumerate(COLOURS.items()):
        top = TOP + place * (HEIGHT + GAP)
        parts += _panel(policy, colour, policies[policy], top, longest, most)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    policy: str, colour: str, found: dict[str, Any], top: int, longest: float, most: int
) -> list[str]:
    running = found["running"]
    bottom = top + HEIGHT
    end = LEFT + WIDTH * _end(running) / longest
    title = f"{policy}: {_end(running):.1f} s, {found['steps']} steps, {found['tokens']} tokens"
    return [
        f'<text x="{LEFT}" y="{top - 10}" font-weight="bold">{title}</text>',
        f'<path d="{_area(running, longest, most, top)}" fill="{colour}" fill-opacity="0.75"/>',
        f'<path d="M{LEFT} {top}V{bottom}H{LEFT + WIDTH}" fill="none" stroke="#888"/>',
        f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{most}</text>',
        f'<text x="{LEFT - 8}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{end:.0f}" y="{bottom + 18}" text-anchor="end">{_end(running):.1f} s</text>',
        f'<text x="{LEFT}" y="{bottom + 18}">sequences in a step, over time</text>',
    ]


def _area(running: list[Any], longest: float, most: int, top: int) -> str:
    """The outline of a step function, at most one height for each of its pixels: the mean there."""
    bins: list[list[float]] = [[0.0, 0.0] for _ in range(WIDTH)]
    for start, seconds, n in running:
        place = min(WIDTH - 1, int(WIDTH * start / longest))
        bins[place][0] += n * seconds
        bins[place][1] += seconds
    bottom, path, last = top + HEIGHT, [f"M{LEFT} {top + HEIGHT}"], None
    used = min(WIDTH, int(WIDTH * _end(running) / longest) + 1)
    height = 0.0
    for place in range(used):
        weighted, seconds = bins[place]
        height = weighted / seconds if seconds else height  # within one long step
        y = round(bottom - HEIGHT * height / most)
        if y != last:
            path.append(f"H{LEFT + place}V{y}")
            last = y
    return "".join([*path, f"H{LEFT + used}V{bottom}Z"])


def _end(running: list[Any]) -> float:
    start, seconds, _ = running[-1]
    return float(start + seconds)
