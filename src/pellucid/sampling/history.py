"""Which tokens a sequence already holds: what penalties look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


class History:
    """The tokens of a prompt, and those of its answer; counted when something asks."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._prompt = prompt
        self._answer: list[int] = []
        self._counts: Counter[int] = Counter()  # of the tokens before `_counted`
        self._counted = 0

    def fork(self) -> History:
        """One that goes on from here by itself; the prompt is shared."""
        other = History(self._prompt)
        other._answer = list(self._answer)
        if "_prompt_ids" in self.__dict__:
            other.__dict__["_prompt_ids"] = self._prompt_ids
        if self._counted:
            other._counts, other._counted = self._counts.copy(), self._counted
        return other

    @property
    def generated(self) -> int:
        """Tokens of the answer."""
        return len(self._answer)

    def append(self, token: int) -> None:
        """Another token of the answer."""
        self._answer.append(token)

    def seen(self) -> NDArray[np.int64]:
        """Ids in prompt or answer, each once, ascending."""
        return np.union1d(self._prompt_ids, self.output()[0])

    def output(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids in the answer, each once, and how often each stands there."""
        self._counts.update(self._answer[self._counted :])
        self._counted = len(self._answer)
        ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        return ids, np.fromiter(self._counts.values(), np.float64, len(self._counts))

    @cached_property
    def _prompt_ids(self) -> NDArray[np.int64]:
        return np.unique(np.asarray(self._prompt, np.int64))
