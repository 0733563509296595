"""The application decorated with ragtrace, in every configuration whose cost the benchmark states."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from tests.benchmarks.subjects import application
from tests.benchmarks.subjects.application import MODEL, PROVIDER, SOURCE, WORKFLOW, Subject
from tests.benchmarks.subjects.handwritten import Forgetting, provider

FLUSH_S: Final = 30.0
IMPATIENT_S: Final = 0.2
"""How long to wait for what is not going to be done: a judge that hangs, an exporter that is dead."""
HANG_S: Final = 30.0
ROOM_BYTES: Final = 4 << 30
ROOM: Final = 100_000
"""Calls that may be pending where the queue is not to be full."""

retrieve = ragtrace.retrieve(source=SOURCE, provider=PROVIDER)(application.retrieve)
generate = ragtrace.generate(model=MODEL, provider=PROVIDER)(application.generate)


@ragtrace.trace(name=WORKFLOW)
def ask(query: str) -> str:
    """Retrieve, then generate."""
    return generate(query, retrieve(query))


@ragtrace.retrieve(source=SOURCE, provider=PROVIDER)
async def aretrieve(query: str) -> list[str]:
    """As a coroutine."""
    return application.retrieve(query)


@ragtrace.generate(model=MODEL, provider=PROVIDER)
async def agenerate(query: str, contexts: list[str]) -> str:
    """As a coroutine."""
    return application.generate(query, contexts)


@ragtrace.trace(name=WORKFLOW)
async def aask(query: str) -> str:
    """Retrieve, then generate."""
    return await agenerate(query, await aretrieve(query))


retrieve_paced = ragtrace.retrieve(source=SOURCE, provider=PROVIDER)(application.retrieve_paced)
generate_paced = ragtrace.generate(model=MODEL, provider=PROVIDER)(application.generate_paced)


@ragtrace.trace(name=WORKFLOW)
async def ask_paced(query: str) -> str:
    """Retrieve, then generate, each with a wait."""
    return await generate_paced(query, await retrieve_paced(query))


class SlowJudge:
    """A judge that takes *seconds*, without using any processor."""

    id, version = "slow", "1"
    type: EvaluatorType = "llm_judge"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.limits: ragtrace.JudgeLimits | None = None

    def offers(self, metric: Metric) -> bool:
        """Only the cheapest metric."""
        return metric.name == "answered"

    async def judge(self, call: RagCall) -> Judgement:
        """After the wait: answered."""
        await asyncio.sleep(self._seconds)
        return Judgement(answer_label="answered")


class Hanging(SpanExporter):
    """Never comes back from its first export, as one whose backend accepts and stays silent."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Part of the SDK's interface."""
        threading.Event().wait(HANG_S * 100)
        return SpanExportResult.FAILURE


def _subject(ask: Any, exporter: Forgetting | None = None, *, flush: float = FLUSH_S, a: bool = False) -> Subject:
    spans = None if exporter is None else (lambda: exporter.count)
    return Subject(ask, partial(ragtrace.flush, flush), spans, asynchronous=a)


def unconfigured() -> Subject:
    """Decorated, and switched off."""
    ragtrace.configure(enabled=False)
    return Subject(ask)


def light() -> Subject:
    """Our own provider, everything as it comes: the screen scores every call in the background."""
    exporter = Forgetting()
    ragtrace.configure(service=WORKFLOW, exporter=exporter)
    return _subject(ask, exporter)


def light_unscored() -> Subject:
    """Our own provider, no scoring."""
    exporter = Forgetting()
    ragtrace.configure(service=WORKFLOW, exporter=exporter, screen=None)
    return _subject(ask, exporter)


def light_async() -> Subject:
    """Our own provider, coroutines, the screen on."""
    exporter = Forgetting()
    ragtrace.configure(service=WORKFLOW, exporter=exporter)
    return _subject(aask, exporter, a=True)


def shadowed(ask: Any) -> Any:
    """The function that *ask* decorates, with a guard in the shadow."""
    guard = ragtrace.Guard("consistency", below=0.3)
    return ragtrace.trace(name=WORKFLOW, guard=guard)(ask.__wrapped__)


def light_beside_guard() -> Subject:
    """As `light`, while another function has a guard."""
    beside = shadowed(ask)
    made = light()
    return replace(made, flush=partial(_flush_beside, beside))


def _flush_beside(_beside: object) -> object:
    return ragtrace.flush(FLUSH_S)


def light_shadow() -> Subject:
    """As `light`, with a guard in the shadow."""
    return replace(light(), ask=shadowed(ask))


def light_async_beside_guard() -> Subject:
    """As `light_async`, while another function has a guard."""
    beside = shadowed(aask)
    made = light_async()
    return replace(made, flush=partial(_flush_beside, beside))


def light_async_shadow() -> Subject:
    """As `light_async`, with a guard in the shadow."""
    return replace(light_async(), ask=shadowed(aask))


def light_paced() -> Subject:
    """Our own provider, coroutines that wait, the screen on."""
    ragtrace.configure(service=WORKFLOW, exporter=Forgetting())
    return _subject(ask_paced, a=True)


def light_paced_unscored() -> Subject:
    """The same without scoring."""
    ragtrace.configure(service=WORKFLOW, exporter=Forgetting(), screen=None)
    return _subject(ask_paced, a=True)


def standard() -> Subject:
    """A user's provider as it is: scores follow as carrier spans."""
    exporter = Forgetting()
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider(exporter)))
    return _subject(ask, exporter)


def standard_unscored() -> Subject:
    """A user's provider as it is, no scoring."""
    exporter = Forgetting()
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider(exporter)), screen=None)
    return _subject(ask, exporter)


def standard_hold() -> Subject:
    """A user's provider whose exporting processor is wrapped in `HoldProcessor`."""
    exporter = Forgetting()
    made = provider(exporter, hold=ragtrace.HoldProcessor)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=made))
    return _subject(ask, exporter)


class Watching(SpanProcessor):
    """Does something when a span starts, so that the SDK has to make the spans."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Part of the SDK's interface."""


def standard_watched() -> Subject:
    """A user's provider with a processor that looks at spans before they end, no scoring."""
    exporter = Forgetting()
    made = provider(exporter)
    made.add_span_processor(Watching())
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=made), screen=None)
    return _subject(ask, exporter)


def otlp() -> Subject:
    """Spans and metrics over OTLP/HTTP, no scoring."""
    ragtrace.configure(service=WORKFLOW, exporter="otlp", screen=None)
    return _subject(ask)


def otlp_spans() -> Subject:
    """Spans alone over OTLP/HTTP, as by hand, no scoring."""
    os.environ.update({"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"})
    ragtrace.configure(service=WORKFLOW, exporter="otlp", screen=None)
    return _subject(ask)


def otlp_spans_sdk() -> Subject:
    """The same, given OpenTelemetry's own exporter."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    ragtrace.configure(service=WORKFLOW, exporter=OTLPSpanExporter(), screen=None)
    return _subject(ask)


def _judged(seconds: float, *, capacity: int = ROOM, exporter: SpanExporter | None = None, flush: float) -> Subject:
    judge = SlowJudge(seconds)
    judge.limits = ragtrace.JudgeLimits(timeout=2 * HANG_S)
    ragtrace.configure(
        service=WORKFLOW,
        exporter=exporter or Forgetting(),
        screen=None,
        judge=judge,
        sampling=ragtrace.Sampling(rate=1.0),
        limits=ragtrace.Limits(capacity=capacity, queue_bytes=ROOM_BYTES),
    )
    return _subject(ask, flush=flush)


def healthy() -> Subject:
    """A judge that looks at every call and answers after 20 ms."""
    return _judged(0.02, flush=FLUSH_S)


def judge_hangs() -> Subject:
    """A judge that takes thirty seconds."""
    return _judged(HANG_S, flush=IMPATIENT_S)


def queue_full() -> Subject:
    """The same with room for four calls: every further one is dropped and counted."""
    return _judged(HANG_S, capacity=4, flush=IMPATIENT_S)


def exporter_hangs() -> Subject:
    """An exporter that never comes back."""
    return _judged(0.02, exporter=Hanging(), flush=IMPATIENT_S)


def exporter_refused() -> Subject:
    """OTLP/HTTP to where nobody listens."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint="http://127.0.0.1:9/v1/traces", timeout=2)
    return _judged(0.02, exporter=exporter, flush=IMPATIENT_S)
