"""Retold: what the model made of tokens that it has given already, computed again.

The bits of a token's logits depend on the tokens before it and on nothing else, so what is found
now is what was found then.
"""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.params import SamplingParams
from pellucid.engine.engine import Engine
from pellucid.engine.likelihoods import Likelihoods
from pellucid.engine.probe import LastRow
from pellucid.sampling import Draw, History, sample_seed
from pellucid.sampling.funnel import Funnel, funnel


@dataclass(frozen=True, slots=True)
class Moment:
    """One choice: the prompt, the answer up to it, and what it depends on. `answer` is the number
    of the answer among those of its request, whose `seed` it is; `top` tokens are to be named."""

    prompt: tuple[int, ...]
    before: tuple[int, ...]
    params: SamplingParams
    seed: int
    answer: int = 0
    salt: bytes = b""
    top: int = 10


def row_of(moment: Moment) -> LastRow:
    """A probe for the scores of that choice."""
    return LastRow((*moment.prompt, *moment.before), moment.salt)


def funnel_of(engine: Engine, moment: Moment, found: LastRow) -> Funnel:
    """The stages of the choice. Raises as `Sampler.choose`."""
    history = History(moment.prompt)
    for token in moment.before:
        history.append(token)
    params = moment.params
    ends = set(params.stop_token_ids)
    if not params.ignore_eos:
        ends |= set(engine.tokenizer.eos_ids)
    position = len(moment.prompt) + len(moment.before)
    seed = sample_seed(moment.seed, moment.answer)
    draw = Draw(params, seed, position, history, tuple(sorted(ends)))
    return funnel(engine.sampler, found.row, draw, moment.top)


def chances_of(
    engine: Engine, prompt: tuple[int, ...], answer: tuple[int, ...], top: int, salt: bytes
) -> Likelihoods:
    """A probe for the chances that each token of an answer had."""
    return engine.likelihoods((*prompt, *answer), top, salt, first=len(prompt))
