"""Which tokens may be drawn: min-p, then top-k, then top-p.

`row` is float64 [vocabulary], its largest score 0, so exp(row) is each token's probability over
that of the likeliest. "Ranked" means by score, equal scores by id, lower first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
Ids = NDArray[np.int64]

# How many of the highest ranked tokens are sorted at first in search of the top-p border; a
# row rarely needs more at p = 0.95, and sorting all of a large vocabulary costs milliseconds.
_FIRST_LOOK = 256


def candidates(row: Row, min_p: float, top_k: int, top_p: float) -> Ids:
    """Ids that pass every filter, ascending; the highest ranked always does.

    min_p: at least this share of the likeliest's probability (Nguyen et al. 2024). top_k: the k
    highest ranked of what is left; 0 and -1 are off. top_p: of what is then left, the fewest
    highest ranked whose probabilities reach this share of it (Holtzman et al. 2019).
    """
    ids = np.flatnonzero(row > -np.inf)
    if min_p > 0.0:
        ids = ids[np.exp(row[ids]) >= min_p]
    if 0 < top_k < len(ids):
        ids = np.sort(ids[highest(row[ids], top_k)])
    if top_p < 1.0:
        ids = np.sort(ids[_nucleus(row[ids], top_p)])
    return ids


def highest(scores: Row, count: int) -> Ids:
    """Places of the `count` highest ranked of `scores`, in rank order."""
    if count >= len(scores):
        return np.argsort(-scores, kind="stable")
    border = np.partition(scores, len(scores) - count)[len(scores) - count]
    places = np.flatnonzero(scores >= border)  # ascending, ties at the border included
    return places[np.argsort(-scores[places], kind="stable")][:count]


def _nucleus(scores: Row, top_p: float) -> Ids:
    """Places of the shortest run of the ranking that holds `top_p` of the mass."""
    wanted = top_p * np.exp(scores).sum()
    count = _FIRST_LOOK
    while True:
        places = highest(scores, count)
        mass = np.cumsum(np.exp(scores[places]))
        if mass[-1] >= wanted or len(places) == len(scores):
            return places[: int(np.searchsorted(mass, wanted)) + 1]
        count *= 8
