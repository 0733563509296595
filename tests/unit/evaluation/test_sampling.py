"""Sampling: the decision about one call, by rates, rules and budgets."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.trace import SpanContext

import ragtrace
from ragtrace.core.types import (
    CALIBRATED,
    CALIBRATED_PROBABILITY,
    CALIBRATION,
    UNCALIBRATED,
    Document,
    Evaluation,
    RagCall,
    Result,
    SamplingDecision,
    Score,
    Unscored,
)
from ragtrace.evaluation.sampling import JudgementCosts, QueueLoad, Sampler, is_sampled
from ragtrace.system.faults import faults
from ragtrace.testing import FakeClock
from tests.support.logged import logged

RANDOM = random.Random(1)
TRACES = [RANDOM.getrandbits(128) for _ in range(4_000)]


CALL = RagCall("q", (Document("text"),), "a", span=SpanContext(TRACES[0], 1, is_remote=False))
NEVER, ALWAYS = SamplingDecision(False, 0.0, "never_rule"), SamplingDecision(True, 1.0, "always_rule")


def screened(**results: Result) -> Evaluation:
    return Evaluation("screen", "1", "deterministic", results)


def broken(call: RagCall) -> bool:
    raise RuntimeError("a rule of the user's")


async def forgetful(call: RagCall) -> bool:
    return False


def share(probability: float, traces: list[int]) -> float:
    return sum(is_sampled(trace, probability) for trace in traces) / len(traces)


def test_nothing_and_everything_are_exact() -> None:
    """Probability 0 includes no call and 1 every call."""
    assert (share(0.0, TRACES), share(1.0, TRACES)) == (0.0, 1.0)
    assert is_sampled(0, 1.0)
    assert is_sampled(2**128 - 1, 1.0)


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_the_share_included_is_the_probability(probability: float) -> None:
    """Within five standard deviations of the binomial."""
    deviation = (probability * (1 - probability) / len(TRACES)) ** 0.5
    assert abs(share(probability, TRACES) - probability) < 5 * deviation


def test_a_higher_probability_includes_what_a_lower_one_does() -> None:
    """Raising the rate never un-judges a call."""
    assert all(is_sampled(trace, 0.6) for trace in TRACES if is_sampled(trace, 0.3))


def test_the_answer_does_not_depend_on_the_bits_that_a_head_sampler_looks_at() -> None:
    """Among traces that a ratio sampler of 1 % keeps, the share is the same."""
    kept = [trace for trace in TRACES if trace & (2**64 - 1) < 2**64 // 10]
    assert 0.3 < share(0.5, kept) < 0.7
    assert 0.3 < share(0.5, [trace >> 64 for trace in kept]) < 0.7


def test_the_answer_is_the_same_in_every_process() -> None:
    """Hash randomisation of the interpreter has no part in it."""
    program = (
        "import sys; from ragtrace.evaluation.sampling import is_sampled\n"
        "sys.stdout.write(''.join('01'[is_sampled(int(word), 0.5)] for word in sys.argv[1:]))"
    )
    chosen = TRACES[:40]
    there = subprocess.run(
        [sys.executable, "-c", program, *map(str, chosen)], capture_output=True, text=True, timeout=240, check=True
    ).stdout
    assert there == "".join("01"[is_sampled(trace, 0.5)] for trace in chosen)


def test_a_suspicious_call_is_likelier() -> None:
    """Calls that the screen's metric `suspicious` marks have the other rate; without a baseline none is marked."""
    sampler = Sampler(ragtrace.Sampling(rate=0.1, suspicious_rate=0.8))
    results = Score(1.0), Score(0.0), Unscored("no_baseline"), None
    screens = [screened() if result is None else screened(suspicious=result) for result in results]
    found = [sampler.decide(CALL, screen).probability for screen in (*screens, None)]
    assert found == [0.8, 0.1, 0.1, 0.1, 0.1]


def test_without_a_suspicious_rate_all_calls_are_alike() -> None:
    """The ordinary rate holds for all."""
    assert ragtrace.Sampling(rate=0.3).probability(suspicious=True) == 0.3


def test_a_rate_given_as_text_becomes_a_number() -> None:
    """As it comes out of a configuration file; nothing may fail later on it."""
    sampling = ragtrace.Sampling(rate="0.25", suspicious_rate="1")  # type: ignore[arg-type]
    assert (sampling.rate, sampling.suspicious_rate) == (0.25, 1.0)


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({"rate": -0.1}, r"rate must be between 0 and 1, got -0\.1"),
        ({"rate": True}, "True"),
        ({"rate": None}, "None"),
        ({"rate": float("nan")}, "nan"),
        ({"suspicious_rate": 20}, r"suspicious_rate must be between 0 and 1.*for 20% write 0\.2"),
        ({"rate": 0.5, "suspicious_rate": 0.1}, "suspicious_rate must be at least rate"),
    ],
)
def test_a_wrong_rate_says_so(rates: dict[str, Any], said: str) -> None:
    """At once, when the object is made."""
    with pytest.raises(ragtrace.SettingsError, match=said):
        ragtrace.Sampling(**rates)


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "call", "screen"),
    [
        ("error", replace(CALL, error="ValueError"), None),
        ("no_contexts", replace(CALL, contexts=()), None),
        ("no_contexts", replace(CALL, contexts=(Document(" "),)), None),
        ("contexts_missing", replace(CALL, contexts=None), None),
        ("abstained", CALL, screened(answered=Score(0.0, label="abstained"))),
        ("abstained", CALL, screened(consistency=Unscored("abstained"))),
        ("abandoned", replace(CALL, abandoned=True), None),
        ("truncated", replace(CALL, cut_chars=7), None),
    ],
)
def test_a_condition_decides_in_both_directions(rule: str, call: RagCall, screen: Evaluation | None) -> None:
    """It gives probability 1 or 0 to the calls that it is about, and leaves others alone."""
    wants = Sampler(ragtrace.Sampling(rate=0.0, always=[rule]))
    refuses = Sampler(ragtrace.Sampling(rate=1.0, never=[rule]))
    assert (wants.decide(call, screen), refuses.decide(call, screen)) == (ALWAYS, NEVER)
    assert wants.decide(CALL, screened(answered=Score(1.0, label="answered"))).probability == 0.0
    assert refuses.decide(CALL, screened(answered=Score(1.0, label="answered"))).probability == 1.0


def test_a_function_of_the_user_is_a_rule() -> None:
    """It sees the call; alone it needs no list."""
    sampler = Sampler(ragtrace.Sampling(rate=0.0, always=lambda call: call.workflow == "checkout"))  # type: ignore[arg-type]
    assert sampler.decide(replace(CALL, workflow="checkout"), None) == ALWAYS
    assert not sampler.decide(CALL, None).included


@pytest.mark.parametrize(
    ("rule", "tags"),
    [("tenant=acme", {"tenant": "acme"}), ("beta=true", {"beta": True}), ("version=2", {"version": 2})],
)
def test_a_tag_is_a_rule(rule: str, tags: dict[str, Any]) -> None:
    """Its value is compared as text; a call without the tag, or with another value of it, does not match."""
    always, never = Sampler(ragtrace.Sampling(rate=0, always=[rule])), Sampler(ragtrace.Sampling(rate=1, never=rule))
    assert always.decide(replace(CALL, tags=tags), None) == ALWAYS
    assert never.decide(replace(CALL, tags=tags), None) == NEVER
    for other in ({}, dict.fromkeys(tags, "other")):
        assert always.decide(replace(CALL, tags=other), None).probability == 0.0
        assert never.decide(replace(CALL, tags=other), None).probability == 1.0


def test_a_tag_has_a_rate_of_its_own() -> None:
    """The first that a call has; a suspicious call has at least the suspicious rate; `least` is the lowest of all."""
    sampling = ragtrace.Sampling(rate=0.2, suspicious_rate=0.3, rates={"tenant=acme": 0.05, "plan=free": 0.5})
    decide = Sampler(sampling).decide
    both, suspicious = {"plan": "free", "tenant": "acme"}, screened(suspicious=Score(1.0))
    assert [decide(replace(CALL, tags=tags), None).probability for tags in ({}, {"plan": "free"}, both)] == [
        0.2,
        0.5,
        0.05,
    ]
    assert decide(replace(CALL, tags=both), suspicious).probability == 0.3
    assert decide(replace(CALL, tags={"plan": "free"}), suspicious).probability == 0.5
    assert decide(CALL, None).least == 0.05


def test_a_guarded_call_is_judged_like_one_of_a_rule() -> None:
    """With probability 1; once calls are sampled, too, alerts know the least probability that any call had."""
    sampler = Sampler(ragtrace.Sampling(rate=0.05))
    decision = sampler.decide_guarded()
    assert (decision, decision.least) == (ALWAYS, 1.0)
    sampler.decide(CALL, None)
    assert sampler.decide_guarded().least == 0.05


def test_guarded_calls_are_charged_to_the_budget() -> None:
    """So that other calls are judged more rarely."""
    clock = FakeClock()
    sampler = Sampler(ragtrace.Sampling(rate=1.0, per_minute=60), clock)
    for _ in range(1_000):
        assert sampler.decide_guarded().included
    assert sampler.decide(CALL, None).probability < 0.5


def test_never_goes_before_always() -> None:
    """A call that both match is not judged."""
    sampler = Sampler(ragtrace.Sampling(always=["abandoned"], never=["abandoned"]))
    assert sampler.decide(replace(CALL, abandoned=True), None) == NEVER


def test_a_rule_that_raises_does_not_match() -> None:
    """It is counted as a fault; the rates and the other rules hold."""
    faults.clear()
    sampler = Sampler(ragtrace.Sampling(rate=0.0, never=[broken], always=[broken, "truncated"]))
    assert sampler.decide(CALL, None) == SamplingDecision(False, 0.0, "not_sampled")
    assert sampler.decide(replace(CALL, cut_chars=1), None) == ALWAYS
    assert faults.counts() == {"a sampling rule": 4}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"always": ["errors"]}, "no condition named 'errors'.*did you mean 'error'"),
        ({"never": "abstain"}, "did you mean 'abstained'"),
        ({"never": [3]}, "neither a condition nor a function.*write for instance never="),
        ({"always": None}, "always must be a list of conditions, got None"),
        ({"always": [forgetful]}, "write a plain function"),
        ({"per_minute": 0}, r"per_minute must be above 0, got 0 .*leave it out for no limit"),
        ({"usd_per_day": -5}, "usd_per_day must be above 0"),
        ({"usd_per_day": "a lot"}, "expected a number, got 'a lot'"),
        ({"replicas": 0}, "replicas must be a whole number of at least 1, got 0"),
        ({"replicas": 1.5}, "replicas must be a whole number"),
    ],
)
def test_a_wrong_rule_or_budget_says_so(arguments: dict[str, Any], said: str) -> None:
    """At once, with what to write instead."""
    with pytest.raises(ragtrace.SettingsError, match=said):
        ragtrace.Sampling(**arguments)


# --- budgets ---------------------------------------------------------------------------------------------------------


def test_the_number_of_replicas_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument goes before it."""
    monkeypatch.setenv("RAGTRACE_REPLICAS", "8")
    assert (ragtrace.Sampling().replicas, ragtrace.Sampling(replicas=2).replicas) == (8, 2)


def test_a_wrong_number_of_replicas_in_the_environment_stops_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name of the variable."""
    monkeypatch.setenv("RAGTRACE_REPLICAS", "many")
    with pytest.raises(ragtrace.SettingsError, match="got 'many' \\(from RAGTRACE_REPLICAS\\)"):
        ragtrace.configure(exporter="none")


def test_a_refusal_brings_nothing_back() -> None:
    """With the clock standing still, probabilities only fall, whatever is decided; a `never` changes nothing."""
    sampler = Sampler(ragtrace.Sampling(rate=0.5, per_minute=30, never=["abandoned"]), FakeClock())
    found: list[float] = []
    for trace in TRACES[:500]:
        call = replace(CALL, span=SpanContext(trace, 1, is_remote=False))
        found.append(sampler.decide(call, None).probability)
        sampler.decide(replace(call, abandoned=True), None)
    assert found == sorted(found, reverse=True)
    assert found[0] == 0.5
    assert 0 < found[-1] < 0.05


def test_what_the_budget_took_away_is_told_from_what_chance_did() -> None:
    """`budget` if the rate alone would have included the call."""
    sampler = Sampler(ragtrace.Sampling(rate=0.5, per_minute=30), FakeClock())
    for trace in TRACES:
        decision = sampler.decide(replace(CALL, span=SpanContext(trace, 1, is_remote=False)), None)
        expected = "sampled" if decision.included else "budget" if is_sampled(trace, 0.5) else "not_sampled"
        assert decision.reason == expected
        assert decision.included == is_sampled(trace, decision.probability)


@pytest.mark.parametrize(("per_minute", "expected"), [(None, "overload"), (100_000, "overload"), (1, "budget")])
def test_what_a_full_queue_took_away_is_told_from_what_a_budget_did(per_minute: float | None, expected: str) -> None:
    """`overload` where the queue of the fleet lowers the probability more: no budget could be raised to change it."""
    sampler = Sampler(ragtrace.Sampling(rate=0.5, per_minute=per_minute), FakeClock())
    sampler.queue_load = QueueLoad(100)
    sampler.queue_load.depth = 50
    for number, trace in enumerate(TRACES):
        decision = sampler.decide(replace(CALL, span=SpanContext(trace, 1, is_remote=False)), None)
        if number > 100 and not decision.included:  # a budget lowers the first calls less
            assert decision.reason == (expected if is_sampled(trace, 0.5) else "not_sampled")


def test_time_brings_the_budget_back() -> None:
    """After a burst the rate returns within its slack times the logarithm of the overload, as the clock goes."""
    clock = FakeClock()
    sampler = Sampler(ragtrace.Sampling(rate=1.0, per_minute=60), clock)
    for _ in range(1_000):
        sampler.decide(CALL, None)
    assert sampler.decide(CALL, None).probability < 0.01
    clock.advance(40)
    assert sampler.decide(CALL, None).probability == 1.0


def test_a_clock_that_goes_back_takes_nothing_and_gives_nothing() -> None:
    """Time that was already paid for is not paid twice."""
    clock = FakeClock(100.0)
    sampler = Sampler(ragtrace.Sampling(rate=1.0, per_minute=60), clock)
    for _ in range(100):
        before = sampler.decide(CALL, None).probability
    clock.advance(-50)
    after = sampler.decide(CALL, None).probability
    clock.advance(50)
    assert before > after > sampler.decide(CALL, None).probability


def test_a_forked_child_starts_its_own_share_and_knows_what_a_judgement_costs() -> None:
    """What the parent had spent ahead is not the child's."""
    sampling, costs = ragtrace.Sampling(rate=1.0, usd_per_day=1.0), JudgementCosts()
    parents = Sampler(sampling, FakeClock(), costs)
    for _ in range(100):
        parents.record_cost(0.5)
        parents.decide(CALL, None)
    before = parents.decide(CALL, None).probability
    childs = Sampler(sampling, FakeClock(), costs)
    assert before < childs.decide(CALL, None).probability == 1.0
    assert costs.mean == pytest.approx(0.5, rel=0.1)


def probability_after(*costs: Any) -> float:
    """Of the 50th call at once under a dollar a day, after judgements at *costs*."""
    sampler = Sampler(ragtrace.Sampling(rate=1.0, usd_per_day=1.0), FakeClock())
    for cost in costs:
        sampler.record_cost(cost)
    for _ in range(49):
        sampler.decide(CALL, None)
    return sampler.decide(CALL, None).probability


def test_dear_judgements_lower_the_rate() -> None:
    """Costs are learned from the judge."""
    assert probability_after(*[0.00001] * 20) > 0.8
    assert probability_after(*[0.01] * 20) < 0.1


def test_one_free_judgement_does_not_open_the_gates() -> None:
    """A cached one says little about the next."""
    assert probability_after(0.0) < 0.5


@pytest.mark.parametrize("cost", [None, float("nan"), -1.0, float("inf"), "a dollar", True, 10**400])
def test_a_cost_that_is_none_is_not_learned_from(cost: object, caplog: pytest.LogCaptureFixture) -> None:
    """The guess stands, and after three of them it is said once, with the line to write."""
    faults.clear()
    assert probability_after(*[cost] * 2) == probability_after()
    assert logged(caplog) == []
    assert probability_after(*[cost] * 60) == probability_after()
    [message] = logged(caplog)
    assert "price=Price(" in message
    assert faults.counts() == {}


def test_a_call_without_a_trace_is_left_to_chance() -> None:
    """There is no id to hash: the rate holds all the same."""
    sampler = Sampler(ragtrace.Sampling(rate=0.5))
    assert 40 < sum(sampler.decide(replace(CALL, span=None), None).included for _ in range(200)) < 160


def raw_score(value: float, **attributes: Any) -> Evaluation:
    """Evaluation of a decision model as screen."""
    known = {CALIBRATION: UNCALIBRATED, **attributes}
    return screened(hallucinated=Score(value, "hallucinated", higher_is_better=False, attributes=known))


def test_a_decision_model_as_screen_sends_its_doubts_to_the_judge() -> None:
    """Half alike and half by sqrt(g (1 - g)) relative to earlier calls; a calibrated g goes before a raw one."""
    sampler = Sampler(ragtrace.Sampling(rate=0.2))
    assert sampler.decide(CALL, raw_score(0.5)).probability == pytest.approx(0.2)  # nothing is known before it
    sure, least = sampler.decide(CALL, raw_score(0.001)).probability, sampler.decide(CALL, raw_score(0.5)).least
    assert least == pytest.approx(0.1)
    assert least < sure < 0.11
    assert sampler.decide(CALL, raw_score(0.5)).probability > 0.2
    calibrated = raw_score(0.5, **{CALIBRATION: CALIBRATED, CALIBRATED_PROBABILITY: 0.001})
    assert sampler.decide(CALL, calibrated).probability < 0.15


def test_the_mean_probability_of_doubtful_and_sure_calls_is_the_rate() -> None:
    """Over a thousand calls of any scores; no call had less than half of the rate."""
    sampler, rng = Sampler(ragtrace.Sampling(rate=0.2)), random.Random(4)
    decided = [sampler.decide(CALL, raw_score(rng.random() ** 3)) for _ in range(1_000)]
    assert sum(each.probability for each in decided) / 1_000 == pytest.approx(0.2, rel=0.05)
    assert min(each.probability for each in decided) >= 0.1


def test_calls_that_the_decision_model_could_not_score_keep_the_rate() -> None:
    """Their evidence for alerts counts by the least probability that other calls had."""
    sampler = Sampler(ragtrace.Sampling(rate=0.2))
    sampler.decide(CALL, raw_score(0.5))
    decision = sampler.decide(CALL, screened(hallucinated=Unscored("refused")))
    assert (decision.probability, decision.least) == (0.2, 0.1)
