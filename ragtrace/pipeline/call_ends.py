"""Ends of RAG calls that no evaluator scores, or not all: what is counted, and what the root span says.

This is the one table of reason, outcome and evaluation status (`ENDS`), and the one place where it is decided what the
root span says (`status_on_span`). The reasons for which the sampler leaves out the judge
alone (`not_sampled`, `budget` and so on) are no ends of a call: its span has the scores of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from ragtrace.core import semconv
from ragtrace.core.ledger import Outcome
from ragtrace.core.types import Evaluation
from ragtrace.telemetry.scores.score_sender import evaluation_status

EndReason: TypeAlias = Literal[
    "head_dropped", "call_failed", "redaction", "internal", "spooled", "not_spooled", "shutdown", "queue_full",
    "too_large", "not_configured", "cancelled",
]  # fmt: skip
"""Reason under which a call that ends without the scores of all its evaluators is counted: a key of `ENDS`."""
ReasonIfAny: TypeAlias = Literal[EndReason, ""]
"""Reason of an end, or empty: none."""


class CallEnd(NamedTuple):
    """End of a RAG call without the scores of all its evaluators."""

    outcome: Outcome
    """Outcome that is counted for each evaluator which has not scored the call."""
    reason: ReasonIfAny
    """Reason that is counted; empty where the outcome says all."""
    status: str
    """Evaluation status of the root span."""
    reason_on_span: ReasonIfAny = ""
    """Reason that the root span shows; empty: the status says it already."""

    @property
    def is_prepared(self) -> bool:
        """Whether the texts of the call have been read and redacted by then, so that its span shows them."""
        return self.status != semconv.STATUS_DROPPED


def _dropped(reason: EndReason) -> CallEnd:
    return CallEnd("dropped", reason, semconv.STATUS_DROPPED, reason)


HEAD_DROPPED: Final = CallEnd("sampled_out", "head_dropped", semconv.STATUS_NOT_SAMPLED)
CALL_FAILED: Final = CallEnd("sampled_out", "call_failed", semconv.STATUS_CALL_FAILED)
REDACTION_FAILED: Final = CallEnd("failed", "redaction", semconv.STATUS_ERROR, "redaction")
SCORING_RAISED: Final = CallEnd("failed", "internal", semconv.STATUS_ERROR)
CANCELLED: Final = CallEnd("failed", "cancelled", semconv.STATUS_ERROR, "cancelled")
SPOOLED: Final = CallEnd("dropped", "spooled", semconv.STATUS_DEFERRED)
NOT_SPOOLED: Final = _dropped("not_spooled")
SHUT_DOWN: Final = _dropped("shutdown")
QUEUE_FULL: Final = _dropped("queue_full")
TOO_LARGE: Final = _dropped("too_large")
NOT_CONFIGURED: Final = _dropped("not_configured")
HANDED_OVER: Final = CallEnd("handed_over", "", semconv.STATUS_HANDED_OVER)
"""End in this process: a worker of the fleet goes on, and counts what becomes of the call there."""

ENDS: Final[Mapping[EndReason, CallEnd]] = {
    end.reason: end
    for end in (
        HEAD_DROPPED, CALL_FAILED, REDACTION_FAILED, SCORING_RAISED, SPOOLED, NOT_SPOOLED, SHUT_DOWN, QUEUE_FULL,
        TOO_LARGE, NOT_CONFIGURED, CANCELLED,
    )
    if end.reason
}  # fmt: skip
"""Ends by the reason under which a call is counted."""


class SpanStatus(NamedTuple):
    """What the root span of a RAG call says of its scoring: evaluation status and reason."""

    status: str
    reason: ReasonIfAny
    """Reason why an evaluator did not see the call; empty: there is none, or the status says it."""


def status_on_span(dropped: ReasonIfAny, end: CallEnd | None, evaluations: Sequence[Evaluation]) -> SpanStatus:
    """Return what the root span of a RAG call says when its scoring is over.

    Several things may have happened to the call; the first of these rows that holds decides:

    | what has happened                                    | status                    | reason        |
    |------------------------------------------------------|---------------------------|---------------|
    | the judge's queue was full; another has scored it    | `partial`                 | `queue_full`  |
    | it was dropped                                       | that of the reason's end  | the reason    |
    | it ended without its scores                          | that of the end           | the end's own |
    | it was scored, or nobody was to score it             | that of the evaluations   | none          |

    Args:
        dropped: `CallItem.dropped`, which a shutdown may change at any time: read once by the caller.
        end: how the scoring ended without all scores; None: it came to its end.
        evaluations: the evaluations that were counted.
    """
    if dropped == QUEUE_FULL.reason and any(each.outcome[0] in ("scored", "partial") for each in evaluations):
        return SpanStatus(semconv.STATUS_PARTIAL, dropped)
    if dropped:
        return SpanStatus(ENDS[dropped].status, dropped)
    if end is not None:
        return SpanStatus(end.status, end.reason_on_span)
    return SpanStatus(evaluation_status(evaluations), "")
