"""Structured outputs through the engine: how they end, in company, and in trouble."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid import LLM, BadInput, SamplingParams
from pellucid.core.outputs import CompletionOutput
from pellucid.core.structured import StructuredOutputs
from pellucid.engine.answer import Answer
from pellucid.engine.stream import Stream
from pellucid.sampling import Draw
from pellucid.sampling.grammar import Matcher
from tests.python.engine.tiny import END, OTHER_END

MakeLLM = Callable[..., LLM]
LITERAL = "비빔밥 👩🏽‍🚀 naïve ✅"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 3}, "n": {"enum": [1, 25, None]}},
    "required": ["a", "n"],
    "additionalProperties": False,
}


def answer(llm: LLM, prompt: str = "hello", **params: Any) -> CompletionOutput:
    chosen = SamplingParams(**{"temperature": 0, "max_tokens": 60, **params})
    [output] = llm.generate(prompt, chosen)
    return output.outputs[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 50.0])
def test_a_literal_comes_out_byte_for_byte_streamed_or_not(llm: LLM, temperature: float) -> None:
    params = SamplingParams(
        temperature=temperature,
        seed=3,
        max_tokens=80,
        logprobs=0,
        structured_outputs={"choice": [LITERAL]},  # type: ignore[arg-type]
    )
    [output] = llm.generate("hello", params)
    whole = output.outputs[0]
    assert (whole.text, whole.finish_reason, whole.stop_reason) == (LITERAL, "stop", None)
    data = b"".join(llm.tokenizer.token_bytes(token) for token in whole.token_ids)
    assert data == LITERAL.encode()
    assert whole.logprobs is not None and len(whole.logprobs) == len(whole.token_ids)
    deltas = [increment.text for increment in llm.stream("hello", params)]
    assert "".join(deltas) == LITERAL
    assert all("\ufffd" not in delta for delta in deltas)


def test_a_schema_holds_at_any_temperature(llm: LLM) -> None:
    texts = set()
    for seed in range(6):
        given = answer(
            llm, temperature=5.0, seed=seed, max_tokens=90, structured_outputs={"json": SCHEMA}
        )
        if given.finish_reason == "length":
            continue
        value = json.loads(given.text)
        assert len(value["a"]) <= 3 and value["n"] in (1, 25, None) and len(value) == 2
        texts.add(given.text)
    assert len(texts) > 1


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_over_several_tokens_cuts_it(llm: LLM, include: bool) -> None:
    given = answer(
        llm,
        structured_outputs={"choice": ["alpha beta gamma delta"]},
        stop=["ta gam"],
        include_stop_str_in_output=include,
    )
    assert given.text == ("alpha beta gam" if include else "alpha be")
    assert (given.finish_reason, given.stop_reason) == ("stop", "ta gam")


def test_an_end_token_ends_it_where_it_may(llm: LLM) -> None:
    for end in (END, OTHER_END):
        given = answer(llm, structured_outputs={"regex": "a*"}, logit_bias={end: 50.0})
        assert (given.token_ids, given.text, given.finish_reason) == ([end], "", "stop")
        held = answer(llm, structured_outputs={"regex": "a{4}b*"}, logit_bias={end: 50.0})
        assert (held.text, held.token_ids[-1]) == ("aaaa", end)


def test_min_tokens_and_ignore_eos_hold_the_end_back_while_text_can_follow(llm: LLM) -> None:
    eager = {"structured_outputs": {"regex": "a*"}, "logit_bias": {END: 50.0}}
    given = answer(llm, min_tokens=3, **eager)
    assert (given.text, given.token_ids[-1]) == ("aaa", END)
    given = answer(llm, ignore_eos=True, max_tokens=5, **eager)
    assert (given.text, given.finish_reason) == ("aaaaa", "length")
    # Where no text can follow, the grammar has the last word.
    short = {"structured_outputs": {"regex": "ab?"}, "logit_bias": {END: -50.0}}
    for held in ({"min_tokens": 9}, {"ignore_eos": True}):
        given = answer(llm, **short, **held)
        assert (given.text, given.finish_reason, len(given.token_ids)) == ("ab", "stop", 2)


def test_a_stop_token_of_the_callers_ends_it_too(llm: LLM) -> None:
    given = answer(llm, structured_outputs={"choice": ["ab,cd"]}, stop_token_ids=[ord(",")])
    assert (given.text, given.stop_reason) == ("ab", ord(","))


def test_the_last_token_that_fits_is_no_cut(llm: LLM) -> None:
    given = answer(llm, structured_outputs={"choice": ["abc"]}, max_tokens=3)
    assert (given.text, given.finish_reason) == ("abc", "stop")
    given = answer(llm, structured_outputs={"choice": ["abc"]}, max_tokens=2)
    assert (given.text, given.finish_reason) == ("ab", "length")


def test_several_answers_have_a_grammar_each(llm: LLM) -> None:
    params = SamplingParams(
        n=4, temperature=9.0, seed=1, max_tokens=20, structured_outputs={"regex": "[a-f]{6}"}  # type: ignore[arg-type]
    )  # fmt: skip
    [output] = llm.generate("hello", params)
    texts = [given.text for given in output.outputs]
    assert all(re.fullmatch("[a-f]{6}", text) for text in texts) and len(set(texts)) > 1


MIXED: list[dict[str, Any]] = [
    {"structured_outputs": {"json": SCHEMA}, "temperature": 2.0, "seed": 1},
    {"temperature": 1.0, "seed": 2},
    {"structured_outputs": {"choice": [LITERAL, "x"]}, "temperature": 4.0, "seed": 3},
    {"temperature": 0},
    {"structured_outputs": {"regex": "[a-z ]{5,20}"}, "temperature": 0},
    {"structured_outputs": {"grammar": 'start: "(" start ")" | "x"'}, "temperature": 1, "seed": 4},
    {"structured_outputs": {"regex": "[ab]*"}, "temperature": 1, "seed": 5, "logprobs": 2},
    {"structured_outputs": {"json_object": True}, "temperature": 3.0, "seed": 6, "top_p": 0.9},
]


def check_company(make_llm: MakeLLM, **backend: Any) -> None:
    """A mixed batch gives what each request gives alone."""
    params = [SamplingParams(max_tokens=24, **fields) for fields in MIXED]
    prompts = [f"prompt {i} " * (1 + i % 3) for i in range(len(params))]
    together, alone = make_llm(max_num_batched_tokens=40, **backend), make_llm(**backend)
    outputs = together.generate(prompts, params)
    for prompt, chosen, output in zip(prompts, params, outputs, strict=True):
        [expected] = alone.generate(prompt, chosen)
        assert output.outputs == expected.outputs


def check_preemption(make_llm: MakeLLM, **backend: Any) -> None:
    """Answers that were thrown out of the cache on their way and computed again are the same."""
    asked = {"structured_outputs": {"regex": "([ab]{3} |c)*"}, "ignore_eos": True}
    params = [SamplingParams(seed=i, max_tokens=80, **asked) for i in range(4)]  # type: ignore[arg-type]
    page = 2 * 2 * 2 * 8 * 4 * 16  # K and V, layers, heads, features of float32, positions
    crowded = make_llm(kv_cache_memory_bytes=6 * page, max_model_len=96, **backend)
    outputs = crowded.generate(["hello"] * 4, params)
    assert crowded.engine.stats().positions_computed > 4 * (4 + 79)
    roomy = make_llm(**backend)
    for chosen, output in zip(params, outputs, strict=True):
        [expected] = roomy.generate("hello", chosen)
        assert output.outputs == expected.outputs
        assert re.fullmatch("([ab]{3} |c)*[ab]{0,3}", output.outputs[0].text)


GREEDY: tuple[dict[str, Any], ...] = (
    {"structured_outputs": {"choice": [LITERAL, "비"]}, "logprobs": 3},
    {"structured_outputs": {"json": SCHEMA}, "repetition_penalty": 1.3},
    {"structured_outputs": {"regex": "[ab]*c?"}, "min_tokens": 7},
    {"structured_outputs": {"regex": "(?s:.*)"}},
    {"structured_outputs": {"regex": "(?s:.*)"}, "ignore_eos": True, "presence_penalty": 0.5},
    {"structured_outputs": {"regex": "[^aeiou]*"}, "stop_token_ids": [ord("q"), END]},
    {"structured_outputs": {"json_object": True}, "logit_bias": {ord("{"): -5, ord("}"): 5}},
    {},
)


def check_free_choice(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch, **backend: Any) -> None:
    """Greedy answers that choose first and ask the grammar afterwards are those of masks."""
    params = [SamplingParams(temperature=0, max_tokens=30, **fields) for fields in GREEDY]
    prompts = [f"prompt {i} " for i in range(len(params))] * 3
    free = make_llm(**backend).generate(prompts, params * 3)
    monkeypatch.setattr("pellucid.engine.answer.may_be_checked_after", lambda params: False)
    masked = make_llm(**backend).generate(prompts, params * 3)
    assert [output.outputs for output in free] == [output.outputs for output in masked]


def test_a_free_choice_that_is_allowed_is_the_masked_one(
    make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_free_choice(make_llm, monkeypatch)


DRAWN: tuple[dict[str, Any], ...] = (
    *({name: value for name, value in fields.items() if name != "logit_bias"} for fields in GREEDY),
    {"structured_outputs": {"regex": "[ab ]*"}, "n": 3},
    {"structured_outputs": {"regex": "[ab ]*"}, "top_p": 0.7},
)


def check_drawn_freely(make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch, **backend: Any) -> None:
    """Drawn answers are the same whether masks are computed when needed or all in advance."""
    params = [SamplingParams(max_tokens=30, seed=i, **fields) for i, fields in enumerate(DRAWN)]
    prompts = [f"prompt {i} " for i in range(len(params))] * 2
    free = make_llm(**backend).generate(prompts, params * 2)
    accept = Matcher.accept
    monkeypatch.setattr(Matcher, "accept", lambda self, token, *, ahead: accept(self, token))
    masked = make_llm(**backend).generate(prompts, params * 2)
    assert [output.outputs for output in free] == [output.outputs for output in masked]


def test_masks_in_advance_change_no_drawn_answer(
    make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_drawn_freely(make_llm, monkeypatch)


def test_company_changes_no_answer(make_llm: MakeLLM) -> None:
    check_company(make_llm)


def test_preemption_changes_no_answer(make_llm: MakeLLM) -> None:
    check_preemption(make_llm)


class Failing:
    """A grammar whose matchers give up at their third mask."""

    def __init__(self, grammar: Any) -> None:
        self._grammar = grammar

    def start(self) -> Any:
        return _GivesUp(self._grammar.start())


class _GivesUp:
    def __init__(self, matcher: Matcher) -> None:
        self._matcher, self._left = matcher, 3
        self.accept = matcher.accept

    def allows(self, token: int, may_end: bool = True) -> bool:
        return False

    @property
    def finished(self) -> bool:
        return self._matcher.finished

    def mask(self, may_end: bool = True) -> NDArray[np.uint32]:
        self._left -= 1
        if self._left <= 0:
            raise BadInput("structured_outputs: the grammar cannot be followed further")
        return self._matcher.mask(may_end)


def test_a_grammar_that_cannot_be_followed_ends_its_own_request_alone(llm: LLM) -> None:
    params = SamplingParams(
        temperature=0, max_tokens=9, structured_outputs={"regex": "[a-z]{9}"}  # type: ignore[arg-type]
    )  # fmt: skip
    expected = answer(llm, structured_outputs={"regex": "[a-z]{9}"}, max_tokens=9)
    request = llm.front.request(llm.front.prompt("hello"), params)
    doomed = Stream(llm.engine, dataclasses.replace(request, grammar=Failing(request.grammar)))
    neighbour = Stream(llm.engine, request)
    with pytest.raises(BadInput, match="cannot be followed further"):
        list(doomed)
    assert "".join(increment.text for increment in neighbour) == expected.text
    assert llm.engine.scheduler.idle


def test_who_cannot_draw_has_no_other_draw_twice(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried next depends on what was drawn before, and so may depend on no neighbour."""
    counts: Counter[tuple[str, int]] = Counter()
    draw = Answer.draw

    def counted(self: Answer, **how: bool) -> Draw:
        counts[self._request.id, self.n_tokens] += 1
        return draw(self, **how)

    monkeypatch.setattr(Answer, "draw", counted)
    asked = StructuredOutputs(regex="[a-z]{9}")
    greedy = SamplingParams(temperature=0, max_tokens=9, structured_outputs=asked)
    masked = SamplingParams(
        temperature=0, max_tokens=9, structured_outputs=asked, logit_bias={0: 0}
    )
    first, middle, last = [
        llm.front.request(llm.front.prompt("hello"), params) for params in (greedy, masked, greedy)
    ]
    streams = [
        Stream(llm.engine, one)
        for one in (first, dataclasses.replace(middle, grammar=Failing(middle.grammar)), last)
    ]
    with pytest.raises(BadInput, match="cannot be followed further"):
        list(streams[1])
    assert list(streams[0]) and list(streams[2])
    assert set(counts.values()) == {1} and len(counts) > 9


def test_bans_that_leave_no_token_end_its_own_request_alone(llm: LLM) -> None:
    with pytest.raises(BadInput, match="structured_outputs together ban them all"):
        answer(llm, structured_outputs={"choice": ["abc"]}, logit_bias={ord("b"): -100})
    assert answer(llm, structured_outputs={"choice": ["abc"]}).text == "abc"


def test_what_cannot_be_compiled_is_said_before_anything_runs(llm: LLM) -> None:
    for wrong, message in (({"regex": "("}, "unclosed"), ({"json": {"not": {}}}, "'not'")):
        params = SamplingParams(structured_outputs=wrong)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match=message):
            llm.generate(["fine", "hello"], [SamplingParams(), params])
    assert llm.engine.scheduler.idle
