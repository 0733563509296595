"""The scores of a call as records for a backend's own API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from ragtrace.attach.attributes import prevailing
from ragtrace.attach.identity import id_of
from ragtrace.model import Evaluation, RagCall, Score
from ragtrace.native import ScoreRecord

_ANNOTATOR: Final[dict[str, Literal["LLM", "CODE", "HUMAN"]]] = {"llm_judge": "LLM", "human": "HUMAN"}
_HEADLINES: Final = (
    frozenset({"hallucinated", "faithfulness"}),
    frozenset({"consistency", "suspicious"}),
    frozenset({"answered"}),
)


def records_of(
    call: RagCall, evaluations: Sequence[Evaluation], *, service: str = "", evidence: bool = False, time_ns: int
) -> Iterator[ScoreRecord]:
    """Yield one record a metric that is scored, the judge's where the screen gives it too: a backend averages a name.

    A metric that is unscored has none, as every number would be invented.

    Args:
        service: name of the application.
        evidence: quote the claims that are not supported, which are the application's content.
        time_ns: now, since the epoch.
    """
    span = call.span
    if span is None:
        return
    shown = prevailing(evaluations)
    scored = {name for name, (_, result) in shown.items() if isinstance(result, Score)}
    headline = next((names for names in _HEADLINES if names & scored), scored)
    for name, (evaluation, result) in shown.items():
        if not isinstance(result, Score):
            continue
        yield ScoreRecord(
            id=id_of(span, name, result, evaluation),
            trace_id=span.trace_id,
            span_id=span.span_id,
            name=name,
            value=float(result.value),
            label=result.label,
            explanation=result.explanation or _explanation(result, evidence=evidence),
            annotator=_ANNOTATOR.get(evaluation.type, "CODE"),
            evaluator=f"{evaluation.evaluator}@{evaluation.version}",
            metric_version=result.metric_version,
            probability=evaluation.probability,
            time_ns=time_ns,
            service=service,
            workflow=call.workflow,
            headline=name in headline,
        )


def _explanation(result: Score, *, evidence: bool) -> str | None:
    """What became of the claims that the score rests on, in numbers; None if it rests on none."""
    checked = [claim for claim in result.claims if claim.checkable]
    if not checked:
        return None
    counts = Counter(claim.support or "unjudged" for claim in checked)
    found = ", ".join(f"{count} {support.replace('_', ' ')}" for support, count in sorted(counts.items()))
    said = f"of {len(checked)} claims: {found}"
    wrong = [claim.text for claim in checked if claim.support != "supported"]
    return f"{said}. Not supported: {' | '.join(wrong)}" if evidence and wrong else said
