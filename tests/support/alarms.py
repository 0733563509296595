"""Streams of scores, many at once, through the alerts' detector and through a moving average: for simulations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ragtrace.alerts.detector import bets, weights

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


def run_lengths(
    bound: float | Floats,
    mean_calls: float,
    draw: Draw,
    *,
    streams: int,
    seed: int,
    most: int,
    batch: int = 10,
    before: Draw | None = None,
    calls_before: int = 0,
) -> Floats:
    """Calls until the detector raises an alarm, of each stream; *most* where it did not within so many.

    Args:
        bound: one, or one for each stream.
        before: what is drawn for the first *calls_before* calls. Streams with an alarm among these are left out, and
            calls are counted from there.
    """
    rng, bounds = np.random.default_rng(seed), np.broadcast_to(bound, (streams,))
    prior, steps = np.array(weights()), np.array([bets(float(each), batch) for each in bounds]).T
    sums, total, alive = np.zeros((len(prior), streams)), np.zeros(streams), np.arange(streams)
    lengths, call = np.full(streams, float(most + calls_before)), 0
    while call < most + calls_before and alive.size:
        early = call < calls_before
        chunk = min(_CHUNK, (calls_before if early else most + calls_before) - call)
        scores, share = (before if early and before else draw)(rng, (chunk, alive.size))
        moves = share * (scores - bounds)
        alarmed = np.zeros(alive.size, dtype=bool)
        for row in range(chunk):
            call += 1
            total = total + moves[row]
            place = (call - 1) % batch + 1
            reached = (sums + 1.0) * (1.0 + steps * (total - (batch - place) * bounds) / batch)
            alarm = (prior @ reached >= mean_calls / batch + (batch > 1)) & ~alarmed
            lengths[alive[alarm]] = call
            alarmed |= alarm
            if place == batch:
                sums, total = reached, np.zeros(alive.size)
        kept = ~alarmed
        sums, total, alive, steps, bounds = sums[:, kept], total[kept], alive[kept], steps[:, kept], bounds[kept]
    return lengths[lengths > calls_before] - calls_before


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
