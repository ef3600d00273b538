"""Many rows at once in native code: the rules of `Sampler`, without a loop over rows of scores.

What depends on a request's history (bias, penalties, bans) touches few tokens and is worked out
here; the passes over whole vocabularies are native. Rows that ask for log-probabilities, or for a
bias that leaves named tokens alone, go to `Sampler.choose`, and so do rows that end in an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pellucid import _native
from pellucid.core.errors import PellucidError
from pellucid.core.outputs import TokenChoice
from pellucid.core.params import MAX_BIAS
from pellucid.sampling.sampler import Draw, Sampler, allowed
from pellucid.sampling.stages import add_bias, penalise

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Ids = NDArray[np.int64]

_NO_IDS, _NO_SCORES = np.empty(0, np.int32), np.empty(0, np.float64)
_NO_MASKS = np.empty((0, 0), np.uint32)
_SEEDS = 2**64

# As native code is asked: row, mask, end of its edits, temperature, min_p, top_k, top_p, seed,
# position.
_Asked = tuple[int, int, int, float, float, int, float, int, int]


class RowsSampler(Sampler):
    """A `Sampler` that is quick at many rows; what it chooses is what a plain one would."""

    def __init__(self, is_token: NDArray[np.bool_] | None = None) -> None:
        super().__init__(is_token)
        banned = self.not_tokens
        self._banned = np.empty(0, np.int32) if banned is None else banned.astype(np.int32)
        self._space = np.empty(0, np.float64)

    def choose_rows(
        self, logits: Float32, rows: Sequence[int], draws: Sequence[Draw]
    ) -> list[TokenChoice | PellucidError]:
        """For each of `rows` of logits, float32 [R, vocabulary], what `Sampler.choose` gives or
        raises. A step may have none, and then has no logits either."""
        if not rows:
            return []
        tokens = self._tokens(logits, rows, draws)
        for draw in draws:
            if draw.form is not None:
                draws = self._check_forms(logits, rows, draws, tokens)
                break
        choices: list[TokenChoice | PellucidError] = [TokenChoice(token) for token in tokens]
        if tokens and min(tokens) < 0:
            slow = [i for i, token in enumerate(tokens) if token < 0]
            found = super().choose_rows(logits, [rows[i] for i in slow], [draws[i] for i in slow])
            for i, choice in zip(slow, found, strict=True):
                choices[i] = choice
        return choices

    def _check_forms(
        self, logits: Float32, rows: Sequence[int], draws: Sequence[Draw], tokens: list[int]
    ) -> list[Draw]:
        """Chooses again with a mask where a choice is not allowed: in `tokens`. Returns draws that
        have their masks, for those that are still to be made."""
        checked, again = list(draws), []
        refused = [
            (i, draw)
            for i, draw in enumerate(draws)
            if tokens[i] >= 0 and draw.form is not None and not draw.form.allows(tokens[i])
        ]
        for _, draw in refused[1:]:  # beside the first
            if draw.form is not None:
                draw.form.begin()
        for i, draw in refused:
            try:
                checked[i] = draw.again()
                again.append(i)
            except PellucidError:
                tokens[i] = -1  # said when it is asked for again
        if again:
            found = self._native(logits, [rows[i] for i in again], [checked[i] for i in again])
            for i, token in zip(again, found, strict=True):
                tokens[i] = token
        return checked

    def _tokens(self, logits: Float32, rows: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """A token for each row, below 0 where `Sampler.choose` has to look."""
        table = _plain_table(rows, draws)
        if table is not None:  # what nearly every step is
            return self._choose(logits, table)
        quick = [i for i, draw in enumerate(draws) if _is_quick(draw)]
        found = self._native(logits, [rows[i] for i in quick], [draws[i] for i in quick])
        tokens = [-1] * len(draws)
        for i, token in zip(quick, found, strict=True):
            tokens[i] = token
        return tokens

    def _native(self, logits: Float32, rows: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        edited: list[Ids] = []
        scores: list[Float64] = []
        masks: list[NDArray[np.uint32]] = []
        table, n_edited = [], 0
        for row, draw in zip(rows, draws, strict=True):
            params, mask = draw.params, -1
            if not _is_plain(draw):
                ids, values = self._edits(logits[row], draw)
                edited.append(ids)
                scores.append(values)
                n_edited += len(ids)
            if draw.mask is not None:
                mask = len(masks)
                masks.append(draw.mask)
            filters = (params.temperature, params.min_p, params.top_k, params.top_p)
            table.append((row, mask, n_edited, *filters, draw.seed % _SEEDS, draw.position))
        return self._choose(
            logits,
            table,
            np.stack(masks) if masks else _NO_MASKS,
            np.concatenate(edited, dtype=np.int32) if edited else _NO_IDS,
            np.concatenate(scores) if edited else _NO_SCORES,
        )

    def _choose(
        self,
        logits: Float32,
        table: list[_Asked],
        masks: NDArray[np.uint32] = _NO_MASKS,
        edited: NDArray[np.int32] = _NO_IDS,
        scores: Float64 = _NO_SCORES,
    ) -> list[int]:
        if not logits.flags.c_contiguous:
            logits = np.ascontiguousarray(logits)
        tokens: list[int] = _native.sampling.choose(
            logits, table, self._banned, masks, edited, scores
        )
        return tokens

    def _edits(self, row: Float32, draw: Draw) -> tuple[Ids, Float64]:
        """The tokens whose scores are not the model's own, and their scores."""
        params, history = draw.params, draw.history
        ids = [np.fromiter(params.logit_bias, np.int64, len(params.logit_bias))]
        if params.repetition_penalty != 1.0:
            ids.append(history.seen())
        if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
            ids.append(history.output()[0])
        ends = np.empty(0, np.int64)
        if history.generated < params.min_tokens:
            ends = np.array([token for token in draw.end_ids if token < len(row)], np.int64)
            ids.append(ends)
        touched = np.unique(np.concatenate(ids))
        if len(self._space) != len(row):
            self._space = np.empty(len(row))
        scores = self._space  # only what is touched is ever read
        scores[touched] = row[touched]
        scores[self._banned] = -np.inf
        if draw.mask is not None:
            scores[touched[~allowed(draw.mask, touched)]] = -np.inf
        scores[ends] = -np.inf
        add_bias(scores, params.logit_bias)
        penalise(
            scores,
            history,
            params.repetition_penalty,
            params.frequency_penalty,
            params.presence_penalty,
        )
        return touched, scores[touched]


def _plain_table(rows: Sequence[int], draws: Sequence[Draw]) -> list[_Asked] | None:
    """What is asked of native code where no row has edits, a mask or log-probabilities; None where
    one has."""
    table: list[_Asked] = []
    for row, draw in zip(rows, draws, strict=True):
        params, seed, position, _, _, mask, _ = draw
        if mask is not None or params.logprobs is not None or not _is_plain(draw):
            return None
        filters = params.temperature, params.min_p, params.top_k, params.top_p
        table.append((row, -1, 0, *filters, seed % _SEEDS, position))
    return table


def _is_plain(draw: Draw) -> bool:
    """Whether its scores are the model's own."""
    params = draw.params
    too_early = params.min_tokens and draw.history.generated < params.min_tokens
    return params.by_scores_alone and not too_early


def _is_quick(draw: Draw) -> bool:
    params = draw.params
    return params.logprobs is None and MAX_BIAS not in params.logit_bias.values()
