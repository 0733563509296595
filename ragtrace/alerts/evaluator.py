"""Evaluation of one alert over a group of calls, from scores to the alert's state and notifications.

`Alerting` calls everything here, under its lock: on the worker's thread for each scored call, on the thread of its
timer for what is due by time alone, and on a metric reader's thread for the states.

**Badness.** A score is turned so that 1 is the worst: it stays as it is for alerts above a bound, and is 1 - score for
alerts below one. **Bounds.** The user's bound on the mean score (`Alert.bound`) is a number or "baseline". From it
follows the bound on the mean of the scores that are watched, which is another number where the alert corrects the
judge's rate or compares with a baseline (`_score_bound`). The detector has the same as bound on the mean badness
(`Detector.bound`). **Raw probabilities** of a decision model are compared with a baseline as they are, which needs no
labels. A number as bound would be one on a rate, and their mean is none: so they are converted by a calibration curve,
and without one that enough labels stand behind there is no alarm (`ScoreCalibration.bound_lacking`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from ragtrace.alerts.alert import Alert
from ragtrace.alerts.detector import HEAD_START, Detector
from ragtrace.alerts.notice import Example, Notice, Problem, hash_of, trace_id_hex
from ragtrace.alerts.sensitivity import Sensitivity
from ragtrace.alerts.shared_tags import CallTags
from ragtrace.core.contents import may_leave
from ragtrace.core.types import Evaluation, RagCall, Score, is_raw_probability
from ragtrace.estimates import (
    Adjustment,
    BaselineKey,
    CallTraits,
    Distribution,
    Estimate,
    JudgeCalibration,
    KnownDocuments,
    Moments,
    baseline_bound,
    estimate_mean,
    judged_moments,
)
from ragtrace.estimates.score_curve import FEWEST_FOR_BOUND
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.core.settings import Settings
    from ragtrace.estimates.score_curve import ScoreCalibration

Condition: TypeAlias = Literal["ok", "spiking", "recovering"]
DataProblem: TypeAlias = Literal["no_data", "judge_failing"]
State: TypeAlias = Literal["ok", "spiking", "recovering", "no_data", "judge_failing", "no_baseline", "no_calibration"]
STATES: Final[tuple[State, ...]] = get_args(State)

_FAILURES_IN_A_ROW: Final = 5
"""Failed evaluations in a row that are enough for it, too."""
_KEPT_CALLS: Final = 500
"""Latest scored calls from which notifications state means; more where a spike needs more of them to end."""
_SHOWN_EXAMPLES: Final = 3


class SpikeState:
    """State of an alert on one stream of scores: within the bound, beyond it (spiking) or recovering. Not thread-safe.

    The detector decides when a spike begins. The spike is `recovering` while the mean of the last calls is within the
    bound, and over when the mean of `recovery_calls` calls since the alarm is within it, too. Then the detector starts
    again without evidence.

    Args:
        detector: decides when a spike begins.
        min_calls: scored calls before the first alarm.
        recovery_calls: latest calls after the alarm whose mean ends the spike.
        condition: state to begin with.
    """

    def __init__(self, detector: Detector, *, min_calls: int, recovery_calls: int, condition: Condition = "ok") -> None:
        self.detector, self.recovery_calls = detector, recovery_calls
        self.condition: Condition = condition
        self._min_calls = min_calls
        # Factor by which the calls whose mean makes a spike `recovering` are fewer than those whose mean ends it.
        self._recovering_calls = -(-recovery_calls // 5)  # rounded up
        self._since_alarm: deque[tuple[float, float]] = deque(maxlen=recovery_calls)  # weight and badness

    def add(self, badness: float, probability: float, share: float, question: str | None = None) -> None:
        """Update the state of the alert with one scored call.

        Args:
            badness: how bad the score is, from 0 (good) to 1.
            probability: probability with which the call was chosen for scoring.
            share: factor in (0, 1] by which the call counts as evidence: less than 1 if it was more probable to be
                chosen than other calls (see `Detector.add`).
            question: question of the call; None: not known.
        """
        if self.condition == "ok":
            if self.detector.add(badness, share, question) and self.detector.calls >= self._min_calls:
                self.condition = "spiking"
                self._since_alarm.clear()
            return
        self._since_alarm.append((1.0 / probability, badness))
        if not self._is_mean_within_bound(self._recovering_calls):
            self.condition = "spiking"
        elif not self._is_mean_within_bound(self.recovery_calls):
            self.condition = "recovering"
        else:
            self.condition = "ok"
            self.detector.restart()

    def _is_mean_within_bound(self, count: int) -> bool:
        """Return whether the last *count* calls since the alarm are within the bound on average.

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
        # Latest evaluations of which more than half must have failed for the alert to be in the state `judge_failing`.
        self._failed: deque[bool] = deque(maxlen=20)
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
    """Scope of an alert: the service, workflow, model, tag and evaluator that its notifications name."""

    service: str = ""
    workflow: str | None = None
    model: str | None = None
    tag: str | None = None
    evaluator: str = ""
    judged: bool = False
    """Whether the evaluator is the judge, which scores only a sample of the calls."""
    host: str = ""
    release: str = ""
    """Version (`service.version`) of the application; empty: not known."""


class ClockReading(NamedTuple):
    """One moment in seconds on two clocks: the monotonic clock, and the time since the epoch."""

    monotonic: float
    epoch: float


class _ScoredCall(NamedTuple):
    """Score of a call, the probability with which the call was chosen for scoring, and the time since the epoch."""

    score: float
    probability: float
    at: float


@dataclass(slots=True)
class _OpenProblem:
    """Lasting problem of an alert, with the times of its beginning and of its last notification."""

    since: float
    """Seconds since the epoch."""
    first_call: int
    """Number of the first scored call of the problem, counted from 1 for this evaluator."""
    notified_at: float
    """Monotonic seconds."""
    before: float | None = None
    """Mean score before the problem began; None: not known."""
    repeats: int = 0
    """Notifications after the first."""


class AlertEvaluator:
    """Evaluator of one alert over a group of calls, with the alert's state and notifications. Not thread-safe."""

    def __init__(
        self,
        alert: Alert,
        scope: AlertScope,
        settings: Settings,
        baseline: Callable[[BaselineKey], Distribution | None],
        adjustment: Callable[[BaselineKey], Adjustment | None],
        calibration: Callable[[str], JudgeCalibration | None] = lambda metric: None,
    ) -> None:
        self._alert, self._scope, self._settings = alert, scope, settings
        self._find_baseline, self._find_adjustment = baseline, adjustment
        self._find_calibration = calibration
        self._calibration: JudgeCalibration | None = None
        self._raw = False
        """Whether the scores are raw probabilities of a decision model."""
        self._curve: ScoreCalibration | None = None
        """Curve by which raw probabilities are converted before they are watched; None: they are not."""
        self._spike: SpikeState | None = None
        """State of the comparison with the bound; None: there is no bound, as there is no baseline or calibration."""
        self._score_bound = 0.0
        """Bound on the mean of the scores that are watched; meaningless without `_spike`."""
        self._baseline: Distribution | None = None
        self._adjustment: Adjustment | None = None
        """Effects that are subtracted from the watched scores; None: the baseline is provisional, or there is none."""
        self._documents = KnownDocuments(())
        self._n_vanished = 0
        self._data = ScoreAvailability(alert.window)
        self._n_scored = self._n_notices = 0
        self._latest: deque[_ScoredCall] = deque(maxlen=_KEPT_CALLS)
        # Latest badly scored calls from which a notification shows the worst.
        self._examples: deque[tuple[int, Example]] = deque(maxlen=50)  # with the number of the scored call
        self._tags = CallTags()
        self._open: dict[Problem, _OpenProblem] = {}
        if alert.corrected:
            self._calibrate()
        elif not isinstance(alert.bound, str):
            self._set_bound(alert.bound)

    def _calibrate(self) -> None:
        """Set the bound on the watched scores from the alert's bound and the calibration in force, if there is one."""
        known, bound = self._find_calibration(self._alert.metric), self._alert.bound
        if known is self._calibration:
            return
        self._calibration, self._spike, self._curve = known, None, None
        if known is None or isinstance(bound, str):
            return
        if known.scores is None:
            self._set_bound(known.judge_bound(bound, above=self._alert.direction == "above"))
        elif (self._alert.direction == "below") is known.higher_is_better and not known.scores.bound_lacking():
            bad = known.scores.alert_bound(self._alert.badness(bound))
            self._curve = known.scores
            self._set_bound(self._alert.badness(bad))  # badness is its own inverse

    def _watch_raw_probabilities(self) -> None:
        """Watch raw probabilities of a decision model from now on: by their calibration, if the bound is a number."""
        if not self._raw:
            self._raw = True
            if not self._alert.against_baseline:
                self._spike = self._calibration = None
        if not self._alert.against_baseline:
            self._calibrate()
            if self._spike is None:
                self._warn_of_refused_bound()

    def _warn_of_refused_bound(self) -> None:
        entry = self._calibration
        lacking = f"no calibration that holds, of {FEWEST_FOR_BOUND} labels or more"
        if entry is not None and entry.scores is not None:
            lacking = entry.scores.bound_lacking() or "an alert on the bad side of the metric"
        faults.log_once(
            f"alert refused: {self._alert.title}: {lacking}",
            "the alert %r has no bound to compare with: the scores of %s are a decision model's probabilities, and a "
            "fixed bound on their rate needs labels that are missing (%s). Compare with a baseline, which needs none: "
            "Alert(%r, %s='baseline')",
            *(self._alert.title, self._alert.metric, lacking, self._alert.metric, self._alert.direction),
        )

    def _compare_with_baseline(self, evaluator: str) -> None:
        """Set the bound from the baseline of the scores of *evaluator* (`id@version`), as far as that is learned."""
        key = BaselineKey(self._scope.workflow or "", self._alert.metric, evaluator)
        self._adjustment = self._find_adjustment(key)
        found = self._find_baseline(key) if self._adjustment is None else self._adjustment.distribution
        if found is not None and found is not self._baseline:
            self._baseline = found
            if self._adjustment is not None:
                self._latest.clear()  # scores before the adjustment cannot be compared with those after it
                self._documents = KnownDocuments(self._adjustment.least_known)
            self._set_bound(baseline_bound(found, self._alert.direction))

    def _set_bound(self, score_bound: float) -> None:
        """Begin to compare the mean of the watched scores with *score_bound*, without evidence.

        A spike that was found with another bound lasts until scores are within the new one.
        """
        alert, self._score_bound = self._alert, score_bound
        badness_bound = alert.badness(score_bound)
        # Without a head start, the evidence of all values of a tag together is in the mean at most the number of calls.
        head_start = 0.0 if alert.against_baseline or alert.by is not None else HEAD_START
        gate = 0.0 if self._adjustment is None else self._adjustment.gate(alert.direction)
        mean_calls = alert.mean_calls_between_false_alarms
        detector = Detector(badness_bound, mean_calls, alert.calls_in_batch, head_start, gate)
        recovery_calls = alert.calls_to_recover(badness_bound)
        condition: Condition = "spiking" if "spiking" in self._open else "ok"
        self._spike = SpikeState(
            detector, min_calls=alert.min_calls, recovery_calls=recovery_calls, condition=condition
        )
        self._latest = deque(self._latest, maxlen=max(_KEPT_CALLS, recovery_calls))

    def add(self, call: RagCall, evaluation: Evaluation, share: float, now: ClockReading) -> list[Notice]:
        """Add one evaluated call to the alert's state, and return the notifications that are due.

        Args:
            call: the call, whose texts are redacted already.
            evaluation: evaluation of the call, with a result of the alert's metric.
            share: factor in (0, 1] by which the call counts as evidence (see `SpikeState.add`).
            now: the present time.
        """
        result = evaluation.results[self._alert.metric]
        if not isinstance(result, Score):
            failed = result.status in ("judge_error", "judge_suspect")
            self._data.add(now.monotonic, scored=False, failed=failed)
            return self.take_due_notices(now, trace_id_hex(call))
        if self._raw or is_raw_probability(result):
            self._watch_raw_probabilities()
        elif self._alert.corrected:
            self._calibrate()
        if self._alert.against_baseline and self._adjustment is None:
            self._compare_with_baseline(f"{evaluation.evaluator}@{evaluation.version}")
        self._n_scored += 1
        self._data.add(now.monotonic, scored=True, failed=False)
        score = min(1.0, max(0.0, result.value))
        if self._adjustment is not None:
            traits = CallTraits.of(call)
            score = self._adjustment.adjust(score, traits)
            self._documents.add(self._adjustment.knows(traits))
        if self._curve is not None:
            score = self._alert.badness(self._curve.curve.probability(self._alert.badness(score)))
        self._latest.append(_ScoredCall(score, evaluation.probability, now.epoch))
        if self._spike is not None and not self._documents.calls_since_vanished:
            badness = self._alert.badness(score)
            is_bad = badness > self._spike.detector.bound
            self._tags.add(self._n_scored, call.tags, is_bad=is_bad)
            if is_bad:
                texts, url = may_leave(self._settings.capture_content, "elsewhere"), self._settings.trace_url
                example = Example.from_call(call, evaluation, result, now.epoch, show_texts=texts, url=url)
                self._examples.append((self._n_scored, example))
            question = None if call.query is None else " ".join(call.query.casefold().split()) or None
            self._spike.add(badness, evaluation.probability, share, question)
        return self.take_due_notices(now, trace_id_hex(call))

    @property
    def is_failing(self) -> bool:
        """Whether the notifiers were told that the alert's evaluator fails, and not yet that it works again."""
        return "judge_failing" in self._open

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
            return "no_baseline" if self._alert.against_baseline else "no_calibration"
        if self._documents.calls_since_vanished and self._spike.condition == "ok":
            return "no_baseline"  # it does not fit the new documents
        return self._spike.condition

    # --- notices -----------------------------------------------------------------------------------------------------

    def take_due_notices(self, now: ClockReading, trace: str = "") -> list[Notice]:
        """Return the notifications that are due, and mark them as sent.

        They are for problems that began or ended, and repeats for lasting problems.

        Args:
            now: the present time.
            trace: trace id of the call that was just added; empty: there is none.
        """
        problems: list[Problem] = ["spiking"] if self._alert_state in ("spiking", "recovering") else []
        if self._alert_state == "no_calibration" and "spiking" in self._open:
            problems.append("spiking")  # a calibration that became stale does not end the spike
        if (data_problem := self._data.reportable_problem(now.monotonic)) is not None:
            problems.append(data_problem)
        if self._documents.calls_since_vanished:
            problems.append("new_documents")
        if data_problem == "no_data" and self.is_failing:
            problems.append("judge_failing")  # without calls, an evaluator that failed is not known to work again
        ended: list[Problem] = [problem for problem in self._open if problem not in problems]
        due: list[Notice] = []
        for problem in ended:
            calls = self._spike.recovery_calls if self._spike is not None and problem == "spiking" else 0
            if problem == "new_documents" and self._spike is not None:
                self._spike.detector.restart()
            due.append(self._notice(problem, self._open.pop(problem), now, calls, resolved=True, trace=trace))
        for problem in problems:
            if problem not in self._open:
                spike = self._spike if problem == "spiking" else None
                calls = 0 if spike is None else min(spike.detector.calls_since_change, len(self._latest))
                back = max(1, calls if problem != "new_documents" else self._documents.calls_since_vanished)
                since = self._latest[-min(back, len(self._latest))].at if self._latest else now.epoch
                before = self._mean_before(calls) if calls else None
                opened = self._open[problem] = _OpenProblem(since, self._n_scored - calls + 1, now.monotonic, before)
                if problem == "new_documents":
                    opened.repeats, self._n_vanished = self._n_vanished, self._n_vanished + 1
                due.append(self._notice(problem, opened, now, calls, trace=trace))
        every = self._alert.repeat_every
        for problem, opened in self._open.items():
            if problem == "spiking":
                lasts = not self._documents.calls_since_vanished  # meanwhile nothing new is known of it
            else:
                lasts = problem == data_problem == "judge_failing"
            if every is not None and lasts and now.monotonic - opened.notified_at >= every:
                opened.notified_at, opened.repeats = now.monotonic, opened.repeats + 1
                calls = self._n_scored - opened.first_call + 1 if problem == "spiking" else 0
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
        """Return a notification about *problem*, with the mean score of the last *calls* scored calls."""
        alert, scope = self._alert, self._scope
        tag = () if scope.tag is None else (scope.tag,)  # keys of other alerts stay what they were
        key = hash_of(scope.service, alert.title, scope.workflow or "", scope.model or "", *tag, problem)
        self._n_notices += 1
        last = list(self._latest)[-calls:] if calls else []
        # The newest come first among equally bad examples.
        worst = [example for number, example in reversed(self._examples) if number >= opened.first_call]
        worst.sort(key=lambda example: -alert.badness(example.score))
        return Notice(
            id=hash_of(key, repr(now.epoch), str(self._n_notices)),
            key=key,
            alert=alert.title,
            metric=alert.metric,
            direction=alert.direction,
            bound=self._shown_bound,
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
            provisional=self._baseline is not None and self._adjustment is None,
            sensitivity=self._sensitivity if problem == "spiking" and not resolved else "",
            scores=("calibrated" if self._curve is not None else "uncalibrated") if self._raw else "",
            worst=() if resolved or problem != "spiking" else tuple(worst[:_SHOWN_EXAMPLES]),
            shared=() if resolved or problem != "spiking" else self._tags.shared_by_bad(opened.first_call),
            **scope._asdict(),
        )

    @property
    def _sensitivity(self) -> str:
        return "" if self._baseline is None else Sensitivity(self._alert, self._baseline, self._adjustment).describe()

    @property
    def _shown_bound(self) -> float:
        """Bound that the user gave on a rate, else that on the mean of the watched scores, or 0 while there is none."""
        if (self._alert.corrected or self._raw) and not isinstance(self._alert.bound, str):
            return self._alert.bound
        return 0.0 if self._spike is None else self._score_bound

    def _mean_before(self, calls: int) -> float | None:
        """Return the mean score before the last *calls* calls, or None if too few earlier calls are known.

        With a baseline, that is the mean of the baseline.
        """
        if self._baseline is not None:
            return self._baseline.mean
        earlier = list(self._latest)[:-calls]
        # Least number of scored calls before a spike for which a notification states the earlier mean.
        return self._estimate(earlier).value if len(earlier) >= 20 else None

    def _estimate(self, calls: Sequence[_ScoredCall]) -> Estimate:
        total = Moments()
        for each in calls:
            total += judged_moments(each.score, each.probability, seen=1.0)
        scope = self._scope
        found = estimate_mean(
            total, method="weighted", metric=self._alert.metric, workflow=scope.workflow, evaluator=scope.evaluator
        )
        if self._calibration is None or self._raw:
            return found  # of raw probabilities, the mean of what is watched
        return self._calibration.correct(found)
