"""All alerts of a process: fed with every finished call, they tell their notifiers what is new."""

from __future__ import annotations

import contextvars
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Final, NamedTuple

from ragtrace.alerts.alert import Alert
from ragtrace.alerts.examples import example_of, trace_id
from ragtrace.alerts.notice import Notice
from ragtrace.alerts.notifiers import Event, Log, Notifier, is_same
from ragtrace.alerts.outbox import notifier_outbox
from ragtrace.alerts.spike_state import Now, Place, Watch
from ragtrace.alerts.state import STATES, State
from ragtrace.core.errors import SettingsError, UnknownMetricError
from ragtrace.core.ledger import Posted
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision, Score
from ragtrace.estimates import Distribution, Key, Plan
from ragtrace.system.faults import faults, guarded

if TYPE_CHECKING:
    from opentelemetry._logs import Logger

    from ragtrace.core.settings import Settings
    from ragtrace.telemetry.export.outbox import Outbox

MOST_GROUPS: Final = 200
"""Workflows or models of one alert."""
OTHER: Final = "other"
"""Stands for all further ones."""
_GROUNDING: Final = frozenset(
    {
        "hallucinated", "hallucination", "faithfulness", "contradiction", "consistency", "suspicious",
        "answered_without_context",
    }
)  # fmt: skip
"""Metrics of one thing: whether answers rest on what was retrieved. When it goes wrong, several of them tell."""
_LONGEST_TICK_SECONDS: Final = 5.0
_SHORTEST_TICK_SECONDS: Final = 0.1
_TICKS: Final = 20
"""In the shortest time that anything waits for."""


class StateRow(NamedTuple):
    """One point of the gauge."""

    alert: str
    workflow: str | None
    model: str | None
    state: State
    on: bool


class _Watched(NamedTuple):
    alert: Alert
    evaluator: str
    sampled: bool
    """Whether the evaluator sees a sample only."""
    outboxes: tuple[Outbox[Notice], ...]


@dataclass(slots=True, eq=False)
class _Spike:
    """A spike that goes on."""

    notice: Notice
    """The first."""
    watched: _Watched
    leader: _Spike | None
    """The spike of the same event that receivers were told of instead; None: they were told of this one."""

    @property
    def of(self) -> tuple[_Watched, Notice]:
        return self.watched, self.notice

    def covers(self, watched: _Watched, notice: Notice) -> bool:
        """Return whether the notifiers of *watched* have had a notice of the event that *notice* is of."""
        ours = self.notice
        return (
            self.leader is None
            and set(watched.outboxes) <= set(self.watched.outboxes)
            and (ours.metric == notice.metric or {ours.metric, notice.metric} <= _GROUNDING)
            and _overlap(ours.workflow, notice.workflow)
            and _overlap(ours.model, notice.model)
        )


def _overlap(one: str | None, other: str | None) -> bool:
    """Return whether two groups have calls in common; None is the group of all."""
    return one is None or other is None or one == other


class Alerting:
    """An observer of calls: adds each to the statistics of every alert, and returns at once.

    Calls that come out of a spool are left out where the judge's scores are watched: they are of another time.

    Args:
        alerts: what to watch.
        plan: who gives which metric.
        clock: monotonic seconds.
        wall: seconds since the epoch.

    Raises:
        UnknownMetricError: nobody gives the metric of an alert on a scale from 0 to 1.
        SettingsError: two alerts have one name.
    """

    def __init__(
        self,
        alerts: Sequence[Alert],
        plan: Plan,
        *,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._service, self._host, self._release, self._trace_url, self._show = "", "", "", "", True
        self._baseline: Callable[[Key], Distribution | None] = lambda key: None
        check(alerts, plan)
        self._usual = [notifier_outbox(Log())] if alerts else []
        own: list[tuple[Notifier, Outbox[Notice]]] = []
        for each in (notifier for alert in alerts for notifier in alert.notifiers):
            if not any(is_same(each, known) for known, _ in own):
                own.append((each, notifier_outbox(each)))
        self._own = [outbox for _, outbox in own]
        self._watched = [
            _Watched(
                alert,
                plan.evaluator(alert.metric) or "",
                alert.metric in plan.judged,
                tuple(box for known, box in own if any(is_same(each, known) for each in alert.notifiers)),
            )
            for alert in alerts
        ]
        self._tick_seconds = _tick_seconds(alerts)
        self.reset()

    def speak(self, settings: Settings, logger: Logger | None = None) -> None:
        """Say who is speaking, and where to; before the first call.

        Args:
            settings: notices show words of answers unless these forbid all content.
            logger: takes an event for each notice; None: there are none.
        """
        self._service, self._show = settings.service, settings.capture_content != "NO_CONTENT"
        self._trace_url, self._host = settings.trace_url, socket.gethostname() if self._watched else ""
        if logger is not None and self._watched:
            self._usual.append(notifier_outbox(Event(logger)))
        self.reset()

    def compare(self, baseline: Callable[[Key], Distribution | None], release: str = "") -> None:
        """Say what scores are compared with; before the first call.

        Args:
            baseline: gives how the scores of a workflow, metric and evaluator were distributed; None: not known (yet).
            release: `service.version` of the application.
        """
        self._baseline, self._release = baseline, release
        self.reset()

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """What is watched."""
        return tuple(watched.alert for watched in self._watched)

    @property
    def _outboxes(self) -> list[Outbox[Notice]]:
        return [*self._usual, *self._own]

    def reset(self) -> None:
        """In a forked child: nothing was seen yet, and nothing is under way."""
        self._lock = threading.RLock()
        self._watches: dict[tuple[str, str | None, str | None], Watch] = {}
        self._spikes: list[_Spike] = []
        self._over = threading.Event()
        self._ticking = False
        for outbox in self._outboxes:
            outbox.reset()
        for watched in self._watched:
            if watched.alert.groups is None:  # known before its first call: until then its state is no_data
                self._watch(watched, None, None)

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Add *call* to what is known."""
        if not (evaluations and self._watched):
            return
        by_evaluator = {evaluation.evaluator: evaluation for evaluation in evaluations}
        for watched in self._watched:
            evaluation = by_evaluator.get(watched.evaluator)
            share = None if evaluation is None else _share(watched, evaluation, decision)
            if evaluation is not None and share is not None:
                self._take(watched, call, evaluation, share)
        self._start_ticking()

    def _take(self, watched: _Watched, call: RagCall, evaluation: Evaluation, share: float) -> None:
        result = evaluation.results.get(watched.alert.metric)
        if result is None:
            return
        now, trace = self._now(), trace_id(call)
        per = watched.alert.groups
        with self._lock:
            watch = self._watch(
                watched, call.workflow if per == "workflow" else None, (call.model or "") if per == "model" else None
            )
            if isinstance(result, Score):
                if watch.rate is None:
                    self._find_baseline(watch, watched.alert, evaluation)
                example = None
                if watch.is_bad(result.value):
                    example = example_of(call, evaluation, result, now.epoch, show=self._show, url=self._trace_url)
                question = None if call.query is None else " ".join(call.query.casefold().split()) or None
                watch.scored(result.value, evaluation.probability, share, now, example, question)
            else:
                watch.supply.tried(now.monotonic, failed=result.status in ("judge_error", "judge_suspect"))
            self._tell(watched, watch.news(now, trace))

    def _find_baseline(self, watch: Watch, alert: Alert, evaluation: Evaluation) -> None:
        key = Key(watch.place.workflow or "", alert.metric, f"{evaluation.evaluator}@{evaluation.version}")
        found = self._baseline(key)
        if found is not None:
            watch.compare_with(found)

    def _watch(self, watched: _Watched, workflow: str | None, model: str | None) -> Watch:
        name = watched.alert.title
        key = (name, workflow, model)
        watch = self._watches.get(key)
        if watch is None:
            if watched.alert.groups and sum(known[0] == name for known in self._watches) >= MOST_GROUPS:
                faults.warn_once(
                    "too many groups of an alert",
                    "alert %r met more than %d different values of %s: further ones are watched together as %r. Are "
                    "these names unique to a call? Give @trace a name=",
                    name,
                    MOST_GROUPS,
                    watched.alert.groups,
                    OTHER,
                )
                workflow, model = (None if value is None else OTHER for value in (workflow, model))
                key = (name, workflow, model)
            place = Place(self._service, workflow, model, watched.evaluator, watched.sampled, self._host, self._release)
            watch = self._watches.setdefault(key, Watch(watched.alert, place))
        return watch

    def _tell(self, watched: _Watched, notices: Iterable[Notice]) -> None:
        for notice in notices:
            for told, outboxes in self._addressed(watched, notice):
                for outbox in outboxes:
                    outbox.offer(told)

    def _addressed(self, watched: _Watched, notice: Notice) -> list[tuple[Notice, tuple[Outbox[Notice], ...]]]:
        """Return what to tell whom: of the spikes of one event, receivers are told of the first that they hear of."""
        everybody = (*self._usual, *watched.outboxes)
        if notice.problem != "spiking":
            return [(notice, everybody)]
        mine = next((spike for spike in self._spikes if spike.notice.key == notice.key), None)
        if notice.status == "firing":
            if mine is None:
                mine = _Spike(notice, watched, next((s for s in self._spikes if s.covers(watched, notice)), None))
                self._spikes.append(mine)
            if mine.leader is None:
                return [(notice, everybody)]
            return [(replace(notice, part_of=mine.leader.notice.alert), tuple(self._usual))]
        if mine is None:
            return [(notice, everybody)]
        self._spikes.remove(mine)
        if mine.leader is not None:
            return [(replace(notice, part_of=mine.leader.notice.alert), tuple(self._usual))]
        found = [(notice, everybody)]
        # Without this, a spike that outlasts the first alert of its event would never be notified.
        followers = [spike for spike in self._spikes if spike.leader is mine]
        for spike in followers:
            spike.leader = next((s for s in self._spikes if s is not spike and s.covers(*spike.of)), None)
            if spike.leader is None:
                found.append((spike.notice, spike.watched.outboxes))
        return found

    def _now(self) -> Now:
        return Now(self._clock(), self._wall())

    # --- what time brings about --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look whether time alone has changed anything: no score for so long, a problem to be told of again."""
        now = self._now()
        by_title = {watched.alert.title: watched for watched in self._watched}
        with self._lock:
            for (title, _, _), watch in self._watches.items():
                self._tell(by_title[title], watch.news(now))

    def states(self) -> list[StateRow]:
        """Every alert in every state: 1 for the state it is in, and beside a trouble for the spike that is not over."""
        now = self._clock()
        with self._lock:
            seen = [(key, watch.states(now)) for key, watch in self._watches.items()]
        return [StateRow(*key, state, state in on) for key, on in seen for state in STATES]

    def state(self, name: str, *, workflow: str | None = None, model: str | None = None) -> State:
        """The state of the alert *name*; of a group that was not met, no_data."""
        with self._lock:
            watch = self._watches.get((name, workflow, model))
            return "no_data" if watch is None else watch.state(self._clock())

    def books(self) -> Mapping[str, Posted]:
        """What became of the notices, by notifier."""
        with self._lock:
            return {outbox.name: outbox.counts() for outbox in self._outboxes}

    def _start_ticking(self) -> None:
        if self._ticking:
            return
        with self._lock:
            if self._ticking or self._over.is_set():
                return
            self._ticking = True
            run = contextvars.Context().run
            thread = threading.Thread(target=run, args=(self._run, self._over), name="ragtrace-alerts", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no room for a thread, or the interpreter is shutting down
                faults.record("start of the thread that watches the alerts' clock", error)

    def _run(self, over: threading.Event) -> None:
        while not over.wait(self._tick_seconds):
            with guarded("alerts"):
                self.tick()

    # --- the end -----------------------------------------------------------------------------------------------------

    def flush(self, timeout: float) -> bool:
        """Deliver all notices within *timeout* seconds."""
        deadline = monotonic() + timeout
        done = [outbox.flush(max(0.0, deadline - monotonic())) for outbox in self._outboxes]
        return all(done)

    def close(self, timeout: float) -> bool:
        """Stop watching, and deliver what is to be told within *timeout* seconds."""
        deadline = monotonic() + timeout
        self._over.set()
        done = [outbox.close(max(0.0, deadline - monotonic())) for outbox in self._outboxes]
        return all(done)


def check(alerts: Sequence[Alert], plan: Plan) -> None:
    """Whether these *alerts* can be watched together.

    Raises:
        UnknownMetricError: nobody gives the metric of one of them on a scale from 0 to 1.
        SettingsError: two have one name.
    """
    names: set[str] = set()
    for alert in alerts:
        if alert.title in names:
            raise SettingsError(f"two alerts are called {alert.title!r}; give one of them a name=")
        names.add(alert.title)
        if plan.evaluator(alert.metric) is None:
            known = ", ".join(sorted(plan.screened | plan.judged)) or "none"
            raise UnknownMetricError(
                f"alert {alert.title!r}: neither screen nor judge gives a metric {alert.metric!r} in [0, 1]; known: "
                f"{known}. Add it to metrics=, or configure a judge that offers it"
            )


def _share(watched: _Watched, evaluation: Evaluation, decision: object) -> float | None:
    """Return what share of its place in a batch a call gets; None: it is left out."""
    if not watched.sampled:
        return 1.0
    if not isinstance(decision, SamplingDecision):
        return None
    return min(1.0, decision.least / evaluation.probability) or None


def _tick_seconds(alerts: Sequence[Alert]) -> float:
    waits = [alert.window for alert in alerts] + [alert.repeat_every for alert in alerts if alert.repeat_every]
    return min(_LONGEST_TICK_SECONDS, max(_SHORTEST_TICK_SECONDS, min(waits, default=100.0) / _TICKS))
