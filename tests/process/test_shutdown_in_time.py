"""The end keeps to its time with thousands of calls waiting, and every one of them is accounted for."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic, perf_counter

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

import ragtrace
from ragtrace.core.ledger import Ledger
from ragtrace.core.step import Step
from ragtrace.core.unscored_call import decode
from ragtrace.pipeline.shutdown import ShutdownBudget, end_spans, reserved_after_scoring
from ragtrace.pipeline.work_items import CallItem, SpanItem
from ragtrace.runtime.current_runtime import current
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.monitoring import wait_until
from tests.support.otlp import HttpReceiver
from tests.support.scored import EVERY
from tests.support.watched import HALF, WAIT_S, WaitingJudge, ask, watch

CALLS = 2000
IN_TIME_S = 0.1
"""After the timeout of a shutdown: a quiet machine keeps to it."""
FAR_TOO_LATE_S = 0.5
"""Later than any busy machine makes the best of several shutdowns."""
ATTEMPTS = 6


@pytest.fixture
def hanging(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    """A backend that accepts and never answers."""
    for name, value in {**http_receiver.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}.items():
        monkeypatch.setenv(name, value)
    faults.clear()
    with http_receiver.hanging():
        yield http_receiver


def end_with_many_waiting(timeout: float, spool: str | None) -> tuple[float, ragtrace.types.Stats]:
    """How much later than promised a shutdown came back, and what it counted."""
    judge = WaitingJudge(name="judge")
    ragtrace.configure(
        service="s",
        screen=FakeJudge(HALF, name="screen"),
        judge=judge,
        sampling=EVERY,
        limits=ragtrace.Limits(spool=spool),
    )
    for number in range(CALLS):
        ask(f"question {number}?")
    began = perf_counter()
    assert not ragtrace.shutdown(timeout)
    late = perf_counter() - began - timeout
    judge.open()
    # On a machine that stands still for a second the shutdown gives its thread up, which still counts every call.
    wait_until(lambda: ragtrace.stats().pending == 0, WAIT_S, "every call is accounted for")
    return late, ragtrace.stats()


def end_in_time(end: Callable[[], float]) -> None:
    """Repeat *end*, which returns how late a shutdown was, until one is in time: the machine may be busy."""
    late = [end()]
    while len(late) < ATTEMPTS and min(late) >= IN_TIME_S:
        late.append(end())
    assert min(late) < FAR_TOO_LATE_S, late


@pytest.mark.timing
@pytest.mark.parametrize("timeout", [0.2, 1.0])
def test_it_keeps_its_promise_with_thousands_of_calls(hanging: HttpReceiver, timeout: float) -> None:
    """A judge and a backend hang; every call is counted."""

    def end() -> float:
        late, stats = end_with_many_waiting(timeout, None)
        assert (stats.offered, stats.pending, stats.failed) == (2 * CALLS, 0, {})
        assert stats.scored + sum(stats.dropped.values()) == 2 * CALLS
        assert set(stats.dropped) <= {"shutdown", "queue_full"}
        return late

    end_in_time(end)


@pytest.mark.timing
@pytest.mark.parametrize("timeout", [0.2, 1.0])
def test_it_keeps_its_promise_with_thousands_of_calls_to_spool(
    hanging: HttpReceiver, tmp_path: Path, timeout: float
) -> None:
    """What is counted as spooled is in the file, once, and nothing else is."""
    paths, spooled = (str(tmp_path / f"{number}.db") for number in range(ATTEMPTS)), 0

    def end() -> float:
        nonlocal spooled
        path = next(paths)
        late, stats = end_with_many_waiting(timeout, path)
        assert stats.scored + sum(stats.dropped.values()) == stats.offered == 2 * CALLS
        assert set(stats.dropped) <= {"spooled", "not_spooled", "queue_full"}
        with closing(sqlite3.connect(path)) as database:
            bodies = [decode(body) for (body,) in database.execute("SELECT body FROM calls")]
        assert len({kept.call.query for kept in bodies}) == len(bodies)
        assert sum(len(kept.pending_evaluators) for kept in bodies) == stats.dropped.get("spooled", 0)
        spooled += len(bodies)
        return late if bodies else FAR_TOO_LATE_S

    end_in_time(end)
    assert spooled


@pytest.mark.parametrize("keeps", [False, True], ids=["lost", "spooled"])
def test_what_became_of_them_is_exported(
    http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keeps: bool
) -> None:
    """A collector that answers receives the same counts: the books are closed before the last export."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    _, stats = end_with_many_waiting(1.0, str(tmp_path / "calls.db") if keeps else None)
    http_receiver.wait_for(lambda got: "ragtrace.calls" in got.latest_metrics())
    exported: Counter[str] = Counter()
    for point in http_receiver.latest_metrics()["ragtrace.calls"].points:
        if point.attributes["ragtrace.outcome"] == "dropped":
            exported[str(point.attributes["ragtrace.reason"])] += int(point.value or 0)
    assert exported == stats.dropped
    assert stats.scored + exported.total() == stats.offered


# --- how the time is divided -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.1, 0.5, 5.0])
@pytest.mark.parametrize("spools", [False, True])
def test_scoring_ends_the_earlier_the_more_is_left(timeout: float, spools: bool) -> None:
    """But calls are scored for four tenths of the time in any case."""
    kept = [reserved_after_scoring(timeout, waiting, spools=spools) for waiting in (0, 1_000, 10_000, 1_000_000)]
    assert kept == sorted(kept)
    assert 0 < kept[0] <= kept[-1] <= timeout * 0.6 + 1e-9


def test_calls_are_stored_before_the_end_and_for_a_moment_after_it() -> None:
    """What comes after them has its time too."""
    now = monotonic()
    assert ShutdownBudget(3.0).until_stored() < now + 3.0
    assert ShutdownBudget(0.0).until_stored() > now


# --- counted in one go -----------------------------------------------------------------------------------------------


def finished(workflow: str) -> SpanItem:
    step = Step()
    step.workflow = workflow
    return CallItem(step)


def leave(workflows: list[str]) -> Runtime:
    """A runtime that was shut down while its screen blocked, with calls of *workflows* waiting behind the first."""
    blocking = WaitingJudge(name="screen", blocking=True)
    watch(screen=blocking, judge=FakeJudge(HALF, name="judge"), sampling=EVERY)
    runtime = current()
    assert runtime is not None
    for workflow in workflows:
        ragtrace.trace(name=workflow)(lambda question: "answer")("where?")
        assert blocking.begun.wait(WAIT_S)
    ragtrace.shutdown(timeout=0.1)
    blocking.open()
    return runtime


def test_calls_that_are_left_are_entered_by_workflow_and_evaluator() -> None:
    """Each for every evaluator that had not scored it."""
    ledger = leave(["a", "a", "b"]).ledger
    rows = {(row.evaluator, row.workflow, row.reason): row.calls for row in ledger.rows() if row.outcome == "dropped"}
    assert rows == {
        ("screen", "a", "shutdown"): 2,
        ("judge", "a", "shutdown"): 2,
        ("screen", "b", "shutdown"): 1,
        ("judge", "b", "shutdown"): 1,
    }
    assert ledger.stats({}).pending == 0


def test_the_doctor_knows_the_last_of_them() -> None:
    """As many as it remembers of calls at all."""
    fates = leave([f"w{number}" for number in range(400)]).outcomes.last()
    workflows = {fate.workflow for fate in fates}
    assert (len(fates), "w399" in workflows, "w1" in workflows) == (300, True, False)


def test_more_than_are_pending_cannot_be_settled_at_once() -> None:
    """The books balance, or say so."""
    ledger = Ledger()
    ledger.count_offered(["x"] * 2, "w")
    with pytest.raises(ValueError, match="no pending call"):
        ledger.count_finished("x", "w", "dropped", "shutdown", calls=3)
    assert ledger.stats({}).pending == 2


# --- spans -----------------------------------------------------------------------------------------------------------


class Export:
    """An exporter's queue of spans that counts what is lost, unless it is the application's."""

    def __init__(self, *rooms: int, counts: bool = True) -> None:
        self.rooms, self.lost, self._counts = list(rooms), list[int](), counts

    def count_lost_spans(self, count: int) -> bool:
        self.lost.append(count)
        return self._counts

    def remaining_span_capacity(self) -> int:
        return self.rooms.pop(0) if len(self.rooms) > 1 else self.rooms[0]


def test_spans_for_which_there_is_time_are_ended_in_order() -> None:
    """None is lost then."""
    items, ended, export = [finished(str(number)) for number in range(5)], list[str](), Export(2)
    end_spans(items, lambda item: ended.append(item.step.workflow), export, monotonic() + WAIT_S)
    assert (ended, export.lost) == (["0", "1", "2", "3", "4"], [0])


def test_without_time_none_is_ended_and_all_are_released() -> None:
    """They are counted: those whose spans would have been exported."""
    items, export = [finished(str(number)) for number in range(5)], Export(2)
    end_spans(items, lambda _: pytest.fail("ended"), export, monotonic())
    assert (items, export.lost) == ([], [0, 0])


def test_spans_wait_for_room_in_the_queue_of_the_exporter() -> None:
    """They are ended as it comes, and not to be refused."""
    items, ended, export = [finished(str(number)) for number in range(5)], list[str](), Export(2, 0, 0, 3, 0)
    for item in items:
        item.step.span = NonRecordingSpan(SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(1)))
    end_spans(items, lambda item: ended.append(item.step.workflow), export, monotonic() + WAIT_S)
    assert (ended, export.rooms) == (["0", "1", "2", "3", "4"], [0])


def test_an_item_without_a_span_to_end_waits_for_no_room() -> None:
    """It is released at once."""
    items = [finished(str(number)) for number in range(5)]
    end_spans(items, lambda _: None, Export(0), monotonic() + WAIT_S)
    assert items == []


def test_spans_of_the_applications_own_exporter_are_all_ended() -> None:
    """The processors of the application may wait for them."""
    items, ended = [finished(str(number)) for number in range(5)], threading.Semaphore(0)
    end_spans(items, lambda _: ended.release(), Export(0, counts=False), monotonic())
    assert all(ended.acquire(blocking=False) for _ in range(5))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_cycles_is_left_as_it_was(enabled: bool) -> None:
    """It rests for the last moments of a shutdown only, and one that the application switched off stays off."""
    watch()
    ask("where?")
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        ragtrace.shutdown(WAIT_S)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
