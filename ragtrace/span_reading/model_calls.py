"""Recognition of the same model call in the spans of two instrumentations, which may be in different traces."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from opentelemetry.trace import SpanContext

from ragtrace.span_reading.call_draft import AssembledCall, on_one_line
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.intervals import overlap

_KEPT_SECONDS: Final = 60.0
"""Time for which a model call is kept, so that the same call is recognised in another instrumentation's spans."""
_MOST_ALIKE: Final = 65
"""Most model calls with the same answer, or of the same response, that are kept: many have an answer such as "I do not
know.". A recording whose other one is further back than that is scored a second time."""
_MOST_KEYS: Final = 20_000
"""Most look-up keys of model calls, of about 500 bytes each: with two a call, a minute's at 170 calls a second."""


@dataclass(slots=True, eq=False)
class ModelCall:
    """Record of a model call, to recognise the same call in spans of another instrumentation."""

    span: SpanContext
    source: tuple[str, str]
    """Instrumentation scope and attribute convention of the span."""
    times: tuple[int, int]
    """Start and end, in nanoseconds since the epoch."""
    response_id: str | None
    answer: int | None
    """Hash of the answer, or of the question of a RAG call that failed (`of_failure`); None for a model call without
    answer."""
    question: int | None
    """Hash of the question that the span shows, whatever its white space; None if it shows none."""
    at: float
    """Monotonic time of arrival."""
    is_in_call: bool = False
    """Whether a RAG call that contains this model call was assembled."""

    @classmethod
    def of(cls, reading: SpanReading, at: float) -> ModelCall:
        """Create a `ModelCall` from a span that was read as a step of a RAG call."""
        span, step = reading.span, reading.step
        answer = hash(step.answer) if step.answer else None
        question = hash(on_one_line(step.query)) if step.query else None
        source, times = (span.scope, reading.convention), (span.start_ns, span.end_ns)
        return cls(span.context, source, times, step.response_id, answer, question, at)

    @classmethod
    def of_failure(cls, call: AssembledCall, at: float) -> ModelCall | None:
        """Create a `ModelCall` that stands for a RAG call which failed without an answer, or return None for another.

        There is no answer by which to recognise the call in another instrumentation's spans: the two have the same
        question at the same time.
        """
        step = call.builder.root
        if step.error is None or step.query is None:
            return None
        if any(each.step.answer for each in call.readings if each.step is step or each.step.kind == "generate"):
            return None
        root = next(each for each in call.readings if each.step is step)
        question = hash((step.query, None))  # of a pair, as no answer has the hash of one
        return replace(cls.of(root, at), response_id=None, answer=question, is_in_call=True)

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Look-up keys of the model call: the provider's response id and the hash of the answer."""
        keys = [("id", self.response_id)] if self.response_id else []
        return keys if self.answer is None else [*keys, ("answer", str(self.answer))]

    def is_same_call(self, other: ModelCall) -> bool:
        """Return whether *other* is the same model call, recorded by another instrumentation.

        The response id decides if both have one. Else the answers must be equal, and the questions if both show one:
        many requests at the same time are answered with "I do not know.".
        """
        if self.source == other.source or not overlap(self.times, other.times):
            return False
        if self.response_id and other.response_id:
            return self.response_id == other.response_id
        if None not in (self.question, other.question) and self.question != other.question:
            return False
        return self.answer is not None and self.answer == other.answer


class ModelCalls:
    """Bounded store of the model calls of the last minute."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[tuple[str, str], list[ModelCall]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def remember(self, call: ModelCall) -> None:
        """Store *call*; of calls with equal answers, and of all calls, the oldest make room."""
        for key in call.keys:
            kept = [each for each in self._by_key.pop(key, ()) if call.at - each.at <= _KEPT_SECONDS]
            self._by_key[key] = [*kept[1 - _MOST_ALIKE :], call]
        while len(self._by_key) > _MOST_KEYS:
            self._by_key.popitem(last=False)

    def forget_old(self, now: float, live_traces: Collection[int]) -> None:
        """Forget the model calls that came more than a minute ago, unless their trace is one of *live_traces*."""
        for _ in range(len(self._by_key)):
            key, found = next(iter(self._by_key.items()))
            if now - found[-1].at <= _KEPT_SECONDS:
                break
            if any(each.span.trace_id in live_traces for each in found):
                self._by_key.move_to_end(key)  # else one trace that goes on for long would keep all that came after it
            else:
                del self._by_key[key]

    def of(self, readings: Iterable[SpanReading]) -> Iterator[ModelCall]:
        """Yield the stored records of the model calls among *readings*."""
        for reading in readings:
            if reading.step.kind == "generate":
                for key in ModelCall.of(reading, 0.0).keys:
                    yield from (each for each in self._by_key.get(key, ()) if each.span == reading.span.context)

    def same_as(self, call: ModelCall) -> Iterator[ModelCall]:
        """Yield the stored records of the same model call by other instrumentations."""
        for key in call.keys:
            yield from (each for each in self._by_key.get(key, ()) if call.is_same_call(each))
