"""Sampling in a configured ragtrace: what is decided is in the accounts, on the span and in the log."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

import ragtrace
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, HALF, ask, watch

BASELINE = ragtrace.types.Baseline.of([0.5, 0.9], evaluator="screen@1", workflow="guide")


def test_every_call_is_accounted_for_by_both_evaluators() -> None:
    """Those that the judge does not see are sampled out, and each score carries its probability."""
    screen, judge = FakeJudge(GOOD, name="screen"), FakeJudge(GOOD, name="judge")
    captured = watch(
        screen=screen, judge=judge, sampling=ragtrace.Sampling(rate=0.5), limits=ragtrace.Limits(capacity=200)
    )
    for number in range(40):
        ask(f"where? {number}")
    assert ragtrace.flush(10)
    tallies = ragtrace.stats().evaluators
    assert (tallies["screen"].scored, tallies["screen"].offered) == (40, 40)
    assert tallies["judge"].scored + tallies["judge"].sampled_out["not_sampled"] == 40
    assert tallies["judge"].scored == len(judge.calls)
    judged = [root for root in captured.roots() if (root.attributes or {})["ragtrace.eval.evaluator"] == "judge@1"]
    assert {(root.attributes or {})["ragtrace.eval.probability"] for root in judged} <= {0.5}
    assert len(judged) == len(judge.calls)


def test_a_suspicious_screen_score_decides_the_probability() -> None:
    """A consistency of 0.25, where it used to be 0.5, raises the rate to 1, and that is what is stored."""
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(
        screen=FakeJudge(HALF, name="screen"),
        judge=judge,
        sampling=ragtrace.Sampling(rate=0.0, suspicious_rate=1.0),
        baseline=BASELINE,
    )
    ask("where?")
    assert ragtrace.flush()
    assert len(judge.calls) == 1
    assert (captured.root().attributes or {})["ragtrace.eval.probability"] == 1.0


def test_rules_are_in_the_accounts_and_on_the_span() -> None:
    """A call that nobody looked at says with what probability, and why."""
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0, never=[lambda call: True]))
    ask("where?")
    assert ragtrace.flush()
    assert ragtrace.stats().evaluators["judge"].sampled_out == {"never_rule": 1}
    attributes = captured.root().attributes or {}
    assert (attributes["ragtrace.eval.status"], attributes["ragtrace.eval.probability"]) == ("not_sampled", 0.0)
    assert attributes["ragtrace.reason"] == "never_rule"
    assert not judge.calls


def test_the_screens_own_scores_keep_their_own_probability() -> None:
    """The judge did not look at the call, but the screen looks at all."""
    captured = watch(
        screen=FakeJudge(GOOD, name="screen"),
        judge=FakeJudge(GOOD, name="judge"),
        sampling=ragtrace.Sampling(rate=0.0),
    )
    ask("where?")
    assert ragtrace.flush()
    attributes = captured.root().attributes or {}
    assert (attributes["ragtrace.eval.status"], attributes["ragtrace.eval.probability"]) == ("ok", 1.0)
    assert "ragtrace.reason" not in attributes


def test_a_budget_that_is_used_up_is_in_the_accounts() -> None:
    """What the judge does not see is sampled out, for one of two reasons; nothing is dropped."""
    watch(
        screen=None,
        judge=FakeJudge(GOOD, name="judge"),
        sampling=ragtrace.Sampling(rate=1.0, per_minute=0.01),
        limits=ragtrace.Limits(capacity=400),
    )
    for _ in range(200):
        ask("where?")
    assert ragtrace.flush(10)
    tally = ragtrace.stats().evaluators["judge"]
    assert set(tally.sampled_out) == {"budget"}
    assert tally.scored + tally.sampled_out["budget"] == tally.offered == 200
    assert 0 < tally.scored < 40


def test_what_the_judge_reports_as_its_cost_is_counted() -> None:
    """One judgement takes the money of a day: of calls at once, few are judged."""
    judge = FakeJudge(replace(GOOD, cost_usd=5.0), name="judge")
    captured = watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0, usd_per_day=5.0))
    for _ in range(30):
        ask("where?")
        assert ragtrace.flush()
    assert 1 <= len(judge.calls) < 15
    chances = [float(str((root.attributes or {})["ragtrace.eval.probability"])) for root in captured.roots()]
    assert min(chances) < 0.2


def test_a_budget_without_a_known_price_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """After three judgements: each counts as a guess, and the line shows how to write the price."""
    faults.clear()
    judge = FakeJudge(GOOD, name="judge")
    watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0, usd_per_day=1e6))
    for number in range(5):
        assert len([record for record in caplog.records if "usd_per_day=" in record.getMessage()]) == (number >= 3)
        ask(f"where? {number}")
        assert ragtrace.flush()
    assert "price=Price(input=" in caplog.text
    assert "counted as $0.05" in caplog.text


def test_a_budget_with_a_known_price_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """The judge says what each judgement cost."""
    faults.clear()
    judge = FakeJudge(replace(GOOD, cost_usd=0.001), name="judge")
    watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0, usd_per_day=1e6))
    for number in range(5):
        ask(f"where? {number}")
        assert ragtrace.flush()
    assert "usd_per_day" not in caplog.text


def test_the_screen_computes_what_suspicion_looks_at() -> None:
    """Also where only other metrics are wanted: else a suspicious rate would never come into play."""
    judge = FakeJudge(GOOD, name="judge")
    sampling = ragtrace.Sampling(rate=0.0, suspicious_rate=1.0)
    screen = FakeJudge(HALF, name="screen")
    watch(screen=screen, judge=judge, metrics=["faithfulness"], sampling=sampling, baseline=BASELINE)
    ask("where?")
    assert ragtrace.flush()
    assert len(judge.calls) == 1


def test_before_there_is_a_baseline_no_call_is_suspicious() -> None:
    """However low the screen's score is: what is low is not known yet."""
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(
        screen=FakeJudge(HALF, name="screen"), judge=judge, sampling=ragtrace.Sampling(rate=0.0, suspicious_rate=1.0)
    )
    ask("where?")
    assert ragtrace.flush()
    assert not judge.calls
    assert (captured.root().attributes or {})["ragtrace.eval.suspicious.reason"] == "no_baseline"


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (ragtrace.Sampling(suspicious_rate=0.5), "suspicious_rate= has no effect"),
        (ragtrace.Sampling(always=["abstained"]), "the rule 'abstained' has no effect"),
    ],
)
def test_what_waits_in_vain_for_a_screen_is_said(
    sampling: ragtrace.Sampling, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A rate that never comes into play is no silent matter."""
    with caplog.at_level(logging.WARNING, "ragtrace"):
        watch(screen=None, judge=FakeJudge(GOOD), sampling=sampling)
    assert said in caplog.text
