"""`RecordedTwice`: RAG calls that two instrumentations have recorded, each in spans of its own.

The two recordings of a call are known by its model calls (`ModelCalls`), or by the question if it failed before a model
answered. One recording becomes a call, which is scored; the other is left out as a duplicate:

- If one was returned before, the other is a duplicate, whatever it shows (`is_returned`).
- If both wait, the one that shows less (`detail_of`) waits for the other: that may still turn out to be incomplete or
  no call, and then the one that shows less becomes the call. A recording without a workflow, such as the spans of a
  model's client, waits for any other that is not complete yet: what is above the steps there is not known.

What is compared are calls, and not all that waits under the same span: a batch has several.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from opentelemetry.trace import SpanContext

from ragtrace.span_reading.call_draft import AssembledCall, CallDraft
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.model_calls import ModelCall, ModelCalls


class Detail(NamedTuple):
    """How much a recording of a RAG call shows. Of two recordings of the same call, the one that shows more is kept:
    the numbers of documents decide, and if they are equal those of workflows, then those of steps."""

    documents: int
    workflows: int
    steps: int


def detail_of(draft: CallDraft) -> Detail:
    """Return how much the steps of a call show, as read from its spans."""
    steps = [each.step for each in draft.readings.values()]
    documents = sum(len(each.documents or each.previews or ()) for each in steps)
    return Detail(documents, sum(each.kind == "trace" for each in steps), len(steps))


class RecordedTwice:
    """Recognition of the RAG calls that two instrumentations have recorded.

    All steps that are given to it are as read from their spans, before the passes: what a pass concludes may differ in
    the two recordings.
    """

    def __init__(self) -> None:
        self._model_calls = ModelCalls()

    def note_step(self, reading: SpanReading, now: float) -> None:
        """Remember a step that has come in, if it is a model call."""
        if reading.step.kind == "generate":
            self._model_calls.remember(ModelCall.of(reading, now))

    def note_returned(self, call: AssembledCall, readings: Sequence[SpanReading], now: float) -> None:
        """Remember that *call* was returned, of which *readings* are the steps."""
        for model_call in self._model_calls.of(readings):
            model_call.is_in_call = True
        failure = ModelCall.of_failure(call, now)
        if failure is not None:
            self._model_calls.remember(failure)

    def is_returned(self, readings: Sequence[SpanReading]) -> bool:
        """Return whether a RAG call with one of the model calls among *readings* was returned before."""
        return any(other.is_in_call for other in self._others(readings, readings))

    def is_returned_failure(self, call: AssembledCall, now: float) -> bool:
        """Return whether *call* failed before a model answered, and another recording of it was returned before."""
        failure = ModelCall.of_failure(call, now)
        return failure is not None and any(self._model_calls.same_as(failure))

    def may_be_recorded_otherwise(self, readings: Sequence[SpanReading]) -> bool:
        """Return whether another instrumentation shows a model call among *readings*, and shows it in no call yet.

        So it is for few groups: only for them it is worth the time to divide a group and to ask for more.
        """
        return not all(other.is_in_call for other in self._others(readings, readings))

    def other_recordings(self, draft: CallDraft, *, apart_from: Collection[SpanReading]) -> list[SpanContext]:
        """Return the spans in which other instrumentations show model calls of a call; none if one was returned.

        Args:
            draft: the steps of the call.
            apart_from: the steps of the group of *draft*, which are no other recording.
        """
        others = list(self._others(list(draft.readings.values()), apart_from))
        return [] if any(other.is_in_call for other in others) else [other.span for other in others]

    def forget_old(self, now: float, live_traces: Collection[int]) -> None:
        """Forget the model calls that came more than a minute ago, unless their trace is one of *live_traces*."""
        self._model_calls.forget_old(now, live_traces)

    def _others(self, readings: Sequence[SpanReading], apart_from: Collection[SpanReading]) -> Iterator[ModelCall]:
        """Yield the records of the model calls among *readings* in spans other than those of *apart_from*."""
        own = {reading.span_id for reading in apart_from}
        for model_call in self._model_calls.of(readings):
            yield from (other for other in self._model_calls.same_as(model_call) if other.span.span_id not in own)
