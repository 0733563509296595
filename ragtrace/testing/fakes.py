"""Fakes for tests: exporters that keep telemetry in memory, a scripted judge, and a manual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragtrace.core import semconv
from ragtrace.core.options import JudgeLimits
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall, Signals

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.trace import ReadableSpan

_USUAL: Final = ("hallucinated", "faithfulness", "hallucination", "consistency", "answered")


class FakeJudge:
    """Judge for tests that returns scripted judgements, or raises scripted errors, in order.

    The last item of the script repeats.

    Examples:
        >>> timeout = ragtrace.judges.JudgeError("timeout")
        >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(consistency=0.3), timeout)
        >>> calls = [{"contexts": ["It is in Paris."], "answer": answer} for answer in ("In Paris.", "In Berlin.")]
        >>> found = ragtrace.evaluate(calls, judge=judge, metrics=["consistency"], concurrency=1)
        >>> [each.results["consistency"] for each in found]
        [Score(0.3, metric='consistency'), Unscored('timeout', metric='consistency')]

    Args:
        *script: `Judgement`s and exceptions, in order.
        name: id of the judge.
        limits: time for a call and calls at a time, as any judge may have; None: those of the configuration.
        metrics: names of the metrics that the judge offers; None: hallucinated, faithfulness, hallucination,
            consistency, answered, and every metric that is not one of ragtrace's.
    """

    version = "1"
    type: EvaluatorType = "llm_judge"
    is_only_itself = True  # two of the same script are two judges

    def __init__(
        self,
        *script: Judgement | BaseException,
        name: str = "fake",
        limits: JudgeLimits | None = None,
        metrics: Sequence[str] | None = None,
    ) -> None:
        if not script:
            raise ValueError("FakeJudge needs at least one judgement or exception")
        self.id, self.limits = name, limits
        self._script = list(script)
        self._metrics = metrics
        self.calls: list[RagCall] = []
        """All calls that the judge was asked about so far."""

    def offers(self, metric: Metric) -> bool:
        """Return whether this judge can score *metric*."""
        if self._metrics is not None:
            return metric.name in self._metrics
        return metric.name in _USUAL or not getattr(metric, "computes", False)

    async def judge(self, call: RagCall) -> Judgement:
        """Return the next judgement of the script, or raise it if it is an exception."""
        self.calls.append(call)
        item = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(item, BaseException):
            raise item
        return item


class FakeClock:
    """Callable clock for tests, whose time in seconds changes only by `advance`.

    Examples:
        >>> clock = ragtrace.testing.FakeClock(now=100.0)
        >>> clock.advance(30)
        >>> clock()
        130.0
    """

    is_only_itself = True

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward by *seconds*."""
        self.now += seconds


class _ReaderOnRequest(InMemoryMetricReader):
    """Metric reader that collects when its data are asked for, and not at each flush.

    Its figures are cumulative and stay in this process, so that nothing is lost. A collection reads every instrument,
    which takes as long as all that else happens to a call in a small test.
    """

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Return True, as there is nothing to be sent."""
        return True


class Captured:
    """In-memory exporters for tests, which keep all telemetry: `configure(exporter=captured.signals)`.

    Examples:
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> with ragtrace.call("Where is the tower?") as call:
        ...     call.retrieved(["The tower is in Paris."])
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        True
        >>> captured.root().attributes["ragtrace.eval.status"]
        'ok'
    """

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._events = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call,unused-ignore]
        self._metrics = _ReaderOnRequest()
        self.signals = Signals(spans=self._spans, metrics=self._metrics, logs=self._events, immediate=True)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Every span exported so far, in the order of export."""
        return self._spans.get_finished_spans()

    def roots(self) -> list[ReadableSpan]:
        """Return the root span of every exported call, which carries the call's scores.

        A call without scores has a status on that span that says why there are none.
        """
        return [span for span in self.spans if semconv.EVAL_STATUS in (span.attributes or {})]

    def root(self) -> ReadableSpan:
        """Return the root span of the only exported call, which carries the call's scores.

        Raises:
            LookupError: there is no such span, or more than one.
        """
        roots = self.roots()
        if len(roots) != 1:
            raise LookupError(f"expected one scored span, found {len(roots)}: {[span.name for span in roots]}")
        return roots[0]

    @property
    def events(self) -> list[ReadableLogRecord]:
        """Every OpenTelemetry event exported so far."""
        return list(self._events.get_finished_logs())

    def metrics(self) -> dict[str, Any]:
        """Return the current data of each OpenTelemetry metric, by metric name."""
        data = self._metrics.get_metrics_data()
        if data is None:
            return {}
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: metric.data for scope in scopes for metric in scope.metrics}

    def clear(self) -> None:
        """Drop the spans and events captured so far."""
        self._spans.clear()
        self._events.clear()
