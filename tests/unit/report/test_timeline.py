"""The line over time: by call where the time says nothing, and of a decision judge's scores by their median."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from ragtrace.history.writing import QueuedCall
from ragtrace.report.analysis import build_report
from ragtrace.report.charts import HEIGHT, CallAxis, TimelineChart, timeline_chart
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period, Report
from tests.support.browser import Parsed
from tests.support.decisions import stored_decisions
from tests.support.history import SOURCE, Simulated, fill, made
from tests.unit.report.test_alert_history import OVER

NOW: Final = 1_800_000_000.0
HOUR: Final = 3600.0
BEGAN: Final = NOW - HOUR / 2
CALLS: Final = 400


def report_on(path: Path, hours: float = 24.0) -> Report:
    return build_report(str(path), Period(NOW - hours * HOUR, NOW), made_at=NOW, compare="none")


def chart_of(report: Report) -> TimelineChart:
    assert report.headline is not None
    chart = timeline_chart(report.headline, None, report.rollouts, report.onset, report.alerts)
    assert chart is not None
    return chart


def demo(path: Path, seconds: float = 2.0, probability: float = 1.0) -> Path:
    """Calls within *seconds*, half of whose answers are bad from a new release on: the last 100 of 400.

    Most of the time lies before the first and after the last of these.
    """
    rng = random.Random(3)
    for release, first, last, bad in (("1", 0, 300, 0.02), ("2", 300, CALLS, 0.5)):
        calls: list[QueuedCall] = []
        for number in range(first, last):
            at = BEGAN + seconds * (0.1 if number < 300 else 0.9) * number / CALLS
            calls.append(made(at, Simulated(bad, probability), rng))
        fill(path, calls, replace(SOURCE, release=release))
    return path


@pytest.mark.parametrize("hours", [0.51, 24.0])
def test_a_demo_of_two_seconds_has_a_picture(tmp_path: Path, hours: float) -> None:
    """Whatever time is looked at: a point for every so many calls, each of which counts once."""
    report = report_on(demo(tmp_path / "history.db"), hours)
    item = report.headline
    assert item is not None
    assert 8 <= len(item.timeline) <= 48
    assert sum(point.judged for point in item.timeline) == item.judged
    assert sum(point.estimate.n for point in item.timeline) == CALLS
    numbers = [point.calls for point in item.timeline]
    assert [each[0] for each in numbers if each] == [1, *(each[1] + 1 for each in numbers[:-1] if each)]
    assert numbers[-1] is not None
    assert numbers[-1][1] == CALLS
    chart = chart_of(report)
    assert {"line", "band", "dots"} <= {kind for kind, _ in chart.paths}
    assert chart.ticks == (("call 100", 25.0), ("200", 50.0), ("300", 75.0), ("400", 100.0))
    assert chart.parts[0][0] == 0.0
    assert chart.parts[-1][1] == 100.0


def test_times_stand_between_the_calls_of_then(tmp_path: Path) -> None:
    """The release, the onset and an alert are at the share of the calls before them, and not of the time."""
    path = demo(tmp_path / "history.db")
    first = BEGAN + 2.0 * 0.9 * 300 / CALLS  # of the new release
    fill(path, [replace(OVER, since=first, seen=NOW, ended=None)])
    report = report_on(path)
    chart = chart_of(report)
    assert isinstance(chart.times, CallAxis)
    assert [chart.times.position(each.at) for each in chart.rollouts] == [75.0]
    assert chart.onset is not None
    assert abs(chart.times.position(chart.onset.at) - 75.0) < 3.0
    assert dict(chart.paths)["alert"] == "M750.0 3H1000.0"
    assert chart.times.position(BEGAN - 1.0) == 0.0
    assert chart.times.position(NOW) == 100.0


def test_the_line_by_call_says_that_it_is(tmp_path: Path) -> None:
    """In the legend, to a screen reader, and in Markdown."""
    report = report_on(demo(tmp_path / "history.db"))
    page = render_html(report)
    assert "Line: estimate call by call, as the scored calls fall into one short part of this time." in page
    assert re.search(r'aria-label="[^"]* call by call, \d+ points', page)
    assert "call by call" in render_markdown(report)
    assert "from call 1 to call 400" in render_markdown(report)
    assert "over time" not in render_markdown(report)


def test_with_a_time_the_line_is_over_time(tmp_path: Path) -> None:
    """As soon as scores are in two parts of it; no call is then numbered."""
    report = report_on(demo(tmp_path / "history.db", seconds=HOUR / 2), hours=2.0)
    assert report.headline is not None
    assert {point.calls for point in report.headline.timeline} == {None}
    assert not chart_of(report).is_by_call


def test_few_scores_have_no_picture(tmp_path: Path) -> None:
    """Points of one or two scores each would be noise; the page says so."""
    path, rng = tmp_path / "history.db", random.Random(1)
    fill(path, [made(BEGAN + number / 10, Simulated(0.5, 1.0), rng) for number in range(9)])
    assert "Too little was judged for a picture." in Parsed(render_html(report_on(path))).text


def test_a_part_without_a_score_is_a_gap(tmp_path: Path) -> None:
    """Where the judge was not asked, no level is made up."""
    path, rng = tmp_path / "history.db", random.Random(1)
    asked = [0.0 if 100 <= number < 200 else 1.0 for number in range(300)]
    calls = [made(BEGAN + number / 100, Simulated(0.2, share), rng) for number, share in enumerate(asked)]
    fill(path, calls, replace(SOURCE, screened=()))
    item = report_on(path).headline
    assert item is not None
    assert [point.value is None for point in item.timeline if point.judged == 0] != []
    assert all((point.value is None) == (point.judged == 0) for point in item.timeline)
    assert dict(chart_of(report_on(path)).paths)["line"].count("M") == 2


# --- the scores of a decision judge -----------------------------------------------------------------------------------


def decided(path: Path, *probabilities: float, every: float = 300.0, each: int = 12) -> Path:
    """Calls every *every* seconds, *each* of them with every probability of support in turn."""
    for number, probability in enumerate(probabilities):
        begin = BEGAN - (len(probabilities) - number) * each * every
        stored_decisions(path, [begin + every * call for call in range(each)], probability=probability)
    return path


@pytest.mark.parametrize("every", [300.0, 0.01])
def test_a_decision_judge_has_a_line_of_its_medians(tmp_path: Path, every: float) -> None:
    """Each is a score of the calls of its time; the axis has numbers, and no percentage."""
    report = report_on(decided(tmp_path / "history.db", 0.9, 0.3, every=every))
    item = report.headline
    assert item is not None
    assert item.is_raw
    levels = [point.median for point in item.timeline if point.median is not None]
    assert {round(levels[0], 3), round(levels[-1], 3)} == {0.1, 0.7}
    assert all(point.estimate.value is None for point in item.timeline)
    chart = chart_of(report)
    assert {"line", "band"} <= {kind for kind, _ in chart.paths}
    page = render_html(report)
    labels = Parsed(page.partition('<div class="levels">')[2].partition("</div>")[0]).text.split()
    assert labels
    assert all(0.0 <= float(label) <= 1.0 for label in labels)
    assert "the last at median 0.7" in page
    assert re.search(r"Hallucinated score (over time|call by call)", render_markdown(report))


def test_the_alert_of_a_decision_judge_is_on_its_line(tmp_path: Path) -> None:
    """And in the table below it, as the picture of what is known without labels."""
    path = decided(tmp_path / "history.db", 0.9, 0.3)
    fill(path, [replace(OVER, metric="hallucinated", since=BEGAN - HOUR, seen=BEGAN, ended=None, is_raw=True)])
    chart = chart_of(report_on(path))
    assert {"alert", "alert-began"} <= {kind for kind, _ in chart.paths}


def test_medians_count_each_score_for_the_calls_that_it_stands_for(tmp_path: Path) -> None:
    """As quantiles of the whole time do."""
    path = decided(tmp_path / "history.db", 0.9, 0.8, 0.3, every=HOUR)
    item = report_on(path, hours=72.0).headline
    assert item is not None
    assert item.box is not None
    assert item.box.median == pytest.approx(median([0.1] * 12 + [0.2] * 12 + [0.7] * 12))
    for point in item.timeline:
        if point.middle is not None and point.median is not None:
            assert point.middle[0] <= point.median <= point.middle[1]


def test_scores_that_hardly_differ_do_not_look_as_if(tmp_path: Path) -> None:
    """The axis of raw scores has no lines closer than 0.05."""
    chart = chart_of(report_on(decided(tmp_path / "history.db", 0.901, 0.9)))
    assert all(b - a > 0.049 for a, b in zip(chart.values.lines, chart.values.lines[1:], strict=False))
    assert 0.0 <= chart.values.y(0.1) <= HEIGHT


def test_the_time_before_is_a_broken_line(tmp_path: Path) -> None:
    """At the median of then, which the legend names."""
    path = decided(tmp_path / "history.db", 0.8, every=60.0)
    stored_decisions(path, [BEGAN - 26 * HOUR + number for number in range(30)], probability=0.9)
    report = build_report(str(path), Period(NOW - 24 * HOUR, NOW), made_at=NOW)
    assert "before" in {kind for kind, _ in chart_of(report).paths}
    assert "Broken line: the 24 hours before, median 0.1." in render_html(report)
