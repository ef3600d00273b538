"""What a user of `LLM` meets: forms of prompts, ends of answers, refusals."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, BadInput, PellucidError, PromptTooLong, SamplingParams
from pellucid.core.outputs import CompletionOutput, Increment
from tests.python.engine.tiny import CONTEXT, END, N_TOKENS, OTHER_END, write_model

MakeLLM = Callable[..., LLM]
LETTERS = dict.fromkeys(range(ord("a"), ord("z") + 1), 100.0)


def answer(llm: LLM, prompt: Any = "hello", **params: Any) -> CompletionOutput:
    [output] = llm.generate(prompt, SamplingParams(**{"temperature": 0, **params}))
    assert output.finished
    return output.outputs[0]


def tokens_in(increments: Iterable[Increment]) -> list[int]:
    return [token for increment in increments for token in increment.token_ids]


def unused_pages(llm: LLM) -> bool:
    assert llm._engine is not None
    scheduler = llm._engine.scheduler
    scheduler.check()
    return scheduler.idle and not scheduler.page_counts().owned


# How an answer ends


@pytest.mark.parametrize("end", [END, OTHER_END])
def test_every_end_token_of_the_model_ends_it(llm: LLM, end: int) -> None:
    given_answer = answer(llm, logit_bias={end: 100})
    assert (given_answer.token_ids, given_answer.text) == ([end], "")
    assert (given_answer.finish_reason, given_answer.stop_reason) == ("stop", None)


def test_ignored_ends_do_not(llm: LLM) -> None:
    given_answer = answer(llm, logit_bias={END: 100}, ignore_eos=True, max_tokens=3)
    assert (given_answer.token_ids, given_answer.finish_reason) == ([END] * 3, "length")
    assert given_answer.text == ""
    shown = answer(
        llm, logit_bias={END: 100}, ignore_eos=True, max_tokens=2, skip_special_tokens=False
    )
    assert shown.text == "<|im_end|>" * 2


def test_a_stop_token_ends_it_and_says_so(llm: LLM) -> None:
    given_answer = answer(llm, logit_bias={65: 100}, stop_token_ids=[65])
    assert (given_answer.token_ids, given_answer.text) == ([65], "")
    assert (given_answer.finish_reason, given_answer.stop_reason) == ("stop", 65)
    shown = answer(llm, logit_bias={65: 100}, stop_token_ids=[65], include_stop_str_in_output=True)
    assert shown.text == "A"


def test_max_tokens_ends_it(llm: LLM) -> None:
    given_answer = answer(llm, logit_bias=LETTERS, max_tokens=7)
    assert len(given_answer.token_ids) == len(given_answer.text) == 7
    assert given_answer.finish_reason == "length"


@pytest.mark.parametrize("max_tokens", [64, None])
def test_the_context_ends_it(llm: LLM, max_tokens: int | None) -> None:
    prompt = list(range(CONTEXT - 4))
    given_answer = answer(llm, prompt, max_tokens=max_tokens, ignore_eos=True)
    assert (len(given_answer.token_ids), given_answer.finish_reason) == (4, "length")


def test_min_tokens_holds_the_end_back(llm: LLM) -> None:
    bias = {END: 50.0, ord("x"): 20.0}
    given_answer = answer(llm, logit_bias=bias, min_tokens=3, max_tokens=9)
    assert given_answer.token_ids == [ord("x")] * 3 + [END]
    stopped = answer(llm, logit_bias={ord("x"): 100}, min_tokens=3, max_tokens=9, stop="x")
    assert (stopped.text, stopped.stop_reason) == ("xxx", "x")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 15), st.integers(1, 6), st.booleans())
def test_stop_strings_cut_the_text_and_nothing_of_them_leaks(
    llm: LLM, start: int, length: int, include: bool
) -> None:
    ways = {"logit_bias": LETTERS, "max_tokens": 20, "repetition_penalty": 1.3}
    whole = answer(llm, **ways)
    stop = whole.text[start : start + length]
    params = SamplingParams(
        temperature=0, stop=[stop, "0"], include_stop_str_in_output=include, **ways
    )
    at = whole.text.index(stop)
    expected = whole.text[: at + len(stop) * include]
    [output] = llm.generate("hello", params)
    given_answer = output.outputs[0]
    assert given_answer.text == expected
    assert (given_answer.finish_reason, given_answer.stop_reason) == ("stop", stop)
    assert given_answer.token_ids == whole.token_ids[: at + len(stop)]
    deltas = [increment.text for increment in llm.stream("hello", params)]
    assert "".join(deltas) == expected


def test_a_string_that_only_begins_like_a_stop_is_shown_at_the_end(llm: LLM) -> None:
    whole = answer(llm, logit_bias=LETTERS, max_tokens=5)
    held = answer(llm, logit_bias=LETTERS, max_tokens=5, stop=whole.text[3:] + "!")
    assert held.text == whole.text


def test_half_a_character_at_the_end_is_a_replacement(llm: LLM) -> None:
    given_answer = answer(llm, logit_bias={0xE2: 100}, max_tokens=1)
    assert given_answer.text == "\ufffd"


# Answers


def test_streams_join_to_the_answer(llm: LLM) -> None:
    params = SamplingParams(temperature=1.3, seed=4, n=2, max_tokens=25, logprobs=3)
    [output] = llm.generate("a t he", params)
    with llm.stream("a t he", params) as stream:
        increments = list(stream)
        assert stream.finished
    for expected in output.outputs:
        own = [increment for increment in increments if increment.index == expected.index]
        assert "".join(increment.text for increment in own) == expected.text
        assert tokens_in(own) == expected.token_ids
        logprobs = [entry for increment in own for entry in increment.logprobs or []]
        assert logprobs == expected.logprobs
        assert [i.finish_reason for i in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1].finish_reason == expected.finish_reason
    assert stream.output().outputs == output.outputs
    assert stream.prompt_token_ids == output.prompt_token_ids


def test_logprobs_hold_the_chosen_and_the_likeliest(llm: LLM) -> None:
    given_answer = answer(llm, temperature=2.0, seed=1, logprobs=2, max_tokens=8)
    assert given_answer.logprobs is not None
    total = 0.0
    for token, entries in zip(given_answer.token_ids, given_answer.logprobs, strict=True):
        assert sorted(entry.rank for entry in entries.values())[:2] == [1, 2]
        assert len(entries) == (2 if entries[token].rank <= 2 else 3)
        assert entries[token].text == llm.tokenizer.token_text(token)
        total += entries[token].logprob
    assert given_answer.cumulative_logprob == pytest.approx(total)
    plain = answer(llm)
    assert (plain.logprobs, plain.cumulative_logprob) == (None, None)


def test_more_samples_leave_the_first_as_it_was(llm: LLM) -> None:
    ways = {"temperature": 1.5, "seed": 9}
    [output] = llm.generate("hello", SamplingParams(n=3, **ways))
    texts = [one.token_ids for one in output.outputs]
    assert [one.index for one in output.outputs] == [0, 1, 2]
    assert len({tuple(ids) for ids in texts}) == 3
    assert answer(llm, **ways).token_ids == texts[0]


def test_an_engine_seed_repeats_unseeded_requests_and_none_does_not(make_llm: MakeLLM) -> None:
    def answers(seed: int | None) -> list[list[int]]:
        llm = make_llm(seed=seed)
        return [answer(llm, temperature=2.0).token_ids for _ in range(2)]

    first, second = answers(5), answers(5)
    assert first == second
    assert first[0] != first[1]
    assert answers(6) != first
    assert answers(None) != answers(None)


def test_padding_rows_are_never_sampled(llm: LLM) -> None:
    params = SamplingParams(n=8, temperature=100.0, seed=3, max_tokens=60, ignore_eos=True)
    [output] = llm.generate("hello", params)
    drawn = {token for one in output.outputs for token in one.token_ids}
    assert len(drawn) > 100
    assert max(drawn) < N_TOKENS


def test_metrics_and_ids(llm: LLM) -> None:
    first, second = llm.generate(["hello", "a"], SamplingParams(n=2, max_tokens=3, ignore_eos=True))
    assert first.request_id != second.request_id
    assert first.metrics is not None
    assert (first.metrics.prompt_tokens, first.metrics.generation_tokens) == (4, 6)
    times = first.metrics.queue_time, first.metrics.time_to_first_token
    assert 0 <= times[0] <= times[1] <= first.metrics.finished_time


# Forms of prompts and parameters


def test_every_form_of_a_prompt(llm: LLM) -> None:
    ids = llm.tokenizer.encode("hello")
    forms = ["hello", {"prompt": "hello"}, {"prompt_token_ids": ids}, ids, tuple(ids)]
    texts = [answer(llm, form).text for form in forms]
    assert len(set(texts)) == 1
    outputs = llm.generate(["hello", {"prompt_token_ids": ids}, ids], SamplingParams())
    assert [output.prompt_token_ids for output in outputs] == [ids] * 3
    assert [output.prompt for output in outputs] == ["hello", None, None]
    assert llm.generate([]) == []


def test_control_tokens_in_a_prompt_are_text_unless_asked_for(llm: LLM) -> None:
    [output] = llm.generate("<|im_end|>")
    assert END not in output.prompt_token_ids
    [output] = llm.generate("<|im_end|>", parse_special=True)
    assert output.prompt_token_ids == [END]


def test_many_prompts_come_back_in_their_order_with_a_bar_if_wanted(
    llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [[1 + i % 200, i % 7, i // 7] for i in range(400)]
    params = [SamplingParams(temperature=0, max_tokens=1 + i % 5) for i in range(400)]
    outputs = llm.generate(prompts, params)
    assert [output.prompt_token_ids for output in outputs] == prompts
    silent = capsys.readouterr()
    assert (silent.out, silent.err) == ("", "")
    again = llm.generate(prompts, params, use_tqdm=True)
    assert [output.outputs for output in again] == [output.outputs for output in outputs]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "400/400" in shown.err
    assert "tok/s" in shown.err


def test_parameters_for_each_prompt(llm: LLM) -> None:
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (1, 4)]
    outputs = llm.generate(["hello", "hello"], params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 4]
    with pytest.raises(BadInput, match="2 sampling_params for 1 prompts"):
        llm.generate(["hello"], params)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        ({"prompt_token_ids": []}, "the prompt is empty"),
        ([[]], "the prompt is empty"),
        ([1, 264], "position 1: 264 is no token id.*0 to 263"),
        ([1, -1], "position 1: -1 is no token id"),
        ([[1, 2.5]], "position 1: a token id is a whole number, not 2.5"),
        ([True], "True is no token id"),
        ({"tokens": [1]}, "a prompt is a string"),
        ({}, "keys none"),
        ({"prompt": [1]}, '"prompt" must be a string'),
        (7, "a prompt is a string.*not int"),
        (b"hello", "a prompt is a string.*not bytes"),
        ([{1, 2}], "a prompt is a string.*not set"),
        ([None], "a prompt is a string.*not NoneType"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_bad_prompts_are_refused(llm: LLM, prompt: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.generate(prompt)
    assert unused_pages(llm)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"logit_bias": {264: 1.0}}, r"logit_bias\[264\]"),
        ({"logit_bias": {-1: 1.0}}, r"logit_bias\[-1\]"),
        ({"stop_token_ids": [999]}, "stop_token_ids: 999"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids: a token id must be a whole number"),
    ],
)
def test_parameters_this_vocabulary_cannot_honour(
    llm: LLM, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        llm.generate("hello", SamplingParams(**params))
    with pytest.raises(BadInput, match="must be SamplingParams, not dict"):
        llm.generate("hello", {"temperature": 0})  # type: ignore[arg-type]


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(llm: LLM) -> None:
    with pytest.raises(PromptTooLong, match=f"{CONTEXT} tokens and the context holds {CONTEXT}"):
        llm.generate([[1], [1] * CONTEXT])
    with pytest.raises(PromptTooLong):
        llm.stream("a" * 5000)
    assert unused_pages(llm)


def test_bias_that_bans_everything_is_an_error_of_that_request_alone(llm: LLM) -> None:
    bad = SamplingParams(logit_bias=dict.fromkeys(range(N_TOKENS), -100))
    with pytest.raises(BadInput, match="no token is left"):
        llm.generate(["hello", "hello"], [SamplingParams(), bad])
    assert unused_pages(llm)
    good = llm.stream("hello", SamplingParams(temperature=0))
    next(good)
    with pytest.raises(BadInput, match="no token is left"):
        next(llm.stream("hello", bad))
    good_text = "".join(increment.text for increment in good)
    assert answer(llm).text.endswith(good_text)


def test_changing_parameters_later_changes_nothing(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    expected = answer(llm, max_tokens=6, ignore_eos=True).token_ids
    stream = llm.stream("hello", params)
    params.temperature, params.max_tokens = 9.0, 1
    assert tokens_in(stream) == expected


# Leaving early, failing, sharing


def test_leaving_a_stream_returns_its_pages(llm: LLM) -> None:
    params = SamplingParams(max_tokens=50, ignore_eos=True)
    for _ in llm.stream("hello", params):
        break
    assert unused_pages(llm)
    stream = llm.stream("hello", params)
    next(stream)
    assert not unused_pages(llm)
    stream.close()
    stream.close()
    assert unused_pages(llm)
    assert stream.output().outputs[0].finish_reason == "abort"
    assert list(stream) == []


def test_an_answer_cut_off_in_a_character_or_a_stop_string_keeps_all_its_text(llm: LLM) -> None:
    """Whatever was held back comes out: the text is that of the tokens."""
    half_a_character = SamplingParams(logit_bias={0xC3: 100}, stop=["never"])
    half_a_stop = SamplingParams(logit_bias={ord("n"): 100}, stop=["nnnnever"])
    for params, text in (half_a_character, "\ufffd"), (half_a_stop, "n"):
        stream = llm.stream("hello", params)
        assert next(stream).text == ""
        stream.close()
        assert stream.output().outputs[0].text == text


def test_ctrl_c_in_a_step_ends_cleanly(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = llm._engine
    assert engine is not None
    forward, calls = engine._passes.logits, 0

    def interrupted(plan: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return forward(plan)

    expected = answer(llm, ignore_eos=True).token_ids
    other = llm.stream("hello", SamplingParams(temperature=0, ignore_eos=True))
    monkeypatch.setattr(engine._passes, "logits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["x" * 20, "y"], SamplingParams(ignore_eos=True))
    assert (engine.scheduler.n_running, engine.scheduler.n_waiting) == (1, 0)
    # A stream that was open beside it has lost nothing.
    assert tokens_in(other) == expected
    assert unused_pages(llm)


def test_one_that_fails_takes_its_call_along_and_no_other(llm: LLM) -> None:
    engine = llm._engine
    assert engine is not None
    expected = answer(llm, ignore_eos=True).token_ids
    other = llm.stream("hello", SamplingParams(temperature=0, ignore_eos=True))
    nothing_left = SamplingParams(logit_bias=dict.fromkeys(range(264), -100.0))
    with pytest.raises(PellucidError, match="no token is left"):
        llm.generate(["x", "y"], [nothing_left, SamplingParams(ignore_eos=True)])
    assert (engine.scheduler.n_running, engine.scheduler.n_waiting) == (1, 0)
    assert tokens_in(other) == expected
    assert unused_pages(llm)


def test_a_step_cut_off_while_it_is_applied_ends_every_request(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions may have moved without their tokens: going on would answer something else."""
    engine = llm._engine
    assert engine is not None
    other = llm.stream("hello", SamplingParams(temperature=0, ignore_eos=True))
    next(other)

    def interrupted(plan: Any, tokens: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.scheduler, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate("x")
    monkeypatch.undo()
    with pytest.raises(PellucidError, match="ask again"):
        tokens_in(other)
    assert unused_pages(llm)
    assert answer(llm) == answer(llm)


def test_a_stream_dropped_in_the_middle_of_a_step_ends_after_it(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the garbage collector runs there."""
    engine = llm._engine
    assert engine is not None
    params = SamplingParams(temperature=0, ignore_eos=True)
    expected = answer(llm, ignore_eos=True).token_ids
    dropped, kept = llm.stream("abc", params), llm.stream("hello", params)
    forward = engine._passes.logits

    def dropping(plan: Any) -> Any:
        dropped.close()
        return forward(plan)

    monkeypatch.setattr(engine._passes, "logits", dropping)
    assert tokens_in(kept) == expected
    assert dropped.output().outputs[0].finish_reason == "abort"
    assert unused_pages(llm)


def test_streams_and_calls_share_the_engine(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=8, max_tokens=12, ignore_eos=True)
    expected = answer(llm, "abc", temperature=1.0, seed=8, max_tokens=12, ignore_eos=True)
    first, second = llm.stream("abc", params), llm.stream("abc", params)
    taken: list[int] = next(first).token_ids
    assert answer(llm, "abc", temperature=1.0, seed=8, max_tokens=12, ignore_eos=True) == expected
    assert llm.logits([1, 2]).shape[0] == 2
    taken += tokens_in(first)
    assert taken == expected.token_ids
    assert tokens_in(second) == expected.token_ids


def test_threads_share_the_engine(llm: LLM) -> None:
    prompts = ["hello", "a t he", "xyz", "0123456789"]
    ways = {"temperature": 1.0, "seed": 2, "max_tokens": 20}
    expected = [answer(llm, prompt, **ways) for prompt in prompts]
    found: dict[int, CompletionOutput] = {}
    workers = [
        threading.Thread(target=lambda i=i: found.update({i: answer(llm, prompts[i], **ways)}))
        for i in range(len(prompts))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [found[i] for i in range(len(prompts))] == expected
    assert unused_pages(llm)


def test_scores_that_are_no_numbers_fail_the_request_not_the_engine(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llm._engine
    assert engine is not None
    forward = engine._passes.logits
    monkeypatch.setattr(engine._passes, "logits", lambda plan: forward(plan) * float("nan"))
    with pytest.raises(PellucidError, match=r"position 4 .*264 of 264 are NaN"):
        llm.generate("hello")
    monkeypatch.undo()
    assert unused_pages(llm)
    answer(llm)


def test_two_engines_in_one_process(llm: LLM, tmp_path: Path) -> None:
    expected = answer(llm).token_ids
    with LLM(
        write_model(tmp_path / "other.gguf", seed=1),
        backend="reference",
        kv_cache_memory_bytes=1 << 20,
    ) as other:
        assert answer(other).token_ids != expected
        assert answer(llm).token_ids == expected
    with pytest.raises(BadInput, match="closed"):
        other.generate("hello")
    with pytest.raises(BadInput, match="closed"):
        other.logits([1])


def test_logits_refuse_what_they_cannot_score(llm: LLM) -> None:
    with pytest.raises(BadInput, match="empty"):
        llm.logits([])
    with pytest.raises(BadInput, match="264 is no token id"):
        llm.logits([264])
    with pytest.raises(PromptTooLong):
        llm.logits([1] * (CONTEXT + 1))
    assert llm.logits([1] * CONTEXT).shape == (CONTEXT, 264)


# Arguments


class Notes:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, message: str) -> None:
        self.lines.append(message)

    def bar(self, label: str, total: int) -> Any:
        raise AssertionError("nothing is fetched here")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "tpu"}, "backend 'tpu' is unknown"),
        ({"max_model_len": CONTEXT + 1}, f"max_model_len {CONTEXT + 1} is above the {CONTEXT}"),
        ({"max_model_len": 0}, "max_model_len must be a whole number from 1, not 0"),
        ({"page_size": None}, "page_size must be"),
        ({"max_num_seqs": 8, "max_num_batched_tokens": 4}, "4 is below max_num_seqs 8"),
        (
            {"kv_cache_dtype": "int3"},
            "kv_cache_dtype 'int3' is unknown: choose one of f32",
        ),
        ({"kv_cache_memory_bytes": -1}, "kv_cache_memory_bytes must be"),
        ({"kv_cache_memory_bytes": 100}, "a context of 2 needs .* 100 bytes may be used"),
        ({"kv_cache": "no"}, "kv_cache must be True or False"),
        ({"enable_prefix_caching": 1}, "enable_prefix_caching must be True or False"),
        ({"policy": "random"}, "policy must be one of continuous, static"),
        ({"quantization": "int8"}, "quantization='int8': type 'int8' is none"),
        ({"quantization": 8}, "quantization must be the name of a type"),
        ({"speculative": {"method": "guess"}}, "method must be one of ngram"),
        ({"threads": 4}, "threads: the reference backend has none"),
        ({"threads": 0}, "threads must be a whole number from 1, not 0"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"tensor_parallel_size": 2}, "no argument tensor_parallel_size"),
    ],
)
def test_arguments_that_cannot_be_honoured(
    make_llm: MakeLLM, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        make_llm(**arguments)


def test_a_context_is_cut_to_the_memory_and_says_so(make_llm: MakeLLM) -> None:
    notes = Notes()
    page = 16 * 2 * 2 * 2 * 8 * 4
    llm = make_llm(kv_cache_memory_bytes=2 * page, progress=notes)
    assert llm.max_model_len == 32
    assert any("context 32 of the model's 96" in line for line in notes.lines)
    with pytest.raises(BadInput, match=r"a context of 48 needs .* may be used"):
        make_llm(kv_cache_memory_bytes=2 * page, max_model_len=48)
    assert len(answer(llm, max_tokens=None, ignore_eos=True).token_ids) == 28


def test_defaults_of_the_model_apply_when_a_call_gives_none(tmp_path: Path, llm: LLM) -> None:
    assert llm.get_default_sampling_params() == SamplingParams()
    path = write_model(tmp_path / "own.gguf", general__sampling__temp=0.0)
    own = LLM(path, backend="reference", kv_cache_memory_bytes=1 << 20)
    assert own.get_default_sampling_params().temperature == 0.0
    assert own.generate("hello")[0].outputs[0] == answer(llm)
    bad = write_model(tmp_path / "bad.gguf", general__sampling__top_p=7.5)
    with pytest.raises(BadInput, match=r"bad\.gguf: top_p must be"):
        LLM(bad, backend="reference", kv_cache_memory_bytes=1 << 20)


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'tokenizers', 'jinja2', 'huggingface_hub', 'rich', 'click'}"
    code = f"import sys, pellucid; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
