"""Cost models of a kind that results can be worked out from by hand."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.scheduling import Limits
from pellucid.simulate.lengths import Fixed, Lengths
from pellucid.simulate.run import Run, run
from pellucid.simulate.setup import Setup
from pellucid.simulate.summary import Summary, summarize
from pellucid.simulate.times import Spans
from pellucid.simulate.traffic import Made, Traffic


@dataclass(frozen=True)
class Constant:
    """Each step takes the same, and so much more for each row."""

    step: float = 0.01
    row: float = 0.0

    def seconds(self, spans: Spans) -> float:
        return self.step + self.row * sum(span.n_tokens for span in spans)

    def parts(self, spans: Spans) -> dict[str, float]:
        return {"step": self.seconds(spans)}

    def draft_seconds(self, spans: Spans, guesses: int, size: float) -> float:
        return guesses * size * self.step


def limits(**changes: int | bool) -> Limits:
    given: dict[str, int | bool] = {
        "max_model_len": 512,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "n_pages": 256,
        "page_size": 16,
        "prefix_caching": True,
    }
    return Limits(**{**given, **changes})  # type: ignore[arg-type]


def made(
    rate: float, prompt: Lengths | int = 20, output: Lengths | int = 10, **more: float
) -> Made:
    sizes = [Fixed(x) if isinstance(x, int) else x for x in (prompt, output)]
    return Made(rate, *sizes, **more)  # type: ignore[arg-type]


def summary(setup: Setup, traffic: Traffic, count: int, seed: int = 0, **more: int) -> Summary:
    return summarize(setup, run(setup, traffic, count, seed, **more))


def check_conserved(found: Run) -> None:
    """Every request that came has ended, with every token, after it came."""
    tally = found.tally
    assert tally.n_over == len(found.jobs)
    for i, job in enumerate(found.jobs):
        assert job.at < tally.first_token[i] <= tally.ended[i] <= found.ended
        assert (tally.first_token[i] == tally.ended[i]) == (job.output == 1)
    looked = found.jobs[found.first :]
    assert len(tally.gaps) == sum(job.output - 1 for job in looked)
