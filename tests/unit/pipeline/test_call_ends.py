"""The ends of calls: each reason of a drop or a failure has one, with the outcome that it is counted as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from ragtrace.core import semconv
from ragtrace.core.types import Evaluation, Score, Unscored
from ragtrace.core.unscored_reasons import REASONS_OF_CALLS
from ragtrace.pipeline.call_ends import (
    ENDS,
    HANDED_OVER,
    REDACTION_FAILED,
    SCORING_RAISED,
    SPOOLED,
    CallEnd,
    EndReason,
    ReasonIfAny,
    SpanStatus,
    status_on_span,
)

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
    said = {"redaction", "cancelled"}
    for end in ENDS.values():
        assert end.is_prepared == (end.status != semconv.STATUS_DROPPED)
        assert end.reason_on_span == ("" if end.is_prepared and end.reason not in said else end.reason)


SCORED = Evaluation("screen", "1", "code", {"consistency": Score(1.0)})
FAILED = Evaluation("screen", "1", "code", {"consistency": Unscored("refused")})
SHOWN: Mapping[str, tuple[ReasonIfAny, CallEnd | None, list[Evaluation], SpanStatus]] = {
    "scored": ("", None, [SCORED], SpanStatus("ok", "")),
    "not scored by one": ("", None, [SCORED, FAILED], SpanStatus("partial", "")),
    "nobody was to score it": ("", None, [], SpanStatus("not_sampled", "")),
    "it ended without scores": ("", REDACTION_FAILED, [], SpanStatus("error", "redaction")),
    "its scoring raised once it had scores": ("", SCORING_RAISED, [SCORED], SpanStatus("error", "")),
    "handed over": ("", HANDED_OVER, [SCORED], SpanStatus("handed_over", "")),
    "no place at the judge": ("queue_full", None, [], SpanStatus("dropped", "queue_full")),
    "no place at the judge, no screen": ("queue_full", None, [FAILED], SpanStatus("dropped", "queue_full")),
    "no place at the judge, screened": ("queue_full", None, [SCORED], SpanStatus("partial", "queue_full")),
    "dropped, and scored by one": ("shutdown", None, [SCORED], SpanStatus("dropped", "shutdown")),
    "dropped while it ended otherwise": ("not_spooled", SPOOLED, [SCORED], SpanStatus("dropped", "not_spooled")),
    "in the spool file": ("spooled", SPOOLED, [], SpanStatus("deferred", "spooled")),
}


@pytest.mark.parametrize("case", SHOWN)
def test_what_decides_what_the_root_span_says(case: str) -> None:
    """A drop, before an end without scores, before the evaluations; scores of the screen outweigh the judge's queue."""
    dropped, end, evaluations, expected = SHOWN[case]
    assert status_on_span(dropped, end, evaluations) == expected
