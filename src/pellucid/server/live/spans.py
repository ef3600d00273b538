"""The parts of a step's forward pass as JSON: when, how long, and what each costs at the least."""

from __future__ import annotations

import json

from pellucid.core.cost import Cost
from pellucid.core.record import StepRecord
from pellucid.costs.stages import Stage, StageCosts
from pellucid.engine.records import EngineAbout


class SpanForms:
    """Makes spans of stamps. `stages` says what the stamps are of; all that is the same in every
    step is written once."""

    def __init__(self, about: EngineAbout, stages: tuple[Stage, ...]) -> None:
        self._costs = StageCosts(about.spec, stages, about.kv_dtype, about.kv_lanes)
        self._heads = [_head(stage, about) for stage in stages]

    def of(self, record: StepRecord) -> bytes:
        """A span for each part, in order, with commas between. Nothing for a step that has no
        stamps of these stages."""
        stamps = record.stamps
        if stamps is None or len(stamps) != len(self._heads):
            return b""
        costs = self._costs.of(
            [(span.start, span.n_tokens) for span in record.spans],
            sum(span.n_logits for span in record.spans),
        )
        seconds = record.seconds
        # The last part ends with the phase: after it there is nothing to do.
        end = record.start + sum(seconds) - seconds.sample - seconds.deliver
        begin = end - sum(stamps)
        different = {id(cost): cost for cost in costs}  # a dozen, of hundreds
        numbers = {key: _numbers(cost) for key, cost in different.items()}
        step = f'"step":{record.number},"start":'
        found = []
        for head, took, cost in zip(self._heads, stamps, costs, strict=True):
            found.append(f'{head}{step}{begin:.7f},"ms":{1000 * took:.4f},{numbers[id(cost)]}}}')
            begin += took
        # One string, for one encoding; a comma between spans is what the message wants anyway.
        return ",".join(found).encode()


def _head(stage: Stage, about: EngineAbout) -> str:
    fixed = {
        "op": stage.op,
        "layer": stage.layer,
        "backend": about.backend,
        "path": about.simd,
    }
    return json.dumps(fixed, separators=(",", ":"))[:-1] + ","


def _numbers(cost: Cost) -> str:
    activations = cost.activations_read + cost.activations_written
    return f'"operations":{cost.operations},"bytes":{cost.bytes_moved},"activations":{activations}'
