"""Calls of other instrumentations in a configuration: the part of a runtime that finds them in finished spans."""

from __future__ import annotations

from collections.abc import Iterator

from ragtrace.evaluation.scoring import Evaluators
from ragtrace.runtime.feature import Feature
from ragtrace.runtime.runtime import Runtime
from ragtrace.span_reading.span_calls import SpanCalls
from ragtrace.telemetry.spans.hold import release_unscored


class SpanReadingFeature(Feature):
    """Calls in spans that other instrumentations, or listeners of frameworks, have made."""

    def prepare(self, evaluators: Evaluators) -> tuple[str, ...]:
        """Return the module that the worker imports when the first spans have ended."""
        return ("ragtrace.span_reading.assembler",) if self.given.settings.evaluate_spans else ()

    def parts(self, runtime: Runtime) -> Iterator[SpanCalls]:
        """Return what finds the calls."""
        yield SpanCalls(
            runtime.call_ended,
            release_unscored,
            lambda: runtime.worker.throttle.yield_interpreter(),
            most_bytes=runtime.settings.queue_bytes // 4,
        )
