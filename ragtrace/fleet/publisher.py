"""Publishing of sampled RAG calls to the queue of a fleet, on a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from ragtrace.estimates.moments import MOST_SERIES, OTHER
from ragtrace.fleet.broker import CallBroker
from ragtrace.fleet.call_message import MessageError
from ragtrace.fleet.queue_watch import QueueWatch
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.evaluation.sampling import QueueLoad
    from ragtrace.fleet.call_message import CallMessage

Publication: TypeAlias = Literal["published", "too_large", "away"]
_AWAY_SECONDS: Final = 2.0
"""Time without a broker after which calls are stored in the spool file."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0
_GATHER_SECONDS: Final = 0.02
"""Time for which a batch waits for further calls: as long as the background worker gathers items."""
_BATCH_SECONDS: Final = 1.0
"""Shortest time between two batches, unless a flush waits: a call that is published alone costs several times the
processor time."""
_MOST_AT_ONCE: Final = 128
"""Most calls in a batch; a batch of this size is published at once."""
_parents_connections: list[object] = []
"""Connections of the parent process that a forked child keeps alive, because closing one would end the parent's."""


class _Publishing(NamedTuple):
    message: CallMessage
    spoolable: bool
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Publication]


class FleetPublisher:
    """Publisher of RAG calls to the queue of a fleet, in batches and with a result for each call.

    While the broker is away it tries again, with a growing pause. It holds no more calls than the places of the
    background worker for calls that wait for a judge.

    Args:
        broker: the broker.
        load: is given the depth of the queue, so that sampling follows it.
        judge_turns: most earlier turns of a conversation that a call takes along for the judge.
    """

    def __init__(self, broker: CallBroker, load: QueueLoad | None = None, *, judge_turns: int = 0) -> None:
        self.broker, self.load, self.judge_turns = broker, load, judge_turns
        self.reset()

    def reset(self) -> None:
        """Drop the broker connection and the queued calls after a fork, because both belong to the parent process."""
        _parents_connections.append(self.broker.detach())
        self._changed = threading.Condition()
        self._queue: deque[_Publishing] = deque()
        self._unjudged: Counter[str] = Counter()
        """Number of calls by workflow that were not handed over, and that no message says yet."""
        self._closed = False
        self._away_since: float | None = None
        self._n_waiting = 0
        """Flushes and shutdowns that wait for the calls."""
        self._next_batch = 0.0
        """Monotonic time before which a batch is published only if it is full."""
        self._thread: threading.Thread | None = None
        self.watch = QueueWatch(self.broker, self.load)
        """Monitor of the queues' depths, started by the first call."""

    @property
    def is_away(self) -> bool:
        """Whether the broker has accepted no call for so long that calls should go to the spool file instead."""
        since = self._away_since
        return since is not None and monotonic() - since >= _AWAY_SECONDS

    async def publish(self, message: CallMessage, *, spoolable: bool) -> Publication:
        """Put a RAG call into the queue of the fleet, and return the outcome.

        Args:
            message: the call.
            spoolable: whether to give up, with the result `away`, while the broker is away; else the call waits for it.
        """
        loop = asyncio.get_running_loop()
        publishing = _Publishing(message, spoolable, loop, loop.create_future())
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ragtrace-fleet", daemon=True)
                self._thread.start()
                self.watch.start()
            self._queue.append(publishing)
            if len(self._queue) in (1, _MOST_AT_ONCE):  # calls in between do not wake the thread
                self._changed.notify()
        return await publishing.done

    def count_unjudged(self, workflow: str) -> None:
        """Count a RAG call that could have been judged and is not handed over, for estimates by the workers.

        The next message takes the number along.
        """
        with self._changed:
            self._unjudged[workflow if workflow in self._unjudged or len(self._unjudged) < MOST_SERIES else OTHER] += 1

    @contextmanager
    def hurried(self) -> Generator[None, None, None]:
        """Publish calls without waiting for fuller batches, while a `with` block runs.

        A flush or a shutdown waits in the block.
        """
        with self._changed:
            self._n_waiting += 1
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._n_waiting -= 1

    def close(self, timeout: float) -> None:
        """Stop the publishing thread within *timeout* seconds. Unpublished calls have been cancelled by then."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)
        self.watch.stop(timeout / 4)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while (batch := self._next()) is not None:
            errors = self.broker.publish_all([each.message for each in batch])
            ends = list(zip(batch, errors, strict=True))
            published = [each for each, error in ends if error is None]
            if published:
                pause, self._away_since = _FIRST_PAUSE_SECONDS, None
            _settle(published, "published")
            self._end([each for each, error in ends if isinstance(error, MessageError)], "too_large")
            left = [(each, error) for each, error in ends if error is not None and not isinstance(error, MessageError)]
            if left:
                self._put_back([each for each, _ in left], left[0][1])
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self.broker.close()

    def _next(self) -> list[_Publishing] | None:
        """Wait for calls to publish, and return the next batch, or None when the publisher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            gathered = monotonic() + _GATHER_SECONDS
            while not self._closed and len(self._queue) < _MOST_AT_ONCE:
                now = monotonic()
                wait = (gathered if self._n_waiting else max(gathered, self._next_batch)) - now
                if wait <= 0:
                    break
                self._changed.wait(wait)
            if self._closed:
                return None
            self._next_batch = monotonic() + _BATCH_SECONDS
            taken = [self._queue.popleft() for _ in range(min(len(self._queue), _MOST_AT_ONCE))]
            batch = [each for each in taken if not each.done.cancelled()]
            # A message that is put back keeps its numbers: the broker may have stored one that it did not confirm, and
            # numbers that another message takes along would count twice.
            if batch and self._unjudged and not batch[0].message.unjudged:
                message = batch[0].message._replace(unjudged=dict(self._unjudged))
                batch[0], self._unjudged = batch[0]._replace(message=message), Counter()
        return batch

    def _end(self, publishings: Sequence[_Publishing], result: Publication) -> None:
        """Set the outcome of calls whose messages are dropped, and keep the numbers of calls in these messages."""
        with self._changed:
            for each in publishings:
                self._unjudged.update(each.message.unjudged)
        _settle(publishings, result)

    def _put_back(self, publishings: Sequence[_Publishing], error: Exception) -> None:
        """Put calls that the broker has not stored back to the front of the queue.

        If the broker has been away for long, give up all calls that can be spooled.
        """
        if self._away_since is None:
            self._away_since = monotonic()
        faults.warn_once(
            "fleet: the broker does not take calls",
            "the broker of the fleet takes no calls (%s); they wait, and are stored in the spool file if there is one; "
            "every further failure is counted in ragtrace.stats().faults",
            type(error).__name__,
        )
        with self._changed:
            self._queue.extendleft(reversed(publishings))
            if not self.is_away:
                return
            left, self._queue = self._queue, deque()
            self._queue.extend(each for each in left if not each.spoolable)
        self._end([each for each in left if each.spoolable], "away")


def _settle(publishings: Sequence[_Publishing], result: Publication) -> None:
    """Set the outcome of published calls in their futures, with a single wake-up of the event loop."""

    def settle() -> None:
        for each in publishings:
            if not each.done.done():
                each.done.set_result(result)

    if publishings:
        with suppress(RuntimeError):  # the worker's loop has ended, and the shutdown has accounted for its calls
            publishings[0].loop.call_soon_threadsafe(settle)
