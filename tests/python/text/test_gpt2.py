"""The known answer: GPT-2's tokens of one sentence, from the part of its vocabulary it needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from pellucid.text import Tokenizer
from tests.python.text.vocabularies import fixture

SENTENCE = "Michael Jordan played the sport of"
IDS = [13256, 8078, 2826, 262, 6332, 286]


@pytest.fixture
def gpt2(tmp_path: Path) -> Tokenizer:
    data = fixture("gpt2_excerpt.json")
    merges = [tuple(merge.split(" ")) for merge in data["merges"]]
    library = Library(models.BPE(data["vocab"], merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.save(str(tmp_path / "tokenizer.json"))
    return Tokenizer.from_folder(tmp_path)


def test_known_answer(gpt2: Tokenizer) -> None:
    assert gpt2.encode(SENTENCE) == IDS
    assert gpt2.decode(IDS) == SENTENCE
    words = ["Michael", " Jordan", " played", " the", " sport", " of"]
    assert [piece.text for piece in gpt2.pieces(SENTENCE)] == words


def test_a_leading_space_makes_another_token(gpt2: Tokenizer) -> None:
    assert gpt2.encode(" Jordan") == [8078]
    assert gpt2.encode("Jordan") == [gpt2.vocabulary.id_of["Jordan"]] != [8078]


def test_merges_in_order(gpt2: Tokenizer) -> None:
    pieces = gpt2.merge_steps(SENTENCE)
    assert [token for piece in pieces for token in piece.ids] == IDS
    for piece in pieces:
        assert piece.steps[-1].id == piece.ids[0]
        spelled = "".join(piece.symbols)
        assert spelled == piece.text == SENTENCE[piece.start : piece.end]
    json.dumps([[step.rank for step in piece.steps] for piece in pieces])
