"""The spans of calls that nobody will handle any more: ended as they are, as far as the time goes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import islice
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from ragtrace.errors import guarded
from ragtrace.providers import SPANS, Telemetry
from ragtrace.runtime.finished import Finished

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TraceFlags

_END_SECONDS: Final = 0.000_1
"""For one span, with what the exporter's queue makes of it."""
_PAUSE_SECONDS: Final = 0.005
_AT_ONCE: Final = 64


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
    return 0 if exporter is None else exporter.backlog.room()


def _comes(work: Finished) -> bool:
    """Whether its span would be exported."""
    span = work.step.span
    return not work.step.written and span is not None and _flags(span).sampled


def _flags(span: Span) -> TraceFlags:
    """Of a light span, without putting its context together: the collector of cycles would look at thousands more."""
    trace: Any = getattr(span, "trace", None)
    return trace[1] if isinstance(trace, tuple) else span.get_span_context().trace_flags  # pyright: ignore[reportUnknownVariableType]
