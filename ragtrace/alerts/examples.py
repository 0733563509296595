"""What an alert shows of a badly scored call: its question and the statements that make it one."""

from __future__ import annotations

from typing import Final

from ragtrace.alerts.notice import Example
from ragtrace.core.labels import LABELLING, Claim
from ragtrace.core.types import Evaluation, RagCall, Result, Score
from ragtrace.system.faults import printable

_MOST_STATEMENTS: Final = 2
_QUESTION_CHARS: Final = 200
_STATEMENT_CHARS: Final = 400


def example_of(call: RagCall, evaluation: Evaluation, result: Score, at: float, *, show: bool, url: str) -> Example:
    """Return what to show of *call*, whose texts are redacted already.

    Args:
        evaluation: holds *result*, and the labels of its neighbours, which are shown where *result* has none.
        at: when it was scored, in seconds since the epoch.
        show: whether texts may be shown.
        url: address of a trace, with `{trace_id}`; empty: there is no link.
    """
    trace = trace_id(call)
    link = url.replace("{trace_id}", trace) if trace else ""
    if not show:
        return Example(trace, result.value, at, url=link)
    statements, labelled = _unsupported(evaluation, result), _labelled(evaluation)
    return Example(
        trace,
        result.value,
        at,
        question=printable(call.query or "", _QUESTION_CHARS),
        unsupported=statements if labelled else (),
        not_in_chunks=() if labelled else statements,
        url=link,
    )


def trace_id(call: RagCall) -> str:
    """Return 32 hexadecimal digits; empty if the call has no span."""
    return "" if call.span is None else f"{call.span.trace_id:032x}"


def _labelled(evaluation: Evaluation) -> bool:
    """Return whether a judge has labelled the statements, and did not only compare their words."""
    return evaluation.type != "deterministic" or not LABELLING.isdisjoint(evaluation.results)


def _unsupported(evaluation: Evaluation, result: Result) -> tuple[str, ...]:
    """Return the statements without support, or with words in no chunk, in full, the worst first."""
    claims = _claims(result)
    if not claims:
        claims = next((found for other in evaluation.results.values() if (found := _claims(other))), ())
    wrong = [claim for claim in claims if claim.checkable and (claim.support != "supported" or claim.unsupported)]
    # An unlabelled statement is shown only where the judge marks words in it.
    wrong = [claim for claim in wrong if claim.support is not None or claim.unsupported]
    wrong.sort(key=_standing)
    return tuple(printable(claim.text, _STATEMENT_CHARS) for claim in wrong[:_MOST_STATEMENTS])


def _standing(claim: Claim) -> float:
    """Return how well *claim* is supported, in [0, 1]."""
    if claim.score is not None:
        return claim.score
    return {"contradicted": 0.0, "not_found": 0.25, "partial": 0.5, "supported": 1.0}.get(claim.support or "", 0.75)


def _claims(result: Result) -> tuple[Claim, ...]:
    return result.claims if isinstance(result, Score) else ()
