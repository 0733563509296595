"""Streams of scores, many at once, through the alerts' detector and through a moving average: for simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ragtrace.alerts.detector import (
    DIRECTLY_AFTER,
    HEAD_START,
    MEMORY,
    MOST_EXPECTED,
    REACH,
    SOON_AFTER,
    alarm_threshold,
    mean_weights,
    raised_means,
)

Floats: TypeAlias = "npt.NDArray[np.float64]"
Draw: TypeAlias = Callable[[np.random.Generator, "tuple[int, int]"], "tuple[Floats, Floats | float]"]
"""Scores of (calls, streams), and the share of the bets that each call gets."""

_CHUNK = 256


def binary(rate: float) -> Draw:
    """Scores of 0 and 1."""
    return lambda rng, shape: ((rng.random(shape) < rate).astype(float), 1.0)


def graded(mean: float) -> Draw:
    """Scores of 0, or anything up to 1: a share of 2 * mean is uniform."""
    return lambda rng, shape: (np.where(rng.random(shape) < 2 * mean, rng.random(shape), 0.0), 1.0)


def thirds(mean: float) -> Draw:
    """Shares of unsupported statements, of three: 0, 1/3, 2/3 or 1."""
    return lambda rng, shape: (rng.binomial(3, mean, shape) / 3.0, 1.0)


def sampled(rate: float, *, ordinary: float = 0.05, suspicious: float = 0.5, share: float = 0.1) -> Draw:
    """Judged calls of traffic of which a *share* is suspicious, judged more often, and bad four times in five cases."""
    of_suspicious = min(1.0, 0.8 * rate / share)
    of_ordinary = (rate - share * of_suspicious) / (1 - share)
    judged = share * suspicious / (share * suspicious + (1 - share) * ordinary)

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        odd = rng.random(shape) < judged
        bad = rng.random(shape) < np.where(odd, of_suspicious, of_ordinary)
        return bad.astype(float), np.where(odd, ordinary / suspicious, 1.0)

    return draw


def runs(size: float, rate: float) -> Draw:
    """Scores of 0 and 1, the bad ones in runs of *size* in the mean (each goes on with the same probability)."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, float]:
        scores = np.zeros(shape)
        bad = rng.random(shape[1]) < rate
        for row in range(shape[0]):
            bad = rng.random(shape[1]) < np.where(bad, 1 - 1 / size, rate / size / (1 - rate))
            scores[row] = bad
        return scores, 1.0

    return draw


def bursts(length: float, rate: float, *, inside: float = 0.6) -> Draw:
    """Scores of 0 and 1, the bad ones in bursts of *length* calls in the mean, of which the share *inside* is bad."""
    part = rate / inside

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, float]:
        scores = np.zeros(shape)
        burst = rng.random(shape[1]) < part
        for row in range(shape[0]):
            burst = rng.random(shape[1]) < np.where(burst, 1 - 1 / length, part / length / (1 - part))
            scores[row] = burst & (rng.random(shape[1]) < inside)
        return scores, 1.0

    return draw


class _Streams:
    """`Detector` for many streams at once, each with a bound of its own."""

    def __init__(self, bounds: Floats, mean_calls: float, batch: int, *, expecting: bool, head_start: float) -> None:
        self.batch, self._threshold, self._expecting = (
            batch,
            alarm_threshold(mean_calls, batch, head_start),
            expecting and batch == 1,
        )
        self._bounds, self._weights = bounds, np.array(mean_weights(batch))
        self._alternatives = np.array([raised_means(float(each), batch) for each in bounds]).T
        self._sums = np.full((len(self._weights), bounds.size), head_start * mean_calls / batch)
        self._place, self._total, self._counted = 0, np.zeros(bounds.size), np.zeros(bounds.size)
        self._after_bad = np.full(bounds.size, REACH + 1)
        (directly, first), (share, second) = DIRECTLY_AFTER, SOON_AFTER
        self._totals = np.array([np.full(bounds.size, directly * first), share * bounds * second])
        self._calls = np.array([np.full(bounds.size, first), np.full(bounds.size, second)])

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Go on with these streams only."""
        for name in ("_bounds", "_total", "_counted", "_after_bad", "_alternatives", "_sums", "_totals", "_calls"):
            setattr(self, name, getattr(self, name)[..., kept])

    def add(self, scores: Floats, shares: Floats | float) -> npt.NDArray[np.bool_]:
        """Return which streams have reason for an alarm after one more call each."""
        self._place += 1
        self._total, self._counted = self._total + shares * scores, self._counted + shares
        soon, at = (self._after_bad <= REACH) & self._expecting, (self._after_bad > 1).astype(int)
        streams = np.arange(scores.size)
        usual = np.minimum(MOST_EXPECTED, self._totals[at, streams] / self._calls[at, streams])
        expected = np.where(soon, np.maximum(self._bounds, usual), self._bounds)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.maximum(0.0, self._alternatives - expected) / (expected * (1.0 - expected))
        steps = np.where(expected < 1.0, steps, 0.0)
        gained = (self._total - (self._counted + self.batch - self._place) * expected) / self.batch
        sums = (self._sums + 1.0) * (1.0 + steps * gained)
        if self._place == self.batch:
            self._sums = sums
            self._learn(soon, at)
        alarms: npt.NDArray[np.bool_] = self._weights @ sums >= self._threshold
        return alarms

    def _learn(self, soon: npt.NDArray[np.bool_], at: npt.NDArray[np.int_]) -> None:
        for situation in (0, 1):
            there = soon & (at == situation)
            self._totals[situation] += np.where(there, self._total, 0.0)
            self._calls[situation] += np.where(there, self._counted, 0.0)
        halved = np.where(self._calls > MEMORY, 0.5, 1.0)
        self._totals, self._calls = self._totals * halved, self._calls * halved
        bad = self._total > self._counted * (1.0 + self._bounds) / 2.0
        self._after_bad = np.where(bad, 1, self._after_bad + 1)
        self._place, self._total, self._counted = 0, np.zeros(bad.size), np.zeros(bad.size)


def run_lengths(
    bound: float | Floats,
    mean_calls: float,
    draw: Draw,
    *,
    streams: int,
    seed: int,
    most: int,
    batch: int = 1,
    expecting: bool = True,
    head_start: float = HEAD_START,
    before: Draw | None = None,
    calls_before: int = 0,
) -> Floats:
    """Calls until the detector raises an alarm, of each stream; *most* where it did not within so many.

    Args:
        bound: one, or one for each stream.
        expecting: whether others are expected soon after a bad call, where calls are single.
        head_start: share of *mean_calls* that the evidence starts with.
        before: what is drawn for the first *calls_before* calls. Streams with an alarm among these are left out, and
            calls are counted from there.
    """
    [lengths] = run_lengths_of_each(
        [(bound, draw)], mean_calls, streams=streams, seed=seed, most=most, batch=batch,
        expecting=expecting, head_start=head_start, before=before, calls_before=calls_before,
    )  # fmt: skip
    return lengths


def run_lengths_of_each(
    cells: Sequence[tuple[float | Floats, Draw]],
    mean_calls: float,
    *,
    streams: int,
    seed: int,
    most: int,
    batch: int = 1,
    expecting: bool = True,
    head_start: float = HEAD_START,
    before: Draw | None = None,
    calls_before: int = 0,
) -> list[Floats]:
    """Return what `run_lengths` returns for the bound and the draw of each cell; all streams are simulated together.

    A call of ten cells takes twice as long as a call of one. Each cell has random numbers of its own, so that its
    result does not depend on the others.
    """
    rngs, alive = [np.random.default_rng(seed) for _ in cells], np.arange(streams * len(cells))
    bounds = np.concatenate([np.broadcast_to(bound, (streams,)).astype(float) for bound, _ in cells])
    detectors = _Streams(bounds, mean_calls, batch, expecting=expecting, head_start=head_start)
    lengths, call = np.full(alive.size, float(most + calls_before)), 0
    while call < most + calls_before and alive.size:
        early = call < calls_before
        chunk = min(_CHUNK, (calls_before if early else most + calls_before) - call)
        drawn = [
            (before if early and before else draw)(rng, (chunk, int(count)))
            for rng, (_, draw), count in zip(
                rngs, cells, np.bincount(alive // streams, minlength=len(cells)), strict=True
            )
            if count
        ]
        scores = np.concatenate([each for each, _ in drawn], axis=1)
        shares = np.concatenate([np.broadcast_to(share, each.shape) for each, share in drawn], axis=1)
        alarmed = np.zeros(alive.size, dtype=bool)
        for row in range(chunk):
            call += 1
            alarm = detectors.add(scores[row], shares[row]) & ~alarmed
            lengths[alive[alarm]] = call
            alarmed |= alarm
        detectors.keep(~alarmed)
        alive = alive[~alarmed]
    return [each[each > calls_before] - calls_before for each in np.split(lengths, len(cells))]


def moving_average_lengths(
    window: int,
    most_bad: float,
    draw: Draw,
    *,
    streams: int,
    seed: int,
    most: int,
    before: Draw | None = None,
    calls_before: int = 0,
) -> Floats:
    """The same for an alarm when the scores of the last *window* calls add up to more than *most_bad*."""
    rng = np.random.default_rng(seed)
    parts = [draw(rng, (most, streams))[0]]
    if before is not None and calls_before:
        parts.insert(0, before(rng, (calls_before, streams))[0])
    total = np.concatenate([np.zeros((1, streams)), np.cumsum(np.concatenate(parts), axis=0)])
    recent = total[1:] - np.concatenate([np.zeros((window - 1, streams)), total[:-window]])
    over = recent > most_bad + 1e-9
    first = np.where(over.any(axis=0), over.argmax(axis=0) + 1.0, most + calls_before)
    return first[first > calls_before] - calls_before
