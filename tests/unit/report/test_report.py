"""The report on a local history: its figures are those of the estimates, and every form of it is safe to open."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Final, get_args

import pytest
from markdown_it import MarkdownIt
from opentelemetry.trace import SpanContext

import ragtrace
from ragtrace.cli import main
from ragtrace.core.errors import SettingsError
from ragtrace.core.feedback import Feedback
from ragtrace.core.types import Result, Score, Unscored
from ragtrace.estimates import Moments, difference, estimate_mean, judged_moments, unjudged_moments
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import QueuedCall
from ragtrace.report import html_page, wording
from ragtrace.report.analysis import Details, build_report
from ragtrace.report.console import render_terminal
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import (
    CorrectedRate,
    EvaluatorCost,
    Period,
    Report,
    divide_period,
    parse_period,
    parse_time,
    to_json,
)
from ragtrace.report.wording import merge_ranges
from ragtrace.testing import FakeJudge
from tests.support import hostile
from tests.support.browser import Parsed
from tests.support.decisions import stored_decisions
from tests.support.history import BAD, SOURCE, Simulated, fill, made
from tests.support.watched import GOOD, HALF, ask, watch

NOW = 1_800_000_000.0
DAY = 86_400.0
TODAY = Period(NOW - DAY, NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def calls(count: int, start: float, kind: Simulated, seed: int = 1) -> list[QueuedCall]:
    """Evenly spread over a day."""
    rng = random.Random(seed)
    return [made(start + DAY * (number + 0.5) / count, kind, rng) for number in range(count)]


FILES: Final[dict[tuple[float, float, int], bytes]] = {}
"""History files of `regression`: making one takes longer than most tests that read it."""


def regression(path: Path, before: float = 0.02, after: float = 0.25, count: int = 600) -> Report:
    """Two days; in the second the rate is another."""
    of = before, after, count
    if of in FILES:
        path.write_bytes(FILES[of])
    else:
        first = calls(count, NOW - 2 * DAY, Simulated(before, 0.5))
        fill(path, first + calls(count, NOW - DAY, Simulated(after, 0.5), 2))
        FILES[of] = path.read_bytes()
    return build_report(str(path), TODAY, made_at=NOW)


def pooled(offered: list[QueuedCall], metric: str = "hallucination") -> Moments:
    """The moments as the running process would have summed them."""
    total = Moments()
    for each in offered:
        screen = each.evaluations[0].results[metric]
        assert isinstance(screen, Score)
        total += unjudged_moments(screen.value)
        for evaluation in each.evaluations[1:]:
            result = evaluation.results[metric]
            assert isinstance(result, Score)
            total += judged_moments(result.value, evaluation.probability, screen.value)
    return total


# --- figures ---------------------------------------------------------------------------------------------------------


def test_estimate_equals_that_of_the_pooled_calls(path: Path) -> None:
    """The report's estimate and interval equal those from the sums of the running process."""
    offered = calls(500, NOW - DAY, Simulated(0.1, 0.3))
    fill(path, offered)
    found = build_report(str(path), TODAY).headline
    expected = estimate_mean(pooled(offered))
    assert found is not None
    assert found.overall is not None
    assert (found.metric, found.evaluator, found.overall.n) == ("hallucination", "judge@2", 500)
    ours = (found.overall.value, found.overall.low, found.overall.high)
    assert ours == pytest.approx((expected.value, expected.low, expected.high), rel=1e-9)


def test_timeline_and_breakdowns_add_up(path: Path) -> None:
    """Every call belongs to exactly one point of the timeline, one workflow and one model."""
    kinds = [Simulated(workflow=w, model=m) for w in ("support", "search") for m in ("small", "large")]
    fill(path, [call for seed, kind in enumerate(kinds) for call in calls(100, NOW - DAY, kind, seed)])
    item = build_report(str(path), TODAY).headline
    assert item is not None
    for parts in (item.by_workflow, item.by_model):
        assert [(part.calls, part.estimate.n) for part in parts] == [(200, 200), (200, 200)]
        assert sum(part.judged for part in parts) == item.judged
    assert sum(point.estimate.n for point in item.timeline) == 400
    assert sum(point.judged for point in item.timeline) == item.judged


def test_rise_is_reported_with_its_interval(path: Path) -> None:
    """The verdict names the rise, and its interval is that of the difference of the two estimates."""
    found = regression(path)
    row = found.compared(found.headline)
    assert row is not None
    assert row.change is not None
    expected = difference(row.after, row.before)
    assert (row.change.value, row.change.low, row.change.high) == expected
    assert row.change.direction == "worse"
    said = wording.verdict(found)
    assert said.title.startswith("Unsupported statements went up by ")
    assert said.tone == "bad"


def test_without_earlier_calls_there_are_no_columns_of_changes(path: Path) -> None:
    """Where nothing was judged before, the tables by workflow and model have the estimates of this time alone."""
    fill(path, calls(60, NOW - DAY, Simulated(0.2, 0.5)))
    text = render_markdown(build_report(str(path), TODAY, made_at=NOW))
    assert "| Workflow | Estimate \\(95% interval\\) | Calls | Scored |" in text
    assert "Before" not in text


def test_unclear_change_is_called_chance(path: Path) -> None:
    """A difference whose interval contains 0 is reported as no clear change."""
    found = regression(path, before=0.1, after=0.1, count=200)
    said = wording.verdict(found)
    assert (said.title, said.tone) == ("No clear change in unsupported statements", "quiet")
    assert "may be chance" in said.detail


def test_improvement_is_good_whatever_its_sign(path: Path) -> None:
    """Less hallucination and more faithfulness both count as better."""
    found = regression(path, before=0.3, after=0.02)
    assert found.comparison is not None
    assert {row.metric: row.change and row.change.direction for row in found.comparison.rows} == {
        "hallucination": "better",
        "faithfulness": "better",
    }
    assert wording.verdict(found).tone == "good"


def test_recent_rise_is_reported(path: Path) -> None:
    """A rise in the newest quarter is reported where the mean over the whole period hides it."""
    steady = calls(1_200, NOW - 2 * DAY, Simulated(0.05, 0.5)) + calls(900, NOW - DAY, Simulated(0.0, 0.5), 2)[:675]
    risen = [call for call in calls(1_200, NOW - DAY, Simulated(0.35, 0.5), 3) if call.at >= NOW - DAY / 4]
    fill(path, steady + risen)
    found = build_report(str(path), TODAY)
    assert found.recent is not None
    assert found.recent.since == NOW - DAY / 4
    row = found.compared(found.headline)
    assert row is not None
    assert row.change is not None
    assert (row.change.direction, found.recent.change.direction) == ("unclear", "worse")
    assert wording.verdict(found).title == "Unsupported statements went up within this time"


def _of_two_workflows(path: Path) -> Report:
    """Of three times as many calls of one workflow than of the other, those of the rare one went wrong."""
    kinds = ((NOW - 2 * DAY, 0.1, 0.1), (NOW - DAY, 0.1, 0.6))
    for seed, (start, often, rarely) in enumerate(kinds):
        fill(path, calls(600, start, Simulated(often, 0.5, "often"), seed))
        fill(path, calls(200, start, Simulated(rarely, 0.5, "rarely"), seed + 10))
    return build_report(str(path), TODAY, made_at=NOW)


def test_breakdown_row_has_its_change(path: Path) -> None:
    """A workflow's row has the estimates of its own calls before and after, and their difference."""
    found = _of_two_workflows(path)
    assert found.headline is not None
    moved = {part.name: part.moved for part in found.headline.by_workflow}["rarely"]
    assert moved is not None
    assert moved.change is not None
    assert (moved.before.n, moved.after.n) == (200, 200)
    assert (moved.change.value, moved.change.low, moved.change.high) == difference(moved.after, moved.before)
    assert moved.change.direction == "worse"


def test_breakdown_starts_with_the_largest_contribution(path: Path) -> None:
    """The workflow that contributes most to the change comes first, and the shares add up to 1."""
    found = _of_two_workflows(path)
    assert found.headline is not None
    parts = found.headline.by_workflow
    assert [part.name for part in parts] == ["rarely", "often"]
    shares = [part.moved.share for part in parts if part.moved is not None and part.moved.share is not None]
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] > 0.8


def test_new_workflow_has_no_change(path: Path) -> None:
    """A workflow without calls in the period before has no change."""
    fill(path, calls(300, NOW - 2 * DAY, Simulated(0.1, 0.5, "old"), 1))
    fill(path, calls(300, NOW - DAY, Simulated(0.1, 0.5, "new"), 2))
    found = build_report(str(path), TODAY)
    assert found.headline is not None
    (part,) = found.headline.by_workflow
    assert part.moved is not None
    assert (part.moved.change, wording.format_change(part.moved.change)) == (None, "not known")


def test_compared_models_have_no_change_by_model(path: Path) -> None:
    """Where two models are compared, the breakdown by model has no change."""
    fill(path, calls(200, NOW - DAY, Simulated(model="a")) + calls(200, NOW - DAY, Simulated(model="b"), 2))
    found = build_report(str(path), TODAY, compare="a:b").headline
    assert found is not None
    assert [part.moved for part in found.by_model] == [None, None]


def test_last_hour_is_reported(path: Path) -> None:
    """The last hour has an estimate with its number of scored calls, and is left out if it has no call."""
    steady = [call for call in calls(480, NOW - DAY, Simulated(0.3, 1.0)) if call.at < NOW - 3600]
    over = [call for call in calls(480, NOW - DAY, Simulated(0.0, 1.0), 2) if call.at >= NOW - 3600]
    fill(path, steady)
    assert build_report(str(path), TODAY).latest is None
    fill(path, over)
    found = build_report(str(path), TODAY, made_at=NOW)
    assert found.latest is not None
    assert (found.latest.judged, found.latest.estimate.value) == (20, 0.0)
    assert wording.latest_label(found) == "Now: the last hour"
    assert all("Now: the last hour" in text for text in (render_html(found), render_terminal(found)))
    moment = replace(found.latest, period=Period(NOW - 0.2, NOW))
    assert wording.latest_label(replace(found, latest=moment)) == "Now: the last second"


def test_comparison_names_releases_and_judge(path: Path) -> None:
    """The report names the releases on both sides of a comparison and the judge that scored them."""
    for start, release in ((NOW - 2 * DAY, "1.3"), (NOW - DAY, "1.4")):
        source = CallOrigin("bot", release, SOURCE.screen, SOURCE.screened, SOURCE.judge, SOURCE.judged)
        fill(path, calls(300, start, Simulated(0.1, 0.5), int(start) % 7), source)
    found = build_report(str(path), TODAY)
    assert found.headline is not None
    assert wording.comparison_basis(found, found.headline) == "release 1.3 before, 1.4 after; both scored by judge@2"
    assert "share of the statements in an answer that no retrieved chunk supports" in render_html(found)


def test_too_many_workflows_are_counted(path: Path) -> None:
    """Workflows that are not shown are counted, and their calls are part of the overall estimate."""
    rng = random.Random(1)
    fill(path, [made(NOW - 1 - n, Simulated(workflow=f"call {n}"), rng) for n in range(700)])
    found = build_report(str(path), TODAY)
    assert found.headline is not None
    assert found.headline.overall is not None
    assert (found.headline.overall.n, len(found.headline.by_workflow)) == (700, 500)
    assert any("700 workflows" in note for note in found.notes)
    assert "488 more, with 488 calls" in render_html(found)


def test_report_agrees_with_the_running_process(path: Path) -> None:
    """The report's estimates equal those of `ragtrace.estimate` in the process that scored the calls."""
    judgements = [HALF, GOOD, GOOD, HALF, GOOD, GOOD, GOOD]
    watch(
        store=path,
        screen=FakeJudge(*judgements, name="screen"),
        judge=FakeJudge(*reversed(judgements), name="judge"),
        sampling=ragtrace.Sampling(rate=0.3, suspicious_rate=0.6),
        metrics=["hallucination", "faithfulness", "consistency"],
    )
    for number in range(120):
        ask(f"question {number}?")
    assert ragtrace.flush(timeout=20.0)
    now = time.time() + 1
    found = build_report(str(path), Period(now - 3600, now))
    estimated = {item.metric: item.overall for item in found.measured if item.overall is not None}
    assert set(estimated) == {"hallucination", "faithfulness", "consistency"}
    for metric, estimate in estimated.items():
        known = ragtrace.estimate(metric)
        assert estimate.n == known.n == 120
        assert [estimate.value, estimate.low, estimate.high, estimate.weight] == pytest.approx(
            [known.value, known.low, known.high, known.weight], rel=1e-9
        )


def test_two_releases_are_compared(path: Path) -> None:
    """`A:B` compares two values of service.version within the period."""
    for release, bad in (("1.4.0", 0.02), ("1:5", 0.3)):
        source = CallOrigin("bot", release, SOURCE.screen, SOURCE.screened, SOURCE.judge, SOURCE.judged)
        fill(path, calls(300, NOW - DAY, Simulated(bad, 0.5), int(bad * 100)), source)
    found = build_report(str(path), TODAY, compare="1.4.0:1:5")
    assert found.comparison is not None
    two = found.comparison
    assert (two.kind, two.before, two.after, two.calls_before, two.calls_after) == (
        "releases",
        "1.4.0",
        "1:5",
        300,
        300,
    )
    assert wording.verdict(found).tone == "bad"


def test_two_models_are_compared(path: Path) -> None:
    """`A:B` compares two models where no releases have these names."""
    fill(path, calls(200, NOW - DAY, Simulated(model="a:b")) + calls(200, NOW - DAY, Simulated(model="c"), 2))
    found = build_report(str(path), TODAY, compare="a:b:c")
    assert found.comparison is not None
    assert (found.comparison.kind, found.comparison.before, found.comparison.after) == ("models", "a:b", "c")


def test_unknown_comparison_names_what_can_be_compared(path: Path) -> None:
    """A name that does not exist is refused with the names that do."""
    fill(path, calls(5, NOW - DAY, Simulated()))
    with pytest.raises(SettingsError, match=r"1\.4\.0, small-1"):
        build_report(str(path), TODAY, compare="1.4:1.5")


def test_scores_of_two_judges_are_never_averaged(path: Path) -> None:
    """After a change of the judge there is no common mean and no difference to the period before."""
    fill(path, calls(200, NOW - 2 * DAY, Simulated()))
    other = [
        QueuedCall(call.call, tuple(_by_another(e) for e in call.evaluations), call.decision, call.at)
        for call in calls(200, NOW - DAY, Simulated(), 2)
    ]
    fill(path, other, CallOrigin("bot", "1.4.0", SOURCE.screen, SOURCE.screened, "judge@3", SOURCE.judged))
    found = build_report(str(path), TODAY)
    assert found.headline is not None
    assert found.headline.evaluator == "judge@3"
    row = found.compared(found.headline)
    assert row is not None
    assert row.change is None
    assert row.reason == "nothing was judged by judge@3 before"


def _by_another(evaluation):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(evaluation, version="3") if evaluation.evaluator == "judge" else evaluation


def test_feedback_is_reported_beside_the_scores_of_the_same_calls(path: Path) -> None:
    """Ratings, low ones and corrections by name, in every form; they are no estimates for all calls."""
    of_calls = calls(40, NOW - DAY, Simulated(0.5, 1.0))
    spans = [each.call.span for each in of_calls]
    ratings = [
        Feedback(f"{number:032x}", span, "thumbs", float(number > 3), None, None, None, None, int((NOW - 60) * 1e9))
        for number, span in enumerate(spans[:10])
        if span is not None
    ]
    corrected = Feedback(
        "f" * 32, ratings[0].span, "correction", None, "corrected", None, "14 days", None, int((NOW - 60) * 1e9)
    )
    stray = replace(ratings[0], id="e" * 32, span=SpanContext(7, 7, False))
    fill(path, [*of_calls, *ratings, corrected, stray])
    found = build_report(str(path), TODAY, made_at=NOW)
    correction, thumbs = found.feedback
    assert (thumbs.name, thumbs.ratings, thumbs.mean, thumbs.low, thumbs.corrections) == ("thumbs", 10, 0.6, 4, 0)
    assert (correction.ratings, correction.mean, correction.corrections) == (0, None, 1)
    badness = [_judged(each) for each in of_calls]
    assert (thumbs.judged_low, thumbs.judged_other) == (4, 6)
    assert thumbs.mean_low == pytest.approx(sum(badness[:4]) / 4)
    assert thumbs.mean_other == pytest.approx(sum(badness[4:10]) / 6)
    for text in (render_html(found), render_markdown(found), render_terminal(found)):
        words = " ".join(text.split())
        assert "thumbs" in words
        assert "no estimates for all calls" in words
    assert '"feedback": [{"name": "correction"' in to_json(found)


def _judged(call: QueuedCall) -> float:
    result = call.evaluations[1].results["hallucination"]
    assert isinstance(result, Score)
    return result.value


def test_empty_history_is_reported_in_words(path: Path) -> None:
    """A history without calls makes a report without estimates and without NaN in every form."""
    fill(path, [])
    found = build_report(str(path), TODAY)
    assert (found.calls, found.headline, found.measured) == (0, None, ())
    assert wording.verdict(found).title == "Nothing to tell yet"
    for text in (render_html(found), render_markdown(found), render_terminal(found), to_json(found)):
        assert "nan" not in text.lower()


def test_unscored_metric_has_its_reasons(path: Path) -> None:
    """A metric without a score is listed with its unscored reasons."""
    fill(path, calls(20, NOW - DAY, Simulated(probability=1.0)))
    found = build_report(str(path), TODAY)
    (item,) = [m for m in found.measured if m.metric == "citation_recall" and m.evaluator == "judge@2"]
    assert (item.overall, item.box, item.unscored) == (None, None, {"no_citations": 20})


def test_every_form_tells_the_share_of_unscored_calls_by_reason(path: Path) -> None:
    """And that of all reasons together, of the calls that the evaluator looked at."""
    rng, offered = random.Random(1), calls(40, NOW - DAY, Simulated(probability=1.0))
    for number, reason in enumerate(["no_claims"] * 6 + ["abstained"] * 2):
        one = made(NOW - 10 - number, Simulated(probability=1.0), rng)
        evaluations = [
            replace(each, results={name: Unscored(reason, name, "1") for name in each.results}) if at else each
            for at, each in enumerate(one.evaluations)
        ]
        offered.append(replace(one, evaluations=tuple(evaluations)))
    fill(path, offered)
    found = build_report(str(path), TODAY)
    (item,) = [m for m in found.measured if m.metric == "hallucination" and m.evaluator == "judge@2"]
    assert item.unscored_shares == {"no_claims": 6 / 48, "abstained": 2 / 48}
    (shown,) = [
        m
        for m in json.loads(to_json(found))["measured"]
        if (m["metric"], m["evaluator"]) == ("hallucination", "judge@2")
    ]
    assert shown["unscored_shares"] == item.unscored_shares
    expected = {"all reasons": ("8", "16.7%"), "no claims": ("6", "12.5%"), "abstained": ("2", "4.2%")}
    lines = [" ".join(re.split(r"[\s|]+", line)) for line in render_markdown(found).splitlines()]
    lines += [" ".join(line.split()) for line in render_terminal(found).splitlines()]
    for reason, (count, share) in expected.items():
        assert sum(f"{reason} {count} {share}" in line for line in lines) == 2
        cells = f'data-label="Reason">{reason}</td><td class="n" data-label="Calls">{count}</td>'
        assert f'{cells}<td class="n" data-label="Share">{share}</td>' in render_html(found)
    section = render_html(found).partition("<h2>Not scored</h2>")[2].partition("</section>")[0]
    groups = re.findall(r'<tbody class="grouped">(.*?)</tbody>', section, re.DOTALL)
    named = [re.findall(r'<td class="metric"[^>]*>([^<]+)<small>by <span[^>]*>([^<]+)', group) for group in groups]
    assert len(named) == len({*map(tuple, named)})  # each metric stands once, before its reasons
    assert all(len(names) == 1 for names in named)
    assert [group.count("<tr>") for group, names in zip(groups, named, strict=True)
            if names == [("Unsupported statements", "judge@2")]] == [3]  # fmt: skip


def test_every_form_for_people_says_what_its_intervals_take_for_granted(path: Path) -> None:
    """Where the same questions come again and again, calls are not independent, and the intervals are too narrow."""
    found = regression(path)
    forms = (render_terminal(found), render_markdown(found).replace("\\", ""), Parsed(render_html(found)).text)
    for said in (" ".join(form.split()) for form in forms):
        assert "of the long-run rate, of which these calls are a sample, and take the calls as independent" in said


def test_spread_weights_each_score(path: Path) -> None:
    """Quantiles and histogram weight each score by the inverse of its sampling probability."""
    rng = random.Random(1)
    bad = [made(NOW - 10 - n, Simulated(1.0, 1.0), rng) for n in range(20)]
    good = [made(NOW - 500 - n, Simulated(0.0, 0.05), rng) for n in range(2000)]
    fill(path, bad + good)
    item = build_report(str(path), TODAY).headline
    assert item is not None
    assert item.box is not None
    assert (item.box.median, item.box.third, item.box.high) == (0.0, 0.0, 0.0)
    assert item.box.shares[0] > 0.98


def test_cost_is_counted_by_evaluator(path: Path) -> None:
    """Requests, tokens and dollars are counted by evaluator, the most expensive first."""
    fill(path, calls(100, NOW - DAY, Simulated(probability=1.0)))
    judge, screen = build_report(str(path), TODAY).spent
    assert (judge.evaluator, judge.looked_at, judge.requests, judge.input_tokens) == ("judge@2", 100, 100, 90_000)
    assert judge.cost_usd == pytest.approx(0.02)
    assert (screen.evaluator, screen.cost_usd, screen.unpriced) == ("screen@1", 0.0, 0)


# --- the worst answers -----------------------------------------------------------------------------------------------


def test_worst_answers_mark_their_unsupported_words(path: Path) -> None:
    """The worst answers have their unsupported words marked, and repeated answers are shown once."""
    found = regression(path)
    (problem,) = found.problems
    assert (problem.score, problem.evaluator) == (1.0, "judge@2")
    assert [problem.answer[start:end] for start, end in problem.marks] == ["90 days", "a voucher of 25 euros"]
    assert problem.passages is not None
    assert [passage.held_against for passage in problem.passages] == [True, False, True]
    assert 10 < problem.repeats <= problem.among
    assert "<mark>90 days</mark>" in render_html(found)
    assert "\\[\\[**90 days**\\]\\]" in render_markdown(found)
    assert "[[90 days]]" in render_terminal(found)


def _compared(path: Path, *labelling: str) -> Report:
    """One day of calls of which a screen has compared the words; *labelling*: metrics that label statements."""
    offered: list[QueuedCall] = []
    for each in calls(60, NOW - DAY, Simulated(0.5, 0.0)):
        [screen] = each.evaluations
        claims = next(r.claims for r in screen.results.values() if isinstance(r, Score))
        value = 0.3 if claims else 0.9
        results = {name: Score(value, name, "1", claims=claims) for name in ("consistency", *labelling)}
        offered.append(replace(each, evaluations=(replace(screen, results=results),)))
    fill(path, offered, replace(SOURCE, screened=("consistency", *labelling), judge="", judged=()))
    return build_report(str(path), TODAY, made_at=NOW)


def test_compared_words_are_not_said_to_lack_support(path: Path) -> None:
    """Words that an evaluator only compared are reported as absent from the chunks, not as unsupported."""
    found = _compared(path)
    assert {problem.compared for problem in found.problems if problem.marks} == {True}
    for text in (render_html(found), render_markdown(found), render_terminal(found)):
        assert "in no retrieved chunk" in " ".join(text.split())
        assert "supported by" not in text
        assert "not support" not in text
    assert "does not have the marked words" in render_html(found)


def test_labelled_words_are_said_to_lack_support(path: Path) -> None:
    """Words of statements that an evaluator labelled are reported as unsupported."""
    found = _compared(path, "faithfulness")
    assert {problem.compared for problem in found.problems if problem.marks} == {False}
    for text in (render_html(found), render_markdown(found), render_terminal(found)):
        assert "supported by no retrieved chunk" in " ".join(text.split())


def test_worst_answers_without_texts_have_their_trace(path: Path) -> None:
    """Without texts, the worst answers are listed with trace and score."""
    fill(path, calls(50, NOW - DAY, Simulated(0.5, 1.0)), texts=False)
    found = build_report(str(path), TODAY, worst=3)
    assert len(found.problems) == 3
    assert not any(problem.texts_kept for problem in found.problems)
    assert BAD not in render_html(found)
    assert found.problems[0].trace_id in render_html(found)


def with_results(each: QueuedCall, evaluator: str, **values: float) -> QueuedCall:
    """*each* with more results of one of its evaluators."""
    more: dict[str, Result] = {
        name: Score(value, name, "1", higher_is_better=name not in ("hallucinated", "answered_without_context"))
        for name, value in values.items()
    }
    evaluations = tuple(
        replace(evaluation, results={**evaluation.results, **more}) if evaluation.evaluator == evaluator else evaluation
        for evaluation in each.evaluations
    )
    return replace(each, evaluations=evaluations)


def test_headline_is_the_hallucination_rate(path: Path) -> None:
    """The report opens with the hallucination rate and ranks the worst answers by unsupported statements."""
    source = replace(SOURCE, judged=("faithfulness", "hallucinated", "hallucination"))
    offered = [
        with_results(each, "judge", hallucinated=float(each.evaluations[1].results["hallucination"].value > 0))  # type: ignore[union-attr]
        for each in calls(200, NOW - DAY, Simulated(0.2, 1.0))
    ]
    fill(path, offered, source)
    found = build_report(str(path), TODAY)
    assert found.headline is not None
    assert found.headline.metric == "hallucinated"
    assert wording.verdict(found).title.startswith("Hallucination rate by the judge is ")
    assert [problem.metric for problem in found.problems] == ["hallucination"]
    assert found.problems[0].score == 1.0


def _decided(path: Path, **more: object) -> Report:
    """Two days of calls by a decision judge, whose scores fall from the first day to the second."""
    stored_decisions(path, [NOW - 1.5 * DAY + number for number in range(30)], probability=0.2)
    stored_decisions(path, [NOW - DAY / 2 + number for number in range(40)], probability=0.3125, **more)
    return build_report(str(path), TODAY, made_at=NOW)


def test_scores_of_a_decision_judge_are_no_rate_in_any_form(path: Path) -> None:
    """Where a rate would stand are the words instead, and no form has a percentage of a score."""
    report = _decided(path)
    assert report.headline is not None
    assert (report.headline.metric, report.headline.is_raw) == ("hallucinated", True)
    assert (report.recent, report.latest, report.grouping, report.changes) == (None, None, None, False)
    assert wording.verdict(report).title == "Median hallucinated score is 0.688"
    said = (
        "Hallucination rate is not known (uncalibrated: not a rate); median 0.8 in the 24 hours before; 40 of 40 calls"
    )
    assert wording.verdict(report).detail.startswith(said)
    page = Parsed(re.sub(r"(?s)<style>.*</style>", "", render_html(report))).text
    markdown = render_markdown(report).replace("\\", "")
    # Quantiles and the share of the confidence are named with the sign, but never a score.
    allowed = r"\b(?:5|25|75|95)%|95% interval"
    for text in (render_terminal(report), markdown, page):
        assert "uncalibrated: not a rate" in " ".join(text.split())
        assert re.findall(r"\S*%\S*", re.sub(allowed, "", text)) == []
    for estimate in json.loads(to_json(report))["measured"]:
        assert (estimate["overall"]["value"], estimate["overall"]["reason"]) == (None, "uncalibrated")


def test_calls_without_a_score_do_not_make_a_rate_of_the_others(path: Path) -> None:
    """A decision model that refused lately has given probabilities before."""
    stored_decisions(path, [NOW - DAY / 2 + number for number in range(40)])
    stored_decisions(path, [NOW - DAY / 4 + number for number in range(60)], refused=True)
    report = build_report(str(path), TODAY, made_at=NOW)
    assert report.headline is not None
    assert (report.headline.metric, report.headline.is_raw) == ("hallucinated", True)
    known = [each.overall.reason for each in report.measured if each.overall is not None]
    assert known == ["uncalibrated"] * len(report.measured)


def test_labels_that_hold_give_a_decision_judge_s_rate(path: Path) -> None:
    """The report begins with the corrected rate."""
    report = _decided(path)
    assert report.headline is not None
    estimate = replace(estimate_mean(judged_moments(0.0, 0.01)), value=0.05, low=0.02, high=0.09, corrected="labels")
    headline = replace(report.headline, corrected=CorrectedRate(estimate, 120))
    labelled = replace(report, headline=headline, rate=estimate, measured=(headline, *report.measured[1:]))
    assert wording.verdict(labelled).title == "Hallucination rate is 5.0%"
    assert wording.verdict(labelled).detail.startswith("by 120 labelled calls, 95% interval 2.0% to 9.0%")
    assert "5.0%" in render_html(labelled)


def test_statements_of_a_bad_answer_have_their_probabilities_and_chunks(path: Path) -> None:
    """The likeliest unsupported one first, in every form for people."""
    report = _decided(path)
    answer = report.problems[0]
    assert (answer.metric, answer.score) == ("hallucinated", 0.6875)
    assert [each.probability for each in answer.statements] == [0.97, 0.96, 0.3125]
    assert [each.chunks[:1] for each in answer.statements] == [(1,), (2,), ()]
    assert answer.statements[2].text == "Penguins live in Antarctica."
    markdown = render_markdown(report).replace("\\", "")
    for text in (render_terminal(report), Parsed(render_html(report)).text, markdown):
        flat = " ".join(text.split())
        lowest = flat.index("probability of support 0.312, no chunk has its words")
        assert lowest < flat.index("probability of support 0.96, closest chunk 2")
    stored_decisions(path, [NOW - DAY / 3], probability=0.1, texts=False)
    hidden = build_report(str(path), TODAY, made_at=NOW, compare="none")
    assert "(its text was not kept)" in render_terminal(hidden)


def test_one_judged_call_gives_no_number(path: Path) -> None:
    """A headline gives the ends of the interval where hardly anything is known."""
    offered = [with_results(each, "judge", hallucinated=0.0) for each in calls(1, NOW - DAY, Simulated(0.2, 1.0))]
    fill(path, offered, replace(SOURCE, judged=("faithfulness", "hallucinated")))
    title = wording.verdict(build_report(str(path), TODAY)).title
    assert re.fullmatch(r"Hallucination rate by the judge is between 0\.0% and [5-9]\d\.\d%", title), title


def test_answers_without_context_have_a_line(path: Path) -> None:
    """Every form of the report has a line on answers given without any context."""
    source = replace(SOURCE, screened=("answered_without_context", *SOURCE.screened))
    offered = calls(200, NOW - DAY, Simulated())
    offered = [
        with_results(each, "screen", answered_without_context=float(number % 10 == 0))
        for number, each in enumerate(offered)
    ]
    fill(path, offered, source)
    found = build_report(str(path), TODAY)
    assert wording.without_context_sentence(found).startswith("Answers given without any context: 10.0% (")
    assert wording.without_context_sentence(found) in render_html(found)
    assert "Answers given without any context: 10.0%" in render_markdown(found).replace("\\", "")
    assert "Answers given without any context: 10.0%" in render_terminal(found)
    assert wording.without_context_sentence(regression(path.with_name("other.db"))) == ""


def test_calls_judged_by_a_rule_are_a_stratum(path: Path) -> None:
    """Calls that a rule always has judged are summed as in the running process."""
    offered = calls(300, NOW - DAY, Simulated(0.1, 0.3)) + [
        replace(each, decision="always_rule") for each in calls(100, NOW - DAY, Simulated(0.3, 1.0), 2)
    ]
    fill(path, offered)
    expected = pooled(offered[:300])
    for each in offered[300:]:
        screen, judged = (evaluation.results["hallucination"] for evaluation in each.evaluations)
        assert isinstance(screen, Score)
        assert isinstance(judged, Score)
        expected += judged_moments(judged.value, 1.0, screen.value, seen=1.0, ruled=True)
    found = build_report(str(path), TODAY).headline
    assert found is not None
    assert found.overall is not None
    ours = estimate_mean(expected)
    assert (found.overall.low, found.overall.high) == pytest.approx((ours.low, ours.high), rel=1e-9)


def test_rollout_is_marked_in_the_chart(path: Path) -> None:
    """The first call of a new release is marked in the chart of the page and of the terminal."""
    fill(path, calls(150, NOW - DAY, Simulated(0.02, 0.5)))
    later = [each for each in calls(150, NOW - DAY, Simulated(0.3, 0.5), 2) if each.at > NOW - DAY / 2]
    fill(path, later, replace(SOURCE, release="1.5.0"))
    found = build_report(str(path), TODAY, compare="1.4.0:1.5.0")
    assert [(each.release, each.at) for each in found.rollouts] == [("1.5.0", later[0].at)]
    text = render_html(found)
    assert 'class="rollout"' in text
    assert "\u25b8 1.5.0" in text
    assert "release 1.5.0" in render_terminal(found)


def test_narrow_terminal_and_markdown_keep_names_and_figures(path: Path) -> None:
    """A narrow terminal wraps names instead of cutting them, and Markdown does not escape figures."""
    found = regression(path)
    narrow = render_terminal(found, width=60)
    assert not {"..", "…"} & set(re.findall(r"\.\.|…", narrow.split("The worst answers")[0].replace("...", "")))
    assert re.search(r"[+-]?\d+\.\d points", render_markdown(found))
    assert not re.search(r"\d\\\.\d", render_markdown(found))


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [([(3, 5), (1, 4)], [(1, 5)]), ([(-5, 2), (8, 99)], [(0, 2), (8, 10)]), ([(4, 4), (6, 5)], [])],
)
def test_merge_ranges_clips_and_joins(ranges: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    """Ranges are clipped to the answer, overlapping ones are joined, empty and reversed ones dropped."""
    assert merge_ranges(ranges, 10) == expected


# --- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24h", NOW - DAY),
        ("90m", NOW - 5400),
        ("1.5d", NOW - 1.5 * DAY),
        ("now", NOW),
        ("2027-01-15T08:00:00Z", NOW),
        ("2027-01-15T09:00:00+01:00", NOW),
        ("2027-01-15T08:00", NOW),
    ],
)
def test_times_are_parsed(text: str, expected: float) -> None:
    """A time is a length of time ago, `now`, or a date with or without time and zone."""
    assert parse_time(text, NOW, "--since") == expected


@pytest.mark.parametrize("text", ["yesterday", "24", "h", "-1h", "2027-13-01", ""])
def test_wrong_time_is_refused(text: str) -> None:
    """A text that is no time is refused with examples of times."""
    with pytest.raises(SettingsError, match="--since must be a time"):
        parse_time(text, NOW, "--since")


def test_period_must_end_after_its_start() -> None:
    """A period that ends before it starts is refused."""
    with pytest.raises(SettingsError, match="must be before"):
        parse_period("1h", "2h", NOW)


@pytest.mark.parametrize("length", [61.0, 3600.0, DAY, 7 * DAY, 90 * DAY, 800 * DAY])
def test_period_is_divided_without_gaps(length: float) -> None:
    """A period is divided into at most 48 adjacent parts from its start to its end."""
    parts = divide_period(Period(NOW - length, NOW))
    assert (parts[0].start, parts[-1].end) == (NOW - length, NOW)
    assert all(left.end == right.start for left, right in pairwise(parts))
    assert 1 <= len(parts) <= 48


# --- hostile histories -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("history") / "hostile.db"
    hostile.history(path, NOW)
    return build_report(str(path), Period(NOW - 3600, NOW), worst=100, made_at=NOW)


def test_hostile_texts_are_text_in_html(hostile_report: Report) -> None:
    """Hostile texts add no element, attribute or address to the page (the integration tests use a browser)."""
    parsed = Parsed(render_html(hostile_report))
    assert not {"script", "img", "iframe", "a", "base", "form", "input", "link", "object"} & set(parsed.tags)
    assert not [name for _, name in parsed.attributes if name.startswith("on") or name in ("href", "src", "id")]
    assert parsed.tags["style"] == parsed.tags["title"] == 1


def test_hostile_texts_are_text_in_markdown(hostile_report: Report) -> None:
    """Hostile texts add no HTML, link, image, code, table, heading or mention to the Markdown."""
    text = render_markdown(hostile_report)
    unescaped = re.sub(r"\\.", "", text)
    ours = re.compile(r"^(# |## |### |\||> |- chunk|\Z)")
    assert "<" not in unescaped
    assert not re.search(r"\[[^\]]*\]\(|!\[|`|@\w", unescaped)
    assert not re.search(r"(?i)https?://|www\.", text)
    heads = [line for line in unescaped.splitlines() if line.startswith("#")]
    assert all(ours.match(line) for line in heads)
    assert all(line.count("|") in (0, 3, 4, 5, 6, 8, 9) for line in unescaped.splitlines())


@pytest.fixture(params=["regression", "hostile"])
def any_report(request: pytest.FixtureRequest, path: Path) -> Report:
    """A report on usual calls, and one on hostile texts."""
    if request.param == "regression":
        return regression(path)
    return request.getfixturevalue("hostile_report")  # type: ignore[no-any-return]


def test_terminal_and_markdown_are_one_text(any_report: Report) -> None:
    """A terminal shows every character of the Markdown's text and no other, whatever the texts of the calls are."""
    parsed = MarkdownIt().enable("table").parse(render_markdown(any_report))
    texts = [child.content for token in parsed for child in token.children or ()]
    assert _characters("".join(texts)) == _characters(render_terminal(any_report))


def _characters(text: str) -> Counter[str]:
    """Count the characters that are neither white space nor drawn by the layout."""
    return Counter(character for character in text if not character.isspace() and character not in "\u200b─━▌•")


def test_terminal_gets_no_control_characters(hostile_report: Report) -> None:
    """Hostile texts write no escape sequence, bell or change of direction to a terminal."""
    plain = render_terminal(hostile_report)
    coloured = re.sub(r"\x1b\[[\d;]*m", "", render_terminal(hostile_report, colour=True))
    for text in (plain, coloured):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_ascii_terminal_gets_ascii(hostile_report: Report) -> None:
    """A terminal without Unicode gets digits as bars and a question mark for other characters."""
    assert render_terminal(hostile_report, plain=True).isascii()


def test_json_is_ascii_and_strict(hostile_report: Report) -> None:
    """The JSON is ASCII without NaN, so that any parser reads it."""
    text = to_json(hostile_report)
    assert text.isascii()
    found = json.loads(text, parse_constant=pytest.fail)
    assert len(found["problems"]) == len(hostile.PAYLOADS)


# --- the command -----------------------------------------------------------------------------------------------------


def run(path: Path, *more: str) -> int:
    return main(["report", str(path), "--since", "2027-01-14T08:00", "--until", "2027-01-15T08:00", *more])


def test_command_prints_the_verdict_first(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict is the first line of the output."""
    regression(path)
    assert run(path) == 0
    assert capsys.readouterr().out.startswith("Unsupported statements went up by ")


class Terminal(StringIO):
    """Standard output that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("environment", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colours_unless_told_otherwise(
    path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_coloured: bool
) -> None:
    """The title has a colour in a terminal, and nothing has with NO_COLOR."""
    regression(path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Terminal())
        assert run(path) == 0
        text = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert text.startswith("\x1b[1;31mUnsupported" if is_coloured else "Unsupported")
    assert ("\x1b" in text) == is_coloured


def test_a_pipe_gets_no_escape_sequences(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even where colours are forced on for other programs; no line is wider than 100 columns."""
    regression(path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(path) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.html", "<!doctype html>"),
        ("r.md", "# Unsupported statements went up"),
        ("r.json", '{"version": 1'),
    ],
)
def test_suffix_of_the_file_selects_the_form(path: Path, tmp_path: Path, name: str, start: str) -> None:
    """The suffix of --out selects the form, and no partial file is left."""
    regression(path)
    assert run(path, "--out", str(tmp_path / name)) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert not (tmp_path / f"{name}.new").exists()


def test_environment_names_the_history(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """RAGTRACE_STORE names the history if no path is given."""
    regression(path)
    monkeypatch.setenv("RAGTRACE_STORE", str(path))
    assert main(["report", "--since", "2027-01-14T08:00", "--until", "2027-01-15T08:00", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"] == 600


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 2, "RAGTRACE_STORE"),
        (["missing.db"], 1, "no history"),
        (["{path}", "--since", "soon"], 2, "--since must be a time"),
        (["{path}", "--compare", "a:b"], 2, "--compare must be"),
        (["{path}", "--out", "/nowhere/r.html"], 1, "cannot be written"),
    ],
)
def test_errors_have_message_and_status(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, says: str
) -> None:
    """Each error has a message and the exit status that the help documents."""
    fill(path, [])
    assert main(["report", *(each.format(path=path) for each in arguments)]) == status
    assert says in capsys.readouterr().err


def test_terminal_gets_markdown_without_rich(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without rich, the report is printed as Markdown."""
    regression(path)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert run(path) == 0
    assert capsys.readouterr().out.startswith("# Unsupported statements went up by ")


def test_html_form_without_jinja2_says_what_to_install(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Jinja2, the HTML form is refused with what to install, and no file is left."""
    regression(path)
    html_page.template_environment.cache_clear()  # that of an earlier test
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert run(path, "--out", str(tmp_path / "r.html")) == 2
    assert "ragtrace-otel[cli]" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("usd", "unpriced", "expected"),
    [
        (0.0, 600, "price not known of 600 calls"),
        (0.0, 700, "price not known"),
        (1.5, 600, "1.5000 USD and 600 calls at no known price"),
        (1.5, 0, "1.5000 USD"),
    ],
)
def test_unknown_price_is_not_shown_as_zero(usd: float, unpriced: int, expected: str) -> None:
    """An unknown price is named as such instead of 0.0000 USD."""
    assert wording.format_cost(EvaluatorCost("judge", 700, 700, 1, 1, usd, unpriced, 0, 1.0, 1.0)) == expected


# --- parts of a report -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [None, "faithfulness"])
def test_what_a_part_of_a_report_has_is_what_the_whole_one_has(path: Path, metric: str | None) -> None:
    """The first page's part has no details, the pages' part the details of the main metric alone."""
    regression(path)
    whole, shown, headline = (
        build_report(str(path), TODAY, made_at=NOW, metric=metric, details=details) for details in get_args(Details)
    )
    assert shown.headline == whole.headline
    assert shown.headline is not None
    assert replace(shown, measured=whole.measured) == whole
    assert headline.headline == replace(shown.headline, by_workflow=(), by_model=(), by_tags=(), box=None)
    assert headline.comparison is not None
    assert shown.comparison is not None
    assert headline.comparison.rows == tuple(filter(None, [shown.compared(shown.headline)]))
    assert not headline.problems
    assert headline.grouping is None
    assert [each.overall for each in headline.measured] == [each.overall for each in whole.measured]
    for page in (shown, headline):
        assert [each.unscored for each in page.measured] == [each.unscored for each in whole.measured]
        assert (page.spent, page.notes, page.latest) == (whole.spent, whole.notes, whole.latest)


def test_an_hour_that_is_a_fraction_longer_is_an_hour(path: Path) -> None:
    """A time that ends now is never of a whole number of seconds."""
    fill(path, calls(400, NOW - DAY, Simulated(0.1, 0.5)))
    found = build_report(str(path), Period(NOW - 3600.0000001, NOW), made_at=NOW)
    assert found.comparison is not None
    assert (found.comparison.before, found.comparison.after) == ("the 1 hour before", "this 1 hour")
    assert wording.format_length(7200.0) == "2 hours"


# --- tags ------------------------------------------------------------------------------------------------------------


def _of_tenants(path: Path) -> None:
    """Store 120 calls of three tenants, of which one has only bad answers."""
    rng = random.Random(3)
    calls: list[QueuedCall] = []
    for number in range(120):
        tenant = ("acme", "globex", "initech")[number % 3]
        one = made(NOW - 600.0 * number - 1.0, Simulated(float(tenant == "initech"), 1.0), rng)
        calls.append(replace(one, call=replace(one.call, tags={"tenant": tenant, "paying": number % 2 == 0})))
    fill(path, calls)


@pytest.mark.parametrize(
    ("tags", "calls", "bad"), [({}, 120, True), ({"tenant": "acme"}, 40, False), ({"tenant": "initech"}, 40, True)]
)
def test_a_report_is_on_the_calls_of_a_tag(path: Path, tags: dict[str, str], *, calls: int, bad: bool) -> None:
    """Counts, rates and worst answers are theirs; it says which tags it is about."""
    _of_tenants(path)
    report = build_report(str(path), TODAY, compare="none", tags=tags)
    assert (report.calls, bool(report.problems), report.tags) == (calls, bad, tags)
    assert all(each.tags["tenant"] == "initech" for each in report.problems)
    assert ("tenant=initech only" in wording.subject_line(report)) is ("initech" in tags.values())
    of_judge = [
        each.overall for each in report.measured if (each.metric, each.evaluator) == ("faithfulness", "judge@2")
    ]
    assert [each.n for each in of_judge if each] == [calls]


def test_the_report_command_takes_tags_and_its_json_has_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that it is about, and those of each worst answer, with their types; other forms name them, too."""
    _of_tenants(path)
    period = ("--since", "2027-01-14", "--until", "2027-01-16", "--compare", "none")
    given = ["report", str(path), *period, "--tag", "tenant=initech", "--tag", "paying=true"]
    assert main([*given, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["calls"], found["tags"]) == (20, {"tenant": "initech", "paying": "true"})
    assert [each["tags"] for each in found["problems"]] == [{"paying": True, "tenant": "initech"}]
    for form in ("terminal", "markdown"):
        assert main([*given, "--format", form]) == 0
        said = capsys.readouterr().out.replace("\\", "")
        assert said.count("tenant=initech") >= 2
    assert main([*given[:2], "--tag", "acme"]) == 2
    assert "such as tenant=acme, got 'acme'" in capsys.readouterr().err
