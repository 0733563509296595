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
        ragtrace.testing.assert_scores(CALL, judge=FakeJudge(judgement), **expected)
    return str(failed.value)


def test_met_expectations_return_the_results() -> None:
    """Met expectations return the results of the metrics named."""
    results = ragtrace.testing.assert_scores(CALL, judge=FakeJudge(HALF), faithfulness=">= 0.5", answered="scored")
    assert list(results) == ["faithfulness", "answered"]
    assert isinstance(results["faithfulness"], Score)


def test_embedded_judge_is_the_default() -> None:
    """The embedded judge is used without a key and without a network."""
    ragtrace.testing.assert_scores({"contexts": ["Paris is big."], "answer": "Paris is big."}, consistency="== 1")


def test_call_may_be_an_object() -> None:
    """The call may be a `RagCall`."""
    call = RagCall("Which?", (Document("Paris is big."),), "Paris is big.")
    ragtrace.testing.assert_scores(call, consistency="> 0.9")


@pytest.mark.parametrize(
    "met", [">= 0.8", "<= 0.8", "== 0.8", "> 0.7", "< 0.9", "!= 0.7", ">=0.8", "> .5 and < 9e-1", " scored ", "<= 1"]
)
def test_expectations_that_are_met(met: str) -> None:
    """A faithfulness of 0.8 meets each of these expectations."""
    ragtrace.testing.assert_scores(CALL, judge=FakeJudge(EXACT), faithfulness=met)


@pytest.mark.parametrize(
    "missed", ["> 0.8", "< 0.8", "!= 0.8", "== 0.7", "> 0.1 and < 0.8", "unscored", "unscored: no_claims"]
)
def test_expectations_that_are_not_met(missed: str) -> None:
    """A faithfulness of 0.8 fails each of these expectations, and the message quotes the expectation."""
    assert f"faithfulness: expected {missed}, got 0.8" in message(EXACT, faithfulness=missed)


@pytest.mark.parametrize("met", ["unscored", "unscored: no_claims", "unscored:no_claims"])
def test_unscored_can_be_expected(met: str) -> None:
    """`unscored` is met by any reason, and `unscored: REASON` by that one."""
    ragtrace.testing.assert_scores(CALL, judge=FakeJudge(NO_CLAIMS), faithfulness=met)


@pytest.mark.parametrize("missed", [">= 0", "!= 0.5", "scored", "unscored: abstained"])
def test_unscored_meets_no_comparison(missed: str) -> None:
    """An unscored metric fails every comparison with its reason in the message."""
    assert "no score: no_claims (not_applicable)" in message(NO_CLAIMS, faithfulness=missed)


def test_judge_failure_fails_the_assertion() -> None:
    """A failing judge fails the assertion with its reason."""
    text = message(JudgeError("refused", "against its policy"), faithfulness=">= 0")
    assert "no score: refused (judge_error)" in text
    assert "against its policy" in text


def test_failure_shows_statement_place_and_chunk() -> None:
    """The message has the unsupported statement, its place, its words and the chunks it was compared with."""
    text = message(HALF, faithfulness=">= 0.8")
    assert "not found: 'Paris is on Mars.' (characters 14 to 31 of the answer)" in text
    assert "no chunk has 'Mars' (characters 26 to 30)" in text
    assert "held against chunk 2 (id 'm7'): 'Mars is a planet.'" in text
    assert "held against chunk 1 (id 'p1'): 'Paris is a big city.'" in text
    assert "'Paris is big.' (characters" not in text


def test_all_failures_are_in_one_message() -> None:
    """All expectations that are not met are in one message."""
    text = message(HALF, faithfulness=">= 0.8", hallucination="< 0.2", answered="scored")
    assert text.startswith("2 of 3 expectations not met, judged by fake@1")
    assert "hallucination: expected < 0.2, got 0.5" in text


def test_missing_evidence_is_reported() -> None:
    """A chunk number that the call does not have is reported as such."""
    lying = Judgement(claims=(Claim("Paris", 0, 5, "contradicted", evidence=(41,)),))
    assert "chunk 42, which the call does not have" in message(lying, faithfulness=">= 0.8")


def test_unregistered_metric_can_be_expected() -> None:
    """A metric given as an object needs no registration."""
    short = Formula("short", "1", lambda call, _: Score(float(len(call.answer or "") < 100)), frozenset())
    ragtrace.testing.assert_scores(CALL, metrics=[short], short="== 1")


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
def test_wrong_expectation_is_a_settings_error(wrong: Any) -> None:
    """An expectation that cannot be parsed is refused before anything is judged."""
    judge = FakeJudge(HALF)
    with pytest.raises(SettingsError, match="faithfulness="):
        ragtrace.testing.assert_scores(CALL, judge=judge, faithfulness=wrong)
    assert not judge.calls


def test_unknown_metric_is_an_error() -> None:
    """An unknown metric is refused with the nearest name."""
    with pytest.raises(UnknownMetricError, match="did you mean 'faithfulness'"):
        ragtrace.testing.assert_scores(CALL, faithfullness=">= 0.8")


def test_no_expectation_is_an_error() -> None:
    """A call without expectations is refused."""
    with pytest.raises(SettingsError, match="no expectation"):
        ragtrace.testing.assert_scores(CALL)


def test_pytest_shows_the_line_of_the_test(pytester_path: Path) -> None:
    """pytest's traceback ends at the line of the test."""
    import os
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pytester_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # importing all of them takes two seconds
    )
    assert done.returncode == 1, done.stdout
    assert "consistency: expected >= 0.8, got 0" in done.stdout
    assert "assertions.py" not in done.stdout


@pytest.fixture
def pytester_path(tmp_path: Path) -> Path:
    """A test file of a user."""
    path = tmp_path / "test_bot.py"
    path.write_text(
        "import ragtrace\n"
        "def test_bot():\n"
        "    call = {'contexts': ['Paris is big.'], 'answer': 'Berlin is small.'}\n"
        "    ragtrace.testing.assert_scores(call, consistency='>= 0.8')\n"
    )
    return path
