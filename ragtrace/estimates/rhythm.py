"""Rhythm of a mean score over the day and the week, so that a usual hour is not taken for a change.

**Model.** The mean of the scores at the time t is a level plus a smooth function with a period of a day (one harmonic;
two from four days of scores on, three from ten) and, from three weeks on, one with a period of a week (three). The
level is another one in each stretch of the past: a day where the rhythm of the day alone is known, else a week. So a
change of the level in the past is none of the rhythm. The scores that are searched for a change, the *window*, have
one level, and take part
in the fit: the rhythm of a history of two days is known by comparing these with each other.

**Fit.** Weighted least squares. With X the columns of the model, s_k the column that is 1 from the k-th score of the
window on, and W the weights, a change after k has
    S_k = s_k' W (y - X b)    and    V_k = s_k' W s_k - s_k' W X (X' W X)^-1 X' W s_k,
so that S_k / V_k estimates its size, and phi m (1 - m) / V_k is the variance of that (`change_point` has phi). Without
a rhythm, V_k is W1 W2 / W. What is left of it, V_k W / (W1 W2), is what the scores still tell of such a change.

**Source.** Seber and Lee 2003, "Linear Regression Analysis", 3.11.3: adding a variable to a model that was fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.estimates.ordered_sums import OrderedSums

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

DAY: Final = 86_400.0
WEEK: Final = 7 * DAY
MOST_PAST_S: Final = 4 * WEEK
"""Length of the time before the window whose scores are taken into account."""
_SHORTEST_FOR_DAY: Final = 2 * DAY
_SHORTEST_FOR_WEEK: Final = 3 * WEEK
_DAYS_FOR_HARMONICS: Final = (0.0, 4.0, 10.0)
"""Days of scores from which on a further harmonic of the day is learned: with few, each costs certainty of a change."""
_HARMONICS_OF_WEEK: Final = 3
_LEAST_KEPT: Final = 0.2
"""Least share of what the scores tell of a change that must be left for the change to be looked for."""


class TimedSums(NamedTuple):
    """Sums over blocks of scores with the mean time of each block, in seconds since the epoch."""

    at: Floats
    sums: OrderedSums


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Rhythm that was learned, as a window of scores needs it."""

    expected: Floats
    """How far each block's mean is usually above or below that of the window, by its time of day and week."""
    is_weekly: bool
    """Whether the days of the week are known, too."""
    _through: Floats
    """For each block, and the end, the sums of weight * column of the model over the blocks before it."""
    _weight: Floats
    """The same of the weights."""
    _inverse: Floats

    def kept(self, first: NDArray[np.int64], end: NDArray[np.int64] | int | None = None) -> Floats:
        """Return the share of what the scores tell of changes that is left with the rhythm; 0 where it is too little.

        Args:
            first: first blocks after each change.
            end: blocks at which each change is over; None: it lasts. *first* and *end* are broadcast.
        """
        end = len(self._weight) - 1 if end is None else end
        inside = self._weight[end] - self._weight[first]
        sums = self._through[end] - self._through[first]
        plain = inside * (1.0 - inside / self._weight[-1])
        left = inside - np.einsum("...i,ij,...j->...", sums, self._inverse, sums)
        share = np.divide(left, plain, out=np.zeros_like(plain), where=plain > 0.0)
        return np.where(share >= _LEAST_KEPT, np.minimum(share, 1.0), 0.0)

    def usual_change(self, first: int, sums: OrderedSums) -> float:
        """Return by how much the mean usually differs between the blocks from *first* on and those before.

        Args:
            first: first block after a change, which is not counted as rhythm.
            sums: sums of the window's scores, less `expected`.
        """
        inside = self._weight[-1] - self._weight[first]
        through = self._through[-1] - self._through[first]
        left = inside - through @ self._inverse @ through
        # With the change in the model, the rhythm is less by what the change explains better.
        size = 0.0 if left <= 0.0 else float(sums.wy[first:].sum() - _mean(sums) * inside) / left
        usual = self.expected - self._columns() @ (self._inverse @ through) * size
        w = sums.w
        return float(np.average(usual[first:], weights=w[first:]) - np.average(usual[:first], weights=w[:first]))

    def _columns(self) -> Floats:
        """Return the columns of the model in each block."""
        weight = np.diff(self._weight)[:, None]
        return np.divide(np.diff(self._through, axis=0), weight, out=np.zeros_like(self._through[1:]), where=weight > 0)


def learn_rhythm(window: TimedSums, past: TimedSums) -> Rhythm | None:
    """Learn the rhythm of scores, or return None if those of less than two days are known.

    Args:
        window: the scores that are searched for a change.
        past: scores before them; blocks of an hour are short enough.
    """
    if not len(window.at) or window.sums.w.sum() <= 0.0:
        return None
    begin, end = float(window.at[0]), float(window.at[-1])
    span = end - min(begin, float(past.at[0]) if len(past.at) else begin)
    # Calls come at random, so that the first and the last of two days are not two days apart.
    if span < 0.95 * _SHORTEST_FOR_DAY:
        return None
    is_weekly = span >= 0.99 * _SHORTEST_FOR_WEEK
    harmonics = sum(span >= days * DAY for days in _DAYS_FOR_HARMONICS), _HARMONICS_OF_WEEK if is_weekly else 0
    of_past, of_window = _waves(past.at, *harmonics), _waves(window.at, *harmonics)
    stretch = ((begin - past.at) // (WEEK if is_weekly else DAY)).astype(np.int64)
    levels = (stretch[:, None] == np.unique(stretch)[None, :]).astype(float)
    none, one = np.zeros((len(window.at), levels.shape[1])), np.ones((len(window.at), 1))
    x = np.vstack((
        np.hstack((levels, np.zeros((len(past.at), 1)), of_past)),
        np.hstack((none, one, of_window)),
    ))  # fmt: skip
    w = np.concatenate((past.sums.w, window.sums.w))
    wy = np.concatenate((past.sums.wy, window.sums.wy))
    weighted = x * w[:, None]
    # Where hours have no calls, some columns are sums of others: the smallest solution is as good as any.
    inverse = np.asarray(np.linalg.pinv(weighted.T @ x, rcond=1e-9, hermitian=True), dtype=np.float64)
    found = inverse @ (x.T @ wy)
    waves = of_window @ found[levels.shape[1] + 1 :]
    expected = waves - np.average(waves, weights=window.sums.w)
    mine = weighted[len(past.at) :]
    through = np.vstack((np.zeros((1, mine.shape[1])), np.cumsum(mine, axis=0)))
    return Rhythm(expected, is_weekly, through, np.concatenate(([0.0], np.cumsum(window.sums.w))), inverse)


def _waves(at: Floats, of_day: int, of_week: int) -> Floats:
    """Return the sines and cosines of the day and of the week, as many harmonics of each, at each time."""
    rates = [number / DAY for number in range(1, of_day + 1)] + [number / WEEK for number in range(1, of_week + 1)]
    angles = 2.0 * np.pi * at[:, None] * np.array(rates)[None, :]
    return np.hstack((np.sin(angles), np.cos(angles)))


def _mean(sums: OrderedSums) -> float:
    return float(sums.wy.sum() / sums.w.sum())
