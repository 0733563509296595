"""Celery worker of a fleet: consumer, pool and task in one process, with one event loop for all judge requests.

Needs the extra `fleet`; imported by `ragtrace worker` only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ragtrace.estimates import MetricAssignment
from ragtrace.fleet.broker import (
    CALLS,
    TASK,
    CallBroker,
    ignore_celery_variables,
    is_redis,
    make_celery_app,
    redis_risks,
)
from ragtrace.fleet.fleet_metrics import FleetMetrics
from ragtrace.fleet.judging import FleetJudge, defect_of
from ragtrace.fleet.queue_watch import QueueWatch
from ragtrace.system.faults import faults, log_safely
from ragtrace.system.threads import start_in_thread

if TYPE_CHECKING:
    from ragtrace.fleet.judge_process import JudgeProcess
    from ragtrace.fleet.redis_delivery import HeldCalls
    from ragtrace.fleet.shared_state import SharedState

_consumer: Any = import_module("celery.worker.consumer.consumer")
_pools: Any = import_module("celery.concurrency.base")
_einfo: Any = import_module("billiard.einfo")
_celery_exceptions: Any = import_module("celery.exceptions")
log = logging.getLogger("ragtrace")

CALLS_FOR_EACH_JUDGE_CALL: Final = 4
"""Number of calls that a worker holds for each call that its judge handles at a time.

The others wait for the judge, or for the delivery of their scores, before they are acknowledged.
"""
_ROOM: Final = 16
"""Number of calls that a full pool must end before new calls are taken from Redis, all of them in one step."""
_HOLD_DEADLINES: Final = 2.0
"""Number of judge deadlines for which a call may be held: one to wait for the judge, another to be judged."""
_DELIVERY_SECONDS: Final = 15.0
"""Number of seconds for which a call may be held in addition, for the delivery of the scores."""
_STOP_SECONDS: Final = 1.0
_STEPS_LEFT_OUT: Final = frozenset({"DelayedDelivery", "Gossip", "Mingle", "Heart", "Agent"})
"""Steps of Celery's consumer that a fleet does not use.

`DelayedDelivery` would declare 28 exchanges and queues for tasks with a countdown.
"""


class LoopPool(_pools.BasePool):  # type: ignore[misc]
    """Celery pool that judges each RAG call in a coroutine on the runtime's event loop instead of in a thread.

    With a thread for each call, two to three times as many threads as calls at the judge would only wait, and every
    step of a call would wake one of them.
    """

    runtime: ClassVar[JudgeProcess]
    judge: ClassVar[FleetJudge]
    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pool: Any = super()
        pool.__init__(*args, **kwargs)
        self._idle = threading.Condition()
        self._under_way = 0
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def register_with_event_loop(self, loop: Any) -> None:
        """Make the event loop of Celery's consumer wake up on signals and when the pool has room again.

        The loop watches a socket that is written to then.

        Otherwise SIGTERM, and on Redis the next call, would wait for up to a second.
        """
        loop.add_reader(self._receiver, self._drain)
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)

    def _drain(self, *_: object) -> None:
        with suppress(OSError):
            while self._receiver.recv(4_096):
                pass

    def on_apply(
        self,
        target: Callable[..., object],
        args: Any = None,
        kwargs: Any = None,
        callback: Callable[..., object] | None = None,
        accept_callback: Callable[..., object] | None = None,
        **more: Any,
    ) -> None:
        """Start to judge the RAG call that a Celery task carries, in place of running the task's function.

        Args:
            target: Celery's function that would run the task; it is not called.
            args: arguments of *target*: among them the task's id and request.
            callback: is called with the result, in the form in which *target* would return it.
            accept_callback: is called at once, with this process and the time.
        """
        _, task_id, request, *_ = args
        if accept_callback is not None:
            accept_callback(os.getpid(), monotonic())
        text, delivery = request["kwargs"]["message"], request["delivery_info"]
        handle = partial(self.judge.handle, text, task_id=task_id, redelivered=bool(delivery["redelivered"]))
        with self._idle:
            self._under_way += 1
        if not self.runtime.run_job(partial(self._run, handle, callback)):
            self._end(callback, _rejected("the worker shuts down"))

    async def _run(self, handle: Callable[[], Awaitable[None]], callback: Callable[..., object] | None) -> None:
        result: object = (False, None, 0.0)
        try:
            await handle()
        except asyncio.CancelledError:
            result = _rejected("the worker shuts down")
            raise
        except BaseException as error:
            if not isinstance(error, _celery_exceptions.Reject):
                faults.record("fleet: judging", error)
            result = (True, _einfo.ExceptionInfo(), 0.0)
        finally:
            self._end(callback, result)

    def _end(self, callback: Callable[..., object] | None, result: object) -> None:
        """Let Celery acknowledge or reject a task's message, according to the task's result."""
        try:
            if callback is not None:
                callback(result)
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify()
                has_room = self._under_way == self.limit - max(1, min(_ROOM, self.limit // 4))
            if has_room:
                with suppress(OSError):  # the socket is full: the loop wakes anyway
                    self._sender.send(b"\0")

    def on_stop(self) -> None:
        """Wait until the calls under way are judged."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way)


def _rejected(reason: str) -> object:
    """Return the result of a task whose message goes back into the queue."""
    try:
        raise _celery_exceptions.Reject(reason, requeue=True)
    except _celery_exceptions.Reject:
        return (True, _einfo.ExceptionInfo(), 0.0)


class CallConsumer(_consumer.Consumer):  # type: ignore[misc]
    """Celery consumer that passes only valid messages with RAG calls on, and moves others to the dead letters."""

    judge: ClassVar[FleetJudge]

    class Blueprint(_consumer.Consumer.Blueprint):  # type: ignore[misc]
        """Start-up steps of the Celery consumer."""

        default_steps: ClassVar[list[str]] = [
            step
            for step in _consumer.Consumer.Blueprint.default_steps
            if step.rpartition(":")[2] not in _STEPS_LEFT_OUT
        ]

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Return the function that receives each message of the queue."""
        consumer: Any = super()
        handle: Callable[[Any], object] = consumer.create_task_handler(*args, **kwargs)

        def take(message: Any) -> None:
            if wrong := defect_of(message.headers, message.content_type, message.body):
                self._bury(message, wrong)
            else:
                handle(message)

        return take

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Move a message that cannot be decoded to the queue of dead letters."""
        self._bury(message, f"it cannot be decoded: {type(exc).__name__}")

    def _bury(self, message: Any, wrong: str) -> None:
        body = message.body
        text = body if isinstance(body, str) else bytes(body).decode("utf-8", "backslashreplace")
        try:
            self.judge.bury(text, "not_a_call", wrong)
        except _celery_exceptions.Reject:  # the broker is unavailable, and delivers the message again later
            message.requeue()
        else:
            message.ack_log_error(log, self.connection_errors)


def _judge_call(message: str) -> None:
    """Register the task's name with Celery; `LoopPool` runs the work of the task."""


def longest_hold(judge_timeout: float) -> float:
    """Return the longest time in seconds that a worker may take to acknowledge a call."""
    return _HOLD_DEADLINES * judge_timeout + _DELIVERY_SECONDS


def _warn_of_redis_risks(broker: CallBroker) -> None:
    """Log warnings about Redis settings with which the broker may lose queued calls.

    A Redis that does not show its settings is no failure.
    """
    with suppress(Exception):
        for seen, meaning in redis_risks(broker.redis_settings()):
            log_safely(logging.WARNING, "the broker has %s; %s", seen, meaning)


def run_worker(
    runtime: JudgeProcess, url: str, shared: SharedState, *, concurrency: int, started: Callable[[], object]
) -> bool:
    """Judge the RAG calls in the queue of the broker at *url* until SIGTERM or SIGINT.

    Calls in progress are then finished.

    Args:
        runtime: the runtime, which has a judge.
        url: the broker.
        shared: budget and claims that the worker shares with others.
        concurrency: calls that the judge sees at a time.
        started: called when the worker takes calls.

    Returns:
        Whether the worker ended in order.
    """
    ignore_celery_variables()
    broker = CallBroker(url)
    held: HeldCalls | None = None
    if is_redis(url):
        from ragtrace.fleet.redis_delivery import HeldCalls, use_held_calls

        held = HeldCalls(broker, longest_hold(runtime.settings.judge_timeout))
        use_held_calls(held)
    app = make_celery_app(url)
    # Screens run in the applications: a worker gets no score of theirs, and counts the calls that it judges.
    runtime.moments.assignment = MetricAssignment.from_evaluators(None, runtime.evaluators.judge)
    judge = FleetJudge(runtime, broker, shared.claims, timeout=_DELIVERY_SECONDS - 1)
    CallConsumer.judge = LoopPool.judge = judge
    watch = QueueWatch(CallBroker(url))
    metrics = FleetMetrics(
        lambda: watch.depths,
        last_begun_published=lambda: judge.last_begun_published,
        claims=shared.claims.counts,
        budget=shared.reader,
        workers=1,
    )
    metrics.add_to(runtime.telemetry.meter)

    LoopPool.runtime = runtime
    app.task(name=TASK)(_judge_call)
    app.conf.worker_consumer = f"{__name__}:{CallConsumer.__name__}"
    signals: Any = import_module("celery.signals")

    def tell_started(**_: object) -> None:
        started()
        if is_redis(url):
            start_in_thread(partial(_warn_of_redis_risks, broker))

    signals.worker_ready.connect(tell_started, weak=False)
    worker = app.Worker(
        pool_cls=LoopPool,
        concurrency=concurrency * CALLS_FOR_EACH_JUDGE_CALL,
        queues=[CALLS],
        # A unique name, as Celery names the remote-control queue after it and several workers may run on a host.
        hostname=f"ragtrace-{uuid.uuid4().hex[:12]}@{socket.gethostname()}",
        without_mingle=True,  # it asks other workers for revoked tasks, and waits a second for their answers
        quiet=True,
        loglevel=logging.WARNING,
    )
    watch.start()
    if held is not None:
        held.start()
    try:
        worker.start()
    except SystemExit as ended:
        return not ended.code
    finally:
        judge.delivery.stop()
        if held is not None:
            held.stop(_STOP_SECONDS)
        broker.close()
        watch.stop(_STOP_SECONDS)
        if shared.budget is not None:
            runtime.run_job(shared.budget.aclose)
    return not worker.exitcode
