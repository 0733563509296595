"""`ragtrace open` in a real Chromium: what axe-core says, refreshing, the keyboard, a phone, and no other request."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ragtrace.cli import main
from ragtrace.core.types import Document
from ragtrace.history.schema import history_file
from ragtrace.labels.label_store import Label, LabelStore, LabelValue
from ragtrace.report.analysis import build_report
from ragtrace.report.html_page import render_html
from ragtrace.report.model import Period
from ragtrace.system.terminal import OK
from tests.integration.test_review_browser import METRIC, served
from tests.support import hostile
from tests.support.browser import chromium
from tests.support.decisions import stored_decisions
from tests.support.history import SOURCE, Simulated, fill, made

pytestmark = pytest.mark.integration

VIEWS = (
    "/",
    "/calls?since=all&sort=worst",
    "/calls/1?since=all",
    "/cases?since=all&tick=1&tick=2",
    "/cases?since=all",
    "/changes",
    "/health",
    "/label",
    "/label/next",
    "/label/disagreements",
    "/label/calibration",
    "/calls?since=1h&text=nothing",
    "/calls?since=all&ticked=1,2",
    "/calls?since=soon",
    "/label/reviewer",
    "/calls/999999?since=all",
    "/no-such-page",
)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 60 calls within an hour that a decision judge has scored, with a doubtful half."""
    path, now = tmp_path_factory.mktemp("history") / "decided.db", time.time()
    for probability, began in ((0.9, now - 3_500), (0.04, now - 1_700)):
        stored_decisions(path, [began + 55 * number for number in range(30)], probability=probability)
    return path


@pytest.fixture(scope="module")
def browser(decided: Path) -> Iterator[Browser]:
    """One Chromium for all tests; once it runs, its loop is that of the thread, in which no judge can be asked."""
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history of 200 calls of two workflows within a day."""
    path, rng, now = tmp_path / "history.db", Random(4), time.time()
    history_file(str(path)).create()
    kinds = [Simulated(bad=0.3, probability=1.0, workflow=name) for name in ("support", "sales")]
    fill(path, [made(now - 80_000 + 390 * number, kinds[number % 2], rng) for number in range(200)])
    return path


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A history with long and hostile names, labels and chunks, of two releases within a moment."""
    path, rng, now = tmp_path / "crowded.db", Random(6), time.time()
    history_file(str(path)).create()
    hostile.history(path, now)
    kinds = [Simulated(bad=bad, probability=1.0, workflow="w" * 90, model="m" * 90) for bad in (0.1, 0.7)]
    chunks = (Document("Shoes may be returned. " * 200, "policy-" + "7" * 90),) * 3
    for kind, release in zip(kinds, ("r" * 70, "s" * 70), strict=True):
        calls = [made(now - 3.0 + rng.random(), kind, rng) for _ in range(60)]
        calls = [replace(each, call=replace(each.call, contexts=chunks)) for each in calls]
        fill(path, calls, replace(SOURCE, release=release))
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A history without a call."""
    path = tmp_path / "empty.db"
    history_file(str(path)).create()
    return path


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A history of 80 calls, all labelled by Ada, and half by Ben, who disagrees about some."""
    path, rng, now = tmp_path / "labelled.db", Random(8), time.time()
    history_file(str(path)).create()
    kind = Simulated(bad=0.4, probability=1.0)
    calls = [made(now - 8_000 + 100 * number, kind, rng) for number in range(80)]
    fill(path, calls)
    assert main(["calibrate", "pick", str(path), "-n", "80", "--metric", METRIC, "--seed", "1"]) == OK
    with closing(LabelStore(str(path))) as store:
        calls_by_age = [identity for _, identity in sorted(store.identities().items())]
        for number, identity in enumerate(calls_by_age):
            label: LabelValue = "bad" if number % 3 == 0 else "good"
            other: LabelValue = "good" if label == "bad" and number % 10 == 0 else label
            given = [Label(identity, METRIC, "ada", label, at=now), Label(identity, METRIC, "ben", other, at=now)]
            store.add(given[: 1 + number % 2])
    return path


def open_page(
    browser: Browser, address: str, scheme: Literal["light", "dark"] = "light", *, for_axe: bool = False
) -> Page:
    """A page in a profile of its own, after the printed address was opened; axe-core runs against the site's policy."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 800}, bypass_csp=for_axe)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(address)
    page.wait_for_url(re.compile(r":\d+/$"))
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["history", "decided", "crowded", "empty", "labelled"])
def test_no_view_keeps_anybody_out(
    browser: Browser, request: pytest.FixtureRequest, kind: str, scheme: Literal["light", "dark"]
) -> None:
    """axe-core finds nothing, and on a phone nothing is wider than the screen, whichever judge gave the scores."""
    path: Path = request.getfixturevalue(kind)
    with served(path, "--reviewer", "ada", command="open") as (address, _):
        page = open_page(browser, address, scheme, for_axe=True)
        base = address.partition("/?")[0]
        for view in VIEWS:
            page.goto(f"{base}{view}")
            keeps_nobody_out(page, view)
        page.context.clear_cookies()  # as in a browser that was not led here by the printed address
        page.goto(base)
        expect(page.locator("main")).to_contain_text("Open the address that ragtrace has printed")
        keeps_nobody_out(page, "no session")
    now = time.time()
    report = path.with_suffix(".html")
    report.write_text(render_html(build_report(str(path), Period(now - 90_000, now))), encoding="utf-8")
    page.goto(report.as_uri())
    keeps_nobody_out(page, "ragtrace report")
    page.context.close()


def keeps_nobody_out(page: Page, view: str) -> None:
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    for width in (390, 1200):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.target)]))")
        assert found == [], (view, width)


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_has_its_tabs_in_one_line_and_its_filters_folded(browser: Browser, history: Path, width: int) -> None:
    """The line of the folded filters says what they are; a tap opens them, also without scripts."""
    with served(history, "--reviewer", "ada", command="open") as (address, _):
        page = open_page(browser, address)
        page.set_viewport_size({"width": width, "height": 800})
        base = address.partition("/?")[0]
        for view, said in (
            ("/?since=7d", "Filters: Last 7 days"),
            ("/calls?since=all&workflow=%3Dsales&status=bad", "Filters: All times, sales, Judged bad, Newest first"),
            ("/changes?since=24h", "Filters: Last 24 hours, compared with the time before"),
            ("/changes?since=1h&workflow=%3Dgone", "Filters: Last hour, gone, compared with the time before"),
            ("/label?workflow=%3Dsales", "Filters: Unsupported statements, All calls, Not labelled by me, sales"),
        ):
            page.goto(f"{base}{view}")
            tops = page.evaluate("[...document.querySelectorAll('nav[aria-label=Views] a')].map(a => a.offsetTop)")
            assert len(tops) == 5
            assert len({*tops}) == 1, view
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            form = page.locator("form.filters")
            expect(form).to_be_hidden()
            summary = page.locator("details.fold summary")
            expect(summary).to_have_text(said)
            summary.click()
            expect(form).to_be_visible()
            page.set_viewport_size({"width": 1200, "height": 800})
            expect(summary).to_be_hidden()
            expect(form).to_be_visible()
            page.set_viewport_size({"width": width, "height": 800})
        page.context.close()


def test_the_first_page_follows_the_history(browser: Browser, history: Path) -> None:
    """New calls appear by themselves; what is not changed stays the same element, and keeps the focus."""
    with served(history, command="open") as (address, _):
        page = open_page(browser, address)
        expect(page.locator("[data-live] > .meta").first).to_contain_text("200 calls")
        link = page.get_by_role("link", name="Show the worst calls")
        link.focus()
        page.evaluate("document.querySelector('[data-live] .hero').same = true")
        rng = Random(9)
        fill(history, [made(time.time(), Simulated(), rng) for _ in range(7)])
        expect(page.locator("[data-live] > .meta").first).to_contain_text("207 calls", timeout=30_000)
        expect(link).to_be_focused()
        assert page.evaluate("document.querySelector('[data-live] .hero').same")
        page.context.close()


def test_the_worst_call_is_found_by_the_keyboard(browser: Browser, history: Path) -> None:
    """From the first page to the worst calls, into the first, to the next, and back to the list."""
    with served(history, command="open") as (address, _):
        page = open_page(browser, address)
        page.get_by_role("link", name="Show the worst calls").press("Enter")
        page.wait_for_url("**/calls?**")
        page.keyboard.press("j")
        expect(page.locator("[data-row]").first).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url("**/calls/*?**")
        expect(page.locator("mark").first).to_be_visible()
        first = page.url
        page.keyboard.press("j")
        page.wait_for_url(lambda url: url != first)
        page.keyboard.press("k")
        page.wait_for_url(first)
        page.keyboard.press("q")
        page.wait_for_url("**/calls?**")
        page.keyboard.press("/")
        expect(page.locator("input[type=search]")).to_be_focused()
        page.context.close()


def test_calls_are_ticked_by_the_keyboard_and_carried_to_the_next_page(browser: Browser, history: Path) -> None:
    """Their number is on the button, also after a reload and when one goes back; the file has them."""
    with served(history, command="open") as (address, _):
        page = open_page(browser, address)
        page.goto(f"{address.partition('/?')[0]}/calls?since=all")
        button = page.get_by_role("button", name="Make test cases")
        expect(button).to_be_hidden()  # until the first tick
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(button).to_have_text("Make test cases of the ticked calls (1)")
        expect(button).to_be_in_viewport()
        page.keyboard.press("x")
        expect(button).to_be_hidden()
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(button).to_have_text("Make test cases of the ticked calls (2)")
        page.reload()  # the address is the list with its ticks
        expect(button).to_have_text("Make test cases of the ticked calls (2)")
        page.keyboard.press("l")
        page.wait_for_url("**after=**")
        expect(button).to_have_text("Make test cases of the ticked calls (2)")
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(button).to_have_text("Make test cases of the ticked calls (3)")
        button.press("Enter")
        page.wait_for_url("**/cases?**")
        expect(page.get_by_text("3 calls make")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download cases.jsonl").click()
        assert download.value.path().read_text(encoding="utf-8").count('"query"') >= 1
        page.keyboard.press("q")
        page.wait_for_url("**/calls?**")
        expect(button).to_have_text("Make test cases of the ticked calls (3)")
        page.context.close()


def test_hostile_texts_run_nothing_and_no_request_leaves_the_machine(browser: Browser, tmp_path: Path) -> None:
    """In every view, and after the first page has refreshed itself."""
    path = tmp_path / "hostile.db"
    history_file(str(path)).create()
    hostile.history(path, time.time())
    with served(path, "--reviewer", "ada", command="open") as (address, _):
        page = open_page(browser, address)
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        base = address.partition("/?")[0]
        for view in (*VIEWS, *(f"/calls/{number}?since=all" for number in range(1, len(hostile.PAYLOADS) + 1))):
            page.goto(f"{base}{view}")
            assert page.title() != hostile.PROOF
            assert page.locator(f"#{hostile.PROOF}").count() == 0
            assert page.locator("main img, main iframe, main script, main base").count() == 0
        with page.expect_response(lambda response: response.request.resource_type == "fetch", timeout=30_000):
            page.goto(base)
        assert page.title() != hostile.PROOF
        assert [url for url in asked if not url.startswith(base)] == []
        page.context.close()
