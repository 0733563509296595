"""Distribution of one metric's scores in a baseline: mean, variance, 5 % quantile, and the error of the mean."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

QUANTILE: Final = 0.05
_SAME: Final = 1e-9
"""Largest difference between scores that count as equal."""
_SALT: Final = b"ragtrace baseline ties"
"""Salt, other than the sampler's: which tied calls are suspicious must not depend on which calls the judge sees."""
_DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of one metric's scores, all in [0, 1]: their number, mean, variance and 5 % quantile."""

    n: int
    """Number of calls from which the distribution was learned."""
    effective_n: float
    """Number of calls of equal weight, each with another question, that would give the mean as precisely."""
    mean: float
    variance: float
    quantile: float
    """5 % quantile: the lowest score at or below which are at least 5 % of the calls."""
    tied: float
    """Share of the calls exactly at the quantile that make up 5 % together with all calls below the quantile."""
    since: float = 0.0
    """Time of the first call, in seconds since the epoch, as `until` is that of the last; 0: not known."""
    until: float = 0.0
    versions: tuple[str, ...] = ()
    """Versions (`service.version`) of the application; several if there was a release meanwhile, empty: not known."""

    @classmethod
    def of(
        cls,
        scores: Sequence[float],
        *,
        weights: Sequence[float] | None = None,
        questions: Sequence[object] | None = None,
        since: float = 0.0,
        until: float = 0.0,
        versions: Iterable[str] = (),
    ) -> Distribution:
        """Compute the distribution of a list of scores.

        Every call counts in mean, variance and quantile, repeated questions and answers too, as they are part of the
        traffic that later calls are compared with. But a repeated question says nothing new about the mean: calls with
        the same question count as one cluster in `effective_n`, and so in `mean_bound`.

        Args:
            scores: scores of the calls, in [0, 1]; at least one.
            weights: number of calls of the traffic that each stands for (1 / inclusion probability); None: one.
            questions: question of each call, or anything that is equal for equal questions; None: all differ.
            since: time of the first call, in seconds since the epoch.
            until: time of the last call.
            versions: `service.version` of the releases that gave the answers.

        Raises:
            ValueError: there is no score, one is not in [0, 1], a weight is not positive, or the lengths differ.

        Source: the cluster-robust variance of a weighted mean (Särndal, Swensson and Wretman 1992, section 5.7).
        """
        scores = [float(score) for score in scores]
        weights = [1.0] * len(scores) if weights is None else [float(weight) for weight in weights]
        questions = range(len(scores)) if questions is None else questions
        if not scores or not len(scores) == len(weights) == len(questions):
            raise ValueError(
                "scores, weights and questions must have the same length, at least 1, got "
                f"{len(scores)}, {len(weights)} and {len(questions)}"
            )
        if not all(0.0 <= score <= 1.0 for score in scores):
            raise ValueError(f"the scores of a baseline must be in [0, 1], got {min(scores):g} to {max(scores):g}")
        if not all(0.0 < weight < math.inf for weight in weights):
            raise ValueError(f"weights must be finite and above 0, got {min(weights):g} to {max(weights):g}")
        total = math.fsum(weights)
        mean = math.fsum(weight * score for weight, score in zip(weights, scores, strict=True)) / total
        squares = math.fsum(weight * (score - mean) ** 2 for weight, score in zip(weights, scores, strict=True))
        variance = squares / total * len(scores) / max(1, len(scores) - 1)
        quantile, tied = _quantile(scores, weights)
        return cls(
            n=len(scores),
            effective_n=_effective_sample_size(scores, weights, questions, mean, variance),
            mean=mean,
            variance=variance,
            quantile=quantile,
            tied=tied,
            since=since,
            until=until,
            versions=tuple(sorted(set(versions))),
        )

    def suspicious(self, score: float, call: int) -> bool:
        """Return whether *score* is suspiciously low: among the lowest 5 % of the baseline's scores.

        Args:
            score: in [0, 1].
            call: the trace id, or another number of 128 bits that identifies the call. Its hash decides where the score
                is exactly at the quantile, so that 5 % of the baseline's own calls are suspicious however many of them
                have the same score.
        """
        if abs(score - self.quantile) > _SAME:
            return score < self.quantile
        digest = blake2b(call.to_bytes(16, "big"), digest_size=8, key=_SALT).digest()
        return int.from_bytes(digest, "big") / 2**64 < self.tied

    def describe(self, now: float) -> str:
        """Describe in words from how many calls, of which releases and when the distribution was learned.

        Args:
            now: the present time, in seconds since the epoch.
        """
        of = f" of {', '.join(self.versions)}" if self.versions else ""
        days = (now - self.until) / _DAY_SECONDS
        age = "" if not self.until else ", today" if days < 1 else f", {days:.0f} day{'s' * (days >= 1.5)} ago"
        return f"learned from {self.n:,} calls{of}{age}"

    def mean_bound(self, z: float, side: Literal["lower", "upper"]) -> float:
        """Return the lower or upper confidence limit of the mean of the scores.

        It is the normal limit, in [0, 1], with z^2 imagined calls, half of them with score 0 and half with 1: also a
        baseline in which all scores are equal does not know the mean exactly.

        Args:
            z: standard errors between limit and mean: 1 for 84 % confidence, 1.645 for 95 %.
            side: whether the mean is above the limit (`lower`) or below it (`upper`) with that confidence.

        Source: Agresti and Coull 1998, The American Statistician 52:119, here for scores between 0 and 1, too.
        """
        imagined = z * z
        n = self.effective_n + imagined
        mean = (self.effective_n * self.mean + imagined / 2) / n
        spread = self.effective_n * (self.variance + (self.mean - mean) ** 2)
        variance = (spread + imagined / 2 * (mean**2 + (1 - mean) ** 2)) / n
        error = z * math.sqrt(variance / n)
        return max(0.0, mean - error) if side == "lower" else min(1.0, mean + error)


def _quantile(scores: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Return the 5 % quantile of weighted scores, and the share of the scores at the quantile in the lowest 5 %."""
    wanted = QUANTILE * math.fsum(weights)
    ordered = sorted(zip(scores, weights, strict=True))
    below = 0.0
    at = 0
    while True:
        quantile = ordered[at][0]
        tied = 0.0
        while at < len(ordered) and ordered[at][0] - quantile <= _SAME:
            tied += ordered[at][1]
            at += 1
        if at == len(ordered) or below + tied >= wanted * (1 - _SAME):
            return quantile, min(1.0, (wanted - below) / tied)
        below += tied


def _effective_sample_size(
    scores: Sequence[float], weights: Sequence[float], questions: Sequence[object], mean: float, variance: float
) -> float:
    sums: defaultdict[object, float] = defaultdict(float)
    for score, weight, question in zip(scores, weights, questions, strict=True):
        sums[question] += weight * (score - mean)
    distinct, total = len(sums), math.fsum(weights)
    if distinct == 1:
        return 1.0
    if variance <= _SAME**2:  # all scores are equal, so only the number of questions is known
        return float(distinct)
    squared_error = math.fsum(each * each for each in sums.values()) / total**2 * distinct / (distinct - 1)
    # The calls of a cluster may balance each other by chance, which must not make them count as more than they are.
    return min(float(len(scores)), max(1.0, variance / squared_error if squared_error else math.inf))
