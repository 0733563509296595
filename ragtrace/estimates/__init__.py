"""Estimates of mean scores from a sample of the calls, with 95 % intervals, and baselines of score distributions."""

from ragtrace.estimates.adjustment import ADJUSTED_CALLS, Adjustment, CallTraits, KnownDocuments, baseline_bound
from ragtrace.estimates.agreement import (
    Agreement,
    Interval,
    Threshold,
    agreement,
    krippendorff_alpha,
    recommend_threshold,
)
from ragtrace.estimates.baseline import (
    CALLS,
    NOT_LEARNED,
    Baseline,
    BaselineKey,
    BaselineLearner,
    CollectedScores,
    MetricBaseline,
)
from ragtrace.estimates.calibration import (
    LABEL_SUMS,
    NOT_CALIBRATED,
    CalibrationKey,
    Calibrations,
    JudgeCalibration,
    find_calibration,
    read_calibrations,
    write_calibration,
)
from ragtrace.estimates.distribution import Distribution
from ragtrace.estimates.estimate import Estimate, difference, estimate_mean, missing_estimate
from ragtrace.estimates.formulas import Method, Target
from ragtrace.estimates.moments import (
    NAMES,
    ByTag,
    MetricAssignment,
    Moments,
    RunningMoments,
    SeriesKey,
    judged_moments,
    unjudged_moments,
)

__all__ = [
    "ADJUSTED_CALLS",
    "Adjustment",
    "Agreement",
    "Baseline",
    "BaselineKey",
    "BaselineLearner",
    "CALLS",
    "CallTraits",
    "CalibrationKey",
    "Calibrations",
    "CollectedScores",
    "Distribution",
    "Estimate",
    "Interval",
    "JudgeCalibration",
    "KnownDocuments",
    "LABEL_SUMS",
    "Method",
    "MetricAssignment",
    "MetricBaseline",
    "Moments",
    "NAMES",
    "NOT_CALIBRATED",
    "NOT_LEARNED",
    "ByTag",
    "RunningMoments",
    "SeriesKey",
    "Target",
    "Threshold",
    "agreement",
    "baseline_bound",
    "difference",
    "estimate_mean",
    "find_calibration",
    "judged_moments",
    "krippendorff_alpha",
    "missing_estimate",
    "read_calibrations",
    "recommend_threshold",
    "unjudged_moments",
    "write_calibration",
]
