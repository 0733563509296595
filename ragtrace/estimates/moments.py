"""Moments: sums of weights and scores over calls, from which mean scores and their intervals are estimated."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import add, attrgetter
from time import monotonic
from typing import Final, NamedTuple, Protocol, runtime_checkable

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.tags import TagValue
from ragtrace.core.types import Evaluation, Metric, RagCall, SamplingDecision, Score
from ragtrace.system.faults import faults

NEVER_RULE: Final = "never_rule"
"""Reason of a sampling decision by a `never` rule, whose calls are in no estimate of a judge's metric."""
ALWAYS_RULE: Final = "always_rule"
"""Reason of a sampling decision by an `always` rule, whose calls are always judged and thus a separate stratum."""
_SCALE: Final = (0.0, 1.0)
"""Range of the metrics whose means are estimated."""
SLICE_SECONDS: Final = 30.0
"""Length in seconds of the time slices that sums over a time window are put together from. The docstring of
`ragtrace.estimate` names this number and the next."""
KEPT_SECONDS: Final = 3600.0
"""Longest time window in seconds that a process can estimate means over, as it keeps the slices for so long."""
MOST_SERIES: Final = 500
"""Number of keys with sums of their own; one more for each metric and evaluator holds the calls of all others."""
OTHER: Final = "other"
"""Workflow under which calls are counted once there are `MOST_SERIES` series."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums of weights and scores over the calls of one metric, from which its mean score is estimated.

    The moments of two processes, or of two periods, add up with `+`.

    A field is named for the product that it sums, with one letter for each factor: `wyf` is the sum of w y f.

    - Weight, w: 1/p for a judged call with the inclusion probability p.
    - Score, y: of the evaluator whose mean is estimated, in [0, 1].
    - Screen's score, f: of the same metric, in [0, 1]; 0 where no screen has the metric.

    The first letter says which calls a field sums over: `w` judged calls with their weights, `c` (count) judged calls
    without weights, `r` (rule) calls that were judged because of an `always` rule. `n`, `f` and `ff` are over all
    calls, judged or not.

    The sums from `c` to `www` decide how wide the interval is and how much the screen counts. Older versions did
    not record the sums from `c` on, so these may be 0.

    Plain float sums: after a billion calls their relative rounding error is below 1e-7 at worst and near 1e-12 in
    practice, against intervals whose relative width is above 1e-5; metrics backends are no more precise.
    """

    n: float = 0.0
    """Number of calls that could have been judged, whether they were judged or not. Where a screen has the metric,
    calls that the screen has not scored are left out. The workers of a fleet learn the number of calls that were not
    judged from the messages of the judged ones."""
    f: float = 0.0
    """Sum of the screen's scores over the calls that `n` counts; 0 where no screen has the metric."""
    ff: float = 0.0
    w: float = 0.0
    """Sum of the weights: an estimate of the number of calls that could have been judged."""
    wy: float = 0.0
    wf: float = 0.0
    wyy: float = 0.0
    wyf: float = 0.0
    wff: float = 0.0
    ww: float = 0.0
    wwy: float = 0.0
    wwf: float = 0.0
    wwyy: float = 0.0
    wwyf: float = 0.0
    wwff: float = 0.0
    c: float = 0.0
    """Number of judged calls, each counted once, whatever its weight."""
    cy: float = 0.0
    cf: float = 0.0
    cyy: float = 0.0
    cyf: float = 0.0
    cff: float = 0.0
    www: float = 0.0
    """Sum of the cubes of the weights."""
    r: float = 0.0
    """Number of calls that were judged because of an `always` rule and are counted in `n`. Such calls have weight 1 and
    are part of all sums above, too."""
    ry: float = 0.0
    rf: float = 0.0
    ryy: float = 0.0
    ryf: float = 0.0
    rff: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(*map(add, self.values(), other.values()))

    @classmethod
    def from_sums(cls, sums: Mapping[str, float]) -> Moments:
        """Create `Moments` from the sums that a metrics backend returned by name; a missing sum is 0.

        Raises:
            ValueError: a name is no moment.
        """
        unknown = sorted(set(sums) - set(NAMES))
        if unknown:
            raise ValueError(f"no moment is called {', '.join(unknown)}; known: {', '.join(NAMES)}")
        return cls(**sums)

    def values(self) -> tuple[float, ...]:
        """Return the values of all sums as a tuple, in the order of `NAMES`."""
        values: tuple[float, ...] = _values(self)
        return values


NAMES: Final = tuple(field.name for field in fields(Moments))
"""Names of the moments in order, which are the values of `semconv.MOMENT` in exported metrics."""
OLDEST: Final = NAMES[: NAMES.index("c")]
"""Names of the moments that every version of ragtrace has recorded."""
_values: Final = attrgetter(*NAMES)


def unjudged_moments(f: float = 0.0) -> Moments:
    """Return the `Moments` (sums) of one call that was not judged, from the screen's score of the call.

    Args:
        f: score of the call by the screen, the evaluator that scores every call.
    """
    return Moments(1.0, f, f * f)


def judged_moments(y: float, probability: float, f: float = 0.0, *, seen: float = 0.0, ruled: bool = False) -> Moments:
    """Return the `Moments` (sums) of one judged call, from the judge's score and the call's sampling probability.

    Args:
        y: the judge's score of the call, in [0, 1].
        probability: probability with which the call was chosen for the judge, in (0, 1].
        f: the screen's score of the call, in [0, 1].
        seen: 1.0 if the result also counts the call in `n`, `f` and `ff`, as `unjudged_moments` does; 0.0 if that is
            done elsewhere, or not at all. A number, because these three sums are multiplied by it.
        ruled: whether an `always` rule had the call judged (fields from `r` on); ignored unless *probability* is 1, and
            meant for calls with *seen* = 1.0.

    Raises:
        ValueError: a value is outside its range.
    """
    if not (0.0 < probability <= 1.0 and 0.0 <= y <= 1.0 and 0.0 <= f <= 1.0):
        raise ValueError(
            f"scores must be in [0, 1] and the probability in (0, 1], got judge score {y!r}, screen score {f!r}, "
            f"probability {probability!r}"
        )
    w = 1.0 / probability
    v, yy, yf, ff = w * w, y * y, y * f, f * f
    return Moments(
        seen, seen * f, seen * ff,
        w, w * y, w * f, w * yy, w * yf, w * ff,
        v, v * y, v * f, v * yy, v * yf, v * ff,
        1.0, y, f, yy, yf, ff, v * w,
        *((1.0, y, f, yy, yf, ff) if ruled and probability == 1.0 else ()),
    )  # fmt: skip


class ScoringEvaluator(Protocol):
    """Interface of an evaluator, as far as estimates need it: its id, and the metrics that it scores."""

    @property
    def id(self) -> str: ...
    @property
    def metrics(self) -> tuple[Metric, ...]: ...


class MetricAssignment(NamedTuple):
    """Assignment of each metric to the evaluator whose scores are used to estimate the metric's mean.

    The screen scores every call, the judge a sample of the calls. Only metrics with range [0, 1] are assigned.
    """

    screen: str | None = None
    """Id of the evaluator that scores every call; None: there is no screen."""
    screened: frozenset[str] = frozenset()
    """Names of the metrics that the screen scores."""
    judge: str | None = None
    """Id of the evaluator that scores a sample of the calls; None: there is no judge."""
    judged: frozenset[str] = frozenset()
    """Names of the metrics that the judge scores."""

    @classmethod
    def from_evaluators(cls, screen: ScoringEvaluator | None, judge: ScoringEvaluator | None) -> MetricAssignment:
        """Create the assignment of metrics to the two evaluators of a process: the screen and the judge.

        Args:
            screen: the evaluator that scores every call; None: there is none.
            judge: the evaluator that scores a sample of the calls; None: there is none.
        """

        def metrics(evaluator: ScoringEvaluator | None) -> frozenset[str]:
            offered = () if evaluator is None else evaluator.metrics
            return frozenset(metric.name for metric in offered if tuple(metric.range) == _SCALE)

        screen_id, judge_id = (None if evaluator is None else evaluator.id for evaluator in (screen, judge))
        return cls(screen_id, metrics(screen), judge_id, metrics(judge))

    def evaluator_of(self, metric: str) -> str | None:
        """Return the id of the evaluator whose scores are used to estimate the mean of *metric*, or None."""
        if metric in self.judged:
            return self.judge
        return self.screen if metric in self.screened else None


class SeriesKey(NamedTuple):
    """Key under which a process keeps sums of scores: metric, evaluator, workflow and model."""

    metric: str
    evaluator: str
    workflow: str
    model: str = ""
    """Name of the model that answered, which is not exported; empty: not known."""


class _SeriesSums:
    """Running sums of weights and scores for one key: since the start, and in slices of 30 seconds for the last hour.

    Sums are arrays in the order of `NAMES`.

    Attributes:
        all_but_newest: sums of all calls since the start, except those in the newest slice; also of calls whose slice
            is no longer in `slices`.
        slices: the last time slices that have calls, each with its number, counted in 30 seconds of the monotonic
            clock, and with the sums of its calls; the newest is the last.
    """

    __slots__ = ("all_but_newest", "slices")

    def __init__(self) -> None:
        self.all_but_newest = _zeros()
        self.slices: deque[tuple[int, array[float]]] = deque(maxlen=round(KEPT_SECONDS / SLICE_SECONDS) + 1)

    def add(self, moments: Moments, slice_number: int) -> None:
        """Add *moments* (sums of weights and scores) to the present time slice."""
        if not self.slices or self.slices[-1][0] != slice_number:
            self.all_but_newest = array("d", self.total())
            self.slices.append((slice_number, _zeros()))
        newest = self.slices[-1][1]
        for index, value in enumerate(moments.values()):
            newest[index] += value

    def total(self) -> Iterable[float]:
        """Return the sums since the start."""
        return map(add, self.all_but_newest, self.slices[-1][1]) if self.slices else self.all_but_newest


def _zeros() -> array[float]:
    return array("d", bytes(8 * len(NAMES)))


class RunningMoments(Part):
    """Observer of finished calls that keeps the sums of scores from which this process estimates means.

    ragtrace's background thread adds the calls, the metric reader's thread reads `totals`, and any thread may ask for a
    `sum`: a lock guards the sums. They are in memory only and end with the process: metrics backends keep what was
    exported, and `ragtrace.history` keeps the scores of single calls. A forked child begins at 0.

    A metric of the judge is estimated from the judge's scores, with the screen's score of the same metric, if there is
    one, as its f. Any other metric is estimated from the screen's scores, all of which are known (p = 1, f = 0).
    Estimates of the judge's metrics leave out the calls that match a `never` rule.

    Where a screen has the metric, n counts the calls that the screen has scored. A judged call that it could not score
    has the weight of any other, and as its f the mean f of the calls scored so far. This shifts no estimate, as f
    enters only by the difference of two means, over the scored and over the judged calls, whose expectation stays 0.

    Args:
        assignment: evaluator of each metric.
        clock: monotonic seconds.
    """

    def __init__(self, assignment: MetricAssignment | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.assignment, self._clock = assignment or MetricAssignment(), clock
        self._lock = threading.RLock()
        self._sums: dict[SeriesKey, _SeriesSums] = {}

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: SamplingDecision | None) -> None:
        """Add the scores of a finished *call* to the sums of each metric. Runs on the background thread.

        Args:
            call: the call.
            evaluations: its evaluations.
            decision: the decision whether to ask the judge. If it is None, *evaluations* tell why: with the judge's
                evaluation, another process decided; without it, no process did, and the judge's metrics do not count
                the call.
        """
        assigned, model, reason = self.assignment, call.model or "", None if decision is None else decision.reason
        by_evaluator = {evaluation.evaluator: evaluation for evaluation in evaluations}
        screen, judge = by_evaluator.get(assigned.screen or ""), by_evaluator.get(assigned.judge or "")
        for metric in assigned.screened - assigned.judged:
            y = _score(screen, metric)
            if y is not None:
                series = SeriesKey(metric, assigned.screen or "", call.workflow, model)
                self.add(series, judged_moments(y, 1.0, seen=1.0))
        if reason == NEVER_RULE or (reason is None and judge is None):
            return
        for metric in assigned.judged:
            series = SeriesKey(metric, assigned.judge or "", call.workflow, model)
            # None: the screen has the metric, but no score of this call. 0.0: no screen has the metric.
            f = _score(screen, metric) if metric in assigned.screened else 0.0
            y = _score(judge, metric)
            if judge is not None and y is not None:
                in_n, ruled = f is not None, reason == ALWAYS_RULE
                stand_in = self._mean_screen(series) if f is None else f
                self.add(series, judged_moments(y, judge.probability, stand_in, seen=float(in_n), ruled=ruled and in_n))
            elif f is not None:
                self.add(series, unjudged_moments(f))

    def add(self, series: SeriesKey, moments: Moments) -> None:
        """Add the `Moments` (sums) of one call to the sums under the key *series*, atomically for readers."""
        with self._lock:
            sums = self._sums.get(series)
            if sums is None:
                if len(self._sums) >= MOST_SERIES:
                    series = SeriesKey(series.metric, series.evaluator, OTHER)
                    faults.warn_once(
                        "too many combinations to estimate",
                        "more than %d combinations of metric, evaluator, workflow and model are estimated: calls of "
                        "further ones are counted under the workflow %r, without their model. If @trace gets a "
                        "different name in each call, give it a fixed name=",
                        MOST_SERIES,
                        OTHER,
                    )
                sums = self._sums.setdefault(series, _SeriesSums())
            sums.add(moments, self._slice_number(0.0))

    def add_unjudged(self, unjudged: Mapping[str, int]) -> None:
        """Add calls that another process has not had judged to the sums of each of the judge's metrics.

        Args:
            unjudged: number of calls by workflow.
        """
        for metric in self.assignment.judged:
            for workflow, number in unjudged.items():
                self.add(SeriesKey(metric, self.assignment.judge or "", workflow), Moments(float(number)))

    def _mean_screen(self, series: SeriesKey) -> float:
        """Return the mean of the screen's scores so far under the key *series*, or 0 if there are none."""
        with self._lock:
            sums = self._sums.get(series)
            total = Moments() if sums is None else Moments(*sums.total())
            return total.f / total.n if total.n else 0.0

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the sums: all moments, zeros too, as a query that multiplies two of them needs both."""
        about = "Sums from which rates and intervals are estimated"
        yield ObservableMetric(semconv.METRIC_MOMENT, "counter", "1", about, self._points)

    def _points(self) -> Iterator[Point]:
        for (metric, evaluator, workflow), sums in self.totals().items():
            of = {semconv.EVALUATION_NAME: metric, semconv.WORKFLOW_NAME: workflow, semconv.EVALUATOR_ID: evaluator}
            for name, value in zip(NAMES, sums.values(), strict=True):
                yield value, {**of, semconv.MOMENT: name}

    def totals(self) -> dict[tuple[str, str, str], Moments]:
        """Return the sums of scores since the start by metric, evaluator and workflow, all read at one moment.

        Runs on the thread of a metric reader, whenever metrics are exported.
        """
        with self._lock:
            read = [
                ((series.metric, series.evaluator, series.workflow), Moments(*sums.total()))
                for series, sums in self._sums.items()
            ]
        totals: dict[tuple[str, str, str], Moments] = {}
        for key, moments in read:
            totals[key] = totals[key] + moments if key in totals else moments
        return totals

    def sum(
        self, metric: str, *, workflow: str | None = None, window: float | None = None, model: str | None = None
    ) -> Moments:
        """Return the sums for *metric* over all calls of this process, or of one workflow, model or time window.

        Runs on the caller's thread (`ragtrace.estimate`).

        Args:
            metric: name of the metric.
            workflow: the workflow; None: all.
            window: seconds that the calls were scored in, up to now, rounded up to slices of 30; None: since the start.
            model: the model that answered; None: all.

        Raises:
            SettingsError: the window is not positive, or longer than what is kept.
        """
        if window is not None and not 0 < window <= KEPT_SECONDS:
            raise SettingsError(
                f"window must be more than 0 and at most {KEPT_SECONDS:g} seconds, got {window!r}; leave it out for "
                "all calls since the start, or ask your metrics backend about longer times"
            )
        total = Moments()
        with self._lock:
            first = self._slice_number(-(window or 0.0))
            for series, sums in self._sums.items():
                if series.metric == metric and workflow in (None, series.workflow) and model in (None, series.model):
                    in_window = [of_slice for number, of_slice in sums.slices if number >= first]
                    for part in in_window if window is not None else [sums.total()]:
                        total += Moments(*part)
        return total

    def _slice_number(self, offset: float) -> int:
        """Return the number of the time slice *offset* seconds from now."""
        return int((self._clock() + offset) // SLICE_SECONDS)


@runtime_checkable
class ByTag(Protocol):
    """What has sums of scores by tag."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the tags."""
        ...

    def of_tag(self, name: str, value: TagValue) -> RunningMoments | None:
        """Return the sums of the calls whose tag *name* has that *value*; None: they are not told apart from others."""
        ...


def _score(evaluation: Evaluation | None, metric: str) -> float | None:
    result = None if evaluation is None else evaluation.results.get(metric)
    # Rounding may put a score slightly outside [0, 1].
    return min(1.0, max(0.0, result.value)) if isinstance(result, Score) else None
