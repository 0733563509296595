"""Judging of the RAG calls in the queue of a fleet: the workers' task, and the handling of calls that fail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast
from uuid import uuid4

from ragtrace.fleet.broker import HOLD_SECONDS, MOST_TRIES, REDIS_PREFIX, TASK, CallBroker, is_redis
from ragtrace.fleet.call_message import CallMessage, MessageError, read_message
from ragtrace.fleet.claims import Claim, WorkerClaims
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from ragtrace.fleet.judge_process import JudgeProcess

ClaimOutcome: TypeAlias = Claim | Literal["unknown"]
"""Outcome of claiming a call: the state of the claim; `unknown`: there is no store of claims, or it did not answer."""
DEAD_LETTER_VERSION: Final = 1
_DELIVERY_PAUSE_SECONDS: Final = 0.25
"""Pause in seconds between two deliveries of scores, so that one delivery has the scores of many calls."""
_WOKEN_AT_A_TIME: Final = 32
"""Number of waiting calls that are woken at a time when their scores are delivered."""
_GATHER_SECONDS: Final = 0.002
"""Number of seconds for which claims of calls are collected before one request to the store."""
_FLUSH_SECONDS: Final = 10.0
_REQUEUE_PAUSE_SECONDS: Final = 1.0
"""Pause in seconds before a call that another message has claimed goes back into the queue. It has nothing to do with
`HOLD_SECONDS`, for which a worker holds a message on Redis."""
_DETAIL_CHARS: Final = 500
_LOST_WORKERS_SECONDS: Final = 86_400
"""Number of seconds for which Redis keeps the number of workers that were lost with a call."""
_MESSAGE_BYTES: Final = 5 << 20
"""Largest number of bytes of a whole message; the size of the call inside is checked when the message is read."""


class _Undelivered(NamedTuple):
    span: SpanContext | None
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class ScoreDelivery:
    """Delivery of the scores of judged calls in batches, by a thread of its own.

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
        self._changed = threading.Condition()
        self._waiting: list[_Undelivered] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ragtrace-fleet-delivery", daemon=True)
        self._thread.start()

    async def wait(self, span: SpanContext | None = None) -> None:
        """Wait until all scores sent so far are delivered.

        The claim on the call *span* is confirmed by then.
        """
        loop = asyncio.get_running_loop()
        undelivered = _Undelivered(span, loop, loop.create_future())
        with self._changed:
            self._waiting.append(undelivered)
            self._changed.notify()
        await asyncio.wait({undelivered.done}, timeout=self._timeout)
        if not undelivered.done.done():
            faults.warn_once(
                "fleet: scores not confirmed",
                "the scores of a call could not be delivered within %g s: the call is acknowledged, and the exporter "
                "goes on trying; every further one is counted in ragtrace.stats().faults. Is the OTLP endpoint down?",
                self._timeout,
            )
            undelivered.done.cancel()
            await asyncio.to_thread(self._claims.confirm, span)

    def stop(self) -> None:
        """Stop the delivery thread, after the deliveries that callers wait for."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(self._timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                self._changed.wait_for(lambda: self._closed, _DELIVERY_PAUSE_SECONDS)
                batch, self._waiting = self._waiting, []
            batch = [each for each in batch if not each.done.done()]  # a call may have ended by waiting too long
            if self._deliver():
                self._claims.confirm(*(each.span for each in batch))
                _settle(batch, 0.0 if self._closed else _DELIVERY_PAUSE_SECONDS / 2)
            else:
                with self._changed:
                    self._waiting += batch
                    if self._closed:
                        return

    def _deliver(self) -> bool:
        try:
            return self._runtime.deliver_scores(_FLUSH_SECONDS)
        except Exception as error:
            faults.record("fleet: delivery of scores", error)
            return False


def _settle(batch: Sequence[_Undelivered], within: float) -> None:
    """Wake the coroutines that wait for the delivery of *batch*, spread over a number of seconds.

    Each call makes room for a new one. If all calls ended at once, the judge's answers would wait while as many new
    calls are read.
    """
    groups = [batch[start : start + _WOKEN_AT_A_TIME] for start in range(0, len(batch), _WOKEN_AT_A_TIME)]

    def settle() -> None:
        for each in groups.pop(0):
            if not each.done.done():
                each.done.set_result(None)
        if groups:
            loop.call_later(pause, settle)

    if groups:
        loop, pause = batch[0].loop, within / len(groups)
        with suppress(RuntimeError):  # the event loop of the runtime is closed
            loop.call_soon_threadsafe(settle)


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

    A call that is tried again is published again.

    The application has sent the scores of its screen before; only the judge's are missing. The coroutines run on the
    event loop of the runtime, and leave what waits for a broker or a store to threads.

    Args:
        runtime: the runtime, which has a judge.
        broker: publishes the calls that are tried again, and the dead letters.
        claims: claims each call before it is judged.
        timeout: seconds for the delivery of a call's scores.
    """

    def __init__(self, runtime: JudgeProcess, broker: CallBroker, claims: WorkerClaims, *, timeout: float) -> None:
        self._runtime, self._broker, self._claims = runtime, broker, claims
        self._gathered = GatheredClaims(claims)
        self.delivery = ScoreDelivery(runtime, claims, timeout)
        self._redis: Any = None
        self.last_begun_published: float | None = None
        """Time at which the call begun last was published, in seconds since the epoch; None: no call was begun. That
        call was about the oldest in the queue, which is first in, first out except for calls that are tried again."""

    async def handle(self, text: object, *, task_id: str, redelivered: bool) -> None:
        """Judge the RAG call in a queue message.

        When this method returns, the message may be acknowledged.

        Args:
            text: the message.
            task_id: id of the Celery task.
            redelivered: whether a worker had got the message before.

        Raises:
            celery.exceptions.Reject: the message must go back into the queue.
        """
        try:
            message = read_message(text)
        except MessageError as error:
            await asyncio.to_thread(self.bury, text, error.reason, error.detail)
            return
        self.last_begun_published = message.published
        if time() > message.deadline:  # a day after the application has published the call
            await asyncio.to_thread(self.bury, text, "deadline", "the call was not judged in time", message.tries)
        else:
            await self._judge_if_claimed(text, message, task_id, redelivered=redelivered)

    async def _judge_if_claimed(self, text: object, message: CallMessage, task_id: str, *, redelivered: bool) -> None:
        """Judge the RAG call in a queue message, unless another message has claimed the call."""
        # The owner of a claim is one delivery of a message. The ids of all deliveries of a message begin alike, so that
        # a redelivered message can take over the claim of its earlier delivery.
        deliveries_prefix = f"{task_id}:"
        owner = f"{deliveries_prefix}{uuid4().hex}"
        state: ClaimOutcome = "unknown"
        if self._claims.has_store:
            takes_over = deliveries_prefix if redelivered else ""
            state = await self._gathered.claim(message.unscored.call.span, owner, takes_over)
        if state == "held":
            await asyncio.sleep(_REQUEUE_PAUSE_SECONDS)
            await asyncio.to_thread(self._put, lambda: self._broker.publish(message, again=True))
        elif state == "done":  # a redelivery, as only the acknowledgement was lost
            return
        elif redelivered and await asyncio.to_thread(self._count_lost_worker, task_id) >= MOST_TRIES:
            detail = f"workers ended {MOST_TRIES} times while judging it"
            await asyncio.to_thread(self._claims.release, message.unscored.call.span, owner)
            await asyncio.to_thread(self.bury, text, "worker_lost", detail, message.tries)
        else:
            await self._judge(text, message, owner)

    async def _judge(self, text: object, message: CallMessage, owner: str) -> None:
        tries_if_it_fails, span = message.tries + 1, message.unscored.call.span
        began = monotonic()

        async def taken_over() -> bool:
            """Return whether another delivery has meanwhile taken over this delivery's claim on the call."""
            recent = is_redis(self._broker.url) and monotonic() - began < HOLD_SECONDS / 2
            if recent or not self._claims.has_store:  # Redis gives a call to another worker only after a while
                return False
            return not await asyncio.to_thread(self._claims.holds, span, owner)

        judged = await self._runtime.judge(
            message.unscored, last_try=tries_if_it_fails >= MOST_TRIES, taken_over=taken_over
        )
        if judged.status == "taken_over":  # the other delivery sends the scores, and confirms the claim
            return
        if judged.status == "scored":
            # Of a call that becomes a dead letter the numbers stay in the message, until it is judged after all.
            self._runtime.moments.add_unjudged(message.unjudged)
            await self.delivery.wait(span)
            return
        # Without the claim, the call can be judged again by any worker.
        await asyncio.to_thread(self._claims.release, span, owner)
        if judged.status == "failed":
            # The scores of the last try are delivered, too: each is the reason why there is no number. The claim is not
            # confirmed, so that `ragtrace fleet retry` can have the dead letter judged again.
            await self.delivery.wait()
            await asyncio.to_thread(self.bury, text, "judge", judged.reason, tries_if_it_fails)
        else:
            # "retried": the judge was asked and failed. "judge_unavailable": it was not asked, which costs no try.
            tries = tries_if_it_fails if judged.status == "retried" else message.tries
            again = message._replace(tries=tries)
            await asyncio.to_thread(self._put, lambda: self._broker.publish(again, again=True))

    def bury(self, text: object, reason: str, detail: str, tries: int = 0) -> None:
        """Put a message into the queue of dead letters, with the reason.

        `ragtrace fleet retry` takes it out again.

        Raises:
            celery.exceptions.Reject: the broker did not take it.
        """
        record = {
            "version": DEAD_LETTER_VERSION,
            "reason": reason,
            "detail": detail[:_DETAIL_CHARS],
            "tries": tries,
            "at": time(),
            "message": text if isinstance(text, str) and len(text) <= _MESSAGE_BYTES else None,
        }
        self._put(lambda: self._broker.publish_dead_letter(record))
        faults.warn_once(
            f"fleet: dead letter: {reason}",
            "a call could not be judged (%s: %s) and is among the dead letters; every further one is counted in "
            "ragtrace.stats().faults. See ragtrace fleet status, and ragtrace fleet retry",
            reason,
            detail[:_DETAIL_CHARS],
        )

    def _put(self, publish: Any) -> None:
        try:
            publish()
        except Exception as error:
            faults.record("fleet: publishing", error)
            raise import_module("celery.exceptions").Reject("the broker is away", requeue=True) from None

    def _count_lost_worker(self, task_id: str) -> int:
        """Count one more worker that ended while it had the message, and return the total.

        The total is 0 on RabbitMQ, where the rule is the broker's own: it counts deliveries, and moves a message over
        the queue's `x-delivery-limit` to the dead letters (`make_queues`). Redis only knows that a message was
        delivered before.
        """
        if not is_redis(self._broker.url):
            return 0
        with suppress(Exception):
            if self._redis is None:
                self._redis = self._broker.redis()
            key = f"{REDIS_PREFIX}deliveries:{task_id}"
            count = int(self._redis.incr(key))
            self._redis.expire(key, _LOST_WORKERS_SECONDS)
            return count
        return 0


def defect_of(headers: Any, content_type: object, body: Any) -> str:
    """Return why a delivered message is not a valid RAG call message, or "" if it is valid.

    An invalid message must not reach Celery.

    The Celery consumer asks before the message becomes a task, and so before `FleetJudge` sees the call.
    A message of a stranger could name another task, ask for a late start, or have further tasks started.
    """
    known: dict[str, object] = cast("dict[str, object]", headers) if isinstance(headers, dict) else {}
    if known.get("task") != TASK:
        return "it names no task of ours"
    if content_type != "application/json":
        return "it is no JSON"
    if known.get("eta") or known.get("expires") or known.get("group"):
        return "it has a schedule of its own"
    data = (
        bytes(cast("bytes", body))
        if isinstance(body, (bytes, bytearray, memoryview))
        else str(body).encode("utf-8", "replace")
    )
    if len(data) > _MESSAGE_BYTES:
        return "it is too large"
    try:
        arguments, keywords, embedded = json.loads(data)
        shaped = arguments == [] and list(keywords) == ["message"] and isinstance(keywords["message"], str)
        return "" if shaped and not any(embedded.values()) else "its arguments are not those of a call"
    except (ValueError, TypeError, AttributeError, RecursionError):
        return "its body cannot be read"
