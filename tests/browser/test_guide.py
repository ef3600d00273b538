"""The guide in a real browser: every figure against a real server, and as plain files."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from chrome import Chrome, Page

from pellucid.explain import Wishes, explain, find_hardware
from pellucid.explain.page import page as explanation_page
from pellucid.server.guide.chapters import chapters
from tests.browser.conftest import busy_once, place
from tests.model.conftest import smollm2_path  # noqa: F401 - the fixture
from tests.python.server.running import Running

Open = Callable[..., Page]
TOOL = Path(__file__).parent.parent.parent / "tools" / "build_guide.py"
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"

# What each chapter's figure says once it is drawn, and that it needed a moment of the engine for.
SAYS = {
    "life-of-a-token": "row of characters",
    "tokens": "tokens of 49,152",
    "embeddings-and-positions": "Distance 4",
    "attention": "takes most from",
    "mlp-and-residuals": "likeliest after the last layer",
    "logits-and-sampling": "of the 20 likeliest",
    "prefill-and-decode": "First token:",
    "compute-bound-and-memory-bound": "bound by memory",
    "the-kv-cache": "% of the weights",
    "pages": "first two pages as they are",
    "batching": "8 at once:",
    "quantisation": "16 levels",
    "speculation": "Pays",
    "serving": "At 60 %",
}
WORDS = "[...document.querySelectorAll('figure.live .words')].map((w) => w.textContent).join(' ')"
# Draws every figure of a page: each when it was in sight.
SHOW_ALL = """(async () => {
  for (const figure of document.querySelectorAll("pellucid-figure")) {
    do {
      figure.scrollIntoView({ behavior: "instant" });
      await new Promise((done) => requestAnimationFrame(done));
    } while (!figure.querySelector("figure.live"));
  }
  return true;
})()"""


def drawn(page: Page, says: str) -> str:
    """What the figures say, once this is among it."""
    page.run(SHOW_ALL)
    page.until("document.querySelector('[aria-busy]') === null")
    return str(page.until(f"{WORDS}.includes({says!r}) && ({WORDS} || ' ')"))


ANIMATED = """[...document.querySelectorAll("pellucid-figure")].every((figure) =>
  figure.querySelector("figure.live:not([aria-busy]) .words")?.textContent)
  && document.querySelector(".player") !== null"""
# Each animation to each of its places; what it said there, and whether it drew anything.
THROUGH = """[...document.querySelectorAll(".player")].map((player) => {
  const scrub = player.querySelector("input[type=range]");
  const said = new Set(), figure = player.closest("figure.live");
  for (let at = 0; at <= Number(scrub.max); at += 1) {
    scrub.value = at;
    scrub.dispatchEvent(new Event("input"));
    said.add(figure.textContent);
  }
  const broken = /NaN|undefined|Infinity/.test([...said].join(" ")) ||
    figure.querySelector(".words.bad") !== null;
  return [figure.querySelector("strong").textContent, Number(scrub.max) + 1, said.size, broken];
})"""


def animations(page: Page) -> int:
    """Goes through every animation of a page that is drawn; how many there are."""
    page.until(ANIMATED)
    found = page.run(THROUGH)
    for question, steps, pictures, broken in found:
        assert steps >= 5 and pictures == steps and not broken, question
    return len(found)


def stays(page: Page, place: str) -> bool:
    """Whether nothing was asked of anybody but `place`. What a browser draws the controls of a clip
    with comes from itself (data:)."""
    return all(url.startswith((place, "data:")) for url in page.requests)


def button(text: str) -> str:
    """The figure's button that says `text`."""
    return (
        "[...document.querySelectorAll('figure.live button')]"
        f".find((b) => b.textContent === {text!r})"
    )


def press(page: Page, text: str) -> None:
    page.click(*place(page, button(text)))


def test_there_is_something_to_say_of_every_chapter() -> None:
    assert list(SAYS) == list(chapters())


@pytest.mark.parametrize("name", SAYS)
def test_the_figure_of_each_chapter_draws_on_a_desk_and_on_a_phone(
    served: Running, open_page: Open, name: str
) -> None:
    page = open_page(f"{served.url}/guide/{name}")
    drawn(page, SAYS[name])
    assert animations(page) >= 1
    assert page.errors == []
    assert stays(page, served.url)
    page.resize(360, 740)
    page.until("innerWidth === 360")
    assert page.run("document.documentElement.scrollWidth") <= 360


def test_what_the_attention_figure_shows_is_what_the_server_said(
    served: Running, open_page: Open
) -> None:
    page = open_page(f"{served.url}/guide/attention")
    drawn(page, "takes most from")
    body = {"prompt": "Michael Jordan played the sport of"}
    seen = served.post("/guide/look", body).json()
    shown = page.run(
        "[...document.querySelectorAll('.beside .bar-value')].map((n) => n.textContent)"
    )
    assert shown == [f"{100 * weight:.1f} %" for weight in seen["heads"][seen["head"]][-1]]
    assert page.run("document.querySelectorAll('.heat tbody td').length") == len(shown) ** 2


LOOKING = ("attention", "mlp-and-residuals", "life-of-a-token")


def test_pages_that_are_turned_quickly_leave_nothing_behind(
    served: Running, open_page: Open
) -> None:
    page = open_page(f"{served.url}/guide/attention")
    for turn in range(4 * len(LOOKING)):
        page.goto(f"{served.url}/guide/{LOOKING[turn % len(LOOKING)]}?{turn}")
        page.run("document.querySelector('pellucid-figure').scrollIntoView()")
        page.until("document.querySelector('figure.live') !== null")
    drawn(page, SAYS[LOOKING[-1]])
    assert page.errors == []
    looks = served.app.state.guide.looks
    served.until(lambda: looks._n == 0)


def test_a_figure_says_that_the_server_is_busy_and_asks_again(
    served: Running, open_page: Open
) -> None:
    page = open_page(f"{served.url}/guide/attention")
    drawn(page, SAYS["attention"])
    busy_once(page, "/guide/look")
    page.run(
        "(() => { const field = document.querySelector('figure.live input'); field.value = 'a b';"
        "field.dispatchEvent(new Event('input')); })()"
    )
    page.until(f"{WORDS}.includes('busy: others are served')")
    page.run("window.letGo()")
    page.until(f"{WORDS}.includes('takes most from') && window.asked === 2")
    assert page.run("document.querySelectorAll('.heat tbody tr').length") == 2
    assert page.errors == []


def test_an_animation_waits_steps_both_ways_and_does_not_play_for_who_wants_none(
    served: Running, open_page: Open
) -> None:
    page = open_page(f"{served.url}/guide/pages")
    drawn(page, SAYS["pages"])
    owned = "document.querySelectorAll('.cell.owned').length"
    press(page, "From the start")
    assert page.run(owned) == 0
    press(page, "Step ▶")
    assert page.run(owned) == 3
    press(page, "◀ Step")
    assert page.run(owned) == 0
    page.run("document.querySelector('.scrub').focus()")
    for _ in range(2):
        page.press("ArrowRight")
    page.until(f"{owned} === 5")
    assert page.run("document.querySelector('.scrub').getAttribute('aria-valuetext')") == "3 of 11"
    hidden = f"{button('Play')}.hidden"
    assert page.run(hidden) is True
    page.prefer(prefers_reduced_motion="no-preference")
    page.until(f"!{hidden}")


def test_one_figure_asks_what_is_typed(served: Running, open_page: Open) -> None:
    page = open_page(f"{served.url}/guide/tokens")
    drawn(page, "tokens of 49,152")
    page.run(
        "(() => { const f = document.querySelector('figure.live textarea'); f.value = 'rivers';"
        "f.dispatchEvent(new Event('input')); })()"
    )
    page.until(f"{WORDS}.startsWith('6 characters')")
    assert page.errors == []


@pytest.mark.parametrize("name", SAYS)
def test_axe_finds_nothing_in_either_theme(served: Running, open_page: Open, name: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not here: `npm install` in tests/browser brings it")
    page = open_page(f"{served.url}/guide/{name}", prefers_color_scheme="light")
    drawn(page, SAYS[name])
    page.run(AXE.read_text())
    for scheme in ("light", "dark"):
        page.prefer(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        page.until(f"document.documentElement.dataset.theme === '{scheme}'")
        found = page.run(
            "axe.run(document).then(({ violations }) => violations.map((v) =>"
            " `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(' | ')}`))"
        )
        assert found == [], scheme


# As plain files


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = spec_from_file_location("build_guide", TOOL)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(served: Running, tool: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("guide")
    assert tool.write(tool.Server(served.url), "tiny", out) == len(chapters())
    return Path(out)


@pytest.mark.parametrize("name", SAYS)
def test_the_same_figures_are_recorded_in_files(files: Path, open_page: Open, name: str) -> None:
    page = open_page((files / f"{name}.html").as_uri())
    words = drawn(page, SAYS[name])
    assert animations(page) >= 1
    assert page.errors == []
    assert stays(page, "file:")
    mark = page.run("document.querySelector('.mark-of').textContent")
    assert re.match(r"recorded with tiny, \d{4}-\d\d-\d\d|computed|simulated", mark)
    if name == "batching":
        assert page.run("document.querySelectorAll('.bar-row').length") == 8
    assert "not recorded" not in words


def test_links_between_the_files_lead_to_files(files: Path) -> None:
    for page in files.glob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#]+)"', page.read_text()):
            assert (files / link).is_file(), f"{page.name}: {link}"


# What `pellucid explain --html` writes


def test_an_explanation_is_one_page_that_fits_a_phone_and_loads_nothing(
    smollm2_path: Path,  # noqa: F811 - the fixture
    chrome: Chrome,
    tmp_path: Path,
) -> None:
    wishes = Wishes(tokens=2, hardware=find_hardware("h100"))
    target = tmp_path / "answer.html"
    found = explain(smollm2_path, "Michael Jordan played the sport of", wishes, str)
    target.write_text(explanation_page(found), "utf-8")
    page = chrome.page(1000, 900)
    for scheme in ("light", "dark"):
        page.prefer(prefers_color_scheme=scheme)
        page.goto(target.as_uri())
        if AXE.is_file():
            page.run(AXE.read_text())
            assert page.run("axe.run(document).then((r) => r.violations.map((v) => v.id))") == []
    page.resize(360, 740)
    page.until("innerWidth === 360")
    assert page.run("document.documentElement.scrollWidth") <= 360
    assert page.errors == []
    assert set(page.requests) == {target.as_uri()}
    page.close()
