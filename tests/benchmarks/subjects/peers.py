"""The application watched by other libraries, each as its documentation shows, exporting to an exporter that forgets.

Nothing of ragtrace is imported: these run under the interpreter that has the peer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tests.benchmarks.subjects import application
from tests.benchmarks.subjects.application import WORKFLOW, Subject


class Forgetting(SpanExporter):
    """Accepts every span and keeps only their number."""

    def __init__(self) -> None:
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Part of the SDK's interface."""
        self.count += len(spans)
        return SpanExportResult.SUCCESS


def _ask(retrieve: Any, generate: Any) -> Any:
    """The workflow over these two functions, itself not yet watched."""

    def ask(query: str) -> str:
        return generate(query, retrieve(query))

    return ask


def traceloop() -> Subject:
    """OpenLLMetry's decorators, content on."""
    from traceloop.sdk import Traceloop
    from traceloop.sdk.decorators import task, workflow
    from traceloop.sdk.tracing.tracing import TracerWrapper

    os.environ["TRACELOOP_TELEMETRY"] = "false"
    exporter = Forgetting()
    Traceloop.init(app_name=WORKFLOW, exporter=exporter, telemetry_enabled=False, instruments=set())
    retrieve, generate = task(name="retrieve")(application.retrieve), task(name="generate")(application.generate)
    ask = workflow(name=WORKFLOW)(_ask(retrieve, generate))
    return Subject(ask, TracerWrapper().flush, lambda: exporter.count)


def openinference() -> Subject:
    """OpenInference's decorators."""
    from openinference.instrumentation import OITracer, TraceConfig
    from opentelemetry.sdk.trace import TracerProvider

    exporter = Forgetting()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer: Any = OITracer(provider.get_tracer(WORKFLOW), config=TraceConfig())
    ask = tracer.chain(_ask(tracer.chain(application.retrieve), tracer.llm(application.generate)))
    return Subject(ask, provider.force_flush, lambda: exporter.count)


def langfuse() -> Subject:
    """Langfuse's decorator."""
    from langfuse import Langfuse, observe

    exporter = Forgetting()
    client = Langfuse(
        public_key="pk-lf-none", secret_key="sk-lf-none", base_url="http://127.0.0.1:9", span_exporter=exporter
    )
    retrieve = observe(as_type="retriever")(application.retrieve)
    ask = observe()(_ask(retrieve, observe(as_type="generation")(application.generate)))
    return Subject(ask, client.flush, lambda: exporter.count)


def _logfire() -> tuple[Any, Forgetting]:
    import logfire

    exporter = Forgetting()
    logfire.configure(
        send_to_logfire=False,
        console=False,
        additional_span_processors=[BatchSpanProcessor(exporter)],
        inspect_arguments=False,
    )
    return logfire, exporter


def logfire() -> Subject:
    """Logfire's decorator, return values recorded."""
    library, exporter = _logfire()
    watch = library.instrument(record_return=True)
    ask = watch(_ask(watch(application.retrieve), watch(application.generate)))
    return Subject(ask, library.force_flush, lambda: exporter.count)


def pydantic_evals() -> Subject:
    """Online evaluation of the workflow by the cheapest evaluator there can be, with Logfire's spans."""
    from pydantic_evals.evaluators import Evaluator, EvaluatorContext
    from pydantic_evals.online import evaluate

    @dataclass
    class Answered(Evaluator[Any, Any, Any]):
        def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> bool:
            return bool(ctx.output)

    library, exporter = _logfire()
    watch = library.instrument(record_return=True)
    ask = evaluate(Answered())(_ask(watch(application.retrieve), watch(application.generate)))
    return Subject(ask, library.force_flush, lambda: exporter.count)
