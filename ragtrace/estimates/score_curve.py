"""Calibration curve of a judge's raw scores: the probability that a call is bad, given its score.

A decision judge gives each call a score s in [0, 1], the largest probability that it gives to one of the statements
being wrong. Such probabilities are miscalibrated on new tasks, so s is no probability that people would call the call
bad, until labels say which probability belongs to which score. `curve_fitting` fits a curve to labels.

**Curve.** With x = ln(s / (1 - s)), s limited to [0.001, 0.999]:
    g = 1 / (1 + exp(-(intercept + slope x))),
whose odds g / (1 - g) are then multiplied with the factor of the bin of s. Thresholds and ranks use s itself, as the
bins may make g fall where s rises.

**Word "calibrated".** A curve is called calibrated from 100 labels on, with 20 of the rarer kind (good or bad), and if
it predicts labels that it was not fitted to better than their mean does (`skill` above 1.645).

**Promised error.** The expected calibration error (ECE) is then promised to be at most
    0.75 (2.5 sqrt(r (1 - r) / n) + 0.015) + 0.9 gap,
with n the effective number of labels, r the end of the rate's interval at which r (1 - r) is largest, and gap the mean
distance of labels and curve over groups of labels with similar scores (`curve_fitting`): the first term knows how few
labels there are, the second where the curve does not fit them. Nothing is promised where more than one bar of the
reliability diagram does not hold its probability. In simulations with judges whose score rises with the rate, and with
some that give good calls a top score, it is kept in 97 % of the samples (`tests/benchmarks/decision_scores.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

LEAST_SCORE: Final = 0.001
"""Score, and distance of a score from 1, below which scores are not told apart."""
FEWEST_CALIBRATED: Final = 100
"""Fewest labels from which a curve may be called calibrated."""
FEWEST_RARER: Final = 20
"""Fewest labels of the rarer kind, good or bad, with which a curve may be called calibrated."""
LEAST_SKILL: Final = 1.645
"""Least standardised gain over the mean label on labels that the curve was not fitted to: a one-sided 5 % test."""
FEWEST_FOR_RATE: Final = 50
"""Fewest labels that correct the rate of a decision judge; what fewer do was not simulated."""
FEWEST_FOR_BOUND: Final = 500
"""Fewest labels with which an alert may hold a decision judge's scores against a fixed rate."""
_LEAST_VARIANCE: Final = 0.02
_ONE_SIDED: Final = 1.645


def logit(score: float) -> float:
    """Return the logit of a *score*, limited to what scores of 0.001 and 0.999 have."""
    limited = min(1.0 - LEAST_SCORE, max(LEAST_SCORE, score))
    return math.log(limited / (1.0 - limited))


@dataclass(frozen=True, slots=True)
class ScoreCurve:
    """Curve that converts a judge's raw score to the probability that the call is bad."""

    intercept: float
    slope: float
    """Slope over the logit of the score, at least 0; 0: the probability depends on the bin alone."""
    edges: tuple[float, ...]
    """Scores at which the next bin begins, in ascending order."""
    factors: tuple[float, ...]
    """Factor of the odds in each bin: one more than `edges`."""

    def probability(self, score: float) -> float:
        """Return the probability that a call with this *score* is bad, strictly between 0 and 1."""
        logit_of = self.intercept + self.slope * logit(score) + math.log(self.factors[bisect_right(self.edges, score)])
        # The form without a large exponential: exp overflows from 710 on.
        tail = math.exp(-abs(logit_of))
        return 1.0 / (1.0 + tail) if logit_of >= 0.0 else tail / (1.0 + tail)


@dataclass(frozen=True, slots=True)
class LabelSpread:
    """Mean and variance of the probabilities that a curve gives to calls of one label which it was not fitted to."""

    mean: float
    variance: float
    effective_n: float
    """Effective number of labels of that kind."""


@dataclass(frozen=True, slots=True)
class ScoreCalibration:
    """Curve of a decision judge's scores, with what the labels say about how far the curve can be relied on."""

    curve: ScoreCurve
    labels: int
    """Number of labelled calls, without those that reviewers are unsure about."""
    rarer: int
    """Number of labels of the rarer kind, good or bad."""
    effective_n: float
    skill: float
    """Standardised gain over the mean label, on labels that the curve was not fitted to."""
    promised_error: float
    """Largest expected calibration error (ECE) that may be promised for the curve; infinity: it does not fit."""
    bad: LabelSpread | None
    """Probabilities of the calls labelled bad; None: there is none."""
    good: LabelSpread | None

    @property
    def lacking(self) -> str:
        """Description of what the labels lack for the curve to be called calibrated, or "" if nothing is missing."""
        return gate_lacking(self.labels, self.rarer, self.skill)

    @property
    def is_calibrated(self) -> bool:
        """Whether the curve may be called calibrated."""
        return not self.lacking

    @property
    def promise(self) -> str:
        """What is promised of the curve's calibration error, as part of a sentence."""
        if math.isinf(self.promised_error):
            return "no calibration error is promised, as bars of the reliability diagram do not agree with the curve"
        return (
            f"expected calibration error at most {self.promised_error:.3f} (for judges whose score rises with the "
            "rate, in simulations)"
        )

    def bound_lacking(self) -> str:
        """Return why no alert may hold the scores against a fixed rate, or "" if one may."""
        if self.labels < FEWEST_FOR_BOUND:
            return f"{self.labels} of {FEWEST_FOR_BOUND} labels: {FEWEST_FOR_BOUND - self.labels} are missing"
        if self.lacking:
            return self.lacking
        apart = self.bad is not None and self.good is not None and self.bad.mean > self.good.mean
        return "" if apart else "scores of bad calls above those of good calls"

    def alert_bound(self, rate: float) -> float:
        """Convert a *rate* of bad calls, in (0, 1), to a bound on the mean probability that the curve gives.

        It is the one-sided 95 % limit towards fewer alarms, because the labels know only so well which mean probability
        the curve gives to bad and to good calls.
        """
        if self.bad is None or self.good is None:
            raise ValueError("there are no labels of both kinds")
        value = self.good.mean + rate * (self.bad.mean - self.good.mean)
        of_bad = rate * rate * max(self.bad.variance, _LEAST_VARIANCE) / self.bad.effective_n
        of_good = (1.0 - rate) ** 2 * self.good.variance / self.good.effective_n
        return min(1.0 - 1e-6, max(1e-6, value + _ONE_SIDED * math.sqrt(of_bad + of_good)))

    def record(self) -> dict[str, Any]:
        """Return the calibration as values for JSON, which `read_record` understands."""
        # JSON has no infinity.
        return {**asdict(self), "promised_error": None if math.isinf(self.promised_error) else self.promised_error}

    @classmethod
    def read_record(cls, record: Mapping[str, Any]) -> ScoreCalibration:
        """Create the calibration from the values that `record` returned.

        Raises:
            ValueError: a value is missing, or is none that a calibration can have.
        """
        try:
            curve = record["curve"]
            edges, factors = _numbers(curve["edges"], 0.0, 1.0), _numbers(curve["factors"], 1e-12, 1e12)
            if list(edges) != sorted(set(edges)) or len(factors) != len(edges) + 1:
                raise ValueError("bins and their factors do not fit each other")
            labels, rarer = (int(_number(record[name], 0.0, 1e12)) for name in ("labels", "rarer"))
            return cls(
                ScoreCurve(_number(curve["intercept"], -1e6, 1e6), _number(curve["slope"], 0.0, 1e6), edges, factors),
                labels,
                rarer,
                _number(record["effective_n"], 0.0, 1e12),
                _number(record["skill"], -1e9, 1e9),
                math.inf if record["promised_error"] is None else _number(record["promised_error"], 0.0, 10.0),
                _spread(record["bad"]),
                _spread(record["good"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the curve of the scores is damaged ({type(error).__name__}: {error})") from error


def gate_lacking(labels: int, rarer: int, skill: float) -> str:
    """Return what *labels* lack for a curve that may be called calibrated, or "" if nothing is missing.

    Args:
        labels: number of labelled calls.
        rarer: number of these with the rarer label.
        skill: standardised gain of the curve over the mean label.
    """
    missing: list[str] = []
    if labels < FEWEST_CALIBRATED:
        missing.append(f"{labels} of {FEWEST_CALIBRATED} labels")
    if rarer < FEWEST_RARER:
        missing.append(f"{rarer} of {FEWEST_RARER} labels of the rarer kind")
    if not missing and not skill > LEAST_SKILL:
        missing.append(f"scores that predict labels better than their mean does (skill {skill:.2f} of {LEAST_SKILL:g})")
    return ", ".join(missing)


def promised_error(low: float, high: float, effective_n: float, gap: float) -> float:
    """Return the largest expected calibration error (ECE) that may be promised for a curve.

    Args:
        low: low end of the 95 % interval of the rate of bad calls by the labels alone.
        high: high end of it.
        effective_n: effective number of labels.
        gap: mean distance of labels and curve over groups of labels with similar scores.
    """
    rate = min(max(0.5, low), high)
    return 0.75 * (2.5 * math.sqrt(rate * (1.0 - rate) / effective_n) + 0.015) + 0.9 * gap


def _spread(record: Mapping[str, Any] | None) -> LabelSpread | None:
    if record is None:
        return None
    return LabelSpread(
        _number(record["mean"], 0.0, 1.0), _number(record["variance"], 0.0, 1.0),
        _number(record["effective_n"], 1e-9, 1e12),
    )  # fmt: skip


def _numbers(values: object, least: float, most: float) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise TypeError(f"{values!r} is no list of numbers")
    return tuple(_number(value, least, most) for value in cast("Sequence[object]", values))


def _number(value: object, least: float, most: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"the curve of the scores is damaged ({value!r} is no number from {least:g} to {most:g})")
    return float(value)
