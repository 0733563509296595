"""Sampling over much traffic, with fixed seeds: estimates without bias, budgets kept, no call out of reach.

Where a figure is random, it is held to four of its standard deviations, computed from the probabilities themselves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision as HeadDecision
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import SpanContext

import ragtrace
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision, Score
from ragtrace.evaluation.sampling import Budget, Sampler
from ragtrace.testing import FakeClock, FakeJudge
from tests.support.watched import GOOD, ask, watch

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
SIGMAS = 4.0
SLACK_FACTOR = 1.3


def call(trace_id: int, *, error: str | None = None) -> RagCall:
    return RagCall("q", (), "a", error=error, span=SpanContext(trace_id, 1, is_remote=False))


def screened(consistency: float) -> Evaluation:
    """A screen whose baseline has its 5 % quantile at 0.5: much has become worse since."""
    results = {"consistency": Score(consistency), "suspicious": Score(float(consistency < 0.5))}
    return Evaluation("screen", "1", "deterministic", results)


def poisson(chance: random.Random, rate_at: Callable[[float], float], most: float, until: float) -> Iterator[float]:
    """Arrival times of a Poisson process of that momentary rate, at most *most* a second."""
    now = 0.0
    while (now := now + chance.expovariate(most)) < until:
        if chance.random() * most < rate_at(now):
            yield now


def bursts(now: float) -> float:
    """One call a second, and for five seconds of each minute two hundred."""
    return 200.0 if now % MINUTE < 5.0 else 1.0


def daily(now: float) -> float:
    """Calls a second: none to speak of at night, one at noon."""
    return 0.505 - 0.495 * math.cos(2 * math.pi * now / DAY)


class Run:
    """Sends traffic through one sampler and keeps what was decided."""

    def __init__(self, sampling: ragtrace.Sampling, seed: int) -> None:
        self.clock, self.chance = FakeClock(), random.Random(seed)
        self.sampler = Sampler(sampling, self.clock)
        self.decisions: list[SamplingDecision] = []

    def send(self, at: float, consistency: float | None = None, *, error: str | None = None) -> SamplingDecision:
        self.clock.now = at
        screen = None if consistency is None else screened(consistency)
        self.decisions.append(self.sampler.decide(call(self.chance.getrandbits(128) | 1, error=error), screen))
        return self.decisions[-1]

    @property
    def expected(self) -> float:
        return sum(decision.probability for decision in self.decisions)

    @property
    def judged(self) -> int:
        return sum(decision.included for decision in self.decisions)

    @property
    def scatter(self) -> float:
        """Standard deviation of `judged`."""
        return math.sqrt(sum(d.probability * (1 - d.probability) for d in self.decisions))


def bias_in_sigmas(run: Run, values: list[float]) -> float:
    """How far the inverse-probability mean is from the mean of *values*, in standard deviations."""
    both = list(zip(run.decisions, values, strict=True))
    estimate = sum(value / decision.probability for decision, value in both if decision.included)
    variance = sum(value**2 * (1 - d.probability) / d.probability for d, value in both)
    return (estimate - sum(values)) / math.sqrt(variance)


def outcome(chance: random.Random, consistency: float) -> float:
    """What the judge would say: the likelier bad, the lower the screen's score."""
    return float(chance.random() > 0.1 + 0.8 * consistency)


# --- estimates -------------------------------------------------------------------------------------------------------


def test_the_weighted_mean_is_unbiased_under_suspicious_sampling() -> None:
    """Though bad calls are sampled eight times as often: over 100 samples the mean error is within its scatter."""
    sigmas: list[float] = []
    naive: list[float] = []
    for seed in range(100):
        run = Run(ragtrace.Sampling(rate=0.1, suspicious_rate=0.8), seed)
        screens = [run.chance.random() for _ in range(1_000)]
        values = [outcome(run.chance, consistency) for consistency in screens]
        for consistency in screens:
            run.send(0.0, consistency)
        sigmas.append(bias_in_sigmas(run, values))
        naive.append(sum(v for d, v in zip(run.decisions, values, strict=True) if d.included) / run.judged)
    assert abs(sum(sigmas)) / math.sqrt(len(sigmas)) < SIGMAS
    assert sum(naive) / len(naive) > 0.65  # the plain mean of the judged calls would say so, of 0.5


def test_the_weighted_mean_is_unbiased_under_budgets_with_bursts() -> None:
    """Both budgets bind, and bursts hold the bad calls: over 25 samples the mean error is within its scatter."""
    sigmas: list[float] = []
    for seed in range(25):
        run = Run(ragtrace.Sampling(rate=0.5, suspicious_rate=1.0, per_minute=60, usd_per_day=60.0), seed)
        values: list[float] = []
        for at in poisson(run.chance, bursts, 200.0, 3 * MINUTE):
            consistency = run.chance.random() * (0.6 if at % MINUTE < 5.0 else 1.0)
            values.append(outcome(run.chance, consistency))
            if run.send(at, consistency).included:
                run.sampler.record_cost(run.chance.lognormvariate(-6.0, 1.0))
        sigmas.append(bias_in_sigmas(run, values))
    assert abs(sum(sigmas)) / math.sqrt(len(sigmas)) < SIGMAS
    assert all(abs(sigma) < SIGMAS for sigma in sigmas)


def test_the_end_of_a_burst_is_sampled_too() -> None:
    """Of 20,000 calls at once the nth has about slack / n: the estimate over all of them is within a third or so."""
    run = Run(ragtrace.Sampling(rate=1.0, per_minute=60), seed=3)
    values = [float(number >= 15_000) for number in range(20_000)]
    for _ in values:
        run.send(0.0)
    spread = math.sqrt(sum((1 - d.probability) / d.probability for d in run.decisions)) / len(values)
    assert spread < 0.4
    assert abs(bias_in_sigmas(run, values)) < SIGMAS
    assert sum(d.probability for d in run.decisions[15_000:]) > 1.0


# --- behind a head sampler -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_share", [0.1, 0.001])
def test_a_head_sampler_in_front_does_not_change_the_share(kept_share: float) -> None:
    """Of 5,000 calls that TraceIdRatioBased keeps, a tenth is evaluated."""
    run, head = Run(ragtrace.Sampling(rate=0.1), seed=5), TraceIdRatioBased(kept_share)
    kept = 0
    while kept < 5_000:
        # Only ids around those that it keeps: of all ids, five million would have to be drawn.
        trace_id = run.chance.getrandbits(64) << 64 | int(run.chance.random() * min(1.0, 2 * kept_share) * 2**64)
        if head.should_sample(None, trace_id, "ask").decision is HeadDecision.RECORD_AND_SAMPLE:
            kept += 1
            run.decisions.append(run.sampler.decide(call(trace_id), None))
    assert abs(run.judged - 500) < SIGMAS * run.scatter


def test_the_share_holds_in_an_application_with_a_head_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same through the whole pipeline: of about 200 kept calls of 2,000, half is evaluated."""
    judge = FakeJudge(GOOD, name="judge")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.1")
    watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=0.5), limits=ragtrace.Limits(capacity=4_000))
    for _ in range(2_000):
        ask("where?")
    assert ragtrace.flush(20)
    tally = ragtrace.stats().evaluators["judge"]
    kept = tally.offered - tally.sampled_out["head_dropped"]
    assert tally.scored + tally.sampled_out["not_sampled"] == kept
    assert 100 < kept < 320
    assert abs(tally.scored - kept / 2) < SIGMAS * math.sqrt(kept / 4)


# --- budgets ---------------------------------------------------------------------------------------------------------


def test_a_budget_of_calls_is_kept_and_used_under_steady_traffic() -> None:
    """Ten times too much for half an hour: 60 a minute within 1 % in the mean, and each minute within a tenth."""
    run = Run(ragtrace.Sampling(rate=0.5, per_minute=60), seed=7)
    minutes = [0.0] * 30
    for at in poisson(run.chance, lambda _: 20.0, 20.0, 30 * MINUTE):
        minutes[int(at // MINUTE)] += run.send(at).probability
    assert sum(minutes[1:]) == pytest.approx(60 * 29, rel=0.01)
    assert all(54 < spent < 66 for spent in minutes[1:])
    assert minutes[0] < 60 + 5 * math.log(1 + SLACK_FACTOR * 600 / 5)
    assert abs(run.judged - run.expected) < SIGMAS * run.scatter


def test_a_budget_of_calls_is_kept_under_bursts() -> None:
    """Minutes of a thousand calls, most within five seconds: never above the budget in the mean after the first."""
    run = Run(ragtrace.Sampling(rate=0.5, per_minute=60), seed=8)
    minutes = [0.0] * 20
    for at in poisson(run.chance, bursts, 200.0, 20 * MINUTE):
        minutes[int(at // MINUTE)] += run.send(at).probability
    assert sum(minutes) < 60 * 20 + 5 * (1 + math.log(1 + SLACK_FACTOR * 500 / 5))
    assert all(40 < spent < 60 + 5 * (1 + math.log(1 + SLACK_FACTOR * 500 / 5)) for spent in minutes)


def test_a_budget_of_money_is_kept_and_used_under_a_daily_cycle() -> None:
    """Two days of traffic that wants fifteen times the money, costs scattered over decades.

    The nights leave some of it: between 88 and 103 % of each day's money is spent.
    """
    run = Run(ragtrace.Sampling(rate=0.5, usd_per_day=5.0), seed=9)
    days = [0.0, 0.0]
    for at in poisson(run.chance, daily, 1.0, 2 * DAY):
        if run.send(at).included:
            cost = run.chance.lognormvariate(math.log(0.002) - 0.5, 1.0)
            run.sampler.record_cost(cost)
            days[int(at // DAY)] += cost
    assert all(4.4 < spent < 5.15 for spent in days)


def test_a_budget_that_is_not_reached_changes_nothing() -> None:
    """At half the budget the rate itself is stored with 99 of 100 calls."""
    run = Run(ragtrace.Sampling(rate=0.1, per_minute=60, usd_per_day=1_000.0), seed=10)
    for at in poisson(run.chance, lambda _: 5.0, 5.0, 20 * MINUTE):
        run.send(at)
        run.sampler.record_cost(0.001)
    untouched = sum(decision.probability == 0.1 for decision in run.decisions)
    assert untouched > 0.99 * len(run.decisions)


def test_replicas_share_a_budget() -> None:
    """Four processes with a quarter each spend what one would."""
    sampling = ragtrace.Sampling(rate=1.0, per_minute=120, replicas=4)
    runs = [Run(sampling, seed) for seed in range(4)]
    for run in runs:
        for at in poisson(run.chance, lambda _: 5.0, 5.0, 20 * MINUTE):
            run.send(at)
    slack = 2.5  # five seconds' worth of a quarter
    first = 4 * slack * math.log(1 + SLACK_FACTOR * 6_000 / slack)
    assert 0.98 * 2_400 < sum(run.expected for run in runs) < 2_400 + first


@given(
    traffic=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1)), min_size=1, max_size=200),
    per_second=st.floats(0.001, 10),
    cost=st.sampled_from([0.0005, 0.05, 1.0]),
)
def test_expected_spending_has_a_bound_over_any_time(
    traffic: list[tuple[float, float]], per_second: float, cost: float
) -> None:
    """At most the budget of that time and slack * (1 + ln(1 + 1.3 d / slack)), whatever comes when."""
    clock = FakeClock()
    budget = Budget(per_second, 5.0, ruled=False, clock=clock)
    slack = max(5.0 * per_second, 2 * cost)
    lowest, spent, wanted = 0.0, 0.0, 0.0
    for gap, rate in traffic:
        clock.advance(gap)
        lowest = min(lowest, spent - per_second * clock.now)
        probability = rate * budget.factor(cost, ruled=False)
        budget.charge(probability, cost, ruled=False)
        spent, wanted = spent + probability * cost, wanted + rate * cost
        ahead = spent - per_second * clock.now - lowest
        assert ahead <= slack * (1 + math.log(1 + SLACK_FACTOR * wanted / slack)) * (1 + 1e-9)


def test_no_probability_is_ever_zero() -> None:
    """Not after 100,000 calls at once against one call a day; and they are asked for a few dozen in the mean."""
    run = Run(ragtrace.Sampling(rate=1.0, usd_per_day=0.05), seed=11)
    for _ in range(100_000):
        run.send(0.0)
    assert min(decision.probability for decision in run.decisions) > 1e-5
    assert run.expected < 2 * math.log(1 + SLACK_FACTOR * 100_000 / 2)


def test_a_cold_start_without_known_costs_spends_little() -> None:
    """A thousand calls before the first judgement is back: some dozen are judged, as if each cost five cents."""
    run = Run(ragtrace.Sampling(rate=1.0, usd_per_day=1.0), seed=12)
    for _ in range(1_000):
        run.send(0.0)
    assert run.expected < 2 * math.log(1 + SLACK_FACTOR * 1_000 / 2)


# --- rules within budgets --------------------------------------------------------------------------------------------


def test_a_rule_keeps_its_calls_while_ordinary_traffic_overruns_the_budget() -> None:
    """Errors take half the budget and ordinary calls would take a hundred times it: every error has probability 1."""
    run = Run(ragtrace.Sampling(rate=1.0, per_minute=60, always=["error"]), seed=13)
    errors: list[float] = []
    for at in poisson(run.chance, lambda _: 100.0, 100.0, 5 * MINUTE):
        failed = run.chance.random() < 0.005
        probability = run.send(at, error="TimeoutError" if failed else None).probability
        errors += [probability] if failed else []
    assert len(errors) > 100
    assert set(errors) == {1.0}
    assert run.expected == pytest.approx(300, rel=0.15)


def test_a_rule_beyond_the_budget_becomes_a_sample() -> None:
    """Errors alone ask for ten times the budget: they share nine tenths of it, ordinary calls have the rest."""
    run = Run(ragtrace.Sampling(rate=0.5, per_minute=60, always=["error"]), seed=14)
    spent = {True: 0.0, False: 0.0}
    for at in poisson(run.chance, lambda _: 20.0, 20.0, 10 * MINUTE):
        failed = run.chance.random() < 0.5
        spent[failed] += run.send(at, error="TimeoutError" if failed else None).probability
    assert spent[True] == pytest.approx(540, rel=0.05)
    assert spent[False] == pytest.approx(60, rel=0.5)
    assert min(accumulate((d.probability for d in run.decisions), min)) > 1e-4
