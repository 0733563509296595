"""Summary of user feedback on the reported RAG calls, beside the scores of the same calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.report.model import FeedbackSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragtrace.history.reading import CallColumns, HistoryReader, StoredFeedback
    from ragtrace.report.series import Mask, ScoreSeries

LOW: Final = 0.5
"""Score of feedback, from 0 to 1, below which a user counts as dissatisfied."""


def feedback_summaries(
    reader: HistoryReader, columns: CallColumns, chosen: Mask, series: ScoreSeries | None
) -> tuple[FeedbackSummary, ...]:
    """Return a summary of the user feedback on the *chosen* calls for each feedback name.

    Args:
        reader: the history.
        columns: calls of the history.
        chosen: which of them are meant.
        series: scores to compare the feedback with; None: there are none.
    """
    feedback = reader.feedback()
    if not feedback:
        return ()
    position: dict[bytes, int] = {}
    for identity, number in reader.numbers_of({each.identity for each in feedback}):
        at = int(np.searchsorted(columns.number, number))
        if at < len(columns) and columns.number[at] == number and chosen[at]:
            position[identity] = at
    by_name: dict[str, list[StoredFeedback]] = {}
    for each in feedback:
        if each.identity in position:
            by_name.setdefault(each.name, []).append(each)
    return tuple(_summary(name, mine, position, series) for name, mine in sorted(by_name.items()))


def _summary(
    name: str, feedback: Sequence[StoredFeedback], position: dict[bytes, int], series: ScoreSeries | None
) -> FeedbackSummary:
    scores = [each.score for each in feedback if each.score is not None]
    rated = {position[each.identity] for each in feedback if each.score is not None}
    low = {position[each.identity] for each in feedback if each.score is not None and each.score < LOW}
    of_low, of_other = list[float](), list[float]()
    if series is not None:
        score_of, is_judged = series.score_by_call(), series.is_judged()
        of_low, of_other = ([float(score_of[at]) for at in calls if is_judged[at]] for calls in (low, rated - low))
    return FeedbackSummary(
        name,
        len(scores),
        _mean(scores),
        sum(score < LOW for score in scores),
        sum(each.correction is not None for each in feedback),
        len(of_low),
        _mean(of_low),
        len(of_other),
        _mean(of_other),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
