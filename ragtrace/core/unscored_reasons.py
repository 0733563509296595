"""Reasons why a metric has no score for a call, by status, and why an evaluator has scored nothing of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

REASONS_OF_CALLS: Final[Mapping[Literal["sampled_out", "dropped", "failed"], frozenset[str]]] = {
    "sampled_out": frozenset("not_sampled budget overload never_rule head_dropped call_failed".split()),
    "dropped": frozenset("queue_full shutdown spooled not_spooled too_large not_configured".split()),
    "failed": frozenset("redaction internal cancelled".split()),
}
"""Reasons why an evaluator has scored nothing of a call, by outcome. A call that failed because each of its metrics did
has the reason of the first metric instead, one of those below.

`ragtrace.doctor()` has words for each (`REASON_WORDS`), and docs/operations.md a line."""

Status: TypeAlias = Literal["not_applicable", "judge_error", "judge_suspect", "skipped"]

NOT_APPLICABLE = frozenset(
    "empty_answer empty_query contexts_missing no_contexts no_claims no_statements no_sentences abstained no_citations"
    " no_nuggets no_vital_nuggets no_reference_claims no_intentions needs_reference needs_conversation needs_runs"
    " query_needs_turns"
    " no_scorer no_embedder no_token_embedder not_streamed too_few_tokens no_token_usage zero_mean"
    " missing_component unscorable_script language_mismatch unknown_language no_baseline answer_not_captured"
    " contexts_without_text contexts_ambiguous texts_truncated".split()
)
JUDGE_ERROR = frozenset(
    "unavailable timeout refused unanswered content_filter truncated unparsable ambiguous coverage unverified"
    " too_many_unjudged unjudged_rank no_questions non_finite out_of_range zero_norm metric_error".split()
)
JUDGE_SUSPECT = frozenset({"control_failed"})
SKIPPED = frozenset("not_sampled budget queue_full disabled shutdown".split())
_STATUS_REASONS: Mapping[Status, frozenset[str]] = {
    "not_applicable": NOT_APPLICABLE,
    "judge_error": JUDGE_ERROR,
    "judge_suspect": JUDGE_SUSPECT,
    "skipped": SKIPPED,
}


def status_of(reason: str) -> Status:
    """Return the status of *reason*, the reason for a missing score: not_applicable, judge_error and so on.

    Raises:
        ValueError: if no status has that reason.
    """
    for status, reasons in _STATUS_REASONS.items():
        if reason in reasons:
            return status
    raise ValueError(f"unknown reason {reason!r}")
