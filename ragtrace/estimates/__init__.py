"""Estimates of mean scores from a sample of the calls, with 95 % intervals; baselines of score distributions."""

from ragtrace.estimates.baseline import (
    CALLS,
    NOT_LEARNED,
    Baseline,
    BaselineKey,
    BaselineLearner,
    CollectedScores,
    MetricBaseline,
)
from ragtrace.estimates.distribution import Distribution
from ragtrace.estimates.estimate import Estimate, difference, estimate_mean, missing_estimate
from ragtrace.estimates.formulas import Method, Target
from ragtrace.estimates.moments import (
    NAMES,
    MetricAssignment,
    Moments,
    RunningMoments,
    SeriesKey,
    judged_moments,
    unjudged_moments,
)

__all__ = [
    "Baseline",
    "BaselineKey",
    "BaselineLearner",
    "CALLS",
    "CollectedScores",
    "Distribution",
    "Estimate",
    "Method",
    "MetricAssignment",
    "MetricBaseline",
    "Moments",
    "NAMES",
    "NOT_LEARNED",
    "RunningMoments",
    "SeriesKey",
    "Target",
    "difference",
    "estimate_mean",
    "judged_moments",
    "missing_estimate",
    "unjudged_moments",
]
