"""`nugget_*`: how much of what was retrieved, broken into nuggets of information, the answer contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ragtrace.core.labels import Nugget
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import any_text, declined, no_answer, no_query, too_many

_VALUES: Final = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
_OKAY_WEIGHT: Final = 0.5
_NEEDS: Final = frozenset({"chunks", "nuggets"})


def nugget_all_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Mean support of all nuggets by the answer.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: mean over the nuggets of 1 (support), 0.5 (partial support), 0 (not support).
    Range: [0, 1], higher is better.
    Judge calls: 2 after the grades: one writes the nuggets without sight of the answer, one assigns them.
    Unscored: `empty_answer`; `empty_query`; `contexts_missing`; `no_contexts` (none but blank ones); `no_nuggets` (no
        chunk is related to the query, or none holds a fact); `too_many_unjudged` (over 20 % without a valid label).
    Source: the nugget evaluation of Pradeep et al. 2024, "Initial Nugget Evaluation Results for the TREC 2024 RAG
        Track", arXiv:2411.09607 (A).

    It measures how much of what was retrieved the answer holds, not whether that is true.
    """
    return _mean(call, judgement, max_unjudged, vital=False, strict=False)


def nugget_vital_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Mean support of the vital nuggets by the answer.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: mean over the vital nuggets of 1 (support), 0.5 (partial support), 0 (not support).
    Range: [0, 1], higher is better.
    Judge calls: 2 after the grades, shared by all nugget metrics.
    Unscored: `no_vital_nuggets`, and as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (V).
    """
    return _mean(call, judgement, max_unjudged, vital=True, strict=False)


def nugget_weighted_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Mean support of all nuggets by the answer, those that are merely okay with half the weight.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: (sum over vital + 0.5 * sum over okay) / (number of vital + 0.5 * number of okay).
    Range: [0, 1], higher is better.
    Judge calls: 2 after the grades, shared by all nugget metrics.
    Unscored: as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (W).
    """
    found = _judged(call, judgement, max_unjudged, vital=False)
    if isinstance(found, Unscored):
        return found
    return Score(_weighted(found, strict=False), attributes=_counts(judgement, found))


def nugget_strict_all_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of all nuggets that the answer supports in full.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: supported / nuggets; partial support counts nothing.
    Range: [0, 1], higher is better.
    Judge calls: 2 after the grades, shared by all nugget metrics.
    Unscored: as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (A strict).
    """
    return _mean(call, judgement, max_unjudged, vital=False, strict=True)


def nugget_strict_vital_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the vital nuggets that the answer supports in full.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: supported vital nuggets / vital nuggets; partial support counts nothing.
    Range: [0, 1], higher is better.
    Judge calls: 2 after the grades, shared by all nugget metrics.
    Unscored: `no_vital_nuggets`, and as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (V strict).
    """
    return _mean(call, judgement, max_unjudged, vital=True, strict=True)


def _mean(call: RagCall, judgement: Judgement, max_unjudged: float, *, vital: bool, strict: bool) -> Result:
    found = _judged(call, judgement, max_unjudged, vital=vital)
    if isinstance(found, Unscored):
        return found
    values = [_value(nugget, strict) for nugget in found if nugget.importance == "vital" or not vital]
    return Score(sum(values) / len(values), attributes=_counts(judgement, found))


def _judged(call: RagCall, judgement: Judgement, max_unjudged: float, *, vital: bool) -> tuple[Nugget, ...] | Unscored:
    """The nuggets with a valid label, enough of them for the metric, or why there are not."""
    if reason := _inapplicable(call, judgement):
        return Unscored(reason)
    nuggets = judgement.nuggets or ()
    if declined(judgement):  # it says nothing, so it holds no nugget, whatever was assigned
        nuggets = tuple(Nugget(nugget.text, nugget.importance, "not_support") for nugget in nuggets)
    judged = tuple(nugget for nugget in nuggets if nugget.support in _VALUES)
    asked, left = (_vital(nuggets), _vital(judged)) if vital else (nuggets, judged)
    if not asked:
        return Unscored("no_vital_nuggets", attributes=_counts(judgement, judged))
    if too_many(len(asked) - len(left), len(asked), max_unjudged):
        return Unscored("too_many_unjudged", attributes=_counts(judgement, judged))
    return judged


def _inapplicable(call: RagCall, judgement: Judgement) -> str:
    if no_answer(call):
        return "empty_answer"
    if no_query(call):
        return "empty_query"
    if call.contexts is None:
        return "contexts_missing"
    if not any_text(call.contexts):
        return "no_contexts"
    if judgement.nuggets is None:
        return judgement.reasons.get("nuggets") or judgement.reasons.get("") or "unparsable"
    return "" if judgement.nuggets else "no_nuggets"


def _vital(nuggets: Sequence[Nugget]) -> tuple[Nugget, ...]:
    return tuple(nugget for nugget in nuggets if nugget.importance == "vital")


def _value(nugget: Nugget, strict: bool) -> float:
    value = _VALUES[nugget.support or "not_support"]
    return float(value == 1.0) if strict else value


def _weighted(nuggets: Sequence[Nugget], *, strict: bool) -> float:
    """Of at least one nugget. The denominator holds what there is: no okay nugget adds no weight."""
    weights = [1.0 if nugget.importance == "vital" else _OKAY_WEIGHT for nugget in nuggets]
    return sum(w * _value(nugget, strict) for w, nugget in zip(weights, nuggets, strict=True)) / sum(weights)


def _counts(judgement: Judgement, judged: Sequence[Nugget]) -> dict[str, Plain]:
    labels = Counter(nugget.support for nugget in judged)
    counts: dict[str, Plain] = {
        "nuggets": len(judged),
        "vital_nuggets": len(_vital(judged)),
        "support": labels["support"],
        "partial_support": labels["partial_support"],
        "not_support": labels["not_support"],
        "unjudged": len(judgement.nuggets or ()) - len(judged),
    }
    return {**counts, "strict_weighted": _weighted(judged, strict=True)} if judged else counts


nugget_all: Final = Formula("nugget_all", "1", nugget_all_of, _NEEDS, opt_in=True)
nugget_vital: Final = Formula("nugget_vital", "1", nugget_vital_of, _NEEDS, opt_in=True)
nugget_weighted: Final = Formula("nugget_weighted", "1", nugget_weighted_of, _NEEDS, opt_in=True)
nugget_strict_all: Final = Formula("nugget_strict_all", "1", nugget_strict_all_of, _NEEDS, opt_in=True)
nugget_strict_vital: Final = Formula("nugget_strict_vital", "1", nugget_strict_vital_of, _NEEDS, opt_in=True)
METRICS: Final[tuple[Metric, ...]] = (
    nugget_all,
    nugget_vital,
    nugget_weighted,
    nugget_strict_all,
    nugget_strict_vital,
)
