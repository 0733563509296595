"""The scores of a call as span attributes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from ragtrace.core import semconv
from ragtrace.core.labels import Claim
from ragtrace.core.text import encodable
from ragtrace.core.types import Evaluation, RagCall, Result, Score, Unscored

Attributes = dict[str, "str | bool | int | float"]
_EVIDENCE_CHARS = 16_000
_CLAIM_CHARS = 500
_SUSPECTED = "injection_suspected"


def status(evaluations: Sequence[Evaluation]) -> str:
    """Return `ok`, `partial` or `error` over all evaluators; `not_sampled` if none evaluated the call."""
    outcomes = {evaluation.outcome[0] for evaluation in evaluations}
    if not outcomes:
        return semconv.STATUS_NOT_SAMPLED
    if outcomes == {"scored"}:
        return semconv.STATUS_OK
    return semconv.STATUS_ERROR if outcomes == {"failed"} else semconv.STATUS_PARTIAL


def prevailing_results(evaluations: Sequence[Evaluation]) -> dict[str, tuple[Evaluation, Result]]:
    """Return, for each metric, the result that backends show under its name, with the evaluation that gave it.

    Args:
        evaluations: in rising order of authority: where two give a metric, it is the later one's, except that the
            screen's score stays where the judge failed.
    """
    chosen: dict[str, tuple[Evaluation, Result]] = {}
    for evaluation in evaluations:
        for name, result in evaluation.results.items():
            failed = isinstance(result, Unscored) and result.status != "not_applicable"
            if name not in chosen or not (failed and isinstance(chosen[name][1], Score)):
                chosen[name] = evaluation, result
    return chosen


def score_attributes(evaluations: Sequence[Evaluation], call: RagCall, *, evidence: bool) -> Attributes:
    """Return all score attributes of a call's root span.

    Args:
        evaluations: in rising order of authority; see `prevailing_results`. `ragtrace.eval.evaluator` and
            `ragtrace.eval.probability` are those of the last one that did not fail, and a metric of another one
            names its own evaluator.
        call: the call, redacted.
        evidence: whether to quote the unsupported claims.
    """
    attributes: Attributes = {semconv.EVAL_STATUS: status(evaluations)}
    last = next(
        (e for e in reversed(evaluations) if e.outcome[0] != "failed"), evaluations[-1] if evaluations else None
    )
    if last is not None:
        attributes[semconv.EVAL_PROBABILITY] = last.probability
        attributes[semconv.EVAL_EVALUATOR] = _identity(last)
    chosen = prevailing_results(evaluations)
    for name, (evaluation, result) in chosen.items():
        attributes.update(_result_attributes(name, result))
        if evaluation is not last:
            attributes[semconv.eval_evaluator(name)] = _identity(evaluation)
        if result.attributes and _suspected(result.attributes):
            attributes[semconv.EVAL_INJECTION_SUSPECTED] = True
    unsupported = unsupported_json([result for _, result in chosen.values()], call) if evidence else None
    if unsupported is not None:
        attributes[semconv.EVAL_UNSUPPORTED] = unsupported
    return attributes


def _identity(evaluation: Evaluation) -> str:
    return f"{evaluation.evaluator}@{evaluation.version}"


def _suspected(attributes: object) -> bool:
    """Return whether *attributes* of a result, which a user's judge may set to anything, report an injection."""
    return isinstance(attributes, Mapping) and cast("Mapping[str, object]", attributes).get(_SUSPECTED) is True


def _result_attributes(name: str, result: Result) -> Attributes:
    if isinstance(result, Score):
        attributes: Attributes = {semconv.eval_score(name): result.value}
        if result.label is not None:
            attributes[semconv.eval_label(name)] = result.label
        return attributes
    return {semconv.eval_reason(name): result.reason}


def unsupported_json(results: Iterable[Result], call: RagCall) -> str | None:
    """Return the unsupported claims, worst first, as a bounded JSON list; None if no metric gave claims.

    Items: text, start, end (offsets in the answer), support, score, unsupported (ranges), chunks (ranks from 0), quote.
    """
    claims = next((result.claims for result in results if isinstance(result, Score) and result.claims), None)
    if claims is None:
        return None
    bad = [claim for claim in claims if claim.checkable and claim.support not in ("supported", None)]
    bad.sort(key=lambda claim: (claim.score if claim.score is not None else 0.0, claim.start))
    items: list[str] = []
    used = 0
    for claim in bad:
        item = json.dumps(_claim_record(claim), ensure_ascii=False)
        used += len(item)
        if used > _EVIDENCE_CHARS:
            items.append(json.dumps({"left_out": len(bad) - len(items)}))
            break
        items.append(item)
    return encodable("[" + ",".join(items) + "]")  # a judge's texts may hold lone surrogates


def _claim_record(claim: Claim) -> dict[str, object]:
    record: dict[str, object] = {
        "text": claim.text[:_CLAIM_CHARS],
        "start": claim.start,
        "end": claim.end,
        "support": claim.support,
        "unsupported": [list(span) for span in claim.unsupported],
        "chunks": list(claim.evidence),
    }
    if claim.score is not None:
        record["score"] = claim.score
    if claim.quote is not None:
        record["quote"] = claim.quote[:_CLAIM_CHARS]
    return record
