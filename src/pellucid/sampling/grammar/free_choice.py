"""FreeChoice: greedy answers choose without a mask, and with one where the choice is refused.

The likeliest token of all, if the grammar allows it, is the likeliest that it allows: to ask about
one token costs a hundredth of a mask. Where choices are refused, masks are computed ahead for a
while, since one that is begun only then is waited for.
"""

from __future__ import annotations

from typing import Final

from pellucid.sampling.grammar.matcher import Mask, Matcher

_LONGEST: Final = 15  # masks in a row that are computed before a free choice is tried again


class FreeChoice:
    """Of one answer. A `Form` of the draws that it gives."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._may_end = True
        self._refused = 0  # lately: twice as many and one more with each refusal in a row
        self._ahead = 0

    @property
    def ahead(self) -> bool:
        """Whether the next choice will be made with a mask from the start."""
        return self._ahead > 0

    def draw(self, may_end: bool) -> tuple[Mask | None, FreeChoice | None]:
        """For the next choice a mask, or this as what it is checked with; `may_end` as in
        `Matcher.mask`, which it raises as."""
        self._may_end = may_end
        if not self.ahead:
            return None, self
        self._ahead -= 1
        return self.mask(), None

    def allows(self, token: int) -> bool:
        """Whether a free choice stands."""
        allowed = self._matcher.allows(token, self._may_end)
        self._refused = 0 if allowed else min(2 * self._refused + 1, _LONGEST)
        self._ahead = self._refused
        return allowed

    def mask(self) -> Mask:
        """What to choose with if it does not. Raises as `Matcher.mask`."""
        return self._matcher.mask(self._may_end)
