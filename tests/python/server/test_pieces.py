"""`/tokenize/pieces`: each token with its place, and the merges that made it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.routes.pieces import MOST_CHARACTERS, _placed, _said_spans
from tests.python.server.running import Running

TEXTS = ["", "Hello, world.", " two  blanks", "naïve café 🌍", "line\nline\t", "\u202eright"]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_the_tokens_of_the_text(server: Running, text: str) -> None:
    told = server.post("/tokenize/pieces", {"prompt": text, "merges": True}).json()
    ids = server.post("/tokenize", {"prompt": text}).json()["tokens"]
    assert [piece["id"] for piece in told["pieces"]] == ids
    own = [piece for piece in told["pieces"] if piece["part"] == "text"]
    assert bytes.fromhex("".join(piece["bytes"] for piece in own)).decode() == text
    assert told["text"] == text and told["merges_why_not"] is None
    merged = [token for part in told["merges"] for token in part["ids"]]
    assert merged == [piece["id"] for piece in own]


def test_a_conversation_is_told_apart_from_its_template(server: Running) -> None:
    said = "what is an owl"
    messages = [{"role": "user", "content": said}]
    told = server.post("/tokenize/pieces", {"messages": messages}).json()
    ids = server.post("/tokenize", {"messages": messages}).json()["tokens"]
    assert [piece["id"] for piece in told["pieces"]] == ids
    assert told["merges"] is None
    own = [piece for piece in told["pieces"] if piece["part"] == "text"]
    laid_out = told["text"]
    assert said in laid_out
    assert said in "".join(laid_out[piece["start"] : piece["end"]] for piece in own)
    assert {piece["part"] for piece in told["pieces"]} == {"text", "template"}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "prompt"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, 400, "prompt"),
        ({"prompt": "a" * (MOST_CHARACTERS + 1)}, 400, "prompt"),
        ({"prompt": "a", "tokenizer": "no-such"}, 404, "tokenizer"),
        ({"prompt": "a", "tokenizer": "../../etc/passwd"}, 404, "tokenizer"),
        ({"prompt": "a", "unknown": 1}, 400, "unknown"),
        ({"prompt": 5}, 400, "prompt"),
        (
            {"messages": [{"role": "user", "content": "b"}], "tokenizer": "tiny"},
            400,
            "tokenizer",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    server: Running, body: dict[str, object], status: int, param: str
) -> None:
    response = server.post("/tokenize/pieces", body)
    assert response.status_code == status
    assert response.json()["error"]["param"] == param


def test_the_served_tokenizer_is_named_first(server: Running) -> None:
    names = server.http.get("/tokenize/tokenizers").json()["tokenizers"]
    assert names[0] == "tiny"
    told = server.post("/tokenize/pieces", {"prompt": "Hello", "tokenizer": "tiny"}).json()
    assert told == server.post("/tokenize/pieces", {"prompt": "Hello"}).json()


@given(st.text(), st.data())
def test_placed_pieces_cover_the_text(text: str, data: st.DataObject) -> None:
    """However a text's bytes are cut, each piece spans the characters that it has bytes of."""
    whole = text.encode("utf-8", "surrogatepass")
    if whole.decode("utf-8", "replace") != text:
        return  # a lone surrogate is no text
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    for piece in _placed(range(len(chunks)), chunks):
        spanned = text[piece.start : piece.end].encode()
        assert piece.bytes in spanned
        assert piece.end - piece.start <= max(len(piece.bytes), 0)


@given(st.lists(st.text("ab ", max_size=6), max_size=4))
def test_what_was_said_is_found_in_order(said: list[str]) -> None:
    text = "".join(f"<|{content}|>" for content in said)
    spans = _said_spans(text, said)
    assert [text[a:b] for a, b in spans] == [content for content in said if content]
