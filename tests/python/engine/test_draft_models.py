"""A draft model's own cache holds what it claims, and its table need not be the model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from pellucid.engine.gathered import Gathered
from pellucid.speculation.filled import Filled
from pellucid.speculation.lengths import Lengths, Wish
from tests.python.engine.guesses import LETTERS, check_plain, requests, rounds_of
from tests.python.engine.tiny import N_ROWS, N_TOKENS, write_model
from tests.python.engine.traffic import MakeLLM

DRAFT = {"method": "draft", "tokens": 4, "adaptive": False}


class Fitful(Lengths):
    """No drafts in every `off`th step, so that what a draft left behind is read by later ones."""

    def __init__(self, most: int, off: int) -> None:
        super().__init__(most, adaptive=False)
        self._off = off
        self._steps = 0

    def choose(
        self, wishes: dict[int, Wish], n_decoding: int, seconds_each: float | None = 0.0
    ) -> dict[int, int]:
        self._steps += 1
        return super().choose(wishes, n_decoding, seconds_each) if self._steps % self._off else {}


def check_claims(llm: LLM) -> int:
    """Of a model that drafts for itself: what its cache is said to hold is what the model's holds;
    returns how many positions that were."""
    engine = llm.engine
    drafter = engine._in_flight.speculation._drafter  # type: ignore[union-attr]
    filled: Filled = drafter._filled
    n_checked, size = 0, filled.page_size
    for sequence in engine.scheduler._running.all.values():
        for index, page in enumerate(sequence.pages):
            count = filled._counts[page]
            assert count <= max(sequence.computed - index * size, 0), "guesses count as computed"
            n_checked += count
            for ours, theirs in zip(
                drafter._cache.layers, engine._passes.cache.layers, strict=True
            ):
                for mine, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
                    at = np.array([page])
                    assert np.array_equal(mine.read(at)[0, :count], other.read(at)[0, :count])
    return n_checked


def play(llm: LLM, asked: list[tuple[list[int], SamplingParams]], off: int) -> int:
    """Run them together, and hold the draft's cache to what it claims after each step."""
    llm.engine._in_flight.speculation._lengths = Fitful(4, off)  # type: ignore[union-attr]
    for prompt, params in asked:
        request = llm.front.request(llm.front.inputs.prompt(prompt, parse_special=False), params)
        llm.engine.submit(request, Gathered(request))
    n_checked = 0
    while not llm.engine.idle:
        llm.engine.step()
        n_checked += check_claims(llm)
    return n_checked


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests(), st.integers(2, 4), st.sampled_from([5, 16]))
def test_a_draft_models_cache_holds_what_it_claims(
    make_llm: MakeLLM,
    tiny_path: Path,
    asked: list[tuple[list[int], SamplingParams]],
    off: int,
    page_size: int,
) -> None:
    play(make_llm(speculative={**DRAFT, "model": tiny_path}, page_size=page_size), asked, off)


def test_guesses_that_a_form_cuts_off_do_not_count(make_llm: MakeLLM, tiny_path: Path) -> None:
    """None of them is checked, and a step without a draft comes next."""
    llm = make_llm(speculative={**DRAFT, "model": tiny_path})
    params = SamplingParams(max_tokens=20, seed=1, structured_outputs={"regex": "(a|b){20}"})
    assert play(llm, [([7, 8, 9], params)], 2)
    assert len(rounds_of(llm)) < 3


def test_an_interrupted_draft_does_not_count(
    make_llm: MakeLLM, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make_llm(speculative={**DRAFT, "model": tiny_path})
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    request = llm.front.request(llm.front.inputs.prompt([7, 8, 9], parse_special=False), params)
    llm.engine.submit(request, Gathered(request))
    llm.engine.step()
    llm.engine.step()
    assert check_claims(llm)
    with monkeypatch.context() as patch:

        def interrupt(step: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(llm.engine._passes, "logits", interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.engine.step()
    llm.engine._in_flight.speculation._lengths = Fitful(4, 1)  # type: ignore[union-attr]
    llm.engine.step()  # without a draft
    assert check_claims(llm)


@pytest.mark.parametrize("dtype", ["f32", "int8", "int4", "int4/int8", "int8/int4"])
@pytest.mark.parametrize("vocabulary", [None, N_TOKENS - 1])
def test_the_model_itself_guesses_all_with_any_type_of_cache(
    make_llm: MakeLLM, tiny_path: Path, dtype: str, vocabulary: int | None
) -> None:
    """What a model learns of its own keys to keep them in few bits, its drafts know too, and the
    short head of it as well as the whole."""
    speculative = {**DRAFT, "model": tiny_path, "vocabulary": vocabulary}
    kinds = {"kv_cache_dtype": dtype, "max_model_len": 64}
    plain, drafting = make_llm(**kinds), make_llm(**kinds, speculative=speculative)
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    [theirs], [ours] = (one.generate(["hello there"], params) for one in (plain, drafting))
    assert ours.outputs == theirs.outputs
    assert all(one.n_accepted == len(one.draft) for one in rounds_of(drafting))
    assert len(rounds_of(drafting)) <= 8


@pytest.fixture(scope="module")
def padded(make_llm: MakeLLM, tmp_path_factory: pytest.TempPathFactory) -> list[LLM]:
    """Drafts whose tables are padded otherwise than the model's: not at all, and further."""
    folder = tmp_path_factory.mktemp("padded")
    found = []
    for n_rows in N_TOKENS, N_ROWS + 5:
        path = write_model(folder / f"{n_rows}.gguf", seed=3, n_rows=n_rows)
        layers = 1 if n_rows > N_ROWS else 2  # a draft is not larger
        if layers == 1:
            path = write_model(folder / "one.gguf", seed=3, n_rows=n_rows, layers=1)
        found.append(make_llm(speculative={**DRAFT, "model": path}))
    return found


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests(), st.lists(st.integers(N_TOKENS - 3, N_ROWS - 1), max_size=2))
def test_a_prompt_may_name_rows_that_only_the_model_has(
    padded: list[LLM],
    llm: LLM,
    asked: list[tuple[list[int], SamplingParams]],
    strange: list[int],
) -> None:
    first, params = asked[0]
    params.stop_token_ids = [*params.stop_token_ids, *strange]
    params.logit_bias = {**params.logit_bias, **dict.fromkeys(strange, 1.0)}
    asked = [(strange + first, params), *asked[1:]]
    for drafting in padded:
        check_plain(drafting, llm, asked)


def test_who_names_such_a_row_has_no_drafts_and_others_have(padded: list[LLM]) -> None:
    params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, logit_bias=LETTERS)
    short, long = padded
    for drafting, prompt, drafted in (
        (short, [N_TOKENS, 7], False),
        (short, [N_TOKENS - 1, 7], True),
        (long, [N_TOKENS, 7], True),
    ):
        before = len(rounds_of(drafting))
        drafting.generate([{"prompt_token_ids": prompt}], params)
        assert (len(rounds_of(drafting)) > before) == drafted
