"""A real browser without a window: what it makes of a page."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --virtual-time-budget=5000"
).split()
_SECONDS: Final = 90


def chromium() -> str:
    """Path of the browser; skips the test where there is none, unless services are required."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        if os.environ.get("RAGTRACE_REQUIRE_SERVICES"):
            pytest.fail("no chromium here, and RAGTRACE_REQUIRE_SERVICES is set")
        pytest.skip("no chromium here (Debian package chromium)")
    return found


def dom_of(page: Path, profile: Path) -> str:
    """The document as it is after everything on *page* that runs has run."""
    return dom_of_address(page.as_uri(), profile)


def dom_of_address(address: str, profile: Path) -> str:
    """The document at *address* as it is after everything on it that runs has run."""
    command = [chromium(), *_FLAGS, f"--user-data-dir={profile}", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=True)
    return done.stdout.decode("utf-8", "replace")


class Parsed(HTMLParser):
    """Counts elements, collects attributes and the text."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: set[tuple[str, str]] = set()
        """Element and attribute name."""
        self.values: list[str] = []
        self.text = ""
        self.title = ""
        self._open = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._open = tag
        for name, value in attrs:
            self.attributes.add((tag, name))
            self.values.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "title":
            self.title += data
        self.text += data
