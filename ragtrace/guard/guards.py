"""Guarded functions of the application, and what the runtime keeps of each: evaluator, circuit breaker and counts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakSet

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.types import Evaluation, RagCall
from ragtrace.estimates.calibration import STALE, Calibrations
from ragtrace.estimates.false_blocks import NO_LABELS
from ragtrace.evaluation.scoring import Evaluator, Evaluators
from ragtrace.guard.circuit import GuardCircuit
from ragtrace.guard.decision import check_of
from ragtrace.guard.outcomes import Action, Check, GuardCounts, Verdict
from ragtrace.guard.settings import Guard
from ragtrace.system.faults import faults
from ragtrace.system.forks import PerProcess

if TYPE_CHECKING:
    from ragtrace.pipeline.parts import Parts


class GuardedFunction:
    """Function of the application that has a guard.

    Args:
        guard: the guard.
        workflow: name under which the function's calls are scored.
    """

    def __init__(self, guard: Guard, workflow: str) -> None:
        self.guard, self.workflow = guard, workflow


class Guarding(Protocol):
    """Object that a guarded function alone keeps alive, and no call of the function does."""

    function: GuardedFunction


ACTING: Final = ("replace", "retry", "raise")
"""Actions of guards that change what the caller gets."""
_guarding: WeakSet[Guarding] = WeakSet()
"""Objects of all guarded functions that exist: most are decorated before `configure`, which checks their guards."""


def register(guarding: Guarding) -> None:
    """Have every `configure` check the guard of a function, as long as the function exists."""
    _guarding.add(guarding)


def guarded_functions() -> list[GuardedFunction]:
    """Return all guarded functions of the application, by workflow."""
    return sorted((each.function for each in _guarding), key=lambda each: each.workflow)


def guarded_metrics() -> list[str]:
    """Return the names of the metrics that the guards of the application read."""
    return sorted({function.guard.metric for function in guarded_functions()})


def check_guards(evaluators: Evaluators, *, fleet: bool) -> None:
    """Check that every guard of the application can work with the configured evaluators.

    Raises:
        SettingsError: a guard's metric or judge is not configured, or a fleet judges the calls.
    """
    _for_all(partial(find_evaluator, evaluators=evaluators, fleet=fleet))


def _for_all(check: Callable[[GuardedFunction], object]) -> None:
    """Call *check* for all guarded functions, and once more without those that are garbage where it raises.

    A discarded application, of an earlier test for instance, may refer to itself, and be there until it is collected.
    """
    for is_last in (False, True):
        try:
            for function in guarded_functions():
                check(function)
        except SettingsError:
            if is_last:
                raise
        else:
            return
        gc.collect()


def find_evaluator(function: GuardedFunction, evaluators: Evaluators, *, fleet: bool) -> Evaluator:
    """Return the evaluator whose score the guard of *function* reads.

    Raises:
        SettingsError: no evaluator computes the metric, the guard's judge is not configured, or a fleet judges.
    """
    guard = function.guard
    named = f"the guard of {function.workflow!r}, {guard!r},"
    if fleet:
        raise SettingsError(
            f"{named} cannot work with fleet=, whose workers judge calls after their answers have left; configure a "
            "judge in this process, or leave the guard out"
        )
    configured = [evaluator for evaluator in (evaluators.judge, evaluators.screen, evaluators.measure) if evaluator]
    if guard.judge is not None:
        configured = [evaluator for evaluator in configured if evaluator.id == guard.judge.id]
        if not configured:
            raise SettingsError(
                f"{named} asks the judge {guard.judge.id!r}, which is neither the screen= nor the judge= of configure; "
                "give the same judge to both, so that no call is judged twice"
            )
    for evaluator in configured:
        if any(metric.name == guard.metric for metric in evaluator.metrics):
            return evaluator
    offered = sorted({metric.name for evaluator in configured for metric in evaluator.metrics})
    raise SettingsError(
        f"{named} reads a metric that no configured judge computes; add it to metrics=, configure a judge that offers "
        f"it, or guard another metric. Computed now: {', '.join(offered) or 'none'}"
    )


class LabelledBound(NamedTuple):
    """Bound of a guard with `max_false_block`, which was found in human labels and is not yet in force."""

    guard: Guard
    badness: float
    """Threshold from 0 (good) to 1 (bad) above which an answer fails."""
    higher_is_better: bool

    def apply(self) -> None:
        """Put the bound in force."""
        self.guard.set_bound(self.badness, higher_is_better=self.higher_is_better)


def find_bounds(calibrations: Calibrations) -> list[LabelledBound]:
    """Find the bounds of the guards with `max_false_block` in human labels, and warn of guards that act without any.

    Raises:
        SettingsError: the labels do not allow the limit of a guard.
    """
    found: dict[int, LabelledBound] = {}

    def find(function: GuardedFunction) -> None:
        if (bound := find_bound(function, calibrations)) is not None:
            found[id(bound.guard)] = bound

    _for_all(find)
    return list(found.values())


def find_bound(function: GuardedFunction, calibrations: Calibrations) -> LabelledBound | None:
    """Find the bound of the guard of *function* in human labels; None: it has a bound of its own.

    A guard that acts without any labels is warned of.

    Raises:
        SettingsError: the labels do not allow the limit of the guard.
    """
    guard, limit = function.guard, function.guard.max_false_block
    entry, stale = calibrations.find(guard.metric) or (None, "")
    blocks = None if entry is None or stale else entry.blocks
    if limit is None:
        if guard.action in ACTING and (blocks is None or not blocks.good):
            faults.log_once(
                f"guard without labels: {function.workflow} {guard!r}",
                "the guard of %r, %r, acts on answers, and no labels say how many good answers it blocks. Let it run "
                "with action='shadow', label calls (ragtrace calibrate pick, ragtrace review), and see `ragtrace "
                "calibrate guard`; configure(calibration=) with the file of `ragtrace calibrate fit --out` ends this "
                "warning",
                function.workflow,
                guard,
            )
        return None
    found = None if blocks is None else blocks.threshold(limit)
    if entry is None or blocks is None or found is None:
        missing = (blocks or NO_LABELS).missing(limit)
        why = f"its calibration is stale ({stale})" if stale else f"{missing:,} labels of good answers are missing"
        raise SettingsError(
            f"the guard of {function.workflow!r}, {guard!r}, takes its bound from labels, and {why}; use below= or "
            "above= with action='shadow', label calls (ragtrace calibrate pick, ragtrace review), write the file with "
            "`ragtrace calibrate fit --out`, and give it to configure(calibration=)"
        )
    return LabelledBound(guard, found, entry.higher_is_better)


class Guards(Part):
    """Guards of one runtime: their evaluators and circuit breakers, and the counts of all answers that they have seen.

    Args:
        evaluators: the evaluators of the process.
        calibrations: calibrations from which bounds were taken.
        record_added: takes the seconds that a guard held an answer back, with workflow, metric and action.
        counts: counts of this process. A call that began before a fork ends in the child with its parent's guards, and
            counts there all the same.
    """

    def __init__(
        self,
        evaluators: Evaluators,
        calibrations: Calibrations,
        record_added: Callable[[float, str, str, str], None],
        counts: PerProcess[GuardCounts] | None = None,
    ) -> None:
        self._evaluators, self._calibrations, self._record_added = evaluators, calibrations, record_added
        self._counts = PerProcess(GuardCounts) if counts is None else counts
        self._circuits: dict[str, GuardCircuit] = {}

    def evaluator_of(self, function: GuardedFunction) -> Evaluator:
        """Return the evaluator whose score the guard of *function* reads.

        Raises:
            SettingsError: there is none, as the function was decorated for another configuration.
        """
        return find_evaluator(function, self._evaluators, fleet=False)

    def evaluator_id_of(self, function: GuardedFunction) -> str:
        """Return the id of the evaluator whose score the guard of *function* reads, or an empty text."""
        try:
            return self.evaluator_of(function).id
        except SettingsError:
            return ""

    def circuit_of(self, evaluator: Evaluator) -> GuardCircuit:
        """Return the circuit breaker of all guards that read scores of *evaluator*."""
        found = self._circuits.get(evaluator.id)
        # The worker's thread alone changes a breaker; `setdefault` is atomic.
        return found or self._circuits.setdefault(evaluator.id, GuardCircuit())

    def check(self, function: GuardedFunction, call: RagCall, evaluation: Evaluation) -> Check:
        """Return the verdict on the answer of *call*: unscored where the labels behind the bound do not hold any more.

        The calibration is asked each time, as a server may have another model answer from one call to the next.
        """
        self._calibrations.note_served(evaluation)
        if said := self.stale(function):
            faults.log_once(said, "%s", said)
            return Check("unscored", reason=STALE)
        return check_of(function.guard, call, evaluation)

    def stale(self, function: GuardedFunction) -> str:
        """Return a sentence about why the labels behind a guard's bound do not hold any more, or "" if they do."""
        guard = function.guard
        if guard.max_false_block is None:
            return ""
        found = self._calibrations.find(guard.metric)
        if found is not None and not found[1]:
            return ""
        why = "is missing" if found is None else f"is stale ({found[1]})"
        return (
            f"the guard of {function.workflow!r}, {guard!r}, takes its bound from labels, and the calibration of "
            f"{guard.metric} {why}: its answers are unscored, and on_error={guard.on_error!r} decides about them. "
            "Label calls of the new judge or have it score the labelled ones (ragtrace calibrate bridge), and "
            "configure with the new file of `ragtrace calibrate fit --out`"
        )

    def count(self, function: GuardedFunction, verdict: Verdict, action: Action, added_s: float | None) -> None:
        """Count one answer, and record for how many seconds the guard held it back; None: it did not, by no fault."""
        guard = function.guard
        self._counts.get().add(function.workflow, guard.metric, guard.action, verdict, action, added_s)
        if added_s is not None:
            self._record_added(added_s, function.workflow, guard.metric, guard.action)

    def stats(self) -> Mapping[str, Mapping[str, object]]:
        """Return the counts of all answers so far, by workflow."""
        return {"guards": self._counts.get().tallies()}

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the answers that guards have seen."""
        about = "Answers that a guard has seen, by verdict and action"
        yield ObservableMetric(semconv.METRIC_GUARD_RESULTS, "counter", "{call}", about, self._points)

    def _points(self) -> Iterator[Point]:
        for row in self._counts.get().rows():
            of = {semconv.WORKFLOW_NAME: row.workflow, semconv.EVALUATION_NAME: row.metric}
            done = {semconv.GUARD_VERDICT: row.verdict, semconv.GUARD_ACTION: row.action}
            yield row.calls, {**of, semconv.GUARD_MODE: row.mode, **done}


class HasParts(Protocol):
    """Runtime with parts."""

    @property
    def parts(self) -> Parts: ...


def guards_of(runtime: HasParts) -> Guards:
    """Return the guards of *runtime*."""
    return runtime.parts.get(Guards)
