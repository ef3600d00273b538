"""Runs an engine and keeps the bits of every row of logits that a token was chosen from."""

from __future__ import annotations

import numpy as np

from pellucid import LLM, SamplingParams
from pellucid.core.outputs import TokenChoice
from pellucid.sampling import Draw, Sampler

Rows = dict[tuple[int, int], bytes]  # by seed and position
Asked = tuple[list[int], SamplingParams]


class Recorder(Sampler):
    def __init__(self, inner: Sampler) -> None:
        self.inner = inner
        self.rows: Rows = {}

    def choose(self, logits: np.ndarray, draw: Draw) -> TokenChoice:
        self.rows[draw.seed, draw.position] = logits.tobytes()
        return self.inner.choose(logits, draw)


def run(llm: LLM, requests: list[Asked]) -> tuple[list[list[list[int]]], Rows]:
    """Tokens of every answer of every request, and the rows they were chosen from."""
    engine = llm._engine
    assert engine is not None
    stepper = engine._stepper
    recorder = stepper.sampler = Recorder(stepper.sampler)
    try:
        outputs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt, _ in requests],
            [params for _, params in requests],
        )
    finally:
        stepper.sampler = recorder.inner
    return [[answer.token_ids for answer in output.outputs] for output in outputs], recorder.rows
