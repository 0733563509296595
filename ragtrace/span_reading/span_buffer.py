"""`SpanBuffer`: the traces whose spans wait to become calls, in bounded memory.

A trace is *live* while any span of it waits. When none does, it is *retired*: kept for a minute, so that a span which
comes in below a call that was returned is known to be late. A live trace is *evicted* if there is no room: its steps
leave the buffer, and when they ran is remembered, as a call of the trace that went on meanwhile would lack them.

`tests/unit/span_reading/test_span_buffer.py` checks for steps in any order that the numbers of steps and bytes are
those of the live traces, and that each step leaves the buffer once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.intervals import time_span
from ragtrace.span_reading.trace_spans import TraceSpans

_RETIRED_SECONDS: Final = 60.0
"""Time for which a retired trace is kept. Spans come in the order in which they end, but for the delays of exporters,
which are of some seconds."""
_MOST_EVICTED: Final = 20_000
"""Evicted traces whose times are remembered, of about 200 bytes each; the oldest are forgotten."""
_READING_BYTES: Final = 1_000
"""Memory of a reading without its texts, and of its entries in the dictionaries, about."""
_LATEST_NS: Final = 2**63
"""Later than every span, in nanoseconds since the epoch."""


class SpanBuffer:
    """Bounded buffer of the traces whose spans wait to become calls. Not safe for use from several threads.

    Args:
        most_readings: readings that wait at a time; for one more, the oldest trace is evicted.
        most_bytes: memory that they may take.
        most_traces: live traces at a time, and retired ones.
        on_evicted: is given the readings of each trace that is evicted.
    """

    def __init__(
        self,
        *,
        most_readings: int,
        most_bytes: int,
        most_traces: int,
        on_evicted: Callable[[Collection[SpanReading]], None],
    ) -> None:
        self._most_readings, self._most_bytes, self._most_traces = most_readings, most_bytes, most_traces
        self._on_evicted = on_evicted
        self._live: OrderedDict[int, TraceSpans] = OrderedDict()
        """Live traces by trace id, the oldest first."""
        self._retired: OrderedDict[int, TraceSpans] = OrderedDict()
        """Retired traces by trace id, in the order in which they were retired."""
        self._evicted: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """Start and end of the evicted steps of each trace, in nanoseconds since the epoch."""
        self._n_readings = self._n_bytes = 0

    def __len__(self) -> int:
        """Number of readings that wait."""
        return self._n_readings

    @property
    def live_ids(self) -> Collection[int]:
        """Trace ids of the live traces."""
        return self._live.keys()

    def live_traces(self) -> list[tuple[int, TraceSpans]]:
        """Return the live traces with their ids, the oldest first."""
        return list(self._live.items())

    def live_trace(self, trace_id: int) -> TraceSpans | None:
        """Return a trace if it is live, or else None."""
        return self._live.get(trace_id)

    def touch(self, trace_id: int, now: float) -> TraceSpans:
        """Return the trace of a span that has come in, which is live from now on. Others may be evicted for it."""
        trace = self._live.get(trace_id)
        if trace is None:
            trace = self._live[trace_id] = self._retired.pop(trace_id, TraceSpans())
            while len(self._live) > self._most_traces:
                self.evict_oldest()
        if len(trace.parents) > trace.most_parents:
            trace.forget_handled()
        trace.touched = now
        return trace

    def keep(self, trace: TraceSpans, reading: SpanReading, now: float) -> None:
        """Let a reading of a live trace wait. Traces may be evicted for it: also its own, if that is the oldest."""
        trace.keep(reading, now)
        self._count(trace, reading, 1)
        while self._n_readings > self._most_readings or self._n_bytes > self._most_bytes:
            self.evict_oldest()

    def hand_over(self, trace: TraceSpans, readings: Iterable[SpanReading]) -> None:
        """Remove *readings* of a live trace from the buffer."""
        for reading in readings:
            trace.hand_over(reading.span_id)
            self._count(trace, reading, -1)

    def retire(self, trace_id: int) -> None:
        """Keep a live trace in which no span waits, for a minute."""
        self._retired[trace_id] = self._live.pop(trace_id)

    def forget_old(self, now: float) -> None:
        """Forget the retired traces in which nothing has come in for a minute."""
        while self._retired and (
            len(self._retired) > self._most_traces
            or now - next(iter(self._retired.values())).touched > _RETIRED_SECONDS
        ):
            self._retired.popitem(last=False)

    def clear(self) -> list[SpanReading]:
        """Remove all live traces, and return the readings that waited."""
        waiting = [reading for trace in self._live.values() for reading in trace.readings.values()]
        self._live.clear()
        self._n_readings = self._n_bytes = 0
        return waiting

    # --- eviction -----------------------------------------------------------------------------------------------------

    def evict_oldest(self) -> None:
        """Evict the oldest live trace."""
        self.evict(next(iter(self._live)))

    def evict(self, trace_id: int) -> None:
        """Remove a live trace from the buffer, and remember when its steps ran."""
        trace = self._live.pop(trace_id)
        self._n_readings -= len(trace.readings)
        self._n_bytes -= trace.bytes
        self._on_evicted(trace.readings.values())
        times = [time_span(trace.readings.values())] if trace.readings else []
        times += [(0, _LATEST_NS)] if trace.lost else []  # when those steps ran is not known
        times += [self._evicted.pop(trace_id)] if trace_id in self._evicted else []
        if times:
            self._evicted[trace_id] = min(start for start, _ in times), max(end for _, end in times)
        while len(self._evicted) > _MOST_EVICTED:
            self._evicted.popitem(last=False)

    def evicted_times(self, trace_id: int) -> tuple[int, int] | None:
        """Return start and end of the steps of a trace that were evicted, or None if none were.

        Both are in nanoseconds since the epoch.
        """
        return self._evicted.get(trace_id)

    def _count(self, trace: TraceSpans, reading: SpanReading, sign: int) -> None:
        size = _READING_BYTES + reading.step.text_bytes() + reading.span.text_bytes
        trace.bytes += sign * size
        self._n_bytes += sign * size
        self._n_readings += sign
