"""Judging of the RAG calls in the queue of a fleet, and the handling of calls that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from uuid import uuid4

from ragtrace.fleet.broker import MOST_TRIES, WORKER_LOST, DeadLetter, Delivery
from ragtrace.fleet.call_message import CallMessage, MessageError, read_message, write_message
from ragtrace.fleet.claims import Claim, WorkerClaims
from ragtrace.fleet.scoring import FleetScoring
from ragtrace.system.event_loops import beside_loop
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from ragtrace.fleet.judge_process import JudgeProcess

ClaimOutcome: TypeAlias = Claim | Literal["unknown"]
"""Outcome of claiming a call: the state of the claim; `unknown`: there is no store of claims, or it did not answer."""
_DELIVERY_PAUSE_SECONDS: Final = 0.25
"""Pause in seconds between two deliveries of scores, so that one delivery has the scores of many calls."""
_WOKEN_AT_A_TIME: Final = 32
"""Number of waiting calls that are woken at a time when their scores are delivered."""
_GATHER_SECONDS: Final = 0.002
"""Number of seconds for which claims of calls are collected before one request to the store."""
_FLUSH_SECONDS: Final = 10.0
_REQUEUE_PAUSE_SECONDS: Final = 1.0
"""Pause in seconds before a call that another message has claimed, or that the broker did not take, goes back into the
queue."""
_DETAIL_CHARS: Final = 500


class ScoreDelivery:
    """Delivery of the scores of judged calls in batches, on an event loop.

    Sent scores wait in the queues of exporters; delivered ones have reached their receivers. Each call is acknowledged
    after its scores are delivered. A worker that is killed before has not acknowledged the call, so that another one
    judges it again.

    Args:
        runtime: has sent the scores.
        claims: the claims on the calls, which are confirmed with the delivery.
        timeout: seconds after which a call is acknowledged even so; its scores are in the exporters' queues.
    """

    def __init__(self, runtime: JudgeProcess, claims: WorkerClaims, timeout: float) -> None:
        self._runtime, self._claims, self._timeout = runtime, claims, timeout
        self._waiting: list[tuple[SpanContext | None, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def wait(self, span: SpanContext | None = None) -> None:
        """Wait until all scores sent so far are delivered.

        The claim on the call *span* is confirmed by then.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((span, done))
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        await asyncio.wait({done}, timeout=self._timeout)
        if not done.done():
            faults.warn_once(
                "fleet: scores not confirmed",
                "the scores of a call could not be delivered within %g s: the call is acknowledged, and the exporter "
                "goes on trying; every further one is counted in ragtrace.stats().faults. Is the OTLP endpoint down?",
                self._timeout,
            )
            done.cancel()
            await asyncio.to_thread(self._claims.confirm, span)

    async def _run(self) -> None:
        """Deliver scores as long as calls wait for that."""
        while self._waiting:
            await asyncio.sleep(_DELIVERY_PAUSE_SECONDS)
            batch, self._waiting = self._waiting, []
            batch = [each for each in batch if not each[1].done()]  # a call may have ended by waiting too long
            try:
                delivered = await asyncio.to_thread(self._runtime.deliver_scores, _FLUSH_SECONDS)
            except Exception as error:
                faults.record("fleet: delivery of scores", error)
                delivered = False
            if delivered:
                await asyncio.to_thread(self._claims.confirm, *(span for span, _ in batch))
                _settle([done for _, done in batch], _DELIVERY_PAUSE_SECONDS / 2)
            else:
                self._waiting += batch
        self._task = None


def _settle(batch: Sequence[asyncio.Future[None]], within: float) -> None:
    """Wake the coroutines that wait for the delivery of *batch*, spread over a number of seconds.

    Each call makes room for a new one. If all calls ended at once, the judge's answers would wait while as many new
    calls are read.
    """

    def wake(group: Sequence[asyncio.Future[None]]) -> None:
        for done in group:
            if not done.done():
                done.set_result(None)

    for start in range(0, len(batch), _WOKEN_AT_A_TIME):
        group = batch[start : start + _WOKEN_AT_A_TIME]
        asyncio.get_running_loop().call_later(within * start / len(batch), wake, group)


class GatheredClaims:
    """Claims of concurrent coroutines on RAG calls, combined into one request to the claim store."""

    def __init__(self, claims: WorkerClaims) -> None:
        self._claims = claims
        self._wanted: list[tuple[SpanContext | None, str, str]] = []
        self._states: asyncio.Task[Sequence[ClaimOutcome]] | None = None

    async def claim(self, span: SpanContext | None, owner: str, takes_over: str) -> ClaimOutcome:
        """Claim a RAG call, in one request with the claims of other coroutines.

        The outcome is that of `WorkerClaims.claim_all`.

        Args:
            span: the root span of the call.
            owner: id of this delivery of the message.
            takes_over: prefix of the ids of deliveries whose claim passes to this one; empty: no claim passes.
        """
        if self._states is None:
            self._wanted = []
            self._states = asyncio.create_task(self._ask(self._wanted))
        self._wanted.append((span, owner, takes_over))
        position, states = len(self._wanted) - 1, self._states
        return (await asyncio.shield(states))[position]  # one call that is cancelled leaves the others their claims

    async def _ask(self, wanted: Sequence[tuple[SpanContext | None, str, str]]) -> Sequence[ClaimOutcome]:
        await asyncio.sleep(_GATHER_SECONDS)
        self._states = None
        return await asyncio.to_thread(self._claims.claim_all, wanted)


class FleetJudge:
    """Handler that has each queued RAG call judged, and then acknowledged, retried or dead-lettered.

    The application has sent the scores of its screen before; only the judge's are missing. The coroutines run on the
    event loop of the runtime, and leave what waits for a store or an exporter to threads.

    Args:
        runtime: the runtime, which sends the scores.
        scoring: has its judge score a call.
        claims: claims each call before it is judged.
        timeout: seconds for the delivery of a call's scores.
        hold_seconds: time for which no other worker can have got a call; 0: the broker may deliver it again at once.
    """

    def __init__(
        self,
        runtime: JudgeProcess,
        scoring: FleetScoring,
        claims: WorkerClaims,
        *,
        timeout: float,
        hold_seconds: float = 0.0,
    ) -> None:
        self._runtime, self._scoring, self._claims, self._hold_seconds = runtime, scoring, claims, hold_seconds
        self._gathered = GatheredClaims(claims)
        self._delivery = ScoreDelivery(runtime, claims, timeout)
        self.last_begun_published: float | None = None
        """Time at which the call begun last was published, in seconds since the epoch; None: no call was begun. That
        call was about the oldest in the queue, which is first in, first out except for calls that are tried again."""

    async def handle(self, delivery: Delivery) -> None:
        """Judge the RAG call in a queue message, and settle the message."""
        try:
            await self._handle(delivery)
        except Exception as error:
            # The broker has not taken a message, or this is a bug: another worker tries.
            faults.record("fleet: settling a call", error)
            await asyncio.sleep(_REQUEUE_PAUSE_SECONDS)
            await delivery.give_back()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            message = await beside_loop(len(delivery.body), partial(read_message, delivery.body))
        except MessageError as error:
            await _bury(delivery, error.reason, error.detail)
            return
        self.last_begun_published = message.published
        if time() > message.deadline:  # a day after the application has published the call
            await _bury(delivery, "deadline", "the call was not judged in time", message.tries)
        else:
            await self._judge_if_claimed(delivery, message)

    async def _judge_if_claimed(self, delivery: Delivery, message: CallMessage) -> None:
        """Judge the RAG call in a queue message, unless another message has claimed the call."""
        # The owner of a claim is one delivery of a message. The ids of all deliveries of a message begin alike, so that
        # a redelivered message can take over the claim of its earlier delivery.
        deliveries_prefix = f"{delivery.id}:"
        owner, span = f"{deliveries_prefix}{uuid4().hex}", message.unscored.call.span
        state: ClaimOutcome = "unknown"
        if self._claims.has_store:
            state = await self._gathered.claim(span, owner, deliveries_prefix if delivery.redelivered else "")
        if state == "held":
            await asyncio.sleep(_REQUEUE_PAUSE_SECONDS)
            await delivery.replace(write_message(message))
        elif state == "done":  # a redelivery, as only the acknowledgement was lost
            await delivery.acknowledge()
        elif delivery.lost_workers >= MOST_TRIES:
            await asyncio.to_thread(self._claims.release, span, owner)
            detail = f"workers ended {delivery.lost_workers} times while judging it"
            await _bury(delivery, WORKER_LOST, detail, message.tries)
        else:
            await self._judge(delivery, message, owner)

    async def _judge(self, delivery: Delivery, message: CallMessage, owner: str) -> None:
        tries_if_it_fails, span = message.tries + 1, message.unscored.call.span
        began = monotonic()

        async def taken_over() -> bool:
            """Return whether another delivery has meanwhile taken over this delivery's claim on the call."""
            if monotonic() - began < self._hold_seconds / 2 or not self._claims.has_store:
                return False
            return not await asyncio.to_thread(self._claims.holds, span, owner)

        judged = await self._scoring.judge(
            message.unscored, last_try=tries_if_it_fails >= MOST_TRIES, taken_over=taken_over
        )
        if judged.status == "taken_over":  # the other one sends the scores; a message that it has got stays with it
            await delivery.acknowledge()
            return
        if judged.status == "scored":
            # Of a call that becomes a dead letter the numbers stay in the message, until it is judged after all.
            self._runtime.moments.add_unjudged(message.unjudged)
            await self._delivery.wait(span)
            await delivery.acknowledge()
            return
        # Without the claim, the call can be judged again by any worker.
        await asyncio.to_thread(self._claims.release, span, owner)
        if judged.status == "failed":
            # The scores of the last try are delivered, too: each is the reason why there is no number. The claim is not
            # confirmed, so that `ragtrace fleet retry` can have the dead letter judged again.
            await self._delivery.wait()
            await _bury(delivery, "judge", judged.reason, tries_if_it_fails)
        else:
            # "retried": the judge was asked and failed. "judge_unavailable": it was not asked, which costs no try.
            tries = tries_if_it_fails if judged.status == "retried" else message.tries
            await delivery.replace(write_message(message._replace(tries=tries)))


async def _bury(delivery: Delivery, reason: str, detail: str, tries: int = 0) -> None:
    """Put a message into the queue of dead letters, with the reason.

    `ragtrace fleet retry` takes it out again.

    Raises:
        Exception: the broker did not take it.
    """
    await delivery.bury(DeadLetter(delivery.body, reason, detail[:_DETAIL_CHARS], tries))
    faults.warn_once(
        f"fleet: dead letter: {reason}",
        "a call could not be judged (%s: %s) and is among the dead letters; every further one is counted in "
        "ragtrace.stats().faults. See ragtrace fleet status, and ragtrace fleet retry",
        reason,
        detail[:_DETAIL_CHARS],
    )
