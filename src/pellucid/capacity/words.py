"""Why it saturates, in words with numbers."""

from __future__ import annotations

from pellucid.capacity.report import Report
from pellucid.simulate.summary import Point
from pellucid.simulate.tally import PAGES, PLACES, TOKENS
from pellucid.simulate.times import ARITHMETIC, ATTENTION, FIXED, KV, LOGITS, ROWS, WEIGHTS

_MENDS = {
    PLACES: "raise --max-num-seqs",
    TOKENS: "raise --max-num-batched-tokens, or answer fewer at once",
    PAGES: "give keys and values fewer bits or more memory",
}
_KINDS = {
    WEIGHTS: "bandwidth",
    KV: "bandwidth",
    ARITHMETIC: "arithmetic",
    ROWS: "products",
    ATTENTION: "attention",
    LOGITS: "the head and delivery",
    FIXED: "what each step takes beside its work",
}


def why_it_saturates(report: Report) -> list[str]:
    """What a step's time goes to when all places are wanted, and what those that wait wait for."""
    crowd = report.crowd
    steps = crowd.mean(lambda run: run.steps_per_second)
    found = [
        f"{report.saturation:.3g} requests a second are the most that one replica serves: "
        f"{crowd.mean(lambda run: run.output_tokens):.4g} answer tokens a second, in steps of "
        f"{crowd.mean(lambda run: run.batch):.3g} sequences that take "
        f"{1000 / max(steps, 1e-9):.3g} ms each"
    ]
    parts = _sorted(crowd.shares(lambda run: run.parts))
    shares = ", ".join(f"{share:.0%} {name}" for name, share in parts if share >= 0.005)
    if parts:
        found.append(f"a step's time goes to: {shares}; it is bound by {bound_by(crowd)}")
    found.append(_waiting(report))
    return found


def bound_by(crowd: Point) -> str:
    """What most of a step's time is."""
    kinds: dict[str, float] = {}
    for name, share in crowd.shares(lambda run: run.parts).items():
        kind = _KINDS.get(name, name)
        kinds[kind] = kinds.get(kind, 0.0) + share
    return _sorted(kinds)[0][0] if kinds else "nothing that was seen"


def _waiting(report: Report) -> str:
    limits = report.fit.limits
    waiting = _sorted(report.crowd.shares(lambda run: run.waiting))
    if not waiting or waiting[0][1] < 0.02:
        return "nobody waits for a place, for pages or for tokens of a step"
    why, share = waiting[0]
    told = {
        PLACES: f"all {limits.max_num_seqs} places are taken",
        TOKENS: f"the step has its {limits.max_num_batched_tokens} tokens",
        PAGES: f"too few of the {limits.n_pages} pages of {limits.page_size} are free",
    }[why]
    return f"after {share:.0%} of the steps somebody waits because {told}: {_MENDS[why]}"


def _sorted(shares: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda pair: -pair[1])
