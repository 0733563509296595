"""Score ids, by which a backend recognizes a score that is sent to it more than once.

The same score of the same call has the same id, by whichever process it is sent.
"""

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
    """Return the id of one score, a hash of the call's root span *target*, the metric and the evaluator.

    An id that a backend sees for the second time is a repeat: of an export that was retried, or of a call that was
    scored again after a crash. Another formula or another judge gives another score, so both versions are part of it.

    Returns:
        32 hexadecimal digits, a 128-bit BLAKE2b.
    """
    digest = hashlib.blake2b(digest_size=_BYTES)
    digest.update(target.trace_id.to_bytes(16, "big") + target.span_id.to_bytes(8, "big"))
    for part in (metric, metric_version, evaluator, evaluator_version):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))  # with the length, so that ("ab", "c") and ("a", "bc") differ
        digest.update(data)
    return digest.hexdigest()


def score_id_of_result(target: SpanContext, metric: str, result: Result, evaluation: Evaluation) -> str:
    """Return the score id of *result*, the score for *metric* in *evaluation*."""
    return score_id(
        target, metric, evaluation.evaluator, metric_version=result.metric_version, evaluator_version=evaluation.version
    )
