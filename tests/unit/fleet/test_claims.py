"""Claims of a worker without a store that answers; those in a running Redis are in the integration tests."""

from __future__ import annotations

from opentelemetry.trace import SpanContext

from ragtrace.fleet.claims import RedisClaims, WorkerClaims, claim_id
from ragtrace.system.faults import faults
from tests.support.services import free_ports

SPAN = SpanContext(1, 1, is_remote=True)


def test_the_id_of_a_claim_tells_calls_and_evaluators_apart() -> None:
    """The same call and evaluator have the same id in every process."""
    spans = [SpanContext(1, number, is_remote=True) for number in (1, 2)]
    ids = [claim_id(span, evaluator, version) for span in spans for evaluator in "ab" for version in "12"]
    assert len(set(ids)) == 8
    assert claim_id(spans[0], "a", "1") == ids[0]


def test_a_store_that_does_not_answer_stops_no_call() -> None:
    """The call is judged without a claim; that is counted, and each failure is a fault."""
    with free_ports(1) as (port,):
        pass
    before = faults.counts().get("fleet: store of claims", 0)
    claims = WorkerClaims(RedisClaims(f"redis://127.0.0.1:{port}/0"), "judge", "1", 60)
    assert claims.claim_all([(SPAN, "message", "")]) == ["unknown"]
    assert claims.holds(SPAN, "message")
    claims.confirm(SPAN)
    claims.release(SPAN, "message")
    assert claims.counts == {"unknown": 1}
    assert faults.counts()["fleet: store of claims"] == before + 4
    faults.clear()


def test_without_a_store_nothing_is_claimed() -> None:
    """Every call is judged, and nothing is counted."""
    worker = WorkerClaims(None, "judge", "1", 60)
    assert worker.claim_all([(SPAN, "one", "")]) == ["unknown"]
    assert worker.counts == {}
