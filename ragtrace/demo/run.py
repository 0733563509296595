"""The demo itself: documents, questions, the watched application, the simulated release, and what the spans say."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from opentelemetry.trace import get_current_span

import ragtrace
from ragtrace.alerts import Notice
from ragtrace.demo.answering import pieces
from ragtrace.demo.application import ExtractiveModel, Hit, Model, build
from ragtrace.demo.corpus import standard_library
from ragtrace.demo.documents import directory
from ragtrace.demo.outcome import Alarm, Call, Outcome, verdict
from ragtrace.demo.passages import DemoError, Entry, Passage
from ragtrace.demo.questions import document_questions, library_questions
from ragtrace.demo.regression import SHARE, Invention, Release
from ragtrace.demo.search import Index
from ragtrace.demo.spans import RootSpans, Servers, signals

SERVICE = "ragtrace-demo"
QUESTIONS = 400
QUESTIONS_TO_A_SERVER = 40
"""A served model takes seconds for what the built-in generator does in a millisecond."""
FEWEST_QUESTIONS = 2
SEED = 7
ALERT_ABOVE = 0.05
"""Hallucination rate that one of the demo's alerts tells of, stated beforehand; the other needs no figure."""

_BATCH = 25
_MOST_PENDING = 500
"""Calls that may wait for their scores before the demo waits for them: far below what the queue holds."""
_PATIENCE = 10.0
_IMPATIENCE = 2.0
"""Seconds for a backend that did not take anything in the time before."""
_STAGES = ("Asking", "Asking the simulated release")
_FAILURES_IN_A_ROW = 3
_DECLINES = re.compile(r"\A(?:I|Sorry|The)\b[^.]{0,60}(?:not|n't) (?:find|hold|contain|mention)\b", re.IGNORECASE)

_METRICS = ("hallucinated", "faithfulness", "consistency")
_BASELINE_SHARE = 0.9
"""Of the calls before the release, what the baseline is learned from: some have no score."""

Progress = Callable[[str, int, int], None]
"""Told (what is being done, steps done, steps in all)."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for."""

    docs: Path | None = None
    questions: int | None = None
    seed: int = SEED
    model: str | None = None
    store: Path | None = None
    """A local history to keep the calls in."""


@dataclass(frozen=True, slots=True)
class _Library:
    """The documents, ready to be asked about."""

    source: str
    entries: Sequence[Entry]
    passages: Sequence[Passage]
    questions: Sequence[str]


class _Released:
    """The model in production: the healthy one, until `new` puts the simulated release in its place."""

    def __init__(self, model: Model, release: Release) -> None:
        self.name = model.name
        self.new = False
        self.invented: tuple[Invention, ...] = ()
        self.trace_id = 0
        self._model = model
        self._release = release

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str]:
        self.invented = ()
        self.trace_id = get_current_span().get_span_context().trace_id
        if not (self.new and self._release.chooses()):
            yield from self._model.stream(question, hits)
            return
        answer = "".join(self._model.stream(question, hits))
        if _DECLINES.search(answer):  # whoever says that he does not know invents nothing
            yield from pieces(answer)
            return
        altered = self._release.alter(question, answer, [hit.passage for hit in hits])
        self.invented = altered.inventions
        yield from pieces(altered.text)


@dataclass(frozen=True, slots=True)
class _Renamed:
    """*model* under the name that the simulated release goes by: its calls can be told apart in every backend."""

    model: _Released

    @property
    def name(self) -> str:
        return renamed(self.model.name)

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str]:
        return self.model.stream(question, hits)


def renamed(model: str) -> str:
    """What the simulated release of *model* is called."""
    return f"{model}-simulated"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call that is over, before its score."""

    question: str
    answer: str
    inventions: tuple[Invention, ...]
    half: int
    trace_id: int


def run(options: Options, progress: Progress) -> Outcome:
    """Run the demo from reading the documents to the last score.

    Raises:
        DemoError: if it cannot run as asked, or the served model keeps failing.
    """
    with running(options, progress) as outcome:
        pass
    return outcome()


@contextmanager
def running(
    options: Options, progress: Progress, servers: Servers | None = None
) -> Generator[Callable[[], Outcome], None, None]:
    """The same, with the application up until the block ends; the block is given what tells the outcome so far.

    Args:
        servers: where the telemetry goes; default: where the environment says.

    Raises:
        DemoError: if it cannot run as asked, or the served model keeps failing.
    """
    started = time.monotonic()
    library = _library(options, progress)
    progress("Indexing", 0, 1)
    index = Index(library.passages)
    progress("Indexing", 1, 1)
    model = _Released(_model(options, index), Release(library.entries, seed=options.seed))
    asks = build(index, model), build(index, _Renamed(model))
    where, roots = signals(servers)
    told: list[Notice] = []
    # Each with a receiver of its own: who is told of one spike is not told of the other, which is of the same event.
    paged = servers.notify if servers else ()
    alerts = (
        ragtrace.Alert("hallucinated", above=ALERT_ABOVE, notify=(told.append, *paged)),
        ragtrace.Alert("consistency", below="baseline", notify=lambda notice: told.append(notice)),
    )
    ragtrace.configure(
        service=SERVICE,
        exporter=where,
        screen=ragtrace.EmbeddedJudge(extractive=True),
        evidence=True,
        metrics=_METRICS,
        alerts=alerts,
        baseline_calls=max(1, int(_BASELINE_SHARE * (len(library.questions) // 2))),
        store=options.store,
    )
    sent = False
    try:
        with _told_in_the_report():
            asked, notes = _ask_all(library.questions, asks, model, progress)
            sent = ragtrace.flush(timeout=_PATIENCE)
        if servers:
            roots.force_flush()  # they are there to be looked at while we stay
        stats = asdict(ragtrace.stats())
        yield lambda: Outcome(
            source=library.source,
            passages=len(library.passages),
            model=model.name,
            seed=options.seed,
            share=SHARE,
            calls=[_judged(call, roots) for call in asked],
            stats=stats,
            destination=roots.destination(),
            seconds=time.monotonic() - started,
            notes=notes,
            alarms=tuple(_alarm(alert, told, asked) for alert in alerts),
        )
    finally:
        ragtrace.shutdown(timeout=_PATIENCE if sent else _IMPATIENCE)


@contextmanager
def _told_in_the_report() -> Generator[None, None, None]:
    """The report says what was alerted: the log does not need to, in the middle of the progress."""
    log = logging.getLogger("ragtrace.alerts")
    usual, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = usual


def _alarm(alert: ragtrace.Alert, told: Sequence[Notice], asked: Sequence[_Asked]) -> Alarm:
    """Return the first spike that *alert* told of, and how many calls after the release it was."""
    watched = Alarm(alert.title, round(alert.mean_calls_between_false_alarms))
    spikes = (each for each in told if (each.alert, each.problem, each.status) == (alert.title, "spiking", "firing"))
    spike = next(spikes, None)
    number = {f"{call.trace_id:032x}": number for number, call in enumerate(asked, start=1)}
    if spike is None or spike.trace_id not in number:
        return watched
    before = sum(call.half == 0 for call in asked)
    return replace(watched, raised_after=number[spike.trace_id] - before, text=spike.text)


def _library(options: Options, progress: Progress) -> _Library:
    wanted = options.questions or (QUESTIONS_TO_A_SERVER if options.model else QUESTIONS)

    def reading(done: int, total: int) -> None:
        progress("Reading documents", done, total)

    if options.docs is None:
        entries, passages = standard_library(reading)
        questions = library_questions(entries, wanted, options.seed)
        source = "the docstrings of Python's standard library"
    else:
        entries, passages = directory(options.docs, reading)
        questions = document_questions(entries, passages, wanted, options.seed)
        source = str(options.docs)
    if len(questions) < FEWEST_QUESTIONS:
        raise DemoError(f"{source} holds too little to ask about; use documents with headings and a few paragraphs")
    return _Library(source, entries, passages, questions)


def _model(options: Options, index: Index) -> Model:
    if options.model is None:
        return ExtractiveModel(index)
    from ragtrace.demo.served import ServedModel

    return ServedModel(options.model)


def _ask_all(
    questions: Sequence[str], asks: Sequence[Callable[[str], str]], model: _Released, progress: Progress
) -> tuple[list[_Asked], list[str]]:
    """Ask every question, the second half of them of the simulated release; failures become a note, many an error.

    Args:
        asks: the application before the release, and after it.
    """
    asked, failures, in_a_row = list[_Asked](), list[str](), 0
    middle = len(questions) // 2
    for number, question in enumerate(questions):
        half = int(number >= middle)
        model.new = bool(half)
        progress(*_position(number, middle, len(questions)))
        try:
            answer = asks[half](question)
        except Exception as error:  # whatever the model's client raises: the run goes on
            failures.append(f"{type(error).__name__}: {error}")
            in_a_row += 1
            if in_a_row == _FAILURES_IN_A_ROW:
                raise DemoError(_gave_up(model.name, failures[-1])) from error
        else:
            asked.append(_Asked(question, answer, model.invented, half, model.trace_id))
            in_a_row = 0
        if number % _BATCH == _BATCH - 1 and ragtrace.stats().pending > _MOST_PENDING:
            ragtrace.flush(timeout=_PATIENCE)
    progress(_STAGES[1], len(questions) - middle, len(questions) - middle)
    return asked, _notes(questions, failures)


def _position(number: int, middle: int, total: int) -> tuple[str, int, int]:
    """Stage, steps done and steps in all before question *number*."""
    if number < middle:
        return _STAGES[0], number + 1, middle
    return _STAGES[1], number - middle, total - middle


def _judged(call: _Asked, roots: RootSpans) -> Call:
    return Call(call.question, call.answer, call.inventions, call.half, verdict(roots.attributes(call.trace_id)))


def _gave_up(model: str, last: str) -> str:
    return (
        f"the model {model!r} failed {_FAILURES_IN_A_ROW} times in a row, at last with {last[:300]};"
        " check OPENAI_BASE_URL, OPENAI_API_KEY and the model's name"
    )


def _notes(questions: Sequence[str], failures: Sequence[str]) -> list[str]:
    if not failures:
        return []
    return [f"{len(failures)} of {len(questions)} questions got no answer; the last failure was {failures[-1][:300]}"]
