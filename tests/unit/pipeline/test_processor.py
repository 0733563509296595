"""What becomes of a call between its end and its scores."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry.trace import SpanContext

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.labels import Claim
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.runtime.current_runtime import current
from ragtrace.testing import FakeJudge
from tests.support.watched import WAIT_S, watch

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
