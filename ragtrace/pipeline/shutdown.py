"""Shutdown of a runtime: time budget, uninterruptible thread, ending of open spans, and report of losses."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from math import inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Protocol

from ragtrace.pipeline.worker import Worker
from ragtrace.system.faults import guarded, log_safely
from ragtrace.system.threads import start_in_thread
from ragtrace.telemetry.export.telemetry import SPANS, Telemetry

if TYPE_CHECKING:
    from opentelemetry.trace import TraceFlags

    from ragtrace.pipeline.work_items import SpanItem

EXIT_SECONDS: Final = 5.0
"""Timeout of the shutdown at exit."""
AT_LEAST_SECONDS: Final = 0.03
"""Time that each step of a shutdown gets even when no time is left."""
_INTERRUPTED_SECONDS: Final = 1.0
"""Time that an interrupted shutdown has to store and count unscored calls."""
_FILE_SECONDS: Final = 0.05
"""Shortest time to wait for a file that is locked or on a slow disk."""
_OVERTIME_SECONDS: Final = 0.06
"""Time for all steps after the deadline together, so that a shutdown returns within 0.1 s of its timeout."""
_AFTER_SCORING_SECONDS: Final = 1.0
_AFTER_SCORING_AT_LEAST_SECONDS: Final = 0.1
_COLLECTED_SECONDS: Final = 0.000_02
"""Time for which the garbage collector stops all threads to visit one item."""
_ITEM_SECONDS: Final = 2 * _COLLECTED_SECONDS
"""Time to drop one item, which is counted and visited by the garbage collector."""
_SPOOLED_ITEM_SECONDS: Final = 0.000_2
"""Mean time to store one item in the spool file; a call takes much longer than a step."""
_MOST_AFTER_SCORING: Final = 0.6
"""Highest share of the timeout, from 0 to 1, that is kept for the steps after scoring."""
_CLOSING_SHARE: Final = 1 / 6
_CLOSING_SECONDS: Final = 0.15
_SPAN_SECONDS: Final = 0.000_1
"""Time to end one span and to queue it for export."""
_PAUSE_SECONDS: Final = 0.005
_RELEASED_AT_ONCE: Final = 64
_GRACE_SECONDS: Final = 1.0
"""Time for which a shutdown waits for its drain after the deadline."""
_HISTORY: Final = "history"


def file_timeout(deadline: float) -> float:
    """Return how many seconds to wait for a locked file: until the monotonic *deadline*, but at least 0.05 s."""
    return max(_FILE_SECONDS, deadline - monotonic())


class ShutdownBudget:
    """Time budget of a flush or a shutdown, which grants each step a part of the remaining time.

    Args:
        timeout: seconds.
        unfinished: items that are queued or in flight.
    """

    def __init__(self, timeout: float, unfinished: int = 0) -> None:
        now = monotonic()
        self.deadline = now + timeout
        self.closing = min(_CLOSING_SECONDS + unfinished * _COLLECTED_SECONDS, timeout * _CLOSING_SHARE)
        """Seconds of a shutdown that are kept for the last steps: ending the remaining spans, and a last export."""
        self._latest = max(now, self.deadline) + _OVERTIME_SECONDS

    def cut_short(self) -> None:
        """Shorten the time budget after an interrupt, so that it ends in one second at the latest."""
        now = monotonic()
        self.deadline = min(self.deadline, now + _INTERRUPTED_SECONDS)
        self._latest = min(self._latest, now + _INTERRUPTED_SECONDS + _OVERTIME_SECONDS)

    def seconds_left(self, *, reserved: float = 0.0) -> float:
        """Return how many seconds the next step of the flush or shutdown may take.

        At the deadline, and shortly after it, that is still 0.03 s.

        Args:
            reserved: seconds that are kept for later steps.
        """
        now = monotonic()
        return max(0.0, self.deadline - reserved - now, min(AT_LEAST_SECONDS, self._latest - now))

    def until(self, *, reserved: float = 0.0) -> float:
        """Return the monotonic time by which the next step of the shutdown must have ended.

        Args:
            reserved: seconds that are kept for later steps.
        """
        return monotonic() + self.seconds_left(reserved=reserved)

    def until_stored(self) -> float:
        """Return the monotonic time by which unscored calls must have been written to the spool file."""
        return monotonic() + file_timeout(self.deadline - self.closing)


def reserved_after_scoring(timeout: float, unfinished: int, *, spools: bool) -> float:
    """Return how many seconds of a shutdown to reserve for the steps after scoring: storing calls, ending spans,
    export.

    The more items are left, the more seconds; and more with a spool: calls that are not scored in time are to be
    stored, or at least counted.

    Args:
        timeout: seconds of the whole shutdown.
        unfinished: items that are queued or in flight.
        spools: whether there is a spool.
    """
    share = max(timeout / 4, min(_AFTER_SCORING_AT_LEAST_SECONDS, timeout / 2))
    least = min(_AFTER_SCORING_SECONDS, share)
    wanted = _AFTER_SCORING_AT_LEAST_SECONDS + unfinished * (_SPOOLED_ITEM_SECONDS if spools else _ITEM_SECONDS)
    return max(least, min(wanted, timeout * _MOST_AFTER_SCORING))


class ShutdownTask:
    """Shutdown that runs exactly once, on its own thread, where signal handlers of the application cannot interrupt it.

    A handler that raises (by default that of Ctrl-C; often `sys.exit` for SIGTERM) interrupts the thread that waits.
    The drain is then cut short, so that unscored calls are stored and counted, and is waited for all the same.

    Args:
        drain: shuts the runtime down within a budget; returns whether nothing was lost.
        worker: cut short by an interrupt.
    """

    def __init__(self, drain: Callable[[ShutdownBudget], bool], worker: Worker[Any]) -> None:
        self._drain, self._worker = drain, worker
        self._turns = [None]
        self._budget: ShutdownBudget | None = None
        self._over = self._complete = False

    @property
    def has_ended(self) -> bool:
        """Whether the shutdown has ended."""
        return self._over

    def run_once(self, budget: ShutdownBudget, patience: float = inf) -> bool:
        """Start the shutdown, or join a shutdown in progress, wait for its end, and return whether nothing was lost.

        Args:
            budget: its time budget; the wait ends a second after its deadline at the latest.
            patience: seconds after which the wait ends, and the shutdown goes on in the background.

        Raises:
            BaseException: what a signal handler raised meanwhile.
        """
        interrupt: BaseException | None = None
        until = min(budget.deadline + _GRACE_SECONDS, monotonic() + patience)
        while not self._over and monotonic() < until:
            try:
                if self._turns and self._worker.is_current_thread:  # here, as another thread would wait for this one
                    self._run(budget)
                elif self._turns:
                    start_in_thread(partial(self._run, budget))
                # Polled without a lock: a signal handler that runs here may call `shutdown` and get here itself.
                while not self._over and monotonic() < until:
                    sleep(_PAUSE_SECONDS)
            except BaseException as raised:  # noqa: PERF203  # an interrupt does not end the wait
                interrupt = interrupt or raised
                (self._budget or budget).cut_short()
                self._worker.cut_short()
                until = min(until, monotonic() + _INTERRUPTED_SECONDS + _GRACE_SECONDS)
        if interrupt is not None:
            raise interrupt
        return self._complete

    def _run(self, budget: ShutdownBudget) -> None:
        try:
            self._turns.pop()  # atomic: if a signal handler begins the shutdown as well, only one of the two runs it
        except IndexError:
            return
        try:
            self._budget = budget
            self._complete = self._drain(budget)
        finally:
            self._over = True


class SpanQueue(Protocol):
    """Interface of an export queue of spans, with its remaining capacity and its count of lost spans."""

    def count_lost_spans(self, count: int) -> bool:
        """Add *count* to the number of lost spans, and return whether there is an export queue."""
        ...

    def remaining_span_capacity(self) -> int:
        """Return how many more spans fit into the export queue."""
        ...


def end_spans(items: list[SpanItem], end: Callable[[SpanItem], object], export: SpanQueue, until: float) -> None:
    """End the spans of unfinished work items before a shutdown, and count the remaining spans as lost.

    Spans remain if the time or the room in the export queue runs out.

    Args:
        items: the items, which are removed from the list; lost ones at once, so that the garbage collector need not
            visit them.
        end: ends the span of one item.
        export: the queue that ended spans enter; if it counts no losses, all spans are ended.
        until: monotonic seconds.
    """
    items.reverse()
    counted, free = export.count_lost_spans(0), 0
    if counted:
        _drop_first(items, len(items) - int((until - monotonic()) / _SPAN_SECONDS), export)
    while items:
        if counted and monotonic() > until:
            _drop_first(items, len(items), export)
        elif counted and _is_exported(items[-1]) and not (free := free or export.remaining_span_capacity()):
            sleep(_PAUSE_SECONDS)
        else:
            free -= 1
            with guarded("dropping a call"):
                end(items.pop())


@contextmanager
def garbage_collection_disabled() -> Generator[None, None, None]:
    """Disable Python's garbage collector for the duration of a `with` block.

    With thousands of calls one collection takes 0.25 s.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _drop_first(items: list[SpanItem], count: int, export: SpanQueue) -> None:
    """Remove the first *count* work items from the list and count their spans as lost."""
    count = min(count, len(items))
    if count > 0:
        export.count_lost_spans(sum(map(_is_exported, islice(items, count))))
    for end in range(count, 0, -_RELEASED_AT_ONCE):  # in pieces: no other thread runs while one is released
        del items[max(0, end - _RELEASED_AT_ONCE) : end]


def _is_exported(item: SpanItem) -> bool:
    """Return whether ending the span of a work item exports the span."""
    span = item.step.span
    if item.step.written or span is None:
        return False
    # The flags are read without building the span's context: the garbage collector would visit thousands of contexts.
    trace: Any = getattr(span, "trace", None)
    pair: Any = tuple  # typed as Any: `isinstance` with `tuple` would leave the types of the items unknown
    flags: TraceFlags = trace[1] if isinstance(trace, pair) else span.get_span_context().trace_flags
    return flags.sampled


def count_losses(telemetry: Telemetry, dropped_spans: int) -> Mapping[tuple[str, str], int]:
    """Return the number of spans, events and history entries lost so far, by signal and reason.

    Args:
        dropped_spans: spans for which the worker's queue had no room.
    """
    counts: Counter[tuple[str, str]] = Counter()
    if dropped_spans:
        counts[SPANS, "queue_full"] = dropped_spans
    for what, exporter in telemetry.exporters.items():
        for why, count in exporter.queue.losses.copy().items():
            counts[what, why.replace(" ", "_")] += count
    for history in telemetry.histories:
        for why, count in history.lost.copy().items():
            counts[_HISTORY, why] += count
    return counts


def log_losses(dropped: Mapping[str, int], undelivered: int, *, pending: int, delivered: bool) -> bool:
    """Log the number of calls, spans and events that were lost, and return whether nothing was lost.

    Args:
        dropped: calls that went unscored, by reason.
        undelivered: spans and events that did not reach the backend.
        pending: calls of which it is not known yet whether they are scored, or whose answers were being checked.
        delivered: whether everything was exported in time.
    """
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        log_safely(logging.WARNING, "calls that went unscored since ragtrace was configured: %s", reasons)
    if pending:
        log_safely(logging.WARNING, "calls that were still pending when ragtrace was shut down: %d", pending)
    if undelivered:
        log_safely(logging.WARNING, "spans and events that were lost on their way to the backend: %d", undelivered)
    elif not delivered:
        log_safely(
            logging.WARNING,
            "ragtrace.shutdown: telemetry was still waiting for export at the deadline; pass a longer timeout=",
        )
    return delivered and not dropped and not pending and not undelivered
