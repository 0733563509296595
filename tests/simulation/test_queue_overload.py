"""Ten times as many calls as workers can judge, for five minutes, with fixed seeds: the queue stays bounded."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from opentelemetry.trace import SpanContext

from ragtrace.core.types import RagCall
from ragtrace.evaluation.sampling import QueueLoad, Sampler, Sampling
from ragtrace.testing import FakeClock

JUDGED_A_SECOND = 8
OVERLOAD = 10
BEGINS, ENDS, UNTIL = 60, 360, 420
CAPACITY = 10_000
PROCESSES = 3
LOOK_SECONDS = 2
SIGMAS = 4.0


@dataclass
class Run:
    """What became of the calls of one simulation."""

    depths: list[int] = field(default_factory=list[int])
    factors: list[float] = field(default_factory=list[float])
    scores: list[float] = field(default_factory=list[float])
    judged: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Score and probability of each call that was put into the queue."""
    variance: float = 0.0
    """Of the weighted sum of the scores."""


def simulate(seed: int) -> Run:
    """Send calls through samplers of several processes, which look at the depth of one queue every two seconds."""
    chance, clock, run = random.Random(seed), FakeClock(), Run()
    samplers = [Sampler(Sampling(rate=1.0), clock) for _ in range(PROCESSES)]
    loads = [QueueLoad(CAPACITY) for _ in samplers]
    for sampler, load in zip(samplers, loads, strict=True):
        sampler.queue_load = load
    depth = 0
    for second in range(UNTIL):
        overloaded = BEGINS <= second < ENDS
        for number, load in enumerate(loads):
            if (second + number) % LOOK_SECONDS == 0:
                load.depth = depth
        for _ in range(JUDGED_A_SECOND * OVERLOAD if overloaded else JUDGED_A_SECOND // 2):
            sampler = chance.choice(samplers)
            call = RagCall("q", (), "a", span=SpanContext(chance.getrandbits(128), 1, is_remote=False))
            # Answers become worse in the overload: an unweighted mean over the judged calls would be wrong.
            worse = 0.7 * (second - BEGINS) / (ENDS - BEGINS) if overloaded else 0.0
            score = float(chance.random() < 0.95 - worse)
            decision = sampler.decide(call, None)
            run.scores.append(score)
            run.variance += score * (1 / decision.probability - 1)
            if decision.included:
                run.judged.append((score, decision.probability))
                depth += 1
        depth = max(0, depth - JUDGED_A_SECOND)
        run.depths.append(depth)
        run.factors.append(loads[0].factor(ruled=False))
    return run


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Simulations with different seeds."""
    return [simulate(seed) for seed in range(4)]


def test_the_queue_stays_below_its_capacity(runs: list[Run]) -> None:
    """No call is refused by a full queue; the queue settles where as many calls are sampled as are judged."""
    expected = math.log(OVERLOAD) / math.log(1000) * 0.75 + 0.25
    for run in runs:
        assert max(run.depths) < 0.7 * CAPACITY
        assert run.depths[ENDS - 1] / CAPACITY == pytest.approx(expected, abs=0.05)


def test_probabilities_fall_and_rise_smoothly(runs: list[Run]) -> None:
    """From one look at the queue to the next the factor changes by less than a fifth."""
    for run in runs:
        steps = [after / before for before, after in zip(run.factors, run.factors[1:], strict=False)]
        assert 0.8 < min(steps) <= max(steps) < 1.25
        assert min(run.factors) < 0.15


def test_estimates_through_an_overload_are_unbiased(runs: list[Run]) -> None:
    """Weighted by 1 / probability, the judged calls give the sum over all calls; unweighted, their mean is wrong."""
    errors = []
    for run in runs:
        weighted = sum(score / probability for score, probability in run.judged)
        errors.append((weighted - sum(run.scores)) / math.sqrt(run.variance))
        true_mean = sum(run.scores) / len(run.scores)
        assert sum(score for score, _ in run.judged) / len(run.judged) - true_mean > 0.02
    assert max(map(abs, errors)) < SIGMAS
    assert abs(sum(errors)) / math.sqrt(len(errors)) < SIGMAS


def test_calls_of_an_always_rule_are_sampled_longer() -> None:
    """Half full, the queue lowers ordinary probabilities only; full, it lowers all of them, and none to 0."""
    load = QueueLoad(100)
    found = []
    for depth in (0, 25, 50, 75, 100, 1_000):
        load.depth = depth
        found.append((load.factor(ruled=False), load.factor(ruled=True)))
    assert found[:2] == [(1.0, 1.0), (1.0, 1.0)]
    assert found[2] == (pytest.approx(0.1), 1.0)
    assert found[3] == (pytest.approx(0.01), 1.0)
    assert found[4] == found[5] == (pytest.approx(0.001), pytest.approx(0.001))
