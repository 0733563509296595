"""Backends of several tenants, in memory, and what each has got of whom."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace.core.types import Signals
from ragtrace.testing import Captured
from tests.support.watched import WAIT_S


class Sink:
    """Score API that takes everything."""

    name = "api"
    most_at_once = 100

    def __init__(self) -> None:
        self.taken: list[ScoreRecord] = []

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        self.taken += scores
        return {}


class Backend(Captured):
    """A tenant's backend: spans and events, and scores if it is to have an API for them."""

    def __init__(self, *, posts: bool = False, **others: Any) -> None:
        super().__init__()
        self.sink = Sink() if posts else None
        self.signals = replace(self.signals, metrics=None, immediate=False, scores=self.sink, **others)

    @property
    def names(self) -> list[str]:
        """Names of the spans, in the order of the alphabet."""
        return sorted(span.name for span in self.spans)

    def traces(self) -> dict[str, set[int]]:
        """Trace ids of what has come, by signal; of a carrier, the trace of the call that it is linked to."""
        spans = {(span.links[0].context if _is_carrier(span) else span.context).trace_id for span in self.spans}  # type: ignore[union-attr]
        events = {event.log_record.trace_id or 0 for event in self.events}
        scores = {score.trace_id for score in self.sink.taken} if self.sink else set()
        return {"spans": spans, "events": events, "scores": scores}


def _is_carrier(span: ReadableSpan) -> bool:
    return span.name.startswith("evaluate")


class Hanging(SpanExporter):
    """Backend that does not answer before it is let go, and keeps what it was given then."""

    def __init__(self) -> None:
        self.entered, self.gate = threading.Event(), threading.Event()
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.gate.wait(10 * WAIT_S)
        self.spans += spans
        return SpanExportResult.SUCCESS


class Refusing(SpanExporter):
    """Backend that refuses everything."""

    def __init__(self) -> None:
        self.refused = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.refused += len(spans)
        return SpanExportResult.FAILURE


def signals_of(backends: Mapping[str, Backend]) -> dict[str, Signals]:
    """What a route takes."""
    return {value: backend.signals for value, backend in backends.items()}
