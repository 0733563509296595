"""Conditions on a call that decide about it without chance: the ones with a name, and the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import choose
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.system.faults import faults

Predicate: TypeAlias = "Callable[[RagCall], bool]"
Rule: TypeAlias = "str | Predicate"
ABSTAINED: Final = "abstained"
"""A condition, and the label and the reason that tell of it."""
ANSWERED: Final = "answered"
SUSPICIOUS: Final = "suspicious"
"""Metrics of the screen."""


def _error(call: RagCall, screen: Evaluation | None) -> bool:
    return call.error is not None


def _no_contexts(call: RagCall, screen: Evaluation | None) -> bool:
    return call.contexts is not None and not any(document.text.strip() for document in call.contexts)


def _contexts_missing(call: RagCall, screen: Evaluation | None) -> bool:
    return call.contexts is None


def _abstained(call: RagCall, screen: Evaluation | None) -> bool:
    results = () if screen is None else screen.results.values()
    return any(
        result.label == ABSTAINED if isinstance(result, Score) else result.reason == ABSTAINED for result in results
    )


def _abandoned(call: RagCall, screen: Evaluation | None) -> bool:
    return call.abandoned


def _truncated(call: RagCall, screen: Evaluation | None) -> bool:
    return call.cut_chars > 0


CONDITIONS: Final[Mapping[str, Callable[[RagCall, Evaluation | None], bool]]] = {
    "error": _error,
    "no_contexts": _no_contexts,
    "contexts_missing": _contexts_missing,
    ABSTAINED: _abstained,
    "abandoned": _abandoned,
    "truncated": _truncated,
}


def rules(value: object, name: str) -> tuple[Rule, ...]:
    """The rules given as *value* for the setting *name*; one alone need not be in a list.

    Raises:
        SettingsError: if one is neither the name of a condition nor a function that can answer at once.
    """
    if isinstance(value, str) or callable(value):
        value = (value,)
    if not isinstance(value, Sequence):
        raise SettingsError(f"{name} must be a list of conditions, got {value!r}; {_advice(name)}")
    return tuple(_rule(item, name) for item in cast("Sequence[object]", value))


def _rule(item: object, name: str) -> Rule:
    if isinstance(item, str):
        return choose(item, tuple(CONDITIONS), "condition", f"{name}=")
    if not callable(item):
        raise SettingsError(f"{name} got {item!r}, which is neither a condition nor a function; {_advice(name)}")
    if inspect.iscoroutinefunction(item) or inspect.isgeneratorfunction(item):
        # What such a function returns is true whatever it would have said.
        raise SettingsError(f"{name} got {item!r}, which does not return its answer; write a plain function")
    return cast("Predicate", item)


def _advice(name: str) -> str:
    example = f"{name}=['error', lambda call: call.workflow == 'checkout']"
    return f"write for instance {example}; known: {', '.join(CONDITIONS)}"


def matches(rules: Iterable[Rule], call: RagCall, screen: Evaluation | None) -> bool:
    """Whether one of *rules* holds. A function of the user that raises does not match, and is counted as a fault."""
    return any(_holds(rule, call, screen) for rule in rules)


def _holds(rule: Rule, call: RagCall, screen: Evaluation | None) -> bool:
    if isinstance(rule, str):
        return CONDITIONS[rule](call, screen)
    try:
        return bool(rule(call))
    except Exception as error:
        faults.record("a sampling rule", error)
        return False


def is_suspicious(screen: Evaluation | None) -> bool:
    """Return whether the screen finds the call suspicious; not where it says nothing, as before there is a baseline."""
    result = None if screen is None else screen.results.get(SUSPICIOUS)
    return isinstance(result, Score) and result.value > 0
