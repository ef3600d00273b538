"""Selftest: the first promise, on the user's own machine and model.

An answer does not depend on the traffic. The same prompts are answered, and their answers scored,
in several ways; each way must give the same tokens and the same logits, bit for bit:

    alone       one at a time, by an engine that keeps nothing for later
    crowd       all at once
    chunked     prompts in chunks of a few tokens
    cached      again, their beginnings taken from the prefix cache
    preempted   each put off for a more urgent one, and computed again
    speculated  tokens guessed ahead from the text so far, as many as there is room for

Logits are those of the whole answer scored anew, beside whatever else runs. The digest is a hash of
alone's tokens and logits: the same on another machine means the same bits there.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import RequestOutput
from pellucid.core.params import SamplingParams
from pellucid.engine.gathered import Gathered
from pellucid.engine.llm import LLM

Tokens = tuple[int, ...]

Answering = Callable[[LLM, Sequence[Tokens], Sequence[SamplingParams]], list[RequestOutput]]

_PAGE = 16
_BEGUN = 6  # steps after which an answer has begun
_SCORED = 2  # answers whose logits are compared: a row is as wide as the vocabulary
_TEXTS = (
    "The river rises in the mountains, and before it comes to the sea it has",
    "def fibonacci(n):\n    ",
    "Three things that every harbour needs are",
    "In the year 1821 the old lighthouse was",
    "Dear Sir, I am writing to you because",
    "1, 1, 2, 3, 5, 8,",
)


@dataclass(frozen=True, slots=True)
class Way:
    """One way and what came of it: `same` if all its answers were alone's, `proof` that it was
    taken at all (positions found in the cache, preemptions), `seconds` that it took."""

    name: str
    same: bool
    proof: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    ways: tuple[Way, ...]
    digest: str
    n_tokens: int

    @property
    def ok(self) -> bool:
        return all(way.same for way in self.ways)


def run_selftest(
    path: Path,
    *,
    length: int = 24,
    note: Callable[[str], None] = lambda line: None,
    **arguments: Any,
) -> Report:
    """Compare every way on the model at `path`; `length` tokens an answer. `arguments` are LLM's.

    Raises what the engine raises, and `PellucidError` if a way could not be taken at all.
    """
    common: dict[str, Any] = {**arguments, "page_size": _PAGE}
    note("alone")
    begin = time.monotonic()
    with LLM(path, enable_prefix_caching=False, max_num_seqs=1, **common) as llm:
        prompts = _prompts(llm)
        params = _params(length)
        asked = zip(map(_asked, prompts), params, strict=True)
        outputs = [llm.generate(prompt, one)[0] for prompt, one in asked]
        alone = [tuple(output.outputs[0].token_ids) for output in outputs]
        whole = map(_whole, prompts[-_SCORED:], alone[-_SCORED:])
        logits = [llm.logits(tokens) for tokens in whole]
    taken = time.monotonic() - begin
    ways = [Way("alone", True, f"{len(prompts)} answers", taken)]
    common["max_model_len"] = max(map(len, prompts)) + length
    ask = _Ask(prompts, params, alone, logits)
    with LLM(path, max_num_seqs=len(prompts), **common) as llm:
        note("crowd")
        ways.append(ask.compare(llm, "crowd"))
        note("cached")
        ways.append(ask.compare(llm, "cached"))
    note("chunked")
    few: dict[str, Any] = {"max_num_batched_tokens": len(prompts) + 1, "max_num_seqs": len(prompts)}
    with LLM(path, enable_prefix_caching=False, **few, **common) as llm:
        ways.append(ask.compare(llm, "chunked"))
    note("preempted")
    with LLM(path, enable_prefix_caching=False, max_num_seqs=1, **common) as llm:
        ways.append(ask.compare(llm, "preempted", _each_before_the_last))
    note("speculated")
    guess: dict[str, Any] = {"speculative": {"method": "ngram", "tokens": 4, "adaptive": False}}
    with LLM(path, max_num_seqs=len(prompts), **guess, **common) as llm:
        ways.append(ask.compare(llm, "speculated"))
    return Report(tuple(ways), _digest(alone, logits), sum(map(len, alone)))


def _at_once(
    llm: LLM, prompts: Sequence[Tokens], params: Sequence[SamplingParams]
) -> list[RequestOutput]:
    return llm.generate([_asked(prompt) for prompt in prompts], list(params))


def _each_before_the_last(
    llm: LLM, prompts: Sequence[Tokens], params: Sequence[SamplingParams]
) -> list[RequestOutput]:
    """Each comes when the one before has begun, and is more urgent: with one place it takes it."""
    engine, given = llm.engine, []
    for urgency, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        checked = llm.front.prompt(_asked(prompt))
        request = llm.front.request(checked, one, priority=-urgency)
        gathered = Gathered(request)
        given.append((engine.submit(request, gathered), gathered))
        for _ in range(_BEGUN):
            engine.step()
    for generation, _ in given:
        engine.run_until(lambda: generation.finished)  # noqa: B023 - called before the next
    return [gathered.output() for _, gathered in given]


@dataclass(frozen=True, slots=True)
class _Ask:
    """The prompts, and what alone gave."""

    prompts: Sequence[Tokens]
    params: Sequence[SamplingParams]
    alone: Sequence[Tokens]
    logits: Sequence[Any]

    def compare(self, llm: LLM, name: str, answer: Answering = _at_once) -> Way:
        """All prompts by `llm`, and the logits of some answers."""
        begin = time.monotonic()
        before = llm.engine.stats()
        outputs = answer(llm, self.prompts, self.params)
        stats = llm.engine.stats()
        answers = [tuple(output.outputs[0].token_ids) for output in outputs]
        same = answers == list(self.alone)
        whole = map(_whole, self.prompts[-_SCORED:], self.alone[-_SCORED:])
        for tokens, expected in zip(whole, self.logits, strict=True):
            same = same and np.array_equal(llm.logits(tokens), expected)
        steps = stats.steps - before.steps
        hits = stats.prefix_hits - before.prefix_hits
        preemptions = stats.preemptions - before.preemptions
        drafts = stats.drafts - before.drafts
        right = stats.accepted_tokens - before.accepted_tokens
        proofs = {
            "crowd": (True, f"{len(answers)} answers at once"),
            "cached": (hits > 0, f"{hits} positions from the cache"),
            "chunked": (steps > len(answers[0]), f"{steps} steps"),
            "preempted": (preemptions > 0, f"{preemptions} preemptions"),
            "speculated": (drafts > 0, f"{drafts} drafts, {right} tokens of them right"),
        }
        taken, proof = proofs[name]
        if not taken:
            raise PellucidError(f"selftest: {name}: nothing of the kind came about ({proof})")
        return Way(name, same, proof, time.monotonic() - begin)


def _prompts(llm: LLM) -> list[Tokens]:
    """Texts that take a page or two, so that several fit before their answers have grown; two more
    begin with the same two pages."""
    encoded = [tuple(llm.tokenizer.encode(text)) for text in _TEXTS]
    shared = (encoded[0] * 2 * _PAGE)[: 2 * _PAGE]
    prompts = [tokens[: _PAGE + _PAGE // 2] for tokens in encoded[2:]]
    return [*prompts, *(shared + tokens[: _PAGE // 2] for tokens in encoded[:2])]


def _params(length: int) -> list[SamplingParams]:
    """Greedy and sampled in turn."""
    greedy = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    sampled = SamplingParams(temperature=0.9, seed=7, max_tokens=length, ignore_eos=True)
    return [(greedy, sampled)[i % 2] for i in range(len(_TEXTS))]


def _asked(prompt: Tokens) -> dict[str, list[int]]:
    return {"prompt_token_ids": list(prompt)}


def _whole(prompt: Tokens, answer: Tokens) -> list[int]:
    return [*prompt, *answer]


def _digest(alone: Sequence[Tokens], logits: Sequence[Any]) -> str:
    """BLAKE2b of tokens and logits, 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for answer in alone:
        digest.update(np.asarray(answer, "<i4").tobytes())
    for rows in logits:
        digest.update(np.ascontiguousarray(rows, "<f4").tobytes())
    return digest.hexdigest()
