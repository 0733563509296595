"""The id of a score: the same for the same score of the same call, however often it is sent, and by whom."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from ragtrace.core.types import Evaluation, Result

_BYTES: Final = 16


def score_id(
    target: SpanContext, metric: str, evaluator: str, *, metric_version: str = "", evaluator_version: str = ""
) -> str:
    """Id of the score that *evaluator* gave the call of the span *target* in *metric*.

    A backend or a query that meets an id for the second time has met a repeat: of an export that was tried again, or of
    a call that was taken up again after a crash. Another formula or another judge gives another score, so both versions
    are part of it.

    Returns:
        32 hexadecimal digits, a 128-bit BLAKE2b.
    """
    digest = hashlib.blake2b(digest_size=_BYTES)
    digest.update(target.trace_id.to_bytes(16, "big") + target.span_id.to_bytes(8, "big"))
    for part in (metric, metric_version, evaluator, evaluator_version):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))  # the length first, so that no two sequences of parts run together
        digest.update(data)
    return digest.hexdigest()


def id_of(target: SpanContext, metric: str, result: Result, evaluation: Evaluation) -> str:
    """Id of *result*, which *evaluation* has for *metric*."""
    return score_id(
        target,
        metric,
        evaluation.evaluator,
        metric_version=result.metric_version,
        evaluator_version=evaluation.version,
    )
