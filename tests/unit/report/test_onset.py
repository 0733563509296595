"""Since when the rate is worse, and in which group of calls: in the report and in every form of it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ragtrace.core.tags import TagValue
from ragtrace.estimates import missing_estimate
from ragtrace.report import wording
from ragtrace.report.analysis import build_report
from ragtrace.report.charts import timeline_chart
from ragtrace.report.console import render_terminal
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import ChangedGroup, Onset, Period, Report, ReportedAlert, Rollout, to_json
from tests.support.browser import Parsed
from tests.support.decisions import stored_decisions
from tests.support.history import SOURCE, Simulated, fill, made

NOW: Final = 1_800_000_000.0
DAY: Final = 86_400.0
CHANGED: Final = NOW - DAY / 4
CALLS: Final = 3_600


def history(path: Path, rate: Callable[[float, str, str], float], new_release: float = NOW) -> Path:
    """Two days of calls of two workflows with two models, of which the judge sees a half."""
    rng = random.Random(11)
    for release, since, until in (("1", NOW - 2 * DAY, new_release), ("2", new_release, NOW)):
        calls = []
        for number in range(CALLS):
            at = NOW - 2 * DAY + 2 * DAY * (number + 0.5) / CALLS
            workflow, model = rng.choice(("support", "billing")), rng.choice(("small-1", "big-2"))
            call = made(at, Simulated(rate(at, workflow, model), 0.5, workflow, model), rng)
            if since <= at < until:
                calls.append(call)
        fill(path, calls, replace(SOURCE, release=release))
    return path


def report_on(path: Path, compare: str = "previous", days: float = 1.0) -> Report:
    return build_report(str(path), Period(NOW - days * DAY, NOW), compare=compare, made_at=NOW)


def onset_of(report: Report) -> Onset:
    assert report.onset is not None
    return report.onset


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workflow with one model becomes worse six hours ago."""
    path = tmp_path_factory.mktemp("worse") / "history.db"
    return history(path, lambda at, *of: 0.95 if of == ("billing", "small-1") and at >= CHANGED else 0.04)


def test_the_onset_lies_in_its_interval(worse: Path) -> None:
    """Of all calls and of those of the group, whose interval is the narrower one."""
    onset = onset_of(report_on(worse))
    assert onset.direction == "worse"
    group = onset.group
    assert group is not None
    for each in (onset, group):
        assert each.earliest <= each.at <= each.latest
        assert each.earliest <= CHANGED <= each.latest
    assert group.latest - group.earliest <= onset.latest - onset.earliest
    assert group.latest - group.earliest < DAY / 4


def test_the_group_is_named_by_workflow_and_model(worse: Path) -> None:
    """Neither alone is, as its other calls did not change."""
    group = onset_of(report_on(worse)).group
    assert group is not None
    assert group.names == (("workflow", "billing"), ("model", "small-1"))
    assert group.share > 0.6
    assert group.before is not None
    assert group.before.high is not None
    assert group.after.low is not None
    assert group.before.high < group.after.low


def test_every_form_says_since_when_and_where(worse: Path) -> None:
    """With the interval; the chart of the page shows it."""
    report = report_on(worse)
    onset, group = onset_of(report), onset_of(report).group
    assert group is not None
    since = f"Worse since {wording.format_time(onset.at)} (with 95% confidence between "
    there = f"comes from workflow billing with model small-1, worse there since {wording.format_time(group.at)}"
    markdown = render_markdown(report).replace("\\", "")
    for text in (render_terminal(report), Parsed(render_html(report)).text, markdown):
        shown = " ".join(text.split())
        assert since in shown
        assert there in shown
    assert json.loads(to_json(report))["onset"]["group"]["names"] == [["workflow", "billing"], ["model", "small-1"]]
    assert f"worse since {wording.format_time(onset.at)[11:]}" in Parsed(render_html(report)).text
    assert report.headline is not None
    chart = timeline_chart(report.headline, None, (), onset)
    assert chart is not None
    assert {"onset worse", "onset-band worse"} <= {kind for kind, _ in chart.paths}


def test_without_a_comparison_the_onset_alone_makes_bad_news(worse: Path) -> None:
    """Over all of the history, too, where nothing is compared."""
    report = report_on(worse, compare="none", days=2.0)
    assert onset_of(report).direction == "worse"
    assert wording.verdict(report).tone == "bad"


def test_an_onset_before_the_period_is_not_on_its_chart(worse: Path) -> None:
    """The time compared with is searched, too; the chart shows the period alone."""
    report = report_on(worse, days=0.2)
    onset = onset_of(report)
    assert onset.at < report.period.start
    assert report.headline is not None
    chart = timeline_chart(report.headline, None, (), onset)
    assert chart is not None
    assert chart.onset is None


def test_a_new_release_is_the_group_of_what_began_with_it(tmp_path: Path) -> None:
    """It has no calls before, so its own time is that of its first call."""
    path = history(tmp_path / "history.db", lambda at, *_: 0.4 if at >= CHANGED else 0.05, new_release=CHANGED)
    group = onset_of(report_on(path)).group
    assert group is not None
    assert group.names == (("release", "2"),)
    assert group.before is None
    assert abs(group.at - CHANGED) <= 2 * DAY / CALLS
    assert "whose first call was at" in wording.verdict(report_on(path)).since[1]


def test_a_change_everywhere_comes_from_no_single_group(tmp_path: Path) -> None:
    """Also where one workflow has more than half of the calls."""
    path = history(tmp_path / "history.db", lambda at, *_: 0.4 if at >= CHANGED else 0.05)
    assert onset_of(report_on(path)).group is None
    assert wording.verdict(report_on(path)).since[1].startswith("No single workflow, model or release")


def test_a_change_for_the_better_has_an_onset_too(tmp_path: Path) -> None:
    """And it is no bad news."""
    path = history(tmp_path / "history.db", lambda at, *_: 0.02 if at >= CHANGED else 0.4)
    report = report_on(path)
    assert onset_of(report).direction == "better"
    assert wording.verdict(report).tone != "bad"


def test_without_a_change_nothing_is_said(tmp_path: Path) -> None:
    """Neither in the verdict nor in the chart."""
    path = history(tmp_path / "history.db", lambda *_: 0.1)
    report = report_on(path)
    assert report.onset is None
    assert wording.verdict(report).since == ()
    assert " since " not in render_markdown(report)


def test_raw_probabilities_have_no_onset(tmp_path: Path) -> None:
    """Their mean is no rate that could be worse."""
    path = tmp_path / "history.db"
    stored_decisions(path, [NOW - DAY / 2 + 60 * number for number in range(40)])
    assert build_report(str(path), Period(NOW - DAY, NOW), made_at=NOW).onset is None


def test_the_legend_explains_only_what_the_picture_has(worse: Path) -> None:
    """The onset is said in words, too, where it was before the time of the picture; it has no line there then."""
    line = "Upright line in a band: since when it is worse"
    within, before = report_on(worse), report_on(worse, days=0.2)
    assert onset_of(before).at < before.period.start
    assert line in render_html(within)
    page = render_html(before)
    assert "Line: estimate over time" in page
    assert line not in page


def test_a_release_at_the_time_of_the_onset_is_said(tmp_path: Path, worse: Path) -> None:
    """It came with the change, whether it is its cause or not; a release of another time did not."""

    def rate(at: float, *of: str) -> float:
        return 0.9 if of == ("billing", "small-1") and at >= CHANGED else 0.04

    report = report_on(history(tmp_path / "at_once.db", rate, new_release=CHANGED))
    onset = onset_of(report)
    assert [each.release for each in onset.rollouts] == ["2"]
    assert onset.group is not None
    assert onset.group.earliest <= onset.rollouts[0].at <= onset.group.latest
    said = f"The first call of release 2 was at {wording.format_time(onset.rollouts[0].at)}"
    assert wording.verdict(report).since[-1] == f"{said}, when the change may have begun"
    assert said in " ".join(Parsed(render_html(report)).text.split())
    earlier = onset_of(report_on(history(tmp_path / "earlier.db", rate, new_release=NOW - DAY)))
    assert earlier.rollouts == ()
    assert onset_of(report_on(worse)).rollouts == ()


@pytest.mark.parametrize(
    ("earliest", "at", "latest", "said"),
    [
        (-130.0, 0.0, 65.0, "2025-11-28 12:00 UTC (with 95% confidence between 2025-11-28 11:57 and 12:01 UTC)"),
        (2.0, 8.0, 30.9, "2025-11-28 12:00:08 UTC (with 95% confidence between 2025-11-28 12:00:02 and 12:00:30 UTC)"),
        (
            0.25,
            0.5,
            0.75,
            "12:00:00.500 UTC (with 95% confidence between 2025-11-28 12:00:00.250 and 12:00:00.750 UTC)",
        ),
    ],
)
def test_an_onset_is_as_precise_as_its_interval(earliest: float, at: float, latest: float, said: str) -> None:
    """Times of one minute, which to the minute are all the same, are written to the second; the group's times too."""
    noon = 1_764_331_200.0
    before, after = missing_estimate("too_few", "tuned", "rate"), missing_estimate("too_few", "tuned", "rate")
    times = (noon + at, noon + earliest, noon + latest)
    of_group = ChangedGroup((("model", "small-1"),), 0.7, *times, before, after)
    onset = Onset(*times, "worse", before, after, of_group, (Rollout(noon + at, "2"),))
    since, where, release = wording.onset_sentences(onset)
    assert f"{said}: - before" in since
    assert f"{said}: - before" in where
    written = said.partition(" UTC")[0]
    assert f"{written} UTC, when the change may have begun" in release
    assert wording.onset_time(onset).endswith(f"{written} UTC")
    new = ChangedGroup((("model", "small-1"),), 0.7, noon + at, noon + at, noon + at, None, after)  # no earlier calls
    assert f"{written} UTC: - there" in wording.onset_sentences(replace(onset, group=new))[1]


def test_times_of_a_short_period_or_alert_differ() -> None:
    """A demo lasts two seconds, in which its alert began and was seen last."""
    assert wording.format_period(1.25, 3.5) == "1970-01-01 00:00:01 to 00:00:03 UTC"
    assert wording.format_period(1.25, 90.0) == "1970-01-01 00:00 to 00:01 UTC"
    alert = ReportedAlert(
        "a", "hallucinated", "judge@1", "spiking", "above", 0.1, False, None, None, 1.25, 3.5, None, 1, 9, 0.3, 0.2,
        0.4, None, False,
    )  # fmt: skip
    assert wording.alert_begin(alert) == "1970-01-01 00:00:01 UTC"
    assert wording.alert_end(alert) == "no, last seen 1970-01-01 00:00:03 UTC"


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both workflows are worse for six hours, which ended eight hours ago."""
    path = tmp_path_factory.mktemp("over") / "history.db"
    return history(path, lambda at, *_: 0.6 if NOW - 14 * 3600 <= at < NOW - 8 * 3600 else 0.04)


def test_a_change_that_is_over_has_an_end(over: Path) -> None:
    """Nothing says that it lasts, and the page is not red."""
    report = report_on(over)
    assert report.onset is None
    assert report.ended is not None
    assert report.ended.end is not None
    assert report.ended.earliest <= NOW - 14 * 3600 <= report.ended.latest
    assert report.ended.end.earliest <= NOW - 8 * 3600 <= report.ended.end.latest
    verdict = wording.verdict(report)
    assert (verdict.title, verdict.tone) == ("Unsupported statements went up for a time, and came back", "quiet")
    began, end = wording.format_time(report.ended.at), wording.format_time(report.ended.end.at)
    assert verdict.since[0].startswith(f"Was worse from {began} (with 95% confidence between ")
    assert f" to {end} (with 95% confidence between " in verdict.since[0]
    assert ", and is as before since: " in verdict.since[0]


def test_every_form_shows_when_a_change_was_over(over: Path) -> None:
    """In words, and as two lines in bands on the chart."""
    report = report_on(over)
    assert report.ended is not None
    label = wording.onset_label(report.ended)
    assert label.startswith("worse from ")
    page = render_html(report)
    assert label in Parsed(page).text
    assert "Upright line in a band: from when to when it was worse" in page
    assert page.count('class="onset worse"') == 2
    for text in (render_terminal(report), render_markdown(report)):
        assert "Was worse from" in text
    assert json.loads(to_json(report))["ended"]["end"]["at"] == report.ended.end.at  # type: ignore[union-attr]


def test_a_page_says_that_the_rhythm_is_not_known_yet(tmp_path: Path) -> None:
    """Of a history of a day; with two days, the same hours of the day before are known."""
    rng = random.Random(12)
    calls = [
        made(NOW - DAY + DAY * number / 900, Simulated(0.6 if number > 600 else 0.04, 0.5), rng)
        for number in range(900)
    ]
    fill(tmp_path / "history.db", calls)
    report = report_on(tmp_path / "history.db")
    assert report.rhythm == ""
    assert onset_of(report).direction == "worse"
    assert "nobody can tell whether this is usual" in wording.verdict(report).since[-1]
    assert report_on(history(tmp_path / "two.db", lambda *_: 0.1)).rhythm == "day"


def test_the_same_hours_of_earlier_days_are_no_change(tmp_path: Path) -> None:
    """Nights are worse by far, in each of six days: a look in the morning finds nothing."""
    rng, calls = random.Random(13), []
    for number in range(6_000):
        at = NOW - 6 * DAY + 6 * DAY * number / 6_000
        rate = 0.3 + 0.25 * math.sin(2 * math.pi * at / DAY)
        calls.append(made(at, Simulated(rate, 0.5), rng))
    fill(tmp_path / "history.db", calls)
    for hours in (0, 6, 12, 18):
        now = NOW - hours * 3600
        report = build_report(str(tmp_path / "history.db"), Period(now - DAY, now), made_at=now)
        assert (report.rhythm, report.onset, report.ended) == ("day", None, None)
        assert wording.verdict(report).tone == "quiet"
    half = build_report(str(tmp_path / "history.db"), Period(NOW - DAY / 2, NOW), made_at=NOW)
    row = half.compared(half.headline)
    assert row is not None
    assert row.change is not None
    assert abs(row.change.value) > 0.1
    assert row.change.usual == pytest.approx(row.change.value, abs=0.08)
    assert row.change.direction == "unclear"
    assert "are usual at these times of the day and the week" in wording.verdict(half).detail


# --- tags ------------------------------------------------------------------------------------------------------------


def tagged_history(
    path: Path, rate: Callable[[float, Mapping[str, TagValue]], float], tags: Mapping[str, Sequence[TagValue]],
    calls: int, seed: int = 1,
) -> Path:  # fmt: skip
    """Two days of calls with one of the values of each tag, of which the judge sees a half."""
    rng, made_calls = random.Random(seed), []
    for number in range(calls):
        at = NOW - 2 * DAY + 2 * DAY * (number + 0.5) / calls
        drawn = {name: rng.choice(values) for name, values in tags.items()}
        workflow, model = rng.choice(("support", "billing")), rng.choice(("small-1", "big-2"))
        one = made(at, Simulated(rate(at, drawn), 0.5, workflow, model), rng)
        made_calls.append(replace(one, call=replace(one.call, tags=drawn)))
    fill(path, made_calls, texts=False)
    return path


TENANTS: Final = [f"t{number}" for number in range(20)]


def test_one_tenant_of_twenty_is_the_group_that_became_worse(tmp_path: Path) -> None:
    """With its own time; every form names it, beside a tag that means nothing."""
    path = tagged_history(
        tmp_path / "history.db",
        lambda at, tags: 0.95 if tags["tenant"] == "t7" and at >= NOW - DAY else 0.04,
        {"tenant": TENANTS, "paying": [True, False]},
        calls=6_000,
    )
    report = report_on(path)
    group = onset_of(report).group
    assert group is not None
    assert group.names == (("tag", "tenant=t7"),)
    assert group.earliest <= NOW - DAY <= group.latest
    assert group.share > 0.6
    assert group.before is not None
    assert (group.before.high or 1.0) < (group.after.low or 0.0)
    for text in (render_terminal(report), Parsed(render_html(report)).text, render_markdown(report).replace("\\", "")):
        assert "comes from tag tenant=t7, worse there since" in " ".join(text.split())


def test_a_change_everywhere_comes_from_no_tag(tmp_path: Path) -> None:
    """However many tags there are."""
    tags: dict[str, Sequence[TagValue]] = {"tenant": TENANTS, **{f"b{number}": [0, 1] for number in range(8)}}
    path = tagged_history(tmp_path / "history.db", lambda at, _: 0.4 if at >= CHANGED else 0.05, tags, calls=3_600)
    assert onset_of(report_on(path)).group is None
