"""What becomes of a call between its end and its scores."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from opentelemetry.trace import SpanContext

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.labels import Claim
from ragtrace.core.step import Step
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.pipeline.work_items import CallItem
from ragtrace.runtime.current_runtime import current
from ragtrace.testing import FakeJudge
from tests.support.watched import WAIT_S, ask, watch

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
        found.append((await runtime.processor.judge(unscored, last_try=False, taken_over=taken_over)).status)
        done.set()

    runtime = current()
    assert runtime is not None
    assert runtime.run_job(job)
    assert done.wait(WAIT_S)
    assert ragtrace.flush(WAIT_S)
    assert found == [status]
    (point,) = captured.metrics()[semconv.METRIC_JUDGE_COST].data_points
    assert point.value == cost


def test_what_a_shutdown_has_counted_is_what_the_call_says() -> None:
    """Also if the worker's thread, which was about to drop the call for another reason, goes on afterwards."""
    watch(judge=FakeJudge(PAID))
    runtime = current()
    assert runtime is not None
    assert runtime.ledger.count_offered(("fake",), "")
    item = CallItem(Step(), pending_evaluators={"fake"})
    runtime.processor.store_or_drop([item], ShutdownBudget(WAIT_S))
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
        runtime.processor.store_or_drop(items[at : at + 10], ShutdownBudget(WAIT_S))
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
