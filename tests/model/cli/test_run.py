"""run on the default model, as a user starts it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid import LLM, SamplingParams

Pellucid = Callable[..., subprocess.CompletedProcess[str]]
GREEDY = ("--temperature", "0")
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path)


def as_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_a_lone_prompt_is_a_chat_message_to_the_default_model(pellucid: Pellucid, llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=12)
    [expected] = llm.chat([{"role": "user", "content": QUESTION}], params)
    done = pellucid("run", QUESTION, *GREEDY, "--max-tokens", "12")
    assert done.returncode == 0
    assert done.stdout == expected.outputs[0].text + "\n"


def test_raw_goes_on_from_the_text(pellucid: Pellucid, llm: LLM, smollm2_path: Path) -> None:
    [expected] = llm.generate("Once upon a", SamplingParams(temperature=0, max_tokens=4))
    flags = ("--raw", *GREEDY, "--max-tokens", "4", "--json")
    answer = as_json(pellucid("run", str(smollm2_path), "Once upon a", *flags))
    assert answer["outputs"][0]["token_ids"] == expected.outputs[0].token_ids
    assert answer["prompt_token_ids"] == expected.prompt_token_ids
    assert answer["model_path"] == str(smollm2_path)


def test_system_message_and_standard_input(pellucid: Pellucid, llm: LLM) -> None:
    messages = [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": QUESTION},
    ]
    [expected] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=4))
    answer = as_json(
        pellucid(
            "run", "--system", "Answer in one word.", *GREEDY, "--max-tokens", "4", "--json",
            input=QUESTION + "\n",
        )
    )  # fmt: skip
    assert answer["prompt"] == QUESTION
    assert answer["prompt_token_ids"] == expected.prompt_token_ids
    assert answer["outputs"][0]["text"] == expected.outputs[0].text


def test_the_naive_loop_says_the_same(pellucid: Pellucid) -> None:
    flags = ("run", "Hi", *GREEDY, "--max-tokens", "3")
    cached, naive = pellucid(*flags), pellucid(*flags, "--no-kv-cache")
    assert cached.returncode == naive.returncode == 0
    assert cached.stdout == naive.stdout


def test_a_seed_repeats_and_another_differs(pellucid: Pellucid) -> None:
    flags = ("run", "Tell me a story.", "--temperature", "1.5", "--max-tokens", "8")
    texts = [pellucid(*flags, "--seed", seed).stdout for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_json_shows_what_was_asked_and_what_was_in_effect(pellucid: Pellucid) -> None:
    answer = as_json(
        pellucid(
            "run", QUESTION, "--n", "2", "--logprobs", "3", "--stop", "zzz", "--seed", "7",
            "--top-k", "5", "--max-tokens", "3", "--logit-bias", "5=-1", "--json",
        )
    )  # fmt: skip
    assert [output["index"] for output in answer["outputs"]] == [0, 1]
    for output in answer["outputs"]:
        assert output["finish_reason"] == "length"
        assert len(output["token_ids"]) == len(output["logprobs"]) == 3
        for token, at in zip(output["token_ids"], output["logprobs"], strict=True):
            assert at["token_id"] == token
            assert [choice["rank"] for choice in at["top"][:3]] == [1, 2, 3]
        total = sum(at["logprob"] for at in output["logprobs"])
        assert output["cumulative_logprob"] == pytest.approx(total)
    params = answer["sampling_params"]
    assert (params["top_k"], params["seed"], params["stop"]) == (5, 7, ["zzz"])
    assert (params["temperature"], params["top_p"]) == (0.7, 0.95)
    assert answer["metrics"]["generation_tokens"] == 6


def test_the_reference_knows_its_capitals(pellucid: Pellucid) -> None:
    done = pellucid("run", QUESTION, *GREEDY, "--backend", "reference", "--max-tokens", "12")
    assert "Paris" in done.stdout


def test_a_stop_text_ends_it_and_is_not_shown(pellucid: Pellucid, llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=20)
    [whole] = llm.chat([{"role": "user", "content": QUESTION}], params)
    text = whole.outputs[0].text
    stop = text[9:14]
    done = pellucid("run", QUESTION, *GREEDY, "--stop", stop, "--max-tokens", "20")
    assert done.stdout == text[: text.index(stop)] + "\n"
    assert done.stderr == f"stopped at {stop!r}\n"


def test_a_limit_is_said(pellucid: Pellucid) -> None:
    done = pellucid("run", QUESTION, *GREEDY, "--max-tokens", "2", "--verbose")
    assert "stopped after 2 tokens: --max-tokens\n" in done.stderr
    assert "prompt: " in done.stderr
    context = pellucid("run", QUESTION, *GREEDY, "--max-model-len", "40")
    assert "the end of the context" in context.stderr


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--max-model-len", "8"), "the prompt has"),
        (("--max-model-len", "99999999"), "max_model_len 99999999"),
        (("--backend", "nosuch"), "backend 'nosuch'"),
        (("--logit-bias", "99999999=1"), "logit_bias"),
        (("--threads", "-1"), "threads"),
    ],
)
def test_what_the_model_cannot_do_is_one_line(
    pellucid: Pellucid, flags: tuple[str, ...], reason: str
) -> None:
    done = pellucid("run", QUESTION, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert reason in done.stderr


def test_user_text_never_becomes_control_tokens(pellucid: Pellucid, llm: LLM) -> None:
    flags = (*GREEDY, "--max-tokens", "1", "--json")
    answer = as_json(pellucid("run", "<|im_end|>hi", *flags))
    plain = as_json(pellucid("run", "hi", *flags))
    [end] = llm.tokenizer.encode("<|im_end|>", parse_special=True)
    assert answer["prompt_token_ids"].count(end) == plain["prompt_token_ids"].count(end)


def test_an_answer_of_a_given_form(pellucid: Pellucid, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    number = {"type": "integer", "minimum": 3, "maximum": 4}
    closed = {"required": ["n"], "additionalProperties": False}
    schema.write_text(json.dumps({"type": "object", "properties": {"n": number}, **closed}))
    flags = (*GREEDY, "--max-tokens", "30", "--json")
    answer = as_json(pellucid("run", "A number?", "--json-schema", str(schema), *flags))
    assert json.loads(answer["outputs"][0]["text"])["n"] in (3, 4)
    assert json.loads(answer["sampling_params"]["structured_outputs"]["json"]) == json.loads(
        schema.read_text()
    )
    done = pellucid("run", QUESTION, "--choice", "Lyon", "--choice", "Paris", *GREEDY)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("Lyon\n", "Paris\n")
    done = pellucid("run", QUESTION, "--regex", "(")
    assert done.returncode == 2
    assert done.stderr.startswith("error: structured_outputs: regex: ")
