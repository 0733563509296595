"""Alerts in the report and on the pages: one of several processes is one, and it is over where it is over in all."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ragtrace.core.alert_incident import AlertIncident
from ragtrace.history.schema import history_file
from ragtrace.report.analysis import build_report
from ragtrace.report.charts import timeline_chart
from ragtrace.report.console import render_terminal
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period, Report, to_json
from tests.support.browser import Parsed
from tests.support.history import Simulated, fill, made

NOW: Final = 1_800_000_000.0
DAY: Final = 86_400.0
BEGAN: Final = NOW - 4 * 3600.0
HOUR: Final = 3600.0
OVER: Final = AlertIncident(
    "i1", "k1", "too <many>", "hallucination", "spiking", "above", 0.05, False, "support", None, "1.4.0", "judge@2",
    BEGAN, BEGAN + HOUR, BEGAN + HOUR, 40, 0.31, 0.2, 0.45, 0.02, False,
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def report_with(path: Path, *incidents: AlertIncident, calls: int = 200, **filters: str) -> Report:
    rng = random.Random(5)
    fill(path, [made(NOW - DAY + DAY * number / calls, Simulated(0.1, 1.0), rng) for number in range(calls)])
    fill(path, incidents)
    return build_report(str(path), Period(NOW - DAY, NOW), made_at=NOW, **filters)


def test_incidents_that_overlap_are_one_alert(path: Path) -> None:
    """From the first beginning to the last end, with the figures of the process that saw the most calls."""
    later = replace(
        OVER, id="i2", since=BEGAN + 600.0, seen=BEGAN + 2 * HOUR, ended=BEGAN + 2 * HOUR, calls=90, value=0.4
    )
    [alert] = report_with(path, OVER, later).alerts
    assert (alert.since, alert.ended, alert.processes) == (BEGAN, BEGAN + 2 * HOUR, 2)
    assert (alert.calls, alert.value) == (90, 0.4)


def test_an_alert_is_over_where_it_is_over_in_every_process(path: Path) -> None:
    """One that lasts in another process, or was not over when that was killed, is not over."""
    lasting = replace(OVER, id="i2", since=BEGAN + 600.0, seen=BEGAN + 900.0, ended=None)
    [alert] = report_with(path, OVER, lasting).alerts
    assert (alert.ended, alert.last_seen) == (None, BEGAN + HOUR)


def test_the_same_problem_again_is_another_alert(path: Path) -> None:
    """The latest comes first; another problem is another alert at the same time, too."""
    again = replace(OVER, id="i2", since=BEGAN + 2 * HOUR, seen=BEGAN + 3 * HOUR, ended=BEGAN + 3 * HOUR)
    other = replace(OVER, id="i3", key="k3", problem="no_data", since=BEGAN + 60.0, calls=0, value=None)
    found = report_with(path, OVER, again, other).alerts
    assert [(each.problem, each.since) for each in found] == [
        ("spiking", BEGAN + 2 * HOUR), ("no_data", BEGAN + 60.0), ("spiking", BEGAN)
    ]  # fmt: skip


def test_alerts_of_another_time_or_workflow_are_left_out(path: Path) -> None:
    """Those on all workflows stay."""
    early = replace(OVER, id="i2", key="k2", since=NOW - 3 * DAY, seen=NOW - 2 * DAY, ended=NOW - 2 * DAY)
    everywhere = replace(OVER, id="i3", key="k3", workflow=None)
    sales = replace(OVER, id="i4", key="k4", workflow="sales")
    found = report_with(path, OVER, early, everywhere, sales, workflow="support").alerts
    assert sorted(str(each.workflow) for each in found) == ["None", "support"]


def test_every_form_lists_the_alerts(path: Path) -> None:
    """With beginning, end, what was seen, and in the chart as bars."""
    lasting = replace(OVER, id="i2", key="k2", alert="fails", problem="judge_failing", ended=None, calls=0, value=None)
    report = report_with(path, OVER, lasting)
    markdown = render_markdown(report).replace("\\", "").replace("&lt;", "<").replace("&gt;", ">")
    for text in (markdown, Parsed(render_html(report)).text):
        shown = " ".join(text.split())
        assert "too <many>" in shown
        assert "hallucination is above 0.05 in workflow support" in shown
        assert "mean 0.31 (0.2 to 0.45) of 40 calls, 0.02 before" in shown
        assert "no, last seen 2027-01-15 05:00 UTC" in shown
    assert "Alerts" in render_terminal(report)
    assert {each["name"] for each in json.loads(to_json(report))["alerts"]} == {"too <many>", "fails"}
    assert report.headline is not None
    chart = timeline_chart(report.headline, None, (), alerts=report.alerts)
    assert chart is not None
    paths = dict(chart.paths)
    assert paths["alert"].count("M") == paths["alert-began"].count("M") == chart.alerts == 2


def test_without_alerts_nothing_is_said_of_them(path: Path) -> None:
    """As in a history of an older release."""
    report = report_with(path)
    assert report.alerts == ()
    assert "Alert" not in render_markdown(report)
    page = render_html(report)
    assert "Alerts" not in page
    assert 'class="alert' not in page


def test_a_history_without_calls_has_a_report(path: Path) -> None:
    """Also with an alert that tells of missing scores."""
    history_file(str(path)).create()
    [alert] = report_with(path, replace(OVER, problem="no_data"), calls=0).alerts
    assert alert.problem == "no_data"
