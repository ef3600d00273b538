"""Where templates come from, and which one is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pellucid.core.errors import BadInput, FormatError
from pellucid.text import folder_chat_templates, gguf_chat_templates
from tests.python.text.vocabularies import byte_tokenizer


def test_named_templates_of_a_gguf_file() -> None:
    metadata = {
        "tokenizer.chat_template": "plain",
        "tokenizer.chat_template.tool_use": "tools",
        "tokenizer.chat_template.rag": "rag",
        "tokenizer.ggml.model": "gpt2",
    }
    found = gguf_chat_templates(metadata, "f.gguf")
    assert found and found.choose(byte_tokenizer()).source == "plain"
    assert found.choose(byte_tokenizer(), with_tools=True).source == "tools"
    assert found.choose(byte_tokenizer(), "rag", with_tools=True).source == "rag"
    with pytest.raises(BadInput, match=r"f.gguf: .*'nobody': there are default, rag, tool_use"):
        found.choose(byte_tokenizer(), "nobody")


def test_no_template_says_how_to_give_one() -> None:
    found = gguf_chat_templates({}, "f.gguf")
    assert not found
    with pytest.raises(BadInput, match=r"f.gguf: holds no chat template: give one"):
        found.choose(byte_tokenizer())


def test_a_template_that_is_no_text() -> None:
    with pytest.raises(FormatError, match=r"f.gguf: tokenizer.chat_template: must be a string"):
        gguf_chat_templates({"tokenizer.chat_template": 3}, "f.gguf")


def test_templates_of_a_folder(tmp_path: Path) -> None:
    assert not folder_chat_templates(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "from the configuration"}))
    assert folder_chat_templates(tmp_path).sources == {"default": "from the configuration"}
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert folder_chat_templates(tmp_path).sources == {"default": "d", "tool_use": "t"}
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "from json"}))
    assert folder_chat_templates(tmp_path).sources["default"] == "from json"
    (tmp_path / "chat_template.jinja").write_text("from jinja")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("r")
    assert folder_chat_templates(tmp_path).sources == {
        "default": "from jinja",
        "tool_use": "t",
        "rag": "r",
    }


@pytest.mark.parametrize("value", [3, [{"name": "x"}], ["x"], {"a": 1}])
def test_a_folder_with_templates_that_are_none(tmp_path: Path, value: object) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    with pytest.raises(FormatError, match=r"tokenizer_config.json: chat_template: must be"):
        folder_chat_templates(tmp_path)


def test_the_template_writes_the_vocabularys_own_edges() -> None:
    found = gguf_chat_templates({"tokenizer.chat_template": "{{ eos_token }}"}, "f")
    assert found.choose(byte_tokenizer()).render([{"role": "user", "content": ""}]) == "<|end|>"
