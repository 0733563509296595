"""The detector: what it promises about false alarms and delay, on simulated streams."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean
from typing import Final

import numpy as np
import pytest
from opentelemetry.trace import SpanContext

from ragtrace.alerts.detector import Detector, bets, weights
from ragtrace.model import Evaluation, RagCall, Score
from ragtrace.sampling import Sampler, Sampling
from ragtrace.testing import FakeClock
from tests.benchmarks.baseline_alerts import lengths, mixed
from tests.support.alarms import Draw, Floats, binary, graded, run_lengths, runs, sampled

ASKED = 10_000.0
STREAMS = 200
SEED = 424


@pytest.mark.parametrize("bound", [0.0005, 0.02, 0.05, 0.3, 0.5, 0.8, 0.99])
def test_no_bet_can_be_ruined(bound: float) -> None:
    """For any bound there are bets, all of them leave something after a batch of good scores, and weigh 1 in all."""
    grid = bets(bound)
    assert grid
    assert all(0 < bet < 1 / bound for bet in grid)
    assert sum(weights()) == pytest.approx(1)


@pytest.mark.parametrize("bound", [0.02, 0.3, 0.9])
def test_nothing_is_won_at_the_bound(bound: float) -> None:
    """The mean factor of every bet is 1 where the rate is the bound: then evidence after n calls is n in the mean."""
    for bet in bets(bound):
        up, down = 1 + bet * (1 - bound), 1 - bet * bound
        assert bound * up + (1 - bound) * down == pytest.approx(1)


def evidence_of(means: list[float], bound: float, batch: int) -> float:
    """Of batches with these means: what bettors who began at each of them have, averaged over the bets."""
    return sum(
        weight * sum(math.prod([1 + bet * (mean - bound) for mean in means[start:]]) for start in range(len(means)))
        for bet, weight in zip(bets(bound, batch), weights(), strict=True)
    )


def test_evidence_is_the_sum_over_all_beginnings() -> None:
    """Of the means of whole batches; what is in a batch that has just begun does not count yet."""
    detector = Detector(0.2, 1e9, batch=2)
    for score in [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]:
        detector.add(score)
    assert detector.evidence == pytest.approx(evidence_of([0.5, 0.0, 1.0], 0.2, 2))


def test_without_batches_every_call_counts_by_itself() -> None:
    """batch=1."""
    detector = Detector(0.2, 1e9, batch=1)
    for score in [1.0, 0.0, 1.0]:
        detector.add(score)
    assert detector.evidence == pytest.approx(evidence_of([1.0, 0.0, 1.0], 0.2, 1))


def test_a_repeated_question_counts_once_in_a_batch() -> None:
    """By its first call; its place in the batch is taken, and in the next batch it counts again."""
    detector = Detector(0.2, 1e9, batch=4)
    for _ in range(2):
        for question in ("a", "a", "b", "a"):
            detector.add(1.0, question=question)
    mean = (2 * 1.0 + 2 * 0.2) / 4  # a repeated call has no say: it is worth the bound
    assert (detector.calls, detector.evidence) == (8, pytest.approx(evidence_of([mean, mean], 0.2, 4)))


def test_calls_without_a_question_are_no_repetitions() -> None:
    """None is not equal to None here."""
    detector = Detector(0.2, 1e9, batch=2)
    detector.add(1.0)
    detector.add(1.0)
    assert detector.evidence == pytest.approx(evidence_of([1.0], 0.2, 2))


def test_an_alarm_that_the_batch_cannot_prevent_is_raised_at_once() -> None:
    """It would be raised at the batch's end whatever came; so it is raised when that is certain."""
    found: list[int] = []
    for rest in (0.0, 1.0):
        detector = Detector(0.05, ASKED)
        for _ in range(20):
            assert not detector.add(1.0)
        calls = 1
        while not detector.add(rest if calls > 8 else 1.0):
            calls += 1
        found.append(calls)
    assert found[0] == found[1] < 8


def test_the_simulation_is_the_detector() -> None:
    """The same stream gives the same alarm in the package's code and in the vectorised one, shares included."""
    draw = sampled(0.15)
    [length] = run_lengths(0.05, ASKED, draw, streams=1, seed=5, most=4_000)
    rng, detector = np.random.default_rng(5), Detector(0.05, ASKED)
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


@pytest.mark.parametrize(
    ("bound", "draw"),
    [
        (0.02, binary(0.02)),
        (0.05, binary(0.05)),
        (0.10, binary(0.10)),
        (0.05, graded(0.05)),
        (0.05, sampled(0.05)),
    ],
    ids=["binary 2 %", "binary 5 %", "binary 10 %", "graded 5 %", "suspicious sampling 5 %"],
)
def test_false_alarms_are_as_rare_as_asked_for(bound: float, draw: Draw) -> None:
    """At the bound itself the mean run length is at least what was asked for, though streams are cut off at 60,000."""
    assert run_lengths(bound, ASKED, draw, streams=STREAMS, seed=SEED, most=60_000).mean() >= ASKED


@pytest.mark.parametrize("size", [2, 3])
def test_runs_of_bad_calls_are_no_reason_for_an_alarm(size: int) -> None:
    """Bad answers two or three in a row, 5 % in the long run: half of the calls asked for pass at least."""
    found = run_lengths(0.05, ASKED, runs(size, 0.05), streams=STREAMS, seed=SEED, most=30_000)
    assert found.mean() >= ASKED / 2


# Batches cost large jumps some calls (three batches are needed at least), small and middling ones next to none.
@pytest.mark.parametrize(("bound", "rate", "target"), [(0.05, 0.15, 130), (0.02, 0.10, 105), (0.10, 0.30, 95)])
def test_a_rise_is_found_soon(bound: float, rate: float, target: float) -> None:
    """From the first call on, which is the worst case: there is no evidence yet."""
    assert run_lengths(bound, ASKED, binary(rate), streams=STREAMS, seed=SEED, most=5_000).mean() <= target


def test_scores_that_depend_on_each_other_are_no_excuse() -> None:
    """What holds is the mean given the past, not independence: here after a 0 comes the mean itself, else chance."""

    def uneasy(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, float]:
        scores = np.full(shape, 0.05)
        for row in range(1, shape[0]):
            wild = scores[row - 1] != 0.0
            scores[row] = np.where(wild, rng.random(shape[1]) < 0.05, 0.05)
        return scores, 1.0

    assert run_lengths(0.05, 1_000.0, uneasy, streams=STREAMS, seed=SEED, most=10_000).mean() >= 1_000


def test_the_stretch_begins_at_the_change() -> None:
    """What makes the case is named from about where the rate rose, not from the start."""
    rng, detector = np.random.default_rng(3), Detector(0.05, ASKED)
    for score in rng.random(600) < 0.03:
        assert not detector.add(float(score))
    calls = 0
    while not detector.add(float(rng.random() < 0.4)):
        calls += 1
    assert calls * 0.5 <= detector.stretch <= calls + 60


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

    Five times as many bad answers are told within 300 calls.
    """
    rng = np.random.default_rng(SEED)
    good, poor = 1.0 - rng.beta(3.0, 0.8, 4_000), 1.0 - rng.beta(2.0, 2.0, 4_000)
    usual, worse = mixed(good, poor, 0.05), mixed(good, poor, 0.25)
    assert lengths(usual, usual, calls=500, runs=STREAMS, most=30_000, seed=SEED).mean() >= ASKED
    assert lengths(usual, worse, calls=500, runs=STREAMS, most=5_000, seed=SEED).mean() <= 300
