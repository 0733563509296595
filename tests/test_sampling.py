"""Sampling: which calls the judge sees, and with what probability."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

import ragtrace
from ragtrace.sampling import included
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, HALF, ask, watch

RANDOM = random.Random(1)
TRACES = [RANDOM.getrandbits(128) for _ in range(4_000)]


def share(probability: float, traces: list[int]) -> float:
    return sum(included(trace, probability) for trace in traces) / len(traces)


def test_nothing_and_everything_are_exact() -> None:
    """Probability 0 includes no call and 1 every call."""
    assert (share(0.0, TRACES), share(1.0, TRACES)) == (0.0, 1.0)
    assert included(0, 1.0)
    assert included(2**128 - 1, 1.0)


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_the_share_included_is_the_probability(probability: float) -> None:
    """Within five standard deviations of the binomial."""
    deviation = (probability * (1 - probability) / len(TRACES)) ** 0.5
    assert abs(share(probability, TRACES) - probability) < 5 * deviation


def test_a_higher_probability_includes_what_a_lower_one_does() -> None:
    """Raising the rate never un-judges a call."""
    assert all(included(trace, 0.6) for trace in TRACES if included(trace, 0.3))


def test_the_answer_does_not_depend_on_the_bits_that_a_head_sampler_looks_at() -> None:
    """Among traces that a ratio sampler of 1 % keeps, the share is the same."""
    kept = [trace for trace in TRACES if trace & (2**64 - 1) < 2**64 // 10]
    assert 0.3 < share(0.5, kept) < 0.7
    assert 0.3 < share(0.5, [trace >> 64 for trace in kept]) < 0.7


def test_the_answer_is_the_same_in_every_process() -> None:
    """Hash randomisation of the interpreter has no part in it."""
    program = (
        "import sys; from ragtrace.sampling import included\n"
        "sys.stdout.write(''.join('01'[included(int(word), 0.5)] for word in sys.argv[1:]))"
    )
    chosen = TRACES[:40]
    there = subprocess.run(
        [sys.executable, "-c", program, *map(str, chosen)], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert there == "".join("01"[included(trace, 0.5)] for trace in chosen)


def test_a_suspicious_call_is_likelier() -> None:
    """Below a consistency of 0.5 the other rate holds; unscreened calls are ordinary."""
    sampling = ragtrace.Sampling(rate=0.1, suspicious_rate=0.8)
    found = [sampling.probability(value) for value in (None, 0.0, 0.4999, 0.5, 1.0)]
    assert found == [0.1, 0.8, 0.8, 0.1, 0.1]


def test_without_a_suspicious_rate_all_calls_are_alike() -> None:
    """The ordinary rate holds for all."""
    assert ragtrace.Sampling(rate=0.3).probability(0.0) == 0.3


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
def test_a_wrong_rate_says_so(rates: dict[str, float], said: str) -> None:
    """At once, when the object is made."""
    with pytest.raises(ragtrace.SettingsError, match=said):
        ragtrace.Sampling(**rates)


def test_every_call_is_accounted_for_by_both_evaluators() -> None:
    """Those that the judge does not see are sampled out, and each score carries its probability."""
    screen, judge = FakeJudge(GOOD, name="screen"), FakeJudge(GOOD, name="judge")
    captured = watch(screen=screen, judge=judge, sampling=ragtrace.Sampling(rate=0.5), capacity=200)
    for _ in range(40):
        ask("where?")
    assert ragtrace.flush(10)
    tallies = ragtrace.stats().evaluators
    assert (tallies["screen"].scored, tallies["screen"].offered) == (40, 40)
    assert tallies["judge"].scored + tallies["judge"].sampled_out["not_sampled"] == 40
    assert tallies["judge"].scored == len(judge.calls)
    judged = [root for root in captured.roots() if (root.attributes or {})["ragtrace.eval.evaluator"] == "judge@1"]
    assert {(root.attributes or {})["ragtrace.eval.probability"] for root in judged} <= {0.5}
    assert len(judged) == len(judge.calls)


def test_a_suspicious_screen_score_decides_the_probability() -> None:
    """The screen's consistency of 0.25 raises the rate to 1, and that is what is stored."""
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(
        screen=FakeJudge(HALF, name="screen"), judge=judge, sampling=ragtrace.Sampling(rate=0.0, suspicious_rate=1.0)
    )
    ask("where?")
    assert ragtrace.flush()
    assert len(judge.calls) == 1
    assert (captured.root().attributes or {})["ragtrace.eval.probability"] == 1.0
