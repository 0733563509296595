"""`nugget_*`: how many of the facts in the retrieved chunks that answer the query (nuggets) the answer contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ragtrace.core.labels import Nugget
from ragtrace.core.types import Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, declined, formula, too_many, unmet, why_missing

_NEEDS: Final = frozenset({"chunks", "nuggets"})
_READS: Final = frozenset({"grade"})
_REQUIRED: Final = ("empty_answer", "empty_query", "query_needs_turns", "contexts_missing", "no_contexts")
_VALUES: Final = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}


@formula(needs=_NEEDS, reads=_READS, opt_in=True)
def nugget_all(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """How far the answer contains the nuggets (the facts in the retrieved chunks that answer the query), on average.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: mean over the nuggets of 1 (support), 0.5 (partial support), 0 (not support).
    Judge calls: 2, after the request that grades the chunks: one writes the nuggets without seeing the answer, one says
        which of them the answer supports.
    Unscored: `empty_answer`; `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known);
        `contexts_missing`; `no_contexts` (none but blank ones); `no_nuggets` (no chunk is related to the query, or none
        holds a fact); `too_many_unjudged` (over 20 % without a valid label).
    Source: the nugget evaluation of Pradeep et al. 2024, "Initial Nugget Evaluation Results for the TREC 2024 RAG
        Track", arXiv:2411.09607 (A).

    It measures how much of what was retrieved the answer holds, not whether that is true.
    """
    return _mean(call, judgement, max_unjudged, okay=1.0)


@formula(needs=_NEEDS, reads=_READS, opt_in=True)
def nugget_vital(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """How far the answer contains the vital nuggets (the facts that a good answer must contain), on average.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: mean over the vital nuggets of 1 (support), 0.5 (partial support), 0 (not support).
    Judge calls: 2, shared by all nugget metrics.
    Unscored: `no_vital_nuggets`, and as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (V).
    """
    return _mean(call, judgement, max_unjudged, okay=0.0)


@formula(needs=_NEEDS, reads=_READS, opt_in=True)
def nugget_weighted(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """How far the answer contains the nuggets (facts in the chunks), on average, with double weight for vital nuggets.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: (sum over vital + 0.5 * sum over okay) / (number of vital + 0.5 * number of okay).
    Judge calls: 2, shared by all nugget metrics.
    Unscored: as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (W).
    """
    return _mean(call, judgement, max_unjudged, okay=0.5)


@formula(needs=_NEEDS, reads=_READS, opt_in=True)
def nugget_strict_all(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the nuggets (the facts in the retrieved chunks that answer the query) that the answer contains in full.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: supported / nuggets; partial support counts nothing.
    Judge calls: 2, shared by all nugget metrics.
    Unscored: as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (A strict).
    """
    return _mean(call, judgement, max_unjudged, okay=1.0, strict=True)


@formula(needs=_NEEDS, reads=_READS, opt_in=True)
def nugget_strict_vital(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the vital nuggets (the facts that a good answer must contain) that the answer contains in full.

    Inputs: query, answer, and the chunks that are at least related to the query (grade 1 or more).
    Formula: supported vital nuggets / vital nuggets; partial support counts nothing.
    Judge calls: 2, shared by all nugget metrics.
    Unscored: `no_vital_nuggets`, and as for nugget_all.
    Source: Pradeep et al. 2024, arXiv:2411.09607 (V strict).
    """
    return _mean(call, judgement, max_unjudged, okay=0.0, strict=True)


def _mean(call: RagCall, judgement: Judgement, limit: float, *, okay: float, strict: bool = False) -> Result:
    """Return the weighted share of the nuggets (facts in the chunks) that the answer contains, as a metric's result.

    Args:
        limit: share of nuggets that may be unjudged.
        okay: weight of an "okay" nugget (useful, not vital); 0: the vital ones alone count.
        strict: partial support counts nothing.
    """
    if reason := unmet(call, judgement, *_REQUIRED):
        return Unscored(reason)
    if not judgement.nuggets:
        return Unscored(why_missing(judgement, "nuggets") if judgement.nuggets is None else "no_nuggets")
    nuggets: Sequence[Nugget] = judgement.nuggets
    if declined(judgement):  # an answer that says nothing holds no nugget, whatever the judge says
        nuggets = [replace(nugget, support="not_support") for nugget in nuggets]
    judged = [nugget for nugget in nuggets if nugget.support in _VALUES]
    labels = Counter(nugget.support for nugget in judged)
    attributes: dict[str, Plain] = {
        "nuggets": len(judged),
        "vital_nuggets": sum(nugget.importance == "vital" for nugget in judged),
        **{label: labels[label] for label in ("support", "partial_support", "not_support")},
        "unjudged": len(nuggets) - len(judged),
    }
    if judged:
        attributes["strict_weighted"] = _weighted(judged, 0.5, strict=True)
    counted = [nugget for nugget in nuggets if okay or nugget.importance == "vital"]
    if not counted:
        return Unscored("no_vital_nuggets", attributes=attributes)
    left = [nugget for nugget in counted if nugget.support in _VALUES]
    if too_many(len(counted) - len(left), len(counted), limit):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(_weighted(left, okay, strict=strict), attributes=attributes)


def _weighted(nuggets: Sequence[Nugget], okay: float, *, strict: bool) -> float:
    """Return how far the answer contains *nuggets* (facts in the chunks), as a mean weighted by importance.

    At least one must have a weight above 0.
    """
    weights = [1.0 if nugget.importance == "vital" else okay for nugget in nuggets]
    values = [_VALUES[nugget.support or "not_support"] for nugget in nuggets]
    values = [float(value == 1) for value in values] if strict else values
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


METRICS: Final = (nugget_all, nugget_vital, nugget_weighted, nugget_strict_all, nugget_strict_vital)
