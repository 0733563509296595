"""The alarm for a judge that errs more often on canaries: soon after a fall, and rarely without one."""

from __future__ import annotations

import json
from itertools import count
from statistics import mean

import pytest

from ragtrace.alerts.canary_drift import AgreementMonitor
from tests.benchmarks.canary_drift import fall_delays, fall_table
from tests.support.canary_judges import LESS_SENSITIVE, USUAL, CanaryStream, ErrorRates


def delays(before: int, streams: int, canaries: int | None = None) -> list[int]:
    """Judgements until the alarm after a fall of the sensitivity from 0.9 to 0.6, in streams without a false alarm."""
    found: list[int] = []
    for seed in count():
        stream = CanaryStream(seed, canaries)
        if stream.run(USUAL, before) == 0:
            found.append(stream.judgements_until_alarm(LESS_SENSITIVE, 2_000))
        if len(found) == streams:
            return found
    raise AssertionError("unreachable")


@pytest.mark.parametrize("canaries", [None, 30])
@pytest.mark.parametrize(("before", "most"), [(250, 150), (1_000, 100)])
def test_a_fall_of_the_sensitivity_is_detected_soon(before: int, most: int, canaries: int | None) -> None:
    """Within 150 canary judgements in the mean, whether a canary is always judged alike or not."""
    assert mean(delays(before, 60, canaries)) < most


@pytest.mark.parametrize(
    ("sensitivity", "before", "least", "most"),
    [(0.75, 200, 0.3, 0.65), (0.75, 1_000, 0.8, 1.0), (0.85, 200, 0.0, 0.2), (0.85, 1_000, 0.0, 0.3)],
)
def test_how_many_falls_are_seen_depends_on_their_size(
    sensitivity: float, before: int, least: float, most: float
) -> None:
    """Within 500 canary judgements, of falls from 0.9: the docs have these shares, of more streams."""
    found = fall_delays(ErrorRates(1 - sensitivity, USUAL.good), before, 40)
    assert least <= sum(delay is not None and delay <= 500 for delay in found) / len(found) <= most


def test_the_table_of_falls_begins_with_the_false_alarms() -> None:
    """A judge that stays as it is has the first row, and each fall one of its own."""
    lines = fall_table(1)
    next(lines)
    head, _, row = (next(lines).strip("|").split("|") for _ in range(3))
    assert [cell.strip() for cell in head] == [
        "fall",
        *(f"after {before}" for before in ("100", "200", "500", "1,000", "3,000")),
    ]
    assert row[0].strip() == "none (a false alarm)"
    assert len(row) == len(head)


@pytest.mark.parametrize("rates", [USUAL, ErrorRates(0.3, 0.02), ErrorRates(0.02, 0.3), ErrorRates(0.5, 0.5)])
def test_false_alarms_are_rare(rates: ErrorRates) -> None:
    """At most one in 10,000 canary judgements, in the mean, whatever the judge's error rates are."""
    assert CanaryStream(1).run(rates, 100_000) <= 10


def test_an_alarm_names_what_was_usual_and_ends_with_the_fall() -> None:
    """Which label, the agreement before; the alarm is over when the agreement is back, and not before."""
    stream = CanaryStream(5)
    stream.run(USUAL, 1_000)
    stream.judgements_until_alarm(LESS_SENSITIVE, 1_000)
    assert stream.drift is not None
    assert stream.drift.label == "bad"
    assert stream.drift.usual.agreement == pytest.approx(0.9, abs=0.05)
    for _ in range(1_000):
        stream.judge(LESS_SENSITIVE)
    assert stream.monitor.drift is not None
    for _ in range(1_000):
        stream.judge(USUAL)
    assert stream.monitor.drift is None


def test_a_stored_monitor_goes_on_as_if_it_had_never_been_stored() -> None:
    """Also through JSON, and in the middle of an alarm."""
    stream = CanaryStream(5)
    for rates, number in ((USUAL, 500), (LESS_SENSITIVE, 300)):
        for _ in range(number):
            stream.judge(rates)
        assert AgreementMonitor.decode(json.loads(json.dumps(stream.monitor.encode()))) == stream.monitor
    assert stream.monitor.drift is not None
