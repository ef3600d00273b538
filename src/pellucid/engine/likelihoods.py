"""Likelihoods: how likely a model finds each token of a prompt."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

import numpy as np
from numpy.typing import NDArray

from pellucid.core.outputs import TokenLogprob
from pellucid.engine.probe import Probe
from pellucid.sampling.logprobs import describe

Float32 = NDArray[np.float32]
Entries = dict[int, TokenLogprob]


class Likelihoods(Probe):
    """For each token of `token_ids` but the first its log-probability, and those of the `count`
    likeliest in its place. Rows of scores are not kept: a prompt of any length takes a step's.

    not_tokens: ids that are never listed. salt: as of requests. first: of the tokens from this
    one on; of those before nothing is known.
    """

    def __init__(
        self,
        token_ids: Tokens[int],
        count: int,
        not_tokens: NDArray[np.int64] | None = None,
        salt: bytes = b"",
        first: int = 1,
    ) -> None:
        # What is known of a token stands in the row before it.
        super().__init__(token_ids, hidden=False, every=True, salt=salt, first=max(0, first - 1))
        self._count = count
        self._not_tokens = not_tokens
        self._found: list[Entries | None] = [None] * len(token_ids)

    def _take(self, end: int, rows: Float32) -> None:
        for place, row in enumerate(rows, end - len(rows) + 1):
            if place < len(self.token_ids):  # the last row is about what follows the prompt
                choice = describe(row, self.token_ids[place], self._count, self._not_tokens)
                entries = (choice.logprob, *choice.top)
                self._found[place] = {entry.token_id: entry for entry in entries if entry}

    def entries(self) -> list[Entries | None]:
        """For each token the entries of it (first) and of the likeliest, by id; None for the first
        token, which nothing comes before."""
        return self._found
