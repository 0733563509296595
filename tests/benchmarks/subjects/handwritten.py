"""OpenTelemetry by hand: what an application does today to show the same three steps with the same attributes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Tracer

from ragtrace.core import semconv
from tests.benchmarks.subjects import application
from tests.benchmarks.subjects.application import MODEL, PROVIDER, SOURCE, WORKFLOW, Subject


class Forgetting(SpanExporter):
    """Accepts every span and keeps only their number."""

    def __init__(self) -> None:
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Part of the SDK's interface."""
        self.count += len(spans)
        return SpanExportResult.SUCCESS


_RETRIEVAL = {
    semconv.OPERATION_NAME: semconv.OPERATION_RETRIEVAL,
    semconv.DATA_SOURCE_ID: SOURCE,
    semconv.PROVIDER_NAME: PROVIDER,
}
_CHAT = {
    semconv.OPERATION_NAME: semconv.OPERATION_CHAT,
    semconv.PROVIDER_NAME: PROVIDER,
    semconv.REQUEST_MODEL: MODEL,
}
_WORKFLOW = {semconv.OPERATION_NAME: semconv.OPERATION_WORKFLOW, semconv.WORKFLOW_NAME: WORKFLOW}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _message(role: str, text: str) -> str:
    return _json([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _documents(contexts: Sequence[str]) -> str:
    return _json([{"content": text} for text in contexts])


class Application:
    """The three functions with a span each."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def retrieve(self, query: str) -> list[str]:
        """The retrieval and its span."""
        with self._tracer.start_as_current_span(
            f"{semconv.OPERATION_RETRIEVAL} {SOURCE}", kind=SpanKind.CLIENT, attributes=_RETRIEVAL
        ) as span:
            contexts = application.retrieve(query)
            span.set_attribute(semconv.RETRIEVAL_QUERY, query)
            span.set_attribute(semconv.RETRIEVAL_DOCUMENTS, _documents(contexts))
            return contexts

    def generate(self, query: str, contexts: list[str]) -> str:
        """The generation and its span."""
        with self._tracer.start_as_current_span(
            f"{semconv.OPERATION_CHAT} {MODEL}", kind=SpanKind.CLIENT, attributes=_CHAT
        ) as span:
            answer = application.generate(query, contexts)
            span.set_attribute(semconv.INPUT_MESSAGES, _message("user", query))
            span.set_attribute(semconv.OUTPUT_MESSAGES, _message("assistant", answer))
            return answer

    def ask(self, query: str) -> str:
        """Both, under a span of the workflow."""
        with self._tracer.start_as_current_span(
            f"{semconv.OPERATION_WORKFLOW} {WORKFLOW}", attributes=_WORKFLOW
        ) as span:
            answer = self.generate(query, self.retrieve(query))
            span.set_attribute(semconv.INPUT_MESSAGES, _message("user", query))
            span.set_attribute(semconv.OUTPUT_MESSAGES, _message("assistant", answer))
            return answer


class AsyncApplication(Application):
    """The same as coroutines."""

    async def aretrieve(self, query: str) -> list[str]:
        """The retrieval and its span."""
        return self.retrieve(query)

    async def agenerate(self, query: str, contexts: list[str]) -> str:
        """The generation and its span."""
        return self.generate(query, contexts)

    async def aask(self, query: str) -> str:
        """Both, under a span of the workflow."""
        with self._tracer.start_as_current_span(
            f"{semconv.OPERATION_WORKFLOW} {WORKFLOW}", attributes=_WORKFLOW
        ) as span:
            answer = await self.agenerate(query, await self.aretrieve(query))
            span.set_attribute(semconv.INPUT_MESSAGES, _message("user", query))
            span.set_attribute(semconv.OUTPUT_MESSAGES, _message("assistant", answer))
            return answer


def _same(processor: SpanProcessor) -> SpanProcessor:
    return processor


def provider(exporter: SpanExporter, hold: Callable[[SpanProcessor], SpanProcessor] = _same) -> TracerProvider:
    """A provider as the SDK's documentation sets it up; *hold* wraps its exporting processor."""
    made = TracerProvider(resource=Resource.create({semconv.SERVICE_NAME: WORKFLOW}))
    made.add_span_processor(hold(BatchSpanProcessor(exporter)))
    return made


def sync() -> Subject:
    """Plain functions."""
    exporter = Forgetting()
    made = provider(exporter)
    return Subject(Application(made.get_tracer(WORKFLOW)).ask, made.force_flush, lambda: exporter.count)


def asynchronous() -> Subject:
    """Coroutines."""
    exporter = Forgetting()
    made = provider(exporter)
    ask = AsyncApplication(made.get_tracer(WORKFLOW)).aask
    return Subject(ask, made.force_flush, lambda: exporter.count, asynchronous=True)


def otlp() -> Subject:
    """Sent over OTLP/HTTP to where `OTEL_EXPORTER_OTLP_ENDPOINT` says."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    assert os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    made = provider(OTLPSpanExporter())
    return Subject(Application(made.get_tracer(WORKFLOW)).ask, made.force_flush)
