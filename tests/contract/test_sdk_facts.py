"""Facts about the OpenTelemetry SDK that the design rests on: a newer SDK that changes one fails its test here.

Each test says in its second sentence what in ragtrace rests on the fact, and so what to look at when it fails.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry import trace
from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk import environment_variables
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    InMemoryLogRecordExporter,
    LogRecordExporter,
    LogRecordExportResult,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

WAIT_S: Final = 10.0
NEVER_MS: Final = 3_600_000.0
"""Milliseconds between exports, so that only what a test does leads to one."""


class Exporter(SpanExporter):
    """Keeps names, counts flushes, and waits in `export` until it is opened if it was made closed."""

    def __init__(self, *, closed: bool = False) -> None:
        self.names: list[str] = []
        self.flushes = 0
        self.begun, self.gate = threading.Event(), threading.Event()
        if not closed:
            self.gate.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun.set()
        self.gate.wait(WAIT_S)
        self.names.extend(span.name for span in spans)
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.flushes += 1
        return True


Make = Callable[..., TracerProvider]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes providers of the given processors, and shuts them down afterwards."""
    made: list[TracerProvider] = []

    def make_one(*processors: SpanProcessor, sampler: Sampler | None = None) -> TracerProvider:
        provider = TracerProvider(resource=Resource({}), sampler=sampler, shutdown_on_exit=False)
        for processor in processors:
            provider.add_span_processor(processor)
        made.append(provider)
        return provider

    yield make_one
    for provider in made:
        provider.shutdown()


def end_spans(provider: TracerProvider, *names: str) -> None:
    for name in names:
        provider.get_tracer("test").start_span(name).end()


def batch(exporter: SpanExporter, *, queue: int = 100) -> BatchSpanProcessor:
    return BatchSpanProcessor(
        exporter, max_queue_size=queue, max_export_batch_size=queue, schedule_delay_millis=NEVER_MS
    )


# --- BatchSpanProcessor -------------------------------------------------------------------------------------------


def test_a_full_queue_drops_the_oldest(make: Make) -> None:
    """Not the newest, and raises nothing. The background must not hand spans on faster than this queue takes them."""
    exporter = Exporter(closed=True)
    provider = make(batch(exporter, queue=2))
    end_spans(provider, "a", "b")  # a full batch: the processor's thread takes it, and waits in the exporter
    assert exporter.begun.wait(WAIT_S)
    end_spans(provider, "c", "d", "e")
    exporter.gate.set()
    provider.force_flush()
    assert exporter.names == ["a", "b", "d", "e"]


def test_force_flush_ignores_its_timeout(make: Make) -> None:
    """A flush of 1 ms waits for the exporter as long as that takes. `Telemetry.flush` runs it on a thread and stops
    waiting.
    """
    exporter = Exporter(closed=True)
    provider = make(batch(exporter))
    end_spans(provider, "a")
    results: list[bool] = []
    flush = threading.Thread(target=lambda: results.append(provider.force_flush(1)))
    flush.start()
    assert exporter.begun.wait(WAIT_S)
    flush.join(0.2)
    waited = flush.is_alive()
    exporter.gate.set()
    flush.join(WAIT_S)
    assert waited
    assert results == [True]


def test_shutdown_waits_for_a_hanging_exporter(make: Make) -> None:
    """The provider's `shutdown` takes no timeout. `Telemetry.shutdown` runs it on a thread of its own too."""
    exporter = Exporter(closed=True)
    provider = make(batch(exporter))
    end_spans(provider, "a")
    stop = threading.Thread(target=provider.shutdown)
    stop.start()
    assert exporter.begun.wait(WAIT_S)
    stop.join(0.2)
    waited = stop.is_alive()
    exporter.gate.set()
    stop.join(WAIT_S)
    assert waited


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_starts_with_an_empty_queue() -> None:
    """What the parent had queued is exported by the parent alone. The child's hold and worker start empty as well."""
    program = """
import os
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
tracer = provider.get_tracer("test")
tracer.start_span("before").end()
child = os.fork()
tracer.start_span("child" if child == 0 else "parent").end()
provider.force_flush()
line = " ".join(span.name for span in exporter.get_finished_spans()) + chr(10)
os.write(1, line.encode())  # in one piece: both write to the same pipe
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    assert sorted(output_of(program).splitlines()) == ["before parent", "child"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_starts_with_an_empty_queue_of_events() -> None:
    """As with spans. The child's count of what is in that queue starts at 0 as well."""
    program = """
import os
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogRecordExporter
exporter = InMemoryLogRecordExporter()
provider = LoggerProvider(shutdown_on_exit=False)
provider.add_log_record_processor(BatchLogRecordProcessor(exporter, schedule_delay_millis=3_600_000))
logger = provider.get_logger("test")
logger.emit(body="before")
child = os.fork()
logger.emit(body="child" if child == 0 else "parent")
provider.force_flush()
line = " ".join(each.log_record.body for each in exporter.get_finished_logs()) + chr(10)
os.write(1, line.encode())  # in one piece: both write to the same pipe
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
    assert sorted(output_of(program).splitlines()) == ["before parent", "child"]


class LogExporter(LogRecordExporter):
    """Keeps bodies, and waits in `export` until it is opened."""

    def __init__(self) -> None:
        self.bodies: list[object] = []
        self.begun, self.gate = threading.Event(), threading.Event()

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        self.begun.set()
        self.gate.wait(WAIT_S)
        self.bodies.extend(each.log_record.body for each in batch)
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def shutdown(self) -> None: ...


def test_events_queue_and_flush_as_spans_do() -> None:
    """A full queue drops the oldest, and a flush of 1 ms waits for the exporter. `BoundedEvents` and `Telemetry.flush`
    treat events as they do spans.
    """
    exporter = LogExporter()
    provider = LoggerProvider(resource=Resource({}), shutdown_on_exit=False)
    provider.add_log_record_processor(
        BatchLogRecordProcessor(exporter, max_queue_size=2, max_export_batch_size=2, schedule_delay_millis=NEVER_MS)
    )
    logger = provider.get_logger("test")
    for body in "ab":  # a full batch: the processor's thread takes it, and waits in the exporter
        logger.emit(body=body)
    assert exporter.begun.wait(WAIT_S)
    for body in "cde":
        logger.emit(body=body)
    flush = threading.Thread(target=provider.force_flush, args=(1,))
    flush.start()
    flush.join(0.2)
    waited = flush.is_alive()
    exporter.gate.set()
    flush.join(WAIT_S)
    provider.shutdown()
    assert waited
    assert exporter.bodies == ["a", "b", "d", "e"]


def test_the_exporters_own_flush_is_never_called(make: Make) -> None:
    """Neither by a flush nor by a shutdown. An exporter of ours must not buffer behind `export`."""
    exporter = Exporter()
    provider = make(batch(exporter))
    end_spans(provider, "a")
    provider.force_flush()
    provider.shutdown()
    assert (exporter.names, exporter.flushes) == (["a"], 0)


def test_an_unsampled_span_is_recorded_but_not_exported(make: Make) -> None:
    """Exporting processors look at the sampled flag themselves. The hold lets such spans pass for the same reason."""
    exporter, seen = Exporter(), Seen()
    provider = make(batch(exporter), seen, sampler=RecordOnly())
    end_spans(provider, "a")
    provider.force_flush()
    assert (exporter.names, seen.ended) == ([], ["a"])


# --- processors -----------------------------------------------------------------------------------------------------


class Seen(SpanProcessor):
    """Writes down what it is shown."""

    def __init__(self, log: list[str] | None = None, name: str = "") -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.spans: list[ReadableSpan] = []
        self._log, self._name = log, name

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        self.started.append(span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span.name)
        self.spans.append(span)
        if self._log is not None:
            self._log.append(self._name)


class RecordOnly(Sampler):
    """Records every span and samples none."""

    def should_sample(self, *args: object, **kwargs: object) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY)

    def get_description(self) -> str:
        return "RecordOnly"


def test_a_later_processor_is_only_appended(make: Make) -> None:
    """Each sees every span, in the order in which they were added; none can hold one back from another. So a hold must
    wrap the processor that exports: added beside it, it would hold nothing.
    """
    order: list[str] = []
    provider = make(Seen(order, "first"))
    end_spans(provider, "a")
    provider.add_span_processor(Seen(order, "second"))
    end_spans(provider, "b")
    assert order == ["first", "first", "second"]


def test_all_processors_get_the_same_finished_span(make: Make) -> None:
    """The hold must copy a span before it puts scores on it: the other processors have the very same object."""
    first, second = Seen(), Seen()
    end_spans(make(first, second), "a")
    assert first.spans[0] is second.spans[0]


def test_an_ended_span_refuses_attributes(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A warning, and they are gone; events, status and name as well. Scores can only come on a span that was held."""
    seen = Seen()
    span = make(seen).get_tracer("test").start_span("a")
    span.end()
    with caplog.at_level(logging.WARNING):
        span.set_attribute("late", 1)
        span.set_attributes({"late": 1})
        span.add_event("late")
        span.update_name("late")
        span.set_status(trace.StatusCode.ERROR)
    ended = seen.spans[0]
    assert not span.is_recording()
    assert (ended.name, dict(ended.attributes or {}), ended.events) == ("a", {}, ())
    assert ended.status.status_code is trace.StatusCode.UNSET
    assert len([record for record in caplog.records if "ended span" in record.message]) == 5


def test_a_span_refuses_attributes_while_it_is_ending(make: Make) -> None:
    """The hook before the end comes too late as well. A processor in a user's provider could not add scores there."""

    class Ending(Seen):
        def _on_ending(self, span: SdkSpan) -> None:
            span.set_attribute("late", 1)

    seen = Ending()
    end_spans(make(seen), "a")
    assert dict(seen.spans[0].attributes or {}) == {}


def test_a_full_span_drops_its_oldest_attribute(make: Make) -> None:
    """Not the one that comes too late. The hold builds its copies without a limit, or a score would evict the
    operation's name.
    """
    seen = Seen()
    span = make(seen).get_tracer("test").start_span("a")
    span.set_attributes({f"key {number}": number for number in range(200)})
    span.end()
    kept = list(seen.spans[0].attributes or {})
    assert kept == [f"key {number}" for number in range(72, 200)]
    assert seen.spans[0].dropped_attributes == 72


def test_a_copy_of_a_finished_span_has_no_limit() -> None:
    """Made by the public constructor, which takes attributes as they are. The hold adds scores to such a copy."""
    attributes = {f"key {number}": number for number in range(1_000)}
    copy = ReadableSpan(name="a", attributes=attributes)
    assert (dict(copy.attributes or {}), copy.dropped_attributes) == (attributes, 0)


def test_a_span_of_another_class_is_a_parent_like_any_other(make: Make) -> None:
    """The SDK asks the span in the context for its `SpanContext` alone. Light spans are such parents, and other
    instrumentations nest under them.
    """

    class Foreign(NonRecordingSpan):
        pass

    seen = Seen()
    context = SpanContext(1, 2, False, TraceFlags(1))
    make(seen).get_tracer("test").start_span("child", context=set_span_in_context(Foreign(context))).end()
    child = seen.spans[0]
    assert child.parent == context
    assert child.context is not None
    assert child.context.trace_id == 1


def test_no_environment_variable_names_span_processors() -> None:
    """The SDK's variables know exporters, samplers and a batch's size. `HoldProcessor` has to be added by the user's
    own code.
    """
    names = [name for name in vars(environment_variables) if name.startswith("OTEL_")]
    assert names
    assert [name for name in names if "PROCESSOR" in name and "INTERNAL" not in name] == []


def test_no_entry_point_group_takes_span_processors() -> None:
    """Third parties can plug in exporters, samplers and id generators, not processors. The same reason."""
    groups = {point.group for point in distribution("opentelemetry-sdk").entry_points}
    assert {"opentelemetry_traces_exporter", "opentelemetry_traces_sampler"} <= groups
    assert [group for group in groups if "processor" in group] == []


# --- exit -----------------------------------------------------------------------------------------------------------


def output_of(program: str, *argv: str, **environ: str) -> str:
    """What a fresh interpreter prints that runs *program*."""
    result = subprocess.run(
        [sys.executable, "-c", program, *argv],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environ},
    )
    return result.stdout


def test_a_provider_shuts_down_at_exit_after_what_was_registered_later() -> None:
    """Exit handlers run last in, first out. A runtime registers its drain after the providers were made: its spans
    still go.
    """
    program = """
import atexit
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
class Exporter(InMemorySpanExporter):
    def shutdown(self):
        print("shut down with", *(span.name for span in self.get_finished_spans()))
def drain(name):
    tracer.start_span(name).end()
    print(name)
atexit.register(drain, "too late")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Exporter()))
tracer = provider.get_tracer("test")
atexit.register(drain, "in time")
"""
    assert output_of(program).splitlines() == ["in time", "shut down with in time", "too late"]


def test_a_provider_can_be_told_not_to_shut_down_at_exit() -> None:
    """Our own provider is: ragtrace shuts it down itself, after its drain."""
    program = """
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
class Processor(SpanProcessor):
    def shutdown(self):
        print("shut down")
TracerProvider(shutdown_on_exit=False).add_span_processor(Processor())
"""
    assert output_of(program) == ""


# --- sampling -------------------------------------------------------------------------------------------------------


def test_a_head_dropped_span_reaches_no_processor(make: Make) -> None:
    """Neither its start nor its end. What scores head-dropped calls cannot be a processor; the runtime is handed the
    call itself.
    """
    seen = Seen()
    provider = make(seen, sampler=ALWAYS_OFF)
    end_spans(provider, "a")
    assert (seen.started, seen.ended) == ([], [])


@pytest.mark.newest
def test_a_recording_sampler_shows_it_to_processors(make: Make) -> None:
    """The exception: `AlwaysRecordSampler`. The light tracer asks it about every span, and takes no short cut."""
    from opentelemetry.sdk.trace.sampling import AlwaysRecordSampler

    seen = Seen()
    end_spans(make(seen, sampler=AlwaysRecordSampler(ALWAYS_OFF)), "a")
    assert (seen.started, seen.ended) == (["a"], ["a"])


def unsampled_parent() -> Context:
    """A context whose current span was dropped at the head."""
    return set_span_in_context(NonRecordingSpan(SpanContext(1, 2, True, TraceFlags(0))))


def test_a_late_child_of_an_unsampled_parent_is_dropped(make: Make) -> None:
    """Under the default sampler. The carrier of late scores is therefore a root span of its own, with a link."""
    seen = Seen()
    tracer = make(seen, sampler=DEFAULT_ON).get_tracer("test")
    tracer.start_span("child", context=unsampled_parent()).end()
    tracer.start_span("root", context=Context({"not": "empty"})).end()
    assert seen.ended == ["root"]


def emitted(**event: Any) -> Any:
    """The log record that a logs SDK makes of *event*."""
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call,unused-ignore]
    provider = LoggerProvider(resource=Resource({}), shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("test").emit(event_name="score", **event)
    provider.shutdown()
    return exporter.get_finished_logs()[0].log_record


def test_an_event_of_an_unsampled_parent_is_not_dropped() -> None:
    """Log records know no head sampling. Scores of head-dropped calls can go out as events."""
    record = emitted(timestamp=5, context=unsampled_parent())
    assert (record.event_name, record.trace_id, record.span_id) == ("score", 1, 2)


def test_an_event_belongs_to_the_span_of_the_context_it_is_given(make: Make) -> None:
    """With its ids and its real flags, whatever span is current. So the scores of a call that has long ended are found
    under its span.
    """
    scored = SpanContext(1, 2, False, TraceFlags(1))
    with make().get_tracer("test").start_as_current_span("around"):
        record = emitted(timestamp=5, context=set_span_in_context(NonRecordingSpan(scored)))
        unsampled = emitted(timestamp=5, context=unsampled_parent())
    assert (record.trace_id, record.span_id, record.trace_flags) == (1, 2, TraceFlags(1))
    assert unsampled.trace_flags == TraceFlags(0)


def test_the_default_samplers_describe_themselves_as_expected() -> None:
    """The light tracer knows by these descriptions that a child does what its local parent did, and asks no sampler."""
    inherits = ",localParentSampled:AlwaysOnSampler,localParentNotSampled:AlwaysOffSampler}"
    root_on = "ParentBased{root:AlwaysOnSampler,"
    described = DEFAULT_ON.get_description()  # type: ignore[no-untyped-call,unused-ignore]
    assert described.startswith(root_on)
    assert described.endswith(inherits)
    assert ParentBased(ALWAYS_OFF).get_description().endswith(inherits)  # type: ignore[no-untyped-call,unused-ignore]


# --- contexts, events and metrics -----------------------------------------------------------------------------------


def test_an_empty_context_makes_a_span_a_root(make: Make) -> None:
    """Whatever is current. The carrier relies on it to be the root of a trace of its own."""
    tracer = make().get_tracer("test")
    with tracer.start_as_current_span("around") as around:
        root = tracer.start_span("root", context=Context())
    assert root.get_span_context().trace_id != around.get_span_context().trace_id


def test_to_logs_and_metrics_an_empty_context_is_the_current_one(make: Make) -> None:
    """It is falsy, and they ask for its truth. Events and scores are given the context of the scored span, never an
    empty one.
    """
    with make().get_tracer("test").start_as_current_span("around") as around:
        event = emitted(context=Context(), timestamp=1)
        point = histogram([0.5], [0.5], [Context()])
    span_id = around.get_span_context().span_id
    assert (event.span_id, [exemplar.span_id for exemplar in point.exemplars]) == (span_id, [span_id])


def test_a_context_keeps_what_was_put_into_its_copy_apart() -> None:
    """A context is an immutable mapping that can be copied. `SpanWriter.start` builds one from the current and two more
    keys.
    """
    outer = Context({"a": 1})
    inner = Context({**outer, "b": 2})
    token = attach(inner)
    try:
        assert dict(outer) == {"a": 1}
        assert dict(inner) == {"a": 1, "b": 2}
    finally:
        detach(token)


@pytest.mark.newest
def test_events_vanish_silently_without_a_logs_sdk() -> None:
    """`enabled` is what tells. The score sender asks it, and sends a carrier span instead."""
    assert not NoOpLoggerProvider().get_logger("test").enabled(event_name="gen_ai.evaluation.result")


@pytest.mark.newest
def test_without_a_logs_sdk_the_processes_logger_says_so_and_is_silent() -> None:
    """What a library gets that asks for the global provider: no error, no warning, nothing. The same reason."""
    program = """
import sys
from opentelemetry import _logs
logger = _logs.get_logger("test")
print(logger.enabled(event_name="gen_ai.evaluation.result"))
sys.stderr = sys.stdout
logger.emit(event_name="gen_ai.evaluation.result", timestamp=1)
"""
    assert output_of(program, PYTHONWARNINGS="default") == "False\n"


@pytest.mark.newest
def test_a_logs_sdk_says_that_it_takes_events() -> None:
    """Otherwise the score sender would send a carrier span for every call. `BoundedEvents` has to answer the same."""
    provider = LoggerProvider(resource=Resource({}), shutdown_on_exit=False)
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call,unused-ignore]
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    enabled = provider.get_logger("test").enabled(event_name="gen_ai.evaluation.result")
    provider.shutdown()
    assert enabled


def test_an_event_without_a_timestamp_has_none() -> None:
    """It is exported as 1970. Evaluation events are given one."""
    assert not emitted().timestamp
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call,unused-ignore]
    provider = LoggerProvider(resource=Resource({}), shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("test").emit(event_name="score")
    provider.shutdown()
    request = encode_logs(exporter.get_finished_logs())
    assert request.resource_logs[0].scope_logs[0].log_records[0].time_unix_nano == 0


ALWAYS: Final = AlwaysOnExemplarFilter()


def histogram(
    record: Sequence[float],
    bounds: Sequence[float] | None,
    contexts: Sequence[Context | None],
    *,
    exemplar_filter: AlwaysOnExemplarFilter | None = ALWAYS,
) -> HistogramDataPoint:
    """The data point of *record*, recorded in *contexts*; None stands for the SDK's defaults."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], resource=Resource({}), shutdown_on_exit=False, exemplar_filter=exemplar_filter)
    instrument = provider.get_meter("test").create_histogram("h", explicit_bucket_boundaries_advisory=bounds)
    for value, context in zip(record, contexts, strict=True):
        instrument.record(value, context=context)
    data = reader.get_metrics_data()
    assert data is not None
    point = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0]
    provider.shutdown()
    assert isinstance(point, HistogramDataPoint)
    return point


def test_one_exemplar_is_kept_for_each_bucket() -> None:
    """The last of each. The bounds of the score histogram put buckets at the bad end, so that bad calls stay as
    examples.
    """
    contexts = [set_span_in_context(NonRecordingSpan(SpanContext(1, n, False, TraceFlags(1)))) for n in range(1, 5)]
    point = histogram([0.1, 0.2, 0.6, 0.7], [0.5], contexts)
    assert sorted((exemplar.value, exemplar.span_id) for exemplar in point.exemplars) == [(0.2, 2), (0.7, 4)]
    assert point.bucket_counts == (2, 2)


def test_by_default_only_a_sampled_span_is_an_exemplar() -> None:
    """It is the span of the context that is given, not the current one. Scores are recorded in the context of the
    scored span, so a bucket leads to a trace that exists.
    """
    contexts = [
        set_span_in_context(NonRecordingSpan(SpanContext(1, 2 + flag, False, TraceFlags(flag)))) for flag in (0, 1)
    ]
    point = histogram([0.1, 0.2], [0.5], contexts, exemplar_filter=None)
    assert [(exemplar.value, exemplar.span_id) for exemplar in point.exemplars] == [(0.2, 3)]


def test_the_default_buckets_do_not_fit_scores() -> None:
    """All scores of more than 0 would be in one. The histogram of scores brings its own bounds, which the SDK takes."""
    contexts: list[Context | None] = [None] * 3
    default = histogram([0.1, 0.5, 1.0], None, contexts)
    assert [count for count in default.bucket_counts if count] == [3]
    assert histogram([0.1, 0.5, 1.0], [0.2, 0.6], contexts).bucket_counts == (1, 1, 1)


def test_a_histogram_drops_negative_values(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning. A metric whose range reaches below 0 must not be exported as a histogram."""
    with caplog.at_level(logging.WARNING):
        point = histogram([0.5, -0.5], [0.5], [None, None])
    assert point.count == 1
    assert caplog.records


@pytest.mark.newest
def test_a_histogram_drops_what_is_no_number(caplog: pytest.LogCaptureFixture) -> None:
    """Older SDKs add it to the sum, which is then lost for good. Nothing but finite scores may be recorded in either
    case.
    """
    with caplog.at_level(logging.WARNING):
        point = histogram([0.5, math.nan, math.inf], [0.5], [None, None, None])
    assert (point.count, point.sum) == (1, 0.5)
