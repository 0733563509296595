"""Draws the pictures of docs/open.md and docs/decisions.md: pages on a history that `ragtrace demo` has just made.

Run at the top of the sources, with chromium installed: python -m tests.benchmarks.page_pictures docs
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from ragtrace.cli import main as ragtrace
from tests.integration.test_review_browser import served
from tests.support.browser import chromium

WORST: Final = "/calls?sort=worst"
COLOURS: Final = 64
"""Colours of a picture, which keep text and lines as they are and the file below 100 kB."""
PHONE: Final = {"width": 390, "height": 1120}
SCREEN: Final = {"width": 1200, "height": 640}


@contextmanager
def opened(browser: Browser, history: Path, size: dict[str, int]) -> Iterator[tuple[Page, str]]:
    """A page of this size that has opened the printed address, and the address of the first page."""
    with served(history, "--reviewer", "ada", command="open") as (address, _):
        page = browser.new_page(viewport={"width": size["width"], "height": size["height"]})
        page.goto(address)
        page.wait_for_url(re.compile(r":\d+/$"))
        yield page, address.partition("/?")[0]
        page.close()


def shot(page: Page, height: int = 0) -> Image.Image:
    """The page down to *height*, or as much of it as the window shows."""
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": height} if page.viewport_size else None
    taken = page.screenshot(full_page=True, clip=clip) if height else page.screenshot()  # type: ignore[arg-type]
    return Image.open(BytesIO(taken)).convert("RGB")


def save(picture: Image.Image, path: Path) -> None:
    """Write *picture* with few colours."""
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """Pictures of one size in a row."""
    width, height = pictures[0].size
    row = Image.new("RGB", (len(pictures) * (width + 16) - 16, height), "#9aa3b0")
    for number, picture in enumerate(pictures):
        row.paste(picture, (number * (width + 16), 0))
    return row


def to(page: Page, address: str) -> None:
    """Open *address*, with the filters of a phone folded as they are at first."""
    page.goto(address)
    page.wait_for_load_state("networkidle")


def screens(browser: Browser, history: Path, folder: Path) -> None:
    """The pictures of a wide window."""
    with opened(browser, history, SCREEN) as (page, base):
        to(page, f"{base}/")
        save(shot(page, 960), folder / "open.png")
        to(page, f"{base}/changes")
        save(shot(page, 1060), folder / "open-changes.png")
        to(page, f"{base}{WORST}")
        for _ in range(2):
            page.keyboard.press("j")
            page.keyboard.press("x")
        save(shot(page), folder / "open-calls.png")
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/calls/\d+"))
        save(shot(page, int(page.evaluate("document.documentElement.scrollHeight"))), folder / "open-call.png")
        page.set_viewport_size({"width": 1200, "height": 800})
        to(page, f"{base}/label/next")
        save(shot(page), folder / "open-label.png")


def phone(browser: Browser, history: Path, folder: Path) -> None:
    """The four first pages on a phone."""
    with opened(browser, history, PHONE) as (page, base):
        found: list[Image.Image] = []
        for view in ("/", WORST, "/changes", "/label/next"):
            to(page, f"{base}{view}")
            found.append(shot(page))
        save(side_by_side(found), folder / "open-phone.png")


def main(folder: Path) -> None:
    """Make the histories and draw all pictures into *folder*."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        history, decided = Path(made) / "demo.db", Path(made) / "decided.db"
        ragtrace(["demo", "--store", str(history)])
        ragtrace(["demo", "--decisions", "--store", str(decided)])
        ragtrace(["calibrate", "pick", str(history), "--metric", "hallucinated", "--seed", "1"])
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        screens(browser, history, folder)
        phone(browser, history, folder)
        with opened(browser, decided, SCREEN) as (page, base):
            to(page, f"{base}/")
            save(shot(page, 760), folder / "open-decisions.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
