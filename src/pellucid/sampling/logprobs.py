"""Log-probabilities of the model's own distribution: before bias, penalties and filters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pellucid.core.outputs import TokenChoice, TokenLogprob
from pellucid.sampling.filters import highest

Float32 = NDArray[np.float32]


def log_softmax(logits: Float32) -> NDArray[np.float64]:
    """Natural logarithms, float64 [vocabulary], of softmax(logits)."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - np.log(np.exp(shifted).sum()), np.float64)


def describe(
    logits: Float32, token: int, count: int, not_tokens: NDArray[np.int64] | None = None
) -> TokenChoice:
    """`token` with its log-probability and those of the `count` likeliest.

    Ids in `not_tokens` have their share of the distribution, but are never listed or ranked.
    """
    logprobs = log_softmax(logits)
    if not_tokens is not None:
        logprobs[not_tokens] = -np.inf
    chosen = logprobs[token]
    rank = 1 + np.count_nonzero(logprobs > chosen) + np.count_nonzero(logprobs[:token] == chosen)
    top = highest(logprobs, count) if count else ()
    return TokenChoice(
        token,
        TokenLogprob(token, float(chosen), int(rank)),
        [
            TokenLogprob(int(i), float(logprobs[i]), place + 1)
            for place, i in enumerate(top)
            if logprobs[i] > -np.inf
        ],
    )
