"""Estimates of mean scores from a sample of the calls, with 95 % intervals; baselines of score distributions."""

from ragtrace.estimates.baseline import CALLS, NOT_LEARNED, Baseline, Calls, Key, Learner, MetricBaseline
from ragtrace.estimates.distribution import Distribution
from ragtrace.estimates.estimate import Estimate, difference, from_moments, no_estimate
from ragtrace.estimates.formulas import Method, Target
from ragtrace.estimates.moments import NAMES, Moments, Plan, RunningMoments, Series, of_judged, of_seen

__all__ = [
    "CALLS",
    "NAMES",
    "NOT_LEARNED",
    "Baseline",
    "Calls",
    "Distribution",
    "Estimate",
    "Key",
    "Learner",
    "Method",
    "MetricBaseline",
    "Moments",
    "Plan",
    "RunningMoments",
    "Series",
    "Target",
    "difference",
    "from_moments",
    "no_estimate",
    "of_judged",
    "of_seen",
]
