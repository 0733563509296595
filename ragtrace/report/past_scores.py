"""Scores of the weeks before a report's calls, by the hour, from which the rhythm of its main metric is learned.

The sums of a day that is over are kept in the process: a page that refreshes itself reads them once. Scores that its
calls get later, by `ragtrace score` say, are in the rhythm of the next process.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.estimates.ordered_sums import OrderedSums
from ragtrace.estimates.rhythm import DAY, MOST_PAST_S, TimedSums
from ragtrace.report.series import read_series

if TYPE_CHECKING:
    from ragtrace.history.reading import HistoryReader
    from ragtrace.report.series import ScoreSeries

_HOUR: Final = 3600.0
_MOST_DAYS: Final = 2_000
"""Most days that are kept, of all histories and choices of calls."""


class CallChoice(NamedTuple):
    """Choice of the calls of a report; None: all."""

    workflow: str | None
    model: str | None
    release: str | None
    tags: tuple[tuple[str, str], ...] = ()
    """Tags of all calls that the report's reader chooses, by name and text of the value."""


NO_PAST: Final = TimedSums(np.zeros(0), OrderedSums(*(np.zeros(0) for _ in range(5))))
_kept: OrderedDict[tuple[object, ...], TimedSums] = OrderedDict()
_lock = RLock()


def past_scores(
    reader: HistoryReader, path: str, choice: CallChoice, series: ScoreSeries, oldest: float, until: float
) -> TimedSums:
    """Return the sums of the scores of a metric over each hour in the four weeks before a time.

    Args:
        reader: reads the history.
        path: file of the history.
        choice: calls that are counted.
        series: scores of the metric in the report, of whose evaluator the scores are.
        oldest: time of the oldest call of the history.
        until: the time.
    """
    first = max(oldest, until - MOST_PAST_S)
    days = range(int(first // DAY), int(until // DAY) + 1)
    status = os.stat(path)
    known = (status.st_dev, status.st_ino, choice, series.key)
    found: list[TimedSums] = []
    for day in days:
        reader.go_on()
        start, end = max(first, day * DAY), min(until, (day + 1) * DAY)
        if end <= start:
            continue
        is_whole = end - start >= DAY
        with _lock:
            sums = _kept.get((*known, day)) if is_whole else None
        if sums is None:
            sums = _by_hour(reader, choice, series, start, end)
            if is_whole:
                _keep((*known, day), sums)
        found.append(sums)
    if not found:
        return NO_PAST
    terms = (np.concatenate([each.sums[term] for each in found]) for term in range(5))
    return TimedSums(np.concatenate([each.at for each in found]), OrderedSums(*terms))


def _keep(key: tuple[object, ...], sums: TimedSums) -> None:
    with _lock:
        _kept[key] = sums
        _kept.move_to_end(key)
        while len(_kept) > _MOST_DAYS:
            _kept.popitem(last=False)


def _by_hour(reader: HistoryReader, choice: CallChoice, series: ScoreSeries, start: float, end: float) -> TimedSums:
    columns = reader.columns(start, end, choice.workflow, model=choice.model, release=choice.release)
    mine = read_series(columns, *series.key, higher_is_better=series.higher_is_better)
    counted = np.flatnonzero(mine.weights > 0.0)
    at = columns.at[mine.scored_call[counted]]
    hour = np.minimum((at - start) // _HOUR, (end - start) // _HOUR).astype(np.int64)
    sums = OrderedSums.of(mine.weights[counted], np.clip(mine.scores[counted], 0.0, 1.0))
    hours, place, count = np.unique(hour, return_inverse=True, return_counts=True)
    times = np.bincount(place, weights=at - start, minlength=len(hours)) / count
    by_hour = np.array([np.bincount(place, weights=each, minlength=len(hours)) for each in sums])
    return TimedSums(times + start, OrderedSums(*by_hour))
