"""Calibration of a judge: sampling of judged calls for human labelling, and comparison of the labels with the judge."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import UNCALIBRATED
from ragtrace.estimates import (
    NOT_CALIBRATED,
    Agreement,
    CalibrationKey,
    Estimate,
    JudgeCalibration,
    Moments,
    Threshold,
    agreement,
    estimate_mean,
    krippendorff_alpha,
    missing_estimate,
    recommend_threshold,
    write_calibration,
)
from ragtrace.estimates.calibration import STALE, TOO_FEW_LABELS, label_sums
from ragtrace.estimates.corrected import LabelledCall, corrected_rate
from ragtrace.estimates.curve_fitting import (
    DiagramBar,
    FittedScores,
    effective_labels,
    fit_scores,
    picking_shares,
    reliability_diagram,
)
from ragtrace.estimates.false_blocks import FalseBlocks, LabelledAnswer, count_false_blocks
from ragtrace.estimates.label_demand import fewest_labels, labels_needed
from ragtrace.estimates.score_curve import FEWEST_FOR_RATE, ScoreCalibration, ScoreCurve
from ragtrace.history.reading import HistoryReader
from ragtrace.judges.llm.prompts import prompt_hash_of
from ragtrace.labels.label_store import Label, LabelStore, Pick, labels_in, picks_in
from ragtrace.report.cascade import cascade_estimate
from ragtrace.report.model import UNRELIABLE, CorrectedRate
from ragtrace.report.series import ScoreSeries, score_series

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ragtrace.history.reading import CallColumns
    from ragtrace.history.segments import Ints

    Floats: TypeAlias = NDArray[np.float64]

BAD: Final = 0.5
"""Lowest badness, from 0 to 1, at which a verdict of the judge or the mean of several labels counts as bad."""
DEFAULT_METRIC: Final = "hallucinated"
_SCREEN: Final = "consistency"
LEAST_ALPHA: Final = 0.8
"""Lowest Krippendorff's alpha at which reviewers agree well enough to be relied on.

Source: Krippendorff 2004, "Content Analysis", 2nd edition, section 11.4.2.
"""
_ALIKE: Final = 0.5
"""Share of the picks, from 0 to 1, spread evenly over all calls; the rest is spread evenly over the strata."""


@dataclass(frozen=True, slots=True)
class JudgedCalls:
    """RAG calls of a history with one judge's scores of one metric, as arrays with one element per call."""

    columns: CallColumns
    """All calls of the history, judged or not."""
    series: ScoreSeries
    """Scores converted to badness: 0 is good, 1 is bad."""
    reader: HistoryReader
    """The history, in which the identities of single calls are looked up: those of a million take 100 MB and more."""
    known: NDArray[np.bool_]
    """Mask of the calls that have an identity (trace id and span id).

    Other calls cannot be labelled, and do not count in the rate.
    """
    judged: NDArray[np.bool_]
    """Mask of the calls that were judged and have an identity."""
    stored_series: Ints
    """Number of the stored series of each call's score; -1 for a call that this judge did not score."""
    newest_evaluator: str
    """Judge of the newest judged call, as "id@version"; labels are stale if it is not the judge of `series`."""
    is_decision: bool = False
    """Whether it is a decision judge, whose scores are no rates without labels."""

    def identity(self, position: int) -> bytes | None:
        """Return the identity of the call at *position*, or None if it has none."""
        return self.reader.identity(int(self.columns.number[position]))

    def positions(self, identities: Iterable[bytes]) -> dict[bytes, int]:
        """Return the positions of those judged calls that have one of the *identities*, by identity."""
        found: dict[bytes, int] = {}
        for identity, number in self.reader.numbers_of(identities):
            at = int(np.searchsorted(self.columns.number, number))
            if at < len(self.columns) and self.columns.number[at] == number and self.judged[at]:
                found[identity] = at
        return found

    def metric_version(self, position: int) -> str:
        """Return the metric's version for the call at *position*; empty if this judge did not score the call."""
        number = int(self.stored_series[position])
        return "" if number < 0 else self.columns.series[number].version

    def metric_versions(self) -> set[str]:
        """Return the metric's versions for all calls that this judge scored."""
        return {self.columns.series[number].version for number in np.unique(self.stored_series).tolist() if number >= 0}


def judged_calls(
    reader: HistoryReader,
    columns: CallColumns,
    metric: str,
    evaluator: str | None = None,
    all_series: Sequence[ScoreSeries] | None = None,
) -> JudgedCalls:
    """Return the RAG calls of a history with the scores that one judge gave for *metric*.

    Args:
        reader: the history.
        columns: calls and scores of the history.
        metric: name of the metric, with scores in [0, 1].
        evaluator: id@version of the judge; None: the one with the most scores of calls as they came.
        all_series: the scores in *columns* by metric and evaluator, where they are known; None: they are made.

    Raises:
        SettingsError: the history has no estimated scores of that metric.
    """
    all_series = score_series(columns) if all_series is None else all_series
    found = [each for each in all_series if each.unit and each.estimated]
    of_metric = [each for each in found if each.metric == metric and evaluator in (None, each.evaluator)]
    if not of_metric:
        known = ", ".join(sorted({each.metric for each in found})) or "none"
        by = "" if evaluator is None else f" by {evaluator}"
        raise SettingsError(f"the history has no judged calls for the metric {metric!r}{by}; it has: {known}")
    series = max(of_metric, key=lambda each: (not each.added, len(each.judged_calls())))
    # A judge that scored stored calls later does not replace the judge of the live calls.
    live = [series] if series.added else [each for each in found if each.metric == metric and not each.added]
    newest = max(live, key=lambda each: columns.at[each.judged_calls()].max(initial=0.0))
    if series.higher_is_better:
        series = replace(series, scores=1.0 - series.scores, screen_score=1.0 - series.screen_score)
    has_identity = ~np.isin(columns.number, reader.without_identity())
    stored_series = np.full(len(columns), -1, np.int32)
    for number, stored in columns.series.items():
        if stored.metric == metric and columns.evaluators[stored.evaluator] == series.evaluator:
            stored_series[columns.scored_call[columns.scored_series == number]] = number
    judged = has_identity & series.is_judged()
    return JudgedCalls(columns, series, reader, has_identity, judged, stored_series, newest.evaluator, series.is_raw)


def pick_calls(calls: JudgedCalls, number: int, seed: int | None = None, curve: ScoreCurve | None = None) -> list[Pick]:
    """Draw a random sample of about *number* judged calls for labelling, and record the inclusion probability of each.

    Half of the sample is spread over all judged calls alike, half evenly over the strata, which are the combinations of
    workflow, verdict of the judge and score of the screen (below its median or not). So no judged call has the
    probability 0. Of a decision judge's calls, the other half goes where the label is least certain (`picking_shares`).

    Args:
        calls: the judged calls.
        number: calls to pick; all of them if there are no more.
        seed: seed of the random numbers; None: another each time.
        curve: curve of the decision judge's scores that may be called calibrated; None: raw scores are used.
    """
    columns, positions = calls.columns, np.flatnonzero(calls.judged)
    if not len(positions):
        return []
    if calls.is_decision:
        raw = calls.series.score_by_call()[positions]
        known = raw if curve is None else np.array([curve.probability(score) for score in raw.tolist()])
        return _draw(calls, positions, picking_shares(known), number, seed)
    screen = next((each for each in score_series(columns) if each.metric == _SCREEN), None)
    seen = np.zeros(len(columns)) if screen is None else np.nan_to_num(screen.score_by_call())
    keys = np.stack(
        [
            columns.workflow[positions],
            calls.series.score_by_call()[positions] >= BAD,
            seen[positions] < np.median(seen[positions]),
        ]
    )
    _, stratum, size = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    stratum = stratum.ravel()
    share = _ALIKE / len(positions) + (1.0 - _ALIKE) / len(size) / size[stratum]
    return _draw(calls, positions, share, number, seed)


def _draw(calls: JudgedCalls, positions: NDArray[np.int64], share: Floats, number: int, seed: int | None) -> list[Pick]:
    """Draw about *number* of the calls at *positions*, with probabilities in proportion to *share*."""
    probability = _inclusion_probabilities(share, min(number, len(positions)))
    random = np.random.default_rng(seed)
    order = random.permutation(len(positions))
    # Systematic sampling in a random order: each call is drawn with exactly its probability.
    reached = np.floor(np.cumsum(probability[order]) + random.random())
    drawn = np.sort(order[np.diff(reached, prepend=0.0) > 0])
    series = calls.series
    return [
        Pick(identity, series.metric, series.evaluator, float(probability[at]))
        for at in drawn.tolist()
        if (identity := calls.identity(int(positions[at]))) is not None
    ]


def picks_among(calls: JudgedCalls, picks: Sequence[Pick]) -> list[Pick]:
    """Return the calls picked for labelling that one judge has scored, with their inclusion probabilities.

    Picks are drawn from the calls of one judge. They also stand for the calls of a judge that scored stored calls, as
    that judge saw all of them: the probability is that with which the first judge saw the call, times that of the draw.

    Args:
        calls: calls of one judge.
        picks: calls that were picked from those of this judge or of another one.

    Returns:
        The picks; none if they were drawn from the calls of another judge and that of *calls* saw a sample of its own.
    """
    series, drawn_from = calls.series, picks[0].evaluator if picks else ""
    if drawn_from in ("", series.evaluator):
        return list(picks)
    if not series.added:
        return []
    try:
        first = judged_calls(calls.reader, calls.columns, series.metric, drawn_from).series.weight_by_call()
    except SettingsError:  # the judge's scores have been deleted
        return []
    picked = calls.positions(pick.identity for pick in picks)
    seen = {identity: 1.0 / float(first[at]) for identity, at in picked.items() if first[at] > 0.0}
    return [
        replace(pick, probability=pick.probability * seen[pick.identity]) for pick in picks if pick.identity in seen
    ]


def _inclusion_probabilities(share: Floats, total: float) -> Floats:
    """Compute the probability with which each call is to be sampled.

    The probabilities are in proportion to *share*, at most 1, and add up to *total*.
    """
    probability: Floats = np.minimum(1.0, share * total / share.sum())
    for _ in range(50):
        free = probability < 1.0
        missing = total - probability.sum()
        if missing < 1e-9 * total or not free.any():
            break
        probability[free] = np.minimum(1.0, probability[free] * (1.0 + missing / probability[free].sum()))
    return probability


@dataclass(frozen=True, slots=True)
class Disagreement:
    """RAG call on which the judge and the human label disagree."""

    identity: bytes
    badness: float
    """The judge's score converted to badness, from 0 (good) to 1 (bad)."""
    label: float
    weight: float
    """Number of calls of the traffic that the call stands for."""


class LabelledPoint(NamedTuple):
    """Labelled RAG call in the form that plots and calibration files use."""

    badness: float
    """The judge's score converted to badness, from 0 (good) to 1 (bad)."""
    label: float
    """Mean of the reviewers' labels: 0 is good, 1 is bad."""
    weight: float
    """Number of calls of the traffic that the call stands for."""


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """Agreement of reviewers with each other on the calls that several of them labelled good or bad."""

    reviewers: tuple[str, ...]
    compared: int
    """Number of calls that several reviewers labelled good or bad."""
    differing: int
    """Number of calls, of the `compared` ones, that some reviewers label good and others bad."""
    alpha: float | None
    """Krippendorff's alpha, at most 1; None if no call has several labels, or all labels are the same."""

    @property
    def is_unreliable(self) -> bool:
        """Whether the reviewers differ too much for their labels to be relied on."""
        return self.alpha is not None and self.alpha < LEAST_ALPHA

    @property
    def doubt(self) -> str:
        """Explanation why the labels may be unreliable, or "" if the reviewers agree well."""
        if self.is_unreliable:
            return (
                f"{UNRELIABLE}: reviewers differ in {self.differing} of {self.compared} calls (Krippendorff's alpha "
                f"{self.alpha:.2f}, below {LEAST_ALPHA:g})"
            )
        if self.compared or not self.reviewers:
            return ""
        return "no call is labelled by two reviewers, so errors of the labels are not known"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Comparison of a judge with human labels, and the corrected rate of bad calls in all traffic.

    Examples:
        >>> calibration = ragtrace.calibrate("labelled.db", "hallucination")
        >>> print(calibration.judge)  # the rate of bad calls, as the judge sees it
        hallucination 0.2283 [0.187, 0.2755]
        >>> print(calibration.labels)  # as people see it, on the calls that they labelled
        hallucination 0.3536 [0.2714, 0.4449]
        >>> calibration.save("calibration.json")  # for configure(calibration=...)
    """

    metric: str
    evaluator: str
    picked: int
    stale: str
    """Judge of the newest calls, as "id@version", if it differs from the judge of the labelled calls, followed by the
    metric's version or the served model where only these differ; else empty."""
    key: CalibrationKey
    """Judge and metric of the labelled calls, for which the calibration holds."""
    higher_is_better: bool
    labelled: int
    """Number of picked calls with a label of good or bad."""
    unsure: int
    """Number of picked calls with labels of `unsure` alone; the intervals contain what these may be, good or bad."""
    elsewhere: int
    """Number of labels that count nowhere: the call was not picked, or the history does not hold the call's scores."""
    divided: int
    """Number of picked calls that as many reviewers label good as bad, left out of `agreement` and `threshold`."""
    reviewers: tuple[str, ...]
    between_reviewers: ReviewerAgreement
    by_reviewer: Mapping[str, Estimate]
    """Rate of bad calls by the labels of each reviewer alone; empty for a single reviewer."""
    agreement: Agreement | None
    judge: Estimate
    labels: Estimate
    corrected: Estimate
    threshold: Threshold | None
    """Recommended threshold of badness; None for too few bad or good labels."""
    points: tuple[LabelledPoint, ...]
    unsure_points: tuple[tuple[float, float], ...]
    """Badness and weight, as in `LabelledPoint`, of each call that counts in `unsure`."""
    disagreements: tuple[Disagreement, ...]
    """Disagreements, the largest difference first, and of equal ones the one that stands for the most calls first."""
    scores: ScoreCalibration | None = None
    """Curve of a decision judge's scores of badness; None: the judge is another one, or there are no labels."""
    diagram: tuple[DiagramBar, ...] = ()
    """Reliability diagram of the curve, by calls that it was not fitted to."""
    effective_labels: float | None = None
    """Number of labels alone, drawn at random, that would make the corrected interval as narrow; None: not known."""
    decision_judge: str = ""
    """Decision judge whose scores of the calls count in `corrected`, beside this judge's; empty: there is none."""

    @property
    def labels_needed(self) -> int:
        """Number of labels with which the corrected rate may stand for the rate; `labelled` if these suffice."""
        return labels_needed(self.corrected, self.labelled)

    @property
    def has_too_few(self) -> bool:
        """Whether the labels are too few for the corrected rate to be shown."""
        return self.labelled < self.labels_needed

    @property
    def alpha(self) -> float | None:
        """Krippendorff's alpha between the reviewers."""
        return self.between_reviewers.alpha

    @property
    def score_threshold(self) -> float | None:
        """Recommended threshold between good and bad calls, on the scale of the metric.

        It is 1 - badness if higher scores are better, else the badness.
        """
        if self.threshold is None:
            return None
        return 1.0 - self.threshold.value if self.higher_is_better else self.threshold.value

    @property
    def about_unsure(self) -> str:
        """Explanation of what calls that the reviewers are unsure about do to the rates, or "" if there are none."""
        if not self.unsure:
            return ""
        calls = "1 picked call is" if self.unsure == 1 else f"{self.unsure} picked calls are"
        return (
            f"{calls} labelled unsure: the rates leave such calls out, and the intervals contain the rates with all of "
            "them good and with all of them bad"
        )

    @property
    def blocks(self) -> FalseBlocks:
        """Numbers of labelled answers that a guard would block. A call without a clear label counts as good."""
        answers = [LabelledAnswer(point.badness, point.label > 0.5, point.weight) for point in self.points]
        unsure = [LabelledAnswer(badness, False, weight) for badness, weight in self.unsure_points]
        return count_false_blocks([*answers, *unsure])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to the file at *path*, keeping the calibrations of other metrics and judges in the
        file.

        Raises:
            SettingsError: no call is labelled, or the file is there and no calibration file.
            OSError: it cannot be written.
        """
        if not self.points:
            raise SettingsError("no picked call is labelled yet, so there is nothing to save; label the picked calls")
        up = self.higher_is_better
        sums = _label_sums(self.points, self.unsure_points, up)
        entry = JudgeCalibration(
            self.key, time(), self.labelled, up, self.score_threshold, sums, self.scores, self.blocks
        )
        write_calibration(path, entry)


class _RatedCalls(NamedTuple):
    """Human labels of the calls picked for labelling, beside the judge's scores of these calls.

    Calls are given by their positions among the judged calls.
    """

    given: Mapping[int, Sequence[Label]]
    calls: Mapping[int, LabelledCall]
    """Labelled calls by position, with scores and labels converted to badness; unsure calls have the label None."""
    points: Mapping[int, LabelledPoint]
    """Those with a label other than unsure, by position."""
    unsure: Mapping[int, tuple[float, float]]
    """Badness and weight of those with labels of unsure alone, by position."""
    elsewhere: int
    """Number of labels of calls that were not picked, or not judged."""


def _rated_calls(calls: JudgedCalls, picks: Sequence[Pick], labels: Sequence[Label]) -> _RatedCalls:
    """Return the calls picked for labelling that have human labels.

    Where reviewers differ, the mean of their labels counts. A label of unsure counts only where no reviewer decided.
    """
    series = calls.series
    chance = {pick.identity: pick.probability for pick in picks}
    position = calls.positions({label.identity for label in labels} & chance.keys())
    given: dict[int, list[Label]] = {}
    elsewhere = 0
    for label in labels:
        if label.identity in chance and label.identity in position:
            given.setdefault(position[label.identity], []).append(label)
        else:
            elsewhere += 1
    rated: dict[int, LabelledCall] = {}
    points: dict[int, LabelledPoint] = {}
    unsure: dict[int, tuple[float, float]] = {}
    score_of, weight_of = series.score_by_call(), series.weight_by_call()
    for at, mine in given.items():
        sure = [float(label.label == "bad") for label in mine if label.label != "unsure"]
        badness, screen = (float(np.clip(scores[at], 0.0, 1.0)) for scores in (score_of, series.screen_score))
        judged, chosen = 1.0 / float(weight_of[at]), chance[mine[0].identity]
        mean, weight = math.fsum(sure) / len(sure) if sure else None, 1.0 / (judged * chosen)
        rated[at] = LabelledCall(mean, badness, judged, chosen, screen)
        if mean is None:
            unsure[at] = badness, weight
        else:
            points[at] = LabelledPoint(badness, mean, weight)
    return _RatedCalls(given, rated, points, unsure, elsewhere)


def _between_reviewers(given: Iterable[Sequence[Label]]) -> ReviewerAgreement:
    """Compute how well the reviewers agree, from the labels of each call."""
    sure = [[label for label in mine if label.label != "unsure"] for mine in given]
    several = [mine for mine in sure if len(mine) > 1]
    return ReviewerAgreement(
        tuple(sorted({label.reviewer for mine in sure for label in mine})),
        len(several),
        sum(len({label.label for label in mine}) > 1 for mine in several),
        krippendorff_alpha([label.label for label in mine] for mine in sure),
    )


@dataclass(frozen=True, slots=True)
class _AllLabels:
    """What all human labels of a history say of one judge."""

    calibration: JudgeCalibration
    stale: str
    """As in `Calibration`."""
    doubt: str
    """Why the labels may be unreliable; empty: the reviewers agree well."""
    unsure: int


class LabelCorrections:
    """Correction of a judge's rate of bad calls in a period of a history, by the human labels in the history.

    Where `fewest_labels` of the period's calls are labelled, these labels correct the rate. Where there are fewer, all
    labels of the history do, as labels of other traffic (estimator of Rogan and Gladen).

    Args:
        reader: the history.
    """

    def __init__(self, reader: HistoryReader) -> None:
        self._reader = reader
        self._labels: dict[str, list[Label]] = {}
        for label in labels_in(reader):
            self._labels.setdefault(label.metric, []).append(label)
        self._picks = {metric: picks for metric in self._labels if (picks := picks_in(reader, metric))}
        self._by_all: dict[tuple[str, str], _AllLabels] = {}

    def read_ahead(
        self, start: float, end: float, workflow: str | None, model: str | None, release: str | None
    ) -> None:
        """Calibrate the judges by all labels, where those of a period are surely too few to correct a rate.

        If that is done before the calls of the period are read, the memory of all calls of the history is free again
        when it is taken by those.

        Args:
            start: time at which the period begins, in seconds since the epoch.
            end: time before which it ends.
            workflow: workflow of the calls; None: all.
            model: model of the calls; None: all.
            release: release of the application that made the calls; None: all.
        """
        where, values = self._reader.calls_condition(start, end, workflow, model, release)
        few: list[str] = []
        for metric, picks in self._picks.items():
            sure = {each.identity for each in self._labels[metric] if each.label != "unsure"}
            asked = f"SELECT count(*) FROM calls WHERE identity = ? AND {where}"
            labelled = sure & {pick.identity for pick in picks}
            counts = (self._reader.database.execute(asked, (each, *values)).fetchone()[0] for each in labelled)
            if sum(counts) < fewest_labels(is_decision=False):
                few.append(metric)
        if few:
            columns = self._reader.columns(0.0, math.inf).without_costs()
            self._calibrate_by_all(few, columns, score_series(columns))

    def _calibrate_by_all(self, metrics: Collection[str], columns: CallColumns, found: Sequence[ScoreSeries]) -> None:
        for series in found:
            if series.metric in metrics and series.unit and series.estimated:
                calls = judged_calls(self._reader, columns, series.metric, series.evaluator, found)
                self._by_all[series.key] = self._calibration_by_all(calls)

    def _is_labelled(self, series: ScoreSeries) -> bool:
        """Return whether the calls that were picked for labelling were those of the judge of *series*, or stand for
        them."""
        return series.added or self._picks[series.metric][0].evaluator == series.evaluator

    def _calibration_by_all(self, calls: JudgedCalls) -> _AllLabels:
        series = calls.series
        rated = self._rated(calls)
        points, up = rated.points, series.higher_is_better
        key, stale = _validity(calls, points)
        curve = _calibrated(calls, rated.calls, self._reader)[2] if points and calls.is_decision else None
        known = JudgeCalibration(
            key, 0.0, len(points), up, None, _label_sums(points.values(), rated.unsure.values(), up),
            None if curve is None else curve.calibration,
        )  # fmt: skip
        return _AllLabels(known, stale, _between_reviewers(rated.given.values()).doubt, len(rated.unsure))

    def _rated(self, calls: JudgedCalls) -> _RatedCalls:
        metric = calls.series.metric
        return _rated_calls(calls, picks_among(calls, self._picks[metric]), self._labels[metric])

    def rates(
        self, columns: CallColumns, chosen: NDArray[np.bool_], found: Sequence[ScoreSeries], *, are_all: bool
    ) -> dict[tuple[str, str], CorrectedRate]:
        """Estimate the rate of bad calls for each labelled metric and judge, corrected by human labels.

        For metrics whose higher scores are better, it is the rate of good calls.

        Args:
            columns: calls of the history.
            chosen: which of them are meant.
            found: their scores by metric and evaluator.
            are_all: whether these are all calls of the history.
        """
        rates: dict[tuple[str, str], CorrectedRate] = {}
        for series in found:
            is_rate = series.metric in self._picks and series.unit and series.estimated
            if not is_rate or not chosen[series.judged_calls()].any():
                continue
            if not self._is_labelled(series):
                none = missing_estimate(NOT_CALIBRATED, "tuned", "rate", metric=series.metric)
                stale = f"the labels are of calls that {self._picks[series.metric][0].evaluator} judged"
                rates[series.key] = CorrectedRate(replace(none, evaluator=series.evaluator, stale=stale), 0)
                continue
            calls = judged_calls(self._reader, columns, series.metric, series.evaluator, found)
            rate = self._by_own_labels(calls, chosen, series)
            if rate is None:
                if are_all and series.key not in self._by_all:
                    self._by_all[series.key] = self._calibration_by_all(calls)
                del calls
                rate = self._by_all_labels(series, chosen)
            rates[series.key] = rate
        return rates

    def _by_own_labels(
        self, calls: JudgedCalls, chosen: NDArray[np.bool_], series: ScoreSeries
    ) -> CorrectedRate | None:
        """Correct the rate of the chosen calls by the labels of these; None: there are too few."""
        all_rated = self._rated(calls)
        rated = [at for at in all_rated.points if chosen[at]]
        unsure = [at for at in all_rated.unsure if chosen[at]]
        if len(rated) < fewest_labels(is_decision=calls.is_decision):
            return None
        mine = {at: all_rated.calls[at] for at in (*rated, *unsure)}
        scored = calls.series
        if calls.is_decision:
            scored, mine, _ = _calibrated(calls, mine, self._reader, chosen)
        (moments,) = scored.moments(np.where(chosen & calls.known, 0, -1), 1)
        estimate, first = _by_all_stages(calls, mine, moments, self._reader, chosen)
        stale = _validity(calls, rated)[1]
        if calls.is_decision:
            estimate = _decision_rate(estimate, len(rated), stale)
        if series.higher_is_better:
            estimate = _complement(estimate)
        doubt = _between_reviewers(all_rated.given[at] for at in rated).doubt
        return CorrectedRate(replace(estimate, stale=stale), len(rated), doubt, len(unsure), first)

    def _by_all_labels(self, series: ScoreSeries, chosen: NDArray[np.bool_]) -> CorrectedRate:
        """Correct the rate of the chosen calls by all labels of the history."""
        if series.key not in self._by_all:
            columns = self._reader.columns(0.0, math.inf).without_costs()
            self._calibrate_by_all([series.metric], columns, score_series(columns))
        by = self._by_all.get(series.key)
        if by is None or not by.calibration.labels:
            reason = TOO_FEW_LABELS if series.is_raw else NOT_CALIBRATED
            none = missing_estimate(reason, "tuned", "rate", metric=series.metric)
            return CorrectedRate(replace(none, evaluator=series.evaluator), 0)
        (moments,) = series.moments(np.where(chosen, 0, -1), 1)
        mean = estimate_mean(moments, metric=series.metric, evaluator=series.evaluator)
        return CorrectedRate(by.calibration.correct(mean, by.stale), by.calibration.labels, by.doubt, by.unsure)


def _calibrated(
    calls: JudgedCalls,
    labelled: Mapping[int, LabelledCall],
    history: CallReader,
    chosen: NDArray[np.bool_] | None = None,
) -> tuple[ScoreSeries, dict[int, LabelledCall], FittedScores]:
    """Replace a decision judge's raw scores by the probabilities of curves that are fitted to the labels.

    A labelled call gets that of the curve fitted without its part of the labels.

    Args:
        calls: the judged calls.
        labelled: labelled calls by position, unsure ones among them.
        history: the history that the calls come from.
        chosen: calls whose rate is wanted; None: all.

    Returns:
        Scores of all calls, the labelled calls, and the fit.
    """
    series, judged = calls.series, calls.judged if chosen is None else calls.judged & chosen
    sure = [at for at, call in labelled.items() if call.label is not None]
    asked = history.questions(calls.columns.number[sure].tolist())
    traffic = np.flatnonzero(judged)
    fitted = fit_scores(
        [labelled[at].score for at in sure],
        [label for at in sure if (label := labelled[at].label) is not None],
        [1.0 / (labelled[at].judging_probability * labelled[at].labelling_probability) for at in sure],
        [_question_of(asked, int(calls.columns.number[at])) for at in sure],
        np.clip(series.score_by_call()[traffic], 0.0, 1.0),
        series.weight_by_call()[traffic],
    )
    score = series.score_by_call().copy()
    score[traffic] = fitted.traffic
    of_labelled = dict(zip(sure, fitted.labelled.tolist(), strict=True))
    replaced = {at: call._replace(score=of_labelled.get(at, float(score[at]))) for at, call in labelled.items()}
    return replace(series, scores=score[series.scored_call]), replaced, fitted


def _by_all_stages(
    calls: JudgedCalls,
    labelled: Mapping[int, LabelledCall],
    moments: Moments,
    history: CallReader,
    chosen: NDArray[np.bool_] | None = None,
) -> tuple[Estimate, str]:
    """Correct a judge's rate by labels and, where a decision judge has scored the calls too, by its scores.

    Args:
        calls: the judged calls.
        labelled: labelled calls by position, unsure ones among them.
        moments: the judge's sums over the calls.
        history: the history that the calls come from.
        chosen: calls whose rate is wanted; None: all.

    Returns:
        The corrected rate, and the decision judge of the cascade; empty: there is none.
    """
    columns, series = calls.columns, calls.series
    asked = history.questions(columns.number[list(labelled)].tolist())
    questions = {at: _question_of(asked, int(columns.number[at])) for at in labelled}
    wanted = calls.known if chosen is None else chosen & calls.known
    cascade = cascade_estimate(columns, series, wanted, labelled, questions)
    if cascade is not None:
        return cascade
    return corrected_rate(list(labelled.values()), moments, metric=series.metric, evaluator=series.evaluator), ""


def _decision_rate(estimate: Estimate, labels: int, stale: str) -> Estimate:
    """Return the corrected rate of a decision judge, or a missing one where labels are too few or stale."""
    reason = TOO_FEW_LABELS if labels < FEWEST_FOR_RATE else STALE if stale else ""
    if not reason:
        return estimate
    none = missing_estimate(reason, estimate.method, estimate.of, metric=estimate.metric, workflow=estimate.workflow)
    return replace(none, n=estimate.n, evaluator=estimate.evaluator, corrected="labels", stale=stale)


def _complement(estimate: Estimate) -> Estimate:
    """Return 1 minus an estimate, with the ends of its 95 % interval swapped."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    return replace(estimate, value=1.0 - estimate.value, low=1.0 - estimate.high, high=1.0 - estimate.low)


def _label_sums(
    points: Iterable[LabelledPoint], unsure: Iterable[tuple[float, float]], higher_is_better: bool
) -> dict[str, float]:
    """Return weighted sums of human labels and judge scores over the labelled calls, by the names in `LABEL_SUMS`.

    With a metric whose higher scores are better, 1 stands for good, with any other metric for bad.
    """
    up = higher_is_better
    return label_sums(
        ((1.0 - z, 1.0 - badness, weight) if up else (z, badness, weight) for badness, z, weight in points),
        ((1.0 - badness if up else badness, weight) for badness, weight in unsure),
    )


class LabelledAt(NamedTuple):
    """Label of a picked call, with the number of calls of the traffic that it stands for."""

    label: float
    weight: float


def labelled_calls(calls: JudgedCalls, picks: Sequence[Pick], labels: Sequence[Label]) -> dict[int, LabelledAt]:
    """Return the picked calls that are labelled good or bad, by position among the calls of the history.

    Args:
        calls: the judged calls.
        picks: the calls that were picked for the metric.
        labels: the labels for the metric.
    """
    points = _rated_calls(calls, picks, labels).points
    return {at: LabelledAt(point.label, point.weight) for at, point in points.items()}


class CallReader(Protocol):
    """Interface that reads the questions of stored calls."""

    def questions(self, numbers: Iterable[int]) -> Mapping[int, str | None]: ...


def fit(
    calls: JudgedCalls,
    picks: Sequence[Pick],
    labels: Sequence[Label],
    history: CallReader,
    most_false_alarms: float | None = None,
) -> Calibration:
    """Compare human labels with the judge's scores, and correct the judge's rate of bad calls.

    Where reviewers differ, the mean of their labels counts (0 is good, 1 is bad).

    Args:
        calls: the judged calls.
        picks: the calls that were picked for the metric.
        labels: the labels for the metric.
        history: the history that the calls come from.
        most_false_alarms: largest wanted share of good calls beyond the recommended threshold; None: the threshold
            with the best balanced accuracy.
    """
    series = calls.series
    rated = _rated_calls(calls, picks, labels)
    differing: list[Disagreement] = []
    compared: list[tuple[bool, bool, float]] = []
    positions: list[int] = []
    """Position, among the judged calls, of each call in `compared`."""
    for at, point in rated.points.items():
        if point.label != BAD:
            compared.append((point.label > BAD, point.badness >= BAD, point.weight))
            positions.append(at)
            if compared[-1][0] != compared[-1][1]:
                differing.append(Disagreement(rated.given[at][0].identity, *point))
    (moments,) = series.moments(np.where(calls.known, 0, -1), 1)
    metric, evaluator = series.metric, series.evaluator
    asked = history.questions(calls.columns.number[positions].tolist())
    groups = [_question_of(asked, int(calls.columns.number[at])) for at in positions]
    threshold, score_of = None, series.score_by_call()
    if compared:
        threshold = recommend_threshold(
            [label for label, _, _ in compared],
            [float(np.clip(score_of[at], 0.0, 1.0)) for at in positions],
            [weight for _, _, weight in compared],
            groups,
            most_false_alarms,
        )
    key, stale = _validity(calls, rated.given)
    judge = estimate_mean(moments, metric=metric, evaluator=evaluator)
    by_labels = corrected_rate(list(rated.calls.values()), metric=metric, evaluator=evaluator)
    corrected, scores, diagram, worth, first = by_labels, None, [], None, ""
    if calls.is_decision:
        judge = replace(missing_estimate(UNCALIBRATED, judge.method, judge.of, metric=metric), n=judge.n)
        if rated.points:
            scored, mine, fitted = _calibrated(calls, rated.calls, history)
            (moments,) = scored.moments(np.where(calls.known, 0, -1), 1)
            corrected = corrected_rate(list(mine.values()), moments, metric=metric, evaluator=evaluator)
            scores = fitted.calibration
            points = [rated.points[at] for at in mine if at in rated.points]
            diagram = reliability_diagram(
                fitted.labelled.tolist(), [point.label for point in points], [point.weight for point in points]
            )
        corrected = _decision_rate(corrected, len(rated.points), stale)
    else:
        corrected, first = _by_all_stages(calls, rated.calls, moments, history)
    ends = corrected.low, corrected.high
    if (calls.is_decision or first) and ends[0] is not None and ends[1] is not None and by_labels.value is not None:
        worth = effective_labels(len(rated.points), by_labels.value, ends[1] - ends[0])
    reviewers = tuple(sorted({label.reviewer for mine in rated.given.values() for label in mine}))
    alone = {name: [label for label in labels if label.reviewer == name] for name in reviewers}
    return Calibration(
        metric=metric,
        evaluator=evaluator,
        picked=len(picks),
        stale=stale,
        key=key,
        higher_is_better=series.higher_is_better,
        labelled=len(rated.points),
        unsure=len(rated.unsure),
        elsewhere=rated.elsewhere,
        divided=len(rated.points) - len(compared),
        reviewers=reviewers,
        between_reviewers=_between_reviewers(rated.given.values()),
        by_reviewer={
            name: corrected_rate(
                list(_rated_calls(calls, picks, mine).calls.values()), metric=metric, evaluator=evaluator
            )
            for name, mine in (alone.items() if len(alone) > 1 else ())
        },
        agreement=agreement(*(list(column) for column in zip(*compared, strict=True))) if compared else None,
        judge=judge,
        labels=by_labels,
        corrected=corrected,
        threshold=threshold,
        points=tuple(rated.points.values()),
        unsure_points=tuple(rated.unsure.values()),
        disagreements=tuple(sorted(differing, key=lambda each: (-abs(each.badness - each.label), -each.weight))),
        scores=scores,
        diagram=tuple(diagram),
        effective_labels=worth,
        decision_judge=first,
    )


def _question_of(questions: Mapping[int, str | None], number: int) -> Hashable:
    """Return a key that is equal for calls with the same question, and unique for a call without texts."""
    question = questions.get(number)
    return number if question is None else " ".join(question.casefold().split())


def _validity(calls: JudgedCalls, labelled: Iterable[int]) -> tuple[CalibrationKey, str]:
    """Return the key of a calibration, and how the newest judged calls differ from the labelled ones.

    The difference is "" if there is none.

    If the labelled calls have several versions of the metric or several served models, those of the newest call count.

    Args:
        calls: the judged calls.
        labelled: positions of the labelled ones.
    """
    series, at = calls.series, calls.columns.at
    judged = series.judged_calls()
    newest = int(judged[np.argmax(at[judged])])
    mine = sorted(labelled, key=lambda position: float(at[position])) or [newest]
    numbers = [int(calls.columns.number[position]) for position in (*mine, newest)]
    served = calls.reader.served_models(series.evaluator, numbers)
    models = [served.get(number, "") for number in numbers]
    version = calls.metric_version(mine[-1])
    model = next(filter(None, reversed(models[:-1])), "")
    judge, _, judge_version = series.evaluator.rpartition("@")
    key = CalibrationKey(series.metric, version, judge, judge_version, prompt_hash_of(judge_version), model)
    if calls.newest_evaluator != series.evaluator:
        return key, calls.newest_evaluator
    other_versions = {calls.metric_version(position) for position in (*mine, newest)} - {version}
    if other_versions:
        return key, f"{series.evaluator} with version {min(other_versions)} of the metric"
    other_models = set(models) - {model, ""} if model else set[str]()
    return key, f"{series.evaluator} served by {min(other_models)}" if other_models else ""


def calibrate(
    history: str | os.PathLike[str],
    metric: str = DEFAULT_METRIC,
    *,
    evaluator: str | None = None,
    most_false_alarms: float | None = None,
) -> Calibration:
    """Compare a judge with the human labels in a history, and correct the judge's rate of bad calls by the labels.

    `ragtrace calibrate pick` draws the calls to label, `ragtrace review` and `ragtrace labels import` add labels.

    Examples:
        >>> calibration = ragtrace.calibrate("labelled.db", "hallucination")  # calls were picked and labelled
        >>> print(calibration.corrected)
        hallucination 0.3442 [0.2719, 0.4228]
        >>> calibration.labelled, calibration.reviewers
        (120, ('ada',))

    Args:
        history: file that `configure(store=...)` keeps.
        metric: name of the metric, with scores in [0, 1].
        evaluator: id@version of the judge; default: the one whose calls were picked. Another one must have scored
            stored calls (`ragtrace score`), the picked ones among them.
        most_false_alarms: largest wanted share of good calls beyond the recommended threshold, in (0, 1); default: the
            threshold with the best balanced accuracy.

    Returns:
        The calibration: agreement, rates, recommended threshold and disagreements; `save` writes the calibration file
        that `configure(calibration=...)` reads.

    Raises:
        SettingsError: no calls were picked for that metric and judge, or an argument is wrong.
        SQLiteFileError: the file is no history.
        sqlite3.Error: it cannot be read.
    """
    if most_false_alarms is not None and not 0.0 < most_false_alarms < 1.0:
        raise SettingsError(
            f"most_false_alarms must be more than 0 and less than 1, got {most_false_alarms!r}; for 5% write 0.05"
        )
    path = os.fspath(history)
    with closing(LabelStore(path)) as store:
        picks, labels = store.picks(metric), store.labels(metric)
    if not picks:
        raise SettingsError(f"no calls are picked for {metric!r}; begin with `ragtrace calibrate pick`")
    with closing(HistoryReader(path)) as reader:
        calls = judged_calls(reader, reader.columns(0.0, math.inf), metric, evaluator or picks[0].evaluator)
        mine = picks_among(calls, picks)
        if not mine:
            raise SettingsError(
                f"the calls were picked from those of {picks[0].evaluator}, not {evaluator}; have it score the picked "
                "calls, too (ragtrace score), or pick again for it"
            )
        return fit(calls, mine, labels, reader, most_false_alarms)
