"""Tokenizers from tokenizer.json, against the library that defines the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.text import ChatTemplate, Detokenizer, Tokenizer, encode_chat, train_bpe
from tests.python.text.nasty import BLANKS, NASTY
from tests.python.text.vocabularies import fixture

SPECIALS = ["<s>", "</s>", "<|im_end|>"]


def byte_level() -> tokenizers.Tokenizer:
    learnt = train_bpe(NASTY, 600, special_tokens=SPECIALS)
    library = tokenizers.Tokenizer.from_str(learnt.to_json())
    library.normalizer = normalizers.NFC()
    library.add_tokens(["<tag>"])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(token, library.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return library


def pieces(scheme: str) -> tokenizers.Tokenizer:
    """SentencePiece form: BPE with byte fallback; `scheme` says where a space is put."""
    data = fixture("llama_kinds.json")
    merges = [tuple(merge.split(" ", 1)) for merge in data["raw_merges"]]
    vocab = {token: index for index, token in enumerate(data["raw_tokens"])}
    library = tokenizers.Tokenizer(models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True))
    if scheme == "prepend":
        library.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
    else:
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * (scheme != "never"))
    library.add_special_tokens(SPECIALS)
    library.add_tokens([tokenizers.AddedToken("<tag>", normalized=False)])
    return library


def unigram() -> tokenizers.Tokenizer:
    data = fixture("llama_spm.json")["vocabularies"]["unigram"]
    vocab = list(zip(data["tokens"], data["scores"], strict=True))
    library = tokenizers.Tokenizer(models.Unigram(vocab, 0, True))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    library.add_special_tokens(SPECIALS)
    return library


LIBRARIES = {
    "byte-level": byte_level(),
    "prepend": pieces("prepend"),
    "metaspace first": pieces("first"),
    "metaspace always": pieces("always"),
    "metaspace never": pieces("never"),
    "unigram": unigram(),
}
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}


def folder(path: Path, library: tokenizers.Tokenizer, **files: Any) -> Path:
    path.mkdir(exist_ok=True)
    library.save(str(path / "tokenizer.json"))
    files = {"tokenizer_config": CONFIG, **files}
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    root = tmp_path_factory.mktemp("folders")
    return {
        name: Tokenizer.from_folder(folder(root / str(index), library))
        for index, (name, library) in enumerate(LIBRARIES.items())
    }


TEXTS = [*NASTY, *BLANKS, "a <s> b</s><tag> c", "<tag><tag>x", "e\u0301 <|im_end|>"]


@pytest.mark.parametrize("name", sorted(LIBRARIES))
@pytest.mark.parametrize("special", [False, True])
def test_encodes_as_the_library(ours: dict[str, Tokenizer], name: str, special: bool) -> None:
    library, tokenizer = LIBRARIES[name], ours[name]
    library.encode_special_tokens = not special
    for text in TEXTS:
        want = library.encode(text, add_special_tokens=False)
        got = tokenizer.encode(text, parse_special=special, add_special=False)
        assert got == want.ids, repr(text)
        found = tokenizer.pieces(text, parse_special=special, add_special=False)
        assert [piece.id for piece in found] == want.ids
        if not special:
            assert [(piece.start, piece.end) for piece in found] == want.offsets


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_decodes_as_the_library(ours: dict[str, Tokenizer], name: str) -> None:
    library, tokenizer = LIBRARIES[name], ours[name]
    for text in TEXTS:
        ids = tokenizer.encode(text, parse_special=True)
        for skip in (True, False):
            want = library.decode(ids, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip_special_tokens=skip) == want, repr(text)


@pytest.mark.parametrize("name", sorted(set(LIBRARIES) - {"unigram"}))
def test_merge_steps_give_the_same_tokens(ours: dict[str, Tokenizer], name: str) -> None:
    tokenizer = ours[name]
    for text in TEXTS:
        steps = tokenizer.merge_steps(text)
        ids = [token for piece in steps for token in piece.ids]
        assert ids == tokenizer.encode(text, add_special=False), repr(text)


def test_merges_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    library = pieces("prepend")
    library.add_tokens(["<norm>"])  # matched in the text as normalised, a space before it and all
    tokenizer = Tokenizer.from_folder(folder(tmp_path, library))
    assert tokenizer.encode("a <norm> b") == library.encode("a <norm> b").ids
    with pytest.raises(BadInput, match="cannot be shown one by one"):
        tokenizer.merge_steps("a <norm> b")


def test_a_unigram_model_says_that_it_does_not_merge(ours: dict[str, Tokenizer]) -> None:
    with pytest.raises(BadInput, match="Unigram model"):
        ours["unigram"].merge_steps("a")


@given(data=st.data())
def test_detokenizer_joins_to_the_whole(data: st.DataObject, ours: dict[str, Tokenizer]) -> None:
    tokenizer = data.draw(st.sampled_from(list(ours.values())))
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
    detokenizer = Detokenizer(tokenizer)
    shown = "".join(map(detokenizer.push, ids)) + detokenizer.finish()
    assert shown == tokenizer.decode(ids)


@given(data=st.data(), times=st.integers(1, 9))
def test_no_text_is_fewer_tokens_than_its_bound(
    data: st.DataObject, times: int, ours: dict[str, Tokenizer]
) -> None:
    name = data.draw(st.sampled_from(sorted(ours)))
    text = times * data.draw(
        st.sampled_from(TEXTS) | st.text() | st.text("e\u0301\u0327 \u1100\u1161")
    )
    fewest = ours[name].fewest_ids(text)
    assert fewest <= len(ours[name].encode(text, add_special=False))
    assert fewest > 0 or len(text) < 4 or name == "unigram"


def test_template_pieces_behind_tokens_get_no_space(ours: dict[str, Tokenizer]) -> None:
    """What stands between a chat template's control tokens is encoded apart, and yet as the
    library encodes the whole."""
    source = "<s>{{ messages[0].content }}</s> x<|im_end|>"
    messages = [{"role": "user", "content": "a b"}]
    for name, library in LIBRARIES.items():
        library.encode_special_tokens = False
        want = library.encode("<s>a b</s> x<|im_end|>", add_special_tokens=False).ids
        assert encode_chat(ours[name], ChatTemplate(source), messages) == want, name


def test_bos_and_eos_by_the_post_processor_or_the_configuration(tmp_path: Path) -> None:
    library = LIBRARIES["byte-level"]
    tokenizer = Tokenizer.from_folder(folder(tmp_path / "a", library))
    assert tokenizer.encode("x", parse_special=True) == library.encode("x").ids
    assert (tokenizer.add_bos, tokenizer.add_eos) == (True, True)
    config = {**CONFIG, "add_bos_token": True, "add_eos_token": False}
    tokenizer = Tokenizer.from_folder(folder(tmp_path / "b", library, tokenizer_config=config))
    assert (tokenizer.add_bos, tokenizer.add_eos) == (True, False)
    assert tokenizer.encode("")[0] == tokenizer.bos_id == library.token_to_id("<s>")


def test_end_tokens_of_every_file(tmp_path: Path) -> None:
    path = folder(
        tmp_path / "a",
        LIBRARIES["byte-level"],
        generation_config={"eos_token_id": [300]},
        config={"eos_token_id": 1},
    )
    eos, turn = (LIBRARIES["byte-level"].token_to_id(token) for token in ("</s>", "<|im_end|>"))
    assert Tokenizer.from_folder(path).eos_ids == (eos, 300, turn)
    path = folder(tmp_path / "b", LIBRARIES["byte-level"], config={"eos_token_id": 301})
    assert Tokenizer.from_folder(path / "tokenizer.json").eos_ids == (eos, 301, turn)


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no tokenizer.json: .*transformers"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "is no tokenizer"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[]", "is no tokenizer"),
        (b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "is empty|is no tokenizer"),
        (b"[" * 100_000, "is no tokenizer"),
    ],
)
def test_damaged_files(tmp_path: Path, text: bytes, problem: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text)
    with pytest.raises(FormatError, match=problem) as caught:
        Tokenizer.from_folder(tmp_path)
    assert "tokenizer.json" in str(caught.value)


def _changed(path: Path, **vocab: int) -> Path:
    state = json.loads(LIBRARIES["prepend"].to_str())
    state["model"]["vocab"] |= vocab
    path.joinpath("tokenizer.json").write_text(json.dumps(state))
    return path


def test_ids_are_bounded_and_unique(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="id 4000000000 is above"):
        Tokenizer.from_folder(_changed(tmp_path, zzz=4_000_000_000))
    with pytest.raises(FormatError, match="are both id 300"):
        Tokenizer.from_folder(_changed(tmp_path, zzz=300))


def test_unknown_decoders_are_refused_by_name(tmp_path: Path) -> None:
    library = pieces("never")
    library.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedError, match="decoder WordPiece"):
        Tokenizer.from_folder(folder(tmp_path, library))
    library.decoder = None
    library.pre_tokenizer = pre_tokenizers.Split(Regex("x"), "isolated")
    with pytest.raises(UnsupportedError, match="is not supported"):
        Tokenizer.from_folder(folder(tmp_path, library))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("tokenizer_config", {"bos_token": "<nobody>"}, "'<nobody>' is not in the vocabulary"),
        ("tokenizer_config", {"eos_token": 3}, "eos_token: must be a string"),
        ("tokenizer_config", ["x"], "must be a JSON object"),
        ("generation_config", {"eos_token_id": "x"}, "'x' is no token id"),
        ("generation_config", {"eos_token_id": [-1]}, "-1 is no token id"),
    ],
)
def test_wrong_configuration(tmp_path: Path, name: str, value: object, problem: str) -> None:
    with pytest.raises(FormatError, match=problem) as caught:
        Tokenizer.from_folder(folder(tmp_path, LIBRARIES["byte-level"], **{name: value}))
    assert f"{name}.json" in str(caught.value)
