"""Verdicts of guards in the history: each guarded call that is stored has one, and nothing is said of the others."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

import ragtrace
from ragtrace.core.step import GuardVerdict
from ragtrace.core.types import RagCall
from ragtrace.history.history import HistoryRecorder
from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import HistoryWriter
from ragtrace.testing import FakeJudge
from tests.support.guards import BAD, HangingJudge, guard, watch
from tests.support.history import GIB, SOURCE, Simulated, made
from tests.support.watched import GOOD, WAIT_S, search


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def guarded(**options: object) -> Callable[[str], str]:
    """A guarded function that answers "In France."."""

    @ragtrace.trace(name="guarded", guard=guard(**options))  # type: ignore[arg-type]
    def ask(question: str) -> str:
        search(question)
        return "In France."

    return ask


def stored(path: Path) -> list[GuardVerdict]:
    """Verdicts in the history, in the order of the calls."""
    with closing(HistoryReader(str(path))) as reader:
        return [found.verdict for found in reader.guard_verdicts(0, 2**62)]


@pytest.mark.parametrize(
    ("action", "judgement", "verdict", "done", "score"),
    [
        ("shadow", GOOD, "pass", "none", 1.0),
        ("shadow", BAD, "fail", "none", 0.5),
        ("annotate", BAD, "fail", "annotated", 0.5),
        ("replace", BAD, "fail", "replaced", 0.5),
        ("replace", GOOD, "pass", "none", 1.0),
        ("raise", BAD, "fail", "raised", 0.5),
    ],
)
def test_a_stored_call_has_the_verdict_of_its_guard(
    path: Path, action: str, judgement: object, verdict: str, done: str, score: float
) -> None:
    """With the metric, the mode, the action, the score and the time that the answer was held back."""
    watch(FakeJudge(judgement), store=path)  # type: ignore[arg-type]
    with suppress(ragtrace.types.GuardBlocked):
        guarded(action=action)("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    [found] = stored(path)
    assert found == GuardVerdict("faithfulness", action, verdict, done, "", score, found.added_s)
    assert found.added_s is not None
    assert 0.0 <= found.added_s < WAIT_S


def test_a_verdict_says_why_an_answer_was_not_checked(path: Path) -> None:
    """It is neither passed nor blocked."""
    judge = HangingJudge(GOOD)
    watch(judge, store=path)
    guarded(action="replace", budget_ms=20)("Where is Paris?")
    judge.answer()
    assert ragtrace.flush(WAIT_S)
    [found] = stored(path)
    assert (found.verdict, found.action, found.reason, found.score) == ("timeout", "released", "timeout", None)


def test_each_of_two_tries_has_a_verdict(path: Path) -> None:
    """The first answer was not given to the user; both calls are stored."""
    watch(FakeJudge(BAD), store=path)
    guarded(action="retry")("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    assert [(found.verdict, found.action) for found in stored(path)] == [("fail", "retried"), ("fail", "annotated")]


def test_a_call_without_a_guard_has_no_verdict(path: Path) -> None:
    """Nor has a history of an earlier release, which lacks the table."""
    watch(FakeJudge(GOOD), store=path)
    ragtrace.trace(name="unguarded")(lambda question: search(question) and "In France.")("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    assert stored(path) == []
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE guard_verdicts")
    assert stored(path) == []


def test_a_deleted_call_takes_its_verdict_along(path: Path) -> None:
    """The table does not grow for ever."""
    watch(FakeJudge(GOOD), store=path)
    guarded(action="shadow")("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    ragtrace.shutdown()
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as writer:
        writer.prune(4e9)
    assert stored(path) == []


def test_a_verdict_on_a_call_that_is_not_stored_is_left_out(path: Path) -> None:
    """As the call is, which is counted as lost."""
    recorder = HistoryRecorder(str(path), SOURCE)
    recorder.prepare("store=")
    verdict = GuardVerdict("faithfulness", "shadow", "pass", "none", "", 1.0, 0.1)
    for call in (made(0.0, Simulated(), random.Random(1)).call, RagCall(query="?", contexts=(), answer="!")):
        recorder.add_guard_verdict(call, verdict)
    assert recorder.flush(WAIT_S)
    assert recorder.close(WAIT_S)
    assert stored(path) == []
