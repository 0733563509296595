"""Quality: context relevance, faithfulness and answer relevancy combined into one number.

There are three ways to combine them: weighted mean, harmonic mean and minimum. The mean hides which of the three is
low, so the components stand beside it as attributes. A component without a score is not replaced by a default. Empty
contexts leave context relevance, and so quality, without a number: alert on `faithfulness`, which is 0 there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from ragtrace.core.errors import SettingsError
from ragtrace.core.text import OwnText
from ragtrace.core.types import CALIBRATION, Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.chunks import context_relevance
from ragtrace.metrics.formula import SLACK, Formula, formula, uncalibrated
from ragtrace.metrics.relevancy import answer_relevancy
from ragtrace.metrics.support import faithfulness

WEIGHTS: Final = (0.3, 0.4, 0.3)
"""Default weights of context relevance, faithfulness and answer relevancy."""
_GRADES: Final = ((0.9, "A"), (0.8, "B"), (0.7, "C"), (0.6, "D"))
_PARTS: Final[tuple[Metric, ...]] = (context_relevance, faithfulness, answer_relevancy)
_NEEDS: Final = context_relevance.needs | faithfulness.needs | answer_relevancy.needs
_NONE: Final = frozenset[str]()


def _reads(parts: Sequence[Metric]) -> frozenset[str] | None:
    """Return the labels that *parts* read, or None if one of them does not say which."""
    reads = [part.reads if isinstance(part, Formula) else None for part in parts]
    return None if None in reads else frozenset[str]().union(*(labels for labels in reads if labels is not None))


_READS: Final = _reads(_PARTS)


@formula(needs=_NEEDS, reads=_READS)
def quality_weighted(
    call: RagCall,
    judgement: Judgement,
    *,
    parts: Sequence[Metric] = _PARTS,
    weights: Sequence[float] = WEIGHTS,
    optional: frozenset[str] = _NONE,
) -> Result:
    """Weighted mean of context relevance, faithfulness and answer relevancy.

    Inputs: the results of `context_relevance`, `faithfulness` and `answer_relevancy`, each brought into [0, 1].
    Formula: 0.3 context relevance + 0.4 faithfulness + 0.3 answer relevancy.
    Unscored: `missing_component` (the attribute `missing` names those without a score).
    Source: a weighted mean, as dashboards of the RAG triad show it.
    Labels: A from 0.9 on, B from 0.8, C from 0.7, D from 0.6, else F.

    A good mean can hide a component at 0.
    """
    weight = dict(zip([part.name for part in parts], weights, strict=True))

    def mean(found: Mapping[str, float]) -> float:
        return sum(weight[name] * value for name, value in found.items()) / sum(weight[name] for name in found)

    result = _combined(call, judgement, parts, optional, mean)
    return result if isinstance(result, Unscored) else replace(result, label=letter_grade(result.value))


@formula(needs=_NEEDS, reads=_READS)
def quality_harmonic(
    call: RagCall, judgement: Judgement, *, parts: Sequence[Metric] = _PARTS, optional: frozenset[str] = _NONE
) -> Result:
    """Harmonic mean of context relevance, faithfulness and answer relevancy, which is low if any of the three is low.

    Inputs: the results of `context_relevance`, `faithfulness` and `answer_relevancy`, each brought into [0, 1].
    Formula: 3 / sum(1 / x); 0 if any of them is 0.
    Unscored: `missing_component` (the attribute `missing` names those without a score).
    Source: the harmonic mean, as dashboards of the RAG triad show it.
    """

    def mean(found: Mapping[str, float]) -> float:
        return len(found) / sum(1 / value for value in found.values()) if all(found.values()) else 0.0

    return _combined(call, judgement, parts, optional, mean)


@formula(needs=_NEEDS, reads=_READS)
def quality_minimum(
    call: RagCall, judgement: Judgement, *, parts: Sequence[Metric] = _PARTS, optional: frozenset[str] = _NONE
) -> Result:
    """The lowest of context relevance, faithfulness and answer relevancy.

    Inputs: the results of `context_relevance`, `faithfulness` and `answer_relevancy`, each brought into [0, 1].
    Formula: the smallest of the three.
    Unscored: `missing_component` (the attribute `missing` names those without a score).
    Source: the weakest link of the RAG triad.
    """
    return _combined(call, judgement, parts, optional, lambda found: min(found.values()))


def letter_grade(value: float) -> str:
    """Return the letter grade of a weighted quality: A from 0.9 on, B from 0.8, C from 0.7, D from 0.6, else F."""
    return next((letter for bound, letter in _GRADES if value >= bound - SLACK), "F")


def _combined(
    call: RagCall,
    judgement: Judgement,
    parts: Sequence[Metric],
    optional: frozenset[str],
    mean: Callable[[Mapping[str, float]], float],
) -> Result:
    """Combine the scores of the metrics *parts*, each clipped to [0, 1], into one score by the function *mean*.

    Only *optional* metrics may have no score.
    """
    found: dict[str, float] = {}
    lacking: dict[str, str] = {}
    by_chance = False  # whether a component rests on raw probabilities of a decision model
    for part in parts:
        result = part.compute(call, judgement) if isinstance(part, Formula) else part(call, judgement)
        if isinstance(result, Score):
            found[part.name] = min(1.0, max(0.0, result.value))
            by_chance = by_chance or CALIBRATION in result.attributes
        else:
            lacking[part.name] = result.reason
    attributes: dict[str, Plain] = dict(found)
    if lacking:
        attributes["missing"] = tuple(lacking)
        if not (found and lacking.keys() <= optional):
            why = ", ".join(f"{name}: {reason}" for name, reason in lacking.items())
            return Unscored("missing_component", explanation=OwnText(why), attributes=attributes)
        attributes["components"] = tuple(found)
    value = mean(found)
    return uncalibrated(value, None, attributes) if by_chance else Score(value, attributes=attributes)


def combined_quality(
    how: Literal["weighted", "harmonic", "minimum"],
    *,
    name: str,
    relevancy: Metric = answer_relevancy,
    weights: Sequence[float] = WEIGHTS,
    optional: Sequence[str] = (),
) -> Formula:
    """Return a quality metric called *name* that has other components or weights than the built-in one.

    It is a variant of `quality_weighted`, `quality_harmonic` or `quality_minimum`.

    Examples:
        >>> metric = ragtrace.metrics.combined_quality("weighted", name="quality", weights=(0.2, 0.6, 0.2))
        >>> chunks = ["Trains leave at noon.", "The tower is in Paris."]
        >>> with ragtrace.testing.OpenAIServer() as server:  # in place of yours
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(
        ...         query="Where is the tower?", contexts=chunks, answer="In Paris.", metrics=[metric], judge=judge
        ...     )
        >>> scores["quality"]
        Score(0.9, metric='quality', label='A')

    Args:
        how: which of the three means.
        name: name of the metric.
        relevancy: a metric that takes the place of `answer_relevancy`.
        weights: of context relevance, faithfulness and relevancy, for the weighted mean.
        optional: names of components that are left out where they have no score, instead of leaving the whole without
            one; the other weights then count for more, and the attribute `components` names what was used.

    Raises:
        SettingsError: a weight is negative or not finite or those that are never left out are all 0, or *optional*
            names no component, or faithfulness.
    """
    base = {"weighted": quality_weighted, "harmonic": quality_harmonic, "minimum": quality_minimum}.get(how)
    if base is None:
        raise SettingsError(f"how must be one of weighted, harmonic, minimum, got {how!r}")
    parts = (context_relevance, faithfulness, relevancy)
    dropped = frozenset([optional] if isinstance(optional, str) else optional)
    if faithfulness.name in dropped:
        raise SettingsError("optional must not name 'faithfulness': quality without it says nothing; leave it out")
    names = [part.name for part in parts]
    if unknown := dropped - set(names):
        raise SettingsError(
            f"optional= has the unknown components {', '.join(sorted(unknown))}; known: {', '.join(names)}"
        )
    made = base.variant(name, parts=parts, optional=dropped)
    if how == "weighted":
        if len(weights) != len(parts) or not all(math.isfinite(weight) and weight >= 0 for weight in weights):
            raise SettingsError(
                f"weights must be three numbers of at least 0, got {tuple(weights)!r}; they stand for context "
                "relevance, faithfulness and relevancy"
            )
        if not any(weight for part, weight in zip(names, weights, strict=True) if part not in dropped):
            raise SettingsError(
                f"weights must not be all 0 for the components that are not optional, got {tuple(weights)!r}"
            )
        made = made.variant(name, weights=tuple(weights))
    needs = frozenset[str]().union(*(part.needs for part in parts))
    return replace(made, needs=needs, reads=_reads(parts), opt_in=bool(getattr(relevancy, "opt_in", False)))


METRICS: Final = (quality_weighted, quality_harmonic, quality_minimum)
FACTORIES: Final = (combined_quality,)
