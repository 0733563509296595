"""One call and one judge to results: a number, or an explicit reason, whatever judge and metric do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy
import pytest

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Claim
from ragtrace.core.types import Document, Evaluation, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.metrics import registry
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.ids import readable
from tests.support.watched import ANSWER, GOOD, HALF, WAIT_S, WaitingJudge

CALL = RagCall(query="where?", contexts=(Document("Paris is a big city."), Document("Mars.")), answer=ANSWER)

LABELLED = registry.resolve(["faithfulness", "hallucination", "consistency", "answered"])


@dataclass(frozen=True)
class Custom:
    """A user's metric: returns, or raises, what it was told."""

    give: Callable[[], object]
    name: str = "custom"
    version: str = "3"
    higher_is_better: bool = False
    range: tuple[float, float] = (0.0, 1.0)
    needs: frozenset[str] = frozenset({"claims"})

    def __call__(self, call: RagCall, judgement: Judgement) -> Result:
        return self.give()  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def run(judge: Any, *metrics: Metric, timeout: float | None = WAIT_S, probability: float = 1.0) -> Evaluation:
    evaluator = Evaluator(judge, metrics or LABELLED, timeout)
    return asyncio.run(evaluate(evaluator, CALL, probability))


def values(evaluation: Evaluation) -> dict[str, float | str]:
    return {
        name: result.value if isinstance(result, Score) else result.reason
        for name, result in evaluation.results.items()
    }


def test_labels_become_numbers() -> None:
    """The judge labels, the metrics compute, and the evaluation says who and how probable."""
    evaluation = run(FakeJudge(HALF), probability=0.25)
    assert values(evaluation) == {"faithfulness": 0.5, "hallucination": 0.5, "consistency": 0.25, "answered": 1.0}
    assert (evaluation.evaluator, evaluation.version, evaluation.type) == ("fake", "1", "llm_judge")
    assert (evaluation.probability, evaluation.error, evaluation.outcome) == (0.25, None, ("scored", ""))
    assert {result.evaluator for result in evaluation.results.values()} == {"fake@1"}


def test_what_judging_cost_is_kept() -> None:
    """Tokens and time of the judge."""
    evaluation = run(FakeJudge(GOOD))
    assert (evaluation.input_tokens, evaluation.output_tokens) == (30, 7)
    assert evaluation.duration_s > 0


@pytest.mark.parametrize(
    ("error", "reason", "counted"),
    [
        (JudgeError("refused", "policy"), "refused", False),
        (JudgeError("no such reason"), "unavailable", False),
        (TimeoutError(), "timeout", False),
        (asyncio.TimeoutError(), "timeout", False),
        (asyncio.CancelledError(), "unavailable", False),
        (RuntimeError("boom"), "unavailable", True),
        (RecursionError(), "unavailable", True),
        (SystemExit(3), "unavailable", True),
        (KeyboardInterrupt(), "unavailable", True),
    ],
    ids=readable,
)
def test_a_judge_that_raises_leaves_a_reason(error: BaseException, reason: str, counted: bool) -> None:
    """On every metric; what it did not foresee is also counted as a fault."""
    evaluation = run(FakeJudge(error))
    assert set(values(evaluation).values()) == {reason}
    assert (evaluation.error, evaluation.outcome) == (reason, ("failed", reason))
    assert faults.counts() == ({"judge fake": 1} if counted else {})


@pytest.mark.parametrize("rubbish", [None, 0.5, "faithful", {"claims": []}, [], object()], ids=readable)
def test_a_judge_that_returns_rubbish_is_unparsable(rubbish: Any) -> None:
    """Never taken for a judgement."""
    evaluation = run(FakeJudge(rubbish))
    assert set(values(evaluation).values()) == {"unparsable"}
    assert all(type(rubbish).__name__ in (r.explanation or "") for r in evaluation.results.values())


def test_a_judge_may_be_a_plain_function() -> None:
    """It is asked in a thread, and its labels count."""

    class Plain(FakeJudge):
        def judge(self, call: RagCall) -> Judgement:  # type: ignore[override]
            return HALF

    assert values(run(Plain(GOOD)))["faithfulness"] == 0.5


@pytest.mark.parametrize(
    "judgement",
    [
        Judgement(claims="abc", answer_label="answered", consistency=0.5),  # type: ignore[arg-type]
        Judgement(claims=(Claim("x", 0, 1, "certainly"),), answer_label="yes"),  # type: ignore[arg-type]
        Judgement(claims=(Claim("x", 0, 1, None),), answer_label="answered", consistency=float("nan")),
        Judgement(consistency=float("inf"), reasons={"claims": "no such reason"}),
        Judgement(consistency=7.0, answer_label="answered", claims=()),
        Judgement(consistency="high", claims=(None,)),  # type: ignore[arg-type]
    ],
    ids=readable,
)
def test_labels_that_make_no_sense_never_become_a_number_out_of_range(judgement: Judgement) -> None:
    """Each metric gives a finite number within its range, or a reason."""
    for name, result in run(FakeJudge(judgement)).results.items():
        assert isinstance(result, (Score, Unscored)), name
        if isinstance(result, Score):
            assert 0.0 <= result.value <= 1.0


def test_a_judge_that_hangs_is_given_up() -> None:
    """After its time, and cancelled."""
    judge = WaitingJudge()
    evaluation = run(judge, timeout=1.0)
    assert set(values(evaluation).values()) == {"timeout"}
    assert judge.asked == 1


def test_a_judge_that_refuses_to_be_cancelled_is_given_up_all_the_same() -> None:
    """The time limit holds for those who swallow the cancellation, too."""

    class Stubborn(FakeJudge):
        async def judge(self, call: RagCall) -> Judgement:
            for _ in range(3):
                with suppress(asyncio.CancelledError, asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), 0.05)
            return GOOD

    assert run(Stubborn(GOOD), timeout=0.01).error == "timeout"


def test_our_own_cancellation_is_not_taken_for_the_judges() -> None:
    """A shutdown cancels: that must go through, and reach the judge."""

    async def main() -> tuple[bool, bool]:
        stopped = asyncio.Event()

        class Watching(FakeJudge):
            async def judge(self, call: RagCall) -> Judgement:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
                return GOOD

        task = asyncio.create_task(evaluate(Evaluator(Watching(GOOD), LABELLED, WAIT_S), CALL))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(stopped.wait(), WAIT_S)
        return task.cancelled(), stopped.is_set()

    assert asyncio.run(main()) == (True, True)


def test_a_judge_that_is_cancelled_is_not_said_to_be_late() -> None:
    """A longer time limit would not help. It counts as a failure of the judge: in the end it is not asked."""

    class Cancelled(FakeJudge):
        async def judge(self, call: RagCall) -> Judgement:
            await asyncio.sleep(0)
            raise asyncio.CancelledError

    evaluator = Evaluator(Cancelled(GOOD), LABELLED, 1.0)
    evaluations = [asyncio.run(evaluate(evaluator, replace(CALL, query=f"{n}?"))) for n in range(12)]
    assert {evaluation.error for evaluation in evaluations} == {"unavailable"}
    details = [str(result.explanation) for result in evaluations[0].results.values() if isinstance(result, Unscored)]
    assert "it was cancelled" in details[0]
    assert evaluator.judge_client.state == "open"


def test_a_metric_that_raises_leaves_the_others_alone() -> None:
    """It alone is unscored, with the type of the error, and counted."""

    def fail() -> object:
        raise ZeroDivisionError

    evaluation = run(FakeJudge(HALF), Custom(fail), *LABELLED)
    assert values(evaluation) == {
        "custom": "metric_error",
        "faithfulness": 0.5,
        "hallucination": 0.5,
        "consistency": 0.25,
        "answered": 1.0,
    }
    assert evaluation.results["custom"].explanation == "ZeroDivisionError"
    assert evaluation.outcome == ("partial", "metric_error")
    assert faults.counts() == {"metric custom": 1}


@pytest.mark.parametrize(
    "rubbish", [None, 0.5, True, "high", float("nan"), {"score": 1}, Score, object()], ids=readable
)
def test_a_metric_that_returns_rubbish_is_an_error(rubbish: object) -> None:
    """Not even a bare number is taken for a score."""
    result = run(FakeJudge(HALF), Custom(lambda: rubbish)).results["custom"]
    assert isinstance(result, Unscored)
    assert (result.reason, result.metric, result.evaluator) == ("metric_error", "custom", "fake@1")
    assert type(rubbish).__name__ in (result.explanation or "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), "0.5", None])
def test_a_score_that_is_no_finite_number_cannot_be_made(value: Any) -> None:
    """Whoever tries has an error, which is the metric's."""
    assert values(run(FakeJudge(HALF), Custom(lambda: Score(value)))) == {"custom": "metric_error"}


@pytest.mark.parametrize("value", [-0.1, 1.1, 1e300])
def test_a_score_out_of_its_range_is_unscored(value: float) -> None:
    """Rather than clipped."""
    result = run(FakeJudge(HALF), Custom(lambda: Score(value))).results["custom"]
    assert isinstance(result, Unscored)
    assert (result.reason, result.explanation) == ("out_of_range", f"{value!r} is outside [0, 1]")


@pytest.mark.parametrize("value", [1, True, numpy.float32(0.25), numpy.int64(1), numpy.float64(0.5)], ids=readable)
def test_every_number_goes_out_as_a_double(value: Any) -> None:
    """An int or a numpy number is no attribute of type double, and might be refused."""
    result = run(FakeJudge(HALF), Custom(lambda: Score(value))).results["custom"]
    assert isinstance(result, Score)
    assert type(result.value) is float
    assert result.value == value


def test_a_users_metric_need_not_repeat_what_it_says_of_itself() -> None:
    """Name, version and direction are the metric's, not the defaults of `Score`."""
    result = run(FakeJudge(HALF), Custom(lambda: Score(0.5, label="meh"))).results["custom"]
    assert isinstance(result, Score)
    assert (result.metric, result.metric_version, result.higher_is_better, result.label) == (
        "custom",
        "3",
        False,
        "meh",
    )


@dataclass(frozen=True)
class Graded(Score):
    """A score of the user's own class, with a field of its own."""

    grade: str = ""


NAMED = {"metric": "custom", "metric_version": "3", "higher_is_better": False, "evaluator": "fake@1"}


@pytest.mark.parametrize("kind", [Score, Unscored, Graded])
def test_every_field_of_a_result_is_kept(kind: type[Any]) -> None:
    """But those that say which metric and evaluator it is of; also in a class of the user's own."""
    given = {"value": 0.25, "reason": "no_claims", "label": "poor", "explanation": "why", "mode": "whole"}
    given |= {"n_calls": 2, "input_tokens": 3, "output_tokens": 4, "attributes": {"seen": 5}, "grade": "D"}
    given |= {"claims": (Claim("Paris.", 0, 6, "supported"),)}
    names = [each.name for each in fields(kind)]
    assert set(names) == {name for name in names if name in given or name in NAMED}
    result = kind(**{name: given[name] for name in names if name in given})
    evaluation = run(FakeJudge(Judgement()), Custom(lambda: result))
    expected = {**NAMED, "evaluator": f"{evaluation.evaluator}@{evaluation.version}"}
    assert evaluation.results["custom"] == replace(result, **expected)


def test_what_retrieved_documents_that_were_not_read_may_change_has_no_score() -> None:
    """They may support a statement that the others do not, and contradict one that the others support."""
    part = replace(CALL, contexts_in_part=True)
    metrics = registry.resolve(["faithfulness", "hallucination", "contradiction", "consistency", "answered"])

    def judged(judgement: Judgement) -> dict[str, float | str]:
        evaluator = Evaluator(FakeJudge(replace(judgement, consistency=0.5)), metrics, WAIT_S)
        found = asyncio.run(evaluate(evaluator, part))
        scores = [result for result in found.results.values() if isinstance(result, Score)]
        assert scores
        assert all(result.attributes["contexts_in_part"] is True for result in scores)
        return values(found)

    cut = "texts_truncated"
    own = asyncio.run(evaluate(Evaluator(FakeJudge(GOOD), (Custom(lambda: Score(0.0)),), WAIT_S), part))
    assert values(own) == {"custom": cut}  # which does not say what it reads of the statements
    assert judged(HALF) == dict.fromkeys(("faithfulness", "hallucination", "contradiction", "consistency"), cut) | {
        "answered": 1.0
    }
    assert judged(GOOD) == {
        "faithfulness": 1.0, "hallucination": 0.0, "contradiction": cut, "consistency": cut, "answered": 1.0,
    }  # fmt: skip
