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

    def of(self, record: StepRecord) -> list[bytes]:
        """A span for each part, in order. None for a step that has no stamps of these stages."""
        stamps = record.stamps
        if stamps is None or len(stamps) != len(self._heads):
            return []
        costs = self._costs.of(
            [(span.start, span.n_tokens) for span in record.spans],
            sum(span.n_logits for span in record.spans),
        )
        seconds = record.seconds
        # The last part ends with the phase: after it there is nothing to do.
        end = record.start + sum(seconds) - seconds.sample - seconds.deliver
        begin = end - sum(stamps)
        found = []
        for head, took, cost in zip(self._heads, stamps, costs, strict=True):
            found.append(
                b'%s"step":%d,"start":%.7f,"ms":%.4f,%s}'
                % (head, record.number, begin, 1000 * took, _numbers(cost))
            )
            begin += took
        return found


def _head(stage: Stage, about: EngineAbout) -> bytes:
    fixed = {
        "op": stage.op,
        "layer": stage.layer,
        "backend": about.backend,
        "path": about.simd,
    }
    return json.dumps(fixed, separators=(",", ":")).encode()[:-1] + b","


def _numbers(cost: Cost) -> bytes:
    moved = cost.weights_read + cost.kv_read + cost.kv_written
    activations = cost.activations_read + cost.activations_written
    return b'"operations":%d,"bytes":%d,"activations":%d' % (cost.operations, moved, activations)
