"""`GoneRoots`: spans whose steps have become calls, or were left out, without them.

Such a span may come in long after its trace was forgotten. It is then no call of its own: its steps are gone, and
without them it would be scored a second time, or without its contexts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final, Literal, NamedTuple, TypeAlias

from ragtrace.span_reading.finished_span import SpanReading

WhyGone: TypeAlias = Literal["late", "incomplete", "duplicates"]
"""What has become of the steps: they were returned as a call (`late`), they were no call, or `incomplete`, without the
span, or they were `duplicates` of another recording."""
_MOST: Final = 20_000
"""Spans that are remembered, of about 300 bytes each: at 30 requests a second, those of ten minutes."""


class _Gone(NamedTuple):
    why: WhyGone
    workflows_since: int | None
    """Start of the first of the steps, in nanoseconds since the epoch, if each is a workflow with a question."""

    def and_also(self, why: WhyGone, workflows_since: int | None) -> _Gone:
        """Return what is known of a span when more steps have left the buffer without it."""
        since = (self.workflows_since, workflows_since)
        both = [each for each in since if each is not None]
        return _Gone("late" if why == "late" else self.why, min(both) if len(both) == len(since) else None)


class GoneRoots:
    """Bounded memory of the spans above steps that have left the buffer without them; the oldest are forgotten."""

    def __init__(self) -> None:
        self._gone: OrderedDict[tuple[int, int], _Gone] = OrderedDict()

    def note(self, span_ids: Collection[int], steps: Collection[SpanReading], why: WhyGone) -> None:
        """Remember spans that have not come in, and that steps have left the buffer without.

        Args:
            span_ids: ids of the spans, which are all above each of the steps.
            steps: the topmost of the steps, all of one trace.
            why: what has become of the steps.
        """
        since = None
        if all(each.step.kind == "trace" and each.step.query is not None for each in steps):
            since = min((each.span.start_ns for each in steps), default=None)
        for trace_id in {each.span.context.trace_id for each in steps}:
            for key in [(trace_id, span_id) for span_id in span_ids]:
                known = self._gone.pop(key, None)
                self._gone[key] = _Gone(why, since) if known is None else known.and_also(why, since)
        while len(self._gone) > _MOST:
            self._gone.popitem(last=False)

    def why_too_late(self, reading: SpanReading) -> WhyGone | None:
        """Return why a workflow or a generation is no call, as the steps below it are gone, or None if it may be one.

        A workflow that had ended before the workflows below it began has lost nothing: an instrumentation that leaves
        its context attached makes the next request of a task a child of the one before.
        """
        gone = self._gone.get((reading.span.context.trace_id, reading.span_id))
        if gone is None or reading.step.kind not in ("trace", "generate"):
            return None
        if gone.workflows_since is not None and reading.span.end_ns < gone.workflows_since:
            return None
        return gone.why
