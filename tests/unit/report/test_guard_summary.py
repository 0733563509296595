"""What the report says about guards: counts of the chosen calls, and shares of what people have labelled."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from ragtrace.core.step import GuardVerdict
from ragtrace.history.writing import Queued, QueuedVerdict
from ragtrace.labels.label_store import Label, LabelStore, LabelValue
from ragtrace.report.analysis import build_report
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import GuardSummary, Period, to_json
from tests.support.history import Simulated, fill, made

NOW = 1_000_000.0
DAY = Period(NOW - 86_400.0, NOW)
SEEDS = count()
"""A seed for each batch of calls, so that no two calls are the same."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def verdict(kind: str = "pass", action: str = "none", mode: str = "shadow", **more: object) -> GuardVerdict:
    score = {"pass": 0.9, "fail": 0.2}.get(kind)
    values = {"reason": "" if score else kind, "added_s": 0.1, "metric": "faithfulness", **more}
    return GuardVerdict(mode=mode, verdict=kind, action=action, score=score, **values)  # type: ignore[arg-type]


def store(
    path: Path, verdicts: Iterable[GuardVerdict | None], *, at: float = NOW - 60.0, workflow: str = "ask"
) -> list[bytes]:
    """Store a call for each of *verdicts*, and return the identities of the calls."""
    rng, queued, identities = random.Random(next(SEEDS)), list[Queued](), list[bytes]()
    for each in verdicts:
        call = made(at, Simulated(workflow=workflow), rng)
        span = call.call.span
        assert span is not None
        queued.append(call)
        identities.append(span.trace_id.to_bytes(16, "big") + span.span_id.to_bytes(8, "big"))
        if each is not None:
            queued.append(QueuedVerdict(span, each))
    fill(path, queued)
    return identities


def label(path: Path, identities: Iterable[bytes], value: LabelValue, metric: str = "faithfulness") -> None:
    with closing(LabelStore(str(path))) as labels:
        labels.add(Label(identity, metric, "ana", value) for identity in identities)


def summaries(path: Path, **chosen: object) -> tuple[GuardSummary, ...]:
    return build_report(str(path), DAY, made_at=NOW, **chosen).guards  # type: ignore[arg-type]


def test_counts_times_and_actions_are_those_of_the_chosen_calls(path: Path) -> None:
    """By workflow, metric and mode; calls without a guard, of other times and of other workflows do not count."""
    store(path, [*[verdict()] * 6, *[verdict("fail", "replaced", mode="replace")] * 3, None])
    store(path, [verdict("timeout", "released", mode="replace", added_s=0.4), verdict("fail", added_s=None)])
    store(path, [verdict("fail")] * 5, at=NOW - 2 * 86_400.0)
    store(path, [verdict("fail")] * 2, workflow="other")
    replace, shadow = summaries(path, workflow="ask")
    assert (replace.mode, replace.answers, replace.passed, replace.failed) == ("replace", 4, 0, 3)
    assert replace.unchecked == {"timeout": 1}
    assert replace.actions == {"released": 1, "replaced": 3}
    assert (replace.added_p50_ms, replace.added_p95_ms) == (100.0, pytest.approx(355.0))
    assert (shadow.mode, shadow.answers, shadow.passed, shadow.failed) == ("shadow", 7, 6, 1)
    assert (shadow.unchecked, shadow.actions, shadow.failed_share.value) == ({}, {}, pytest.approx(1 / 7))
    assert [(each.workflow, each.mode) for each in summaries(path)] == [
        ("ask", "replace"), ("ask", "shadow"), ("other", "shadow"),
    ]  # fmt: skip


def test_shares_of_labelled_answers_have_intervals(path: Path) -> None:
    """Of the answers whose labels agree, for the guard's metric, and that were checked."""
    found = store(path, [*[verdict("fail")] * 12, *[verdict()] * 40, *[verdict("timeout")] * 3])
    label(path, [*found[:2], *found[12:52], *found[52:]], "good")  # 2 of 42 good ones failed
    label(path, found[2:12], "bad")  # all ten failed
    label(path, found[12:20], "bad", metric="relevance")
    [summary] = summaries(path)
    assert (summary.labelled_good, summary.labelled_bad) == (42, 10)
    assert summary.good_failed is not None
    assert summary.good_failed.value == pytest.approx(2 / 42)
    assert summary.good_failed.low < 2 / 42 < summary.good_failed.high
    assert summary.bad_failed is not None
    assert summary.bad_failed.value == 1.0


def test_fewer_than_ten_bad_answers_say_nothing(path: Path) -> None:
    """Nor do answers about which two people disagree, or of which one is unsure."""
    found = store(path, [verdict("fail")] * 12)
    label(path, found[:9], "bad")
    label(path, found[9:10], "unsure")
    with closing(LabelStore(str(path))) as labels:
        labels.add([Label(found[10], "faithfulness", "ana", "bad"), Label(found[10], "faithfulness", "bo", "good")])
    [summary] = summaries(path)
    assert (summary.labelled_bad, summary.bad_failed, summary.labelled_good, summary.good_failed) == (9, None, 0, None)
    assert "unknown (9 labelled)" in render_html(build_report(str(path), DAY, made_at=NOW))


def test_every_form_of_the_report_has_the_same_row(path: Path) -> None:
    """Terminal and Markdown share one text; a report without guards has no such section."""
    store(path, [*[verdict()] * 8, verdict("fail"), verdict("timeout", added_s=0.4)])
    report = build_report(str(path), DAY, made_at=NOW)
    for text in (render_markdown(report).replace("\\", ""), render_html(report)):
        for part in ("What guards did", "10.0% (1.8% to 40.4%)", "out of time 1", "unknown (0 labelled)"):
            assert part in text
    assert '"guards": [{"workflow": "ask", "metric": "faithfulness", "mode": "shadow", "answers": 10' in to_json(report)
    store(path.with_name("other.db"), [None])
    other = build_report(str(path.with_name("other.db")), DAY, made_at=NOW)
    assert other.guards == ()
    assert "guards did" not in render_markdown(other) + render_html(other)
