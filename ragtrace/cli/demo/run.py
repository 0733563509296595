"""Run of the demo: reads documents, asks questions, simulates a release, and reads the scores from the spans."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import get_current_span

import ragtrace
from ragtrace.alerts import Notice, Notifier
from ragtrace.cli.demo.application import build_application
from ragtrace.cli.demo.documents import DemoError, Passage, directory, standard_library
from ragtrace.cli.demo.generator import ExtractiveModel, Model, ServedModel, split_into_words
from ragtrace.cli.demo.outcome import Alarm, DemoCall, Destination, Outcome, Verdict, read_verdict
from ragtrace.cli.demo.questions import document_questions, library_questions
from ragtrace.cli.demo.regression import SHARE, Invention, Release
from ragtrace.cli.demo.search import Index
from ragtrace.core import semconv
from ragtrace.core.types import Signals

SERVICE = "ragtrace-demo"

_BASELINE_SHARE = 0.9
"""Share of the calls before the release from which the baseline is learned; below 1, as some calls have no score."""
_MOST_PENDING = 500
"""Number of calls that may wait for scores before the demo pauses, far below the capacity of the queue."""
_FLUSH_S = 10.0
_HOPELESS_S = 2.0
"""Timeout in seconds for a backend that did not accept everything within `_FLUSH_S`."""
_FAILURES_IN_A_ROW = 3
_DECLINES = re.compile(r"\A(?:I|Sorry|The)\b[^.]{0,60}(?:not|n't) (?:find|hold|contain|mention)\b", re.IGNORECASE)

Progress = Callable[[str, int, int], None]
"""Function that shows the progress: name of the stage, steps done, steps in all."""


@dataclass(frozen=True, slots=True)
class Options:
    """Command-line options of `ragtrace demo`."""

    docs: Path | None = None
    questions: int | None = None
    seed: int = 7
    model: str | None = None
    store: Path | None = None
    """File of the history that stores the calls; None: no history."""


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
        if not _DECLINES.search(answer):  # a refusal states nothing, so nothing is invented in it
            answer, self.invention = self._release.alter(question, answer, passages)
        yield from split_into_words(answer)


def release_name(model: str) -> str:
    """Return the name of the simulated release of *model*."""
    return f"{model}-simulated"


def run(options: Options, progress: Progress) -> Outcome:
    """Run the demo, from reading the documents to the last score, and return the outcome.

    Raises:
        DemoError: the demo cannot run as asked, or the served model keeps failing.
    """
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
    started = time.monotonic()
    progress("Reading documents", 0, 1)
    documents = directory(options.docs) if options.docs else standard_library()
    count = options.questions or (40 if options.model else 400)  # a served model takes seconds for each answer
    questions = (document_questions if options.docs else library_questions)(documents, count, options.seed)
    if len(questions) < 2:
        raise DemoError(
            f"{documents.source} holds too little to ask about; use documents with headings and a few paragraphs"
        )
    index = Index(documents.passages)
    served = ServedModel(options.model) if options.model else ExtractiveModel(index)
    model = ReleasedModel(served, Release(documents.entries, seed=options.seed))
    ask, ask_release = build_application(index, model), build_application(index, model, release_name(model.name))
    roots = RootSpans(to.signals.spans)
    notices: list[Notice] = []
    # One receiver for each alert: a receiver shared by both would get only the first notification of one event.
    alerts = (
        ragtrace.Alert("hallucinated", above=0.05, notify=(notices.append, *to.notify)),
        ragtrace.Alert("consistency", below="baseline", notify=lambda notice: notices.append(notice)),
    )
    ragtrace.configure(
        service=SERVICE,
        exporter=replace(to.signals, spans=roots),
        screen=ragtrace.EmbeddedJudge(extractive=True),
        telemetry=ragtrace.TelemetryOptions(evidence=True),
        metrics=("hallucinated", "faithfulness", "consistency"),
        alerts=alerts,
        baseline=ragtrace.BaselineLearning(calls=max(1, int(_BASELINE_SHARE * (len(questions) // 2)))),
        store=options.store,
    )
    log, flushed = logging.getLogger("ragtrace.alerts"), False
    usual, log.disabled = log.disabled, True  # the report shows the alerts; the log would garble the progress line
    try:
        answered, notes = _ask_all(questions, ask, ask_release, model, progress)
        flushed = ragtrace.flush(timeout=_FLUSH_S)
        roots.send()
        stats = asdict(ragtrace.stats())

        def outcome() -> Outcome:
            verdicts = roots.verdicts()
            return Outcome(
                source=documents.source,
                passages=len(documents.passages),
                model=model.name,
                seed=options.seed,
                share=SHARE,
                calls=[replace(call, verdict=verdicts.get(call.trace_id, Verdict())) for call in answered],
                stats=stats,
                destination=roots.destination(to.endpoint),
                seconds=time.monotonic() - started,
                notes=notes,
                alarms=[_calls_until_alarm(alert, notices, answered) for alert in alerts],
            )

        yield outcome
    finally:
        log.disabled = usual
        ragtrace.shutdown(timeout=_FLUSH_S if flushed else _HOPELESS_S)


def _ask_all(
    questions: Sequence[str],
    ask: Callable[[str], str],
    ask_release: Callable[[str], str],
    model: ReleasedModel,
    progress: Progress,
) -> tuple[list[DemoCall], list[str]]:
    """Ask the demo's application all questions, half of them with the simulated release, and return calls and notes."""
    answered, failures, in_a_row, middle = list[DemoCall](), list[str](), 0, len(questions) // 2
    for number, question in enumerate(questions):
        model.released = number >= middle
        progress("Asking the simulated release" if model.released else "Asking", number, len(questions))
        try:
            answer = (ask_release if model.released else ask)(question)
        except Exception as error:  # the model's client may raise any exception, and the run goes on
            failures.append(f"{type(error).__name__}: {error}"[:300])
            in_a_row += 1
            if in_a_row == _FAILURES_IN_A_ROW:
                raise DemoError(
                    f"the model {model.name!r} failed {_FAILURES_IN_A_ROW} times in a row, at last with {failures[-1]};"
                    " check OPENAI_BASE_URL, OPENAI_API_KEY and the model's name"
                ) from error
        else:
            answered.append(DemoCall(question, answer, model.invention, model.released, model.trace_id))
            in_a_row = 0
        if ragtrace.stats().pending > _MOST_PENDING:
            ragtrace.flush(timeout=_FLUSH_S)
    progress("Asking the simulated release", len(questions), len(questions))
    note = "{} of {} questions got no answer; the last failure was {}"
    return answered, [note.format(len(failures), len(questions), failures[-1])] if failures else []


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
