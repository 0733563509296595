"""The ends of calls: each reason of a drop or a failure has one, with the outcome that it is counted as."""

from __future__ import annotations

from typing import get_args

from ragtrace.core import semconv
from ragtrace.core.unscored_reasons import REASONS_OF_CALLS
from ragtrace.pipeline.call_ends import ENDS, EndReason

OF_THE_SAMPLER = frozenset("not_sampled budget overload never_rule".split())
"""Reasons for which the judge alone does not see a call."""


def test_each_reason_of_a_call_without_scores_has_an_end() -> None:
    """The outcome is the one under which the reason is documented, and no other reason is in the table."""
    expected = {reason: outcome for outcome, reasons in REASONS_OF_CALLS.items() for reason in reasons}
    assert {end.reason: end.outcome for end in ENDS.values()} == {
        reason: outcome for reason, outcome in expected.items() if reason not in OF_THE_SAMPLER
    }


def test_each_reason_that_the_types_allow_has_an_end() -> None:
    """So that no look-up in the table raises."""
    assert set(get_args(EndReason)) == set(ENDS)


def test_a_dropped_call_shows_its_reason_and_no_texts() -> None:
    """Any other status says what happened, or has texts that were read and redacted."""
    for end in ENDS.values():
        assert end.is_prepared == (end.status != semconv.STATUS_DROPPED)
        assert end.reason_on_span == ("" if end.is_prepared and end.reason != "redaction" else end.reason)
