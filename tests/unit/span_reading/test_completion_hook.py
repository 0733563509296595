"""The completion hook gives the messages of a model call to the reading of its span, and to nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import Span

from ragtrace.core import semconv
from ragtrace.span_reading import span_contents as contents_module
from ragtrace.span_reading.completion_hook import CompletionHook
from ragtrace.span_reading.finished_span import FinishedSpan, from_sdk_span
from ragtrace.span_reading.intake import clear_wake, set_wake
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.span_contents import span_contents


@dataclass
class TextPart:
    """As in opentelemetry-util-genai 1.3b0."""

    content: str
    type: str = "text"


@dataclass
class InputMessage:
    role: str
    parts: list[TextPart] = field(default_factory=list[TextPart])


@dataclass
class OutputMessage:
    role: str
    parts: list[TextPart]
    finish_reason: str


def _nothing() -> None:
    """Start no thread."""


@pytest.fixture(autouse=True)
def _evaluated() -> Iterator[None]:
    """A runtime takes spans."""
    set_wake(_nothing)
    yield
    clear_wake(_nothing)
    span_contents.reset()


def _complete(span: Span, answer: str = "330 metres.") -> None:
    asked = InputMessage("user", [TextPart("How tall is it?")])
    CompletionHook().on_completion(
        inputs=[asked],
        outputs=[OutputMessage("assistant", [TextPart(answer)], "stop")],
        system_instruction=[TextPart("Be brief.")],
        span=span,
        log_record=None,
    )


def _model_call(sampler: Sampler = ALWAYS_ON, answer: str = "330 metres.") -> ReadableSpan | None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("genai").start_span("chat m")
    span.set_attribute(semconv.OPERATION_NAME, semconv.OPERATION_CHAT)
    _complete(span, answer)
    span.end()
    provider.shutdown()
    return next(iter(exporter.get_finished_spans()), None)


def _read(span: ReadableSpan | None) -> FinishedSpan:
    assert span is not None
    finished = from_sdk_span(span)
    assert finished is not None
    return finished


def test_the_messages_are_read_with_the_span_they_belong_to() -> None:
    """Though the span itself has none."""
    span = _model_call()
    assert span is not None
    assert semconv.INPUT_MESSAGES not in (span.attributes or {})
    reading = read_span(_read(span))
    assert reading is not None
    assert (reading.step.query, reading.step.answer) == ("How tall is it?", "330 metres.")


def test_the_messages_are_given_once() -> None:
    """So that nothing is kept for a span that was read."""
    span = _model_call()
    assert semconv.INPUT_MESSAGES in _read(span).attributes
    assert semconv.INPUT_MESSAGES not in _read(span).attributes


def test_what_is_on_the_span_comes_first() -> None:
    """A span with content has what its instrumentation decided to show."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("genai").start_span("chat m")
    span.set_attribute(semconv.INPUT_MESSAGES, "[]")
    _complete(span)
    span.end()
    provider.shutdown()
    assert _read(exporter.get_finished_spans()[0]).attributes[semconv.INPUT_MESSAGES] == "[]"


def test_nothing_is_kept_of_spans_that_are_not_read() -> None:
    """Neither of unsampled ones, nor where no runtime evaluates spans, nor without a span."""
    assert _model_call(ALWAYS_OFF) is None
    clear_wake(_nothing)
    span = _model_call()
    set_wake(_nothing)
    assert semconv.INPUT_MESSAGES not in _read(span).attributes
    CompletionHook().on_completion(inputs=[], outputs=[], system_instruction=[])


def test_the_number_of_spans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest contents go first, and their loss is counted as a fault."""
    monkeypatch.setattr(contents_module, "_MOST_SPANS", 2)
    spans = [_model_call(answer=str(number)) for number in range(3)]
    assert [semconv.OUTPUT_MESSAGES in _read(span).attributes for span in spans] == [False, True, True]
