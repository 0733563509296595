"""`assert_scores`: what a test of an application says when its answers are not good enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.core.errors import JudgeError, SettingsError, UnknownMetricError
from ragtrace.core.labels import Claim
from ragtrace.core.types import Document, Judgement, RagCall, Score
from ragtrace.metrics import Formula
from ragtrace.testing import FakeJudge
from tests.support.watched import ANSWER, HALF

CALL: dict[str, Any] = {
    "query": "Which places are there?",
    "contexts": [{"text": "Paris is a big city.", "id": "p1"}, {"text": "Mars is a planet.", "id": "m7"}],
    "answer": ANSWER,
}
NO_CLAIMS = Judgement(claims=(), answer_label="answered")
EXACT = Judgement(claims=tuple(Claim(str(n), 0, 1, "supported" if n < 8 else "partial") for n in range(10)))


def message(judgement: Judgement | BaseException, **expected: Any) -> str:
    """What the failed assertion says."""
    with pytest.raises(AssertionError) as failed:
        ragtrace.assert_scores(CALL, judge=FakeJudge(judgement), **expected)
    return str(failed.value)


def test_met_expectations_return_the_results() -> None:
    """Of the metrics named, for whatever else a test wants to look at."""
    results = ragtrace.assert_scores(CALL, judge=FakeJudge(HALF), faithfulness=">= 0.5", answered="scored")
    assert list(results) == ["faithfulness", "answered"]
    assert isinstance(results["faithfulness"], Score)


def test_the_embedded_judge_is_the_default() -> None:
    """No key and no network in a test."""
    ragtrace.assert_scores({"contexts": ["Paris is big."], "answer": "Paris is big."}, consistency="== 1")


def test_a_call_may_be_an_object() -> None:
    """As tracing makes it."""
    call = RagCall("Which?", (Document("Paris is big."),), "Paris is big.")
    ragtrace.assert_scores(call, consistency="> 0.9")


@pytest.mark.parametrize(
    "met", [">= 0.8", "<= 0.8", "== 0.8", "> 0.7", "< 0.9", "!= 0.7", ">=0.8", "> .5 and < 9e-1", " scored ", "<= 1"]
)
def test_expectations_that_are_met(met: str) -> None:
    """Of a faithfulness of 8 in 10."""
    ragtrace.assert_scores(CALL, judge=FakeJudge(EXACT), faithfulness=met)


@pytest.mark.parametrize(
    "missed", ["> 0.8", "< 0.8", "!= 0.8", "== 0.7", "> 0.1 and < 0.8", "unscored", "unscored: no_claims"]
)
def test_expectations_that_are_not_met(missed: str) -> None:
    """The same number; the failure quotes the expectation."""
    assert f"faithfulness: expected {missed}, got 0.8" in message(EXACT, faithfulness=missed)


@pytest.mark.parametrize("met", ["unscored", "unscored: no_claims", "unscored:no_claims"])
def test_no_score_can_be_expected(met: str) -> None:
    """For whatever reason, or for one."""
    ragtrace.assert_scores(CALL, judge=FakeJudge(NO_CLAIMS), faithfulness=met)


@pytest.mark.parametrize("missed", [">= 0", "!= 0.5", "scored", "unscored: abstained"])
def test_no_score_meets_no_comparison(missed: str) -> None:
    """The failure says why there is none."""
    assert "no score: no_claims (not_applicable)" in message(NO_CLAIMS, faithfulness=missed)


def test_a_judge_that_fails_fails_the_test() -> None:
    """With the reason and what was seen; never as a number."""
    text = message(JudgeError("refused", "against its policy"), faithfulness=">= 0")
    assert "no score: refused (judge_error)" in text
    assert "against its policy" in text


def test_the_failure_shows_statement_place_and_chunk() -> None:
    """Which statement, where it stands, which words, and which chunks it was held against."""
    text = message(HALF, faithfulness=">= 0.8")
    assert "not found: 'Paris is on Mars.' (characters 14 to 31 of the answer)" in text
    assert "no chunk has 'Mars' (characters 26 to 30)" in text
    assert "held against chunk 2 (id 'm7'): 'Mars is a planet.'" in text
    assert "held against chunk 1 (id 'p1'): 'Paris is a big city.'" in text
    assert "'Paris is big.' (characters" not in text


def test_all_expectations_are_told_at_once() -> None:
    """A test run again and again for one failure each is a nuisance."""
    text = message(HALF, faithfulness=">= 0.8", hallucination="< 0.2", answered="scored")
    assert text.startswith("2 of 3 expectations not met, judged by fake@1")
    assert "hallucination: expected < 0.2, got 0.5" in text


def test_evidence_that_does_not_exist_is_said_to_be() -> None:
    """A judge may name any chunk."""
    lying = Judgement(claims=(Claim("Paris", 0, 5, "contradicted", evidence=(41,)),))
    assert "chunk 42, which the call does not have" in message(lying, faithfulness=">= 0.8")


def test_a_metric_of_ones_own_can_be_expected() -> None:
    """Given as an object, without registering it."""
    short = Formula("short", "1", lambda call, _: Score(float(len(call.answer or "") < 100)), frozenset())
    ragtrace.assert_scores(CALL, metrics=[short], short="== 1")


@pytest.mark.parametrize(
    "wrong",
    [
        "high",
        "0.8",
        0.8,
        ">= high",
        ">= 80",
        ">= 0.2, < 0.5",
        "=> 0.8",
        "> 1.2.3",
        "unscored: bored",
        "",
        None,
        ">= nan",
    ],
)
def test_a_wrong_expectation_is_no_failed_one(wrong: Any) -> None:
    """It is a mistake in the test, said before anything is judged."""
    judge = FakeJudge(HALF)
    with pytest.raises(SettingsError, match="faithfulness="):
        ragtrace.assert_scores(CALL, judge=judge, faithfulness=wrong)
    assert not judge.calls


def test_an_unknown_metric_is_an_error() -> None:
    """With the near miss."""
    with pytest.raises(UnknownMetricError, match="did you mean 'faithfulness'"):
        ragtrace.assert_scores(CALL, faithfullness=">= 0.8")


def test_nothing_expected_is_an_error() -> None:
    """A test that tests nothing should not pass."""
    with pytest.raises(SettingsError, match="no expectation"):
        ragtrace.assert_scores(CALL)


def test_pytest_shows_the_line_of_the_test(pytester_path: Path) -> None:
    """Not our own lines."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pytester_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "consistency: expected >= 0.8, got 0" in done.stdout
    assert "checking.py" not in done.stdout


@pytest.fixture
def pytester_path(tmp_path: Path) -> Path:
    """A test file of a user."""
    path = tmp_path / "test_bot.py"
    path.write_text(
        "import ragtrace\n"
        "def test_bot():\n"
        "    call = {'contexts': ['Paris is big.'], 'answer': 'Berlin is small.'}\n"
        "    ragtrace.assert_scores(call, consistency='>= 0.8')\n"
    )
    return path
