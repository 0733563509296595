"""Celery worker of a fleet: consumer, thread pool and task in one process, with one event loop for all judge requests.

Needs the extra `fleet`; imported by `ragtrace worker` only.
"""

from __future__ import annotations

import logging
import signal
import socket
import uuid
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ragtrace.fleet.fleet_metrics import FleetMetrics
from ragtrace.fleet.judging import FleetJudge, refusal
from ragtrace.pipeline.fleet_broker import CALLS, TASK, CallBroker, ignore_celery_variables, is_redis, make_celery_app
from ragtrace.pipeline.queue_watch import QueueWatch

if TYPE_CHECKING:
    from ragtrace.fleet.redis_delivery import HeldCalls
    from ragtrace.fleet.shared_state import SharedState
    from ragtrace.runtime.runtime import Runtime

_consumer: Any = import_module("celery.worker.consumer.consumer")
_thread_pool: Any = import_module("celery.concurrency.thread")
_celery_exceptions: Any = import_module("celery.exceptions")
log = logging.getLogger("ragtrace")

CALLS_FOR_EACH_JUDGE_CALL: Final = 4
"""Calls that a worker holds for each one that its judge sees at a time.

The others wait for the judge, or for the delivery of their scores, before they are acknowledged.
"""
_HOLD_DEADLINES: Final = 2.0
"""Judge deadlines for which a call may be held: it waits for the judge for one, and is judged for another."""
_DELIVERY_SECONDS: Final = 15.0
"""Further seconds of it, for the delivery of the scores."""
_STOP_SECONDS: Final = 1.0
_STEPS_LEFT_OUT: Final = frozenset({"DelayedDelivery", "Gossip", "Mingle", "Heart", "Agent"})
"""Steps of Celery's consumer that a fleet does not use.

The first would declare 28 exchanges and queues for tasks with a countdown.
"""


class WakingThreadPool(_thread_pool.TaskPool):  # type: ignore[misc]
    """Celery thread pool that wakes the consumer's event loop at the end of each task, so that the task is acknowledged
    at once.

    Celery leaves the acknowledgement to the loop, which sleeps for up to a second. With all calls of a worker in that
    state, the broker sends no further one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pool: Any = super()
        pool.__init__(*args, **kwargs)
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def register_with_event_loop(self, loop: Any) -> None:
        """Make the consumer's event *loop* watch the socket that is written to when a task ends or a signal arrives."""
        loop.add_reader(self._receiver, self._drain)
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)  # else SIGTERM waits for a heartbeat

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
    ) -> Any:
        """Run a Celery task on a thread of the pool."""

        def ended(result: object) -> None:
            try:
                if callback is not None:
                    callback(result)
            finally:
                with suppress(OSError):  # the socket is full: the loop is awake
                    self._sender.send(b"\0")

        pool: Any = super()
        return pool.on_apply(target, args, kwargs, ended, accept_callback, **more)


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
            if wrong := refusal(message.headers, message.content_type, message.body):
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
        except _celery_exceptions.Reject:  # the broker is away, and gives the message to a worker again
            message.requeue()
        else:
            message.ack_log_error(log, self.connection_errors)


def longest_hold(judge_timeout: float) -> float:
    """Return the longest time in seconds for which a worker may hold a call that is not acknowledged."""
    return _HOLD_DEADLINES * judge_timeout + _DELIVERY_SECONDS


def run_worker(
    runtime: Runtime, url: str, shared: SharedState, *, concurrency: int, started: Callable[[], object]
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
    judge = CallConsumer.judge = FleetJudge(runtime, broker, shared.claims, timeout=_DELIVERY_SECONDS - 1)
    watch = QueueWatch(CallBroker(url))
    metrics = FleetMetrics(
        lambda: watch.depths,
        oldest_published=lambda: judge.oldest_published,
        claims=shared.claims.counts,
        budget=shared.reader,
        workers=1,
    )
    metrics.add_to(runtime.telemetry.meter)

    @app.task(name=TASK, bind=True)  # type: ignore[untyped-decorator]
    def judge_call(self: Any, message: str) -> None:
        delivery: dict[str, Any] = self.request.delivery_info or {}
        judge.handle(message, task_id=str(self.request.id), redelivered=bool(delivery.get("redelivered")))

    app.conf.worker_consumer = f"{__name__}:{CallConsumer.__name__}"
    signals: Any = import_module("celery.signals")

    def tell_started(**_: object) -> None:
        started()

    signals.worker_ready.connect(tell_started, weak=False)
    worker = app.Worker(
        pool_cls=WakingThreadPool,
        concurrency=concurrency * CALLS_FOR_EACH_JUDGE_CALL,
        queues=[CALLS],
        # Several workers may run on a host; the queue of each one's remote control is named after it.
        hostname=f"ragtrace-{uuid.uuid4().hex[:12]}@{socket.gethostname()}",
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
