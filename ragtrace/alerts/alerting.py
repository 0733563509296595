"""Alerting of a process: evaluates all alerts on finished calls, and passes due notifications to the notifiers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple
from uuid import uuid4

from ragtrace.alerts.alert import Alert
from ragtrace.alerts.canary_drift import Counts, Drift, drift_notice
from ragtrace.alerts.evaluator import STATES, AlertEvaluator, AlertScope, ClockReading, State
from ragtrace.alerts.notice import Notice, hash_of
from ragtrace.alerts.notifiers.notifier import (
    EventNotifier,
    LogNotifier,
    Notifier,
    UndeliveredError,
    have_same_receiver,
)
from ragtrace.alerts.score_gaps import ScoreGaps
from ragtrace.core import semconv
from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.errors import SettingsError, UnknownMetricError
from ragtrace.core.ledger import DeliveryCounts
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.score_sink import Refusal
from ragtrace.core.tags import tag_text
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision, Score
from ragtrace.estimates import Adjustment, BaselineKey, Calibrations, Distribution, MetricAssignment
from ragtrace.system.faults import FAILURES, faults
from ragtrace.telemetry.export.outbox import Outbox

if TYPE_CHECKING:
    from opentelemetry._logs import Logger

    from ragtrace.core.settings import Settings

MOST_GROUPS: Final = 200
"""Largest number of workflows, models or values of a tag that one alert evaluates separately."""
OTHER: Final = "other"
"""Name of the group of all workflows, models or values beyond `MOST_GROUPS`."""
_GROUNDING: Final = frozenset(
    {
        "hallucinated", "hallucination", "faithfulness", "contradiction", "consistency", "suspicious",
        "answered_without_context",
    }
)  # fmt: skip
"""Metrics of whether answers rest on the retrieved passages, which therefore all move with one fault."""
_LONGEST_CHECK_SECONDS: Final = 5.0
_SHORTEST_CHECK_SECONDS: Final = 0.1


class NotifierReceiver:
    """Adapter that delivers queued notifications by one `Notifier`, in order and one at a time."""

    what = "alerts"
    batch_size = 1

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    @property
    def name(self) -> str:
        """Name of the notifier, for counts and log lines."""
        return self._notifier.name

    def send(self, batch: Sequence[Notice], timeout: float) -> Mapping[int, Refusal]:
        """Deliver a notification with the notifier, and return the refusal if the delivery failed.

        The *batch* holds this one notification. A notification that may be delivered later makes the queue wait, which
        keeps the order.
        """
        try:
            for notice in batch:
                self._notifier.send(notice, timeout)
        except UndeliveredError as error:
            return {0: Refusal(error.reason, error.again, error.again, error.after_s, error.detail)}
        except FAILURES as error:
            faults.record(f"alert notifier {self.name}", error)
            return {0: Refusal("raised", detail=type(error).__name__)}
        return {}

    def warn_lost(self, reason: str, detail: str, count: int) -> None:
        """Add *count* undelivered notifications to the statistics, and log a warning for the first with *reason*."""
        faults.warn_once(
            f"alert not delivered by {self.name}: {reason}",
            "an alert could not be delivered by %s (%s); it is in the log and in the metric of alert states all the "
            "same. Every further loss is counted in ragtrace.stats().faults",
            *(self.name, f"{reason}: {detail}" if detail else reason),
            count=count,
        )


class Group(NamedTuple):
    """Calls that an alert evaluates separately; None: all workflows, all models, and whatever tags."""

    workflow: str | None = None
    model: str | None = None
    tag: str | None = None
    """Value of the tag, empty for calls that lack it."""


_ALL: Final = Group()


class StateRow(NamedTuple):
    """Data point of the alert-state metric: whether an alert of a group of calls is in a given state."""

    alert: str
    workflow: str | None
    model: str | None
    tag: str | None
    """Tag as `name=value`; None: whatever tags."""
    state: State
    on: bool


class _WatchedAlert(NamedTuple):
    """Alert together with the id of its evaluator and the delivery queues of its notifiers."""

    alert: Alert
    evaluator: str
    judged: bool
    """Whether the evaluator is the judge, which scores only a sample of the calls."""
    outboxes: tuple[Outbox[Notice], ...]
    gaps: ScoreGaps
    """Gaps between the scores of all workflows and models."""


class _Stop(NamedTuple):
    """Unusually long lack of the scores of an alert, with the notification and the queues that got it."""

    notice: Notice
    outboxes: tuple[Outbox[Notice], ...]


@dataclass(slots=True, eq=False)
class _Incident:
    """Open incident of an alert, with its first notification.

    An incident may be part of an earlier one.
    """

    notice: Notice
    watched: _WatchedAlert
    leader: _Incident | None
    """Earlier incident of another alert that the notifiers got instead; None: this incident itself was sent."""

    def covers(self, watched: _WatchedAlert, notice: Notice) -> bool:
        """Return whether the notifiers of *watched* already know of the problem in *notice* from this incident."""
        ours = self.notice
        return (
            self.leader is None
            and set(watched.outboxes) <= set(self.watched.outboxes)
            and (ours.metric == notice.metric or {ours.metric, notice.metric} <= _GROUNDING)
            and (ours.workflow is None or notice.workflow in (None, ours.workflow))
            and (ours.model is None or notice.model in (None, ours.model))
            and (ours.tag is None or notice.tag in (None, ours.tag))
        )


class Alerting(Part):
    """Observer of finished calls that evaluates all alerts of the process and queues their notifications.

    It never waits for a notifier. Alerts on the judge's scores leave out calls that were spooled (kept in a file until
    they could be scored), as they are of another time.

    Args:
        logger: OpenTelemetry logger that gets an event for each notification; None: there are no events.
        baseline: returns the distribution of the earlier scores of a key; None: not known (yet).
        adjustment: returns the usual effects of documents and lengths on these scores; None: not known (yet), so that
            the baseline is provisional.
        calibrations: calibrations of the metrics, for alerts on corrected rates.
        release: `service.version` of the application.
        stores: functions that keep what is known of an incident, without blocking; later incidents with the same id
            replace earlier ones.

    Raises:
        UnknownMetricError: no evaluator gives the metric of an alert on a scale from 0 to 1.
        SettingsError: two alerts have one name.
    """

    sees_early_scores: ClassVar[bool] = True

    def __init__(
        self,
        alerts: Sequence[Alert],
        assignment: MetricAssignment,
        settings: Settings,
        logger: Logger | None = None,
        *,
        baseline: Callable[[BaselineKey], Distribution | None] = lambda key: None,
        adjustment: Callable[[BaselineKey], Adjustment | None] = lambda key: None,
        calibrations: Calibrations | None = None,
        release: str = "",
        stores: Sequence[Callable[[AlertIncident], None]] = (),
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        check_alerts(alerts, assignment)
        self._settings, self._clock, self._wall = settings, clock, wall
        self._baseline, self._adjustment = baseline, adjustment
        self._calibrations = Calibrations() if calibrations is None else calibrations
        self._host, self._release = socket.gethostname(), release
        # Each process has a runtime and alerts of its own, and the end of an alert in one is not that in the others.
        self._process, self._stores = uuid4().hex, stores
        common: tuple[Notifier, ...] = (LogNotifier(), *(() if logger is None else (EventNotifier(logger),)))
        self._common = tuple(map(_outbox, common))
        own: list[tuple[Notifier, Outbox[Notice]]] = []
        for each in (notifier for alert in alerts for notifier in alert.notifiers):
            if not any(have_same_receiver(each, known) for known, _ in own):
                own.append((each, _outbox(each)))
        self._outboxes = (*self._common, *(outbox for _, outbox in own))
        self._watched = {
            alert.title: _WatchedAlert(
                alert,
                assignment.evaluator_of(alert.metric) or "",
                alert.metric in assignment.judged,
                tuple(box for known, box in own if any(have_same_receiver(each, known) for each in alert.notifiers)),
                ScoreGaps(alert.window, alert.missing_after),
            )
            for alert in alerts
        }
        waits = [wait for each in alerts for wait in (each.window, each.missing_after, each.repeat_every) if wait]
        # Number of checks by time alone (ticks) within the shortest window or repeat interval of any alert.
        shortest = min(waits, default=100.0) / 20
        self._check_seconds = min(_LONGEST_CHECK_SECONDS, max(_SHORTEST_CHECK_SECONDS, shortest))
        self._lock = threading.RLock()
        self._evaluators: dict[tuple[str, Group], AlertEvaluator] = {}
        self._spikes: list[_Incident] = []
        self._stops: dict[str, _Stop] = {}
        self._is_closed = False
        self._next_check = 0.0
        for watched in self._watched.values():
            if watched.alert.group_by is None:  # its state is no_data from the start, not from the first call on
                self._alert_evaluator(watched, _ALL)

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Alerts of the process, in the order in which they were configured."""
        return tuple(watched.alert for watched in self._watched.values())

    def __call__(
        self, call: RagCall, evaluations: Sequence[Evaluation], decision: SamplingDecision | None = None
    ) -> None:
        """Add the scores of a finished *call* to the alerts on the scored metrics, and queue due notifications."""
        if not evaluations:
            return
        by_evaluator = {evaluation.evaluator: evaluation for evaluation in evaluations}
        for watched in self._watched.values():
            evaluation = by_evaluator.get(watched.evaluator)
            if evaluation is not None and watched.alert.metric in evaluation.results:
                self._add(watched, call, evaluation, decision)

    def _add(
        self, watched: _WatchedAlert, call: RagCall, evaluation: Evaluation, decision: SamplingDecision | None
    ) -> None:
        share = 1.0  # by which the call counts as evidence: less where it was more probable to be judged than others
        if watched.judged:
            if decision is None or not decision.least:
                return
            share = min(1.0, decision.least / evaluation.probability)
        now, group = self._now(), _group_of(watched.alert, call)
        with self._lock:
            self._send(watched, self._alert_evaluator(watched, group).add(call, evaluation, share, now))
            if isinstance(evaluation.results[watched.alert.metric], Score):
                watched.gaps.add(now.monotonic)
                self._end_stop(watched.alert.title, now)

    def _alert_evaluator(self, watched: _WatchedAlert, group: Group) -> AlertEvaluator:
        alert, name = watched.alert, watched.alert.title
        key = (name, group)
        evaluator = self._evaluators.get(key)
        if evaluator is not None:
            return evaluator
        if alert.group_by and sum(known[0] == name for known in self._evaluators) >= MOST_GROUPS:
            faults.warn_once(
                "too many groups of an alert",
                "alert %r has seen more than %d different values of %s; further ones are watched together as %r. If "
                "@trace gets a different name in each call, give it a fixed name=",
                name,
                MOST_GROUPS,
                alert.by or alert.group_by,
                OTHER,
            )
            group = Group(*(None if value is None else OTHER for value in group))
            key = (name, group)
        scope = self._scope(watched, group)
        return self._evaluators.setdefault(
            key,
            AlertEvaluator(alert, scope, self._settings, self._baseline, self._adjustment, self._calibrations.current),
        )

    def _scope(self, watched: _WatchedAlert, group: Group = _ALL) -> AlertScope:
        service, evaluator, tag = self._settings.service, watched.evaluator, _written(watched.alert, group)
        return AlertScope(
            service, group.workflow, group.model, tag, evaluator, watched.judged, self._host, self._release
        )

    def _send(self, watched: _WatchedAlert, notices: Iterable[Notice]) -> None:
        for notice in notices:
            # A night without calls is no incident, and no worse answers are seen on new documents.
            if notice.problem not in ("no_data", "new_documents"):
                self._store(notice)
            for sent, outboxes in self._deliveries(watched, notice):
                for outbox in outboxes:
                    outbox.offer(sent)

    def _store(self, notice: Notice) -> None:
        for store in self._stores:
            store(notice.incident(self._process))

    def _deliveries(self, watched: _WatchedAlert, notice: Notice) -> list[tuple[Notice, tuple[Outbox[Notice], ...]]]:
        """Return the notifications to send because of *notice*, each with the delivery queues of its notifiers.

        Of several incidents with one cause, the notifiers get only the first.
        """
        everywhere = [(notice, (*self._common, *watched.outboxes))]
        # Topics that the baseline has not met may come and go, which notifiers are told once.
        if notice.problem == "no_data" or (notice.problem == "new_documents" and notice.repeat):
            return [(notice, self._common)]
        if notice.problem != "spiking":
            return everywhere
        spike = next((spike for spike in self._spikes if spike.notice.key == notice.key), None)
        if notice.status == "firing" and spike is None:
            spike = _Incident(notice, watched, next((s for s in self._spikes if s.covers(watched, notice)), None))
            self._spikes.append(spike)
        if notice.status == "resolved" and spike is not None:
            self._spikes.remove(spike)
        if spike is not None and spike.leader is not None:
            return [(replace(notice, part_of=spike.leader.notice.alert), self._common)]
        if notice.status == "firing":
            return everywhere
        # Without a new leader, an incident that outlasts the one it was part of would never reach the notifiers.
        for follower in [each for each in self._spikes if each.leader is spike and spike is not None]:
            follower.leader = next(
                (s for s in self._spikes if s is not follower and s.covers(follower.watched, follower.notice)), None
            )
            if follower.leader is None:
                everywhere.append((follower.notice, follower.watched.outboxes))
        return everywhere

    def report_drift(self, evaluator: str, metric: str, drift: Drift, latest: Counts, *, resolved: bool) -> None:
        """Queue a notification that a judge's agreement with human-labelled calls has fallen or has recovered.

        It goes to the log, to the events and to the notifiers of all alerts.

        Args:
            evaluator: id of the judge.
            metric: name of the metric.
            drift: the fall of the agreement.
            latest: the latest judgements of canaries with the label that the fall was seen on.
            resolved: whether the agreement is as before again.
        """
        scope = AlertScope(
            self._settings.service, evaluator=evaluator, judged=True, host=self._host, release=self._release
        )
        notice = drift_notice(scope, metric, drift, latest, self._wall(), resolved=resolved)
        with self._lock:
            self._offer(notice, self._outboxes)

    def _now(self) -> ClockReading:
        return ClockReading(self._clock(), self._wall())

    # --- changes by time alone ---------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Queue the notifications that are due by time: for missing scores, and repeats."""
        if self._is_closed or self._clock() < self._next_check:
            return
        self._next_check = self._clock() + self._check_seconds
        now = self._now()
        with self._lock:
            for (title, _), evaluator in self._evaluators.items():
                self._send(self._watched[title], evaluator.take_due_notices(now))
            for watched in self._watched.values():
                if watched.alert.title not in self._stops and watched.gaps.is_unusual(now.monotonic):
                    self._begin_stop(watched, now)

    def _begin_stop(self, watched: _WatchedAlert, now: ClockReading) -> None:
        """Queue the notification that scores of an alert stay away for unusually long, unless its evaluator fails.

        Of several alerts on the scores of one evaluator, each notifier is told once.
        """
        alert, gaps = watched.alert, watched.gaps
        mine = [evaluator for (title, _), evaluator in self._evaluators.items() if title == alert.title]
        if any(evaluator.is_failing for evaluator in mine):
            return
        told = {box for s in self._stops.values() if s.notice.evaluator == watched.evaluator for box in s.outboxes}
        key = hash_of(self._settings.service, alert.title, "stop")
        notice = Notice(
            id=hash_of(key, repr(now.epoch)),
            key=key,
            alert=alert.title,
            metric=alert.metric,
            direction=alert.direction,
            bound=0.0 if isinstance(alert.bound, str) else alert.bound,
            problem="no_data",
            status="firing",
            at=now.epoch,
            since=now.epoch - gaps.seconds_since_last(now.monotonic),
            mean_calls_between_false_alarms=alert.mean_calls_between_false_alarms,
            batch=alert.calls_in_batch,
            due_within=gaps.limit,
            **self._scope(watched)._asdict(),
        )
        stop = _Stop(notice, (*self._common, *(box for box in watched.outboxes if box not in told)))
        self._stops[alert.title] = stop
        self._offer(stop.notice, stop.outboxes)

    def _end_stop(self, title: str, now: ClockReading) -> None:
        """Queue the notification that an alert has scores again, if its notifiers were told that it had none."""
        stop = self._stops.pop(title, None)
        if stop is not None:
            new_id = hash_of(stop.notice.key, repr(now.epoch), "over")
            self._offer(replace(stop.notice, id=new_id, status="resolved", at=now.epoch), stop.outboxes)

    def _offer(self, notice: Notice, outboxes: Sequence[Outbox[Notice]]) -> None:
        self._store(notice)
        for outbox in outboxes:
            outbox.offer(notice)

    def states(self) -> list[StateRow]:
        """Return the current states of all alerts: one row for each alert, group of calls and possible state.

        A row is `on` if the alert is in that state. During a data problem an alert is also in the state of a spike
        that has not ended.
        """
        now = self._clock()
        with self._lock:
            seen = [(key, evaluator.states(now)) for key, evaluator in self._evaluators.items()]
        return [
            StateRow(
                title, group.workflow, group.model, _written(self._watched[title].alert, group), state, state in on
            )
            for (title, group), on in seen
            for state in STATES
        ]

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the alerts' states."""
        about = "Alert: 1 for the state it is in, and for a spike that is not over while there is no data"
        yield ObservableMetric(semconv.METRIC_ALERT_STATE, "gauge", "{state}", about, self._points)

    def _points(self) -> Iterator[Point]:
        for row in self.states():
            group = {semconv.WORKFLOW_NAME: row.workflow, semconv.REQUEST_MODEL: row.model}
            if row.tag is not None:
                name, _, value = row.tag.partition("=")
                group[semconv.tag(name)] = value
            grouped = {key: value for key, value in group.items() if value is not None}
            yield int(row.on), {semconv.ALERT_NAME: row.alert, semconv.ALERT_STATE: row.state, **grouped}

    def delivery_counts(self) -> Mapping[str, DeliveryCounts]:
        """Return for each notifier how many notifications were queued, delivered and lost, and how many are waiting."""
        with self._lock:
            return {outbox.name: outbox.counts() for outbox in self._outboxes}

    # --- flush and close ---------------------------------------------------------------------------------------------

    def flush(self, timeout: float) -> bool:
        """Deliver all queued notifications, and return whether that was done within *timeout* seconds."""
        deadline = monotonic() + timeout
        done = [outbox.flush(max(0.0, deadline - monotonic())) for outbox in self._outboxes]
        return all(done)

    def close(self, timeout: float) -> bool:
        """Stop the alerts and deliver queued notifications. Return whether that was done within *timeout* seconds."""
        deadline = monotonic() + timeout
        self._is_closed = True
        done = [outbox.close(max(0.0, deadline - monotonic())) for outbox in self._outboxes]
        return all(done)


def _group_of(alert: Alert, call: RagCall) -> Group:
    """Return the group of calls to which *call* belongs for *alert*."""
    if alert.by is not None:
        return Group(tag=tag_text(call.tags[alert.by]) if alert.by in call.tags else "")
    if alert.group_by == "model":
        return Group(model=call.model or "")
    return Group(workflow=call.workflow if alert.group_by == "workflow" else None)


def _written(alert: Alert, group: Group) -> str | None:
    """Return the tag of a group as `name=value`, or None if the alert does not look at tags."""
    return None if group.tag is None else f"{alert.by}={group.tag}"


def _outbox(notifier: Notifier) -> Outbox[Notice]:
    # Largest number of notifications that wait in the delivery queue of one notifier; each takes a few kilobytes.
    return Outbox(NotifierReceiver(notifier), capacity=100)


def check_alerts(alerts: Sequence[Alert], assignment: MetricAssignment) -> None:
    """Check that all alerts have different names, and that some evaluator computes each alert's metric.

    Raises:
        UnknownMetricError: no evaluator gives the metric of one of them on a scale from 0 to 1.
        SettingsError: two have one name.
    """
    names: set[str] = set()
    for alert in alerts:
        if alert.title in names:
            raise SettingsError(f"two alerts are called {alert.title!r}; give one of them a name=")
        names.add(alert.title)
        if assignment.evaluator_of(alert.metric) is None:
            known = ", ".join(sorted(assignment.screened | assignment.judged)) or "none"
            raise UnknownMetricError(
                f"alert {alert.title!r}: neither screen nor judge gives a metric {alert.metric!r} in [0, 1]; known: "
                f"{known}. Add it to metrics=, or configure a judge that offers it"
            )
