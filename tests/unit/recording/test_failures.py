"""Nothing that goes wrong in ragtrace, or in what it is given to read, reaches the application; all is counted."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, RagCall, Signals
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.watched import ANSWER, GOOD, WAIT_S, WaitingJudge, ask, eventually, generate, limited, watch

EVERY = ragtrace.Sampling(rate=1.0)
STATUS = "ragtrace.eval.status"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@pytest.fixture(autouse=True, scope="module")
def _no_guards_of_earlier_tests() -> None:
    """A guarded function of an earlier test may wait for the garbage collector: then `configure` logs what it does."""
    gc.collect()


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ragtrace"]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- judges and metrics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), RecursionError()], ids=repr)
def test_a_judge_that_raises_is_logged_once_and_counted_each_time(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is the application's, the span arrives and says so, and the next call is judged again."""
    judge = FakeJudge(error, name="broken")
    captured = watch(screen=judge)
    assert [ask("where?"), ask("and when?")] == [ANSWER, ANSWER]  # identical ones would be judged once
    assert ragtrace.flush()
    assert [attributes(root)[STATUS] for root in captured.roots()] == ["error", "error"]
    stats = ragtrace.stats()
    assert (stats.failed, stats.faults, stats.pending) == ({"unavailable": 2}, {"judge broken": 2}, 0)
    assert len(ours(caplog)) == 1


def test_a_judge_that_fails_as_foreseen_is_counted_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal or an outage of the provider is data, not a fault of ours."""
    captured = watch(screen=FakeJudge(JudgeError("refused")))
    ask("where?")
    assert ragtrace.flush()
    assert attributes(captured.root())["ragtrace.eval.faithfulness.reason"] == "refused"
    assert (ragtrace.stats().failed, ragtrace.stats().faults, ours(caplog)) == ({"refused": 1}, {}, [])


def test_a_judge_that_returns_rubbish_leaves_a_reason() -> None:
    """Not a score."""
    captured = watch(screen=FakeJudge("0.9"))  # type: ignore[arg-type]
    ask("where?")
    assert ragtrace.flush()
    assert attributes(captured.root())["ragtrace.eval.faithfulness.reason"] == "unparsable"
    assert ragtrace.stats().failed == {"unparsable": 1}


def test_an_answer_is_kept_where_its_sources_cannot_be_found() -> None:
    """A function of the user that raises costs the contexts that it would have found, and is counted."""

    def sources(result: object) -> list[str]:
        raise LookupError("no sources")

    captured = watch()

    @ragtrace.trace(sources=sources)
    def ask_about(question: str) -> str:
        return "It is high."

    assert ask_about("how high?") == "It is high."
    assert ragtrace.flush()
    assert "It is high." in str(attributes(captured.root()))
    assert sum(n for kind, n in ragtrace.stats().faults.items() if kind.startswith("sources= of")) == 1


def test_a_judge_that_says_nan_leaves_a_reason() -> None:
    """No NaN goes out anywhere."""
    captured = watch(screen=FakeJudge(Judgement(consistency=float("nan"))), metrics=["consistency"])
    ask("where?")
    assert ragtrace.flush()
    assert attributes(captured.root())["ragtrace.eval.consistency.reason"] == "non_finite"
    assert "ragtrace.eval.score" not in captured.metrics()


def test_a_judge_that_hangs_costs_its_time_and_no_more() -> None:
    """After `JudgeLimits(timeout=)` the call has failed, and the span leaves with what the screen said."""
    captured = watch(judge=limited(WaitingJudge(), timeout=0.05), sampling=EVERY)
    assert ask("where?") == ANSWER
    assert ragtrace.flush(WAIT_S)
    assert attributes(captured.root())[STATUS] == "partial"
    assert "ragtrace.eval.consistency.score" in attributes(captured.root())
    assert ragtrace.stats().failed == {"timeout": 1}


def test_a_screen_that_hangs_is_given_up_too() -> None:
    """The same time limit holds for it."""
    watch(screen=limited(WaitingJudge(), timeout=0.05))
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().failed == {"timeout": 1}


def test_a_judge_that_blocks_its_thread_blocks_nothing_else() -> None:
    """Not the application, not a flush, not the span; and shutdown says that its call was lost."""
    judge = WaitingJudge(blocking=True)
    captured = watch(judge=judge, sampling=EVERY)
    assert ask("where?") == ANSWER
    assert judge.begun.wait(WAIT_S)
    assert ask("and then?") == ANSWER
    began = perf_counter()
    assert not ragtrace.flush(1.0)
    assert perf_counter() - began < WAIT_S / 2
    assert eventually(lambda: bool(captured.roots()))
    assert attributes(captured.roots()[0])[STATUS] == "late"
    assert not ragtrace.shutdown(0.2)
    judge.open()
    stats = ragtrace.stats()
    assert stats.pending == 0
    assert stats.dropped["shutdown"] >= 2


def test_a_metric_that_raises_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """One reason on the span, one line in the log, one count a call."""

    class Broken:
        name, version, higher_is_better, range = "broken", "1", True, (0.0, 1.0)
        needs: frozenset[str] = frozenset({"claims"})

        def __call__(self, call: RagCall, judgement: Judgement) -> ragtrace.Score:
            raise KeyError("mine")

    captured = watch(screen=FakeJudge(GOOD), metrics=[Broken(), "answered"])
    ask("where?")
    ask("where?")
    assert ragtrace.flush()
    found = attributes(captured.roots()[0])
    assert (found["ragtrace.eval.broken.reason"], found["ragtrace.eval.answered.score"]) == ("metric_error", 1.0)
    assert found[STATUS] == "partial"
    assert ragtrace.stats().faults == {"metric broken": 2}
    assert len(ours(caplog)) == 1


def test_a_judge_that_uses_what_it_judges_starts_no_calls_of_its_own() -> None:
    """A decorated function called by a judge is not the application's, and would be judged for ever."""

    class Asking(FakeJudge):
        async def judge(self, call: RagCall) -> Judgement:
            assert generate("is that so?", ["yes"]) == ANSWER
            with ragtrace.call("by hand") as block:
                block.answered("yes")
            return await super().judge(call)

    judge = Asking(GOOD)
    captured = watch(screen=judge)
    ask("where?")
    assert ragtrace.flush()
    assert (len(judge.calls), len(captured.spans), ragtrace.stats().offered) == (1, 3, 1)


# --- exporters -------------------------------------------------------------------------------------------------------


class BadExporter(SpanExporter):
    """Raises, or waits until it is let go."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.entered, self.release = error, threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        if self.error is not None:
            raise self.error
        self.release.wait(WAIT_S)
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


@pytest.mark.parametrize("immediate", [True, False])
def test_an_exporter_that_raises_hurts_nobody(immediate: bool) -> None:
    """The call is answered and scored; events and metrics have their own exporters."""
    exporter, captured = BadExporter(OSError("no route")), Captured()
    signals = captured.signals
    ragtrace.configure(
        exporter=Signals(spans=exporter, metrics=signals.metrics, logs=signals.logs, immediate=immediate),
        metrics=["consistency"],
    )
    assert [ask("where?"), ask("where?")] == [ANSWER, ANSWER]
    ragtrace.flush()
    assert exporter.entered.is_set()
    assert ragtrace.stats().scored == 2
    assert len(captured.events) == 2


@pytest.mark.parametrize("immediate", [True, False])
def test_an_exporter_that_hangs_hurts_nobody(immediate: bool) -> None:
    """Calls are answered at once, and flush and shutdown keep to their time."""
    exporter = BadExporter()
    ragtrace.configure(exporter=Signals(spans=exporter, immediate=immediate))
    assert ask("where?") == ANSWER
    began = perf_counter()
    assert not ragtrace.flush(0.3)
    assert exporter.entered.is_set()
    assert ask("where?") == ANSWER
    assert not ragtrace.shutdown(0.3)
    assert perf_counter() - began < WAIT_S
    exporter.release.set()


# --- selectors, redaction, logging -----------------------------------------------------------------------------------


def boom(*_: object) -> Any:
    raise LookupError("the user's selector")


def test_a_selector_that_raises_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Every selector of every decorator; the functions return what they return."""

    @ragtrace.retrieve(documents=boom, query=boom)
    def find(query: str) -> list[str]:
        return ["found"]

    @ragtrace.generate(answer=boom, contexts=boom, session=boom)
    def say(question: str, docs: list[str]) -> str:
        return "said"

    @ragtrace.trace(answer=boom, sources=boom, user=boom)
    def do(question: str) -> str:
        return say(question, find(question))

    captured = watch()
    assert [do("where?"), do("where?")] == ["said", "said"]
    assert ragtrace.flush()
    assert len(captured.spans) == 6
    counts = ragtrace.stats().faults
    assert sum(counts.values()) >= 2 * 5
    assert len(ours(caplog)) == len(counts)


def test_a_selector_that_raises_on_pieces_of_a_stream_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the pieces nor their order; one line, however many pieces."""

    @ragtrace.generate(answer=boom)
    def stream(question: str) -> Iterator[str]:
        yield from ("a", "b", "c")

    captured = watch()
    assert list(stream("where?")) == ["a", "b", "c"]
    assert ragtrace.flush()
    assert attributes(captured.root())["ragtrace.abandoned"] is False
    assert ragtrace.stats().faults["stream piece"] == 3
    assert len([line for line in ours(caplog) if "stream piece" in line]) == 1


def test_a_redaction_that_raises_lets_nothing_out() -> None:
    """No text is better than the wrong text, on the span and before the judge."""
    judge = FakeJudge(GOOD)
    captured = watch(screen=judge, redact=ragtrace.Redact(function=boom))
    assert ask("secret question") == ANSWER
    assert ragtrace.flush()
    assert "secret" not in str([attributes(span) for span in captured.spans])
    assert "secret" not in str(judge.calls)
    assert len(captured.spans) == 3
    assert ragtrace.stats().faults["redaction"] > 0


class RaisingHandler(logging.Handler):
    """A user's log handler that is broken."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("disk full")


@pytest.fixture
def broken_logging() -> Iterator[None]:
    handler = RaisingHandler()
    logger = logging.getLogger("ragtrace")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.mark.usefixtures("broken_logging")
def test_a_log_handler_that_raises_hurts_nobody() -> None:
    """Neither on the application's thread nor in the background."""

    @ragtrace.generate(answer=boom)
    def say(question: str) -> Any:
        return object()

    ragtrace.shutdown()
    assert generate("not configured", []) == ANSWER
    captured = watch(screen=FakeJudge(RuntimeError("boom"), name="broken"))
    assert type(say("where?")) is object
    assert ask("where?") == ANSWER
    assert ragtrace.flush()
    assert len(captured.roots()) == 2
    assert ragtrace.stats().faults["judge broken"] == 1  # an object in which no answer is found is not judged
    assert not ragtrace.stats().pending


@pytest.mark.usefixtures("broken_logging")
def test_a_log_handler_that_raises_does_not_stop_a_shutdown() -> None:
    """Which has losses to report."""
    watch(screen=WaitingJudge())
    ask("where?")
    assert not ragtrace.shutdown(0.05)
    assert ragtrace.stats().dropped == {"shutdown": 1}


def test_a_refused_configuration_leaves_the_redaction_of_log_lines_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """The one that is in force goes on, and so do its patterns."""
    watch(redact=ragtrace.Redact(patterns=["secret"]))
    with pytest.raises(ragtrace.SettingsError):
        ragtrace.configure(exporter="there is none of this name")
    faults.record("somewhere", ValueError("a secret"))
    [line] = ours(caplog)
    assert "a [redacted]" in line
    assert "a secret" not in line
