"""One number for retrieval, faithfulness and relevancy together: three means of three metrics.

They hide which of the three is low, so the components stand beside them. Nothing is put in for a component that has no
score. Contexts that are empty leave context relevance, hence these, without a number: `faithfulness` is 0 there, and is
what to be alerted on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.chunks import context_relevance
from ragtrace.metrics.claims import faithfulness
from ragtrace.metrics.formula import SLACK, Formula
from ragtrace.metrics.relevancy import answer_relevancy

WEIGHTS: Final = (0.3, 0.4, 0.3)
"""Of context relevance, faithfulness and answer relevancy."""
_GRADES: Final = ((0.9, "A"), (0.8, "B"), (0.7, "C"), (0.6, "D"))
_PARTS: Final[Mapping[str, Metric]] = MappingProxyType(
    {metric.name: metric for metric in (context_relevance, faithfulness, answer_relevancy)}
)


def quality_weighted_of(
    call: RagCall,
    judgement: Judgement,
    *,
    parts: Sequence[Metric] = tuple(_PARTS.values()),
    weights: Sequence[float] = WEIGHTS,
    optional: frozenset[str] = frozenset(),
) -> Result:
    """Weighted mean of context relevance, faithfulness and answer relevancy.

    Inputs: the results of `context_relevance`, `faithfulness` and `answer_relevancy`, each brought into [0, 1].
    Formula: 0.3 context relevance + 0.4 faithfulness + 0.3 answer relevancy.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `missing_component` (the attribute `missing` names those without a score).
    Source: a weighted mean, as dashboards of the RAG triad show it.
    Labels: A from 0.9 on, B from 0.8, C from 0.7, D from 0.6, else F.

    A good mean can hide a component at 0.
    """
    share = dict(zip([part.name for part in parts], weights, strict=True))
    result = _combined(call, judgement, parts, optional, lambda found: weighted_mean(found, share))
    if isinstance(result, Unscored):
        return result
    return Score(result.value, label=grade_of(result.value), attributes=result.attributes)


def quality_harmonic_of(
    call: RagCall,
    judgement: Judgement,
    *,
    parts: Sequence[Metric] = tuple(_PARTS.values()),
    optional: frozenset[str] = frozenset(),
) -> Result:
    """Harmonic mean of context relevance, faithfulness and answer relevancy: low as soon as one of them is.

    Inputs: the results of `context_relevance`, `faithfulness` and `answer_relevancy`, each brought into [0, 1].
    Formula: 3 / sum(1 / x); 0 if any of them is 0.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `missing_component` (the attribute `missing` names those without a score).
    Source: the harmonic mean, as dashboards of the RAG triad show it.
    """
    return _combined(call, judgement, parts, optional, lambda found: harmonic_mean(list(found.values())))


def quality_minimum_of(
    call: RagCall,
    judgement: Judgement,
    *,
    parts: Sequence[Metric] = tuple(_PARTS.values()),
    optional: frozenset[str] = frozenset(),
) -> Result:
    """The lowest of context relevance, faithfulness and answer relevancy.

    Inputs: the results of `context_relevance`, `faithfulness` and `answer_relevancy`, each brought into [0, 1].
    Formula: the smallest of the three.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `missing_component` (the attribute `missing` names those without a score).
    Source: the weakest link of the RAG triad.
    """
    return _combined(call, judgement, parts, optional, lambda found: min(found.values()))


def weighted_mean(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """sum(w x) / sum(w) over *values*; the weights of these are at least 0 and not all 0."""
    return sum(weights[name] * value for name, value in values.items()) / sum(weights[name] for name in values)


def harmonic_mean(values: Sequence[float]) -> float:
    """n / sum(1 / x) of numbers in [0, 1]; 0 if any is 0."""
    return len(values) / sum(1 / value for value in values) if all(values) else 0.0


def grade_of(value: float) -> str:
    """The letter of a weighted quality: A from 0.9 on, B from 0.8, C from 0.7, D from 0.6, else F."""
    return next((letter for bound, letter in _GRADES if value >= bound - SLACK), "F")


def _combined(
    call: RagCall,
    judgement: Judgement,
    parts: Sequence[Metric],
    optional: frozenset[str],
    mean: Callable[[Mapping[str, float]], float],
) -> Result:
    results = {part.name: _bare(part)(call, judgement) for part in parts}
    found = {name: _clipped(result.value) for name, result in results.items() if isinstance(result, Score)}
    lacking = {name: result.reason for name, result in results.items() if isinstance(result, Unscored)}
    attributes: dict[str, Plain] = dict(found)
    if lacking:
        attributes["missing"] = tuple(lacking)
        if not (found and lacking.keys() <= optional):
            why = ", ".join(f"{name}: {reason}" for name, reason in lacking.items())
            return Unscored("missing_component", explanation=why, attributes=attributes)
        attributes["components"] = tuple(found)
    return Score(mean(found), attributes=attributes)


def _bare(part: Metric) -> Callable[[RagCall, Judgement], Result]:
    """What computes *part*: only the value and the reason are wanted of it."""
    return part.compute if isinstance(part, Formula) else part


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, value))


def combined_quality(
    how: Literal["weighted", "harmonic", "minimum"],
    *,
    name: str,
    relevancy: Metric = answer_relevancy,
    weights: Sequence[float] = WEIGHTS,
    optional: Sequence[str] = (),
) -> Formula:
    """`quality_weighted`, `quality_harmonic` or `quality_minimum` with other components, as a metric called *name*.

    Args:
        how: which of the three means.
        relevancy: a metric that takes the place of `answer_relevancy`.
        weights: of context relevance, faithfulness and relevancy, for the weighted mean.
        optional: names of components that are left out where they have no score, instead of leaving the whole without
            one; the other weights then count for more, and the attribute `components` names what was used.

    Raises:
        SettingsError: a weight is negative or not finite or those that are never left out are all 0, or *optional*
            names no component, or faithfulness.
    """
    compute = _MEANS.get(how)
    if compute is None:
        raise SettingsError(f"how must be one of {', '.join(_MEANS)}, got {how!r}")
    parts = (context_relevance, faithfulness, relevancy)
    dropped = _optional(optional, [part.name for part in parts])
    if how == "weighted":
        kept = dict(zip([part.name for part in parts], _weights(weights), strict=True))
        if not any(weight for part, weight in kept.items() if part not in dropped):
            raise SettingsError(f"weights must not be all 0 where nothing is left out, got {tuple(weights)!r}")
        compute = partial(quality_weighted_of, weights=tuple(weights))
    needs = frozenset[str]().union(*(part.needs for part in parts))
    opt_in = bool(getattr(relevancy, "opt_in", False))
    return Formula(name, "1", partial(compute, parts=parts, optional=dropped), needs, opt_in=opt_in)


def _optional(names: Sequence[str], known: Sequence[str]) -> frozenset[str]:
    given = frozenset([names] if isinstance(names, str) else names)
    if faithfulness.name in given:
        raise SettingsError("optional must not name 'faithfulness': quality without it says nothing; leave it out")
    if given - set(known):
        raise SettingsError(f"optional names {', '.join(sorted(given - set(known)))}; components: {', '.join(known)}")
    return given


def _weights(weights: Sequence[float]) -> Sequence[float]:
    if len(weights) != len(_PARTS) or not all(math.isfinite(weight) and weight >= 0 for weight in weights):
        raise SettingsError(
            f"weights must be three numbers of at least 0, got {tuple(weights)!r}; they stand for context relevance, "
            "faithfulness and relevancy"
        )
    return weights


_MEANS: Final[Mapping[str, Callable[..., Result]]] = MappingProxyType(
    {"weighted": quality_weighted_of, "harmonic": quality_harmonic_of, "minimum": quality_minimum_of}
)
_NEEDS: Final = context_relevance.needs | faithfulness.needs | answer_relevancy.needs
quality_weighted: Final = Formula("quality_weighted", "1", quality_weighted_of, _NEEDS)
quality_harmonic: Final = Formula("quality_harmonic", "1", quality_harmonic_of, _NEEDS)
quality_minimum: Final = Formula("quality_minimum", "1", quality_minimum_of, _NEEDS)
METRICS: Final[tuple[Metric, ...]] = (quality_weighted, quality_harmonic, quality_minimum)
FACTORIES: Final = (combined_quality,)
