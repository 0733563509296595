"""Worker of a fleet: takes RAG calls from the queue and has them judged, on the event loop of the runtime.

Needs the extra `fleet`; imported by `ragtrace worker` only.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ragtrace.estimates import MetricAssignment
from ragtrace.fleet.broker import Broker, open_broker
from ragtrace.fleet.fleet_metrics import FleetMetrics
from ragtrace.fleet.judging import FleetJudge
from ragtrace.fleet.queue_watch import QueueWatch
from ragtrace.fleet.redis_streams import HOLD_SECONDS, RedisBroker, redis_risks
from ragtrace.fleet.scoring import FleetScoring
from ragtrace.system.faults import faults, log_safely

if TYPE_CHECKING:
    from ragtrace.fleet.judge_process import JudgeProcess
    from ragtrace.fleet.shared_state import SharedState

CALLS_FOR_EACH_JUDGE_CALL: Final = 4
"""Number of calls that a worker holds for each call that its judge handles at a time.

The others wait for the judge, or for the delivery of their scores, before they are acknowledged.
"""
_HOLD_DEADLINES: Final = 2.0
"""Number of judge deadlines for which a call may be held: one to wait for the judge, another to be judged."""
_DELIVERY_SECONDS: Final = 15.0
"""Number of seconds for which a call may be held in addition, for the delivery of the scores."""


def longest_hold(judge_timeout: float) -> float:
    """Return the longest time in seconds that a worker may take to acknowledge a call."""
    return _HOLD_DEADLINES * judge_timeout + _DELIVERY_SECONDS


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
    # Screens run in the applications: a worker gets no score of theirs, and counts the calls that it judges.
    runtime.moments.assignment = MetricAssignment.from_evaluators(None, runtime.evaluators.judge)
    return asyncio.run(_Worker(runtime, open_broker(url), shared, concurrency, started).run())


class _Worker:
    """Worker of a fleet, whose main thread waits for a signal while the runtime's event loop handles the calls."""

    def __init__(
        self,
        runtime: JudgeProcess,
        broker: Broker,
        shared: SharedState,
        concurrency: int,
        started: Callable[[], object],
    ) -> None:
        self._runtime, self._broker, self._shared, self._started = runtime, broker, shared, started
        self._places = concurrency * CALLS_FOR_EACH_JUDGE_CALL
        self._in_order = False

    async def run(self) -> bool:
        """Wait on the main thread for a signal and for the end of the calls, and return whether all went well."""
        here = asyncio.get_running_loop()
        stop, ended = asyncio.Event(), asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            here.add_signal_handler(each, stop.set)

        async def judge() -> None:
            loop, stop_taking = asyncio.get_running_loop(), asyncio.Event()
            here.call_soon_threadsafe(serving.set_result, lambda: loop.call_soon_threadsafe(stop_taking.set))
            try:
                await self._judge(stop_taking)
                self._in_order = True
            except Exception as error:
                faults.record("fleet: worker", error)
            finally:
                here.call_soon_threadsafe(ended.set)

        serving: asyncio.Future[Callable[[], object]] = here.create_future()
        if not self._runtime.run_job(judge):
            return False
        stop_taking = await serving
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, ended)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        with suppress(RuntimeError):  # the other event loop has ended
            stop_taking()
        await ended.wait()
        for wait in waiting:
            wait.cancel()
        return self._in_order

    async def _judge(self, stop: asyncio.Event) -> None:
        """Judge calls until *stop* is set and those in progress are finished, on the event loop of the runtime."""
        runtime, broker, shared = self._runtime, self._broker, self._shared
        # RabbitMQ may deliver a call to another worker as soon as a connection is lost, Redis after this time.
        hold_seconds = HOLD_SECONDS if isinstance(broker, RedisBroker) else 0.0
        judge = FleetJudge(
            runtime,
            FleetScoring.of(runtime),
            shared.claims,
            timeout=_DELIVERY_SECONDS - 1,
            hold_seconds=hold_seconds,
        )
        watch = QueueWatch(broker)
        metrics = FleetMetrics(
            lambda: watch.depths,
            last_begun_published=lambda: judge.last_begun_published,
            claims=shared.claims.counts,
            budget=shared.reader,
            workers=1,
        )
        metrics.add_to(runtime.telemetry.meter)
        besides = [asyncio.ensure_future(watch.run()), asyncio.ensure_future(_warn_of_redis_risks(broker))]
        try:
            await broker.consume(self._places, judge.handle, stop, self._started)
        finally:
            for each in besides:
                each.cancel()
            await asyncio.gather(*besides, return_exceptions=True)
            await broker.aclose()
            if shared.budget is not None:
                await shared.budget.aclose()


async def _warn_of_redis_risks(broker: Broker) -> None:
    """Log warnings about Redis settings with which the broker may lose queued calls.

    A Redis that does not show its settings is no failure.
    """
    if isinstance(broker, RedisBroker):
        with suppress(Exception):
            for seen, meaning in redis_risks(await broker.settings()):
                log_safely(logging.WARNING, "the broker has %s; %s", seen, meaning)
