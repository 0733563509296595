"""Alerts on a decision judge's raw scores are as quick as stated: a part of `benchmarks/decision_alerts.py`."""

from __future__ import annotations

import pytest

from tests.support.decision_alerts import alarm_calls, calibrated_alarm_calls
from tests.support.decision_populations import Decider

STREAMS = 200


@pytest.mark.parametrize(
    ("auroc", "after", "calls"),
    [
        (0.92, 0.25, 110),
        (0.92, 0.15, 300),
        (0.92, 0.1, 950),
        (0.85, 0.25, 210),
        (0.85, 0.15, 520),
        (0.85, 0.1, 2_000),
    ],
)
def test_a_rise_from_5_percent_is_seen_without_labels(auroc: float, after: float, calls: int) -> None:
    """Mean calls of the traffic until the alarm, over 200 baselines of 2,000 calls each."""
    assert alarm_calls(Decider(auroc), 0.05, after, streams=STREAMS).mean() <= calls


@pytest.mark.parametrize("auroc", [0.85, 0.92])
def test_unchanged_traffic_raises_few_alarms(auroc: float) -> None:
    """10,000 calls in the mean, over all baselines that might have been learned; streams are cut at 25,000."""
    assert alarm_calls(Decider(auroc), 0.05, 0.05, streams=100, most=25_000).mean() >= 10_000


def test_a_fixed_bound_on_calibrated_probabilities_holds() -> None:
    """With 500 labels, a rate at the bound raises an alarm after 10,000 calls or more, 5 -> 15 % within 700."""
    judge = Decider(0.92)
    assert calibrated_alarm_calls(judge, 0.05, 0.05, streams=60, most=15_000).mean() >= 10_000
    assert calibrated_alarm_calls(judge, 0.05, 0.15, streams=60).mean() <= 700
