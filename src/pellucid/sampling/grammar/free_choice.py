"""FreeChoice: answers choose without a mask, and with one where the choice is refused.

To ask about one token costs a hundredth of a mask. Where choices are refused one after the other,
masks are computed ahead for a while, since one that is begun only then is waited for; of drawn
tokens a lone refusal says little. Which masks were there in advance never changes a choice.
"""

from __future__ import annotations

from typing import Final

from pellucid.sampling.grammar.matcher import Mask, Matcher

_LONGEST: Final = 15  # masks in a row that are computed before a free choice is tried again


class FreeChoice:
    """Of one answer. A `Form` of the draws that it gives.

    `greedy`: the likeliest tokens are chosen, and a mask in hand may be used at once: it leaves the
    same token. Where tokens are drawn, the free choice always comes first.
    """

    def __init__(self, matcher: Matcher, *, greedy: bool) -> None:
        self._matcher = matcher
        self._greedy = greedy
        self._may_end = True
        self._refused = 0  # lately: twice as many and one more with each refusal in a row
        self._ahead = 0

    @property
    def ahead(self) -> bool:
        """Whether the next choice will have a mask at hand from the start."""
        return self._ahead > 0

    def draw(self, may_end: bool) -> tuple[Mask | None, FreeChoice | None]:
        """For the next choice a mask, or this as what it is checked with; `may_end` as in
        `Matcher.mask`, which it raises as."""
        self._may_end = may_end
        if not self.ahead:
            return None, self
        self._ahead -= 1
        return (self.mask(), None) if self._greedy else (None, self)

    def allows(self, token: int) -> bool:
        """Whether a free choice stands."""
        allowed = self._matcher.allows(token, self._may_end)
        self._refused = 0 if allowed else min(2 * self._refused + 1, _LONGEST)
        self._ahead = self._refused if self._greedy else self._refused // 2
        return allowed

    def begin(self) -> None:
        """As `Matcher.begin`."""
        self._matcher.begin()

    def mask(self) -> Mask:
        """What to choose with if it does not. Raises as `Matcher.mask`."""
        return self._matcher.mask(self._may_end)
