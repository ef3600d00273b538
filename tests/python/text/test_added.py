"""Added tokens against trying every token at every place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pellucid.text.added import AddedToken, AddedTokens

WORDS = st.lists(st.text("ab<", min_size=1, max_size=4), max_size=6, unique=True)


def naive(words: list[str], text: str) -> list[tuple[str, int, bool]]:
    found, done, place = [], 0, 0
    while place < len(text):
        here = [word for word in words if text.startswith(word, place)]
        if not here:
            place += 1
            continue
        if place > done:
            found.append((text[done:place], done, False))
        found.append((max(here, key=len), place, True))
        place = done = place + len(max(here, key=len))
    return found + ([(text[done:], done, False)] if done < len(text) else [])


@given(words=WORDS, text=st.text("ab<", max_size=20))
def test_leftmost_then_longest(words: list[str], text: str) -> None:
    tokens = AddedTokens(AddedToken(word, index) for index, word in enumerate(words))
    found = [(part.text, part.start, part.token is not None) for part in tokens.split(text)]
    assert found == naive(words, text)


@given(words=WORDS, text=st.text("ab<", max_size=20))
def test_broken_text_holds_no_token(words: list[str], text: str) -> None:
    longer = [word for word in words if len(word) > 1]
    tokens = AddedTokens(AddedToken(word, index) for index, word in enumerate(words))
    broken = tokens.break_up(text, "M")
    assert broken.replace("M", "") == text
    assert not any(word in broken for word in longer)


@given(words=WORDS, text=st.text("ab<", min_size=1, max_size=5))
def test_parts_of_tokens(words: list[str], text: str) -> None:
    tokens = AddedTokens(AddedToken(word, index) for index, word in enumerate(words))
    assert tokens.begins(text) == any(word.startswith(text) and word != text for word in words)
    assert tokens.ends(text) == any(word.endswith(text) and word != text for word in words)
    assert tokens.holds(text) == any(text in word for word in words)


def test_stripping_and_whole_words() -> None:
    tokens = AddedTokens(
        [
            AddedToken("<l>", 0, lstrip=True),
            AddedToken("<r>", 1, rstrip=True),
            AddedToken("word", 2, single_word=True),
        ]
    )
    text = "a \n<l> b <r> \tword swords"
    parts = [(part.text, text[part.start : part.end]) for part in tokens.split(text)]
    assert parts == [
        ("a", "a"),
        ("<l>", " \n<l>"),
        (" b ", " b "),
        ("<r>", "<r> \t"),
        ("word", "word"),
        (" swords", " swords"),
    ]


def test_tokens_that_extend_each_other_by_the_thousand() -> None:
    tokens = AddedTokens(AddedToken("a" * n, n) for n in range(1, 3000))
    (part, rest) = tokens.split("a" * 2999 + "a")
    assert len(part.text) == 2999 and len(rest.text) == 1


def test_many_tokens_in_a_long_text() -> None:
    tokens = AddedTokens(AddedToken(f"<unused{n}>", n) for n in range(6000))
    text = "plain text, <unused, " * 20_000 + "<unused5999>"
    assert [part.token.id for part in tokens.split(text) if part.token] == [5999]
