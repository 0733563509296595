"""The HTML report in a real browser: whatever an answer, a document or a name tries, it stays text."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

import pytest

from ragtrace.report.analysis import build_report
from ragtrace.report.html_page import render_html
from ragtrace.report.model import Period, Report
from tests.support import hostile
from tests.support.browser import Parsed, dom_of

pytestmark = pytest.mark.integration

# What the page is made of; nothing here can load, run, submit or lead anywhere.
TAGS: Final = frozenset(
    "html head meta title style body main header footer section article div span p h1 h2 h3 strong small b i u s em ul"
    " li dl dt dd svg path table thead tbody tr th td mark details summary".split()
)
ATTRIBUTES: Final = frozenset(
    "lang charset name content http-equiv class style dir role aria-label viewbox preserveaspectratio d"
    " vector-effect open data-label".split()
)
OF_ELEMENTS: Final = {("span", "title"), ("p", "tabindex")}
"""Attributes that one kind of element has: the whole name of an evaluator, and passages that the keyboard scrolls."""


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report in which every text and name is a payload."""
    path, now = tmp_path_factory.mktemp("history") / "hostile.db", time.time()
    hostile.history(path, now)
    return build_report(str(path), Period(now - 3600, now), worst=len(hostile.PAYLOADS))


def shown(document: str, folder: Path) -> Parsed:
    file = folder / "page.html"
    file.write_text(document, encoding="utf-8")
    return Parsed(dom_of(file, folder / "profile"))


def without_policy(document: str) -> str:
    """The same page without its second wall, so that the first one is tested."""
    bare = re.sub(r"<meta http-equiv=[^>]*>", "", document)
    assert bare != document
    return bare


def test_a_payload_that_is_not_escaped_would_be_seen(tmp_path: Path) -> None:
    """The check itself: the same browser runs the first payload where nothing protects the page."""
    parsed = shown(f"<!doctype html><title>t</title><body>{hostile.PAYLOADS[0]}", tmp_path)
    assert parsed.title == hostile.PROOF
    assert ("i", "id") in parsed.attributes


def test_the_policy_alone_would_stop_it_too(hostile_report: Report, tmp_path: Path) -> None:
    """A script that had got into the page does not run."""
    parsed = shown(render_html(hostile_report).replace("<main>", f"<main>{hostile.PAYLOADS[0]}"), tmp_path)
    assert parsed.tags["script"] == 1
    assert parsed.title != hostile.PROOF


@pytest.mark.parametrize("policy", [True, False], ids=["as it is", "without its policy"])
def test_nothing_in_a_hostile_history_becomes_more_than_text(
    hostile_report: Report, tmp_path: Path, policy: bool
) -> None:
    """The browser sees only the elements and attributes the page is made of, and no payload has run."""
    document = render_html(hostile_report)
    parsed = shown(document if policy else without_policy(document), tmp_path)
    assert hostile.PROOF not in parsed.title
    assert not set(parsed.tags) - TAGS
    assert not {name for _, name in parsed.attributes - OF_ELEMENTS} - ATTRIBUTES
    assert not [value for value in parsed.values if value == hostile.PROOF]


def test_every_payload_is_shown_as_it_was(hostile_report: Report, tmp_path: Path) -> None:
    """The reader sees what was asked and answered, letter by letter but for characters that control."""
    parsed = shown(render_html(hostile_report), tmp_path)
    seen = " ".join(parsed.text.split())
    assert len(hostile_report.problems) == len(hostile.PAYLOADS)
    for payload in hostile.PAYLOADS[:17]:
        assert seen.count(" ".join(payload.split())) >= 3, payload


def test_nothing_is_loaded_from_anywhere(hostile_report: Report) -> None:
    """No address in any place that a browser would follow."""
    parsed = Parsed(render_html(hostile_report))
    assert not {name for _, name in parsed.attributes} & {"href", "src", "srcset", "action", "background", "data"}
    style = re.search(r"<style>(.*?)</style>", render_html(hostile_report), re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
