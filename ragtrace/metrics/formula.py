"""`Formula`: metric that a function computes from a judge's labels. Also preconditions for such functions.

The function's docstring is the reference of the metric. After the first sentence it has these sections, each label at
the start of a line, in this order; `python -m docs.make_metrics` makes docs/metrics.md of them and of the metadata:

    Inputs: what of the call it reads, and what of them it needs.
    Formula: how the number comes about.
    Range: only where there is more to say than the `range` and direction of the metadata.
    Judge calls: only where the metric costs others than the one call of the main reply.
    Unscored: `reason` (when), ...; what any metric can end in (a judge's failure, a policy) need not be repeated.
    Source: the publication or system the definition comes from.
    Labels: those of the scores, where they are others than `pass` and `fail`; else the section is left out.

A section ends at the next label or at an empty line. Any other paragraph is a note, and stands below the table.

A module of metrics lists those that are known by name in `METRICS`, and the functions that make others in `FACTORIES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.follow_ups import QUERY_NEEDS_TURNS
from ragtrace.core.labels import Claim
from ragtrace.core.text import OwnText
from ragtrace.core.types import (
    CALIBRATION,
    NOT_A_RATE,
    UNCALIBRATED,
    Document,
    Judgement,
    Plain,
    RagCall,
    Result,
    Score,
    Unscored,
)

SLACK: Final = 1e-9
"""Tolerance of rounding errors in comparisons of a value with a boundary."""
MAX_UNJUDGED: Final = 0.2
"""Highest share of items without a valid label at which there is a score, from 0 to 1."""
LIKELY: Final = 0.5
"""Lowest probability of a decision model, as it gave it, that counts as yes."""
_NO_LABELS: Final = Judgement()


@dataclass(frozen=True, slots=True)
class Formula:
    """Metric: its name, range and other metadata, and the function that computes it.

    `compute` returns a `Score` with a value, attributes and claims, or an `Unscored` with its reason; the `Formula`
    adds name, version, direction, the threshold's label, and the judgement's mode, cost and attributes.
    `dataclasses.replace(metric, threshold=0.8)` makes a metric with another threshold.

    Examples:
        >>> from dataclasses import replace
        >>> strict = replace(ragtrace.metrics.registry.get("faithfulness"), threshold=0.9)
        >>> strict.fails(0.85), strict.higher_is_better
        (True, True)
    """

    name: str
    version: str
    compute: Callable[..., Result]
    """Function of the call, the judgement and, by keyword, options of a variant of the metric."""
    needs: frozenset[str]
    higher_is_better: bool = True
    range: tuple[float, float] = (0.0, 1.0)
    threshold: float | None = None
    """Worst value that is labelled `pass`, while worse ones are labelled `fail`; None for a metric without labels."""
    opt_in: bool = False
    """Whether the metric is computed only where `metrics=` names it, as it costs judge calls of its own."""
    computes: bool = True
    """Whether `compute` is pure arithmetic, which is called directly instead of in a thread."""
    settled: Callable[[RagCall], bool] | None = None
    """Function that returns whether the call alone determines the result without a judge; None if no call ever does."""
    beside: tuple[str, ...] = ()
    """Names of metrics that are always computed together with this metric, which would mislead alone."""
    reads: frozenset[str] | None = None
    """Labels that it reads of what it `needs`: of `statements` (which there are), their `support`, the `denial` of
    those without it (contradicted, or only not found) and whether they are `relevant`, the `grade` of chunks and
    whether they are `contradicted`, and the `answer_label`; None: all. A judge need not be asked for the others."""

    def __call__(self, call: RagCall, judgement: Judgement = _NO_LABELS) -> Result:
        result = self.compute(call, judgement)
        attributes = {**judgement.attributes, **result.attributes} if judgement.attributes else result.attributes
        about = (judgement.mode, judgement.n_calls, judgement.input_tokens, judgement.output_tokens)
        # Not dataclasses.replace, which takes longer than most of the arithmetic.
        name, version, up = self.name, self.version, self.higher_is_better
        why, evaluator = result.explanation, result.evaluator
        if isinstance(result, Unscored):
            return Unscored(result.reason, name, version, up, why, evaluator, *about, attributes)
        label = result.label
        if label is None and self.threshold is not None:
            label = "fail" if self.fails(result.value) else "pass"
        return Score(result.value, name, version, up, label, why, evaluator, *about, attributes, result.claims)

    def fails(self, value: float) -> bool:
        """Return whether *value* is strictly worse than the threshold of this metric.

        Raises:
            ValueError: the metric has no threshold.
        """
        if self.threshold is None:
            raise ValueError(f"metric {self.name!r} has no threshold; pass threshold= when making it")
        worse = self.threshold - value if self.higher_is_better else value - self.threshold
        return worse > SLACK

    def tolerating(self, unjudged: float) -> Formula:
        """Return a copy of this metric with another limit on the share of items without a label.

        With a larger share than *unjudged*, the metric gives no score. The default is 0.2 of all items.

        Raises:
            SettingsError: *unjudged* is not in [0, 1), or the metric has no such limit.
        """
        if not 0 <= unjudged < 1:
            raise SettingsError(f"unjudged must be in [0, 1), got {unjudged!r}; for 10 % write 0.1")
        if "max_unjudged" not in inspect.signature(self.compute).parameters:
            raise SettingsError(f"metric {self.name!r} has no limit of unjudged items; leave out .tolerating(...)")
        return self.variant(self.name, max_unjudged=unjudged)

    def variant(self, name: str, **options: object) -> Formula:
        """Return a copy of this metric with another *name* and with *options* as keyword arguments of `compute`."""
        return replace(self, name=name, compute=partial(self.compute, **options))


def formula(
    *,
    needs: frozenset[str] = frozenset(),
    version: str = "1",
    higher_is_better: bool = True,
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002 - a Metric calls it so
    threshold: float | None = None,
    opt_in: bool = False,
    settled: Callable[[RagCall], bool] | None = None,
    beside: tuple[str, ...] = (),
    reads: frozenset[str] | None = None,
) -> Callable[[Callable[..., Result]], Formula]:
    """Return a decorator that turns a function of a call and a judgement into a metric with the function's name.

    The metric is a `Formula`.

    Args:
        needs: fields of `Judgement` that the function reads.
        version, higher_is_better, range, threshold, opt_in, settled, beside, reads: as the fields of `Formula`.
    """

    def make(compute: Callable[..., Result]) -> Formula:
        name = str(getattr(compute, "__name__", ""))
        return Formula(
            name, version, compute, needs, higher_is_better, range, threshold, opt_in,
            settled=settled, beside=beside, reads=reads,
        )  # fmt: skip

    return make


def blank(text: str | None) -> bool:
    """Return whether *text* is None, empty or nothing but white space."""
    return not text or text.isspace()


def any_text(documents: Sequence[Document] | None) -> bool:
    """Return whether at least one of *documents* has a text that is not blank."""
    return not all(blank(document.text) for document in documents or ())


def declined(judgement: Judgement) -> bool:
    """Return whether the answer declines to answer and makes no statement that can be checked."""
    return judgement.answer_label == "abstained" and not any(claim.checkable for claim in judgement.claims or ())


_HOLDS: Final[Mapping[str, Callable[[RagCall, Judgement], bool]]] = MappingProxyType(
    {
        "empty_answer": lambda call, _: blank(call.answer),
        "empty_query": lambda call, _: blank(call.query),
        "contexts_missing": lambda call, _: call.contexts is None,
        "no_contexts": lambda call, _: not any_text(call.contexts),
        "needs_reference": lambda call, _: blank(call.reference),
        QUERY_NEEDS_TURNS: lambda _, judgement: judgement.attributes.get(QUERY_NEEDS_TURNS) is True,
        "needs_conversation": lambda call, _: not call.turns,
        "abstained": lambda _, judgement: declined(judgement),
    }
)


def unmet(call: RagCall, judgement: Judgement, *reasons: str) -> str:
    """Return the first of *reasons* why the call cannot have a score, or "" if none applies.

    Args:
        reasons: of `empty_answer`, `empty_query`, `query_needs_turns`, `contexts_missing`, `no_contexts`,
            `needs_reference`, `needs_conversation` and `abstained`, in the order in which they are looked at.
    """
    for reason in reasons:
        if _HOLDS[reason](call, judgement):
            return reason
    return ""


def why_missing(judgement: Judgement, field: str, otherwise: str = "unparsable") -> str:
    """Return the judge's reason for leaving out *field* of a judgement, or *otherwise* if the judge gave none."""
    return judgement.reasons.get(field) or judgement.reasons.get("") or otherwise


def too_many(unjudged: int, items: int, limit: float) -> bool:
    """Return whether too many of the *items* lack a valid label for a score to be computed.

    Too many are more than the share *limit* of the items, or all of them.
    """
    return unjudged >= items or unjudged > limit * items + SLACK


def share(counted: int, unjudged: int, items: int, limit: float, attributes: Mapping[str, Plain]) -> Result:
    """Return a share as a metric's result: the *counted* items divided by the items with a valid label.

    Items that are *unjudged* are left out. If they are too many, the result is unscored (`too_many_unjudged`).
    """
    if too_many(unjudged, items, limit):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(counted / (items - unjudged), attributes=attributes)


def uncalibrated(
    value: float, label: str | None, attributes: Mapping[str, Plain], claims: tuple[Claim, ...] = ()
) -> Score:
    """Return a score that rests on raw probabilities of a decision model, and says that it is no rate."""
    said = {**attributes, CALIBRATION: UNCALIBRATED}
    return Score(value, label=label, explanation=OwnText(NOT_A_RATE), attributes=said, claims=claims)


def f1(precision: float, recall: float) -> float:
    """Return the F1 score: the harmonic mean of *precision* and *recall*, 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
