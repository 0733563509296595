"""Detection of a judge's drift: more errors than before on canaries, labelled calls that are judged again and again.

**Evidence.** Canaries are drawn at random with replacement. As long as the judge stays as it is, its errors on the
canaries of one label (bad or good) are therefore exchangeable, whatever its error rates are: of n judgements with s
errors, the latest one is an error with probability s / n. A smoothed conformal p-value says how unusual the latest
judgement is among all so far, and is uniform on [0, 1] and independent of the earlier ones. A bet on small p-values
wins nothing in the mean, so a sum of bets, one begun at each judgement (`M = (M + 1) * factor`), grows by at most 1 a
judgement in the mean, as does a mixture over bets. The sum over both labels grows by at most 1 a canary judgement, so
that it takes at least B of them, in the mean, to reach B. An alarm is raised there. Nothing has to be known about the
judge: what is usual for it is learned from the same judgements.

**Delay.** What is usual must have been seen before the judge changes. With 100 judgements of each label before it, a
sensitivity that falls from 0.9 to 0.6 is detected within 150 judgements, in the mean; with 250 of each, within 80. See
`tests/benchmarks/canary_drift.py`.

**End.** An alarm is over when the error rate of the last hundred judgements of that label is at most one standard error
above what was usual before the fall.

Sources: Vovk, Nouretdinov, Gammerman, "Testing exchangeability on-line", ICML 2003 (smoothed conformal p-values and
bets on them); Vovk et al., "Retrain or not retrain: conformal test martingales for change-point detection", COPA 2021
(Shiryaev-Roberts statistic of such bets, and its mean time to a false alarm).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from ragtrace.alerts.evaluator import AlertScope
from ragtrace.alerts.notice import Notice, hash_of
from ragtrace.estimates import Moments, estimate_mean, judged_moments

Change: TypeAlias = Literal["drifted", "recovered"]
CanaryLabel: TypeAlias = Literal["bad", "good"]
CANARY_LABELS: Final[tuple[CanaryLabel, ...]] = get_args(CanaryLabel)

MEAN_JUDGEMENTS: Final = 10_000.0
"""Least number of canary judgements between two false alarms, in the mean."""
_USUAL: Final = (0.03, 0.1, 0.2, 0.35)
"""Error rates that may be usual for a judge; there is a bet on p-values below each."""
_RISES: Final = (0.15, 0.35, 0.6)
"""Raised error rates that are bet on, each as a fraction of the way from the usual error rate to 1."""


class _Bet(NamedTuple):
    """Bet on p-values below a limit.

    The stake is multiplied by the factor `below` for a p-value below the limit, and by `above` for all others.
    """

    limit: float
    below: float
    above: float

    @classmethod
    def on(cls, usual: float, raised: float) -> _Bet:
        """Create the bet that detects a rise of the judge's error rate from *usual* to *raised* soonest."""
        return cls(usual, raised / usual, (1.0 - raised) / (1.0 - usual))


_BETS: Final = tuple(_Bet.on(usual, usual + rise * (1.0 - usual)) for usual in _USUAL for rise in _RISES)
_KEPT: Final = 100
"""Number of latest judgements of each label that decide the end of an alarm and give the agreement shown."""
_OVERFLOW: Final = 1e300


class Counts(NamedTuple):
    """Numbers of judgements and judge errors on canaries (calls with human labels) that have the same label."""

    judgements: int
    errors: int

    @property
    def agreement(self) -> float | None:
        """Share of the judgements that agree with the human label, or None if there are no judgements."""
        return 1.0 - self.errors / self.judgements if self.judgements else None


def _zeros() -> list[float]:
    return [0.0] * len(_BETS)


@dataclass(slots=True)
class LabelEvidence:
    """Evidence that a judge errs more often than before on canaries (test calls) with the same human label."""

    judgements: int = 0
    errors: int = 0
    recent: list[int] = field(default_factory=list[int])
    """Latest `_KEPT` judgements, oldest first: 1 for an error, 0 for agreement with the label."""
    sums: list[float] = field(default_factory=_zeros)
    """Shiryaev-Roberts sum of each bet in `_BETS`: winnings of all the bets begun at any judgement so far."""
    best: list[float] = field(default_factory=lambda: [1.0] * len(_BETS))
    """Most that each bet in `_BETS`, begun at any single judgement, has won so far, in multiples of the stake."""
    begun: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * len(_BETS))
    """Judgements and errors before the bet in `best` was begun, the likeliest moment of a change; one pair a bet."""

    @property
    def evidence(self) -> float:
        """Evidence of a rise in the judge's error rate, as the mean over all bets."""
        return sum(self.sums) / len(self.sums)

    @property
    def before(self) -> Counts:
        """Counts of judgements and errors before the most likely moment of a rise in the error rate."""
        strongest = max(range(len(self.sums)), key=self.sums.__getitem__)
        return Counts(*self.begun[strongest])

    @property
    def latest(self) -> Counts:
        """Counts of judgements and errors among the latest judgements, at most a hundred."""
        return Counts(len(self.recent), sum(self.recent))

    def remember(self, *, error: bool) -> None:
        """Add one judgement of a canary to the latest judgements."""
        self.recent = [*self.recent, int(error)][-_KEPT:]

    def add(self, *, error: bool, draw: float) -> None:
        """Add one judgement of a canary to the evidence of a rise in the judge's error rate.

        Args:
            error: whether the judge's verdict differs from the label.
            draw: random number in [0, 1), which smooths the p-value.
        """
        earlier = (self.judgements, self.errors)
        self.judgements += 1
        self.errors += error
        of_n, errors = self.judgements, self.errors
        p = draw * errors / of_n if error else (errors + draw * (of_n - errors)) / of_n
        for at, bet in enumerate(_BETS):
            factor = bet.below if p < bet.limit else bet.above
            self.sums[at] = min(_OVERFLOW, (self.sums[at] + 1.0) * factor)
            if self.best[at] <= 1.0:  # the bet has won nothing so far, so one begun at this judgement is as good
                self.best[at], self.begun[at] = 1.0, earlier
            self.best[at] = min(_OVERFLOW, self.best[at] * factor)

    def restart(self, usual: Counts) -> None:
        """Restart the detection of a rise in the error rate, with *usual* as the counts from before any rise."""
        self.judgements, self.errors = usual
        self.sums, self.best, self.begun = _zeros(), [1.0] * len(_BETS), [(0, 0)] * len(_BETS)


@dataclass(slots=True)
class Drift:
    """Detected fall of a judge's agreement with human labels, on canaries (test calls) with the same label."""

    label: CanaryLabel
    usual: Counts
    """Counts of judgements and errors before the likeliest moment of the fall."""
    since: float
    """Time of the alarm, in seconds since the epoch."""
    after: int = 0
    """Number of judgements of canaries with this label since the alarm."""


@dataclass(slots=True)
class AgreementMonitor:
    """Monitor of a judge's agreement with the human labels of canaries for one metric. Not thread-safe."""

    bad: LabelEvidence = field(default_factory=LabelEvidence)
    good: LabelEvidence = field(default_factory=LabelEvidence)
    drift: Drift | None = None
    """Fall of the agreement that has raised an alarm; None: there is no alarm."""

    def of(self, label: CanaryLabel) -> LabelEvidence:
        """Return the evidence of drift from the canaries with *label*."""
        return self.bad if label == "bad" else self.good

    def add(self, label: CanaryLabel, *, error: bool, draw: float, at: float = 0.0) -> Change | None:
        """Add one judgement of a canary, and return whether an alarm begins or ends with it.

        Args:
            label: label of the canary.
            error: whether the judge's verdict differs from the label.
            draw: random number in [0, 1).
            at: time of the judgement, in seconds since the epoch.

        Returns:
            `drifted`: the agreement has fallen; `recovered`: it is as before again; None: nothing has changed.
        """
        evidence = self.of(label)
        evidence.remember(error=error)
        if self.drift is not None:
            if label == self.drift.label:
                self.drift.after += 1
            return self._end_drift(self.drift)
        evidence.add(error=error, draw=draw)
        if self.bad.evidence + self.good.evidence < MEAN_JUDGEMENTS:
            return None
        fallen: CanaryLabel = "bad" if self.bad.evidence >= self.good.evidence else "good"
        self.drift = Drift(fallen, self.of(fallen).before, at)
        return "drifted"

    def _end_drift(self, drift: Drift) -> Change | None:
        """End the alarm for *drift* if the latest judgements agree with the labels as often as before."""
        if drift.after < _KEPT:
            return None
        usual, latest = drift.usual, self.of(drift.label).latest
        rate = (usual.errors + 0.5) / (usual.judgements + 1.0)
        if latest.errors > _KEPT * rate + math.sqrt(_KEPT * rate * (1.0 - rate)):
            return None
        other = self.good if drift.label == "bad" else self.bad
        self.of(drift.label).restart(usual)
        other.restart(Counts(other.judgements, other.errors))
        self.drift = None
        return "recovered"

    def encode(self) -> dict[str, Any]:
        """Return the state of the monitor as values that can be stored as JSON."""
        return asdict(self)

    @classmethod
    def decode(cls, stored: Mapping[str, Any]) -> AgreementMonitor:
        """Restore a monitor from the result of `encode`, or return a new one if this release uses other bets."""
        found: dict[str, LabelEvidence] = {}
        for label in CANARY_LABELS:
            evidence = LabelEvidence(**stored[label])
            evidence.begun = [(judgements, errors) for judgements, errors in evidence.begun]
            if len(evidence.sums) != len(_BETS):
                return cls()
            found[label] = evidence
        drift: Mapping[str, Any] | None = stored["drift"]
        known = (
            None
            if drift is None
            else Drift(drift["label"], Counts(*drift["usual"]), since=drift["since"], after=drift["after"])
        )
        return cls(found["bad"], found["good"], known)


def drift_notice(scope: AlertScope, metric: str, drift: Drift, latest: Counts, at: float, *, resolved: bool) -> Notice:
    """Return the notification that a judge's agreement with the labels of canaries has fallen or has recovered.

    Args:
        scope: service, evaluator, host and release.
        metric: name of the metric.
        drift: the fall of the agreement.
        latest: the latest judgements of canaries with the label that the fall was seen on.
        at: present time, in seconds since the epoch.
        resolved: whether the agreement is as before again.
    """
    total = Moments()
    for agrees in [0.0] * latest.errors + [1.0] * (latest.judgements - latest.errors):
        total += judged_moments(agrees, 1.0, seen=1.0)
    usual = drift.usual.agreement
    key = hash_of(scope.service, "canaries", metric, drift.label)
    return Notice(
        id=hash_of(key, repr(at), str(resolved)),
        key=key,
        alert=f"canaries of {metric}",
        metric=metric,
        direction="below",
        bound=0.0 if usual is None else usual,
        problem="judge_drift",
        status="resolved" if resolved else "firing",
        at=at,
        since=drift.since,
        mean_calls_between_false_alarms=MEAN_JUDGEMENTS,
        calls=latest.judgements,
        estimate=estimate_mean(total, method="weighted", metric=metric, evaluator=scope.evaluator),
        before=usual,
        canary_label=drift.label,
        **scope._asdict(),
    )
