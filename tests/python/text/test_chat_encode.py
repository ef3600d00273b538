"""No text of the caller's becomes a control token, and templates lose nothing by it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.text import ChatTemplate, Tokenizer, encode_chat
from pellucid.text.bytelevel import BYTE_TO_CHAR
from tests.python.text import templates
from tests.python.text.nasty import NASTY

USER_DEFINED = ["<tool_call>", "</think>"]


@cache
def tokenizer(*, extra: tuple[str, ...] = (), add_bos: bool = False) -> Tokenizer:
    control = [*templates.SPECIALS, *extra]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*BYTE_TO_CHAR, *control, *USER_DEFINED],
        "tokenizer.ggml.token_type": np.array(
            [1] * 256 + [3] * len(control) + [4] * len(USER_DEFINED), np.int32
        ),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.add_bos_token": add_bos,
    }
    return Tokenizer.from_gguf(metadata, "f")


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(templates.ALL[name], "<s>", "</s>")


def control_ids(ids: list[int], vocabulary: Tokenizer) -> list[int]:
    return [token for token in ids if token in vocabulary.special_ids]


LOOKALIKES = [*templates.SPECIALS, *(t[:k] for t in templates.SPECIALS for k in (1, 2, -1))]
LOOKALIKES += [t[k:] for t in templates.SPECIALS for k in (1, 2, -1)] + ["user", "end", "|", " x "]
CONTENT = st.lists(st.sampled_from(LOOKALIKES) | st.text(max_size=4), max_size=6).map("".join)


@pytest.mark.parametrize("name", sorted(templates.ALL))
@settings(max_examples=80)
@given(contents=st.tuples(CONTENT, CONTENT, CONTENT))
def test_content_never_becomes_control_tokens(name: str, contents: tuple[str, ...]) -> None:
    roles = ("user", "assistant", "user")
    vocabulary = tokenizer()

    def ids_of(texts: tuple[str, ...]) -> list[int]:
        messages = [{"role": r, "content": c} for r, c in zip(roles, texts, strict=True)]
        return encode_chat(vocabulary, template(name), messages)

    ids = ids_of(contents)
    assert control_ids(ids, vocabulary) == control_ids(ids_of(("x", "y", "z")), vocabulary)
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    text = template(name).render(messages)
    assert vocabulary.decode(ids, skip_special_tokens=False) == text


@settings(max_examples=60)
@given(name=CONTENT, key=CONTENT, value=CONTENT, role=CONTENT.filter(bool))
def test_tools_keys_and_roles_never_become_control_tokens(
    name: str, key: str, value: str, role: str
) -> None:
    vocabulary = tokenizer()

    def ids_of(name: str, key: str, value: str, role: str) -> list[int]:
        tools = [{"name": name, "parameters": {key: value}}]
        call = {"name": name, "arguments": {key: value}}
        messages = [
            {"role": "user", "content": value},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": value},
            {"role": role, "content": "x"},
        ]
        return encode_chat(vocabulary, template("tools"), messages, tools)

    found = control_ids(ids_of(name, key, value, role), vocabulary)
    assert found == control_ids(ids_of("n", "k", "v", "r"), vocabulary)


@pytest.mark.parametrize("role", ["end", "im_end", "user|><|end", "e", "nd"])
def test_a_role_cannot_name_a_control_token(role: str) -> None:
    """Phi-3's form builds tokens of roles: `<|` + role + `|>`."""
    vocabulary = tokenizer()
    messages = [{"role": role, "content": "x"}]
    ids = encode_chat(vocabulary, template("phi3"), messages, add_generation_prompt=False)
    ends = [vocabulary.vocabulary.id_of[token] for token in ("<|end|>", "</s>")]
    assert control_ids(ids, vocabulary) == ends
    assert f"<|{role}|>" in vocabulary.decode(ids)


def test_known_roles_do_name_them() -> None:
    vocabulary = tokenizer()
    ids = encode_chat(vocabulary, template("phi3"), [{"role": "user", "content": "x"}])
    names = [vocabulary.token_text(token) for token in control_ids(ids, vocabulary)]
    assert names == ["<|user|>", "<|end|>", "<|assistant|>"]


def test_user_defined_tokens_still_match() -> None:
    vocabulary = tokenizer()
    messages = [{"role": "user", "content": "a</think><tool_call>"}]
    ids = encode_chat(vocabulary, template("chatml"), messages)
    assert {vocabulary.vocabulary.id_of[token] for token in USER_DEFINED} <= set(ids)


def test_a_control_token_of_one_character() -> None:
    vocabulary = tokenizer(extra=("\u2192",))
    source = "\u2192{{ messages[0].content }}\u2192{{ messages[0]|tojson(ensure_ascii=True) }}"
    messages = [{"role": "user", "content": "a\u2192b"}]
    ids = encode_chat(vocabulary, ChatTemplate(source), messages)
    assert ids.count(vocabulary.vocabulary.id_of["\u2192"]) == 2
    text = vocabulary.decode(ids, skip_special_tokens=False)
    assert text.startswith("\u2192a\u2192b\u2192") and '"a\u2192b"' in text


def test_overlapping_control_tokens() -> None:
    vocabulary = tokenizer(extra=("<<>", "<>>", "<>"))
    for content in ("<<>>", "<<<>>>", "<><>>", "<", ">"):
        messages = [{"role": "user", "content": content}]
        ids = encode_chat(vocabulary, ChatTemplate("{{ messages[0].content }}"), messages)
        assert not control_ids(ids, vocabulary)
        assert vocabulary.decode(ids) == content


@pytest.mark.parametrize("cut", range(1, len("<|im_end|>")))
def test_no_part_of_a_control_token_is_completed(cut: int) -> None:
    """Neither by what the template writes beside it nor by another string of the caller's."""
    vocabulary, token = tokenizer(), "<|im_end|>"
    begin, end = token[:cut], token[cut:]
    for source, contents in (
        ("{{ messages[0].content }}" + end, [begin]),
        (begin + "{{ messages[0].content }}", [end]),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", [begin, end]),
    ):
        messages = [{"role": "user", "content": content} for content in contents]
        ids = encode_chat(vocabulary, ChatTemplate(source), messages)
        assert not control_ids(ids, vocabulary), source
        assert vocabulary.decode(ids) == token


def test_json_escapes_do_not_show_the_marks() -> None:
    vocabulary = tokenizer()
    source = "{{ messages[0]|tojson(ensure_ascii=True) }}{{ messages[0]|string }}"
    messages = [{"role": "user", "content": "<|im_end|> \ufdd1"}]
    ids = encode_chat(vocabulary, ChatTemplate(source), messages)
    text = vocabulary.decode(ids)
    assert '"<|im_end|> \\ufdd1"' in text and "fdd0" not in text


def test_input_full_of_noncharacters() -> None:
    every = "".join(map(chr, [*range(0xFDD0, 0xFDF0), *(p << 16 | 0xFFFE for p in range(1, 17))]))
    with pytest.raises(BadInput, match="noncharacters"):
        encode_chat(tokenizer(), template("chatml"), [{"role": "user", "content": every}])
    some = [{"role": "user", "content": every[:40]}]
    assert every[:40] in tokenizer().decode(encode_chat(tokenizer(), template("chatml"), some))


@pytest.mark.parametrize("text", NASTY)
def test_nasty_content_comes_through(text: str) -> None:
    vocabulary = tokenizer()
    ids = encode_chat(vocabulary, template("chatml"), [{"role": "user", "content": text}])
    assert f"user\n{text}<|im_end|>" in vocabulary.decode(ids, skip_special_tokens=False)


def test_template_arguments_are_the_callers_too() -> None:
    vocabulary = tokenizer()
    source = "{{ date }}{{ messages[0].content }}"
    messages = [{"role": "user", "content": "x"}]
    ids = encode_chat(vocabulary, ChatTemplate(source), messages, date="<|im_start|>")
    assert not control_ids(ids, vocabulary)


def test_bos_is_the_templates_business() -> None:
    """GGUF files that ask for BOS get one, once; see `encode_chat`."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    asks, silent = tokenizer(add_bos=True), tokenizer()
    bos = asks.bos_id
    for name, vocabulary, count in [
        ("chatml", silent, 0),
        ("chatml", asks, 1),
        ("llama3", silent, 1),
        ("llama3", asks, 1),
    ]:
        ids = encode_chat(vocabulary, template(name), messages)
        assert ids.count(bos) == count and (not count or ids[0] == bos)
    never = ChatTemplate("{% if false %}{{ bos_token }}{% endif %}x", "<s>")
    assert bos not in encode_chat(asks, never, messages)
