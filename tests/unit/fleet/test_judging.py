"""What a worker does with a message: judge the call in it, try again, give it back, or bury it with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from ragtrace.fleet.broker import MOST_TRIES, DeadLetter
from ragtrace.fleet.call_message import CallMessage, read_message, write_message
from ragtrace.fleet.claims import WorkerClaims
from ragtrace.fleet.judging import FleetJudge
from ragtrace.fleet.scoring import JudgedCall
from ragtrace.system.faults import faults
from tests.support.fleet import handed_over
from tests.support.kept_calls import KeptDelivery
from tests.support.measuring_loop import measuring_loop

MESSAGE = handed_over(1)
TEXT = write_message(MESSAGE)


class Judging:
    """Process whose judge gives the same outcome each time."""

    def __init__(self, status: Any, reason: str = "") -> None:
        self.moments = self
        self.judged: list[CallMessage] = []
        self.unjudged: dict[str, int] = {}
        self._outcome = JudgedCall(status, reason)
        self.deliveries = 0

    async def judge(self, unscored: Any, *, last_try: bool, taken_over: Any) -> JudgedCall:
        """Return the outcome."""
        self.judged.append(unscored)
        return self._outcome

    def deliver_scores(self, timeout: float) -> bool:
        """Count the delivery; the first one fails."""
        self.deliveries += 1
        return self.deliveries > 1

    def add_unjudged(self, calls: Mapping[str, int]) -> None:
        """Note the numbers."""
        self.unjudged.update(calls)


def settled(process: Any, delivery: KeptDelivery) -> list[object]:
    """Have a delivery handled, and return how it was settled."""
    judge = FleetJudge(process, process, WorkerClaims(None, "judge", "1", 60.0), timeout=30.0)
    asyncio.run(judge.handle(delivery))
    faults.clear()
    return delivery.settled


def test_a_scored_call_is_acknowledged_when_its_scores_are_delivered() -> None:
    """Not after the first delivery, which fails; the numbers of calls in the message are added up."""
    process = Judging("scored")
    message = MESSAGE._replace(unjudged={"faq": 3})
    assert settled(process, KeptDelivery(write_message(message).encode())) == ["acknowledged"]
    assert (process.deliveries, process.unjudged) == (2, {"faq": 3})


@pytest.mark.timing
def test_a_message_of_megabytes_does_not_stop_the_event_loop() -> None:
    """The worker answers its broker while the message is read, which else gives its calls to another."""
    answer = " ".join(f"The tower number {number} stands in Paris, é {number * 7}." for number in range(60_000))
    text = write_message(
        MESSAGE._replace(unscored=MESSAGE.unscored._replace(call=replace(MESSAGE.unscored.call, answer=answer)))
    )
    assert len(text) > 2_500_000
    delivery, process = KeptDelivery(text.encode()), Judging("scored")
    judge = FleetJudge(cast("Any", process), cast("Any", process), WorkerClaims(None, "judge", "1", 60.0), timeout=30.0)
    with measuring_loop() as loop:
        loop.run_until_complete(judge.handle(delivery))
    faults.clear()
    assert process.judged[0].call.answer == answer
    assert loop.longest < 0.04


@pytest.mark.parametrize(("status", "tries"), [("retried", 1), ("judge_unavailable", 0)])
def test_a_call_without_scores_goes_back_into_the_queue(status: str, tries: int) -> None:
    """A failure of the judge counts as a try; that it was not asked does not."""
    [text] = settled(Judging(status), KeptDelivery(TEXT.encode()))
    assert isinstance(text, str)
    assert read_message(text) == MESSAGE._replace(tries=tries)


def test_a_call_that_the_judge_fails_with_is_buried() -> None:
    """With the judge's reason and the number of tries; the message is kept as it is."""
    body = write_message(MESSAGE._replace(tries=2)).encode()
    letter = DeadLetter(body, "judge", "unparsable", 3)
    assert settled(Judging("failed", "unparsable"), KeptDelivery(body)) == [letter]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x80\x04.", "malformed"),
        (b"[" * 100_000, "malformed"),
        (b'[[], {"message": "{}"}, {}]', "malformed"),
        (b"{}", "version"),
        (b" " * (6 << 20), "too_large"),
        (write_message(MESSAGE._replace(deadline=1.0)).encode(), "deadline"),
    ],
    ids=lambda value: value if isinstance(value, str) else "body",
)
def test_a_message_without_a_call_to_judge_is_buried_with_its_reason(body: bytes, reason: str) -> None:
    """Pickled messages, other JSON, other versions, calls that are too large or too old; the judge is not asked."""
    process = Judging("scored")
    [letter] = settled(process, KeptDelivery(body))
    assert isinstance(letter, DeadLetter)
    assert (letter.body, letter.reason, process.judged) == (body, reason, [])


@pytest.mark.parametrize(("lost_workers", "judged"), [(MOST_TRIES - 1, 1), (MOST_TRIES, 0)])
def test_a_call_that_workers_were_lost_with_is_judged_no_more(lost_workers: int, judged: int) -> None:
    """It may be the reason why they ended."""
    process, delivery = Judging("scored"), KeptDelivery(TEXT.encode(), redelivered=True, lost_workers=lost_workers)
    [end] = settled(process, delivery)
    assert len(process.judged) == judged
    assert (end == "acknowledged") == bool(judged)
    assert judged or isinstance(end, DeadLetter)


def test_a_call_is_given_back_when_the_broker_takes_no_other_in_its_place() -> None:
    """Another worker tries again."""
    assert settled(Judging("retried"), KeptDelivery(TEXT.encode(), refusals=1)) == ["given back"]
    assert settled(Judging("scored"), KeptDelivery(b"{}", refusals=1)) == ["given back"]


def test_a_call_that_another_worker_has_got_is_left_to_it() -> None:
    """The broker deletes the message only if this worker still holds it."""
    assert settled(Judging("taken_over"), KeptDelivery(TEXT.encode())) == ["acknowledged"]
