"""The settings of a guard: what is wrong stops the application at decoration or at configure."""

from __future__ import annotations

from typing import Any

import pytest

import ragtrace
from ragtrace.core.types import RagCall
from ragtrace.testing import FakeJudge
from tests.support.guards import guard, watch
from tests.support.watched import GOOD


async def _build(notice: object) -> str:
    return ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one of below=, above= and max_false_block=, got none"),
        ({"below": 0.5, "above": 0.5}, "got below=0.5 and above=0.5"),
        ({"below": 0.5, "max_false_block": 0.02}, "got below=0.5 and max_false_block=0.02"),
        ({"max_false_block": 2}, "max_false_block= of a guard must be more than 0 and less than 1"),
        ({"below": "0.5"}, "below= of a guard must be a number"),
        ({"below": True}, "below= of a guard must be a number"),
        ({"below": float("nan")}, "below= of a guard must be a number"),
        ({"below": 0.0}, "fails no answer"),
        ({"below": 1.5}, "fails every answer"),
        ({"above": 1.0}, "fails no answer"),
        ({"above": -0.1}, "fails every answer"),
        ({"below": 0.5, "action": "block"}, "action= of a guard is unknown"),
        ({"below": 0.5, "action": "retry"}, "calls the function twice"),
        ({"below": 0.5, "action": "retry", "idempotent": 1}, "calls the function twice"),
        ({"below": 0.5, "action": "retry", "idempotent": True, "stream": "all"}, "cannot take back the pieces"),
        ({"below": 0.5, "on_error": "ajar"}, "on_error= of a guard must be 'open' or 'closed'"),
        ({"below": 0.5, "stream": "tokens"}, "stream= of a guard is unknown"),
        ({"below": 0.5, "stream": "after", "action": "raise"}, "checks an answer that has left, and cannot raise it"),
        ({"below": 0.5, "budget_ms": 0}, "budget_ms= of a guard must be from 1"),
        ({"below": 0.5, "budget_ms": None}, "budget_ms= of a guard must be from 1"),
        ({"below": 0.5, "action": "replace"}, "needs fallback="),
        ({"below": 0.5, "action": "raise", "fallback": "sorry"}, "takes no fallback="),
        ({"below": 0.5, "action": "replace", "fallback": 3}, "fallback= of a guard must be a function"),
        ({"below": 0.5, "action": "replace", "fallback": _build}, "fallback= of a guard must be a plain function"),
        ({"below": 0.5, "on_fail": _build}, "on_fail= of a guard must be a plain function"),
        ({"below": 0.5, "judge": FakeJudge}, "got the class FakeJudge"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], said: str) -> None:
    """The message says which one, and what was seen."""
    with pytest.raises(ragtrace.SettingsError, match=said):
        ragtrace.Guard("faithfulness", **options)


@pytest.mark.parametrize(
    ("bound", "score", "fails"),
    [("below", 0.5, False), ("below", 0.4, True), ("above", 0.5, False), ("above", 0.6, True)],
)
def test_a_score_at_the_bound_does_not_fail(bound: str, score: float, fails: bool) -> None:
    """`below` and `above` are meant strictly."""
    assert ragtrace.Guard("faithfulness", **{bound: 0.5}).fails(score) is fails  # type: ignore[arg-type]


def test_a_metric_object_gives_its_name() -> None:
    """A metric may be given as an object."""

    @ragtrace.metric(name="polite")
    def polite(call: RagCall) -> float:
        return 1.0

    assert ragtrace.Guard(polite, below=0.5).metric == "polite"


def test_what_is_no_guard_is_refused_at_decoration() -> None:
    """The message shows what to write."""
    with pytest.raises(ragtrace.SettingsError, match=r"must be a ragtrace\.Guard, got str"):
        ragtrace.trace(guard="faithfulness")(lambda question: question)  # type: ignore[call-overload]


def test_a_stream_that_cannot_be_held_is_refused_at_decoration() -> None:
    """In shadow mode nothing is held, and any function may stream."""

    def stream(question: str) -> Any:
        yield question

    async def astream(question: str) -> Any:
        yield question

    for function in (stream, astream):
        assert ragtrace.trace(guard=guard("shadow"))(function)
        for action in ("annotate", "replace", "raise"):
            with pytest.raises(ragtrace.SettingsError, match="does not say when the pieces may leave"):
                ragtrace.trace(guard=guard(action))(function)


def test_a_text_that_cannot_replace_what_is_returned_is_refused_at_decoration() -> None:
    """Where the annotation says what is returned; else it is seen in the calls."""

    def ask(question: str) -> dict[str, str]:
        return {"answer": question}

    def maybe(question: str) -> str | None:
        return None

    with pytest.raises(ragtrace.SettingsError, match="is a text, which cannot replace"):
        ragtrace.trace(guard=guard("replace"))(ask)
    assert ragtrace.trace(guard=guard("replace", fallback=lambda notice: {}))(ask)
    assert ragtrace.trace(guard=guard("replace"))(maybe)
    assert ragtrace.trace(guard=guard("replace"))(lambda question: question)


def test_a_metric_that_no_judge_computes_stops_configure() -> None:
    """Also where the application decorates before it configures, as most do."""
    ask = ragtrace.trace(guard=guard())(lambda question: question)
    with pytest.raises(ragtrace.SettingsError, match="reads a metric that no configured judge computes"):
        watch(FakeJudge(GOOD), metrics=["answered"])
    with pytest.raises(ragtrace.SettingsError, match="Computed now: "):
        ragtrace.configure(exporter="none")
    assert ask("unconfigured") == "unconfigured"


def test_a_metric_that_no_judge_computes_stops_a_later_decoration() -> None:
    """A guard that would never check is no guard."""
    watch(FakeJudge(GOOD), metrics=["answered"])
    with pytest.raises(ragtrace.SettingsError, match="reads a metric that no configured judge computes"):
        ragtrace.trace(guard=guard())(lambda question: question)


def test_a_judge_of_the_guard_alone_is_refused() -> None:
    """The guard's score is the call's score, so that no call is judged twice."""
    judge, other = FakeJudge(GOOD, name="one"), FakeJudge(GOOD, name="other")
    ask = ragtrace.trace(guard=guard(judge=other))(lambda question: question)
    with pytest.raises(ragtrace.SettingsError, match="asks the judge 'other', which is neither"):
        watch(judge)
    watch(other)
    assert ask("Where is Paris?")


def test_a_metric_that_only_a_guard_reads_is_computed() -> None:
    """As one that only an alert watches."""
    ask = ragtrace.trace(guard=ragtrace.Guard("hallucination", above=0.4), name="rate")(lambda question: question)
    watch(FakeJudge(GOOD))
    ask("Where is Paris?")
    ragtrace.flush()
    assert ragtrace.stats().guards["rate"].calls == 1


def test_a_fleet_refuses_a_guard() -> None:
    """Its workers judge a call after the answer has left."""
    ask = ragtrace.trace(guard=guard())(lambda question: question)
    with pytest.raises(ragtrace.SettingsError, match="cannot work with fleet="):
        ragtrace.configure(exporter="none", fleet="redis://127.0.0.1:1/0")
    assert ask
