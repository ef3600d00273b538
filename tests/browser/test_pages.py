"""The pages in a real browser, against a real server and against a recording."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chrome import Page

from tests.browser.conftest import (
    ask,
    assert_quiet,
    insist,
    point,
    say,
    settle,
    view,
    wait_for_records,
)
from tests.python.server.running import Running

FIGURES = (
    "waterfall", "tokens", "anatomy", "bytes", "roofline", "batch", "pages", "prefix", "memory",
    "speculation", "capacity", "tokenizer",
)  # fmt: skip
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"

Open = Callable[..., Page]

# Whether a figure has put anything down: points of a canvas, shapes, or tokens.
DRAWN = """(name) => {
  const body = document.querySelector(`#figure-${name} .body`);
  const painted = (canvas) => {
    const copy = new OffscreenCanvas(canvas.width || 1, canvas.height || 1);
    const pen = copy.getContext("2d", { willReadFrequently: true });
    if (canvas.width) pen.drawImage(canvas, 0, 0);
    return pen.getImageData(0, 0, copy.width, copy.height).data.some((v, i) => i % 4 === 3 && v);
  };
  return [...body.querySelectorAll("canvas")].some(painted) ||
    body.querySelectorAll("svg rect, svg circle, svg line, .token").length > 0;
}"""


def show_all(page: Page) -> None:
    """Brings each figure into sight, until it is drawn and says what is seen."""
    for name in FIGURES:
        figure = f"document.getElementById('figure-{name}')"
        page.run(f"{figure}.scrollIntoView({{block: 'center'}})")
        page.until(f"{figure}.querySelector('.sentence').textContent.length > 20")
        if name != "speculation":  # it is off in this server, and says so
            page.until(f"({DRAWN})('{name}')")


@pytest.fixture(scope="module")
def recording(served: Running, chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages save."""
    page = chrome.page()
    page.goto(served.url)
    page.until("globalThis.pellucid !== undefined")
    wait_for_records(page)
    page.until("pellucid.view('pages').complete")  # who has which page is asked for apart
    path = tmp_path_factory.mktemp("recording") / "saved.json"
    path.write_text(page.run("JSON.stringify(pellucid.app.store)"))
    page.close()
    return path


def open_source(served: Running, open_page: Open, recording: Path, source: str) -> Page:
    """The pages on the server's records, or on those of a file."""
    page = open_page(served.url)
    wait_for_records(page)
    if source == "recorded":
        page.put_file("input[type=file]", recording)
        page.until("pellucid.app.recording !== null && pellucid.app.store.steps.length > 0")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_draw_live(served: Running, open_page: Open, scheme: str) -> None:
    page = open_page(served.url, prefers_color_scheme=scheme)
    wait_for_records(page)
    assert page.run("document.documentElement.dataset.theme") == scheme
    show_all(page)
    for name in FIGURES:
        said = page.run(f"document.querySelector('#figure-{name} .sentence').textContent")
        assert len(said) > 20 and "NaN" not in said and "undefined" not in said, (name, said)
    assert "Off." in page.run("document.querySelector('#figure-speculation').textContent")
    assert_quiet(page, served)


def test_a_recording_feeds_the_same_figures(
    served: Running, open_page: Open, recording: Path
) -> None:
    live = open_page(served.url)
    wait_for_records(live)
    live.until("pellucid.view('pages').complete")
    page = open_page(served.url)
    wait_for_records(page)
    page.put_file("input[type=file]", recording)
    page.until("document.querySelector('.state').dataset.state === 'recording'")
    show_all(page)
    for name in ("waterfall", "bytes", "batch", "pages", "prefix"):
        assert view(page, name) == view(live, name), name
    page.run("document.querySelector('.tools button').click()")
    page.until("pellucid.app.feed.state === 'live' && pellucid.app.store.steps.length > 0")
    assert_quiet(page, served)


def test_a_recording_is_dropped_on_the_page(
    served: Running, open_page: Open, recording: Path, tmp_path: Path
) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    page.drop_file(600, 400, recording, let_go=False)
    page.until("document.querySelector('.drop').hidden && pellucid.app.recording === null")
    page.drop_file(600, 400, recording)
    page.until("pellucid.app.recording !== null && pellucid.app.store.steps.length > 0")
    assert page.run("document.querySelector('.drop').hidden")
    told = json.loads(recording.read_text())["records"]["steps"]
    assert page.run("pellucid.app.store.steps.map((s) => s.id)") == [step["id"] for step in told]
    other = tmp_path / "photo.png"
    other.write_bytes(b"\x89PNG no recording")
    page.drop_file(600, 400, other)
    page.until("document.querySelector('.notice').textContent.includes('photo.png')")
    assert page.run("pellucid.app.recording.name") == recording.name
    assert_quiet(page, served)


def test_what_the_server_records_opens_too(
    served: Running, open_page: Open, tmp_path: Path
) -> None:
    file = tmp_path / "server.json"
    file.write_bytes(served.http.get("/live/recording").content)
    page = open_page(served.url)
    page.put_file("input[type=file]", file)
    page.until("pellucid.app.recording !== null && pellucid.app.store.steps.length > 0")
    show_all(page)
    assert [s["id"] for s in json.loads(file.read_bytes())["records"]["steps"]] == page.run(
        "pellucid.app.store.steps.map((step) => step.id)"
    )
    assert_quiet(page, served)


def test_operations_are_timed_while_somebody_looks(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    show_all(page)
    page.run("document.getElementById('figure-anatomy').scrollIntoView({ block: 'center' })")
    page.until("pellucid.app.feed.spans && pellucid.app.feed.state === 'live'")
    ask(served, 1)
    page.until("pellucid.app.store.stepsWithSpans.length > 0")
    seen = view(page, "anatomy")
    assert {op["layer"] for op in seen["ops"]} > set(range(30))
    assert 0 < seen["ops_ms"] <= seen["forward_ms"] * 1.001
    assert_quiet(page, served)


def test_an_operation_is_zoomed_to_and_out_of(served: Running, open_page: Open) -> None:
    """A click on an operation shows its layer whole and selects its kind; its step stays."""
    page = open_page(served.url)
    wait_for_records(page)
    page.run("document.getElementById('figure-anatomy').scrollIntoView({ block: 'center' })")
    page.until("pellucid.app.feed.spans && pellucid.app.feed.state === 'live'")
    ask(served, 1)
    page.until("pellucid.app.store.stepsWithSpans.length > 0")
    canvas = "document.querySelector('#figure-anatomy canvas')"
    page.until(f"{canvas}.clientHeight > 100")
    settle(page)
    page.run(f"{canvas}.focus()")
    for key in ("End", "ArrowDown", "Enter"):
        page.press(key)
        settle(page)
    page.until("pellucid.app.selection.current.op !== null")
    seen = view(page, "anatomy")
    assert page.run("pellucid.app.selection.current.step") == seen["step"]
    assert seen["op"] in {op["op"] for op in seen["ops"]}
    said = "document.querySelector('#figure-anatomy .sentence').textContent"
    page.until(f"{said}.includes('Selected is ')")
    tip = "document.querySelector('.tip').textContent"
    page.press("Home")
    page.until(f"{tip}.startsWith('forward')")  # zoomed: no other phase is in sight
    page.run("document.querySelectorAll('#figure-anatomy .controls button')[2].click()")
    settle(page)
    page.press("Home")
    page.until(f"/^(wait|schedule)/.test({tip})")
    page.run("document.querySelector('#figure-anatomy [data-view=table]').click()")
    rows = "document.querySelectorAll('#figure-anatomy tbody tr').length"
    assert page.run(rows) == sum(op["op"] == seen["op"] for op in seen["ops"]) < len(seen["ops"])
    assert_quiet(page, served)


def test_a_token_is_drawn_again(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    say(page, 6)
    page.until("document.querySelector('.timings dd') !== null")
    page.run("document.querySelector('.said.answer button').click()")
    show_all(page)
    page.run("document.getElementById('figure-tokens').scrollIntoView({ block: 'center' })")
    page.until("pellucid.view('tokens').funnel === true")
    settle(page)
    page.run("document.querySelectorAll('#figure-tokens .token')[1].click()")
    page.until("document.querySelectorAll('#figure-tokens .funnel .stage').length > 2")
    said = page.run("document.querySelector('#figure-tokens .detail').textContent")
    assert "the token that was chosen" in said
    assert_quiet(page, served)


# Where a page of this viewer's own request is drawn, in the window.
OWN_PAGE = """(() => {
  const { api } = pellucid.app;
  const { cells, shown_pages: shown } = pellucid.view("pages");
  const own = cells.find(({ owners, last }) => api.owns((owners[0] ?? last)?.request ?? "") &&
    (owners[0] ?? last).index === 1);
  const canvas = document.querySelector("#figure-pages canvas");
  const box = canvas.getBoundingClientRect();
  const size = Math.max(4, Math.min(20, Math.floor(Math.sqrt((box.width * 170) / shown))));
  const across = Math.max(1, Math.floor(box.width / size));
  return [box.x + (own.page % across) * size + size / 2,
    box.y + Math.floor(own.page / across) * size + size / 2];
})()"""


def test_a_page_says_its_text_to_whoever_wrote_it(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    say(page, 4)
    name = page.run("pellucid.app.store.requests.at(-1).id")
    page.until(f"pellucid.app.store.request('{name}').finished !== null")
    figure = "document.getElementById('figure-pages')"
    page.run(f"{figure}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    page.until(f"({DRAWN})('pages')")
    settle(page)

    def hover() -> None:
        page.move(1, 1)
        page.move(*page.run(OWN_PAGE))

    insist(page, hover, "document.querySelector('.tip-note')?.textContent.startsWith('\"')")
    tokens = page.run(
        f"pellucid.app.api.json('/live/requests/{name}?chances=0')"
        ".then(({ prompt, tokens }) => [...prompt, ...tokens].map(({ text }) => text))"
    )
    size = view(page, "pages")["page_size"]
    said = page.run("document.querySelector('.tip-note').textContent")
    assert json.loads(said) == "".join(tokens[size : 2 * size])
    figure = "document.getElementById('figure-prefix')"
    canvas = f"{figure}.querySelector('canvas')"
    page.run(f"{figure}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    page.until(f"({DRAWN})('prefix')")

    def walk() -> None:  # to the run that was used last
        page.run(f"{canvas}.focus()")
        page.press("Home")

    insist(
        page,
        walk,
        "document.querySelector('.tip-title').textContent.endsWith('tokens') &&"
        "document.querySelector('.tip-note').textContent.startsWith('\"')",
    )
    note = page.run("document.querySelector('.tip-note').textContent")
    assert json.JSONDecoder().raw_decode(note)[0] in "".join(tokens)
    assert_quiet(page, served)


EMPTY = {
    "waterfall": "lanes", "bytes": "steps", "batch": "steps", "roofline": "points",
    "anatomy": "ops", "pages": "cells",
}  # fmt: skip


def test_an_empty_selection_is_said_and_keeps_its_shape(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    page.run("pellucid.app.selection.set({ time: [1, 2] })")
    for name in ("waterfall", "bytes", "batch", "roofline"):
        seen = view(page, name)
        assert seen[EMPTY[name]] == []
        assert "in the time that is selected" in seen["why"] or "into the time" in seen["why"]
    page.run("pellucid.app.selection.set({ time: null, step: 123456789 })")
    for name in ("anatomy", "pages"):
        seen = view(page, name)
        assert seen[EMPTY[name]] == []
        assert "Step 123456789 is not among" in seen["why"]
    show_empty = "document.querySelector('#figure-anatomy .sentence').textContent"
    page.run("document.getElementById('figure-anatomy').scrollIntoView({ block: 'center' })")
    page.until(f"{show_empty}.includes('Step 123456789 is not among')")
    assert_quiet(page, served)


def test_what_is_no_recording_is_said(served: Running, open_page: Open, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"version": 1, "records": 5}')
    page = open_page(served.url)
    page.put_file("input[type=file]", bad)
    page.until("document.querySelector('.notice').textContent.includes('bad.json')")
    assert page.errors == []


def test_numbers_are_those_of_the_records(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    records = served.http.get("/live/records").json()
    about = served.http.get("/live/about").json()
    steps = {step["id"]: step for step in records["steps"]}
    requests = {request["id"]: request for request in records["requests"]}
    ledger = view(page, "bytes")["steps"]
    assert ledger
    for row in ledger:
        cost = steps[row["id"]]["cost"]
        assert row["weights_read"] == cost["weights_read"]
        assert row["kv_read"] == cost["kv_read"]
        assert row["activations"] == cost["activations_read"] + cost["activations_written"]
        forward = steps[row["id"]]["ms"]["forward"]
        read = row["weights_read"] + row["kv_read"] + row["kv_written"]
        assert row["gb_per_s"] == pytest.approx(read / forward / 1e6)
    for column in view(page, "batch")["steps"]:
        assert column["positions"] == sum(i["tokens"] for i in steps[column["id"]]["batch"])
        assert column["budget"] == about["limits"]["max_num_batched_tokens"]
    shown = view(page, "waterfall")  # of a slow machine's requests it has the last half minute
    lanes = shown["lanes"]
    assert {lane["id"] for lane in lanes} <= set(requests)
    for lane in lanes:
        told = requests[lane["id"]]
        begun = told["queued"] if told["received"] is None else told["received"]
        assert lane["begin"] == begun
        parts = [ms for stage, ms in lane["stages"].items() if stage != "total"]
        assert sum(parts) == pytest.approx(lane["stages"]["total"], abs=0.01)
        took_part = {
            s["id"]
            for s in steps.values()
            for i in s["batch"]
            if i["request"] == lane["id"] and shown["from"] <= s["start"] <= shown["to"]
        }
        assert took_part <= {part["step"] for part in lane["steps"]}
    last = records["steps"][-1]
    counts = {name: last["pages"][name] for name in ("free", "cached", "owned")}
    owned = "pellucid.view('pages').cells.filter((cell) => cell.owners.length).length"
    page.until(f"{owned} === {counts['owned']}")  # the last request's end is told after its step
    drawn = view(page, "pages")
    assert drawn["counts"] == counts and drawn["complete"]
    assert sum(1 for cell in drawn["cells"] if cell["owners"]) == counts["owned"]
    assert sum(1 for cell in drawn["cells"] if not cell["owners"]) == counts["cached"]
    weights = sum(tensor["bytes"] for tensor in about["tensors"])
    assert view(page, "memory")["weights_bytes"] == weights
    assert view(page, "prefix")["saved_tokens"] == sum(
        request["cached_tokens"] for request in requests.values()
    )


@pytest.mark.parametrize("name", ["waterfall", "bytes", "batch", "memory", "tokenizer"])
def test_table_and_json_tell_what_is_drawn(served: Running, open_page: Open, name: str) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    page.until("pellucid.view('tokenizer').benches.length > 0")
    section = f"document.querySelector('#figure-{name}')"
    page.run(f"{section}.querySelector('[data-view=json]').click()")
    text = page.run(f"{section}.querySelector('pre').textContent")
    assert json.loads(text) == view(page, name)
    page.run(f"{section}.querySelector('[data-view=table]').click()")
    rows = page.run(f"{section}.querySelectorAll('tbody tr').length")
    drawn = {
        "waterfall": "lanes.length",
        "bytes": "steps.length",
        "batch": "steps.length",
        "memory": "weights.length + 6",
        "tokenizer": "benches[0].pieces.length",
    }[name]
    assert rows == page.run(f"pellucid.view('{name}').{drawn}") > 0
    page.run(f"{section}.querySelector('[data-view=figure]').click()")
    assert page.run(f"!{section}.querySelector('.body').hidden")
    assert page.errors == []


def test_one_selection_for_all_and_in_the_address(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    step = view(page, "bytes")["steps"][2]["id"]
    page.run(f"pellucid.app.selection.set({{ step: {step} }})")
    assert page.run("location.hash") == f"#step={step}"
    assert view(page, "anatomy")["step"] == step == view(page, "pages")["step"]
    assert view(page, "batch")["selected"] == step
    again = open_page(f"{served.url}/#step={step}")
    wait_for_records(again)
    assert view(again, "anatomy")["step"] == step
    assert f"step {step}" in again.run("document.querySelector('.chips').textContent")
    again.run("document.querySelector('.chip button').click()")
    assert again.run("location.hash") in ("", "#")
    first, last = page.run("pellucid.app.store.steps.slice(0, 3).map((s) => [s.id, s.start])")[::2]
    page.run(f"pellucid.app.selection.set({{ step: null, time: [{first[1]}, {last[1] + 1e-4}] }})")
    for name in ("anatomy", "pages"):  # of that time, not of now
        assert view(page, name)["step"] == last[0]
    assert view(page, "memory")["step"] == last[0]
    page.run("pellucid.app.selection.clear()")
    assert view(page, "pages")["step"] > last[0]
    assert page.errors == again.errors == []


@pytest.mark.parametrize("source", ["live", "recorded"])
def test_pointer_click_and_drag(
    served: Running, open_page: Open, recording: Path, source: str
) -> None:
    page = open_source(served, open_page, recording, source)
    show_all(page)
    canvas = "document.querySelector('#figure-waterfall canvas')"
    x, y = point(page, canvas, 12)  # the first lane: there may be no other
    assert page.run("document.querySelector('.tip').textContent.length") > 10
    page.click(x, y)
    page.until("pellucid.app.selection.current.request !== null")
    lit = page.run("pellucid.app.selection.current.request")
    assert [lane["selected"] for lane in view(page, "waterfall")["lanes"]].count(True) == 1
    assert lit in {lane["id"] for lane in view(page, "waterfall")["lanes"]}
    page.run("pellucid.app.selection.clear()")
    whole = view(page, "waterfall")
    settle(page)  # its sentence has another length again, and the lanes another place
    x, y = point(page, canvas, 12)
    half = page.run(f"{canvas}.clientWidth") * 0.2
    page.drag(x - half, y, x + half)
    page.until("pellucid.app.selection.current.time !== null")
    begin, end = page.run("pellucid.app.selection.current.time")  # there may be no request in it
    assert whole["from"] < begin < end < whole["to"]
    chosen = page.run(
        "({ bytes: pellucid.view('bytes'), ids: pellucid.app.stepsShown(1e6)"
        ".filter((step) => step.batch.length).map((step) => step.id) })"
    )
    if chosen["ids"]:  # the server may have been idle in that time
        shown = [step["id"] for step in chosen["bytes"]["steps"]]
        assert shown == chosen["ids"][-len(shown) :]
    else:
        assert chosen["bytes"]["why"]
    assert page.errors == []


@pytest.mark.parametrize("source", ["live", "recorded"])
def test_keys_alone_reach_marks_and_select_them(
    served: Running, open_page: Open, recording: Path, source: str
) -> None:
    page = open_source(served, open_page, recording, source)
    show_all(page)

    def walk() -> None:
        page.run("document.querySelector('#figure-bytes canvas').focus()")
        settle(page)
        page.press("ArrowLeft")

    insist(page, walk, "!document.querySelector('.tip').hidden")
    page.until("document.querySelector('[aria-live=polite].aside').textContent.length > 10")
    page.press("Enter")
    page.until("pellucid.app.selection.current.step !== null")
    first = page.run("pellucid.app.selection.current.step")
    page.press("ArrowLeft")
    page.press("Enter")
    page.until(f"pellucid.app.selection.current.step !== {first}")
    page.press("Escape")
    assert page.run("document.querySelector('.tip').hidden")
    assert page.errors == []


def test_the_playground_asks_and_its_request_is_shown(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script> Say hello."
    page.run("document.querySelector('.playground [name=max_tokens]').value = '8'")
    page.run("document.querySelector('.playground [name=temperature]').value = '0'")
    page.run(f"document.querySelector('.playground textarea').value = {json.dumps(hostile)}")
    page.run("document.querySelector('.playground form').requestSubmit()")
    page.until("document.querySelector('.timings dd') !== null")
    assert hostile in page.run("document.querySelector('.talk').textContent")
    assert page.run("document.querySelectorAll('.talk img, .talk script').length") == 0
    page.until("document.querySelector('.said.answer').dataset.paint !== undefined")
    page.run("document.querySelector('.said.answer button').click()")
    chosen = page.run("pellucid.app.selection.current.request")
    assert chosen.startswith("page-")
    page.until("pellucid.view('tokens').texts === true")
    shown = view(page, "tokens")
    answer = page.run("document.querySelector('.said.answer').lastChild.textContent")
    assert "".join(token.get("text", "") for token in shown["tokens"]).startswith(answer[:8])
    lane = f"pellucid.view('waterfall').lanes.find((lane) => lane.id === '{chosen}')"
    page.until(f"{lane}.state === 'finished'")  # told after the last byte
    assert page.run(f"{lane}.output_tokens") == 8
    assert_quiet(page, served)


def test_the_tokenizer_bench(served: Running, open_page: Open) -> None:
    page = open_page(served.url)
    wait_for_records(page)
    show_all(page)  # what is above has its height, so that nothing moves any more
    page.until("pellucid.view('tokenizer').benches.length === 1")
    bench = "document.querySelector('#figure-tokenizer')"
    page.run(
        f"""(() => {{ const text = {bench}.querySelector('textarea');
        text.value = 'Michael <b>Jordan</b>'; text.dispatchEvent(new Event('input')); }})()"""
    )
    page.until("pellucid.view('tokenizer').text.startsWith('Michael')")
    ids = [piece["id"] for piece in view(page, "tokenizer")["benches"][0]["pieces"]]
    told = served.post("/tokenize", {"prompt": "Michael <b>Jordan</b>"}).json()
    assert ids == told["tokens"]
    page.run(f"{bench}.scrollIntoView({{block: 'center'}})")
    page.until(f"{bench}.querySelector('.token') !== null")
    page.run(f"{bench}.querySelector('.token').click()")
    page.until(f"{bench}.querySelector('.merges li') !== null")
    page.run(
        f"""(() => {{ const other = {bench}.querySelector('select');
        other.value = 'bytes'; other.dispatchEvent(new Event('change')); }})()"""
    )
    page.until("pellucid.view('tokenizer').benches.length === 2")
    assert len(view(page, "tokenizer")["benches"][1]["pieces"]) == len("Michael <b>Jordan</b>")
    assert_quiet(page, served)


MOST_BYTES = 400_000
WEIGHT = """["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
  .filter(({ name }) => !/\\/(live|v1|tokenize)\\b/.test(new URL(name).pathname))
  .map(({ name, decodedBodySize }) => [new URL(name).pathname, decodedBodySize])"""


def test_the_pages_weigh_little(served: Running, open_page: Open) -> None:
    """All of the figures and a chapter with all of the guide's, unpacked."""
    weights: dict[str, int] = {}
    for path in ("/", "/guide/attention"):
        page = open_page(served.url + path)
        page.until("document.readyState === 'complete'")
        weights |= dict(page.run(WEIGHT))
    assert weights["/web/main.js"] > 0 and weights["/web/guide/main.js"] > 0
    assert sum(weights.values()) < MOST_BYTES, weights


@pytest.mark.parametrize("width", [390, 360])
def test_nothing_is_cut_off_on_a_phone(served: Running, open_page: Open, width: int) -> None:
    page = open_page(served.url, width, 800)
    page.resize(width, 800, mobile=True)
    wait_for_records(page)
    show_all(page)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.errors == []


def test_a_server_with_keys_asks_for_one(served: Running, open_page: Open) -> None:
    locked = Running(served.client, api_keys=("key-a",))
    try:
        page = open_page(locked.url)
        page.until("document.querySelector('.state').dataset.state === 'locked'")
        field = "document.querySelector('.tools input[type=password]')"
        assert page.run(f"!{field}.hidden")
        page.run(f"{field}.value = 'key-a'; {field}.dispatchEvent(new Event('change'))")
        page.until("pellucid.app.feed.state === 'live'")
        assert "key-a" not in page.run("location.href")
    finally:
        locked.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(served: Running, open_page: Open, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not here: `npm install` in tests/browser brings it")
    page = open_page(served.url, prefers_color_scheme=scheme)
    wait_for_records(page)
    show_all(page)
    page.run("pellucid.app.feed.stop()")
    page.run("document.querySelector('#figure-bytes [data-view=table]').click()")
    page.run("document.querySelector('#figure-batch [data-view=json]').click()")
    page.run("document.querySelector('.playground details').open = true")
    page.run("pellucid.app.selection.set({ step: pellucid.app.store.steps.at(-1).id })")
    page.send("Page.setBypassCSP", enabled=True)
    page.run(AXE.read_text() + "; undefined")
    found = page.run(
        """axe.run(document).then(({ violations }) => violations.map((v) =>
        `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.target).join(" | ")}`))"""
    )
    assert found == []
