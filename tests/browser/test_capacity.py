"""Figure 12 in a real browser: the forecast, read at other loads and asked of other traffic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chrome import Page

from tests.browser.conftest import assert_quiet, busy_once, view, wait_for_records
from tests.python.server.running import Running

FIGURE = "document.querySelector('#figure-capacity')"

Open = Callable[..., Page]


def show(page: Page) -> None:
    page.run(f"{FIGURE}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")


def test_the_forecast_follows_load_and_mix(served: Running, open_page: Open) -> None:
    """What the simulator told, read at another load, and asked anew of another mix."""
    page = open_page(served.url)
    wait_for_records(page)
    show(page)
    page.until("pellucid.view('capacity').simulated?.curve.length > 3")

    def drag(slider: int, value: int) -> None:
        page.run(
            f"(() => {{ const s = {FIGURE}.querySelectorAll('input[type=range]')[{slider}];"
            f"s.value = '{value}'; s.dispatchEvent(new Event('input')); }})()"
        )

    told = view(page, "capacity")
    most = told["simulated"]["saturation"]["requests_per_second"]
    assert told["at_load"]["requests_per_second"] == pytest.approx(0.7 * most)
    assert told["at_twice"] is None
    page.until(f"{FIGURE}.querySelectorAll('svg polyline').length === 4")
    drag(0, 40)
    page.until("pellucid.view('capacity').at_twice !== null")
    at_less = view(page, "capacity")
    assert at_less["at_load"]["requests_per_second"] == pytest.approx(0.4 * most)
    assert at_less["at_load"]["ttft_p95"] <= told["at_load"]["ttft_p95"]
    assert at_less["cost"]["answer"] > told["cost"]["answer"]  # fewer tokens share the hour's price
    page.until(f"{FIGURE}.querySelector('.sentence').textContent.includes('at twice that load')")
    drag(1, 8 + 1)  # prompts twice as long
    page.until("pellucid.view('capacity').simulated.mix.prompt === 512")
    longer = view(page, "capacity")
    assert longer["simulated"]["saturation"]["requests_per_second"] < most
    page.until(f"{FIGURE}.querySelector('.sentence').textContent.includes('prompts of 512 tokens')")
    assert_quiet(page, served)


def test_a_forecast_says_that_it_waits_and_is_asked_for_again(
    served: Running, open_page: Open
) -> None:
    page = open_page(served.url)
    busy_once(page, "/live/capacity")
    wait_for_records(page)
    show(page)
    page.until("pellucid.view('capacity').pending?.busy === 'others are served'")
    page.until(f"{FIGURE}.querySelector('.sentence').textContent.includes('others are served')")
    page.until("document.querySelector('.notice').textContent.includes('Asking again in 9 s')")
    assert view(page, "capacity")["simulated"] is None
    page.until(f"!{FIGURE}.querySelector('progress').hidden")
    page.run("window.letGo()")
    page.until("pellucid.view('capacity').simulated?.curve.length > 3")
    page.until(f"{FIGURE}.querySelector('progress').hidden")
    page.until("document.querySelector('.notice').hidden")
    assert page.run("window.asked") == 2
    assert_quiet(page, served)
