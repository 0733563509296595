"""A metric by workflow or model: the estimate of each, and how much of the change comes from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.estimates import Estimate
from ragtrace.report.comparing import Sides, changed
from ragtrace.report.model import Moved, Part
from ragtrace.report.series import Track, groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragtrace.history.reading import Ints

MOST_PARTS: Final = 500
"""Workflows or models that are estimated."""
_LEAST_AGREEMENT: Final = 0.5
"""Of the sum of the parts with the whole."""


def parts(
    track: Track, codes: Ints, names: Sequence[str], chosen: NDArray[np.bool_], two: Sides | None
) -> tuple[Part, ...]:
    """The estimate of each name among the *chosen* calls: what the change comes from first, else most calls first.

    Args:
        codes: the name of each call, by its place in *names*.
        two: what is compared; None: nothing.
    """
    counted = chosen & (track.counted > 0)
    calls = _counts(groups(codes, counted), len(names))
    largest = np.argsort(-calls, kind="stable")[:MOST_PARTS]
    place = np.full(len(names) + 1, -1)  # the last one is where -1 looks
    place[largest] = np.arange(len(largest))
    group = place[groups(codes, counted)]
    judged, estimates = track.judged(group, len(largest)), track.estimates(group, len(largest))
    moved = [None] * len(largest) if two is None else _moved(track, place, codes, len(largest), two)
    codes_of: list[int] = largest.tolist()
    rows = zip(codes_of, judged, estimates, moved, strict=True)
    found = [Part(names[code], int(calls[code]), n, each, how) for code, n, each, how in rows if calls[code]]
    return tuple(sorted(found, key=_first))


def _first(part: Part) -> float:
    return float("-inf") if part.moved is None or part.moved.share is None else -part.moved.share


def _counts(group: Ints, count: int) -> Ints:
    return np.bincount(group[group >= 0], minlength=count)


def _moved(track: Track, place: Ints, codes: Ints, count: int, two: Sides) -> list[Moved | None]:
    """Each part in both groups of calls."""
    calls, judged = list[list[int]](), list[list[int]]()
    estimates, overall = list[list[Estimate]](), list[float | None]()
    for side in (two.calls_before, two.calls_after):
        here = side & (track.counted > 0)
        group = place[groups(codes, here)]
        calls.append([int(number) for number in _counts(group, count)])
        judged.append(track.judged(group, count))
        estimates.append(track.estimates(group, count))
        overall.append(track.estimates(np.where(here, 0, -1), 1)[0].value)
    before, after = overall
    shares = [None] * count if before is None or after is None else _shares(estimates, calls, before, after)
    return [
        Moved(
            estimates[0][number],
            estimates[1][number],
            judged[0][number],
            judged[1][number],
            changed(estimates[0][number], estimates[1][number], higher_is_better=track.higher_is_better),
            shares[number],
        )
        for number in range(count)
    ]


def _shares(
    estimates: Sequence[Sequence[Estimate]], calls: Sequence[Sequence[int]], before: float, after: float
) -> list[float | None]:
    """The part of the change that each is, of 1 in all; unknown where the parts do not tell what the whole does.

    A part adds (its calls / all calls) * (its mean - the mean of all before) to the mean of all, on either side. Their
    sum is the change, but that each estimate is corrected by the screen on its own.
    """
    totals = [max(1, sum(side)) for side in calls]

    def adds(side: int, number: int) -> float | None:
        value = estimates[side][number].value
        if value is None:
            return None if calls[side][number] else 0.0
        return calls[side][number] / totals[side] * (value - before)

    found: list[float] = []
    for number in range(len(calls[0])):
        was, became = adds(0, number), adds(1, number)
        if was is None or became is None:
            return [None] * len(calls[0])
        found.append(became - was)
    whole, change = sum(found), after - before
    agree = change != 0 and _LEAST_AGREEMENT <= whole / change <= 1 / _LEAST_AGREEMENT
    return [each / whole if agree else None for each in found]
