from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.core.errors import BadInput
from pellucid.hub.catalogue import CATALOGUE, DEFAULT_MODEL, Alias, Pinned
from pellucid.hub.names import HubModel, is_model_name, parse_hub_id, parse_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("owner/name", HubModel("owner/name")),
        ("owner/name@v1.0", HubModel("owner/name", "v1.0")),
        ("owner/name@refs/pr/3", HubModel("owner/name", "refs/pr/3")),
        ("owner/name:Q4_K_M", HubModel("owner/name", quant="Q4_K_M")),
        ("owner/na.me_2-x:q8_0@dev", HubModel("owner/na.me_2-x", "dev", quant="q8_0")),
        ("owner/name/a.gguf", HubModel("owner/name", file="a.gguf")),
        ("owner/name/sub/a b.gguf@dev", HubModel("owner/name", "dev", file="sub/a b.gguf")),
    ],
)
def test_reads_a_hub_id_and_writes_it_back(name: str, expected: HubModel) -> None:
    assert parse_name(name) == expected
    assert str(expected) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a\0b",
        "nosuchmodel",
        "owner/name/../../x.gguf",
        "owner/name/x.gguf:Q4_0",
        "owner/name:",
        "owner/name@",
        "owner//name",
        "-owner/name",
        "./missing.gguf",
        "models/missing.gguf",
        "/missing/model",
        "owner/name/file.bin",
        "o/n@../../etc",
    ],
)
def test_refuses_what_is_no_model_in_one_line(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_name(name)
    assert "\n" not in str(caught.value)


def test_an_existing_path_wins_over_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("smollm2-135m", "owner/name"):
        (tmp_path / name).mkdir(parents=True)
        assert parse_name(name) == Path(name)


def test_a_slip_in_a_short_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"did you mean smollm2-135m\?"):
        parse_name("smolm2-135m")


def test_short_names_do_not_mind_case() -> None:
    assert parse_name("GPT2") == parse_name("gpt2") == HubModel("openai-community/gpt2")


def test_every_entry_of_the_catalogue_can_be_read() -> None:
    for entry in CATALOGUE.values():
        if isinstance(entry, Alias):
            assert parse_hub_id(entry.hub_id).revision == "main"
        assert parse_name(entry.name)
    default = CATALOGUE[DEFAULT_MODEL]
    assert isinstance(default, Pinned)
    assert len(default.sha256) == 64


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("smollm2-135m", True),
        ("owner/name:Q4_0", True),
        ("x.gguf", True),
        ("Hello", False),
        ("What is in x.gguf", False),
        ("Why is the sky blue?", False),
        ("a" * 5000, False),
        ("", False),
    ],
)
def test_a_lone_word_is_a_model_or_text(word: str, expected: bool) -> None:
    assert is_model_name(word) is expected
