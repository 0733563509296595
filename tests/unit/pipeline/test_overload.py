"""More than there is room for, in number or in bytes: every call and every span is delivered or counted."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import ragtrace
from ragtrace.core import semconv
from ragtrace.system.faults import faults
from ragtrace.testing import Captured
from tests.support.monitoring import wait_until
from tests.support.otlp import HttpReceiver
from tests.support.watched import WAIT_S, WaitingJudge, ask, eventually, watch

pytestmark = pytest.mark.usefixtures("_fresh_faults")
CALLS = 300
LARGE = "x" * 20_000


@pytest.fixture
def _fresh_faults() -> None:
    """They are counted for the whole process."""
    faults.clear()


@ragtrace.generate
def answer(question: str, contexts: list[str]) -> str:
    return "In " + question


def _lost_spans() -> int:
    return sum(count for place, count in ragtrace.stats().faults.items() if place.startswith("lost spans"))


def _balanced() -> bool:
    return all(tally.offered == tally.settled + tally.pending for tally in ragtrace.stats().evaluators.values())


def _settled(captured: Captured, spans: int) -> bool:
    # Where the memory for spans that wait for their scores is used up, scores follow on spans of their own.
    delivered = [span for span in captured.spans if not span.name.startswith(semconv.CARRIER_OPERATION)]
    return _balanced() and ragtrace.stats().pending == 0 and len(delivered) + _lost_spans() == spans


def _embedded_judge_scores(calls: int) -> bool:
    """Return whether the embedded judge scores *calls* in time, while something else keeps flushes from ending."""
    flushes = (ragtrace.flush(WAIT_S / 100) for _ in range(300))
    return any(not flushed and ragtrace.stats().evaluators["embedded"].scored == calls for flushed in flushes)


def test_a_burst_beyond_all_room_is_counted() -> None:
    """Of calls and of their spans."""
    judge = WaitingJudge()
    captured = watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0), limits=ragtrace.Limits(capacity=4))
    for number in range(CALLS):
        ask(f"question {number}")
    assert _balanced()
    judge.open()
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().offered == CALLS
    assert ragtrace.stats().dropped["queue_full"] >= CALLS - 4 - 32
    assert _settled(captured, 3 * CALLS)


def test_memory_is_bounded_in_bytes() -> None:
    """Large calls that wait for a slow judge take no more than they may; the others are dropped and counted."""
    judge = WaitingJudge()
    captured = watch(
        screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0), limits=ragtrace.Limits(queue_bytes=4_000_000)
    )
    for number in range(CALLS):
        answer(f"question {number}", [f"{number} {rank} {LARGE}" for rank in range(5)])
    assert not ragtrace.flush(0.2)
    # A busy machine's worker may not have weighed the last calls yet.
    assert eventually(lambda: 0 < ragtrace.stats().pending * 5 * len(LARGE) < 4_000_000)
    pending = ragtrace.stats().pending
    judge.open()
    assert ragtrace.flush(WAIT_S)
    scored = ragtrace.stats().scored
    assert 0 < scored <= pending
    assert ragtrace.stats().dropped == {"queue_full": CALLS - scored}
    assert _settled(captured, CALLS)


def test_when_the_flood_is_over_everything_is_scored_again() -> None:
    """The room that was taken is given back, to the byte."""
    captured = watch(limits=ragtrace.Limits(queue_bytes=1_000_000))
    for round_ in range(3):
        for number in range(100):
            answer(f"question {round_} {number}", [f"{number} {rank} {LARGE}" for rank in range(5)])
        assert ragtrace.flush(WAIT_S)
    dropped = ragtrace.stats().dropped.get("queue_full", 0)
    answer("and now?", ["Now is now."])
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().dropped.get("queue_full", 0) == dropped
    assert _settled(captured, 301)


def test_an_outage_of_the_backend_does_not_stop_scoring(
    http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every call is scored and kept in the history, though most spans are lost; and these are counted."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    ragtrace.configure(service="s", store=tmp_path / "history.db", limits=ragtrace.Limits(capacity=1_000))
    with http_receiver.refusing():
        for number in range(CALLS):
            ask(f"question {number}")
        assert _embedded_judge_scores(CALLS)
        assert _balanced()
        with closing(sqlite3.connect(tmp_path / "history.db")) as database:
            kept = "SELECT count(*) FROM calls"  # the history is written after the scores are counted
            wait_until(lambda: database.execute(kept).fetchone() == (CALLS,), WAIT_S, f"{CALLS} calls in the history")
        assert _lost_spans() > 0


def test_a_slow_judge_costs_no_call_its_screen_score() -> None:
    """Calls that wait for the judge have places of their own; the judge misses those beyond them, and counts them."""
    judge = WaitingJudge()
    captured = watch(judge=judge, sampling=ragtrace.Sampling(rate=1.0), limits=ragtrace.Limits(capacity=100))
    for number in range(CALLS):
        ask(f"question {number}")
        if number % 50 == 49:
            assert _embedded_judge_scores(number + 1)
    embedded, judged = (ragtrace.stats().evaluators[name] for name in ("embedded", "waiting"))
    assert (embedded.scored, embedded.dropped) == (CALLS, {})
    assert (judged.pending, judged.dropped) == (100, {"queue_full": CALLS - 100})
    judge.open()
    assert ragtrace.flush(WAIT_S)
    statuses = [
        (span.attributes or {})[semconv.EVAL_STATUS] for span in captured.spans if span.name.startswith("invoke")
    ]
    assert len(statuses) == CALLS
    turned_away = [
        span.attributes[semconv.EVAL_STATUS]
        for span in captured.spans
        if span.attributes and span.attributes.get(semconv.REASON) == "queue_full"
    ]
    assert turned_away == ["partial"] * (CALLS - 100)
    assert _settled(captured, 3 * CALLS)


def test_the_scores_of_the_screen_do_not_wait_for_the_judge(tmp_path: Path) -> None:
    """They are announced while the judge is still being asked, and only once."""
    judge = WaitingJudge()
    captured = watch(judge=judge, sampling=ragtrace.Sampling(rate=1.0), store=tmp_path / "history.db")
    ask("where?")
    assert judge.begun.wait(WAIT_S)

    def evaluators() -> Counter[object]:
        return Counter((event.log_record.attributes or {})[semconv.EVALUATOR_ID] for event in captured.events)

    assert set(before := evaluators()) == {"embedded"}
    judge.open()
    assert ragtrace.flush(WAIT_S)
    assert evaluators()["embedded"] == before["embedded"]
    assert set(evaluators()) == {"embedded", "waiting"}
    with closing(sqlite3.connect(tmp_path / "history.db")) as database:
        assert database.execute("SELECT count(*) FROM calls").fetchone() == (1,)
        assert database.execute("SELECT count(*) FROM evaluations").fetchone() == (2,)
