"""Ids: what they tell apart, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.batch.identity import PREFIX, LineId, chance_of, key_of, model_digest

four, eight = st.binary(min_size=4, max_size=4), st.binary(min_size=8, max_size=8)


@given(four, four, eight, four)
def test_an_id_is_read_back(model: bytes, settings: bytes, key: bytes, content: bytes) -> None:
    own = LineId(model, settings, key, content)
    assert LineId.parse(str(own)) == own


@pytest.mark.parametrize("text", [None, 5, "", PREFIX, PREFIX + "0" * 39, PREFIX + "G" * 40])
def test_anything_else_is_no_id(text: object) -> None:
    assert LineId.parse(text) is None


def test_a_number_is_no_custom_id() -> None:
    assert key_of("7", 1) == key_of("7", 2)
    assert len({key_of("7", 7), key_of(None, 7), key_of(None, 8)}) == 3


def test_chance_follows_from_seed_and_line() -> None:
    one, two = key_of("a", 1), key_of("b", 1)
    assert chance_of(1, one) == chance_of(1 + (1 << 64), one)
    assert len({chance_of(seed, key) for seed in (0, 1, -1) for key in (one, two)}) == 6


def test_a_model_is_known_by_its_bytes_wherever_it_is(tmp_path: Path) -> None:
    content = bytearray(range(256)) * (20 << 10)  # 5 MiB: looked at in pieces
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    first.write_bytes(content)
    second.write_bytes(content)
    assert model_digest(first) == model_digest(second)
    for place in (0, -1):
        changed = bytearray(content)
        changed[place] ^= 1
        second.write_bytes(changed)
        assert model_digest(first) != model_digest(second)
    second.write_bytes(content + b"\0")
    assert model_digest(first) != model_digest(second)


def test_a_folder_is_known_by_its_files_and_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    before = model_digest(folder)
    assert model_digest(folder.rename(tmp_path / "moved")) == before
    (tmp_path / "moved" / "config.json").rename(tmp_path / "moved" / "other.json")
    assert model_digest(tmp_path / "moved") != before
