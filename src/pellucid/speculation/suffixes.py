"""Suffixes: where the end of a text stood before.

A suffix automaton (Blumer et al. 1985) of a growing text: its states are the sets of substrings
that end at the same places. The suffix link of the whole text's state leads to its longest suffix
that stands elsewhere, too. A token takes constant time, amortised, and at most two states.
"""

from __future__ import annotations

from collections.abc import Sequence

_ROOT = 0


class Suffixes:
    """The text so far. Of each set of substrings it knows the length of the longest, and one place
    where they end: the last at which one of them was the longest suffix that stood before.

    `n_states` is bounded by twice the tokens.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.match_length = 0  # of the longest suffix that stood before
        self.match_end = 0  # one past the end of that earlier place
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._end = [0]  # one past a place where the state's substrings end
        self._whole = _ROOT  # the state of the whole text

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_states(self) -> int:
        return len(self._next)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            self._append(token)

    def continuation(self, count: int) -> tuple[int, ...]:
        """The `count` tokens that followed the longest suffix where it stood before; none if it
        never did. What runs over the end of the text goes on with what was copied."""
        if not self.match_length:
            return ()
        tokens, start = self.tokens, self.match_end
        period = len(tokens) - start
        if count <= period:
            return tuple(tokens[start : start + count])
        return tuple(tokens[start + i % period] for i in range(count))

    def _append(self, token: int) -> None:
        following, link, length, end = self._next, self._link, self._length, self._end
        self.tokens.append(token)
        state = self._whole
        self._whole = new = self._state(length[state] + 1, {}, len(self.tokens))
        while state >= 0 and token not in following[state]:
            following[state][token] = new
            state = link[state]
        if state < 0:
            link[new] = _ROOT
        else:
            target = following[state][token]
            if length[target] != length[state] + 1:
                target = self._split(state, token, target)
            link[new] = target
        match = link[new]
        self.match_length, self.match_end = length[match], end[match]
        end[match] = len(self.tokens)

    def _split(self, state: int, token: int, target: int) -> int:
        """A state for those substrings of `target` that end in one more place now."""
        following, link = self._next, self._link
        clone = self._state(self._length[state] + 1, dict(following[target]), self._end[target])
        link[clone] = link[target]
        link[target] = clone
        while state >= 0 and following[state].get(token) == target:
            following[state][token] = clone
            state = link[state]
        return clone

    def _state(self, length: int, following: dict[int, int], end: int) -> int:
        self._next.append(following)
        self._link.append(-1)
        self._length.append(length)
        self._end.append(end)
        return len(self._next) - 1
