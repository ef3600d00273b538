"""Answers without a model: a walk through a matcher's masks by chance."""

from __future__ import annotations

from random import Random

import numpy as np

from pellucid.sampling.grammar import Grammar, Matcher
from pellucid.text import Tokenizer

CLOSERS = frozenset(b'"}]')


def allowed(matcher: Matcher, may_end: bool = True) -> list[int]:
    bits = np.unpackbits(matcher.mask(may_end).view(np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def walk(
    grammar: Grammar, tokenizer: Tokenizer, rng: Random, most: int = 400
) -> tuple[bytes, bool]:
    """The text of an answer by chance, and whether it was ended; ever keener to close."""
    matcher = grammar.start()
    text = b""
    for step in range(most):
        tokens = allowed(matcher)
        ends = [token for token in tokens if token in tokenizer.eos_ids]
        if ends and (len(ends) == len(tokens) or rng.random() < 0.4 or step > 40):
            matcher.accept(rng.choice(ends))
            assert matcher.finished
            return text, True
        going_on = [token for token in tokens if token not in ends]
        if step > 40:
            spelled = {token: tokenizer.token_bytes(token) for token in going_on}
            closing = [t for t in going_on if spelled[t] and spelled[t][0] in CLOSERS]
            going_on = closing or going_on
        token = rng.choice(going_on)
        matcher.accept(token)
        text += tokenizer.token_bytes(token)
        if matcher.finished:
            return text, True
    return text, False
