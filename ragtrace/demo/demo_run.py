"""Run of the demo: reads documents, asks questions, simulates a release, and reports on the history of its calls."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from opentelemetry.trace import get_current_span

import ragtrace
from ragtrace.alerts import Notice, Notifier
from ragtrace.core.types import Signals
from ragtrace.demo.application import build_application
from ragtrace.demo.generator import NOT_FOUND, ExtractiveModel, Model, split_into_words
from ragtrace.demo.library import Documents, Passage, standard_library
from ragtrace.demo.library_questions import library_questions
from ragtrace.demo.outcome import Alarm, Outcome
from ragtrace.demo.regression import Invention, Release
from ragtrace.demo.search import Index
from ragtrace.report.analysis import build_report
from ragtrace.report.model import Period
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
    """File of the history that stores the calls; None: a temporary one."""
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


class ReleasedModel:
    """Demo model that invents facts in some of its answers once `released` is set, as a simulated bad release."""

    def __init__(self, model: Model, release: Release) -> None:
        self._model, self._release = model, release
        self.released = False
        self.asked: list[str] = []
        """Trace ids of the calls, in order."""
        self.inventions: dict[str, Invention] = {}
        """What was invented, by the trace id of the call."""

    @property
    def name(self) -> str:
        return self._model.name

    def stream(self, question: str, passages: Sequence[Passage]) -> Iterator[str]:
        """Yield the answer to *question* in chunks, with an invented detail if the simulated release chooses so."""
        self.asked.append(f"{get_current_span().get_span_context().trace_id:032x}")
        if not (self.released and self._release.chooses()):
            yield from self._model.stream(question, passages)
            return
        answer = "".join(self._model.stream(question, passages))
        if answer != NOT_FOUND:  # a refusal states nothing, so nothing is invented in it
            answer, invention = self._release.alter(question, answer, passages)
            if invention is not None:
                self.inventions[self.asked[-1]] = invention
        yield from split_into_words(answer)


def run(options: Options, progress: Progress) -> Outcome:
    """Run the demo, from reading the documents to the report, and return the outcome."""
    with running_demo(options, progress, from_environment()) as outcome:
        pass
    return replace(outcome, stats=asdict(ragtrace.stats()))  # with what the shutdown could not deliver


@contextmanager
def running_demo(options: Options, progress: Progress, to: Destinations) -> Generator[Outcome, None, None]:
    """Context manager that runs the demo, and shuts ragtrace down at the end of the block."""
    # Errors that a good model makes.
    served = DecisionServer(false_alarms=0.02, misses=0.1) if options.decisions else nullcontext()
    with TemporaryDirectory(prefix="ragtrace-demo-", ignore_cleanup_errors=True) as folder, served as server:
        judge = None if server is None else ragtrace.DecisionJudge(MODEL, base_url=server.url, api_key="none")
        with _judged_demo(options, progress, to, judge, options.store or Path(folder) / "demo.db") as outcome:
            yield outcome


@contextmanager
def _judged_demo(
    options: Options, progress: Progress, to: Destinations, judge: ragtrace.DecisionJudge | None, store: Path
) -> Generator[Outcome, None, None]:
    started, began = time.monotonic(), time.time()
    progress("Reading documents", 0, 1)
    documents, index = _searchable_library()
    questions = library_questions(documents, options.questions, options.seed)
    model = ReleasedModel(ExtractiveModel(index), Release(documents.entries, seed=options.seed))
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
        exporter=to.signals,
        screen=ragtrace.EmbeddedJudge(extractive=judge is None),
        judge=judge,
        sampling=ragtrace.Sampling(rate=1.0),
        telemetry=ragtrace.TelemetryOptions(evidence=True),
        metrics=("hallucinated", "faithfulness", "consistency"),
        alerts=alerts,
        baseline=ragtrace.BaselineLearning(calls=max(1, int(0.9 * (len(questions) // 2)))),
        store=store,
    )
    log, flushed = logging.getLogger("ragtrace.alerts"), False
    usual, log.disabled = log.disabled, True  # the report shows the alerts; the log would garble the progress line
    try:
        _ask_all(
            questions, build_application(index, model), build_application(index, model, RELEASE_NAME), model, progress
        )
        flushed = ragtrace.flush(timeout=_FLUSH_S)
        compared = f"{ExtractiveModel.name}:{RELEASE_NAME}"
        yield Outcome(
            report=build_report(str(store), Period(began, time.time()), compare=compared, worst=len(questions)),
            seed=options.seed,
            passages=len(documents.passages),
            inventions=model.inventions,
            alarms=[_alarm(alert, notices, model.asked) for alert in alerts],
            stats=asdict(ragtrace.stats()),
            endpoint=to.endpoint,
            seconds=time.monotonic() - started,
        )
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
) -> None:
    """Ask the demo's application all questions, the second half of them with the simulated release."""
    for number, question in enumerate(questions):
        model.released = number >= len(questions) // 2
        progress("Asking the simulated release" if model.released else "Asking", number, len(questions))
        (ask_release if model.released else ask)(question)
        # Number of calls that may wait for scores before the demo pauses, far below the capacity of the queue.
        if ragtrace.stats().pending > 500:
            ragtrace.flush(timeout=_FLUSH_S)
    progress("Asking the simulated release", len(questions), len(questions))


def _alarm(alert: ragtrace.Alert, notices: Sequence[Notice], asked: Sequence[str]) -> Alarm:
    """Count the calls from the simulated release, in the middle of those asked, until *alert* reported a spike."""
    numbers = {trace_id: number - len(asked) // 2 for number, trace_id in enumerate(asked, start=1)}
    spikes = (
        numbers[notice.trace_id]
        for notice in notices
        if (notice.alert, notice.problem, notice.status) == (alert.title, "spiking", "firing")
        and notice.trace_id in numbers
    )
    return Alarm(alert.title, round(alert.mean_calls_between_false_alarms), next(spikes, None))
