"""The built site of docs/ in a real Chromium: what axe-core says, a phone, search, and no request to another host."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.browser import chromium

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("index", "first-hour", "api/judges", "attributes", "reading-scores")
LARGE: Final = ("api/ragtrace", "command-line", "metrics", "repository/tests/benchmarks/index")
"""Pages for which axe-core takes long, and whose elements are those of the others."""
PHONE: Final = 390


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in which a warning is an error."""
    if find_spec("mkdocs") is None:
        reason = "no mkdocs here; run: make docs"
        if os.environ.get("RAGTRACE_REQUIRE_SERVICES"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where a plain file server has the site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Browser]:
    """One Chromium for all tests."""
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield running
        running.close()


def _opened(browser: Browser, scheme: Literal["light", "dark"], asked: list[str]) -> Page:
    page = browser.new_context(color_scheme=scheme, reduced_motion="reduce").new_page()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out_or_asks_another_host(
    browser: Browser, address: str, scheme: Literal["light", "dark"]
) -> None:
    """axe-core finds nothing, on a phone nothing scrolls sideways, and all that a page needs is in the site."""
    asked = list[str]()
    page = _opened(browser, scheme, asked)
    for name in (*PAGES, *LARGE):
        page.goto(f"{address}{name}.html", wait_until="networkidle")
        body = page.locator("body")
        expect(body).to_have_attribute("data-md-color-scheme", "slate" if scheme == "dark" else "default")
        for width in (PHONE, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            if name in PAGES:
                page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
                found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.target)]))")
                assert found == [], (name, width)
    page.context.close()
    assert len(asked) > len(PAGES)
    assert [url for url in asked if not url.startswith((address, "blob:", "data:"))] == []


def test_a_public_name_is_found_by_search(browser: Browser, address: str) -> None:
    """Without any other host; the link leads to the name in the reference."""
    asked = list[str]()
    page = _opened(browser, "light", asked)
    page.goto(f"{address}index.html", wait_until="networkidle")
    page.keyboard.press("/")
    page.keyboard.type("precision_at", delay=10)
    link = page.locator(".md-search-result__link[href*='api/metrics.html']").first
    link.click()
    page.wait_for_url("**/api/metrics.html*")
    expect(page.get_by_text("share of relevant chunks among the first K").first).to_be_visible()
    page.context.close()
    assert [url for url in asked if not url.startswith((address, "blob:", "data:"))] == []
