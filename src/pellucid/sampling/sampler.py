"""Sampler: every stage in order, one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import TokenChoice
from pellucid.core.params import SamplingParams
from pellucid.sampling.filters import candidates
from pellucid.sampling.history import History
from pellucid.sampling.logprobs import describe
from pellucid.sampling.random import second_seed, uniform
from pellucid.sampling.stages import Row, add_bias, apply_temperature, penalise

Float32 = NDArray[np.float32]


class Form(Protocol):
    """Which tokens may be chosen, asked one by one or as a mask. Errors are `BadInput`."""

    def allows(self, token: int) -> bool: ...

    def begin(self) -> None:
        """The mask will be asked for: it may be computed meanwhile."""

    def mask(self) -> NDArray[np.uint32]: ...


class Draw(NamedTuple):
    """What the choice of one token depends on, its scores aside.

    `position` is where the token will stand in its sequence; `end_ids` are the tokens that
    would end the answer, banned until `params.min_tokens` are out. `mask`, uint32
    [ceil(vocabulary / 32)], has bit t % 32 of word t // 32 set where token t may be chosen; None:
    any may. `form` stands for a mask that is only looked at where the choice without it is not
    allowed (`may_be_checked_after` says for which parameters). What is then chosen with it is drawn
    by another number.

    So each token comes as often as if the mask had been there from the start. Where the likeliest
    is chosen it is the same token. Where one is drawn, let p be the chances without the mask, and
    P what the allowed tokens have of them together: token t comes with the chance
    p(t) + (1 - P) p(t) / P = p(t) / P.
    """

    params: SamplingParams
    seed: int
    position: int
    history: History
    end_ids: tuple[int, ...] = ()
    mask: NDArray[np.uint32] | None = None
    form: Form | None = None

    def masked(self) -> Draw:
        """The same with its form as a mask. Raises `BadInput`."""
        return self if self.form is None else self._replace(mask=self.form.mask(), form=None)

    def again(self) -> Draw:
        """What is drawn where the form refused. Raises `BadInput`."""
        return self.masked()._replace(seed=second_seed(self.seed, self.position))


class Distribution(NamedTuple):
    """Tokens, int64 [n] ascending, and their probabilities, float64 [n]; all others have none."""

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def of(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probabilities of `tokens`, float64 [m]."""
        places = np.minimum(np.searchsorted(self.ids, tokens), len(self.ids) - 1)
        return np.where(self.ids[places] == tokens, self.probabilities[places], 0.0)


def may_be_checked_after(params: SamplingParams) -> bool:
    """Whether a token that is chosen freely, if allowed, is one that a mask would have given: what
    the others are may matter only by what they share of the whole."""
    filters = params.min_p > 0.0 or params.top_k > 0 or params.top_p < 1.0
    return not params.logit_bias and (params.greedy or not filters)


class Sampler:
    """Chooses tokens of a vocabulary.

    `is_token`, bool [vocabulary]: False at the rows that pad a model's table past its
    tokenizer's last token; those ids are never chosen. None: every id is a token.
    """

    def __init__(self, is_token: NDArray[np.bool_] | None = None) -> None:
        missing = None if is_token is None else np.flatnonzero(~is_token)
        self.not_tokens = missing if missing is not None and len(missing) else None

    def choose(self, logits: Float32, draw: Draw) -> TokenChoice:
        """The next token from one row of logits, float32 [vocabulary].

        Raises `PellucidError` for scores that are not numbers, `BadInput` when bias and mask
        leave no token.
        """
        _check_scores(logits, draw.position)
        token = self._token(logits, draw)
        if draw.form is not None and not draw.form.allows(token):
            token = self._token(logits, draw.again())
        return self.describe(logits, draw, token)

    def distribution(self, logits: Float32, draw: Draw) -> Distribution:
        """What the next token is drawn from, after every stage but the draw. Raises as `choose`."""
        _check_scores(logits, draw.position)
        draw = draw.masked()
        row = logits.astype(np.float64)
        self.ban(row, draw)
        ids, weights = _candidates(row, draw)
        return Distribution(ids, weights / weights.sum())

    def describe(self, logits: Float32, draw: Draw, token: int) -> TokenChoice:
        """`token` as a choice from a row of logits, with what is asked of its neighbours."""
        if draw.params.logprobs is None:
            return TokenChoice(token)
        return describe(logits, token, draw.params.logprobs, self.not_tokens)

    def choose_rows(
        self, logits: Float32, rows: Sequence[int], draws: Sequence[Draw]
    ) -> list[TokenChoice | PellucidError]:
        """For each of `rows` of logits, float32 [R, vocabulary], what `choose` gives or raises."""
        choices: list[TokenChoice | PellucidError] = []
        for row, draw in zip(rows, draws, strict=True):
            try:
                choices.append(self.choose(logits[row], draw))
            except PellucidError as error:
                choices.append(error)
        return choices

    def _token(self, logits: Float32, draw: Draw) -> int:
        row = logits.astype(np.float64)
        self.ban(row, draw)
        return _pick(row, draw)

    def ban(self, row: Row, draw: Draw) -> None:
        """Makes scores of what may not be chosen -inf: padding, a mask, ends that come early."""
        if self.not_tokens is not None:
            row[self.not_tokens] = -np.inf
        if draw.mask is not None:
            row[~unpacked(draw.mask, len(row))] = -np.inf
        if draw.history.generated < draw.params.min_tokens:
            # A tokenizer may name ends that the model has no row for.
            row[[token for token in draw.end_ids if token < len(row)]] = -np.inf


def unpacked(mask: NDArray[np.uint32], vocabulary: int) -> NDArray[np.bool_]:
    """A mask's bits, bool [vocabulary]. Raises ValueError when it is of another vocabulary."""
    if mask.shape != ((vocabulary + 31) // 32,):
        raise ValueError(f"a mask of {mask.shape} words for a vocabulary of {vocabulary}")
    octets = mask.astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(octets, count=vocabulary, bitorder="little").view(np.bool_)


def allowed(mask: NDArray[np.uint32], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The bits of a mask at `ids`."""
    return (mask[ids // 32] >> (ids % 32).astype(np.uint32) & 1).astype(np.bool_)


def _pick(row: Row, draw: Draw) -> int:
    if draw.params.greedy:
        return _best(row, draw)
    ids, weights = _candidates(row, draw)
    return int(ids[invert(weights, uniform(draw.seed, draw.position))])


def _candidates(row: Row, draw: Draw) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that may be drawn, ascending, and their weights."""
    best = _best(row, draw)
    if draw.params.greedy:
        return np.array([best]), np.ones(1)
    params = draw.params
    row = apply_temperature(row, params.temperature)
    ids = candidates(row, params.min_p, params.top_k, params.top_p)
    return ids, np.exp(row[ids])


def _best(row: Row, draw: Draw) -> int:
    """The likeliest token once bias and penalties are in the row."""
    params = draw.params
    add_bias(row, params.logit_bias)
    penalise(
        row,
        draw.history,
        params.repetition_penalty,
        params.frequency_penalty,
        params.presence_penalty,
    )
    best = int(np.argmax(row))  # the first of equals
    if row[best] == -np.inf:
        raise BadInput(
            f"no token is left to choose at position {draw.position}: "
            "logit_bias, min_tokens and structured_outputs together ban them all; relax one of them"
        )
    return best


def invert(weights: NDArray[np.float64], u: float) -> int:
    """The first place where the running sum of `weights` exceeds `u` of the whole.

    weights: float64 [n], not negative, not all 0. u: in [0, 1). A weight of 0 is never drawn.
    """
    running = np.cumsum(weights)
    last = np.searchsorted(running, running[-1])  # u * sum may round up to the sum
    return int(min(np.searchsorted(running, u * running[-1], side="right"), last))


def _check_scores(logits: Float32, position: int) -> None:
    """-inf is a score (a masked token); NaN and +inf are not, nor is a row of -inf alone."""
    largest = logits.max()  # NaN if any is
    if not np.isfinite(largest):
        bad = int(np.count_nonzero(~(logits < np.inf)))
        what = f"{bad} of {len(logits)} are NaN or infinite" if bad else "every one is -inf"
        raise PellucidError(
            f"the model's scores for position {position} make no distribution: {what}; its weights "
            "are damaged, or it overflows in this precision"
        )
