"""From what a caller asks of speculation to what the engine uses."""

from __future__ import annotations

from pellucid.core.errors import UnsupportedError
from pellucid.engine.speculating import Speculation
from pellucid.speculation.lengths import Lengths
from pellucid.speculation.lookup import PromptLookup
from pellucid.speculation.settings import SpeculativeSettings


def make_speculation(settings: SpeculativeSettings) -> Speculation:
    """What was asked for, made. Raises `BadInput`."""
    if settings.method != "ngram" or settings.rule != "exact":
        raise UnsupportedError(
            f"speculative: method {settings.method!r} with rule {settings.rule!r} is not "
            "implemented: use method 'ngram' with rule 'exact'"
        )
    lengths = Lengths(settings.most, adaptive=settings.adaptive)
    return Speculation(PromptLookup(settings.most), lengths)
