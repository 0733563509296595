"""`TraceSpans`: what is known of the spans of one trace while calls are assembled from them.

Of each span, its parent is known (`parents`). A span that is a step of a RAG call is besides in at most one of these
places at a time, and moves from each to those below it:

- `unended`: it has started. Only `CallAssembler.observe` sees starts, so there are none where spans come in by `add`,
  as in the gateway. Spans that are no steps are here, too.
- `lost`: it has ended, and its contents did not fit into the queue of spans.
- `readings`: it was read, and waits in the buffer.
- `handled`: it has left the buffer, in a call or left out.

The methods keep it so; `tests/unit/span_reading/test_trace_spans.py` checks it for spans in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    handled: dict[int, None] = field(default_factory=dict[int, None])
    """Span ids of the readings that have left the buffer, in order."""
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
        self.handled[span_id] = None
        return self.readings.pop(span_id)

    def forget_handled(self) -> None:
        """Forget all spans but those that wait: readings, spans that have not ended, and lost steps.

        So a trace that never ends takes bounded memory. A step that comes in below a forgotten one is not known to be
        late.
        """
        used = self.readings.keys() | self.unended.keys() | self.lost.keys()
        self.parents, self.handled = {key: self.parents[key] for key in used if key in self.parents}, {}
        self.remote &= self.parents.keys()
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

    def is_below_handled(self, span_id: int) -> bool:
        """Return whether a span is below one that has left the buffer."""
        return any(above in self.handled for above in self.ancestor_ids(span_id))
