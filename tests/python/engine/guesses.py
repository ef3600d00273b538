"""Drafts for tests: guesses that are right as often as wanted, and requests that draw on all that
a choice can depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from pellucid.core.plan import Plan
from pellucid.core.record import PageChanges, RoundRecord
from pellucid.engine.speculating import Speculation
from pellucid.sampling import sample_seed
from pellucid.speculation.drafter import Ask, Guess, Outlook
from pellucid.speculation.lengths import Lengths
from tests.python.engine.histories import Event, History, play
from tests.python.engine.tiny import N_TOKENS
from tests.python.engine.traffic import MakeLLM


class Oracle:
    """Knows what each seed's sequence will be. At every `wrong_at`th position it guesses wrong; its
    drafts are of all lengths up to `most`."""

    def __init__(self, truth: dict[int, list[int]], most: int, wrong_at: int) -> None:
        self.truth = truth
        self.most = most
        self.wrong_at = wrong_at

    def observe(self, plan: Plan, changes: PageChanges) -> None: ...

    def seconds_each(self, n_sequences: int) -> float:
        return 0.0

    def outlook(self, sequence: int, tokens: Sequence[int], pages: Sequence[int]) -> Outlook:
        return Outlook((len(tokens) * 7 + sequence) % (self.most + 1))

    def draft(self, asks: Sequence[Ask]) -> list[tuple[Guess, ...]]:
        return [self._guess(ask) for ask in asks]

    def accepted(self, sequence: int, computed: int, pages: Sequence[int]) -> None: ...

    def forget(self, sequence: int) -> None: ...

    def _guess(self, ask: Ask) -> tuple[Guess, ...]:
        start = len(ask.tokens)
        known = self.truth[ask.draw.seed][start : start + ask.n_tokens]
        return tuple(
            Guess(token if (start + i) % self.wrong_at else (token + 1) % N_TOKENS)
            for i, token in enumerate(known)
        )


def truth_of(naive: LLM, history: History) -> dict[int, list[int]]:
    """By seed: prompt and answer of every sample, asked alone."""
    found: dict[int, list[int]] = {}
    for event in history.events:
        alone = Event(event.prompt, event.params, 0)
        [gathered], _ = play(naive, History((alone,), 0, 0, 0, 0, False, ""))
        for index, answer in enumerate(gathered.output().outputs):
            assert event.params.seed is not None
            found[sample_seed(event.params.seed, index)] = [*event.prompt, *answer.token_ids]
    return found


def with_oracle(
    make_llm: MakeLLM, naive: LLM, history: History, most: int, wrong_at: int
) -> MakeLLM:
    """Makes engines that guess with an oracle of `history`."""
    oracle = Oracle(truth_of(naive, history), most, wrong_at)

    def make(**arguments: Any) -> LLM:
        llm = make_llm(**arguments)
        llm.engine._in_flight.speculation = Speculation(oracle, Lengths(most, adaptive=False))
        return llm

    return make


def rounds_of(llm: LLM) -> list[RoundRecord]:
    return [one for record in llm.engine.records for one in record.rounds]


def remembered(llm: LLM) -> dict[str, list[int]]:
    """What speculation still knows of sequences, by table; nothing of any that has ended should be
    left. Tables of all sequences have other keys."""
    speculation = llm.engine._in_flight.speculation
    if speculation is None:
        return {}
    lengths = speculation._lengths
    parts = (speculation, speculation._drafter, lengths, lengths.acceptance, lengths.accounts)
    return {
        f"{type(part).__name__}.{name}": found
        for part in parts
        for name, table in vars(part).items()
        if isinstance(table, dict | set | list) and name != "truth"
        if (found := [key for key in table if isinstance(key, int)])
    }


# A few tokens are far likelier than all others, so that answers repeat themselves and each other.
LETTERS = {ord(letter): 12.0 for letter in "ab{}[]1"}

WAYS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.5]),
        "top_k": st.sampled_from([0, 3]),
        "top_p": st.sampled_from([0.9, 1.0]),
        "n": st.sampled_from([1, 1, 2]),
        "max_tokens": st.integers(1, 24),
        "min_tokens": st.sampled_from([0, 0, 1]),
        "logprobs": st.sampled_from([None, None, 1]),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.3]),
        "frequency_penalty": st.sampled_from([0.0, 0.5]),
        "stop": st.sampled_from([(), ("ab",), ("ba", "aaa", "]")]),
        "stop_token_ids": st.sampled_from([(), (ord("1"),)]),
        "ignore_eos": st.booleans(),
        "structured_outputs": st.sampled_from(
            [
                *[None, None, None],
                *[{"regex": "(a|b)+1"}, {"json_object": True}, {"choice": ["ab[1]ab", "ba{1}ba"]}],
            ]
        ),
        "speculative": st.sampled_from([True, True, True, False]),
    }
)


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[list[int], SamplingParams]]:
    """Prompts that quote themselves, and ways to go on."""
    words = st.lists(st.sampled_from([ord(x) for x in "ab{}[]1"]), min_size=1, max_size=6)
    found = []
    for seed in range(draw(st.integers(1, 4))):
        word, ways = draw(words), draw(WAYS)
        prompt = (word * 6)[: draw(st.integers(1, 30))]
        found.append((prompt, SamplingParams(**ways, logit_bias=LETTERS, seed=seed)))
    return found


def check_plain(llm: LLM, plain: LLM, asked: list[tuple[list[int], SamplingParams]]) -> None:
    """What `llm` gives to all at once is what `plain` gives to each alone."""
    prompts = [{"prompt_token_ids": prompt} for prompt, _ in asked]
    together = llm.generate(prompts, [params for _, params in asked])
    for prompt, (_, params), ours in zip(prompts, asked, together, strict=True):
        [theirs] = plain.generate([prompt], params)
        assert ours.outputs == theirs.outputs
    llm.engine.scheduler.check()
    assert not llm.engine.scheduler.page_counts().owned
    assert not remembered(llm)
