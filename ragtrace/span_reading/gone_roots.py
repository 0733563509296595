"""`GoneRoots`: spans whose steps have become calls, or were left out, without them.

Such a span may come in long after its trace was forgotten. It is then no call of its own: its steps are gone, and
without them it would be scored a second time, or without its contexts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from ragtrace.span_reading.finished_span import SpanReading

WhyGone: TypeAlias = Literal["late", "incomplete"]
"""What has become of the steps: they were returned as a call (`late`), or were `incomplete` without the span."""
_MOST: Final = 20_000
"""Spans that are remembered, of about 300 bytes each: at 30 requests a second, those of ten minutes."""


class _Gone(NamedTuple):
    why: WhyGone
    workflows_since: int | None
    """Start of the first of the steps, in nanoseconds since the epoch, if each is a workflow with a question."""


class GoneRoots:
    """Bounded memory of the spans above steps that have left the buffer without them; the oldest are forgotten."""

    def __init__(self) -> None:
        self._gone: OrderedDict[tuple[int, int], _Gone] = OrderedDict()

    def note(self, span_ids: Iterable[int], steps: Collection[SpanReading], why: WhyGone) -> None:
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
            self._gone.update(((trace_id, span_id), _Gone(why, since)) for span_id in span_ids)
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
