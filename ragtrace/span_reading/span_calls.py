"""Collection of RAG calls from the spans of other instrumentations, which are read from a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ragtrace.core.step import CallBuilder
from ragtrace.pipeline.source import Source
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.intake import SpanReader, clear_reader, intakes, set_reader

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from ragtrace.core.step import Step
    from ragtrace.span_reading.assembler import CallAssembler, LossReason

_WHY_LOST: Final[Mapping[LossReason, str]] = {
    "incomplete": "other spans of their calls did not fit into the queue",
    "evicted": "too many spans of unfinished calls were waiting",
    "late": "they ended after their call was scored",
    "unfinished": "a span of their call had not ended at shutdown",
    "failed": "building their call raised",
}


def fill_step(span: ReadableSpan, step: Step) -> bool:
    """Copy what the ended *span* inside a decorated function says into *step*.

    Return False if the span describes no step of a RAG call.
    """
    from ragtrace.span_reading.finished_span import from_sdk_span  # only where spans are read
    from ragtrace.span_reading.readers import read_span

    finished = from_sdk_span(span)
    reading = None if finished is None else read_span(finished)
    if reading is None or reading.calls_tools:
        return False
    parent = step.parent
    vars(step).update(vars(reading.step))
    step.parent, step.instrumentation = parent, reading.span.scope or "unknown"
    return True


class SpanCalls(Source):
    """Collector of RAG calls from the spans of other instrumentations.

    The worker's periodic work and flushes drive the collector.

    Args:
        submit: queues an assembled call to be scored.
        release: exports a span that may be held back, by its id, as it gets no scores.
        pause: yields the interpreter between two spans, on the worker's thread.
        most_bytes: memory that spans of calls that are not complete yet may take.
    """

    def __init__(
        self,
        submit: Callable[[CallBuilder], None],
        release: Callable[[int], None],
        pause: Callable[[], None],
        *,
        most_bytes: int,
    ) -> None:
        self._submit, self._release, self._pause, self._most_bytes = submit, release, pause, most_bytes
        self._is_stopped = False
        self._lock = threading.RLock()
        self._assembler: CallAssembler | None = None

    @property
    def is_used(self) -> bool:
        """Whether any span processor of this process queues spans for evaluation."""
        return bool(intakes())

    def start(self, wake: Callable[[], object]) -> None:
        """Start to accept the spans of this process. The callback *wake* starts the thread that calls `collect`."""
        set_reader(SpanReader(wake, fill_step))
        self._is_stopped = False

    def stop(self, wake: Callable[[], object]) -> None:
        """Stop accepting spans, unless another runtime has begun to accept them.

        Then `collect(everything=True)` waits for none: it submits or counts all steps that were read.
        """
        clear_reader(SpanReader(wake, fill_step))
        self._is_stopped = True

    def tick(self) -> None:
        """Read the queued spans, and submit the RAG calls that are complete."""
        self.collect()

    def collect(self, *, everything: bool = False) -> None:
        """Read the queued spans, and submit the complete RAG calls for scoring.

        Args:
            everything: do not wait for more spans of the calls whose root has ended.
        """
        sources = intakes()
        if not sources:
            return
        with self._lock:
            if self._assembler is None:
                from ragtrace.span_reading.assembler import CallAssembler  # only where spans are read

                self._assembler = CallAssembler(include_own=False, most_bytes=self._most_bytes)
            assembler = self._assembler
            # Taken first, as their starts are in the queue by then.
            dropped = [each for intake in sources for each in intake.take_dropped()]
            # By ids, as two span processors queue the same spans. What was read from either queue is not lost, nor is
            # a span that had ended when its start was read.
            lost = {(each.context.trace_id, each.context.span_id): each for each in dropped if each is not None}
            n_lost_unnamed = dropped.count(None)
            for intake in sources:
                while (span := intake.take()) is not None:
                    assembler.observe(span)
                    if lost and span.end_time is not None and span.context is not None:
                        lost.pop((span.context.trace_id, span.context.span_id), None)
                    if not everything:
                        self._pause()
            for each in lost.values():
                assembler.lose(each)
            is_last = everything and self._is_stopped
            calls = assembler.take_last() if is_last else assembler.take_complete(everything=everything)
            left_out = assembler.take_left_out()
            losses: dict[LossReason, int] = {each: assembler.counts.pop(each, 0) for each in assembler.LOSSES}
        for call in calls:
            root = call.builder.root.span_context
            for reading in call.readings:
                if reading.span.context != root:
                    self._release(reading.span.context.span_id)
            self._submit(call.builder)
        for context in left_out:
            self._release(context.span_id)
        self._count(len(lost) + n_lost_unnamed, losses)
        self._log_missing_calls(assembler)

    def _log_missing_calls(self, assembler: CallAssembler) -> None:
        """Log once that spans arrive but none of them belongs to a RAG call."""
        counts = assembler.counts
        # Number of steps in no call after which a missing call is logged.
        if not counts["calls"] and counts["no_call"] >= 20:
            faults.log_once(
                "no calls in spans",
                "%d spans of model calls, retrievals and agents were read, and no RAG call is among them: there are no "
                "documents, or the instrumentation puts no contents on its spans (docs/instrumentations.md says what "
                "to switch on)",
                counts["no_call"],
            )

    def _count(self, dropped: int, losses: Mapping[LossReason, int]) -> None:
        """Count lost spans as faults, and log the first loss for each reason.

        A lost span was dropped before it became part of a RAG call.

        Args:
            dropped: number of ended spans that did not fit into the queue, each counted once.
            losses: number of the others, by reason.
        """
        others = [(lost, _WHY_LOST[reason]) for reason, lost in losses.items()]
        for lost, why in ((dropped, "the queue of spans was full"), *others):
            if lost:
                faults.warn_once(
                    f"spans not evaluated: {why}",
                    "spans are not part of the calls that are scored, as %s; every further one is counted in "
                    "ragtrace.stats().faults",
                    why,
                    count=lost,
                )
