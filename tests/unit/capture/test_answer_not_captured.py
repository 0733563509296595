"""An answer that was not seen: no score, no label, nobody is asked; an empty one is something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ragtrace
from ragtrace.core.types import Unscored
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.scored import EVERY
from tests.support.watched import GOOD, search, watch

UNSEEN = "ragtrace.eval.answered.reason"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def root_of(function: Callable[[str], Any], **settings: Any) -> dict[str, Any]:
    """The attributes of the root of one call of *function*."""
    captured = watch(**settings)
    function("Where is Paris?")
    assert ragtrace.flush()
    return dict(captured.root().attributes or {})


@ragtrace.trace
def structured(question: str) -> dict[str, int]:
    search(question)
    return {"foo": 1}


@ragtrace.generate
def odd_generation(question: str) -> object:
    return {"foo": 1}


@ragtrace.trace
def silent(question: str) -> None:
    search(question)  # and sends the answer by a websocket, say


def by_hand(question: str) -> None:
    with ragtrace.call(question) as call:
        call.retrieved(["Paris is a big city."])


@pytest.mark.parametrize("function", [structured, odd_generation, silent, by_hand])
def test_an_answer_that_was_not_seen_is_not_an_abstention(function: Callable[[str], Any]) -> None:
    """Every metric of the screen says so, and none has a number."""
    root = root_of(function)
    assert root[UNSEEN] == root["ragtrace.eval.consistency.reason"] == "answer_not_captured"
    assert not [name for name in root if name.endswith((".score", ".label"))]


@ragtrace.generate
def nothing(question: str) -> str | None:
    return None


@ragtrace.trace
def empty(question: str) -> str:
    search(question)
    return ""


@ragtrace.trace
def around_nothing(question: str) -> str | None:
    return nothing(question)


def test_an_empty_answer_is_an_abstention() -> None:
    """A text without a character gave no answer: that was seen."""
    assert root_of(empty)["ragtrace.eval.answered.score"] == 0.0


@pytest.mark.parametrize("function", [nothing, around_nothing])
def test_a_generation_without_a_result_is_no_abstention(function: Callable[[str], Any]) -> None:
    """It may have sent its answer over a socket."""
    assert root_of(function)["ragtrace.eval.answered.reason"] == "answer_not_captured"


@ragtrace.trace
def wrapped(question: str) -> dict[str, int]:
    answer(question, search(question))
    return {"status": 200}


@ragtrace.generate
def answer(question: str, docs: list[str]) -> str:
    return "Paris is a big city."


def test_the_answer_of_the_generation_inside_counts() -> None:
    """Whatever the function around it returns."""
    assert root_of(wrapped)["ragtrace.eval.answered.score"] == 1.0


def test_nobody_is_asked_about_an_answer_that_was_not_seen() -> None:
    """Neither the screen nor the judge, which would cost money; and a metric of the user's is not computed."""

    @ragtrace.metric
    def cites(call: ragtrace.RagCall) -> bool:
        return "[1]" in (call.answer or "")

    screen, judge = FakeJudge(GOOD, name="screen"), FakeJudge(GOOD, name="judge")
    root = root_of(
        structured,
        screen=screen,
        judge=judge,
        sampling=EVERY,
        metrics=["faithfulness", "answered", cites, "duration_s"],
    )
    assert (screen.calls, judge.calls) == ([], [])
    assert root["ragtrace.eval.cites.reason"] == "answer_not_captured"


def test_without_tracing_an_answer_of_none_is_an_absent_one() -> None:
    """As in every data set: `answer_captured=False` says that there was one."""
    scores = ragtrace.score(query="q", contexts=["Paris is a city."], answer=None)
    assert isinstance(scores["answered"], ragtrace.Score)
    assert scores["answered"].value == 0.0
    unseen = ragtrace.RagCall(query="q", contexts=(), answer=None, answer_captured=False)
    found = ragtrace.evaluate([unseen], metrics=["answered"])[0].results["answered"]
    assert isinstance(found, Unscored)
    assert found.reason == "answer_not_captured"
