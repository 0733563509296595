"""Estimate of a mean score with its 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from ragtrace.core.errors import SettingsError
from ragtrace.core.text import format_plainly
from ragtrace.core.types import html_table
from ragtrace.estimates.formulas import Floats, Method, Target, interval_bounds
from ragtrace.estimates.moments import NAMES, Moments

Correction: TypeAlias = Literal["", "labels", "rogan_gladen"]
CONFIDENCE: Final = 0.95
NOTHING_JUDGED: Final = "nothing_judged"
_FLOATS: Final = Floats()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a mean score with its 95 % interval.

    The scores are in [0, 1]. Value and interval are None if there is no estimate, mostly as no call was judged.

    Examples:
        >>> ragtrace.configure(exporter="none")
        >>> estimate = ragtrace.estimate("consistency")
        >>> estimate.value, estimate.n, estimate.reason
        (None, 0, 'nothing_judged')
    """

    value: float | None
    low: float | None
    """Lower end of the 95 % interval; None: there is no estimate."""
    high: float | None
    n: int
    """Number of calls that could have been judged, whether they were judged or not."""
    effective_n: float
    """Number of judged calls of equal weight that would give the same precision, at most the number judged."""
    method: Method
    """Method of the estimate: `weighted` by the judged calls alone, or prediction-powered from the screen's scores of
    all calls, corrected by the judged ones, with a `fixed` weight of 1 or the `tuned` weight."""
    of: Target
    """Target of the estimate: `rate` in the long run, or `traffic` for the mean of exactly the calls that happened."""
    weight: float = 0.0
    """Weight of the screen's scores in the estimate; 0: the estimate does not use them."""
    metric: str = ""
    workflow: str | None = None
    evaluator: str = ""
    """Id of the evaluator that gave the scores."""
    reason: str | None = None
    corrected: Correction = ""
    """Correction of the judge's mean by human labels: by `labels` of this traffic, or by the `rogan_gladen` estimator
    from labels of other traffic; empty: no correction."""
    stale: str = ""
    """Reason why the calibration behind the correction is out of date; empty: it is in force, or there is none."""

    def __str__(self) -> str:
        name = f"{self.metric} " if self.metric else ""
        stale = f" (stale calibration: {self.stale})" if self.stale else ""
        if self.value is None or self.low is None or self.high is None:
            return f"{name}unknown ({self.reason}){stale}"
        value, low, high = (format_plainly(each, 4) for each in (self.value, self.low, self.high))
        return f"{name}{value} [{low}, {high}]{stale}"

    def _repr_html_(self) -> str:
        """Return the estimate as an HTML table of one row, for notebooks."""
        return html_table(
            ("estimate with its 95 % interval", "workflow", "calls"), [(str(self), self.workflow or "", str(self.n))]
        )


def missing_estimate(
    reason: str, method: Method, of: Target, *, metric: str = "", workflow: str | None = None
) -> Estimate:
    """Create an estimate that has no value, with the *reason* why there is none."""
    return Estimate(None, None, None, 0, 0.0, method, of, metric=metric, workflow=workflow, reason=reason)


def estimate_mean(
    moments: Moments,
    *,
    method: Method = "tuned",
    of: Target = "rate",
    metric: str = "",
    workflow: str | None = None,
    evaluator: str = "",
) -> Estimate:
    """Estimate a mean score and its 95 % interval from *moments*, the sums of weights and scores over the calls.

    Args:
        moments: the sums, added up over all processes and times that the estimate is about.
        method: `tuned` (default) uses the screen (the evaluator that scores every call) as far as it helps, and gives
            an interval that is never wider than that of `weighted`.
        of: `rate` (default) or `traffic`.

    Returns:
        An estimate; its value and interval are None, with a reason, if no call was judged.

    Raises:
        SettingsError: method or target is not known, or the sums cannot be those of any calls.

    Source: `ragtrace/estimates/formulas.py`.
    """
    _check(method, get_args(Method), "method")
    _check(of, get_args(Target), "of")
    if not all(math.isfinite(value) and value >= 0.0 for value in moments.values()):
        raise SettingsError(f"moments must be finite and not negative, got {moments!r}; pass sums, not rates")
    if moments.w <= 0.0 or moments.ww <= 0.0:
        none = missing_estimate(NOTHING_JUDGED, method, of, metric=metric, workflow=workflow)
        return replace(none, n=round(moments.n), evaluator=evaluator)
    sums = dict(zip(NAMES, moments.values(), strict=True))
    found = interval_bounds(sums, _FLOATS, method, of)
    return Estimate(
        found.value, found.low, found.high, round(moments.n), moments.w * moments.w / moments.ww, method, of,
        found.weight, metric, workflow, evaluator,
    )  # fmt: skip


def _check(value: object, known: tuple[str, ...], name: str) -> None:
    if value not in known:
        raise SettingsError(f"{name} must be one of {', '.join(known)}, got {value!r}; leave it out for the default")


def difference(after: Estimate, before: Estimate) -> tuple[float, float, float] | None:
    """Return the difference of two estimates, after - before, with its 95 % interval.

    The two must have no calls in common.

    Returns:
        Value, low and high; None if one of the estimates has no value.

    Source: square-and-add (MOVER): Newcombe 1998, Statistics in Medicine 17:873; Zou and Donner 2008, 27:1693.
    """
    if after.value is None or after.low is None or after.high is None:
        return None
    if before.value is None or before.low is None or before.high is None:
        return None
    value = after.value - before.value
    down = math.hypot(after.value - after.low, before.high - before.value)
    up = math.hypot(after.high - after.value, before.value - before.low)
    return value, value - down, value + up
