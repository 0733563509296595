"""The function `estimate`, which estimates the mean score of a metric in this process, with a confidence interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ragtrace.core.errors import SettingsError, UnknownMetricError
from ragtrace.core.tags import TagValue
from ragtrace.core.types import UNCALIBRATED
from ragtrace.estimates import (
    NOT_CALIBRATED,
    Estimate,
    Method,
    RunningMoments,
    Target,
    estimate_mean,
    missing_estimate,
)
from ragtrace.runtime.current_runtime import current

if TYPE_CHECKING:
    from ragtrace.runtime.runtime import Runtime

TOO_MANY_VALUES: Final = "too_many_values"
"""Reason for an estimate without a value: the tag has had so many values that this one's calls count as `other`."""


def estimate(
    metric: str,
    *,
    workflow: str | None = None,
    model: str | None = None,
    window: float | None = None,
    method: Method = "tuned",
    of: Target = "rate",
    corrected: bool = False,
    tags: Mapping[str, TagValue] | None = None,
) -> Estimate:
    """Estimate the mean score of a metric over this process's calls so far, with a 95 % confidence interval.

    A sample of the calls is enough: every score counts by the inverse of its inclusion probability, and where the
    screen gives the same metric, its scores of all the calls are used as far as they agree with the judge's. So with a
    decision model as screen and a chat model as judge, the decision's score of every call makes the interval narrower.

    Examples:
        >>> @ragtrace.generate
        ... def answer(question: str, docs: list[str]) -> str:
        ...     return "The tower is in Paris."
        >>> ragtrace.configure(exporter="none")
        >>> answers = [answer("Where is it?", [f"The tower is in {place}."]) for place in ("Paris", "Berlin")]
        >>> ragtrace.flush()
        True
        >>> print(ragtrace.estimate("consistency", of="traffic"))  # of these calls: all were judged
        consistency 0.5766 [0.5766, 0.5766]
        >>> print(ragtrace.estimate("consistency"))  # of those to come: little is known
        consistency 0.5766 [0.03214, 0.9888]

    Args:
        metric: name of the metric; one with range [0, 1] that the screen or the judge gives.
        workflow: of that workflow alone; default: of all.
        model: of calls answered by that model alone; default: of all.
        window: of the last so many seconds alone (at most 3600, in slices of 30); default: since the start.
        method: `tuned` (default), `fixed` or `weighted`: how far the screen is used. `weighted` uses the judge alone.
        of: `rate` (default): what the application does in the long run; `traffic`: the mean of the very calls that
            happened, whose interval shrinks to a point when all of them were judged.
        corrected: correct the judge's mean by human labels, with the calibration of `configure(calibration=...)`: the
            mean that the labels would have, if the judge errs as often here as on the labelled calls (estimator of
            Rogan and Gladen). Its interval counts the errors of both. `stale` says why a calibration does not hold.
        tags: of the calls with that tag alone, such as {"tenant": "acme"}: one, which `configure(tags=...)` names under
            `metrics`. Since the start, as time windows of tags are not kept.

    Returns:
        The estimate, without unit; its value is None, with a reason, when nothing was judged, or nothing is
        configured; corrected, also when there is no calibration (`not_calibrated`), or none that can correct
        (`one_kind_labelled`, `judge_uninformative`). Scores of a decision model are probabilities whose mean is not a
        rate: without correction their estimate has no value (`uncalibrated`), and with it only from 50 labels on
        (`too_few_labels`) and while the calibration is not stale (`stale_calibration`). With `tags`, it has none where
        the tag has had too many values to tell this one apart (`too_many_values`).

    Raises:
        UnknownMetricError: neither screen nor judge gives that metric in [0, 1].
        SettingsError: another argument is wrong.

    Source: `ragtrace/estimates/formulas.py`.
    """
    runtime = current()
    if runtime is None:
        return missing_estimate("not_configured", method, of, metric=metric, workflow=workflow)
    assignment = runtime.moments.assignment
    evaluator = assignment.evaluator_of(metric)
    if evaluator is None:
        known = ", ".join(sorted(assignment.screened | assignment.judged)) or "none"
        raise UnknownMetricError(
            f"no estimate of {metric!r}: neither screen nor judge gives such a metric in [0, 1]; estimated now: {known}"
        )
    if tags:
        tagged = _tagged(runtime, tags, window)
        if tagged is None:
            return missing_estimate(TOO_MANY_VALUES, method, of, metric=metric, workflow=workflow)
        moments = tagged.sum(metric, workflow=workflow, model=model)
    else:
        moments = runtime.moments.sum(metric, workflow=workflow, window=window, model=model)
    found = estimate_mean(moments, method=method, of=of, metric=metric, workflow=workflow, evaluator=evaluator)
    if not corrected and runtime.calibrations.is_raw(metric, evaluator):
        missing = missing_estimate(UNCALIBRATED, method, of, metric=metric, workflow=workflow)
        return replace(missing, n=found.n, evaluator=evaluator)
    if not corrected:
        return found
    entry, stale = runtime.calibrations.find(metric) or (None, "")
    if entry is None:
        missing = missing_estimate(NOT_CALIBRATED, method, of, metric=metric, workflow=workflow)
        return replace(missing, n=found.n, evaluator=evaluator)
    return entry.correct(found, stale)


def _tagged(runtime: Runtime, tags: Mapping[str, TagValue], window: float | None) -> RunningMoments | None:
    """Return the sums of the calls with a tag, or None if they are not told apart from those with other values.

    Raises:
        SettingsError: there are several, it is not one of those with sums of their own, or a time window is asked for.
    """
    by_tag = runtime.parts.tagged
    known = () if by_tag is None else by_tag.names
    name, value = next(iter(tags.items()))
    if len(tags) > 1 or window is not None:
        raise SettingsError(f"tags= takes one tag and no window=, got {dict(tags)!r} and window={window!r}")
    if by_tag is None or name not in known:
        raise SettingsError(
            f"no sums are kept of the tag {name!r}; write configure(tags=ragtrace.types.Tags(metrics=[{name!r}])). "
            f"Kept now: {', '.join(known) or 'none'}"
        )
    return by_tag.of_tag(name, value)
