"""Scores of two versions of a metric are not compared: no form of the report calls their difference a change."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import QueuedCall
from ragtrace.report import wording
from ragtrace.report.analysis import build_report
from ragtrace.report.comparability import why_not_comparable
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period, Report
from ragtrace.report.series import score_series
from tests.support.browser import Parsed
from tests.support.history import Simulated, fill, made

NOW: Final = 1_800_000_000.0
DAY: Final = 86_400.0
CALLS: Final = 800


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def with_version(queued: QueuedCall, version: str) -> QueuedCall:
    """The call, with its metrics as of another version."""
    evaluations = tuple(
        replace(each, results={name: replace(one, metric_version=version) for name, one in each.results.items()})
        for each in queued.evaluations
    )
    return replace(queued, evaluations=evaluations)


def report_of(path: Path, changed: float, after: float = 0.4) -> Report:
    """Two days of which the last *changed* seconds were scored by version 2, whose rate is another."""
    rng, calls = random.Random(8), list[QueuedCall]()
    for number in range(CALLS):
        at = NOW - 2 * DAY + 2 * DAY * (number + 0.5) / CALLS
        is_new = at >= NOW - changed
        call = made(at, Simulated(after if is_new else 0.05, 0.8), rng)
        calls.append(with_version(call, "2") if is_new else call)
    fill(path, calls)
    return build_report(str(path), Period(NOW - DAY, NOW), made_at=NOW)


def test_versions_of_two_periods_are_not_compared(path: Path) -> None:
    """Each has its estimate; the difference is not known, and the reason stands in its place."""
    report = report_of(path, DAY)
    row = report.compared(report.headline)
    assert row is not None
    assert row.change is None
    assert row.reason == "other versions of the metric: version 1 before, version 2 after"
    assert None not in (row.before.value, row.after.value)
    assert report.headline is not None
    assert all(each.moved is None for each in report.headline.by_workflow)
    verdict = wording.verdict(report)
    assert verdict.tone == "quiet"
    assert "no comparison with the 24 hours before: other versions of the metric" in verdict.detail
    assert "Broken line" not in Parsed(render_html(report)).text


def test_a_new_version_is_no_onset_and_no_recent_change(path: Path) -> None:
    """Though the scores rise with it; a note says that the estimate mixes both."""
    report = report_of(path, DAY / 4)
    assert (report.recent, report.onset) == (None, None)
    [note] = [each for each in report.notes if each.startswith("hallucination by judge@2")]
    assert "was scored by versions 1 and 2 of the metric" in note
    assert "Worse since" not in render_markdown(report)


def test_scores_of_one_version_are_compared(path: Path) -> None:
    """Whatever that version is."""
    report = report_of(path, 3 * DAY, after=0.1)
    row = report.compared(report.headline)
    assert row is not None
    assert row.change is not None
    assert not any("versions" in note for note in report.notes)


def test_an_older_version_in_the_file_does_not_matter(path: Path) -> None:
    """Where none of the calls that are looked at was scored by it."""
    rng = random.Random(9)
    fill(path, [made(NOW - 9 * DAY + 60.0 * number, Simulated(0.05, 1.0), rng) for number in range(50)])
    report = report_of(path, 3 * DAY, after=0.1)
    row = report.compared(report.headline)
    assert row is not None
    assert row.change is not None


def test_the_reason_tells_no_calls_from_calls_that_were_not_judged(path: Path) -> None:
    """Before or after. A release without calls in the time of the report is no fault of the evaluator."""
    report_of(path, 0.0)
    with closing(HistoryReader(str(path))) as reader:
        columns = reader.columns(0.0, NOW)
    series = next(each for each in score_series(columns) if each.evaluator == "judge@2")
    none, every = np.zeros(len(columns), dtype=bool), np.ones(len(columns), dtype=bool)
    unjudged = every.copy()
    unjudged[series.judged_calls()] = False
    assert unjudged.any()
    assert why_not_comparable(series, unjudged, every) == "nothing was judged by judge@2 before"
    assert why_not_comparable(series, every, unjudged) == "nothing was judged by judge@2 after"
    assert why_not_comparable(series, none, every) == "there are no calls before"
    assert why_not_comparable(series, every, none) == "there are no calls after"
    assert why_not_comparable(series, every, every) == ""
