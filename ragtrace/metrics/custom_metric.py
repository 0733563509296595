"""`ragtrace.metric`: decorator that makes a metric out of a user's function."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import update_wrapper
from typing import Final, Protocol, SupportsFloat, TypeAlias, cast, overload

from ragtrace.core.errors import SettingsError
from ragtrace.core.text import OwnText
from ragtrace.core.types import Judgement, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import Formula
from ragtrace.metrics.registry import registry

Outcome: TypeAlias = "SupportsFloat | Score | Unscored"
"""Return value of a user's metric: a number, a boolean, a `Score` with details, or an `Unscored` with its reason."""


class _OfCall(Protocol):
    def __call__(self, call: RagCall, /) -> Outcome: ...


class _OfLabels(Protocol):
    def __call__(self, call: RagCall, judgement: Judgement, /) -> Outcome: ...


CustomMetric: TypeAlias = "_OfCall | _OfLabels"
_LABELS: Final = frozenset(field.name for field in fields(Judgement))
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@overload
def metric(function: CustomMetric, /) -> Formula: ...


@overload
def metric(
    *,
    needs: Iterable[str] = ...,
    name: str | None = ...,
    version: str = ...,
    higher_is_better: bool = ...,
    range: tuple[float, float] = ...,
    threshold: float | None = ...,
    register: bool = ...,
) -> Callable[[CustomMetric], Formula]: ...


def metric(
    function: CustomMetric | None = None,
    /,
    *,
    needs: Iterable[str] = (),
    name: str | None = None,
    version: str = "1",
    higher_is_better: bool = True,
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002 - it is the name that a Metric has for it
    threshold: float | None = None,
    register: bool = True,
) -> Formula | Callable[[CustomMetric], Formula]:
    """Decorator that turns a user's function into a metric.

    The function takes a RAG call, or a call and a judge's labels.

    The function returns a number, True or False (1 and 0), a `Score`, or an `Unscored` with the reason why there is no
    number. It runs in a thread of ours after the call, never in the application's. What it raises, a number that is not
    finite or outside of *range*, and anything else it returns leave this metric unscored; nothing is put in its place.
    Without *needs* it is computed for every call, if it is wanted; with them, where the screen or the judge offers it.

    Examples:
        >>> @ragtrace.metric
        ... def cites_a_source(call):
        ...     return "[1]" in (call.answer or "")
        >>> @ragtrace.metric(needs=("claims",), higher_is_better=False, threshold=0.0)
        ... def contradictions(call, judgement):
        ...     return any(claim.support == "contradicted" for claim in judgement.claims or ())
        >>> ragtrace.score(answer="In Paris [1].", metrics=["cites_a_source"])["cites_a_source"]
        Score(1, metric='cites_a_source')

    Args:
        function: the function that is decorated; left out where the decorator has arguments.
        needs: names of the `Judgement` fields it reads; with none, the function takes only the call.
        name: under which it is wanted and exported; default: the function's.
        version: change it whenever the number's meaning changes.
        higher_is_better: the direction.
        range: lowest and highest value; `math.inf` where there is none.
        threshold: a value strictly on the wrong side is labelled `fail`, any other `pass`.
        register: make it known by name to `configure(metrics=[...])`. A function of the same module and name takes the
            place of the one before, as when a notebook's cell is run again.

    Raises:
        SettingsError: an argument is wrong, or the function is one that ragtrace cannot call.
        ValueError: another metric has that name.
    """

    labels = frozenset([needs] if isinstance(needs, str) else needs)
    if unknown := ", ".join(sorted(labels - _LABELS)):
        raise SettingsError(f"needs= names {unknown}, which no judge gives; labels: {', '.join(sorted(_LABELS))}")
    if len(range) != 2 or not range[0] < range[1]:
        raise SettingsError(
            f"range= must be the lowest and the highest value, got {range!r}; write for instance (0, 1)"
        )
    bounds = float(range[0]), float(range[1])

    def make(function: CustomMetric) -> Formula:
        found = getattr(function, "__name__", "") if name is None else name
        if not _NAME.fullmatch(found):
            raise SettingsError(
                f"a metric's name must be letters, digits, '_', '.' and '-', got {found!r}; write e.g. name='my_metric'"
            )
        compute = _compute(function, labels)
        made = Formula(found, version, compute, labels, higher_is_better, bounds, threshold, computes=False)
        if register:
            # A function of the same module and name is the same metric, redefined.
            before = registry.find(found)
            again = isinstance(before, Formula) and _origin(before) == _origin(made) != ("", "")
            registry.add(made, replace=again)
        return made

    return make if function is None else make(function)


def _compute(function: CustomMetric, needs: frozenset[str]) -> Callable[[RagCall, Judgement], Result]:
    """Return a function that computes a metric by calling the user's *function*.

    It has the docstring of *function*, and *function* as `__wrapped__`.
    """
    if inspect.iscoroutinefunction(function):
        raise SettingsError(
            "a metric must be a plain function, got a coroutine function; write def instead of async def (metrics run "
            "in their own threads and may block)"
        )
    reads_labels = _parameters(function) == 2
    if reads_labels and not needs:
        raise SettingsError(
            "the metric function takes a judgement, but needs= is empty; name the labels that it reads, for instance "
            "needs=('claims',)"
        )

    def compute(call: RagCall, judgement: Judgement) -> Result:
        if reads_labels:
            return _result(cast("_OfLabels", function)(call, judgement))
        return _result(cast("_OfCall", function)(call))

    return update_wrapper(compute, cast("Callable[..., Outcome]", function))


def _parameters(function: CustomMetric) -> int:
    """Return how many arguments *function* takes: 1 (a call) or 2 (a call and a judgement)."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in callables have no signature
        return 1
    for count in (2, 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise SettingsError(f"a metric takes a call, or a call and a judgement, got a function {signature}")


def _origin(made: Formula) -> tuple[str, str]:
    function: object = getattr(made.compute, "__wrapped__", None)
    return str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", ""))


def _result(outcome: object) -> Result:
    """Convert *outcome*, the value that a user's metric function returned, to a `Score` or an `Unscored`."""
    if isinstance(outcome, (Score, Unscored)):
        return outcome
    if isinstance(outcome, str) or not isinstance(outcome, SupportsFloat):
        seen = f"it returned {type(outcome).__name__}, not a number, a Score or an Unscored"
        return Unscored("metric_error", explanation=OwnText(seen))
    value = float(outcome)
    if not math.isfinite(value):
        return Unscored("non_finite", explanation=OwnText(f"it returned {value!r}"))
    return Score(value)
