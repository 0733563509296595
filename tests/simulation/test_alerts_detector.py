"""The detector: what it promises about false alarms and delay, on simulated streams."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from statistics import fmean
from typing import Final

import numpy as np
import pytest
from opentelemetry.trace import SpanContext

from ragtrace.alerts.detector import HEAD_START, Detector, mean_weights, optimal_bet, raised_means
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.evaluation.sampling import Sampler, Sampling
from ragtrace.testing import FakeClock
from tests.benchmarks.baseline_alerts import lengths, mixed
from tests.support.alarms import Draw, Floats, binary, bursts, graded, run_lengths, run_lengths_of_each, runs, sampled

ASKED = 10_000.0
STREAMS = 200
SEED = 424


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("bound", [0.0005, 0.02, 0.05, 0.3, 0.5, 0.8, 0.99])
def test_no_bet_can_be_ruined(bound: float, batch: int) -> None:
    """For any bound there are bets, all of them leave something after a batch of good scores, and weigh 1 in all."""
    grid = [optimal_bet(each, bound) for each in raised_means(bound, batch)]
    assert grid
    assert all(0 < each < 1 / bound for each in grid)
    assert sum(mean_weights(batch)) == pytest.approx(1)


@pytest.mark.parametrize("expected", [0.02, 0.3, 0.69, 0.9, 1.0])
def test_nothing_is_won_at_what_is_expected(expected: float) -> None:
    """The mean factor of every bet is 1 where the rate is as expected: evidence after n calls is n in the mean."""
    for each in raised_means(0.02):
        up, down = 1 + optimal_bet(each, expected) * (1 - expected), 1 - optimal_bet(each, expected) * expected
        assert expected * up + (1 - expected) * down == pytest.approx(1)


def evidence_of(means: list[float], bound: float, batch: int, *, asked: float, expected: list[float]) -> float:
    """Of batches with these means: what those have who began at each of them or had the head start, over the bets."""
    factors = [
        [1 + optimal_bet(each, usual) * (mean - usual) for mean, usual in zip(means, expected, strict=True)]
        for each in raised_means(bound, batch)
    ]
    return sum(
        weight
        * (HEAD_START * asked / batch * math.prod(row) + sum(math.prod(row[start:]) for start in range(len(row))))
        for row, weight in zip(factors, mean_weights(batch), strict=True)
    )


def test_evidence_is_the_sum_over_all_beginnings() -> None:
    """Of the means of whole batches; what is in a batch that has just begun does not count yet."""
    detector = Detector(0.2, 1e9, batch=2)
    for score in [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0]:
        detector.add(score)
    assert detector.evidence == pytest.approx(evidence_of([0.5, 0.0, 0.5], 0.2, 2, asked=1e9, expected=[0.2] * 3))


def test_soon_after_a_bad_call_others_are_expected() -> None:
    """Directly after it half of the calls at first, up to three calls after it the bound; then as many as were seen."""
    detector = Detector(0.02, 1e9)
    scores = [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    for score in scores:
        detector.add(score)
    usual = [0.02, 0.5, 0.5, 0.02, 0.5, 1.2 / 21, 1.2 / 22, 0.02, 0.02, 2.5 / 6]
    assert detector.evidence == pytest.approx(evidence_of(scores, 0.02, 1, asked=1e9, expected=usual))


def test_what_is_usual_after_a_bad_call_is_known_after_a_restart() -> None:
    """Only the evidence begins anew: a later spike among scattered bad calls raises an alarm as soon."""
    fresh, experienced = Detector(0.05, ASKED), Detector(0.05, ASKED)
    for number in range(2_000):
        experienced.add(float(number % 25 == 0))
    experienced.restart()
    assert experienced.evidence == fresh.evidence
    for detector in (fresh, experienced):
        for _ in range(3):
            detector.add(1.0)
    assert experienced.evidence > 10 * fresh.evidence


@pytest.mark.parametrize("batch", [1, 4])
def test_a_repeated_question_counts_once_in_ten_calls(batch: int) -> None:
    """By its first call; the others change nothing, whatever their score, and the eleventh call counts again."""
    once, again = Detector(0.2, 1e9, batch=batch), Detector(0.2, 1e9, batch=batch)
    for number in range(12):
        again.add(1.0, question="a")
        if number in (0, 10):
            once.add(1.0, question="a")
        else:
            once.add(float(number % 2), question="a")
    assert again.calls == 12
    assert again.evidence == once.evidence > Detector(0.2, 1e9, batch=batch).evidence


def test_calls_without_a_question_are_no_repetitions() -> None:
    """None is not equal to None here."""
    detector = Detector(0.2, 1e9, batch=2)
    detector.add(1.0)
    detector.add(1.0)
    assert detector.evidence == pytest.approx(evidence_of([1.0], 0.2, 2, asked=1e9, expected=[0.2]))


def test_an_alarm_that_the_batch_cannot_prevent_is_raised_at_once() -> None:
    """It would be raised at the batch's end whatever came; so it is raised when that is certain."""
    detector, calls = Detector(0.05, ASKED, batch=10), 1
    while not detector.add(float(calls % 10 in range(1, 6))):
        calls += 1
    assert calls % 10 in range(1, 6)
    assert detector.evidence >= detector.threshold


@pytest.mark.parametrize("batch", [1, 2, 10])
@pytest.mark.parametrize("draw", [sampled(0.15), graded(0.12), runs(3, 0.2)], ids=["sampled", "graded", "runs"])
def test_the_simulation_is_the_detector(draw: Draw, batch: int) -> None:
    """The same stream gives the same alarm in the package's code and in the vectorised one, shares included."""
    [length] = run_lengths(0.05, ASKED, draw, streams=1, seed=5, most=4_000, batch=batch)
    rng, detector = np.random.default_rng(5), Detector(0.05, ASKED, batch=batch)
    calls = 0
    while calls < length:
        scores, shares = draw(rng, (256, 1))
        for score, share in zip(scores[:, 0], np.broadcast_to(shares, scores.shape)[:, 0], strict=True):
            calls += 1
            if detector.add(float(score), float(share)):
                break
        else:
            continue
        break
    assert calls == length < 4_000


UNCHANGED: Final[Mapping[str, tuple[float, Draw]]] = {
    "binary 2 %": (0.02, binary(0.02)),
    "binary 5 %": (0.05, binary(0.05)),
    "binary 10 %": (0.10, binary(0.10)),
    "graded 5 %": (0.05, graded(0.05)),
    "suspicious sampling 5 %": (0.05, sampled(0.05)),
    "runs of 2": (0.05, runs(2, 0.05)),
    "runs of 3": (0.05, runs(3, 0.05)),
    "runs of 5": (0.05, runs(5, 0.05)),
    "bursts of 4": (0.05, bursts(4, 0.05)),
    "bursts of 8": (0.05, bursts(8, 0.05)),
}
"""Bound and scores of streams at that bound, which have no reason for an alarm."""


@pytest.fixture(scope="module")
def calls_to_false_alarm() -> Mapping[str, float]:
    """Mean run lengths of the streams of `UNCHANGED`, which are cut off at 20,000 calls."""
    cells = list(UNCHANGED.values())
    found = run_lengths_of_each(cells, ASKED, streams=STREAMS, seed=SEED, most=20_000)
    return {name: float(lengths.mean()) for name, lengths in zip(UNCHANGED, found, strict=True)}


@pytest.mark.parametrize("name", list(UNCHANGED)[:5])
def test_false_alarms_are_as_rare_as_asked_for(calls_to_false_alarm: Mapping[str, float], name: str) -> None:
    """At the bound itself the mean run length is at least what was asked for, though streams are cut off at 20,000."""
    assert calls_to_false_alarm[name] >= ASKED


@pytest.mark.parametrize(("size", "least"), [(2, ASKED), (3, ASKED), (5, ASKED / 2)])
def test_runs_of_bad_calls_are_no_reason_for_an_alarm(
    calls_to_false_alarm: Mapping[str, float], size: int, least: float
) -> None:
    """Bad answers some in a row, 5 % in the long run, from the first call, when nothing is known of them yet."""
    assert calls_to_false_alarm[f"runs of {size}"] >= least


@pytest.mark.parametrize("length", [4, 8])
def test_bursts_of_bad_calls_with_good_ones_between_are_learned(
    calls_to_false_alarm: Mapping[str, float], length: int
) -> None:
    """Three of five calls of a burst bad, 5 % in the long run."""
    assert calls_to_false_alarm[f"bursts of {length}"] >= ASKED / 2


@pytest.mark.parametrize("bound", [0.02, 0.05, 0.3])
def test_a_run_without_an_end_raises_an_alarm(bound: float) -> None:
    """Every call is bad, from the first one or after many that were not."""
    for good in (0, 1_000):
        detector, calls = Detector(bound, ASKED), 1
        for _ in range(good):
            assert not detector.add(0.0)
        while not detector.add(1.0):
            calls += 1
        assert calls <= 25


RISES: Final = (
    (0.05, 0.15, 102),
    (0.02, 0.10, 85),
    (0.10, 0.30, 48),
    (0.05, 0.08, 559),
    (0.05, 0.50, 11),
)
"""Bound, rate, and the mean delay of a detector that expects no runs, and has a false alarm on them in 300 calls."""


@pytest.mark.parametrize("before", [0, 1_000])
@pytest.mark.parametrize(("bound", "rate", "unguarded"), RISES)
def test_a_rise_is_found_soon(bound: float, rate: float, unguarded: float, before: int) -> None:
    """Within 1.4 times the calls of a detector without any guard, from the first call on and later."""
    found = run_lengths(
        bound, ASKED, binary(rate), streams=STREAMS, seed=SEED, most=5_000, before=binary(bound), calls_before=before
    )
    assert found.mean() <= 1.4 * unguarded


def test_scores_that_depend_on_each_other_are_no_excuse() -> None:
    """What holds is the mean given the past, not independence: here after a 0 comes the mean itself, else chance."""

    def uneasy(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, float]:
        scores = np.full(shape, 0.05)
        for row in range(1, shape[0]):
            wild = scores[row - 1] != 0.0
            scores[row] = np.where(wild, rng.random(shape[1]) < 0.05, 0.05)
        return scores, 1.0

    assert run_lengths(0.05, 1_000.0, uneasy, streams=STREAMS, seed=SEED, most=10_000).mean() >= 1_000


def test_calls_since_change_begin_at_the_change() -> None:
    """What makes the case is named from about where the rate rose, not from the start."""
    rng, detector = np.random.default_rng(3), Detector(0.05, ASKED)
    for score in rng.random(600) < 0.03:
        assert not detector.add(float(score))
    calls = 0
    while not detector.add(float(rng.random() < 0.4)):
        calls += 1
    assert calls * 0.5 <= detector.calls_since_change <= calls + 60


def test_a_score_by_an_unlikely_look_counts_full_and_one_by_a_sure_look_less() -> None:
    """Suspicious calls at ten times the probability are less evidence than as many ordinary calls."""
    often, once = Detector(0.05, ASKED), Detector(0.05, ASKED)
    for _ in range(10):
        often.add(1.0, share=0.1)
        once.add(1.0)
    assert often.evidence < once.evidence


# --- behind the sampler ----------------------------------------------------------------------------------------------

SAMPLING = Sampling(rate=0.1, suspicious_rate=0.8, per_minute=300, always=["error"])
KINDS: Final = ((0.02, 0.5, "error"), (0.12, 0.25, "suspicious"), (1.0, 0.01 / 0.88, "ordinary"))
"""Up to which share of the calls, rate of bad answers, kind: 5 % of all answers are bad."""


def judged_until_alarm(rng: Random, *, shares: bool) -> int:
    """Calls of mixed traffic that the sampler's judge has seen before the detector raises an alarm."""
    clock, detector, answers = FakeClock(), Detector(0.05, 100.0), 0
    sampler = Sampler(SAMPLING, clock)
    while True:
        clock.advance(rng.expovariate(20.0))
        place = rng.random()
        _, rate, kind = next(each for each in KINDS if place < each[0])
        span = SpanContext(rng.getrandbits(128) | 1, 1, False)
        call = RagCall("q", (), "a", error="TimeoutError" if kind == "error" else None, span=span)
        consistency = Score(0.1 if kind == "suspicious" else 0.9)
        decision = sampler.decide(call, Evaluation("screen", "1", "model", {"consistency": consistency}))
        if decision.included:
            answers += 1
            share = decision.least / decision.probability if shares else 1.0
            assert 0 < share <= 1 + 1e-12
            if detector.add(float(rng.random() < rate), share):
                return answers


def test_suspicious_sampling_rules_and_budgets_raise_no_false_alarms() -> None:
    """The judge sees many bad answers, as it looks where it is suspicious; the alert is about the rate of all."""
    rng = Random(11)
    assert fmean(judged_until_alarm(rng, shares=True) for _ in range(60)) >= 100
    assert fmean(judged_until_alarm(rng, shares=False) for _ in range(60)) < 60  # what the shares are for


# --- against a baseline ----------------------------------------------------------------------------------------------


def test_a_learned_baselines_error_is_in_the_false_alarm_rate() -> None:
    """On synthetic scores, 500 calls each: the mean run is as asked for, cut off at three times that.

    Five times as many bad answers raise an alarm within 300 calls.
    """
    rng = np.random.default_rng(SEED)
    good, poor = 1.0 - rng.beta(3.0, 0.8, 4_000), 1.0 - rng.beta(2.0, 2.0, 4_000)
    usual, worse = mixed(good, poor, 0.05), mixed(good, poor, 0.25)
    assert lengths(usual, usual, calls=500, runs=STREAMS, most=30_000, seed=SEED).mean() >= ASKED
    assert lengths(usual, worse, calls=500, runs=STREAMS, most=5_000, seed=SEED).mean() <= 300


# --- the values of a tag ---------------------------------------------------------------------------------------------

OF_TAGS_ASKED: Final = 2_000.0
OF_TAGS_STREAMS: Final = 200


def first_alarm(values: int, bad: Mapping[int, float], random: Random, *, most: int) -> tuple[int, int]:
    """Return after how many calls of all values of a tag the first alarm of any comes, and of which value.

    The traffic of the n-th value is in proportion to 1 / n. Calls are bad at the bound, 0.05, or as *bad* says.
    """
    watched = [Detector(0.05, OF_TAGS_ASKED, head_start=0.0) for _ in range(values)]
    whose = random.choices(range(values), [1.0 / (1 + n) for n in range(values)], k=most)
    for number, value in enumerate(whose, 1):
        if watched[value].add(float(random.random() < bad.get(value, 0.05))):
            return number, value
    return most, -1


@pytest.mark.parametrize("values", [2, 10, 50])
def test_false_alarms_of_all_values_of_a_tag_are_as_few_as_promised(values: int) -> None:
    """The first of any comes after the promised number of calls of all values together, in the mean."""
    random = Random(SEED)
    lengths_ = [first_alarm(values, {}, random, most=40_000)[0] for _ in range(OF_TAGS_STREAMS)]
    assert fmean(lengths_) >= OF_TAGS_ASKED


def test_the_bad_one_of_twenty_values_is_found() -> None:
    """40 % bad answers of the fifth of twenty tenants, the others within the bound: it is named in nine of ten streams.

    In the mean after at most 60 calls of its own, as for an alert on that tenant alone.
    """
    random, found = Random(SEED), list[int]()
    others = dict.fromkeys(range(20), 0.03)
    for _ in range(OF_TAGS_STREAMS):
        number, value = first_alarm(20, {**others, 4: 0.4}, random, most=20_000)
        if value == 4:
            found.append(number)
    share = 0.2 / sum(1.0 / (1 + n) for n in range(20))
    assert len(found) >= 0.9 * OF_TAGS_STREAMS
    assert fmean(found) * share <= 60
