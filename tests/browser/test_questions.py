"""What somebody who opens the pages for the first time wants to know: each answered in words, in
few clicks. docs/pages.md lists the questions with the clicks that are counted here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from chrome import Page

from tests.browser.conftest import settle, wait_for_records
from tests.python.server.running import Running

DOCS = Path(__file__).parents[2] / "docs" / "pages.md"
TIME = r"[\d.,]+ (µs|ms|s)"
SHARE = r"[\d.]+ %"


class Visitor:
    """Somebody with a mouse: what they read, and how often they clicked since `ask`."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.answers: dict[str, tuple[int, str]] = {}
        self._clicks = 0

    def reads(self, figure: str, pattern: str, part: str = ".sentence") -> str:
        """What a figure says, once it says what fits `pattern`; marks are left out."""
        section = f"document.querySelector('#figure-{figure}')"
        self.page.run(f"{section}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
        settle(self.page)
        text = (
            f"({section}.querySelector('{part}')?.textContent ?? '')"
            ".replace(/[●○≈◇]| \\((measured|predicted|estimated|simulated)\\)/g, '')"
        )
        self.page.until(f"new RegExp({json.dumps(pattern)}).test({text})")
        return str(self.page.run(text))

    def click(self, expression: str) -> None:
        self._clicks += 1
        self.page.until(f"Boolean({expression})")
        self.page.run(f"{expression}.click()")

    def slide(self, expression: str, value: int) -> None:
        """A drag, counted as a click."""
        self._clicks += 1
        self.page.run(
            f"(() => {{ const s = {expression}; s.value = '{value}';"
            "s.dispatchEvent(new Event('input')); })()"
        )

    def answered(self, question: str, words: str) -> None:
        self.answers[question] = (self._clicks, words)
        self._clicks = 0
        self.page.run("pellucid.app.selection.clear()")


def ask_six_at_once(page: Page) -> None:
    """Six answers of an engine that has four places."""
    for name, value in (("at_once", 6), ("max_tokens", 12), ("seed", 1), ("temperature", 1)):
        page.run(f"document.querySelector('.playground [name={name}]').value = '{value}'")
    page.run("document.querySelector('.playground form').requestSubmit()")
    page.until("document.querySelectorAll('.said.answer[data-paint]').length === 6")
    page.until("pellucid.app.store.requests.slice(-6).every((r) => r.sent !== null)")


def test_questions_are_answered_in_words(served: Running, open_page: Callable[..., Page]) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    ask_six_at_once(page)
    visitor = Visitor(page)
    own = "document.querySelector('.said.answer button')"

    visitor.click(own)
    said = visitor.reads("waterfall", rf"its first token after {TIME} \(.*prompt {TIME}")
    visitor.answered("Why was this first token late?", said)
    said = visitor.reads("roofline", rf"cheaper\? .* need {SHARE} if 8 answers", ".detail")
    visitor.answered("What would halve this request's cost?", said)
    select_shared_step(visitor, own)
    said = visitor.reads("roofline", rf"^Step \d+ is bound by (memory|arithmetic): .*{SHARE}")
    visitor.answered("Is this step bound by memory or by arithmetic?", said)
    said = visitor.reads("memory", r"has room for [\d,]+ more of 1,024 tokens", ".detail")
    visitor.answered("How many more users fit in memory?", said)
    visitor.click(own)
    said = visitor.reads(
        "prefix", r"took \d+ tokens of its prompt's \d+ from the cache|took nothing"
    )
    visitor.answered("Did the prefix cache help this request, and by how much?", said)
    said = visitor.reads("speculation", r"^Off\. .*--speculative-method")
    visitor.answered("Did speculation pay?", said)
    visitor.click(own)
    page.until("pellucid.view('tokens').funnel === true")
    visitor.click("document.querySelectorAll('#figure-tokens .token')[1]")
    said = visitor.reads("tokens", r"the draw gives .*: the token that was chosen", ".detail")
    visitor.answered("Why this token, and what else was likely?", said)
    said = visitor.reads("bytes", rf"moved [\d.]+ .B for .*{SHARE} of it (weights|KV|activ)")
    visitor.answered("Where did the bytes of one token go?", said)
    select_shared_step(visitor, own)
    said = visitor.reads(
        "batch", rf"shared it with \d requests?, which .* It took {TIME}", ".detail"
    )
    visitor.answered("Who shared this step with me, and did they slow me?", said)
    said = visitor.reads("capacity", r"At [\d.]+ a second, the load chosen, .*twice that load")
    visitor.answered("What happens at twice the load?", said)

    visitor.click(own)
    said = visitor.reads("waterfall", rf"Of the whole: .*{SHARE}.*unaccounted {SHARE}")
    visitor.answered("Where did the time of my request go?", said)
    visitor.click(own)
    said = visitor.reads("waterfall", rf"its own part of them is {TIME}")
    visitor.answered("How much of that was mine, and how much my neighbours'?", said)
    said = visitor.reads("batch", r"somebody waited, mostly because: all 4 places are taken")
    visitor.answered("Why did somebody have to wait?", said)
    sliders = "document.querySelectorAll('#figure-memory input[type=range]')"
    visitor.slide(f"{sliders}[0]", 13)
    visitor.slide(f"{sliders}[1]", 5)
    said = visitor.reads("memory", r"(It fits|does not fit): 32 answers of 8,192", ".detail")
    visitor.answered("Do 32 users with 8,192 tokens each fit?", said)
    said = visitor.reads("memory", r"A token's keys and values: 30 layers x 3 .* = 23 kB")
    visitor.answered("How much memory does a token of context take?", said)

    rows = re.findall(r"^\| ([^|]+\?) \|.*\| (\d) \|$", DOCS.read_text(), re.MULTILINE)
    assert rows == [(name, str(clicks)) for name, (clicks, _) in visitor.answers.items()]
    assert page.errors == []


def select_shared_step(visitor: Visitor, own: str) -> None:
    """The request, and by a click on a token of it a step that it shared."""
    visitor.click(own)
    page = visitor.page
    shared = (
        "pellucid.view('tokens').tokens.find((t) => t.step !== undefined"
        " && new Set(pellucid.app.store.step(t.step).batch.map((b) => b.request)).size > 1)"
    )
    page.until(f"Boolean({shared})")
    index = page.run(f"{shared}.index")
    visitor.click(f"document.querySelector('#figure-tokens .token[data-key=\"{index}\"]')")
    page.until("pellucid.app.selection.current.step !== null")
