"""The outcomes of guards: their counts, and the exception that carries a notice."""

from __future__ import annotations

import pickle

from ragtrace.guard.outcomes import GuardBlocked, GuardCounts, GuardNotice

NOTICE = GuardNotice("fail", "faithfulness", 0.25, 0.5, None, "", "support", "0" * 32, 12.0)


def test_a_blocked_answer_says_why() -> None:
    """In one line, with the notice for the application; and it survives a pickle, as worker processes send it."""
    blocked = GuardBlocked(NOTICE)
    assert str(blocked) == "the guard of 'support' blocked an answer (fail: faithfulness is 0.25)"
    assert pickle.loads(pickle.dumps(blocked)).notice == NOTICE


def test_verdicts_and_actions_add_up_to_the_answers() -> None:
    """By workflow, whatever the metric and the mode."""
    counts = GuardCounts()
    counts.add("a", "faithfulness", "raise", "fail", "raised")
    counts.add("a", "faithfulness", "raise", "pass", "none")
    counts.add("a", "answered", "shadow", "fail", "none")
    counts.add("b", "faithfulness", "raise", "timeout", "released")
    tallies = counts.tallies()
    assert (tallies["a"].verdicts, tallies["a"].actions) == ({"fail": 2, "pass": 1}, {"raised": 1, "none": 2})
    assert [tally.calls for tally in tallies.values()] == [3, 1]
    assert sum(row.calls for row in counts.rows()) == 4


def test_the_time_added_is_that_of_the_latest_thousand_answers() -> None:
    """Median and 95th percentile in milliseconds; an answer that nobody waited for counts in neither."""
    counts = GuardCounts()
    for number in range(2_000):
        counts.add("a", "faithfulness", "raise", "pass", "none", 9.0 if number < 1_000 else (number - 1_000) / 1_000)
    counts.add("a", "faithfulness", "raise", "unscored", "none", None)
    counts.add("b", "faithfulness", "raise", "unscored", "none", None)
    tallies = counts.tallies()
    assert (tallies["a"].added_p50_ms, tallies["a"].added_p95_ms) == (500.0, 950.0)
    assert tallies["b"].added_p50_ms is None
