"""Evaluation of one alert over a group of calls, from scores to the alert's state and notifications."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from ragtrace.alerts.alert import Alert
from ragtrace.alerts.canary_drift import MEAN_JUDGEMENTS, Counts, Drift
from ragtrace.alerts.detector import HEAD_START, Detector
from ragtrace.alerts.notice import Example, Notice, Problem, trace_id_hex
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.estimates import (
    BaselineKey,
    Distribution,
    Estimate,
    JudgeCalibration,
    Moments,
    estimate_mean,
    judged_moments,
)

if TYPE_CHECKING:
    from ragtrace.core.settings import Settings

Condition: TypeAlias = Literal["ok", "spiking", "recovering"]
DataProblem: TypeAlias = Literal["no_data", "judge_failing"]
State: TypeAlias = Literal["ok", "spiking", "recovering", "no_data", "judge_failing", "no_baseline", "no_calibration"]
STATES: Final[tuple[State, ...]] = get_args(State)

_RECENT_SHARE: Final = 5
_ATTEMPTS: Final = 20
_FAILURES_IN_A_ROW: Final = 5
_KEPT_CALLS: Final = 500
_KEPT_EXAMPLES: Final = 50
_SHOWN_EXAMPLES: Final = 3
_FEWEST_BEFORE: Final = 20
"""Least number of scored calls before a spike for which a notification states the earlier mean."""
_BASELINE_Z: Final = 0.25
"""Standard errors between a baseline's mean and the bound computed from the baseline.

Half of all baselines of 500 calls lie on the wrong side of the true mean. With no margin every second alert would be
false sooner or later; with a large one the detection of a real change takes long. With a quarter, a mean of 10,000
calls between false alarms, cut off at 30,000, holds with reserve on simulated scores of several shapes; none of them
was a labelled set.
"""
_EDGE: Final = 1e-6


class SpikeState:
    """State of an alert on one stream of scores: within the bound, beyond it (spiking) or recovering. Not thread-safe.

    The detector decides when a spike begins. The spike is `recovering` while the mean of the last calls is within the
    bound, and over when the mean of `recovery` calls since the alarm is within it, too. Then the detector starts again
    without evidence.
    """

    def __init__(self, detector: Detector, *, min_calls: int, recovery: int) -> None:
        self.detector, self.recovery = detector, recovery
        self.condition: Condition = "ok"
        self._min_calls = min_calls
        self._recent = -(-recovery // _RECENT_SHARE)
        self._since_alarm: deque[tuple[float, float]] = deque(maxlen=recovery)

    def add(self, badness: float, probability: float, share: float, question: str | None = None) -> None:
        """Update the state of the alert with one scored call.

        Args:
            badness: how bad the score is, from 0 (good) to 1.
            probability: probability with which the call was chosen for scoring.
            share: factor by which the call counts as evidence (see `Detector.add`).
            question: question of the call; None: not known.
        """
        if self.condition == "ok":
            if self.detector.add(badness, share, question) and self.detector.calls >= self._min_calls:
                self.condition = "spiking"
                self._since_alarm.clear()
            return
        self._since_alarm.append((1.0 / probability, badness))
        if not self._is_mean_within_bound(self._recent):
            self.condition = "spiking"
        elif not self._is_mean_within_bound(self.recovery):
            self.condition = "recovering"
        else:
            self.condition = "ok"
            self.detector.reset()

    def _is_mean_within_bound(self, count: int) -> bool:
        """Return whether the weighted mean badness of the last *count* calls since the alarm is within the bound.

        The result is False if fewer calls have followed the alarm.
        """
        if len(self._since_alarm) < count:
            return False
        last = list(self._since_alarm)[-count:]
        total = sum(weight for weight, _ in last)
        return sum(weight * badness for weight, badness in last) <= self.detector.bound * total


class ScoreAvailability:
    """Record of the latest evaluations, which shows whether an alert lacks scores or its evaluator keeps failing.

    An alert lacks scores after *window* seconds without any.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._failed: deque[bool] = deque(maxlen=_ATTEMPTS)
        self._first_at = self._scored_at = self._evaluated_at = -math.inf

    def add(self, now: float, *, scored: bool, failed: bool) -> None:
        """Record that an evaluation ended at the monotonic time *now*, and whether it gave a score or failed."""
        if scored:
            self._scored_at = now
        self._evaluated_at = now
        self._first_at = now if self._first_at == -math.inf else self._first_at
        self._failed.append(failed)

    def problem(self, now: float) -> DataProblem | None:
        """Return why the mean score is not known at the monotonic time *now*, or None if it is known."""
        last = list(self._failed)
        failing = len(last) >= _FAILURES_IN_A_ROW and (all(last[-_FAILURES_IN_A_ROW:]) or sum(last) * 2 > len(last))
        if failing and self._is_recent(self._evaluated_at, now):
            return "judge_failing"
        return None if self._is_recent(self._scored_at, now) else "no_data"

    def reportable_problem(self, now: float) -> DataProblem | None:
        """Return the problem to notify of at the monotonic time *now*: `no_data`, `judge_failing` or None.

        In a process that has just started, missing scores are no problem yet.
        """
        problem = self.problem(now)
        starting = self._first_at == -math.inf or self._is_recent(self._first_at, now)
        return None if problem == "no_data" and starting else problem

    def _is_recent(self, at: float, now: float) -> bool:
        return now - at <= self._window


class AlertScope(NamedTuple):
    """Scope of an alert: the service, workflow, model and evaluator that its notifications name."""

    service: str = ""
    workflow: str | None = None
    model: str | None = None
    evaluator: str = ""
    judged: bool = False
    """Whether the evaluator is the judge."""
    host: str = ""
    release: str = ""
    """Version (`service.version`) of the application; empty: not known."""


class ClockReading(NamedTuple):
    """One moment in seconds on two clocks: the monotonic clock, and the time since the epoch."""

    monotonic: float
    epoch: float


class _Observation(NamedTuple):
    score: float
    probability: float
    at: float


@dataclass(slots=True)
class _OpenProblem:
    """Lasting problem of an alert, with the times of its beginning and of its last notification."""

    since: float
    first: int
    """Number of the first scored call of the problem, counted from 1 for this evaluator."""
    notified_at: float
    before: float | None = None
    """Mean score before the problem began; None: not known."""
    repeats: int = 0


class AlertEvaluator:
    """Evaluator of one alert over a group of calls, with the alert's state and notifications. Not thread-safe."""

    def __init__(
        self,
        alert: Alert,
        scope: AlertScope,
        settings: Settings,
        baseline: Callable[[BaselineKey], Distribution | None],
        calibration: Callable[[str], JudgeCalibration | None] = lambda metric: None,
    ) -> None:
        self._alert, self._scope, self._settings, self._find_baseline = alert, scope, settings, baseline
        self._find_calibration = calibration
        self._calibration: JudgeCalibration | None = None
        self._spike: SpikeState | None = None
        """State of the comparison with the bound; None while no baseline or calibration has given a bound."""
        self._baseline: Distribution | None = None
        self._data = ScoreAvailability(alert.window)
        self._calls = self._notices = 0
        self._recent: deque[_Observation] = deque(maxlen=_KEPT_CALLS)
        self._examples: deque[tuple[int, Example]] = deque(maxlen=_KEPT_EXAMPLES)
        self._open: dict[Problem, _OpenProblem] = {}
        if alert.corrected:
            self._calibrate()
        elif not isinstance(alert.bound, str):
            self._set_bound(alert.bound)

    def _calibrate(self) -> None:
        """Set the bound on the judge's scores from the alert's bound and the calibration in force, if there is one."""
        known = self._find_calibration(self._alert.metric)
        if known is self._calibration:
            return
        self._calibration, self._spike = known, None
        if known is not None and not isinstance(self._alert.bound, str):
            self._set_bound(known.judge_bound(self._alert.bound, above=self._alert.direction == "above"))

    def _set_bound(self, bound: float) -> None:
        alert, self._bound = self._alert, bound
        limit = bound if alert.direction == "above" else 1.0 - bound
        head_start = 0.0 if alert.against_baseline else HEAD_START
        detector = Detector(limit, alert.mean_calls_between_false_alarms, alert.calls_in_batch, head_start)
        self._spike = SpikeState(detector, min_calls=alert.min_calls, recovery=alert.calls_to_recover(limit))
        self._recent = deque(self._recent, maxlen=max(_KEPT_CALLS, self._spike.recovery))

    def add(self, call: RagCall, evaluation: Evaluation, share: float, now: ClockReading) -> list[Notice]:
        """Add one evaluated call to the alert's state, and return the notifications that are due.

        Args:
            call: the call, whose texts are redacted already.
            evaluation: evaluation of the call, with a result of the alert's metric.
            share: factor by which the call counts as evidence (see `Detector.add`).
            now: the present time.
        """
        result = evaluation.results[self._alert.metric]
        if not isinstance(result, Score):
            failed = result.status in ("judge_error", "judge_suspect")
            self._data.add(now.monotonic, scored=False, failed=failed)
            return self.due_notices(now, trace_id_hex(call))
        if self._alert.corrected:
            self._calibrate()
        elif self._spike is None:
            key = BaselineKey(
                self._scope.workflow or "", self._alert.metric, f"{evaluation.evaluator}@{evaluation.version}"
            )
            self._baseline = self._find_baseline(key)
            if self._baseline is not None:
                self._set_bound(baseline_bound(self._baseline, self._alert.direction))
        self._calls += 1
        self._data.add(now.monotonic, scored=True, failed=False)
        self._recent.append(_Observation(min(1.0, max(0.0, result.value)), evaluation.probability, now.epoch))
        if self._spike is not None:
            badness = self._alert.badness(result.value)
            if badness > self._spike.detector.bound:
                texts, url = self._settings.capture_content != "NO_CONTENT", self._settings.trace_url
                example = Example.from_call(call, evaluation, result, now.epoch, show_texts=texts, url=url)
                self._examples.append((self._calls, example))
            question = None if call.query is None else " ".join(call.query.casefold().split()) or None
            self._spike.add(badness, evaluation.probability, share, question)
        return self.due_notices(now, trace_id_hex(call))

    def states(self, now: float) -> list[State]:
        """Return the states that the alert is in at the monotonic time *now*: usually one.

        During a data problem there are two where the metric is also spiking, recovering or without a baseline.
        """
        problem, condition = self._data.problem(now), self._alert_state
        if problem is None:
            return [condition]
        return [problem] if condition == "ok" else [problem, condition]

    @property
    def _alert_state(self) -> State:
        if self._spike is None:
            return "no_calibration" if self._alert.corrected else "no_baseline"
        return self._spike.condition

    # --- notices -----------------------------------------------------------------------------------------------------

    def due_notices(self, now: ClockReading, trace: str = "") -> list[Notice]:
        """Return the notifications that are due: for problems that began or ended, and repeats for lasting problems.

        Args:
            now: the present time.
            trace: trace id of the call that was just added; empty: there is none.
        """
        problems: list[Problem] = ["spiking"] if self._alert_state in ("spiking", "recovering") else []
        if self._alert_state == "no_calibration" and "spiking" in self._open:
            problems.append("spiking")  # a calibration that became stale does not end the spike
        if (data_problem := self._data.reportable_problem(now.monotonic)) is not None:
            problems.append(data_problem)
        ended: list[Problem] = [problem for problem in self._open if problem not in problems]
        due: list[Notice] = []
        for problem in ended:
            calls = self._spike.recovery if self._spike is not None and problem == "spiking" else 0
            due.append(self._notice(problem, self._open.pop(problem), now, calls, resolved=True, trace=trace))
        for problem in problems:
            if problem not in self._open:
                spike = self._spike if problem == "spiking" else None
                calls = 0 if spike is None else min(spike.detector.calls_since_change, len(self._recent))
                since = self._recent[-max(1, calls)].at if self._recent else now.epoch
                before = self._mean_before(calls) if calls else None
                opened = self._open[problem] = _OpenProblem(since, self._calls - calls + 1, now.monotonic, before)
                due.append(self._notice(problem, opened, now, calls, trace=trace))
        every = self._alert.repeat_every
        for problem, opened in self._open.items():
            if every is not None and now.monotonic - opened.notified_at >= every:
                opened.notified_at, opened.repeats = now.monotonic, opened.repeats + 1
                calls = self._calls - opened.first + 1 if problem == "spiking" else 0
                due.append(self._notice(problem, opened, now, calls))
        return due

    def _notice(
        self,
        problem: Problem,
        opened: _OpenProblem,
        now: ClockReading,
        calls: int,
        *,
        resolved: bool = False,
        trace: str = "",
    ) -> Notice:
        alert, scope = self._alert, self._scope
        key = _hash_of(scope.service, alert.title, scope.workflow or "", scope.model or "", problem)
        self._notices += 1
        last = list(self._recent)[-calls:] if calls else []
        # The newest come first among equally bad examples.
        worst = [example for number, example in reversed(self._examples) if number >= opened.first]
        worst.sort(key=lambda example: -alert.badness(example.score))
        return Notice(
            id=_hash_of(key, repr(now.epoch), str(self._notices)),
            key=key,
            alert=alert.title,
            metric=alert.metric,
            direction=alert.direction,
            bound=alert.bound if alert.corrected and not isinstance(alert.bound, str) else self._watched_bound,
            problem=problem,
            status="resolved" if resolved else "firing",
            at=now.epoch,
            since=opened.since,
            mean_calls_between_false_alarms=alert.mean_calls_between_false_alarms,
            batch=alert.calls_in_batch,
            repeat=opened.repeats,
            calls=len(last),
            estimate=self._estimate(last) if last else None,
            trace_id=trace,
            before=opened.before,
            baseline=self._baseline,
            worst=() if resolved or problem != "spiking" else tuple(worst[:_SHOWN_EXAMPLES]),
            **scope._asdict(),
        )

    @property
    def _watched_bound(self) -> float:
        return 0.0 if self._spike is None else self._bound

    def _mean_before(self, calls: int) -> float | None:
        """Return the mean score before the last *calls* calls, or None if too few earlier calls are known.

        With a baseline, that is the mean of the baseline.
        """
        if self._baseline is not None:
            return self._baseline.mean
        earlier = list(self._recent)[:-calls]
        return self._estimate(earlier).value if len(earlier) >= _FEWEST_BEFORE else None

    def _estimate(self, observations: Sequence[_Observation]) -> Estimate:
        total = Moments()
        for each in observations:
            total += judged_moments(each.score, each.probability, seen=1.0)
        scope = self._scope
        found = estimate_mean(
            total, method="weighted", metric=self._alert.metric, workflow=scope.workflow, evaluator=scope.evaluator
        )
        return found if self._calibration is None else self._calibration.correct(found)


def baseline_bound(baseline: Distribution, direction: Literal["above", "below"]) -> float:
    """Return the bound on the mean score for an alert that compares with earlier scores, the *baseline*.

    It is in (0, 1): a confidence limit of the baseline's mean, and at least what the mean would be with one more call
    that is as bad as can be. A baseline without any bad call does not say that there never is one.
    """
    n, worst = baseline.effective_n, 1.0 if direction == "above" else 0.0
    one_more = (n * baseline.mean + worst) / (n + 1.0)
    limit = baseline.mean_bound(_BASELINE_Z, "upper" if direction == "above" else "lower")
    found = max(limit, one_more) if direction == "above" else min(limit, one_more)
    return min(1.0 - _EDGE, max(_EDGE, found))


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
    key = _hash_of(scope.service, "canaries", metric, drift.label)
    return Notice(
        id=_hash_of(key, repr(at), str(resolved)),
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


def _hash_of(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()
