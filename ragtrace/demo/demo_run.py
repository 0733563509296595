"""Run of the demo: reads documents, asks questions, simulates a release, and reads the scores from the spans."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import get_current_span

import ragtrace
from ragtrace.alerts import Notice, Notifier
from ragtrace.core import semconv
from ragtrace.core.types import Signals
from ragtrace.demo.application import build_application
from ragtrace.demo.generator import NOT_FOUND, ExtractiveModel, Model, split_into_words
from ragtrace.demo.library import Documents, Passage, standard_library
from ragtrace.demo.library_questions import library_questions
from ragtrace.demo.outcome import Alarm, DemoCall, Destination, Outcome, Verdict, read_verdict
from ragtrace.demo.regression import SHARE, Invention, Release
from ragtrace.demo.search import Index
from ragtrace.testing import DecisionServer

SERVICE = "ragtrace-demo"
RELEASE_NAME = f"{ExtractiveModel.name}-simulated"
"""Name of the simulated release of the model."""

MODEL = "decision-rule"
"""Name of the model of `--decisions`, which a server on this machine answers for: by a rule, with errors."""

_FLUSH_S = 10.0

Progress = Callable[[str, int, int], None]
"""Function that shows the progress: name of the stage, steps done, steps in all."""


@dataclass(frozen=True, slots=True)
class Options:
    """Command-line options of `ragtrace demo`."""

    questions: int = 400
    seed: int = 7
    store: Path | None = None
    """File of the history that stores the calls; None: no history."""
    decisions: bool = False
    """Whether a local decision server judges the calls, instead of a comparison of words."""


@dataclass(frozen=True, slots=True)
class Destinations:
    """Exporters for the telemetry of a demo run, and notifiers for the alerts."""

    signals: Signals
    endpoint: str | None
    """Address to which the spans are sent, for display; None: no backend."""
    notify: tuple[Notifier, ...] = ()
    """Notifiers of the alert on hallucinations; empty: only the log."""


def from_environment() -> Destinations:
    """Return OTLP exporters for each signal that has an endpoint in the environment variables."""
    from ragtrace_exporters.otlp import otlp

    endpoints = map(os.environ.get, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"))
    return Destinations(otlp(os.environ), next(filter(None, endpoints), None))


class RootSpans(SpanExporter):
    """Span exporter that keeps all spans in memory for the demo, and forwards them to a backend.

    The backend is sent to by the demo's own thread: a slow or dead one must not keep the results from the demo.
    """

    def __init__(self, backend: SpanExporter | None) -> None:
        self._backend = backend
        self._refused = False
        self._spans: list[ReadableSpan] = []
        self.sent = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._spans.extend(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.send()
        if self._backend:
            self._backend.shutdown()

    def send(self) -> None:
        """Send all spans that are not sent yet to the backend. Do nothing once the backend has refused some."""
        while self._backend and not self._refused and self.sent < len(self._spans):
            batch = self._spans[self.sent : self.sent + 500]
            self._refused = self._backend.export(batch) is not SpanExportResult.SUCCESS
            self.sent += 0 if self._refused else len(batch)

    def destination(self, endpoint: str | None) -> Destination:
        """Return the numbers of spans that the backend at *endpoint* has accepted and refused."""
        return Destination(endpoint, self.sent, len(self._spans) - self.sent) if self._backend else Destination(None)

    def verdicts(self) -> dict[int, Verdict]:
        """Return the judge's verdict on each call by trace id, read from the scored root spans."""
        roots = [(span.get_span_context(), span.attributes or {}) for span in self._spans if span.parent is None]
        return {at.trace_id: read_verdict(found) for at, found in roots if at and semconv.EVAL_STATUS in found}


class ReleasedModel:
    """Demo model that invents facts in some of its answers once `released` is set, as a simulated bad release."""

    def __init__(self, model: Model, release: Release) -> None:
        self._model, self._release = model, release
        self.released = False
        self.invention: Invention | None = None
        """Invention in the latest answer; None: that answer is unaltered."""
        self.trace_id = 0
        """Trace id of the latest answer; 0: no answer yet."""

    @property
    def name(self) -> str:
        return self._model.name

    def stream(self, question: str, passages: Sequence[Passage]) -> Iterator[str]:
        """Yield the answer to *question* in chunks, with an invented detail if the simulated release chooses so."""
        self.invention = None
        self.trace_id = get_current_span().get_span_context().trace_id
        if not (self.released and self._release.chooses()):
            yield from self._model.stream(question, passages)
            return
        answer = "".join(self._model.stream(question, passages))
        if answer != NOT_FOUND:  # a refusal states nothing, so nothing is invented in it
            answer, self.invention = self._release.alter(question, answer, passages)
        yield from split_into_words(answer)


def run(options: Options, progress: Progress) -> Outcome:
    """Run the demo, from reading the documents to the last score, and return the outcome."""
    with running_demo(options, progress, from_environment()) as outcome:
        pass
    return outcome()


@contextmanager
def running_demo(
    options: Options, progress: Progress, to: Destinations
) -> Generator[Callable[[], Outcome], None, None]:
    """Context manager that runs the demo, and shuts ragtrace down at the end of the block.

    The block gets a function that returns the outcome as of now.
    """
    # Errors that a good model makes.
    served = DecisionServer(false_alarms=0.02, misses=0.1) if options.decisions else nullcontext()
    with served as server:
        judge = None if server is None else ragtrace.DecisionJudge(MODEL, base_url=server.url, api_key="none")
        with _judged_demo(options, progress, to, judge) as outcome:
            yield outcome


@contextmanager
def _judged_demo(
    options: Options, progress: Progress, to: Destinations, judge: ragtrace.DecisionJudge | None
) -> Generator[Callable[[], Outcome], None, None]:
    started = time.monotonic()
    progress("Reading documents", 0, 1)
    documents, index = _searchable_library()
    questions = library_questions(documents, options.questions, options.seed)
    model = ReleasedModel(ExtractiveModel(index), Release(documents.entries, seed=options.seed))
    ask, ask_release = build_application(index, model), build_application(index, model, RELEASE_NAME)
    roots = RootSpans(to.signals.spans)
    notices: list[Notice] = []
    # One receiver for each alert: a receiver shared by both would get only the first notification of one event.
    alerts = (
        ragtrace.Alert(
            "hallucinated", above=0.05 if judge is None else "baseline", notify=(notices.append, *to.notify)
        ),
        ragtrace.Alert("consistency", below="baseline", notify=lambda notice: notices.append(notice)),
    )
    # Share of the calls before the release from which the baseline is learned; below 1, as some calls have no score.
    ragtrace.configure(
        service=SERVICE,
        exporter=replace(to.signals, spans=roots),
        screen=ragtrace.EmbeddedJudge(extractive=judge is None),
        judge=judge,
        sampling=ragtrace.Sampling(rate=1.0),
        telemetry=ragtrace.TelemetryOptions(evidence=True),
        metrics=("hallucinated", "faithfulness", "consistency"),
        alerts=alerts,
        baseline=ragtrace.BaselineLearning(calls=max(1, int(0.9 * (len(questions) // 2)))),
        store=options.store,
    )
    log, flushed = logging.getLogger("ragtrace.alerts"), False
    usual, log.disabled = log.disabled, True  # the report shows the alerts; the log would garble the progress line
    try:
        answered = _ask_all(questions, ask, ask_release, model, progress)
        flushed = ragtrace.flush(timeout=_FLUSH_S)
        roots.send()
        stats = asdict(ragtrace.stats())

        def outcome() -> Outcome:
            verdicts = roots.verdicts()
            return Outcome(
                passages=len(documents.passages),
                seed=options.seed,
                share=SHARE,
                calls=[replace(call, verdict=verdicts.get(call.trace_id, Verdict())) for call in answered],
                stats=stats,
                destination=roots.destination(to.endpoint),
                seconds=time.monotonic() - started,
                alarms=[_calls_until_alarm(alert, notices, answered) for alert in alerts],
            )

        yield outcome
    finally:
        log.disabled = usual
        # Timeout in seconds for a backend that did not accept everything within `_FLUSH_S`.
        ragtrace.shutdown(timeout=_FLUSH_S if flushed else 2.0)


@cache
def _searchable_library() -> tuple[Documents, Index]:
    """Return the documents and the search index over them, which are the same for every run in a process."""
    documents = standard_library()
    return documents, Index(documents.passages)


def _ask_all(
    questions: Sequence[str],
    ask: Callable[[str], str],
    ask_release: Callable[[str], str],
    model: ReleasedModel,
    progress: Progress,
) -> list[DemoCall]:
    """Ask the demo's application all questions, the second half of them with the simulated release."""
    answered, middle = list[DemoCall](), len(questions) // 2
    for number, question in enumerate(questions):
        model.released = number >= middle
        progress("Asking the simulated release" if model.released else "Asking", number, len(questions))
        answer = (ask_release if model.released else ask)(question)
        answered.append(DemoCall(question, answer, model.invention, model.released, model.trace_id))
        # Number of calls that may wait for scores before the demo pauses, far below the capacity of the queue.
        if ragtrace.stats().pending > 500:
            ragtrace.flush(timeout=_FLUSH_S)
    progress("Asking the simulated release", len(questions), len(questions))
    return answered


def _calls_until_alarm(alert: ragtrace.Alert, notices: Sequence[Notice], answered: Sequence[DemoCall]) -> Alarm:
    """Count the calls from the simulated release until *alert* first reported a spike."""
    alarm = Alarm(alert.title, round(alert.mean_calls_between_false_alarms))
    numbers = {f"{call.trace_id:032x}": number for number, call in enumerate(answered, start=1)}
    before = sum(not call.released for call in answered)
    for notice in notices:
        spike = (notice.alert, notice.problem, notice.status) == (alert.title, "spiking", "firing")
        if spike and notice.trace_id in numbers:
            return replace(alarm, raised_after=numbers[notice.trace_id] - before, text=notice.text)
    return alarm
