"""Publishing of sampled RAG calls to the queue of a fleet, in batches, on the event loop of the background worker."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from ragtrace.core.part import Part
from ragtrace.estimates.moments import MOST_SERIES, OTHER
from ragtrace.fleet.broker import Broker
from ragtrace.fleet.call_message import MessageError, write_message
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
_BATCH_BYTES: Final = 1 << 20
"""Size of the messages after which a batch takes no further one."""


class _Publishing(NamedTuple):
    message: CallMessage
    spoolable: bool
    done: asyncio.Future[Publication]


class FleetPublisher(Part):
    """Publisher of RAG calls to the queue of a fleet, in batches and with a result for each call.

    It runs on the event loop on which `publish` is awaited, and needs no thread. While the broker is away it tries
    again, with a growing pause. It holds no more calls than the places of the background worker for calls that wait for
    a judge.

    Args:
        broker: client of the broker.
        load: is given the depth of the queue, so that sampling follows it.
        judge_turns: most earlier turns of a conversation that a call takes along for the judge.
    """

    def __init__(
        self,
        broker: Broker,
        load: QueueLoad | None = None,
        *,
        judge_turns: int = 0,
    ) -> None:
        self.load, self.judge_turns = load, judge_turns
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._broker = broker
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._queue: deque[_Publishing] = deque()
        self._unjudged: Counter[str] = Counter()
        """Number of calls by workflow that were not handed over, and that no message says yet."""
        self._away_since: float | None = None
        self._n_waiting = 0
        """Flushes and shutdowns that wait for the calls."""
        self._next_batch = 0.0
        """Monotonic time before which a batch is published only if it is full."""
        self.watch = QueueWatch(self._broker, self.load)
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
        if not self._tasks:
            self._loop = loop
            self._tasks = (loop.create_task(self._run()), loop.create_task(self.watch.run()))
        publishing = _Publishing(message, spoolable, loop.create_future())
        self._queue.append(publishing)
        if len(self._queue) in (1, _MOST_AT_ONCE):  # calls in between do not wake the task
            self._changed.set()
        return await publishing.done

    def count_unjudged(self, workflow: str) -> None:
        """Count a RAG call that could have been judged and is not handed over, for estimates by the workers.

        The next message takes the number along. Called on the event loop's thread, as `publish` is.
        """
        self._unjudged[workflow if workflow in self._unjudged or len(self._unjudged) < MOST_SERIES else OTHER] += 1

    @contextmanager
    def hurried(self) -> Generator[None, None, None]:
        """Publish calls without waiting for fuller batches, while a `with` block runs on any thread.

        A flush or a shutdown waits in the block.
        """
        with self._lock:
            self._n_waiting += 1
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._changed.set)
        try:
            yield
        finally:
            with self._lock:
                self._n_waiting -= 1

    def flush(self, timeout: float) -> bool:
        """Return whether no call waits to be published; `hurried` has them published while the worker is waited for."""
        return not self._queue

    async def aclose(self) -> None:
        """Stop publishing and close the connection to the broker, as the last work on the event loop."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._broker.aclose()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            batch = await self._next()
            try:
                errors = await self._send(batch)
            except Exception as error:  # a bug must not end the task, on which calls and flushes wait
                faults.record("fleet: publishing", error)
                errors = [error] * len(batch)
            ends = list(zip(batch, errors, strict=True))
            published = [each for each, error in ends if error is None]
            if published:
                pause, self._away_since = _FIRST_PAUSE_SECONDS, None
            self._settle(published, "published")
            self._drop([each for each, error in ends if isinstance(error, MessageError)], "too_large")
            left = [(each, error) for each, error in ends if error is not None and not isinstance(error, MessageError)]
            if left:
                self._put_back([each for each, _ in left], left[0][1])
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _next(self) -> list[_Publishing]:
        """Wait for calls to publish, and return the next batch."""
        while not self._queue:
            await self._wait(None)
        gathered = monotonic() + _GATHER_SECONDS
        while len(self._queue) < _MOST_AT_ONCE:
            wait = (gathered if self._n_waiting else max(gathered, self._next_batch)) - monotonic()
            if wait <= 0:
                break
            await self._wait(wait)
        self._next_batch = monotonic() + _BATCH_SECONDS
        taken = [self._queue.popleft() for _ in range(min(len(self._queue), _MOST_AT_ONCE))]
        batch = [each for each in taken if not each.done.cancelled()]
        # A message that is put back keeps its numbers: the broker may have stored one that it did not confirm, and
        # numbers that another message takes along would count twice.
        if batch and self._unjudged and not batch[0].message.unjudged:
            message = batch[0].message._replace(unjudged=dict(self._unjudged))
            batch[0], self._unjudged = batch[0]._replace(message=message), Counter()
        return batch

    async def _wait(self, seconds: float | None) -> None:
        """Wait until the queue has changed or a flush waits, for at most *seconds*."""
        self._changed.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def _send(self, batch: Sequence[_Publishing]) -> list[Exception | None]:
        """Publish a batch in parts of limited size, and return for each call None or why it is not in the queue."""
        errors: list[Exception | None] = []
        while len(errors) < len(batch):
            texts: list[str] = []
            sent: list[int] = []
            while len(errors) < len(batch) and sum(map(len, texts)) < _BATCH_BYTES:
                error: Exception | None = None
                try:
                    texts.append(write_message(batch[len(errors)].message))
                    sent.append(len(errors))
                except Exception as raised:
                    error = raised
                errors.append(error)
            if texts:
                for number, error in zip(sent, await self._broker.publish(texts), strict=True):
                    errors[number] = error
        return errors

    def _drop(self, publishings: Sequence[_Publishing], result: Publication) -> None:
        """Set the outcome of calls whose messages are dropped, and keep the numbers of calls in these messages."""
        for each in publishings:
            self._unjudged.update(each.message.unjudged)
        self._settle(publishings, result)

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
        self._queue.extendleft(reversed(publishings))
        if not self.is_away:
            return
        left, self._queue = self._queue, deque()
        self._queue.extend(each for each in left if not each.spoolable)
        self._drop([each for each in left if each.spoolable], "away")

    def _settle(self, publishings: Sequence[_Publishing], result: Publication) -> None:
        """Set the outcome of calls."""
        for each in publishings:
            if not each.done.done():
                each.done.set_result(result)
