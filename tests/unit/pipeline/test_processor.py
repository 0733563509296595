"""What becomes of a call between its end and its scores."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk._logs.export import LogRecordExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

import ragtrace
from ragtrace.capture.redact import FAILED as NOT_REDACTED
from ragtrace.core import semconv
from ragtrace.core.labels import Claim
from ragtrace.core.ledger import FLEET
from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace.core.step import Step
from ragtrace.core.types import Evaluation, Judgement, RagCall, Timing
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.core.unscored_reasons import REASONS_OF_CALLS
from ragtrace.fleet import handover, publisher
from ragtrace.fleet.call_message import MOST_BYTES
from ragtrace.fleet.elsewhere import OtherProcesses
from ragtrace.fleet.scoring import FleetScoring
from ragtrace.fleet.spool import Spool
from ragtrace.pipeline.call_scoring import CallScoring
from ragtrace.pipeline.processor import CallProcessor
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.pipeline.step_spans import StepSpans
from ragtrace.pipeline.work_items import CallItem, Job, StepItem
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.guards import guard
from tests.support.scored import EVERY
from tests.support.services import free_ports
from tests.support.watched import CLAIMS, GOOD, HALF, WAIT_S, WaitingJudge, ask, eventually, generate, search, watch

CALL = ragtrace.RagCall(
    query="where?",
    contexts=(ragtrace.Document("Paris is a big city."),),
    answer="Paris is big.",
    workflow="guide",
    span=SpanContext(1, 1, True),
)
PAID = ragtrace.Judgement(
    claims=(Claim("Paris is big.", 0, 13, "supported"),), answer_label="answered", n_calls=1, cost_usd=0.25
)
FAILED = ragtrace.judges.JudgeError("unavailable", retryable=False, n_calls=2, cost_usd=0.5)


@pytest.mark.parametrize(
    ("reply", "elsewhere", "status", "cost"), [(FAILED, False, "retried", 0.5), (PAID, True, "taken_over", 0.25)]
)
def test_a_judgement_of_a_worker_that_is_not_sent_is_paid_for(
    reply: Any, elsewhere: bool, status: str, cost: float
) -> None:
    """A call that another worker judges, or judges again, costs twice: the metrics say so."""
    captured = watch(judge=FakeJudge(reply))
    found: list[str] = []
    done = threading.Event()

    async def taken_over() -> bool:
        return elsewhere

    async def job() -> None:
        runtime = current()
        assert runtime is not None
        unscored = UnscoredCall(CALL, ("fake",), None, 1.0)
        scoring = FleetScoring.of(runtime)
        found.append((await scoring.judge(unscored, last_try=False, taken_over=taken_over)).status)
        done.set()

    runtime = current()
    assert runtime is not None
    assert runtime.run_job(job)
    assert done.wait(WAIT_S)
    assert ragtrace.flush(WAIT_S)
    assert found == [status]
    (point,) = captured.metrics()[semconv.METRIC_JUDGE_COST].data_points
    assert point.value == cost


def test_a_processor_assigns_nothing_after_its_construction() -> None:
    """It has no lock, and its methods run on several threads: what changes is in its parts, each with its own rule."""
    defined = [ast.parse(inspect.getsource(each)).body[0] for each in (CallProcessor, StepSpans, CallScoring)]
    bodies = [part for each in defined if isinstance(each, ast.ClassDef) for part in each.body]
    methods = [each for each in bodies if getattr(each, "name", "__init__") != "__init__"]
    assert len(methods) > 20
    assigned = [
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]
    assert assigned == []


def test_what_a_shutdown_has_counted_is_what_the_call_says() -> None:
    """Also if the worker's thread, which was about to drop the call for another reason, goes on afterwards."""
    watch(judge=FakeJudge(PAID))
    runtime = current()
    assert runtime is not None
    assert runtime.ledger.count_offered(("fake",), "")
    item = CallItem(Step(), pending_evaluators={"fake"})
    runtime.processor.unscored.store_or_drop([item], ShutdownBudget(WAIT_S))
    runtime.processor.reject(item)
    assert (item.dropped, ragtrace.stats().dropped) == ("shutdown", {"shutdown": 1})


def test_a_call_that_two_threads_drop_has_the_reason_that_is_counted() -> None:
    """Whichever of a shutdown and the worker's thread is first, for every call."""
    watch(judge=FakeJudge(PAID))
    runtime = current()
    assert runtime is not None
    items = [CallItem(Step(), pending_evaluators={"fake"}) for _ in range(2_000)]
    for _ in items:
        assert runtime.ledger.count_offered(("fake",), "")
    begun = threading.Barrier(2)

    def reject_all() -> None:
        begun.wait(WAIT_S)
        for item in reversed(items):
            runtime.processor.reject(item)

    worker = threading.Thread(target=reject_all)
    worker.start()
    begun.wait(WAIT_S)
    for at in range(0, len(items), 10):
        runtime.processor.unscored.store_or_drop(items[at : at + 10], ShutdownBudget(WAIT_S))
    worker.join(WAIT_S)
    assert Counter(item.dropped for item in items) == ragtrace.stats().dropped
    assert ragtrace.stats().pending == 0


@ragtrace.trace(name="guide")
def fail(question: str) -> str:
    raise LookupError("no index")


def _refuse(text: str) -> str:
    raise ValueError("not this text")


@pytest.mark.parametrize("raises", [True, False])
def test_a_call_whose_redaction_failed_is_an_error_on_its_span_as_in_the_counts(raises: bool) -> None:
    """Whether or not the application failed, too: the counts and the span say the same."""
    captured = watch(redact=ragtrace.Redact(function=_refuse))
    if raises:
        with pytest.raises(LookupError):
            fail("where?")
    else:
        ask("where?")
    assert ragtrace.flush(WAIT_S)
    assert (ragtrace.stats().failed, ragtrace.stats().sampled_out) == ({"redaction": 1}, {})
    attributes = captured.root().attributes or {}
    assert (attributes[semconv.EVAL_STATUS], attributes[semconv.REASON]) == ("error", "redaction")


# --- each way of a call from its end to its scores -------------------------------------------------------------------

Ends = Mapping[str, tuple[str, str]]
"""Outcome and reason of a call in the ledger, by evaluator."""


def _ends() -> Counter[tuple[str, str, str]]:
    """Return how often each evaluator counted each outcome and reason, of all calls that were offered to it."""
    runtime = current()
    assert runtime is not None
    counts: Counter[tuple[str, str, str]] = Counter()
    offered: Counter[str] = Counter()
    for row in runtime.ledger.rows():
        if row.outcome == "offered":
            offered[row.evaluator] += row.calls
        else:
            counts[row.evaluator, row.outcome, row.reason] += row.calls
    for (evaluator, _, _), calls in counts.items():
        offered[evaluator] -= calls
    assert not any(offered.values()), "calls that are pending, or were counted twice"
    return counts


def _once(ends: Ends) -> Counter[tuple[str, str, str]]:
    return Counter((evaluator, *end) for evaluator, end in ends.items())


def _announced(captured: Captured) -> Counter[tuple[object, object]]:
    """Return how often the result of each evaluator for each metric was sent as an event."""
    found = [event.log_record.attributes or {} for event in captured.events]
    named = [each for each in found if semconv.EVALUATOR_ID in each]
    return Counter((each[semconv.EVALUATOR_ID], each[semconv.EVALUATION_NAME]) for each in named)


def _requests(evaluator: str = "judge") -> int:
    """Return how often a judge was asked."""
    runtime = current()
    assert runtime is not None
    statuses = runtime.judge_statuses()
    return statuses[evaluator].asked + statuses[evaluator].spared if evaluator in statuses else 0


def _status(span: ReadableSpan) -> tuple[object, object]:
    attributes = span.attributes or {}
    return attributes.get(semconv.EVAL_STATUS), attributes.get(semconv.REASON)


def _judged_by(*script: Judgement | BaseException, **settings: Any) -> Callable[[], Captured]:
    """Return a function that configures ragtrace with a judge which sees every call, and with no screen."""
    given = {"screen": None, "sampling": EVERY, "metrics": ["faithfulness"], **settings}
    return lambda: watch(judge=FakeJudge(*script, name="judge"), **given)


def _screened_by(*script: Judgement | BaseException, then: Judgement = GOOD, **settings: Any) -> Callable[[], Captured]:
    """Return a function that configures ragtrace with a screen, and a judge that says *then* of what is sampled."""
    return lambda: _judged_by(then, screen=FakeJudge(*script, name="screen"), **settings)()


class Undecided(Judgement):
    """Judgement that gives no label, for one reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reasons={"": reason})


def _exit(_: object) -> Any:
    raise SystemExit(3)


def _raise(_: object) -> Any:
    raise LookupError("no such rule")


def _yes(call: RagCall) -> bool:
    return True


REFUSED = ragtrace.judges.JudgeError("refused", retryable=False)
PASSING = ragtrace.judges.JudgeError("unavailable", retryable=True)
ABSTAINED = Judgement(answer_label="abstained", claims=())
WAYS: Mapping[str, tuple[Callable[[], Captured], Ends, tuple[str, str | None]]] = {
    "scored": (_judged_by(GOOD), {"judge": ("scored", "")}, ("ok", None)),
    "scored: the metric does not apply": (_judged_by(ABSTAINED), {"judge": ("scored", "abstained")}, ("ok", None)),
    "partial": (
        _judged_by(
            Judgement(claims=CLAIMS, reasons={"consistency": "unparsable"}), metrics=["faithfulness", "consistency"]
        ),
        {"judge": ("partial", "unparsable")},
        ("partial", None),
    ),
    "unscored: the judge errs": (
        _judged_by(Undecided("unparsable")),
        {"judge": ("failed", "unparsable")},
        ("error", None),
    ),
    "unscored: the judge is suspect": (
        _judged_by(Undecided("control_failed")),
        {"judge": ("failed", "control_failed")},
        ("error", None),
    ),
    "unscored: skipped": (_judged_by(Undecided("disabled")), {"judge": ("scored", "disabled")}, ("ok", None)),
    "the judge fails for good": (_judged_by(REFUSED, GOOD), {"judge": ("failed", "refused")}, ("error", None)),
    "the judge fails, and is asked again": (_judged_by(PASSING, GOOD), {"judge": ("scored", "")}, ("ok", None)),
    "the judge raises anything": (
        _judged_by(ValueError("no")),
        {"judge": ("failed", "unavailable")},
        ("error", None),
    ),
    "not sampled": (
        _judged_by(GOOD, sampling=ragtrace.Sampling(rate=0.0)),
        {"judge": ("sampled_out", "not_sampled")},
        ("not_sampled", "not_sampled"),
    ),
    "never": (
        _judged_by(GOOD, sampling=ragtrace.Sampling(rate=1.0, never=[_yes])),
        {"judge": ("sampled_out", "never_rule")},
        ("not_sampled", "never_rule"),
    ),
    "always": (
        _judged_by(GOOD, sampling=ragtrace.Sampling(rate=0.0, always=[_yes])),
        {"judge": ("scored", "")},
        ("ok", None),
    ),
    "screened and judged": (
        _screened_by(HALF),
        {"screen": ("scored", ""), "judge": ("scored", "")},
        ("ok", None),
    ),
    "screened and not sampled": (
        _screened_by(HALF, sampling=ragtrace.Sampling(rate=0.0)),
        {"screen": ("scored", ""), "judge": ("sampled_out", "not_sampled")},
        ("ok", None),
    ),
    "shown to the judge by the screen": (
        _screened_by(ABSTAINED, sampling=ragtrace.Sampling(rate=0.0, always=["abstained"]), metrics=["answered"]),
        {"screen": ("scored", ""), "judge": ("scored", "")},
        ("ok", None),
    ),
    "the screen fails": (
        _screened_by(REFUSED),
        {"screen": ("failed", "refused"), "judge": ("scored", "")},
        ("partial", None),
    ),
    "measured": (
        _judged_by(GOOD, metrics=["duration_s", "faithfulness"]),
        {"ragtrace": ("scored", ""), "judge": ("scored", "")},
        ("ok", None),
    ),
    "the redaction fails": (
        _judged_by(GOOD, redact=ragtrace.Redact(function=_refuse)),
        {"judge": ("failed", "redaction")},
        ("error", "redaction"),
    ),
    "the redaction exits": (
        _judged_by(GOOD, redact=ragtrace.Redact(function=_exit)),
        {"judge": ("failed", "redaction")},
        ("error", "redaction"),
    ),
    "a sampling rule fails": (
        _judged_by(GOOD, sampling=ragtrace.Sampling(rate=1.0, never=[_raise])),
        {"judge": ("scored", "")},
        ("ok", None),
    ),
    "a sampling rule exits": (
        _screened_by(HALF, sampling=ragtrace.Sampling(rate=1.0, never=[_exit])),
        {"screen": ("scored", ""), "judge": ("failed", "internal")},
        ("error", None),
    ),
    "nobody scores": (lambda: watch(screen=None), {}, ("not_sampled", None)),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_the_scores_is_counted_once_and_stands_on_the_span(way: str) -> None:
    """Each evaluator has one outcome, the root span says the same, and no result is announced twice."""
    configure, ends, status = WAYS[way]
    captured = configure()
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    assert _ends() == _once(ends)
    assert _status(captured.root()) == status
    assert set(_announced(captured).values()) <= {1}
    scored = {evaluator for evaluator, (outcome, _) in ends.items() if outcome in ("scored", "partial")}
    assert scored <= {evaluator for evaluator, _ in _announced(captured)}
    outcome, reason = ends.get("judge", ("", ""))
    if outcome in ("", "sampled_out") or reason in ("redaction", "internal"):
        assert _requests() == 0


@pytest.mark.parametrize("spooled", [False, True])
def test_a_judge_that_cancels_all_tasks_shuts_nothing_down(spooled: bool, tmp_path: Path) -> None:
    """The calls that it takes along have failed, and say so; the next ones are scored.

    `unavailable` has a call whose request to the judge is cancelled when the task that waits for it has not begun.
    """

    class Cancelling(FakeJudge):
        async def judge(self, call: RagCall) -> ragtrace.Judgement:
            if "4" in (call.query or ""):
                for task in asyncio.all_tasks():
                    task.cancel()
            await asyncio.sleep(0)
            return await super().judge(call)

    limits = ragtrace.Limits(spool=tmp_path / "spool.db") if spooled else ragtrace.Limits()
    judge = Cancelling(HALF, name="judge", limits=ragtrace.JudgeLimits(concurrency=4))
    captured = watch(screen=None, judge=judge, sampling=EVERY, limits=limits, metrics=["faithfulness"])
    for number in range(10):
        ask(f"where? {number}")
    assert ragtrace.flush(WAIT_S)
    ask("and where?")
    assert ragtrace.flush(WAIT_S)
    ends = _ends()
    assert ends.total() == 11
    failed = {("judge", "failed", "cancelled"), ("judge", "failed", "unavailable")}
    assert sum(ends[each] for each in failed) >= 1
    assert ends.keys() <= {*failed, ("judge", "scored", "")}
    statuses = Counter(_status(root) for root in captured.roots())
    assert statuses["error", "cancelled"] == ends["judge", "failed", "cancelled"]
    assert statuses["ok", None] == ends["judge", "scored", ""]


def test_a_judgement_that_is_known_is_not_paid_again() -> None:
    """Of two calls with the same texts both are scored, and the judge is asked about one."""
    judge = FakeJudge(PAID, name="judge")
    captured = watch(screen=None, judge=judge, sampling=EVERY, metrics=["faithfulness"])
    for _ in range(2):
        ask("where?")
        assert ragtrace.flush(WAIT_S)
    assert (len(judge.calls), _ends()) == (1, Counter({("judge", "scored", ""): 2}))
    (point,) = captured.metrics()[semconv.METRIC_JUDGE_COST].data_points
    assert point.value == 0.25


def test_calls_beyond_the_budget_are_counted_and_say_so() -> None:
    """Each of many calls is either judged, or left out for the budget with its probability on the span."""
    captured = _judged_by(GOOD, sampling=ragtrace.Sampling(rate=1.0, per_minute=1e-6))()
    for number in range(40):
        ask(f"question {number}")
    assert ragtrace.flush(WAIT_S)
    ends = _ends()
    assert set(ends) == {("judge", "scored", ""), ("judge", "sampled_out", "budget")}
    assert Counter(map(_status, captured.roots())) == Counter(
        {
            ("ok", None): ends["judge", "scored", ""],
            ("not_sampled", "budget"): ends["judge", "sampled_out", "budget"],
        }
    )
    assert all(0 < (span.attributes or {})[semconv.EVAL_PROBABILITY] <= 1 for span in captured.roots())  # type: ignore[operator]


def test_the_budget_knows_what_each_judgement_costs(caplog: pytest.LogCaptureFixture) -> None:
    """A judge that reports no cost is named in the log."""
    faults.clear()
    _judged_by(GOOD, sampling=ragtrace.Sampling(rate=1.0, usd_per_day=1e6))()
    for number in range(3):
        ask(f"question {number}")
    assert ragtrace.flush(WAIT_S)
    assert "none of the first 3 judgements said what it cost" in caplog.text


def test_a_call_that_failed_before_an_answer_is_not_judged() -> None:
    """Its span shows the failure of the application, and its status."""
    captured = _judged_by(GOOD)()
    with pytest.raises(LookupError):
        fail("where?")
    assert ragtrace.flush(WAIT_S)
    assert _ends() == _once({"judge": ("sampled_out", "call_failed")})
    assert _status(captured.root()) == ("call_failed", None)


def test_a_guarded_call_is_judged_once_and_whatever_the_rate() -> None:
    """The guard's evaluation is that of the call."""
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=0.0), metrics=["faithfulness"])

    @ragtrace.trace(name="guide", guard=guard("annotate"))
    def guarded(question: str) -> str:
        return generate(question, search(question))

    guarded("where?")
    assert ragtrace.flush(WAIT_S)
    assert (_ends(), _requests()) == (_once({"judge": ("scored", "")}), 1)
    assert _status(captured.root()) == ("ok", None)
    assert (captured.root().attributes or {})[semconv.EVAL_PROBABILITY] == 1.0


# --- calls for which there is no room, or no time --------------------------------------------------------------------


def _finished(captured: Captured, calls: int) -> list[ReadableSpan]:
    """Return the root spans of *calls* calls, in the order in which the calls began."""
    roots = sorted(captured.roots(), key=lambda span: span.start_time or 0)
    assert len(roots) == calls
    return roots


def test_a_call_that_the_full_queue_refuses_is_dropped() -> None:
    """The screen keeps the only place."""
    screen = WaitingJudge(blocking=True)
    captured = watch(screen=screen, limits=ragtrace.Limits(capacity=1), metrics=["faithfulness"])
    ask("first")
    assert screen.begun.wait(WAIT_S)
    ask("second")
    screen.open()
    assert ragtrace.flush(WAIT_S)
    assert _ends() == _once({"waiting": ("scored", "")}) + _once({"waiting": ("dropped", "queue_full")})
    assert list(map(_status, _finished(captured, 2))) == [("ok", None), ("dropped", "queue_full")]


def test_a_call_that_is_too_large_for_the_queue_is_dropped() -> None:
    """The worker finds that out when it weighs the call; a call after it is scored."""
    captured = _judged_by(GOOD, limits=ragtrace.Limits(queue_bytes=1_000_000))()
    generate("large", ["x" * 3_000_000])
    generate("small", ["x"])
    assert ragtrace.flush(WAIT_S)
    assert _ends() == _once({"judge": ("dropped", "queue_full")}) + _once({"judge": ("scored", "")})
    large, small = _finished(captured, 2)
    assert (_status(large), _status(small)) == (("dropped", "queue_full"), ("ok", None))
    assert not any("input" in name or "retrieval" in name for name in large.attributes or {})


@pytest.mark.parametrize("screened", [True, False])
def test_a_call_that_finds_no_place_at_the_judge_is_dropped_there(screened: bool) -> None:
    """It keeps the scores of the screen, if there is one."""
    judge, screen = WaitingJudge(), FakeJudge(GOOD, name="screen") if screened else None
    limits = ragtrace.Limits(capacity=1)
    captured = watch(screen=screen, judge=judge, sampling=EVERY, limits=limits, metrics=["faithfulness"])
    ask("first")
    assert judge.begun.wait(WAIT_S)
    ask("second")
    assert eventually(lambda: bool(ragtrace.stats().dropped))
    judge.open()
    assert ragtrace.flush(WAIT_S)
    by_screen = Counter({("screen", "scored", ""): 2} if screened else {})
    assert _ends() == by_screen + _once({"waiting": ("scored", "")}) + _once({"waiting": ("dropped", "queue_full")})
    second = ("partial" if screened else "dropped", "queue_full")
    assert list(map(_status, _finished(captured, 2))) == [("ok", None), second]


class _FirstWaits(WaitingJudge):
    """Judge that lets the calls about "first" wait, and answers all others at once."""

    async def judge(self, call: RagCall) -> Judgement:
        return await super().judge(call) if call.query == "first" else GOOD


def test_a_call_that_a_guard_has_had_judged_needs_no_place_at_the_judge() -> None:
    """Its score is there, and paid for; the call that waits for the judge has the only place."""
    judge = _FirstWaits()
    watch(screen=None, judge=judge, sampling=EVERY, limits=ragtrace.Limits(capacity=1), metrics=["faithfulness"])
    ask("first")
    assert judge.begun.wait(WAIT_S)

    @ragtrace.trace(name="guarded", guard=guard())
    def guarded(question: str) -> str:
        search(question)
        return "In France."

    guarded("second")
    assert eventually(lambda: ragtrace.stats().evaluators["waiting"].pending == 1)
    judge.open()
    assert ragtrace.flush(WAIT_S)
    assert _ends() == Counter({("waiting", "scored", ""): 2})


@pytest.mark.parametrize("spooled", [True, False])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_shutdown_counts_what_is_in_progress_and_what_is_queued(
    blocking: bool, spooled: bool, tmp_path: Path
) -> None:
    """Also where the call in progress blocks the worker, and goes on when the shutdown has counted it."""
    judge, path = WaitingJudge(blocking=blocking), tmp_path / "spool.db"
    limits = ragtrace.Limits(spool=path if spooled else None)
    captured = watch(screen=None, judge=judge, sampling=EVERY, limits=limits, metrics=["faithfulness"])
    ask("first")
    assert judge.begun.wait(WAIT_S)
    ask("second")
    runtime = current()
    assert runtime is not None
    ragtrace.shutdown(timeout=4.0)
    judge.open()
    reason = "spooled" if spooled else "shutdown"
    assert ragtrace.stats().evaluators["waiting"].dropped == {reason: 2}
    assert (ragtrace.stats().pending, ragtrace.stats().offered) == (0, 2)
    status = ("deferred", None) if spooled else ("dropped", "shutdown")
    assert list(map(_status, _finished(captured, 2))) == [status] * 2
    assert not captured.events
    if spooled:
        assert Spool(str(path)).contents().calls == 2


class EndingJudge(WaitingJudge):
    """Judge that shuts ragtrace down where it is asked to, on the worker's thread, and else does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.complete: list[bool] = []
        self.ended = threading.Event()

    async def judge(self, call: RagCall) -> Judgement:
        if call.query == "end":
            self.complete.append(ragtrace.shutdown(timeout=4.0))
            self.ended.set()
        return await super().judge(call)


@pytest.mark.parametrize("spooled", [True, False])
def test_a_shutdown_on_the_worker_counts_what_it_cannot_cancel(spooled: bool, tmp_path: Path) -> None:
    """The calls that wait beside the one whose judge calls it, and that one, too: each once, and none is pending."""
    judge, path = EndingJudge(), tmp_path / "spool.db"
    limits = ragtrace.Limits(spool=path if spooled else None)
    captured = watch(screen=None, judge=judge, sampling=EVERY, limits=limits, metrics=["faithfulness"])
    for number in range(3):
        ask(f"wait {number}")
    assert eventually(lambda: judge.asked == 3)
    ask("end")
    assert judge.ended.wait(WAIT_S)
    reason = "spooled" if spooled else "shutdown"
    assert ragtrace.stats().evaluators["waiting"].dropped == {reason: 4}
    assert (judge.complete, ragtrace.stats().pending, ragtrace.stats().offered) == ([False], 0, 4)
    status = ("deferred", None) if spooled else ("dropped", "shutdown")
    assert list(map(_status, _finished(captured, 4))) == [status] * 4
    assert not captured.events
    if spooled:
        assert Spool(str(path)).contents().calls == 4


# --- ending a span without scores ------------------------------------------------------------------------------------

DROPPED: Mapping[str, tuple[str, str | None]] = {
    **{reason: ("dropped", reason) for reason in REASONS_OF_CALLS["dropped"] - {"spooled"}},
    "spooled": ("deferred", None),
    "call_failed": ("call_failed", None),
    "head_dropped": ("not_sampled", None),
    "redaction": ("error", "redaction"),
}
"""Status and reason on the span of a call that is dropped, by the reason under which it is counted."""


class _Guard:
    """Guard of a step that keeps the reasons for which it was closed."""

    evaluator, call, score, added_s, has_evaluation = "judge", None, None, None, False

    def __init__(self) -> None:
        self.closed: list[str] = []

    async def evaluation(self, call: RagCall, evaluate: Callable[[], Awaitable[Evaluation]]) -> Evaluation:
        return await evaluate()

    def close(self, reason: str = "unscored") -> None:
        self.closed.append(reason)

    def attributes(self) -> Mapping[str, str | int]:
        return {}


def _ended_step() -> Step:
    """Return a step that has ended, with a span that has not."""
    runtime = current()
    assert runtime is not None
    step = Step()
    step.workflow, step.query, step.ended, step.end_ns = "guide", "where?", True, time_ns()
    step.span, step.context = runtime.telemetry.tracer.start_span("guide"), Context()
    return step


def _call_item() -> CallItem:
    """Return a call that is counted as offered to the judge."""
    runtime = current()
    assert runtime is not None
    assert runtime.ledger.count_offered(("judge",), "guide")
    return CallItem(_ended_step(), pending_evaluators={"judge"})


@pytest.mark.parametrize("reason", sorted(DROPPED))
def test_a_dropped_call_is_counted_once_and_its_span_says_why(reason: str) -> None:
    """However often it is dropped; its guard is told, and its span ends when the call did."""
    captured, item, runtime = _judged_by(GOOD)(), _call_item(), current()
    assert runtime is not None
    item.step.guard = guard_of_step = _Guard()
    for _ in range(2):
        runtime.processor.drop(item, reason)
    assert _ends() == _once({"judge": ("dropped", reason)})
    (span,) = captured.spans
    assert (_status(span), span.end_time) == (DROPPED[reason], item.step.end_ns)
    assert set(guard_of_step.closed) == {reason}
    assert (item.step.written, item.step.context) == (True, None)


@pytest.mark.parametrize("reason", ["", "queue_full"])
def test_a_call_is_dropped_for_the_reason_that_it_has(reason: str) -> None:
    """Or else for the shutdown."""
    captured, item, runtime = _judged_by(GOOD)(), _call_item(), current()
    assert runtime is not None
    item.dropped_in_handling = reason
    runtime.processor.drop(item)
    assert _ends() == _once({"judge": ("dropped", reason or "shutdown")})
    assert _status(captured.spans[0]) == ("dropped", reason or "shutdown")


@pytest.mark.parametrize("reason", sorted(DROPPED))
def test_a_span_that_has_been_written_stays_as_it_is(reason: str) -> None:
    """A call that is dropped afterwards is counted, and its duration is recorded once."""
    captured, item, runtime = _judged_by(GOOD)(), _call_item(), current()
    assert runtime is not None
    item.step.timing = Timing(0.5)
    runtime.processor.write(item)
    before = [dict(span.attributes or {}) for span in captured.spans]
    runtime.processor.write(item)
    runtime.processor.drop(item, reason)
    assert _ends() == _once({"judge": ("dropped", reason)})
    assert [dict(span.attributes or {}) for span in captured.spans] == before
    [durations] = captured.metrics()[semconv.METRIC_WORKFLOW_DURATION].data_points
    assert durations.count == 1


def test_a_step_that_is_rejected_ends_without_content() -> None:
    """It is no call: it has no outcome in the counts, and no status on its span."""
    captured, runtime = _judged_by(GOOD)(), current()
    assert runtime is not None
    item = StepItem(_ended_step())
    runtime.processor.reject(item)
    assert (item.dropped, item.step.query) == ("queue_full", "where?")
    asyncio.run(runtime.processor.handle(item))
    assert _ends() == Counter()
    (span,) = captured.spans
    assert (_status(span), span.end_time, dict(span.attributes or {})) == ((None, None), item.step.end_ns, {})


def test_a_rejected_call_keeps_no_texts_and_is_not_scored() -> None:
    """It is counted at once, by the thread that rejects it, and its span ends when the item is handled."""
    captured, item, runtime = _judged_by(GOOD)(), _call_item(), current()
    assert runtime is not None
    runtime.processor.reject(item)
    assert (_ends(), item.step.query) == (_once({"judge": ("dropped", "queue_full")}), None)
    assert not captured.spans
    asyncio.run(runtime.processor.handle(item))
    assert _ends() == _once({"judge": ("dropped", "queue_full")})
    assert _status(captured.spans[0]) == ("dropped", "queue_full")


def test_a_rejected_job_is_done_all_the_same() -> None:
    """A job is no call; the queue's limits are not for it."""
    _judged_by(GOOD)()
    runtime, done = current(), threading.Event()
    assert runtime is not None

    async def job() -> None:
        done.set()

    item = Job(job)
    runtime.processor.reject(item)
    asyncio.run(runtime.processor.handle(item))
    assert (done.is_set(), _ends()) == (True, Counter())


# --- calls of the spool file -----------------------------------------------------------------------------------------


def _unscored(*evaluators: str, probability: float | None = None, **changes: Any) -> UnscoredCall:
    return UnscoredCall(replace(SPOOLED, **changes), evaluators or ("judge",), None, probability)


def _kept(*script: Judgement | BaseException, **settings: Any) -> Callable[[Path], Captured]:
    """Return a function that configures ragtrace as `_judged_by` does, with a spool file."""
    return lambda path: _judged_by(*script, limits=ragtrace.Limits(spool=path), **settings)()


SPOOLED = replace(CALL, span=SpanContext(1, 1, True, TraceFlags(TraceFlags.SAMPLED)))
UNSAMPLED = SpanContext(1, 1, True, TraceFlags(TraceFlags.DEFAULT))
NONE = ragtrace.Sampling(rate=0.0)
SPOOLED_WAYS: Mapping[str, tuple[UnscoredCall, Callable[..., Captured], Ends, float | None]] = {
    "scored": (_unscored(), _kept(GOOD), {"judge": ("scored", "")}, 1.0),
    "decided before": (_unscored(probability=0.25), _kept(GOOD, sampling=NONE), {"judge": ("scored", "")}, 0.25),
    "not sampled": (_unscored(), _kept(GOOD, sampling=NONE), {"judge": ("sampled_out", "not_sampled")}, None),
    "the judge fails": (_unscored(), _kept(REFUSED), {"judge": ("failed", "refused")}, 1.0),
    "not redacted": (_unscored(answer=NOT_REDACTED), _kept(GOOD), {"judge": ("failed", "redaction")}, None),
    "head dropped": (_unscored(span=UNSAMPLED), _kept(GOOD), {"judge": ("sampled_out", "head_dropped")}, None),
    "call failed": (
        _unscored(answer=None, error="no index"),
        _kept(GOOD),
        {"judge": ("sampled_out", "call_failed")},
        None,
    ),
    "screened and judged": (
        _unscored("screen", "judge"),
        _kept(GOOD, screen=FakeJudge(HALF, name="screen")),
        {"screen": ("scored", ""), "judge": ("scored", "")},
        1.0,
    ),
    "judged before": (
        _unscored("screen"),
        _kept(GOOD, screen=FakeJudge(HALF, name="screen")),
        {"screen": ("scored", "")},
        1.0,
    ),
    "a judge of then": (_unscored("gone"), _kept(GOOD), {"gone": ("dropped", "not_configured")}, None),
    "a rule exits": (
        _unscored(),
        _kept(GOOD, sampling=ragtrace.Sampling(rate=1.0, never=[_exit])),
        {"judge": ("failed", "internal")},
        None,
    ),
}


@pytest.mark.parametrize("way", SPOOLED_WAYS)
def test_each_way_of_a_spooled_call_is_counted_once_and_ends_in_the_file(way: str, tmp_path: Path) -> None:
    """Scores go onto a span of their own, with the call's probability; the call leaves the file."""
    unscored, configure, ends, probability = SPOOLED_WAYS[way]
    path = tmp_path / "spool.db"
    assert Spool(str(path)).add([unscored]) == [True]
    captured = configure(path)
    assert ragtrace.flush(WAIT_S)
    assert _ends() == _once(ends)
    assert Spool(str(path)).contents().calls == 0
    assert set(_announced(captured).values()) <= {1}
    assert _requests() == ("judge" in ends and probability is not None)
    assert [(span.attributes or {}).get(semconv.EVAL_PROBABILITY) for span in captured.spans] == (
        [] if probability is None else [probability]
    )


def test_a_spooled_call_whose_scoring_is_cancelled_stays_in_the_file(tmp_path: Path) -> None:
    """It is counted as spooled once more, and no scores of it are sent."""
    path, judge = tmp_path / "spool.db", WaitingJudge(name="judge")
    assert Spool(str(path)).add([_unscored()]) == [True]
    captured = watch(screen=None, judge=judge, sampling=EVERY, limits=ragtrace.Limits(spool=path))
    assert not ragtrace.flush(0.1)
    assert judge.begun.wait(WAIT_S)
    with closing(sqlite3.connect(path)) as database:  # in case that the judge ends the process
        assert database.execute("SELECT tries FROM calls").fetchall() == [(1,)]
    ragtrace.shutdown(timeout=1.0)
    judge.open()
    assert ragtrace.stats().evaluators["judge"].dropped == {"spooled": 1}
    assert (ragtrace.stats().pending, len(captured.spans), Spool(str(path)).contents().calls) == (0, 0, 1)


def test_a_spooled_call_that_no_message_can_hold_leaves_the_file(tmp_path: Path) -> None:
    """It was stored while the broker of a fleet was away, which would refuse it at every try."""
    path = tmp_path / "spool.db"
    assert Spool(str(path)).add([_unscored(FLEET, answer="x" * MOST_BYTES)]) == [True]
    ragtrace.configure(
        exporter=Captured().signals,
        screen=None,
        sampling=EVERY,
        fleet="redis://127.0.0.1:1/0",  # no message gets so far as to the broker, which is away
        limits=ragtrace.Limits(spool=path),
    )
    assert ragtrace.flush(WAIT_S)
    assert _ends() == _once({FLEET: ("dropped", "too_large")})
    assert Spool(str(path)).contents().calls == 0


def test_calls_that_another_process_takes_out_of_the_spool_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the broker is away, 8 calls are stored, each is counted, and 3 are remembered."""
    monkeypatch.setattr(handover, "_MOST_REMEMBERED", 3)
    monkeypatch.setattr(publisher, "_AWAY_SECONDS", 0.0)
    path = tmp_path / "spool.db"
    with free_ports(1) as (port,):
        watch(screen=None, sampling=EVERY, fleet=f"redis://127.0.0.1:{port}/0", limits=ragtrace.Limits(spool=path))
    for stored in (4, 8):
        for _ in range(4):
            ask("How tall is the tower?")
        assert ragtrace.flush(WAIT_S)
        assert ragtrace.stats().evaluators[FLEET].dropped == {"spooled": stored}
        other = Spool(str(path))
        other.delete([call.number for call in other.claim(stored)])
    runtime = current()
    assert runtime is not None
    assert isinstance(runtime.elsewhere, OtherProcesses)
    assert runtime.elsewhere._handover is not None
    assert len(runtime.elsewhere._handover._spooled) == 3
    assert (Spool(str(path)).contents().calls, ragtrace.stats().pending) == (0, 0)


# --- receivers that fail ---------------------------------------------------------------------------------------------


class _FailingSpans(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("no receiver of spans")


class _FailingLogs(LogRecordExporter):
    def export(self, batch: Sequence[object]) -> Any:
        raise OSError("no receiver of logs")

    def shutdown(self) -> None: ...

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


class _FailingSink:
    name, most_at_once = "failing", 10

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        raise OSError("no receiver of scores")


def _not_notified(notice: object) -> None:
    raise OSError("no receiver of alerts")


RECEIVERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "spans": ({"spans": _FailingSpans()}, {}),
    "logs": ({"logs": _FailingLogs()}, {}),
    "scores": ({"scores": _FailingSink()}, {}),
    "alerts": ({}, {"alerts": [ragtrace.Alert("faithfulness", below=0.9, min_calls=1, notify=_not_notified)]}),
}
"""Signals and settings with a receiver that raises."""


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_receiver_that_raises_keeps_the_scores_from_nobody_else(receiver: str) -> None:
    """Every call is counted as scored, once, and all other receivers get it."""
    signals, settings = RECEIVERS[receiver]
    captured = Captured()
    watch_with = replace(captured.signals, **signals)
    judge = FakeJudge(HALF, name="judge")
    given: dict[str, Any] = {"screen": None, "sampling": EVERY, "metrics": ["faithfulness"], **settings}
    ragtrace.configure(exporter=watch_with, judge=judge, **given)
    for number in range(3):
        ask(f"question {number}")
    ragtrace.flush(1.0)
    assert _ends() == Counter({("judge", "scored", ""): 3})
    assert list(map(_status, captured.roots())) == ([] if receiver == "spans" else [("ok", None)] * 3)
    assert _announced(captured) == Counter({} if receiver == "logs" else {("judge", "faithfulness"): 3})
