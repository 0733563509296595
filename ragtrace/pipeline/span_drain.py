"""The end of a runtime: what a signal must not break off, and the spans of calls that are not handled any more."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from ragtrace.pipeline.shutdown_budget import HURRIED_SECONDS, Time
from ragtrace.pipeline.work_item import Finished
from ragtrace.system.faults import guarded
from ragtrace.system.threads import start
from ragtrace.telemetry.export.after_fork import SPANS
from ragtrace.telemetry.export.providers import Telemetry

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TraceFlags

_END_SECONDS: Final = 0.000_1
"""For one span, with what the exporter's queue makes of it."""
_PAUSE_SECONDS: Final = 0.005
_AT_ONCE: Final = 64
_GRACE_SECONDS: Final = 1.0
"""For a drain to come back after its time."""


class Drain:
    """The end of a runtime, run once on a thread where no signal handler of the application can break it off.

    A handler that raises (by default that of Ctrl-C; often `sys.exit` for SIGTERM) interrupts whoever waits: the drain
    is then cut short, so that what is left of it is to keep and to count, and is waited for all the same.

    Args:
        drain: does it within a time, and says whether nothing was lost.
        cut_short: makes it hurry; may be called from any thread, and before it has begun.
    """

    def __init__(self, drain: Callable[[Time], bool], cut_short: Callable[[], object]) -> None:
        self._drain, self._cut_short = drain, cut_short
        self._turns = [None]
        self._time: Time | None = None
        self._over = self._complete = False

    def run(self, time: Time, *, here: bool) -> bool:
        """Begin it, if that has not been done, and wait until it is over or *time* is; True if nothing was lost.

        Args:
            here: run it on the caller's thread, for which the drain would have to wait.

        Raises:
            BaseException: what a signal handler raised meanwhile.
        """
        interrupt: BaseException | None = None
        until = time.deadline + _GRACE_SECONDS
        while not self._over and monotonic() < until:
            raised = self._wait(time, until, here=here)
            if raised is not None:
                interrupt = interrupt or raised
                (self._time or time).cut_short()
                self._cut_short()
                until = min(until, monotonic() + HURRIED_SECONDS + _GRACE_SECONDS)
        if interrupt is not None:
            raise interrupt
        return self._complete

    def _wait(self, time: Time, until: float, *, here: bool) -> BaseException | None:
        """What a signal handler raised meanwhile."""
        try:
            self._begin(time, here=here)
            # No lock: a signal handler that runs here may end up here, too.
            while not self._over and monotonic() < until:
                sleep(_PAUSE_SECONDS)
        except BaseException as error:
            return error
        return None

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self._over

    def forget(self) -> None:
        """In a forked child: what the parent had begun is the parent's."""
        if not self._turns:
            self._over, self._complete = True, True

    def _begin(self, time: Time, *, here: bool) -> None:
        if self._turns and here:
            self._run(time)
        elif self._turns:
            start(partial(self._run, time))

    def _run(self, time: Time) -> None:
        try:
            self._turns.pop()  # atomic: begun twice if a signal came at the wrong moment, it is run once
        except IndexError:
            return
        try:
            self._time = time
            self._complete = self._drain(time)
        finally:
            self._over = True


def end_spans(
    works: list[Finished],
    end: Callable[[Finished], object],
    lose: Callable[[int], bool],
    room: Callable[[], int],
    until: float,
) -> None:
    """End the spans of *works*; those for which *until* leaves no time or room are lost, if that can be counted.

    Args:
        works: taken out of the list; what is lost at once, lest the collector of cycles go through it.
        end: ends the span of one.
        lose: told how many spans will not come; False: nobody counts them, so they are ended after all.
        room: how many spans the exporter's queue has room for now, if there is one that counts.
        until: monotonic seconds.
    """
    works.reverse()
    counted, free = lose(0), 0
    if counted:
        _lose(works, len(works) - int((until - monotonic()) / _END_SECONDS), lose)
    while works:
        if counted and monotonic() > until:
            _lose(works, len(works), lose)
        elif counted and _comes(works[-1]) and not (free := free or room()):
            sleep(_PAUSE_SECONDS)
        else:
            free -= 1
            with guarded("dropping a call"):
                end(works.pop())


@contextmanager
def undisturbed() -> Generator[None, None, None]:
    """While the block runs, the collector of cycles does not: over thousands of calls it takes a quarter of a second.

    It is for the last moments of a shutdown, which has promised to be back in time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _lose(works: list[Finished], count: int, lose: Callable[[int], bool]) -> None:
    """Lose as many of *works*, which are in reverse order: the last to come."""
    count = min(count, len(works))
    if count > 0:
        lose(sum(map(_comes, islice(works, count))))
    for end in range(count, 0, -_AT_ONCE):  # in pieces: nobody else gets the interpreter while one is let go
        del works[max(0, end - _AT_ONCE) : end]


def room_for_spans(telemetry: Telemetry) -> int:
    """How many more our exporter's queue has room for."""
    exporter = telemetry.exporters.get(SPANS)
    return 0 if exporter is None else exporter.queue.room()


def _comes(work: Finished) -> bool:
    """Whether its span would be exported."""
    span = work.step.span
    return not work.step.written and span is not None and _flags(span).sampled


def _flags(span: Span) -> TraceFlags:
    """Of a light span, without putting its context together: the collector of cycles would look at thousands more."""
    trace: Any = getattr(span, "trace", None)
    return trace[1] if isinstance(trace, tuple) else span.get_span_context().trace_flags  # pyright: ignore[reportUnknownVariableType]
