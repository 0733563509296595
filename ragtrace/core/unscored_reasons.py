"""Reasons why a metric has no score for a call, grouped by status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

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
    "unavailable timeout refused content_filter truncated unparsable ambiguous coverage unverified too_many_unjudged"
    " unjudged_rank no_questions non_finite out_of_range zero_norm metric_error".split()
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
