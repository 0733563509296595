"""Estimates of all calls in the workers of a fleet, which see the sampled calls only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from opentelemetry.trace import SpanContext

from ragtrace.core.types import Evaluation, RagCall, SamplingDecision, Score
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.estimates import MetricAssignment, Moments, RunningMoments, estimate_mean
from ragtrace.estimates.moments import ALWAYS_RULE
from ragtrace.fleet.call_message import MOST_BYTES, CallMessage, read_message, write_message
from ragtrace.fleet.publisher import FleetPublisher
from tests.support.kept_calls import KeepingBroker

ASSIGNMENT = MetricAssignment(judge="judge@1", judged=frozenset({"hallucinated"}))
DECISIONS = [
    SamplingDecision(True, 1.0, ALWAYS_RULE),
    SamplingDecision(False, 0.002, "not_sampled"),
    SamplingDecision(True, 1.0, ALWAYS_RULE),
    SamplingDecision(False, 0.002, "not_sampled"),
    SamplingDecision(False, 0.002, "not_sampled"),
    SamplingDecision(True, 0.5, "suspicious"),
    SamplingDecision(True, 1.0, ALWAYS_RULE),
]
"""Of the calls of an application, in their order; the calls of the rule are checkouts, the others questions."""


def call_of(decision: SamplingDecision) -> RagCall:
    """Return a call with the decision about it."""
    workflow = "checkout" if decision.reason == ALWAYS_RULE else "faq"
    return RagCall(query="How tall?", contexts=(), answer="330 m", workflow=workflow, span=SpanContext(1, 1, True))


def judged(decision: SamplingDecision) -> Evaluation:
    """Return the judge's evaluation of a call: checkouts are bad, other calls are good."""
    value = float(decision.reason == ALWAYS_RULE)
    return Evaluation("judge@1", "1", "llm_judge", {"hallucinated": Score(value)}, probability=decision.probability)


def one_process() -> RunningMoments:
    """Return the sums of a process that judges its calls itself."""
    moments = RunningMoments(ASSIGNMENT)
    for decision in DECISIONS:
        moments(call_of(decision), [judged(decision)] if decision.included else [], decision)
    return moments


def worker_of(texts: Sequence[str]) -> RunningMoments:
    """Return the sums of a worker that has judged the calls in the messages."""
    moments = RunningMoments(ASSIGNMENT)
    for message in map(read_message, texts):
        unscored = message.unscored
        decision = SamplingDecision(True, unscored.probability or 0.0, unscored.reason)
        moments(unscored.call, [judged(decision)], decision)
        moments.add_unjudged(message.unjudged)
    return moments


async def hand_over(broker: KeepingBroker, too_large: int = 0) -> list[str]:
    """Hand the sampled calls over to a fleet, each in a batch of its own, and return the outcomes.

    The texts of the first calls, *too_large* of them, are larger than a message may be.
    """
    publisher, outcomes = FleetPublisher(broker), []
    with publisher.hurried():
        for decision in DECISIONS:
            call = call_of(decision)
            if decision.included:
                if len(outcomes) < too_large:
                    call = replace(call, answer="x" * MOST_BYTES)
                unscored = UnscoredCall(call, (), None, decision.probability, decision.reason)
                outcomes.append(await publisher.publish(CallMessage.of(unscored), spoolable=False))
            else:
                publisher.count_unjudged(call.workflow)
    await publisher.aclose()
    assert broker.closed
    return outcomes


@pytest.mark.parametrize("away", [0, 1, 2])
def test_a_fleet_estimates_as_one_process(away: int) -> None:
    """The stratum of a rule and the number of calls that nobody judged arrive, also while the broker is away."""
    broker = KeepingBroker(away)
    assert set(asyncio.run(hand_over(broker))) == {"published"}
    fleet, alone = worker_of(broker.texts), one_process()
    for workflow in (None, "checkout", "faq"):
        assert fleet.sum("hallucinated", workflow=workflow) == alone.sum("hallucinated", workflow=workflow)
    found = estimate_mean(fleet.sum("hallucinated"))
    assert (found.n, found.low) == (7, pytest.approx(estimate_mean(alone.sum("hallucinated")).low))


def test_the_numbers_of_a_message_that_is_dropped_go_with_the_next() -> None:
    """A call that is too large for the queue takes no count of other calls with it."""
    broker = KeepingBroker()
    assert asyncio.run(hand_over(broker, too_large=2)) == ["too_large", "too_large", "published", "published"]
    assert worker_of(broker.texts).sum("hallucinated").n == 2 + 3


def test_a_message_of_an_older_version_has_no_reason_and_no_numbers() -> None:
    """Workers of this version judge calls that an application of the version before has handed over."""
    text = write_message(CallMessage.of(UnscoredCall(call_of(DECISIONS[1]), (), None, 0.5)))
    older = read_message(text.replace(', "reason": ""', ""))
    assert (older.unscored.reason, dict(older.unjudged)) == ("", {})
    assert worker_of([write_message(older)]).sum("hallucinated") == Moments(1.0, w=2.0, ww=4.0, c=1.0, www=8.0)
