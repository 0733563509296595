"""Estimates of mean scores from sampled traffic, with 95 % intervals, and baselines of score distributions."""

from ragtrace.estimates.baseline import CALLS, Baseline, Calls, Distribution, Key
from ragtrace.estimates.estimate import Estimate, difference, from_moments, no_estimate
from ragtrace.estimates.formulas import Method, Target
from ragtrace.estimates.learning import NOT_LEARNED, BaselineProgress, Learner, MetricBaseline
from ragtrace.estimates.moments import NAMES, Moments, of_judged, of_seen
from ragtrace.estimates.observer import Observer, Plan
from ragtrace.estimates.running import RunningMoments, Series

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
    "Observer",
    "Plan",
    "BaselineProgress",
    "RunningMoments",
    "Series",
    "Target",
    "difference",
    "from_moments",
    "no_estimate",
    "of_judged",
    "of_seen",
]
