"""The decision of a guard: the verdict from an evaluation, and whether the verdict blocks."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.core.types import Document, Evaluation, RagCall, Result, Score, Unscored
from ragtrace.guard.decision import blocks, check_of
from ragtrace.guard.outcomes import Verdict
from tests.support.guards import ORDER, guard

CALL = RagCall(query="Where is Paris?", contexts=(Document("Paris is in France."),), answer="In France.")


def score(value: float, **attributes: Any) -> Score:
    return Score(value, "faithfulness", "1", True, attributes=attributes)


def unscored(reason: str) -> Unscored:
    return Unscored(reason, metric="faithfulness", metric_version="1", higher_is_better=True)


def evaluation(result: Result, error: str | None = None, *, deferred: bool = False) -> Evaluation:
    return Evaluation("judge", "1", "llm_judge", {"faithfulness": result}, error=error, deferred=deferred)


@pytest.mark.parametrize(
    ("found", "verdict", "reason"),
    [
        (evaluation(score(0.8)), "pass", ""),
        (evaluation(score(0.7)), "fail", ""),
        (evaluation(unscored("no_claims")), "unscored", "no_claims"),
        (evaluation(unscored("unparsable")), "error", "unparsable"),
        (evaluation(unscored("timeout")), "timeout", "timeout"),
        (evaluation(unscored("unavailable"), "unavailable"), "error", "unavailable"),
        (evaluation(unscored("unavailable"), "unavailable", deferred=True), "circuit_open", "unavailable"),
        (evaluation(unscored("timeout"), "timeout"), "timeout", "timeout"),
        (Evaluation("judge", "1", "llm_judge", {}), "error", "not_computed"),
    ],
)
def test_each_evaluation_has_one_verdict(found: Evaluation, verdict: str, reason: str) -> None:
    """What could not be checked is neither a pass nor a fail, and has its reason."""
    check = check_of(guard(), CALL, found)
    assert (check.verdict, check.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("cut", "value", "verdict"),
    [
        ({"truncated_answer_chars": 3}, 0.8, "unscored"),
        ({"truncated_answer_chars": 3}, 0.7, "fail"),
        ({"truncated_chunks": 1}, 0.8, "pass"),
        ({"truncated_chunks": 1}, 0.7, "unscored"),
        ({"truncated_answer_chars": 3, "truncated_chunks": 1}, 0.8, "unscored"),
        ({"truncated_answer_chars": 3, "truncated_chunks": 1}, 0.7, "unscored"),
        ({"judge_input_truncated": True}, 0.8, "unscored"),
        ({"judge_input_truncated": True}, 0.7, "unscored"),
        ({"truncated_answer_chars": 0, "truncated_chunks": 0, "judge_input_truncated": False}, 0.8, "pass"),
    ],
)
def test_a_verdict_on_a_part_is_none_on_the_whole(cut: dict[str, Any], value: float, verdict: str) -> None:
    """The end of an answer may be what is wrong, the end of a chunk what supports it."""
    check = check_of(guard(), CALL, evaluation(score(value, **cut)))
    assert (check.verdict, check.reason) == (verdict, "truncated" if verdict == "unscored" else "")


@pytest.mark.parametrize("field", ["query", "answer", "contexts"])
def test_a_call_that_gives_orders_to_the_judge_never_passes(field: str) -> None:
    """Its good score is not believed; a bad score stays one."""
    texts = {"query": CALL.query, "contexts": CALL.contexts, "answer": CALL.answer}
    texts[field] = (Document(ORDER),) if field == "contexts" else ORDER
    attacked = RagCall(**texts)  # type: ignore[arg-type]
    assert check_of(guard(), attacked, evaluation(score(1.0)))[::2] == ("unscored", "injection_suspected")
    assert check_of(guard(), attacked, evaluation(score(0.1))).verdict == "fail"


def test_the_suspicion_of_the_judge_counts() -> None:
    """The judge sees more texts than the guard does."""
    assert check_of(guard(), CALL, evaluation(score(1.0, injection_suspected=True))).verdict == "unscored"


def test_invisible_characters_do_not_hide_an_order() -> None:
    """The order is found as the judge would read it."""
    hidden = "\u200b".join(ORDER)
    attacked = RagCall(query=CALL.query, contexts=(Document(hidden),), answer=CALL.answer)
    assert check_of(guard(), attacked, evaluation(score(1.0))).verdict == "unscored"


@pytest.mark.parametrize("verdict", ["timeout", "unscored", "circuit_open", "error"])
def test_an_answer_that_was_not_checked_is_blocked_by_a_closed_guard_alone(verdict: Verdict) -> None:
    """Open is the default."""
    assert not blocks(guard(), verdict)
    assert blocks(guard(on_error="closed"), verdict)


def test_a_checked_answer_is_blocked_if_it_fails() -> None:
    """Whatever is to be done with unchecked ones."""
    for each in (guard(), guard(on_error="closed")):
        assert blocks(each, "fail")
        assert not blocks(each, "pass")
