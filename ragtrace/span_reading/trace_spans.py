"""`TraceSpans`: what is known of the spans of one trace while calls are assembled from them.

Of each span, its parent is known (`parents`). A span that is a step of a RAG call is besides in at most one of these
places at a time, and moves from each to those below it:

- `unended`: it has started. Only `CallAssembler.observe` sees starts, so there are none where spans come in by `add`,
  as in the gateway. Spans that are no steps are here, too.
- `lost`: it has ended, and its contents did not fit into the queue of spans.
- `readings`: it was read, and waits in the buffer.
- `handled`: it has left the buffer, in a call or left out.

The methods keep it so; `tests/unit/span_reading/test_trace_spans.py` checks it for spans in any order. A lost step
leaves by `forget_lost`, and an open span that is waited for no longer by `WaitLimits.forget_overdue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ragtrace.span_reading.finished_span import SpanReading

_MOST_PARENTS: Final = 40_000
"""Fewest spans of a trace at which those that no step waits for are forgotten."""


class OpenSpan(NamedTuple):
    """Span that has started and not ended."""

    is_genai: bool
    """Whether it is a span of generative AI."""
    since: float
    """Monotonic time at which its start came in."""
    start_ns: int = 0
    """Start, in nanoseconds since the epoch."""


@dataclass(slots=True, eq=False)
class TraceSpans:
    """Spans of one trace: their parents, and the steps among them that are in no call yet."""

    parents: dict[int, int] = field(default_factory=dict[int, int])
    """Parent's span id, 0 for none, of each span of the trace, started or ended, by span id."""
    unended: dict[int, OpenSpan] = field(default_factory=dict[int, OpenSpan])
    """Started spans that have not ended, by span id."""
    lost: dict[int, float] = field(default_factory=dict[int, float])
    """Monotonic time of the loss of each step whose contents are lost, by span id."""
    readings: dict[int, SpanReading] = field(default_factory=dict[int, SpanReading])
    """Readings that wait in the buffer, by span id."""
    seen: dict[int, float] = field(default_factory=dict[int, float])
    """Monotonic time of arrival of each of `readings`, by span id."""
    handled: dict[int, int | None] = field(default_factory=dict[int, "int | None"])
    """Readings that have left the buffer, by span id: the end of a workflow in nanoseconds since the epoch, None for
    another step."""
    presumed: set[int] = field(default_factory=set[int])
    """Span ids of those of `unended` that are taken for requests of their own, and steps below them for theirs."""
    remote: set[int] = field(default_factory=set[int])
    """Span ids of spans whose parent is in another process."""
    touched: float = 0.0
    """Monotonic time at which a span of the trace last came in, or was lost."""
    due: float = 0.0
    """Monotonic time from which the trace is checked for complete calls again."""
    bytes: int = 0
    """Memory that `readings` take."""
    most_parents: int = _MOST_PARENTS
    """Number of `parents` beyond which `forget_handled` is called."""

    # --- a span comes in, and leaves again ----------------------------------------------------------------------------

    def begin(self, span_id: int, parent_id: int, span: OpenSpan) -> None:
        """Note that a span has started.

        A span that has been read or was lost has ended, whose start a second span processor hands over.
        """
        self.parents[span_id] = parent_id
        if not self.is_read(span_id) and span_id not in self.lost:
            self.unended[span_id] = span

    def end(self, span_id: int, parent_id: int) -> None:
        """Note that a span has ended, whether it started in this process or not."""
        self.parents[span_id] = parent_id
        self.unended.pop(span_id, None)

    def lose(self, span_id: int, now: float) -> None:
        """Note that the contents of a step that has ended are lost, unless another span processor had room for it."""
        if not self.is_read(span_id):
            self.lost[span_id] = now

    def forget_lost(self, span_ids: Iterable[int]) -> None:
        """Forget lost steps, which have made the calls that they belong to incomplete."""
        for span_id in span_ids:
            del self.lost[span_id]

    def is_read(self, span_id: int) -> bool:
        """Return whether a span has been read, and waits or has left the buffer."""
        return span_id in self.readings or span_id in self.handled

    def keep(self, reading: SpanReading, now: float) -> None:
        """Let the reading of a span that has ended wait in the buffer; it is no longer lost."""
        self.lost.pop(reading.span_id, None)
        self.readings[reading.span_id], self.seen[reading.span_id] = reading, now

    def hand_over(self, span_id: int) -> SpanReading:
        """Remove the reading of a span from the buffer, and return it."""
        del self.seen[span_id]
        reading = self.readings.pop(span_id)
        self.mark_handled(reading)
        return reading

    def mark_handled(self, reading: SpanReading) -> None:
        """Note that a reading has left the buffer, or never waited in it."""
        self.handled[reading.span_id] = reading.span.end_ns if reading.step.kind == "trace" else None

    def forget_handled(self) -> None:
        """Forget all spans but those that wait: readings, spans that have not ended, and lost steps.

        So a trace that never ends takes bounded memory. A step that comes in below a forgotten one is not known to be
        late.
        """
        used = self.readings.keys() | self.unended.keys() | self.lost.keys()
        self.parents, self.handled = {key: self.parents[key] for key in used if key in self.parents}, {}
        self.remote &= self.parents.keys()
        self.presumed &= self.parents.keys()
        # If most spans still wait, this has freed next to nothing. As many more must come before it is done again:
        # were it done for each of them, the work would grow with the square of their number.
        self.most_parents = max(_MOST_PARENTS, 2 * len(self.parents))

    # --- what is above a span -----------------------------------------------------------------------------------------

    def ancestor_ids(self, span_id: int) -> Iterator[int]:
        """Yield the span ids of the known ancestors of a span, from its parent upwards."""
        met = {span_id}
        above = self.parents.get(span_id, 0)
        while above and above not in met:  # hostile data may have circles
            yield above
            met.add(above)
            above = self.parents.get(above, 0)

    def is_late(self, span_id: int, reading: SpanReading | None) -> bool:
        """Return whether a step that comes in is a part of a call whose steps have left the buffer.

        It is if it is below one of these, unless it belongs to a request that began after the end of that workflow:
        instrumentations that leave a context attached make the next request of a task a child of the one before. A
        request is a workflow with a question (`begins_separate_call`). One that has not ended yet is taken for a
        request (`presumed`); if it turns out to be none, the steps below it are late (`take_below`).

        Args:
            span_id: id of the step's span.
            reading: the step; None if its contents are lost.
        """
        top_id, top = span_id, reading
        for above in self.ancestor_ids(span_id):
            if above in self.handled:
                return not self._begins_separate_call(top_id, top, self.handled[above])
            if above in self.readings or self.unended.get(above, _NOT_GENAI).is_genai:
                top_id, top = above, self.readings.get(above)
        return False

    def _begins_separate_call(self, span_id: int, top: SpanReading | None, outer_end_ns: int | None) -> bool:
        """Return whether the outermost step around a step, below a handled one, begins a call of its own.

        Args:
            span_id: id of its span.
            top: its reading; None if it has not ended, or its contents are lost.
            outer_end_ns: end of the handled step, if that is a workflow.
        """
        if outer_end_ns is None:
            return False
        if top is not None:
            return begins_separate_call(top, outer_end_ns)
        if span_id in self.unended and self.unended[span_id].start_ns > outer_end_ns:
            self.presumed.add(span_id)
        return span_id in self.presumed

    def take_below(self, span_id: int) -> list[SpanReading]:
        """Return the waiting readings below a span that was taken for a request and is none; empty for other spans."""
        if span_id not in self.presumed:
            return []
        self.presumed.discard(span_id)
        return [each for each in self.readings.values() if span_id in self.ancestor_ids(each.span_id)]


def begins_separate_call(inner: SpanReading, outer_end_ns: int) -> bool:
    """Return whether a workflow below another workflow's span is a separate RAG call.

    That is so if it began after the end of the other, or if the instrumentation marks it as a root.

    Instrumentations that leave a context attached make the next request of a task a child of the one before. A workflow
    without a question is no request: the stream of an answer may be read after the workflow has returned.

    Args:
        inner: the lower step.
        outer_end_ns: end of the upper workflow, in nanoseconds since the epoch.
    """
    if inner.step.kind != "trace":
        return False
    return inner.begins_call or (inner.span.start_ns > outer_end_ns and inner.step.query is not None)


_NOT_GENAI: Final = OpenSpan(is_genai=False, since=0.0)
