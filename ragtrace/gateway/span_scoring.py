"""Scoring of the RAG calls in received spans, on a separate thread behind a bounded queue."""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from time import monotonic, sleep
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.core import semconv
from ragtrace.core.step import CallBuilder
from ragtrace.gateway.otlp_requests import Payload
from ragtrace.span_reading.assembler import CallAssembler, LossReason
from ragtrace.span_reading.call_draft import AssembledCall
from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.otlp_json import OtlpJsonReader
from ragtrace.span_reading.otlp_protobuf import spans_in
from ragtrace.system.faults import faults, guarded
from ragtrace.system.threads import background_thread

_MOST_ATTRIBUTES: Final = 4_096
"""Largest number of attributes of a span with its events; the SDK's own limit is 128."""
_MOST_TRACES: Final = 200_000
_MOST_SPANS: Final = 200_000
_LOOKS_PER_SETTLING: Final = 10
_LONGEST_LOOK_SECONDS: Final = 1.0
_ROOM_POLL_SECONDS: Final = 0.005
_ADVICE: Final[Mapping[LossReason, str]] = {
    "incomplete": "spans above or beside them have not come; route the spans of a trace to one gateway (docs/scale.md)",
    "evicted": "too many spans of calls that are not complete were waiting; raise --queue-mib",
    "late": "their call had been scored before they came; raise --settle-seconds",
    "failed": "building their call raised; the log has the error",
}
"""Advice against the loss of steps, by the reason of the loss."""


class SpanScorer:
    """Bounded queue of OTLP export requests, with a thread that reads the spans and submits the RAG calls.

    `read + dropped` in `span_counts` is the number of all spans that were offered, once the queue is empty.

    Args:
        submit: queues an assembled call to be scored.
        has_room: returns whether a submitted call would be scored. At the end, when all calls are submitted at once,
            each one waits for room as long as there is time; before, a call that comes too much is counted as dropped.
        most_bytes: size of the requests that may wait, and of the texts of calls that are not complete yet.
        settle_seconds: seconds without further spans after which a call is complete.
        parent_seconds: seconds for which a call waits for the spans above its steps.
    """

    def __init__(
        self,
        submit: Callable[[CallBuilder], None],
        *,
        has_room: Callable[[], bool] = lambda: True,
        most_bytes: int,
        settle_seconds: float,
        parent_seconds: float,
    ) -> None:
        self._submit, self._has_room, self._most_bytes = submit, has_room, most_bytes
        self._assembler = CallAssembler(
            settle_seconds=settle_seconds,
            parent_seconds=max(settle_seconds, parent_seconds),
            most_spans=_MOST_SPANS,
            most_bytes=most_bytes,
            most_traces=_MOST_TRACES,
            needs_parents=True,
        )
        self._look_seconds = min(_LONGEST_LOOK_SECONDS, settle_seconds / _LOOKS_PER_SETTLING)
        self._changed = threading.Condition()
        self._queue: deque[Payload] = deque()
        self._bytes = 0
        self._closed = False
        self._until = float("inf")
        self._dropped: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._n_read = 0
        self._thread = background_thread(self._run, "ragtrace-gateway-scoring")
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """Total size in bytes of the export requests that wait to be read."""
        return self._bytes

    @property
    def waiting_spans(self) -> int:
        """Number of steps whose RAG call is not complete yet."""
        return len(self._assembler)

    def span_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of received spans by outcome and reason.

        `read`; `dropped`: never read, by reason; `left_out`: of those read, the steps that are in no call, by reason.
        """
        found = {("read", ""): self._n_read}
        found |= {("dropped", reason): count for reason, count in list(self._dropped.items())}
        counts = self._assembler.counts
        return found | {("left_out", reason): counts[reason] for reason in CallAssembler.LEFT_OUT if counts[reason]}

    def call_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of RAG calls found: `submitted`, or `skipped` because they had been evaluated before."""
        reasons = {"submitted": "", "skipped": "already_evaluated"}
        return {(outcome, reasons[outcome]): count for outcome, count in list(self._calls.items())}

    def offer(self, payload: Payload) -> bool:
        """Queue the spans of an export request for scoring, and return whether there was room."""
        with self._changed:
            if self._closed or self._bytes + len(payload.body) > self._most_bytes:
                return False
            self._queue.append(payload)
            self._bytes += len(payload.body)
            self._changed.notify()
            return True

    def count_dropped(self, spans: int, reason: str = "queue_full") -> None:
        """Count *spans* that were forwarded but will not be scored, and log the first time."""
        with self._changed:
            self._dropped[reason] += spans
        faults.warn_once(
            f"gateway: spans not scored: {reason}",
            "received spans are not read for scoring (%s); every further one is counted in the metric "
            "ragtrace.gateway.scoring.spans. Start more replicas, or raise --queue-mib",
            reason,
            count=spans,
        )

    def stop(self, timeout: float) -> bool:
        """Read the queued export requests and submit all RAG calls within *timeout* seconds, then end the thread.

        Spans that are not read by then are counted as dropped.

        Returns:
            Whether all were read.
        """
        with self._changed:
            self._closed, self._until = True, monotonic() + timeout
            self._changed.notify()
        self._thread.join(timeout + self._look_seconds)
        with self._changed:
            left = sum(payload.spans for payload in self._queue)
            self._queue.clear()
        if left:
            self.count_dropped(left, "shutdown")
        return not left and not self._thread.is_alive()

    def _run(self) -> None:
        look_at = monotonic() + self._look_seconds
        while True:
            with self._changed:
                while not self._queue and not self._closed and (wait := look_at - monotonic()) > 0:
                    self._changed.wait(wait)
                payload = self._queue.popleft() if self._queue and monotonic() < self._until else None
                ends = payload is None and self._closed
            if payload is not None:
                with guarded("gateway: reading spans"):
                    self._read(payload)
                with self._changed:
                    self._bytes -= len(payload.body)
            if ends or monotonic() >= look_at:
                with guarded("gateway: assembling calls"):
                    self._submit_calls(everything=ends)
                look_at = monotonic() + self._look_seconds
            if ends:
                return

    def _read(self, payload: Payload) -> None:
        n_read = 0
        try:
            for span in _spans(payload):
                if span is not None:
                    n_read += 1
                    self._assembler.add(span)
        finally:
            self._n_read += n_read
            unreadable = payload.spans - n_read
            if unreadable > 0:
                self.count_dropped(unreadable, "unreadable")
            self._assembler.take_left_out()  # discarded, as they serve spans held back, and the gateway holds none

    def _submit_calls(self, *, everything: bool) -> None:
        for call in self._assembler.take_complete(everything=everything):
            if _is_evaluated(call):
                self._calls["skipped"] += 1
                call.builder.close()
            else:
                while everything and not self._has_room() and monotonic() < self._until:
                    sleep(_ROOM_POLL_SECONDS)
                self._submit(call.builder)
                self._calls["submitted"] += 1
        self._assembler.take_left_out()
        self._count_lost()

    def _count_lost(self) -> None:
        """Count as faults the steps that could not be assembled into a RAG call, and log the first."""
        for reason in CallAssembler.LOSSES:
            new = self._assembler.counts[reason] - self._lost[reason]
            self._lost[reason] += new
            if new:
                faults.warn_once(
                    f"gateway: steps in no call: {reason}",
                    "received steps of RAG calls are not scored (%s): %s; every further one is counted in the metric "
                    "ragtrace.gateway.scoring.spans",
                    reason,
                    _ADVICE.get(reason, "see the metric"),
                    count=new,
                )


def _spans(payload: Payload) -> Iterator[FinishedSpan | None]:
    """Yield each span of *payload*, or None in place of a span that cannot be parsed."""
    if payload.content == "json":
        found = OtlpJsonReader(_MOST_ATTRIBUTES).spans_in(1, json.loads(payload.body))
        yield from (span if isinstance(span, FinishedSpan) else None for span in found)
    else:
        request = ExportTraceServiceRequest.FromString(payload.body)
        for span in spans_in(request, most_attributes=_MOST_ATTRIBUTES):
            yield span if isinstance(span, FinishedSpan) else None


def _is_evaluated(call: AssembledCall) -> bool:
    """Return whether the process that recorded *call* has evaluated it, or has decided by sampling not to."""
    root = call.builder.root.span_context
    for reading in call.readings:
        if reading.span.context == root:
            status = reading.span.attributes.get(semconv.EVAL_STATUS)
            chosen = semconv.EVAL_PROBABILITY in reading.span.attributes
            return status is not None and (chosen or status != semconv.STATUS_NOT_SAMPLED)
    return False
