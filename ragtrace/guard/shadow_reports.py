"""Warnings of guards that act on answers without having been in shadow mode before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ragtrace.evaluation.scoring import Evaluators
from ragtrace.guard.guards import ACTING, GuardedFunction, find_evaluator, guarded_functions
from ragtrace.history.shadows import has_shadow_verdicts
from ragtrace.system.faults import faults

MESSAGE: Final = (
    "the guard of %r, %r, acts on answers, and the history %r has no verdict of it in shadow mode with the judge %r, "
    "so that nothing says how many answers it stops and how long they wait; let it run with action='shadow' first"
)
"""Text of the warning, for workflow, guard, history file and evaluator."""


def warn_without_shadow_report(function: GuardedFunction, evaluators: Evaluators, history: str) -> None:
    """Warn if the guard of *function* acts on answers, and *history* does not say what it did in shadow mode."""
    found = _without_shadow_report(function, evaluators, history)
    if found is not None:
        faults.log_once(f"guard without a shadow report: {function.workflow} {function.guard!r}", MESSAGE, *found)


def warn_of_missing_shadow_reports(evaluators: Evaluators, history: str) -> None:
    """Warn of every guard of the application that acts on answers, and was not in shadow mode before."""
    for function in guarded_functions():
        warn_without_shadow_report(function, evaluators, history)


def missing_shadow_reports(evaluators: Evaluators, history: str) -> Iterator[str]:
    """Yield the warning of every guard of the application that acts, and was not in shadow mode before."""
    for function in guarded_functions():
        found = _without_shadow_report(function, evaluators, history)
        if found is not None:
            yield MESSAGE % found


def _without_shadow_report(
    function: GuardedFunction, evaluators: Evaluators, history: str
) -> tuple[str, object, str, str] | None:
    """Return what the warning names, or None if none is due. A history that cannot be read is no reason to warn."""
    guard = function.guard
    if not history or guard.action not in ACTING:
        return None
    try:
        evaluator = find_evaluator(function, evaluators, fleet=False).identity
        if has_shadow_verdicts(history, function.workflow, guard.metric, evaluator):
            return None
    except Exception as error:  # of a damaged file, or a function of an application that is gone
        faults.record("shadow report of a guard", error)
        return None
    return function.workflow, guard, history, evaluator
