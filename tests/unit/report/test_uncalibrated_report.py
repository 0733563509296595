"""Reports on the scores of a decision judge: no percentage without labels, and the rate that labels make of them."""

from __future__ import annotations

import re
from pathlib import Path
from time import time

import pytest

from ragtrace.report.analysis import build_report
from ragtrace.report.console import render_terminal
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period, Report, to_json
from ragtrace.system.terminal import OK
from tests.unit.cli.test_calibrate_decisions import CALLS, fill, label_picked, run

_RATE = re.compile(r"(?<![:\d])\d+\.\d+ ?%")
"""Percentage as rates are written, with decimals; those after a colon are places in drawings."""


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "history.db"
    fill(path, calls=600)
    return path


def report_on(path: Path) -> Report:
    now = time()
    return build_report(str(path), Period(now - 2 * CALLS, now + 2 * CALLS), made_at=now)


@pytest.mark.parametrize(
    "render",
    [render_html, render_markdown, to_json, lambda report: render_terminal(report, width=120)],
    ids=["html", "markdown", "json", "terminal"],
)
def test_without_labels_no_view_shows_a_percentage(history: Path, render: object) -> None:
    """The words stand where a rate would."""
    assert callable(render)
    text = str(render(report_on(history)))
    body = text.split("</style>")[-1]
    assert _RATE.findall(body) == []
    assert "uncalibrated" in body


def test_the_summary_says_what_to_do(history: Path) -> None:
    """Label calls: until then, there is no rate."""
    text = render_markdown(report_on(history)).replace("\\", "")
    assert "Hallucination rate is not known (uncalibrated: not a rate)" in text
    assert "label at least 50 of them to know the rate (ragtrace calibrate pick)" in text


def test_labels_make_a_rate(history: Path, tmp_path: Path) -> None:
    """It stands at the top, with the number of labels."""
    assert run("calibrate", "pick", history, "-n", 200, "--seed", 1) == OK
    label_picked(history, tmp_path / "labels.jsonl")
    found = report_on(history)
    assert found.rate is not None
    assert found.rate.low is not None
    assert found.rate.high is not None
    assert found.rate.low < 0.2 < found.rate.high
    text = render_markdown(found)
    assert _RATE.search(text)
    assert re.search(r"Hallucination rate is \d+\.\d%", text)
    assert re.search(r"by \d+ labelled calls, 95% interval", text)


def test_a_changed_model_makes_the_rate_unknown_within_one_call(history: Path, tmp_path: Path) -> None:
    """The labels are called STALE, and the old curve is not used."""
    assert run("calibrate", "pick", history, "-n", 200, "--seed", 1) == OK
    label_picked(history, tmp_path / "labels.jsonl")
    fill(history, served="decider-2", calls=1, begin=600)
    found = report_on(history)
    assert found.rate is not None
    assert found.rate.value is None
    text = render_markdown(found).replace("\\", "")
    assert "STALE: decider@1 served by decider-2" in text
    assert "uncalibrated: not a rate" in text
