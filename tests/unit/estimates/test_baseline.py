"""The application's own baseline: what it holds, what it calls suspicious, and how it is kept."""

from __future__ import annotations

import math
import os
import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Baseline, BaselineKey, CollectedScores, Distribution

UNIT = st.floats(0.0, 1.0, allow_nan=False)
KEY = BaselineKey("support", "consistency", "embedded@1")


def trace_id(rng: random.Random) -> int:
    return rng.getrandbits(128)


# --- what it holds ---------------------------------------------------------------------------------------------------


def test_mean_and_variance_are_those_of_the_scores() -> None:
    """The variance is the unbiased one."""
    found = Distribution.of([0.2, 0.4, 0.9])
    assert (found.n, found.mean) == (3, pytest.approx(0.5))
    assert found.variance == pytest.approx(statistics.variance([0.2, 0.4, 0.9]))


def test_the_quantile_is_the_score_at_which_five_percent_are_reached() -> None:
    """Of 100 different scores, the fifth lowest, and all of it belongs to the five percent."""
    found = Distribution.of([number / 100 for number in range(100)])
    assert (found.quantile, found.tied) == (0.04, pytest.approx(1.0))


def test_of_tied_scores_the_matching_share_belongs_to_the_five_percent() -> None:
    """2 of 100 are below 0.5 and 30 at it: 3 of those 30 make up the five."""
    found = Distribution.of([0.1] * 2 + [0.5] * 30 + [0.9] * 68)
    assert (found.quantile, found.tied) == (0.5, pytest.approx(0.1))


def test_a_weighted_call_stands_for_as_many_calls() -> None:
    """A call with weight 2 counts like two calls with the same score."""
    weighted = Distribution.of([0.1, 0.5, 0.9], weights=[1.0, 2.0, 97.0])
    full = Distribution.of([0.1] + [0.5] * 2 + [0.9] * 97)
    assert (weighted.mean, weighted.quantile) == (pytest.approx(full.mean), full.quantile)
    assert weighted.tied == pytest.approx(full.tied)
    assert weighted.n == 3


@pytest.mark.parametrize(
    ("scores", "weights", "questions"),
    [([], None, None), ([1.1], None, None), ([math.nan], None, None), ([0.5], [0.0], None), ([0.5], [1.0, 1.0], None)],
)
def test_what_is_no_distribution_is_refused(
    scores: list[float], weights: list[float] | None, questions: list[object] | None
) -> None:
    """The message says what is wrong."""
    with pytest.raises(ValueError, match=r"scores|weights"):
        Distribution.of(scores, weights=weights, questions=questions)


# --- the error of the mean -------------------------------------------------------------------------------------------


def test_different_questions_count_in_full() -> None:
    """Nothing is repeated: as many effective calls as calls."""
    rng = random.Random(1)
    found = Distribution.of([rng.random() for _ in range(500)], questions=list(range(500)))
    assert found.effective_n == pytest.approx(500, rel=0.01)


def test_repeated_questions_say_nothing_new_about_the_mean() -> None:
    """50 questions asked ten times each, always answered alike, give the mean as precisely as 50 calls."""
    rng = random.Random(2)
    scores = [rng.random() for _ in range(50)]
    found = Distribution.of(scores * 10, questions=list(range(50)) * 10)
    assert found.n == 500
    assert found.effective_n == pytest.approx(50, rel=0.05)


@given(st.lists(UNIT, min_size=1, max_size=30), st.floats(0.1, 3.0))
def test_the_limits_lie_around_the_mean_and_within_the_scale(scores: list[float], z: float) -> None:
    """The order holds however few or extreme the scores are."""
    found = Distribution.of(scores)
    low, high = found.mean_bound(z, "lower"), found.mean_bound(z, "upper")
    assert 0.0 <= low <= found.mean + 1e-9
    assert found.mean - 1e-9 <= high <= 1.0


def test_equal_scores_do_not_tell_the_mean_exactly() -> None:
    """500 perfect answers do not exclude a rare bad one."""
    limit = Distribution.of([1.0] * 500).mean_bound(1.0, "lower")
    assert 0.99 < limit < 0.999


# --- suspicious ------------------------------------------------------------------------------------------------------


@given(st.lists(UNIT, min_size=1, max_size=60))
def test_the_baselines_own_rate_is_five_percent(scores: list[float]) -> None:
    """The scores below the quantile and the tied share at it make up exactly 5 %."""
    found = Distribution.of(scores)
    below = sum(score < found.quantile - 1e-9 for score in scores)
    at = sum(abs(score - found.quantile) <= 1e-9 for score in scores)
    assert (below + found.tied * at) / len(scores) == pytest.approx(0.05)


def test_a_call_is_suspicious_or_not_in_every_process_alike() -> None:
    """The trace id decides between the calls at the quantile."""
    found = Distribution.of([1.0] * 500)
    rng = random.Random(5)
    calls = [trace_id(rng) for _ in range(200)]
    assert [found.suspicious(1.0, call) for call in calls] == [found.suspicious(1.0, call) for call in calls]


def test_whether_a_tied_call_is_suspicious_says_nothing_of_whether_it_is_judged() -> None:
    """Otherwise tied calls would be judged with another probability than is stored with their scores."""
    from ragtrace.evaluation.sampling import is_sampled

    found = Distribution.of([1.0] * 500)
    rng = random.Random(6)
    calls = [call for call in (trace_id(rng) for _ in range(40_000)) if found.suspicious(1.0, call)]
    assert len(calls) / 40_000 == pytest.approx(0.05, abs=0.005)
    assert statistics.fmean(is_sampled(call, 0.3) for call in calls) == pytest.approx(0.3, abs=0.04)


# --- how it is kept --------------------------------------------------------------------------------------------------


def kept() -> Baseline:
    rng = random.Random(7)
    calls = CollectedScores()
    for n in range(30):
        calls += CollectedScores.single(rng.random(), 0.5, f"question {n}", 1000.0 + n, "1.4.0")
    return Baseline(
        {KEY: calls.distribution_of_first(30), KEY._replace(workflow="b\ud800"): Distribution.of([0.1, 1 / 3])},
        {KEY._replace(metric="answered"): calls},
    )


def test_a_baseline_survives_its_file(tmp_path: Path) -> None:
    """Everything is read back to the last bit, unfinished parts too, and only the owner can read the file."""
    path = tmp_path / "baseline.json"
    kept().save(path)
    assert ragtrace.types.Baseline.load(path) == kept()
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["baseline.json"]


def test_it_tells_when_and_of_which_release_it_was_learned() -> None:
    """A distribution holds the times of the first and last call, and the versions that answered."""
    found = kept().find(*KEY)
    assert found is not None
    assert (found.since, found.until, found.versions) == (1000.0, 1029.0, ("1.4.0",))


def test_scores_of_another_version_are_not_compared() -> None:
    """Another evaluator, or another version of it, has no baseline here."""
    assert kept().find("support", "consistency", "embedded@2") is None


def test_no_question_can_be_read_from_the_file() -> None:
    """Questions that are equal are known as equal, by 24 bits of a hash."""
    one, other = (CollectedScores.single(0.5, 1.0, "What is my balance?", 0.0, "") for _ in range(2))
    assert one == other
    assert one.questions[0] < 2**24
    assert "balance" not in Baseline({}, {KEY: one + other}).encode()


def test_calls_without_a_known_question_are_not_taken_for_one_question() -> None:
    """Each such call counts as a question of its own, as where no texts are kept."""
    assert len({CollectedScores.single(0.5, 1.0, None, 0.0, "").questions for _ in range(20)}) > 15


GOOD = '{"format": "ragtrace baseline", "version": 1, "distributions": [%s], "learning": []}'
RECORD = (
    '{"workflow": "", "metric": "consistency", "evaluator": "e@1", "n": 5, "effective_n": 5.0, "mean": 0.5,'
    ' "variance": 0.1, "quantile": 0.2, "tied": 1.0, "since": 0, "until": 0, "versions": []}'
)


CALLS_RECORD = (
    '{"workflow": "", "metric": "consistency", "evaluator": "e@1", "scores": [0.5], "weights": [1.0],'
    ' "questions": [7], "since": 0, "until": 0, "versions": []}'
)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "cannot be read"),
        ("\ufffd\0", "cannot be read"),
        ("[]", "no baseline of ragtrace"),
        ('{"answer": 42}', "no baseline of ragtrace"),
        ("[" * 100_000, "cannot be read"),
        (GOOD.replace("1", "2", 1) % "", "of version 2, this ragtrace knows version 1"),
        (GOOD % "{}", "damaged"),
        (GOOD % "7", "damaged"),
        (GOOD % RECORD.replace("0.5", "NaN"), "damaged"),
        (GOOD % RECORD.replace("0.5", '"0.5"'), "damaged"),
        (GOOD % RECORD.replace("0.5", "1.5"), "damaged"),
        (GOOD % RECORD.replace('"n": 5', '"n": 0'), "damaged"),
        (GOOD % RECORD.replace('"n": 5', '"n": "x"'), "cannot be read"),
        (GOOD % RECORD.replace('"e@1"', "1"), "damaged"),
        (kept().encode()[:-200], "cannot be read"),
        (GOOD.replace('"learning": []', '"learning": [%s]') % ("", CALLS_RECORD.replace("[1.0]", "[]")), "incomplete"),
        (GOOD.replace('"learning": []', '"learning": [%s]') % ("", CALLS_RECORD.replace("[1.0]", "[0.1]")), "damaged"),
    ],
)
def test_a_file_without_a_baseline_is_refused_with_the_reason(tmp_path: Path, text: str, wrong: str) -> None:
    """The file is foreign, damaged, or of a later version."""
    path = tmp_path / "baseline.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=wrong):
        Baseline.load(path)


def test_a_good_record_is_read() -> None:
    """The counterpart of the damaged ones above."""
    assert Baseline.decode(GOOD % RECORD).find("", "consistency", "e@1") is not None
    both = GOOD.replace('"learning": []', '"learning": [%s]') % (RECORD.replace("e@1", "e@2"), CALLS_RECORD)
    assert [len(calls) for calls in Baseline.decode(both).learning.values()] == [1]


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    """The message holds the name of the file and what to do."""
    with pytest.raises(SettingsError, match=r"No such file.*nowhere\.json.*ragtrace baseline"):
        Baseline.load(tmp_path / "nowhere.json")


def test_a_file_that_cannot_be_written_stays_what_it_was(tmp_path: Path) -> None:
    """No half-written file replaces it, and none is left beside it."""
    path = tmp_path / "baseline.json"
    kept().save(path)
    before = path.read_bytes()
    broken = Baseline({KEY: Distribution.of([0.5])}, {KEY: CollectedScores(scores=(object(),))})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        broken.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["baseline.json"]


def test_a_baseline_can_be_given_as_scores() -> None:
    """Scores that are known from elsewhere make a baseline."""
    baseline = ragtrace.types.Baseline.of([0.8, 0.9, 1.0], evaluator="embedded@1", workflow="ask", versions=["1.4.0"])
    found = baseline.find("ask", "consistency", "embedded@1")
    assert found is not None
    assert (found.n, found.mean, found.versions) == (3, pytest.approx(0.9), ("1.4.0",))
