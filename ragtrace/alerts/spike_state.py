"""One alert over one group of calls: its state, and what there is to tell of it."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ragtrace.alerts.alert import Alert
from ragtrace.alerts.detector import HEAD_START, Detector
from ragtrace.alerts.notice import Example, Notice, Problem
from ragtrace.alerts.state import Rate, State, Supply
from ragtrace.estimates import Distribution, Estimate, Moments, from_moments, of_judged

_KEPT_CALLS: Final = 500
_KEPT_EXAMPLES: Final = 50
_SHOWN_EXAMPLES: Final = 3
_FEWEST_BEFORE: Final = 20
"""Scored calls before a spike that say what the level was."""
_BASELINE_Z: Final = 0.25
"""Standard errors between a baseline's mean and the bound made of it.

Half of all baselines of 500 calls lie on the wrong side of the truth. With no margin every second alert would be false
sooner or later; with a large one a real change takes long to tell. With a quarter, a mean of 10,000 calls between false
alarms, cut off at 30,000, holds with reserve on simulated scores of several shapes; none of them was a labelled set.
"""

_EDGE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Place:
    """Whose calls are watched, and by whose scores."""

    service: str = ""
    workflow: str | None = None
    model: str | None = None
    evaluator: str = ""
    judged: bool = False
    """Whether the evaluator is the judge."""
    host: str = ""
    release: str = ""
    """`service.version`."""


class Now(NamedTuple):
    """A moment: seconds of the monotonic clock, and since the epoch."""

    monotonic: float
    epoch: float


class _Scored(NamedTuple):
    score: float
    probability: float
    at: float


@dataclass(slots=True)
class _Open:
    """A problem that is going on."""

    since: float
    first: int
    """Number of the scored call that it began with."""
    told_at: float
    before: float | None = None
    """Mean score before it; None: not known."""
    times: int = 0


class Watch:
    """For one thread at a time.

    Args:
        alert: what is watched.
        place: whose calls.
    """

    def __init__(self, alert: Alert, place: Place) -> None:
        self._alert, self._place = alert, place
        self.rate: Rate | None = None
        """None: there is no bound yet, as there is no baseline."""
        self._baseline: Distribution | None = None
        self.supply = Supply(alert.window)
        self._count = 0
        self._recent: deque[_Scored] = deque(maxlen=_KEPT_CALLS)
        self._bad: deque[tuple[int, Example]] = deque(maxlen=_KEPT_EXAMPLES)
        self._open: dict[Problem, _Open] = {}
        self._told = 0
        if not isinstance(alert.bound, str):
            self._watch_for(alert.bound)

    @property
    def place(self) -> Place:
        """Whose calls are watched."""
        return self._place

    def compare_with(self, baseline: Distribution) -> None:
        """Begin to watch the mean against that of *baseline*."""
        self._baseline = baseline
        self._watch_for(bound_of(baseline, self._alert.direction))

    def _watch_for(self, bound: float) -> None:
        alert, self.bound = self._alert, bound
        limit = bound if alert.direction == "above" else 1.0 - bound
        recovery = alert.calls_to_recover(limit)
        head_start = 0.0 if alert.against_baseline else HEAD_START
        detector = Detector(limit, alert.mean_calls_between_false_alarms, alert.calls_in_batch, head_start)
        self.rate = Rate(detector, min_calls=alert.min_calls, recovery=recovery)
        self._recovery = recovery
        self._recent = deque(self._recent, maxlen=max(_KEPT_CALLS, recovery))

    def is_bad(self, score: float) -> bool:
        """Whether *score* is beyond the bound: worth an example."""
        return self.rate is not None and self._alert.badness(score) > self.rate.detector.bound

    def scored(
        self,
        score: float,
        probability: float,
        share: float,
        now: Now,
        example: Example | None,
        question: str | None = None,
    ) -> None:
        """A call got a score; *example* if it is a bad one."""
        self._count += 1
        self.supply.scored(now.monotonic)
        self._recent.append(_Scored(min(1.0, max(0.0, score)), probability, now.epoch))
        if example is not None:
            self._bad.append((self._count, example))
        if self.rate is not None:
            self.rate.add(self._alert.badness(score), probability, share, question)

    @property
    def _condition(self) -> State:
        return "no_baseline" if self.rate is None else self.rate.condition

    def state(self, monotonic: float) -> State:
        """What is known at that moment: trouble hides the condition, which goes on."""
        return self.supply.trouble(monotonic) or self._condition

    def states(self, monotonic: float) -> frozenset[State]:
        """The state; and beside a trouble the spike that is not over."""
        condition, known = self._condition, self.state(monotonic)
        return frozenset[State]([known]) if condition == "ok" else frozenset[State]([known, condition])

    # --- what there is to tell ---------------------------------------------------------------------------------------

    def news(self, now: Now, trace: str = "") -> list[Notice]:
        """What has to be told now: problems that are over, new ones, and those that go on for so long.

        Args:
            trace: id of the call that was just looked at.
        """
        problems = self._problems(now)
        return [*self._over(problems, now, trace), *self._begun(problems, now, trace), *self._still(now)]

    def _problems(self, now: Now) -> list[Problem]:
        problems: list[Problem] = ["spiking"] if self._condition in ("spiking", "recovering") else []
        trouble = self.supply.trouble(now.monotonic)
        if trouble is None or (trouble == "no_data" and not self.supply.overdue(now.monotonic)):
            return problems  # a process that has just started misses nothing
        return [*problems, trouble]

    def _over(self, problems: Sequence[Problem], now: Now, trace: str) -> Iterator[Notice]:
        gone: list[Problem] = [problem for problem in self._open if problem not in problems]
        for problem in gone:
            opened = self._open.pop(problem)
            count = self._recovery if problem == "spiking" else 0
            yield self._notice(problem, opened, now, count, resolved=True, trace=trace)

    def _begun(self, problems: Sequence[Problem], now: Now, trace: str) -> Iterator[Notice]:
        for problem in problems:
            if problem in self._open:
                continue
            spike = self.rate if problem == "spiking" else None
            calls = 0 if spike is None else min(spike.detector.stretch, len(self._recent))
            since = self._recent[-max(1, calls)].at if self._recent else now.epoch
            before = self._level_before(calls) if calls else None
            opened = self._open[problem] = _Open(since, self._count - calls + 1, now.monotonic, before)
            yield self._notice(problem, opened, now, calls, trace=trace)

    def _still(self, now: Now) -> Iterator[Notice]:
        every = self._alert.repeat_every
        for problem, opened in self._open.items():
            if every is not None and now.monotonic - opened.told_at >= every:
                opened.told_at, opened.times = now.monotonic, opened.times + 1
                calls = self._count - opened.first + 1 if problem == "spiking" else 0
                yield self._notice(problem, opened, now, calls)

    def _notice(
        self, problem: Problem, opened: _Open, now: Now, calls: int, *, resolved: bool = False, trace: str = ""
    ) -> Notice:
        alert, place = self._alert, self._place
        key = _digest(place.service, alert.title, place.workflow or "", place.model or "", problem)
        self._told += 1
        last = list(self._recent)[-calls:] if calls else []
        return Notice(
            id=_digest(key, repr(now.epoch), str(self._told)),
            key=key,
            alert=alert.title,
            metric=alert.metric,
            direction=alert.direction,
            bound=self.bound if self.rate is not None else 0.0,
            problem=problem,
            status="resolved" if resolved else "firing",
            at=now.epoch,
            since=opened.since,
            mean_calls_between_false_alarms=alert.mean_calls_between_false_alarms,
            batch=alert.calls_in_batch,
            repeat=opened.times,
            calls=len(last),
            estimate=self._estimate(last) if last else None,
            workflow=place.workflow,
            model=place.model,
            evaluator=place.evaluator,
            service=place.service,
            trace_id=trace,
            judged=place.judged,
            host=place.host,
            release=place.release,
            before=opened.before,
            baseline=self._baseline,
            worst=() if resolved or problem != "spiking" else self._worst(opened.first),
        )

    def _level_before(self, calls: int) -> float | None:
        """Return the mean score before the last *calls*: that of the baseline, or of the calls that are remembered."""
        if self._baseline is not None:
            return self._baseline.mean
        earlier = list(self._recent)[:-calls]
        return self._estimate(earlier).value if len(earlier) >= _FEWEST_BEFORE else None

    def _estimate(self, scored: Sequence[_Scored]) -> Estimate:
        total = Moments()
        for each in scored:
            total += of_judged(each.score, each.probability, seen=1.0)
        place = self._place
        return from_moments(
            total, method="weighted", metric=self._alert.metric, workflow=place.workflow, evaluator=place.evaluator
        )

    def _worst(self, first: int) -> tuple[Example, ...]:
        """Those since the problem began, worst first; of equally bad ones the newest first."""
        found = [example for number, example in self._bad if number >= first]
        found.reverse()
        found.sort(key=lambda example: -self._alert.badness(example.score))
        return tuple(found[:_SHOWN_EXAMPLES])


def bound_of(baseline: Distribution, direction: Literal["above", "below"]) -> float:
    """Return the mean score, in (0, 1), beyond which an alert against *baseline* has a reason.

    It is a confidence limit of the baseline's mean, and at least what the mean would be with one more call that is as
    bad as can be: a baseline without any bad call does not say that there never is one.
    """
    n, worst = baseline.effective_n, 1.0 if direction == "above" else 0.0
    one_more = (n * baseline.mean + worst) / (n + 1.0)
    limit = baseline.mean_bound(_BASELINE_Z, "upper" if direction == "above" else "lower")
    found = max(limit, one_more) if direction == "above" else min(limit, one_more)
    return min(1.0 - _EDGE, max(_EDGE, found))


def _digest(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()
