"""Share: right ones among those tried, older ones counting less."""

from __future__ import annotations


class Share:
    __slots__ = ("right", "tried")

    def __init__(self) -> None:
        self.right = 0.0
        self.tried = 0.0

    def note(self, right: bool, half_life: float) -> None:
        """One more was tried; what came before counts half after `half_life` more."""
        fade = 0.5 ** (1.0 / half_life)
        self.right = self.right * fade + right
        self.tried = self.tried * fade + 1.0

    def with_prior(self, share: float, weight: float) -> float:
        """The share, as if `weight` more had been tried of which `share` were right."""
        return (self.right + share * weight) / (self.tried + weight)
