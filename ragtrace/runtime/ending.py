"""The spans of calls that nobody will handle any more: ended as they are, as far as the time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from ragtrace.errors import guarded
from ragtrace.runtime.finished import Finished

_BEFORE_SECONDS = 0.003
"""So that whoever waits for it until then knows what was lost."""


def end_spans(
    works: Sequence[Finished], end: Callable[[Finished], object], lose: Callable[[int], bool], until: float
) -> None:
    """End the spans of *works*; those that are left at *until* are lost, if that can be counted.

    Args:
        end: ends the span of one.
        lose: told how many spans will not come; False: nobody counts them, so they are ended after all.
        until: monotonic seconds.
    """
    in_time = True
    for number, work in enumerate(works):
        if in_time and monotonic() > until - _BEFORE_SECONDS:
            in_time = False
            if lose(sum(map(_comes, works[number:]))):
                return
        with guarded("dropping a call"):
            end(work)


def _comes(work: Finished) -> bool:
    """Whether its span would be exported."""
    context = work.step.span_context
    return not work.step.written and work.step.span is not None and context is not None and context.trace_flags.sampled
