"""Report on a guard before it acts: how many answers it would block at each threshold, good, bad and all."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.false_blocks import NO_LABELS, THRESHOLDS, FalseBlocks
from ragtrace.history.reading import HistoryReader
from ragtrace.labels.label_store import LabelStore
from ragtrace.report.calibration import calibrate, judged_calls


@dataclass(frozen=True, slots=True)
class GuardCurve:
    """Shares of the answers of a history that a guard would block, by the threshold of badness."""

    metric: str
    evaluator: str
    higher_is_better: bool
    judged: int
    """Number of calls that the judge has scored."""
    blocked: tuple[float, ...]
    """Share of all answers above each of `THRESHOLDS`."""
    labels: FalseBlocks
    stale: str
    """Judge of the newest calls, where the labels are of another one; else empty."""
    labelled_good: int
    labelled_bad: int

    def score_bound(self, threshold: float) -> float:
        """Return the bound on the score, `below` or `above`, for a threshold of badness."""
        return round(1.0 - threshold, 9) if self.higher_is_better else threshold


def guard_curve(history: str | os.PathLike[str], metric: str, evaluator: str | None = None) -> GuardCurve:
    """Return what a guard on *metric* would have done with the calls of a history.

    Args:
        history: file that `configure(store=...)` keeps.
        metric: name of the metric, with scores in [0, 1].
        evaluator: id@version of the judge; default: the one whose calls were picked for labelling, or that has scored
            the most calls.

    Raises:
        SettingsError: no judge has scored the metric.
        SQLiteFileError: the file is no history.
        sqlite3.Error: it cannot be read.
    """
    path = os.fspath(history)
    with closing(LabelStore(path)) as store:
        picks = store.picks(metric)
    fitted = calibrate(path, metric, evaluator=evaluator) if picks else None
    with closing(HistoryReader(path)) as reader:
        by = evaluator if fitted is None else fitted.evaluator
        calls = judged_calls(reader, reader.columns(0.0, float("inf")), metric, by)
    weight = calls.series.weight_by_call()
    score = np.round(np.nan_to_num(calls.series.score_by_call()), 9)
    total = float(weight.sum())
    if not total:
        raise SettingsError(f"the history has no judged calls for the metric {metric!r}")
    blocked = tuple(float(weight[score > threshold].sum()) / total for threshold in THRESHOLDS)
    bad = 0 if fitted is None else sum(point.label > 0.5 for point in fitted.points)
    return GuardCurve(
        metric,
        calls.series.evaluator,
        calls.series.higher_is_better,
        int((weight > 0).sum()),
        blocked,
        NO_LABELS if fitted is None else fitted.blocks,
        "" if fitted is None else fitted.stale,
        0 if fitted is None else len(fitted.points) + len(fitted.unsure_points) - bad,
        bad,
    )
