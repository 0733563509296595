"""A call and its evaluations as rows of the history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ragtrace.core.labels import Claim
from ragtrace.core.text import encodable
from ragtrace.core.types import Document, Evaluation, RagCall, Result, Score
from ragtrace.history.schema import IN_A_BODY

_MOST_CLAIMS: Final = 200
_TEXT_CHARS: Final = 500
_CALL_BYTES: Final = 1_000
"""Of a call without its texts."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A call as the writer's queue holds it."""

    call: RagCall
    evaluations: tuple[Evaluation, ...]
    decision: str | None
    """Why the judge was to see it or not; None: it did not come to that."""
    at: float
    """Seconds since the epoch."""

    @property
    def weight(self) -> int:
        """Bytes that the call keeps alive, about."""
        call = self.call
        texts = [call.query or "", call.answer or "", *(document.text for document in call.contexts or ())]
        return _CALL_BYTES + sum(map(len, texts))


def identity(call: RagCall) -> bytes | None:
    """Return trace id and span id of *call*: with the same, a call that is scored in two processes is one row."""
    if call.span is None:
        return None
    return call.span.trace_id.to_bytes(16, "big") + call.span.span_id.to_bytes(8, "big")


def body(call: RagCall, *, texts: bool) -> str:
    """Return the texts of *call* as one line of JSON in ASCII; without *texts*, only their number."""
    record: dict[str, Any] = {name: getattr(call, name) for name in IN_A_BODY}
    record["input_tokens"], record["output_tokens"] = call.usage.input_tokens, call.usage.output_tokens
    record["duration_s"] = None if call.timing is None else call.timing.duration_s
    record["contexts"] = None if call.contexts is None else [_passage(document) for document in call.contexts]
    if not texts:
        for name in ("query", "answer", "reference", "conversation_id"):
            record[name] = None
        record["contexts"] = None if call.contexts is None else [{"text": None}] * len(call.contexts)
        record["without_texts"] = True
    return json.dumps(record)


def _passage(document: Document) -> Mapping[str, Any]:
    return {"text": document.text, "id": document.id, "score": document.score, "duplicate": document.duplicate}


def evidence(evaluation: Evaluation, *, texts: bool) -> str | None:
    """Return the claims and explanations of *evaluation* as JSON; None if there is neither."""
    results = evaluation.results
    claims = next((r.claims for r in results.values() if isinstance(r, Score) and r.claims), ())
    explained = {name: r.explanation[:_TEXT_CHARS] for name, r in results.items() if r.explanation and texts}
    if not claims and not explained:
        return None
    kept = [_claim(claim, texts=texts) for claim in claims[:_MOST_CLAIMS]]
    return json.dumps({"claims": kept, "explanations": explained})


def _claim(claim: Claim, *, texts: bool) -> Mapping[str, Any]:
    record: dict[str, Any] = {
        "start": claim.start,
        "end": claim.end,
        "support": claim.support,
        "checkable": claim.checkable,
        "unsupported": claim.unsupported,
        "evidence": claim.evidence,
        "score": claim.score,
    }
    if texts:
        record |= {"text": claim.text[:_TEXT_CHARS], "quote": (claim.quote or "")[:_TEXT_CHARS]}
    return record


def series_of(name: str, result: Result) -> tuple[str, str, int]:
    """Return metric, its version, and whether higher is better, as a row."""
    return encodable(name), encodable(result.metric_version), int(result.higher_is_better)


def columns(result: Result) -> tuple[float | None, str | None, str | None]:
    """Return score, reason why there is none, and label, as a row."""
    if isinstance(result, Score):
        return result.value, None, text_of(result.label)
    return None, encodable(result.reason), None


def text_of(value: str | None) -> str | None:
    """Return *value* without lone surrogates, which SQLite refuses."""
    return None if value is None else encodable(value)


def texts_of(values: Sequence[str | None]) -> tuple[str, ...]:
    """Return *values* without lone surrogates; None becomes empty."""
    return tuple(encodable(value or "") for value in values)
