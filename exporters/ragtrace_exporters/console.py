"""Telemetry on standard output: one line for each call, or a block for each span, event and metric, for debugging."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import StatusCode

from ragtrace.core import semconv
from ragtrace.core.types import JudgedTexts, Signals
from ragtrace.system.faults import printable

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

_WIDTH_CHARS: Final = 200
"""Of one value; a line of a terminal or two."""
_TEXT_CHARS: Final = 48
"""Of query and answer on the line of a call."""
_HEADLINE: Final = ("hallucinated", "faithfulness", "consistency", "suspicious", "answered")
"""The metrics on the line of a call, as far as they are computed."""


def console(environ: Mapping[str, str]) -> Signals:
    """Print one line for each call: time, workflow, status, main scores, guard's verdict, query, answer and trace id.

    Nothing is printed if `OTEL_TRACES_EXPORTER` is `none` in *environ*.
    """
    if not _wanted(environ, "TRACES"):
        return Signals()
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    return Signals(
        spans=ConsoleSpanExporter(out=sys.stdout, formatter=call_text),
        immediate=True,
        dialects=("otel", "openinference"),  # the second holds query and answer as plain texts
    )


def console_full(environ: Mapping[str, str]) -> Signals:
    """Print spans and events when they end, and metrics at each export interval, at `flush` and at `shutdown`.

    A signal whose `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER` or `OTEL_LOGS_EXPORTER` is `none` in *environ* is not
    printed.
    """
    from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    out = sys.stdout  # the exporters' own default is what was standard output when they were imported
    spans = ConsoleSpanExporter(out=out, formatter=span_text) if _wanted(environ, "TRACES") else None
    metrics = ConsoleMetricExporter(out=out, formatter=metrics_text) if _wanted(environ, "METRICS") else None
    logs = ConsoleLogRecordExporter(out=out, formatter=event_text) if _wanted(environ, "LOGS") else None
    reader = None if metrics is None else PeriodicExportingMetricReader(metrics)
    return Signals(spans=spans, metrics=reader, logs=logs, immediate=True)


def call_text(span: ReadableSpan) -> str:
    """Return the line to print for a call's root span or extra span with late scores, or "" for other spans."""
    attributes = span.attributes or {}
    if semconv.EVAL_STATUS not in attributes:
        return ""
    carried = attributes.get(semconv.OPERATION_NAME) == semconv.OPERATION_EVALUATION
    context = span.links[0].context if carried and span.links else span.get_span_context()
    reasons = {str(attributes[key]) for name in _HEADLINE if (key := semconv.eval_reason(name)) in attributes}
    reasons.discard("no_baseline")  # true of the application's first calls, and of every one of them
    time = datetime.fromtimestamp((span.start_time or 0) / 1e9).strftime("%H:%M:%S")
    name = _short(attributes.get(semconv.WORKFLOW_NAME) or span.name)
    parts = [time, f"{name}:", str(attributes[semconv.EVAL_STATUS])]
    if span.status.status_code is StatusCode.ERROR:
        parts.append("error")
    scores = ((name, attributes.get(semconv.eval_score(name))) for name in _HEADLINE)
    parts += [f"{name}={float(value):.2g}" for name, value in scores if isinstance(value, (int, float))]
    if attributes.get(semconv.eval_score("answered_without_context")):  # 0 is what is usual
        parts.append("answered_without_context=1")
    if reasons:
        parts.append(f"unscored={','.join(sorted(reasons))}")
    of_guard = (semconv.GUARD_VERDICT, semconv.GUARD_REASON, semconv.GUARD_ACTION)
    if told := [str(attributes[key]) for key in of_guard if key in attributes]:
        parts.append(f"guard={','.join(told)}")
    texts = _texts_of(span)
    parts += [] if texts.contexts is None else [f"contexts={texts.contexts}"]
    shown = {"query": texts.query, "answer": texts.answer}
    parts += [f"{what}={_quoted(text)}" for what, text in shown.items() if text is not None]
    parts.append(f"trace={context.trace_id if context else 0:032x}")
    return _printable(" ".join(parts) + "\n")


def _texts_of(span: ReadableSpan) -> JudgedTexts:
    """Return the texts that were judged, as far as they may be shown; of all spans only ragtrace's own have them."""
    judged = getattr(span, "judged_texts", None)
    if isinstance(judged, JudgedTexts):
        return judged
    attributes, scope = span.attributes or {}, span.instrumentation_scope
    shown = [attributes.get(key) for key in (semconv.OI_INPUT, semconv.OI_OUTPUT)]
    is_own = scope is None or scope.name == semconv.SCOPE
    query, answer = (text if is_own and isinstance(text, str) else None for text in shown)
    return JudgedTexts(query, answer)


def _quoted(value: object) -> str:
    """Return *value* as quoted text on one line, without control characters and cut if it is long."""
    text = " ".join(str(value).split())
    shown = text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}..."
    return printable(json.dumps(shown, ensure_ascii=False))


def span_text(span: ReadableSpan) -> str:
    """Return *span* as text to print: a heading with its duration and ids, and a line for each attribute."""
    context, parent = span.get_span_context(), span.parent
    duration_ms = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    trace_id, span_id = (context.trace_id, context.span_id) if context else (0, 0)
    heading = (
        f"span   {_short(span.name)}  {duration_ms:.1f} ms  {span.status.status_code.name}"
        f"  trace={trace_id:032x} span={span_id:016x} parent={f'{parent.span_id:016x}' if parent else '-'}"
    )
    return _block(heading, span.attributes or {})


def event_text(record: ReadableLogRecord) -> str:
    """Return the event *record* as text to print: a heading with its span's ids, and a line for each attribute."""
    log = record.log_record
    ids = f"trace={log.trace_id or 0:032x} span={log.span_id or 0:016x}"
    return _block(f"event  {_short(log.event_name or log.body or '-')}  {ids}", log.attributes or {})


def metrics_text(data: MetricsData) -> str:
    """Return metrics as text to print: a line with name, value and attributes for each data point."""
    lines = (
        f"metric {metric.name}  {_point_text(point)}  "
        f"{' '.join(f'{_short(key)}={_short(value)}' for key, value in (point.attributes or {}).items())}\n"
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    )
    return _printable("".join(lines))


def _point_text(point: object) -> str:
    from opentelemetry.sdk.metrics.export import ExponentialHistogramDataPoint, HistogramDataPoint, NumberDataPoint

    if isinstance(point, NumberDataPoint):
        return f"{point.value:g}"
    if isinstance(point, (HistogramDataPoint, ExponentialHistogramDataPoint)):
        return f"n={point.count} mean={point.sum / point.count:g}" if point.count else "n=0"
    return str(point)


def _wanted(environ: Mapping[str, str], signal: str) -> bool:
    return environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() != "none"


def _block(heading: str, attributes: Mapping[str, object]) -> str:
    lines = (heading, *(f"       {_short(key)} = {_short(value)}" for key, value in attributes.items()))
    return _printable("\n".join(lines) + "\n")


def _short(value: object) -> str:
    """Return *value* as text on one line, without characters that drive a terminal, and cut if it is long."""
    text = str(value)
    shown = printable(text[:_WIDTH_CHARS])
    return shown if len(text) <= _WIDTH_CHARS else f"{shown}... ({len(text) - _WIDTH_CHARS} more characters)"


def _printable(text: str) -> str:
    # A terminal in a narrow encoding must not cost the whole span.
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
