"""Writing of the spans of finished steps, and the ending of spans whose steps were dropped."""

from __future__ import annotations

from ragtrace.core import semconv
from ragtrace.pipeline.call_ends import ENDS, ReasonIfAny
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.call_preparation import CallPreparation
from ragtrace.pipeline.outputs import Outputs
from ragtrace.pipeline.work_items import CallItem, SpanItem
from ragtrace.system.faults import faults


class StepSpans:
    """Writer of the spans of steps and RAG calls. A span is written once, by the first of `write` and `drop`.

    The head of `processor.py` says which thread calls which.

    Args:
        outputs: take spans and metrics.
        preparation: reads and redacts the texts of steps.
        outcomes: counts calls that are dropped.
        first_status: evaluation status that the span of a call has until the call is scored.
    """

    def __init__(
        self, outputs: Outputs, preparation: CallPreparation, outcomes: CallOutcomes, *, first_status: str
    ) -> None:
        self._writer, self._instruments = outputs.writer, outputs.instruments
        self._score_sender, self._outcomes, self._first_status = outputs.score_sender, outcomes, first_status
        self._prepare = preparation.prepare  # looked up once, as `write` may run on a request thread

    def drop(self, work: SpanItem, reason: ReasonIfAny = "") -> None:
        """Count a RAG call as dropped, and end its span.

        The span gets the call's texts only if a shutdown has prepared the call, to store it in the spool file. Of a
        step, the span is ended without content. A span that was written before is left as it is.

        Args:
            work: the call or step.
            reason: why it is dropped; empty: the reason that *work* has, or "shutdown".
        """
        reason = reason or work.dropped or "shutdown"
        if work.step.guard is not None:
            work.step.guard.close(reason)
        is_call = isinstance(work, CallItem)
        if isinstance(work, CallItem):
            self._outcomes.count_pending(work, "dropped", reason)
        span = work.step.span
        # Three cases: the span was written before, or it shows the texts that are prepared, or it ends without content.
        if span is None or work.step.written:
            if is_call and work.dropped:  # a scoring blocks the worker, so that the shutdown could not cancel it
                end = ENDS[work.dropped]
                self._score_sender.release_with_status(work.step, end.status, end.reason_on_span)
            return
        end = ENDS[reason]
        if end.is_prepared:
            if end.reason_on_span:
                span.set_attribute(semconv.REASON, end.reason_on_span)
            self.write(work, end.status)
            return
        work.step.written = True
        if is_call:
            span.set_attribute(semconv.EVAL_STATUS, end.status)
            span.set_attribute(semconv.REASON, end.reason_on_span)
        faults.warn_once(
            f"dropped: {reason}",
            "a finished step or call was dropped before its span was written (%s): the span has no content, and a call "
            "has no scores; every further loss is counted in ragtrace.stats(). Raise Limits(capacity=) or "
            "Limits(queue_bytes=), or give shutdown more time",
            reason,
        )
        span.end(end_time=work.step.end_ns)
        work.step.release_context()

    def write(self, work: SpanItem, status: str = "") -> None:
        """Write the span of a finished step: redact its texts, set them as attributes, end the span and record metrics.

        A span that has been written before is left alone, as its duration must not be counted twice.

        Args:
            work: the call or step.
            status: evaluation status of a call; empty: the one that a call has until it is scored.
        """
        if work.step.written:
            return
        try:
            try:
                self._prepare(work)
            finally:  # the span ends in any case; `redact_step` leaves no text in a step that it has not redacted
                status = (status or self._first_status) if isinstance(work, CallItem) else ""
                self._writer.finish(work.step, status=status)
        except Exception as error:
            faults.record("writing a span", error)
        try:
            self._instruments.record_step(work.step)
        except Exception as error:
            faults.record("metrics of a step", error)
        work.step.release_context()
