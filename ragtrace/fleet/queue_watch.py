"""Monitor of the queue depths of a fleet, read every two seconds, for metrics and for adaptive sampling."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ragtrace.fleet.broker import CALLS, DEAD_LETTERS, REDIS_PREFIX, CallBroker, is_redis
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.evaluation.sampling import QueueLoad

LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """Number of messages in the queues of a fleet that no worker has received yet."""

    calls: int
    dead_letters: int


class QueueWatch:
    """Thread that reads the queue depths of a fleet every few seconds, over one connection to the broker.

    Args:
        broker: the broker.
        load: is given each depth of the queue of calls; None: sampling does not follow it.
        seconds: time between two looks.
    """

    def __init__(self, broker: CallBroker, load: QueueLoad | None = None, seconds: float = LOOK_SECONDS) -> None:
        self._broker, self._load, self._seconds = broker, load, seconds
        self.depths: QueueDepths | None = None
        """Last depths that were read; None while the broker cannot be reached."""
        self.looked = threading.Event()
        """Event that is set when the depths have been read for the first time, or could not be."""
        self._connection: Any = None
        self._channel: Any = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that reads the queue depths."""
        self._thread = threading.Thread(target=self._run, name="ragtrace-fleet-watch", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop the thread that reads the queue depths, and wait for it at most *timeout* seconds."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.depths = self._look()
                if self._load is not None:
                    self._load.depth = self.depths.calls
            except Exception as error:
                self.depths = None
                faults.warn_once(
                    "fleet: looking at the queues",
                    "the broker of the fleet does not say how many calls wait (%s): sampling keeps to the number seen "
                    "last; every further failure is counted in ragtrace.stats().faults",
                    type(error).__name__,
                )
                self._close()
            self.looked.set()
            self._stopped.wait(self._seconds)
        self._close()

    def _look(self) -> QueueDepths:
        redis = is_redis(self._broker.url)
        if self._connection is None:
            self._connection = self._broker.redis() if redis else self._broker.connect()
        depth = self._depth_in_redis if redis else self._depth
        return QueueDepths(depth(CALLS), depth(DEAD_LETTERS))

    def _depth_in_redis(self, queue: str) -> int:
        return int(self._connection.llen(f"{REDIS_PREFIX}{queue}"))

    def _depth(self, queue: str) -> int:
        if self._channel is None:
            self._channel = self._connection.channel()
        with suppress(*self._connection.channel_errors):
            return int(self._channel.queue_declare(queue, passive=True).message_count)
        self._channel = None  # RabbitMQ closes a channel that asks for a missing queue
        return 0

    def _close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.close()
