"""A whole explanation of a tiny model: its sums, its JSON, its page, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from pellucid import LLM
from pellucid.cli.explanation import draw
from pellucid.core.errors import BadInput
from pellucid.core.record import StepRecord
from pellucid.explain import MAX_PROMPT, Explanation, Wishes, explain, find_hardware, to_json
from pellucid.explain.explain import _priced
from pellucid.explain.measure import guessed, with_guesses
from pellucid.explain.page import page
from pellucid.explain.report import Elsewhere, Here
from pellucid.explain.source import open_source
from pellucid.explain.timed import time_in_turn
from pellucid.explain.whatif import Change, what_ifs
from tests.python.cli.conftest import Ended, command  # noqa: F401 - a fixture
from tests.python.engine.tiny import CONTEXT, HEADS, KV_HEADS, LAYERS, D, write_model

PROMPT = "hello there <b>"


@pytest.fixture(scope="module")
def whole(tiny: Path) -> Explanation:
    wishes = Wishes(tokens=6, measure=True, threads=1, hardware=find_hardware("h100"))
    return explain(tiny, PROMPT, wishes, lambda _: None)


def here_of(explanation: Explanation) -> Here:
    assert explanation.here is not None
    return explanation.here


def elsewhere_of(explanation: Explanation) -> Elsewhere:
    assert explanation.elsewhere is not None
    return explanation.elsewhere


def test_costs_are_those_of_the_step_records(tiny: Path) -> None:
    with LLM(tiny, threads=1, enable_prefix_caching=False) as llm:
        priced = _priced(llm)
        seen: list[StepRecord] = []
        llm.engine.subscribe(seen.append)
        llm.generate(PROMPT)
    assert seen
    for record in seen:
        assert priced.cost(record.spans) == record.cost
    assert seen[0].cost == priced.prefill(seen[0].spans[0].n_tokens)
    assert seen[1].cost == priced.decode(seen[1].spans[0].start)


def test_the_parts_of_a_wait_are_the_whole(whole: Explanation) -> None:
    timed = here_of(whole).timed
    assert timed.later is not None
    for split in (timed.first, timed.later):
        parts = dict(split.parts)
        assert min(parts.values()) >= 0
        assert sum(parts.values()) + split.unaccounted == pytest.approx(split.seconds)
        assert split.unaccounted > -1e-9
    assert [name for name, _ in timed.first.parts][:2] == ["tokenize", "queue"]
    assert len(timed.token_ids) == 6
    assert timed.prefill.tokens == len(whole.prompt)


def test_the_allocator_holds_what_the_formula_says(whole: Explanation) -> None:
    kv = here_of(whole).kv
    assert kv.trouble is None
    assert kv.allocated == kv.held
    assert kv.length == len(whole.prompt) + 5
    assert kv.bytes == 2 * LAYERS * KV_HEADS * (D // HEADS) * kv.length * 2
    assert kv.padding == LAYERS * KV_HEADS * 8 * kv.length * 2  # a value of 8 features takes 16


def test_what_is_measured_says_so_and_the_rest_is_predicted(whole: Explanation) -> None:
    measured = {one.kind for one in here_of(whole).what_ifs if one.measured is not None}
    assert measured - {Change.NGRAM} == {Change.BATCH, Change.OTHER_BITS}
    assert all(one.measured is None for one in elsewhere_of(whole).what_ifs)
    text = json.dumps(to_json(whole))
    assert {"measured", "predicted", "computed", "stated"} <= set(
        re.findall(r'"mark": "(\w+)"', text)
    )


def test_a_position_shows_what_the_prompt_up_to_there_does(tiny: Path) -> None:
    whole = explain(tiny, PROMPT, Wishes(tokens=1, threads=1, position=2), str)
    shorter = "".join(token.text for token in whole.prompt[:3])
    alone = explain(tiny, shorter, Wishes(tokens=1, threads=1, follow=whole.prompt[3].text), str)
    assert [token.id for token in alone.prompt] == [token.id for token in whole.prompt[:3]]
    looked, same = whole.looked, alone.looked
    assert looked is not None and same is not None
    assert looked.followed.id == whole.prompt[3].id
    assert (looked.top, looked.lens, looked.attention) == (same.top, same.lens, same.attention)
    assert looked.position == 2 and same.position == 2
    assert "token 2" in page(whole) and "token 2" in draw(whole)
    back = explain(tiny, PROMPT, Wishes(tokens=1, threads=1, position=2 - len(whole.prompt)), str)
    assert back.looked == looked


def test_sentences_keep_to_a_narrow_terminal(
    whole: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = draw(whole)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "50")
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", draw(whole))
    sentences = [line for line in narrow.splitlines() if re.match(r"  \w+ \w+", line)]
    assert sentences and max(map(len, sentences)) <= 50
    assert "".join(narrow.split()) == "".join(wide.split())  # a long address is broken


@pytest.mark.parametrize("position", [99, -99])
def test_a_position_that_the_prompt_has_not_is_refused(tiny: Path, position: int) -> None:
    with pytest.raises(BadInput, match=rf"--position {position}: the prompt has tokens 0 to"):
        explain(tiny, PROMPT, Wishes(tokens=1, threads=1, position=position), str)


@pytest.mark.parametrize("kv_dtype", ["f32", "int8", "int8/int4"])
def test_the_cache_adds_up_in_every_type(tiny: Path, kv_dtype: str) -> None:
    wishes = Wishes(tokens=2, threads=1, kv_dtype=kv_dtype, hardware=find_hardware("t4"))
    found = explain(tiny, "he", wishes, str)
    for kv in (here_of(found).kv, elsewhere_of(found).kv):
        assert kv.dtype == kv_dtype
        assert kv.trouble is None
        assert kv.formula.startswith("1 x" if "/" in kv_dtype else "2 x")
    assert here_of(found).kv.allocated == here_of(found).kv.held


def test_guesses_are_counted_on_the_same_answer(tiny: Path) -> None:
    wishes = Wishes(tokens=24, measure=True, threads=1, draft=tiny)
    found = {one.kind: one for one in here_of(explain(tiny, "ab" * 12, wishes, str)).what_ifs}
    for kind in (Change.NGRAM, Change.DRAFT):
        counted = re.search(r"\d+ of [1-9]\d* guesses were right", found[kind].note)
        assert (found[kind].measured is not None) == bool(counted)
        assert counted or "nothing was guessed in this answer" in found[kind].note
    # A model that guesses for itself takes as long as itself.
    assert "1 times as large" in found[Change.DRAFT].change


def test_what_guesses_gave_is_predicted_too_and_none_are_not_measured(tiny: Path) -> None:
    with LLM(tiny, threads=1, enable_prefix_caching=False) as llm:
        plain, again = time_in_turn([llm, llm], "he", 5)
        predicted = what_ifs(_priced(llm), find_hardware("h100").limits(8.0), 9)
    assert plain.token_ids == again.token_ids
    assert plain.tokens_of_a_step == 1
    nothing = guessed(plain, again)
    assert nothing.pair is None
    assert nothing.seen.startswith("nothing was guessed in this answer")
    assert again.decode is not None
    two = replace(again, guessed=3, accepted=2, decode=replace(again.decode, steps=2))
    (draft,) = [one for one in predicted if one.kind is Change.NGRAM]
    seen = with_guesses(draft, guessed(plain, two))
    assert seen.measured is not None
    assert seen.measured.after.tokens == 2
    assert "2 of 3 guesses were right, and a step gave 2.00 tokens" in seen.note
    times = draft.predicted.times * 2 / draft.predicted.after.tokens
    assert f"for which {times:.2f} x is predicted" in seen.note


def test_a_draft_that_cannot_guess_is_said_and_nothing_else_is_lost(
    tiny: Path, tmp_path: Path
) -> None:
    other = write_model(tmp_path / "other.gguf", token_of_a="å")
    found = explain(tiny, "he", Wishes(tokens=4, measure=True, threads=1, draft=other), str)
    draft = {one.kind: one for one in here_of(found).what_ifs}[Change.DRAFT]
    assert draft.measured is None
    assert "not measured: " in draft.note
    assert draft.note in page(found).replace("&#x27;", "'")


def test_json_holds_every_number_once_read_back(whole: Explanation) -> None:
    answer = json.loads(json.dumps(to_json(whole)))
    assert [token["text"] for token in answer["prompt"]] == [t.text for t in whole.prompt]
    assert sum(answer["computed"]["attention"]["weights"]) == pytest.approx(1, abs=1e-5)
    assert answer["here"]["kv_cache"]["trouble"] is None
    stage = answer["here"]["decode"]
    assert stage["share_of_limit"] == pytest.approx(
        stage["predicted"]["seconds_at_least"] / stage["measured"]["seconds"]
    )


def test_the_page_is_whole_in_itself(whole: Explanation) -> None:
    text = page(whole)
    assert "default-src 'none'" in text
    assert not re.search(r"\b(src|href)=|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    assert "<b>" not in text  # the prompt's own
    data = text.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["model"] == json.loads(json.dumps(to_json(whole)))["model"]
    assert "measured" in text
    assert "predicted" in text


def test_the_reference_backend_answers_too(tiny: Path) -> None:
    found = explain(tiny, "he", Wishes(tokens=2, backend="reference"), lambda _: None)
    here = here_of(found)
    assert here.limits.arithmetic == "f32"
    assert here.kv.trouble is None
    assert here.kv.padding == 0
    # Of both, the reference computes the scores: its greedy token is the likeliest shown.
    assert found.looked is not None
    assert here.timed.token_ids[0] == found.looked.top[0].id


def test_an_answer_of_one_token_has_no_later_one(tiny: Path) -> None:
    found = explain(tiny, "he", Wishes(tokens=1, threads=1), lambda _: None)
    assert here_of(found).timed.later is None
    assert here_of(found).decode is None
    assert page(found)
    assert to_json(found)["here"]["later_token"] is None


@pytest.mark.parametrize(
    ("prompt", "wishes", "why"),
    [
        ("", Wishes(), "empty"),
        ("x" * 90, Wishes(tokens=16), "holds"),
        ("he", Wishes(layer=LAYERS), "layers 0 to 1"),
        ("he", Wishes(head=HEADS), "heads 0 to 3"),
        ("he", Wishes(follow=""), "--follow"),
        ("he", Wishes(bits=0.0), "--bits"),
        ("he", Wishes(kv_dtype="int3"), "int3"),
        (None, Wishes(), "--hardware"),
        (None, Wishes(hardware=find_hardware("t4"), length=CONTEXT + 1), "--context"),
    ],
)
def test_what_cannot_be_explained(tiny: Path, prompt: str | None, wishes: Wishes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        explain(tiny, prompt, wishes, lambda _: None)


def test_a_prompt_that_is_too_long_to_be_looked_at(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("pellucid.explain.explain"), "MAX_PROMPT", 8)
    with pytest.raises(BadInput, match="has 9 tokens and `explain` looks at 8"):
        explain(tiny, "x" * 9, Wishes(tokens=2), str)
    assert explain(tiny, "x" * 8, Wishes(tokens=2, threads=1), str).looked is not None


# A configuration alone

LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def config_alone(tmp_path: Path) -> Path:
    folder = tmp_path / "llama-70b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_70B))
    return folder


@pytest.mark.parametrize("named", ["", "config.json"])
def test_seventy_billion_weights_at_three_terabytes_a_second(
    config_alone: Path, named: str
) -> None:
    wishes = Wishes(hardware=find_hardware("3TB/s"))
    found = explain(config_alone / named, None, wishes, lambda _: None)
    there = elsewhere_of(found)
    assert found.model.parameters == 70_553_706_496
    assert round(1000 * there.whole_read) == 47
    assert there.decode.verdict == "memory, arithmetic not stated"
    assert there.kv.bytes == 2 * 80 * 8 * 128 * 1024 * 2
    assert page(found)


def test_an_index_without_its_shards_is_a_configuration(config_alone: Path) -> None:
    (config_alone / "model.safetensors.index.json").write_text("{}")
    assert not open_source(config_alone).whole


def test_a_prompt_for_a_configuration_is_predicted_too(config_alone: Path) -> None:
    found = explain(config_alone, "he", Wishes(hardware=find_hardware("h100")), lambda _: None)
    assert found.here is None
    assert elsewhere_of(found).length == 1024  # it has no tokenizer to count with


def test_what_does_not_fit_says_how_many_it_takes(config_alone: Path) -> None:
    for name, bits, chips in (("h100", None, 2), ("h200", 8, 1), ("t4", 16, 9)):
        wishes = Wishes(hardware=find_hardware(name), bits=bits)
        assert elsewhere_of(explain(config_alone, None, wishes, lambda _: None)).chips == chips


def test_fewer_bits_are_read_sooner(config_alone: Path) -> None:
    whole, half = (open_source(config_alone, bits).priced for bits in (16, 8))
    assert whole.weight_bytes == 2 * half.weight_bytes
    assert whole.parameters == half.parameters


# The command line

Command = Callable[..., Ended]


def test_the_command_draws_and_writes(command: Command, tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    ended = command("explain", str(tiny), PROMPT, "--tokens", "3", "--threads", "1")
    assert ended.code == 0
    for said in ("Logit lens", "First token", "Each later token", "the same", "bound by"):
        assert said in ended.out
    target = tmp_path / "page.html"
    ended = command("explain", str(tiny), "he", "--tokens", "2", "--json", "--html", str(target))
    assert ended.code == 0
    assert json.loads(ended.out)["here"]["threads"] >= 1
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "arguments",
    [
        ("he", "--layer", "9"),
        ("he", "--hardware", "h101"),
        ("",),
        ("x" * (MAX_PROMPT + 1),),
        ("he", "--html", "/nowhere/at/all.html"),
        ("he", "--tokens", "1", "--html", "/dev/full"),
        ("he", "--tokens", "0"),
    ],
)
def test_bad_input_is_one_line_and_code_two(
    command: Command,  # noqa: F811
    tiny: Path,
    arguments: tuple[str, ...],
) -> None:
    ended = command("explain", str(tiny), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ") or "\nerror: " in ended.err
    assert ended.err.splitlines()[-1].startswith("error: ")


def test_a_model_that_is_none(command: Command) -> None:  # noqa: F811
    ended = command("explain", "no-such-model", "he")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
