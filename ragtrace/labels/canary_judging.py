"""Canaries: labelled calls that the judge of a live process scores again at random times, to detect drift."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ragtrace.alerts.canary_drift import CANARY_LABELS, CanaryLabel
from ragtrace.core import semconv
from ragtrace.core.cost import Cost
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.types import Evaluation, Score
from ragtrace.evaluation.scoring import evaluate
from ragtrace.labels.canary_set import CanarySet
from ragtrace.system.faults import faults, guarded
from ragtrace.system.threads import BlockingCalls

if TYPE_CHECKING:
    from ragtrace.alerts import Alerting
    from ragtrace.alerts.canary_drift import AgreementMonitor, Change, Counts, Drift
    from ragtrace.evaluation.sampling import Sampler
    from ragtrace.evaluation.scoring import Evaluator
    from ragtrace.labels.canary_store import CanaryStore
    from ragtrace.labels.served_models import ServedModels

BAD: Final = 0.5
"""Lowest badness of a score, from 0 to 1, at which the judge's verdict on a canary counts as bad."""


@dataclass(frozen=True, slots=True)
class CanaryAgreement:
    """Agreement of the judge with the labels of a metric's canaries, as shown by `ragtrace.doctor`."""

    metric: str
    evaluator: str
    """Judge, as "id@version"."""
    canaries: Mapping[CanaryLabel, int]
    """Number of canaries by label."""
    judgements: Mapping[CanaryLabel, int]
    """Number of judgements that `agreement` rests on by label: the latest, at most a hundred."""
    agreement: Mapping[CanaryLabel, float | None]
    """Share of the latest judgements that agree with the label, from 0 to 1; None if there are no judgements."""
    fallen: CanaryLabel | None
    """Label on which the judge errs more often than before; None if no such drift is detected."""
    usual: float | None
    """Agreement before the drift, from 0 to 1; None if no drift is detected."""


class _Outcome(NamedTuple):
    """Outcome of scoring a canary: `agree`, `disagree`, `unscored`, `failed` or `postponed`, and the reason."""

    metric: str
    label: str
    outcome: str
    reason: str


class CanaryJudging(Part):
    """Scheduler of canaries (labelled calls for the judge), and monitor of the judge's agreement with their labels.

    A canary is judged by the judge of the traffic, at random times, one at a time, and only while no call waits for the
    judge and at most half of the judge's places are taken. It counts in the sampling budgets, of which canaries get at
    most a fiftieth, and in nothing else that is about the traffic. For the worker's thread, but for what reads.

    Args:
        sets: canaries of each metric.
        judge: evaluator whose judge judges the canaries.
        sampler: has the budgets.
        alerting: returns what sends notifications.
        served: notes the models that answer.
        interval: mean seconds between two canaries.
        places: calls that the judge sees at a time.
        store: keeps what was seen, for other processes and later ones; None: it is kept in memory.
        clock: returns monotonic seconds.
        chance: random numbers.
        is_open: returns whether the worker still takes calls; else no canary is judged.
    """

    def __init__(
        self,
        sets: Sequence[CanarySet],
        judge: Evaluator,
        sampler: Sampler,
        alerting: Callable[[], Alerting],
        served: ServedModels,
        *,
        interval: float,
        places: int,
        store: CanaryStore | None = None,
        clock: Callable[[], float] = monotonic,
        chance: Random | None = None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sets, self._judge, self._sampler, self._alerting = tuple(sets), judge, sampler, alerting
        self._served, self._interval, self._store, self._clock = served, interval, store, clock
        self._most_in_flight, self._is_open = max(1, places // 2), is_open
        self._chance = chance or SystemRandom()  # random numbers of the system are not repeated in a forked child
        from ragtrace.alerts.canary_drift import AgreementMonitor

        self._monitors: dict[str, AgreementMonitor] = {each.metric: AgreementMonitor() for each in self._sets}
        self._counts: Counter[_Outcome] = Counter()
        self._cost = Cost()
        self._threads = BlockingCalls(1, "canaries")
        self._task: asyncio.Task[None] | None = None
        self._loaded = self._store is None
        self._postponed = False
        self._due = self._clock() + self._chance.expovariate(1.0 / self._interval)

    # --- on the worker's thread --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Start to judge a canary if one is due, the judge has capacity to spare and the budgets allow it."""
        if not self._is_open() or (self._task is not None and not self._task.done()):
            return
        if not self._loaded:
            self._loaded = True
            self._task = asyncio.get_running_loop().create_task(self._load())
            return
        if self._clock() < self._due:
            return
        status = self._judge.judge_client.status
        if status.queued or status.in_flight >= self._most_in_flight:
            self._postpone("busy")
        elif status.waits_s:
            self._postpone("unavailable")
        elif not self._sampler.charge_canary():
            self._postpone("budget")
        else:
            self._postponed = False
            self._due = self._clock() + self._chance.expovariate(1.0 / self._interval)
            self._task = asyncio.get_running_loop().create_task(self._judge_one())

    def _postpone(self, reason: str) -> None:
        if not self._postponed:  # a canary that is put off again and again is counted once
            self._counts[_Outcome("", "", "postponed", reason)] += 1
        self._postponed = True

    async def aclose(self) -> None:
        """Cancel the canary judgement that is in progress, if any."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _judge_one(self) -> None:
        """Have the judge score a randomly chosen canary, and add the outcome to the monitor of its metric."""
        canaries = self._chance.choice(self._sets)
        label: CanaryLabel = self._chance.choice(CANARY_LABELS)
        call = self._chance.choice(canaries.calls[label])
        with guarded("canaries"):
            try:
                evaluation = await evaluate(self._judge, call, bypass_cache=True)
            except asyncio.CancelledError:
                self._counts[_Outcome(canaries.metric, label, "failed", "shutdown")] += 1
                raise
            self._cost = self._cost.add_known(Cost.from_report(evaluation))
            self._served.note(evaluation)
            outcome, reason = _verdict(evaluation, canaries.metric, label)
            self._counts[_Outcome(canaries.metric, label, outcome, reason)] += 1
            if outcome in ("agree", "disagree"):
                await self._record(canaries, label, error=outcome == "disagree")

    async def _record(self, canaries: CanarySet, label: CanaryLabel, *, error: bool) -> None:
        """Add a canary judgement to the agreement monitor of a metric, and report drift or recovery.

        If there is a history, the monitor in the history is updated.
        """
        judged = partial(_add_judgement, label=label, error=error, draw=self._chance.random(), at=time())
        if self._store is None:
            update = judged(self._monitors[canaries.metric])
        else:
            key = canaries.metric, self._judge.identity, canaries.key
            try:
                update = await self._threads.run(self._store.update, *key, partial(_add_to_stored, judged))
            except Exception as failure:  # an error of the file or of SQLite, or no thread
                self._counts[_Outcome(canaries.metric, label, "failed", "not_stored")] += 1
                faults.record("canaries: history", failure)
                return
        self._monitors[canaries.metric] = update.monitor
        if update.change is not None and update.drift is not None:
            latest, resolved = update.monitor.of(update.drift.label).latest, update.change == "recovered"
            self._alerting().report_drift(self._judge.id, canaries.metric, update.drift, latest, resolved=resolved)

    async def _load(self) -> None:
        """Load the states of the agreement monitors from the history file, which several processes may share."""
        if self._store is None:
            return
        with guarded("canaries"):
            for each in self._sets:
                stored = await self._threads.run(self._store.read, each.metric, self._judge.identity, each.key)
                self._monitors[each.metric] = _monitor(stored)

    # --- from any thread ---------------------------------------------------------------------------------------------

    def agreements(self) -> list[CanaryAgreement]:
        """Return for each metric how well the judge agrees with the labels of the canaries."""
        found: list[CanaryAgreement] = []
        for each in self._sets:
            monitor = self._monitors[each.metric]
            latest: dict[CanaryLabel, Counts] = {label: monitor.of(label).latest for label in CANARY_LABELS}
            judgements: dict[CanaryLabel, int] = {label: counts.judgements for label, counts in latest.items()}
            agreement: dict[CanaryLabel, float | None] = {label: counts.agreement for label, counts in latest.items()}
            drift = monitor.drift
            found.append(
                CanaryAgreement(
                    each.metric,
                    self._judge.identity,
                    {label: len(each.calls[label]) for label in CANARY_LABELS},
                    judgements,
                    agreement,
                    None if drift is None else drift.label,
                    None if drift is None else drift.usual.agreement,
                )
            )
        return found

    @property
    def cost(self) -> Cost:
        """Total cost of the canary judgements of this process, without those whose price is unknown."""
        return self._cost

    @property
    def postponed(self) -> Mapping[str, int]:
        """Number of postponed canaries by reason: `busy`, `unavailable` or `budget`."""
        return {each.reason: n for each, n in self._counts.copy().items() if each.outcome == "postponed"}

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metrics of the canaries: outcomes, agreement with the labels, drift, and what judging cost."""
        s = semconv
        about = "Canaries by outcome: agree, disagree, unscored, failed, postponed"
        yield ObservableMetric(s.METRIC_CANARY_JUDGEMENTS, "counter", "{judgement}", about, self._judgements)
        about = "Share of the last hundred canary judgements of a label that agree with it"
        yield ObservableMetric(s.METRIC_CANARY_AGREEMENT, "gauge", "{share}", about, self._agreement)
        about = "1 while the judge agrees with labels less than before, else 0"
        yield ObservableMetric(s.METRIC_CANARY_DRIFT, "gauge", "{state}", about, self._drift)
        about = "Tokens used by judges for canaries"
        yield ObservableMetric(s.METRIC_CANARY_TOKENS, "counter", "{token}", about, self._tokens)
        about = "Money spent on judging canaries"
        yield ObservableMetric(
            s.METRIC_CANARY_COST, "counter", "USD", about, lambda: [(self._cost.cost_usd or 0.0, self._of_judge)]
        )

    @property
    def _of_judge(self) -> dict[str, str]:
        return {semconv.EVALUATOR_ID: self._judge.id}

    def _judgements(self) -> Iterator[Point]:
        for each, number in self._counts.copy().items():
            named = {
                semconv.EVALUATION_NAME: each.metric,
                semconv.CANARY_LABEL: each.label,
                semconv.OUTCOME: each.outcome,
                semconv.REASON: each.reason,
            }
            yield number, {**self._of_judge, **{key: value for key, value in named.items() if value}}

    def _agreement(self) -> Iterator[Point]:
        for each in self.agreements():
            for label, agreement in each.agreement.items():
                if agreement is not None:
                    of = {semconv.EVALUATION_NAME: each.metric, semconv.CANARY_LABEL: label}
                    yield agreement, {**self._of_judge, **of}

    def _drift(self) -> Iterator[Point]:
        for each in self.agreements():
            yield float(each.fallen is not None), {**self._of_judge, semconv.EVALUATION_NAME: each.metric}

    def _tokens(self) -> Iterator[Point]:
        yield self._cost.input_tokens, {**self._of_judge, semconv.TOKEN_TYPE: semconv.TOKEN_INPUT}
        yield self._cost.output_tokens, {**self._of_judge, semconv.TOKEN_TYPE: semconv.TOKEN_OUTPUT}


class _Update(NamedTuple):
    """State of an agreement monitor after another canary judgement, and the change that the judgement caused."""

    monitor: AgreementMonitor
    change: Change | None
    drift: Drift | None
    """Fall of the agreement that begins, lasts or has just ended; None if there is none."""


def _add_judgement(monitor: AgreementMonitor, *, label: CanaryLabel, error: bool, draw: float, at: float) -> _Update:
    """Add the judgement of a canary (a labelled call) to *monitor*, and return the update."""
    before = monitor.drift
    change = monitor.add(label, error=error, draw=draw, at=at)
    return _Update(monitor, change, monitor.drift or before)


def _add_to_stored(
    judged: Callable[[AgreementMonitor], _Update], stored: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any], _Update]:
    """Apply a canary judgement to a stored agreement monitor, and return the new stored state and the update."""
    update = judged(_monitor(stored))
    return update.monitor.encode(), update


def _monitor(stored: Mapping[str, Any] | None) -> AgreementMonitor:
    from ragtrace.alerts.canary_drift import AgreementMonitor

    return AgreementMonitor() if stored is None else AgreementMonitor.decode(stored)


def _verdict(evaluation: Evaluation, metric: str, label: CanaryLabel) -> tuple[str, str]:
    """Return whether the judge's verdict on a canary agrees with the label, or why there is no verdict.

    Returns:
        The outcome (`agree`, `disagree`, `unscored`, `failed`) and the reason for a missing score.
    """
    result = evaluation.results[metric]
    if not isinstance(result, Score):
        return "failed" if result.status in ("judge_error", "judge_suspect") else "unscored", result.reason
    badness = 1.0 - result.value if result.higher_is_better else result.value
    return ("agree" if (badness >= BAD) == (label == "bad") else "disagree"), ""
