"""Sampling settings: rates, rules and budgets, and the conditions that rules name."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import amount, choose, flag, rate, replicas
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.system.faults import faults, say

Predicate: TypeAlias = "Callable[[RagCall], bool]"
Rule: TypeAlias = "str | Predicate"
ABSTAINED: Final = "abstained"
"""Name of a condition, and of the label and the reason of an abstention."""
ANSWERED: Final = "answered"
"""Metric of the screen that gives the label `abstained`."""
SUSPICIOUS: Final = "suspicious"
"""Metric of the screen that marks suspicious calls."""


def _abstained(call: RagCall, screen: Evaluation | None) -> bool:
    results = () if screen is None else screen.results.values()
    return any((result.label if isinstance(result, Score) else result.reason) == ABSTAINED for result in results)


CONDITIONS: Final[Mapping[str, Callable[[RagCall, Evaluation | None], bool]]] = {
    "error": lambda call, screen: call.error is not None,
    "no_contexts": lambda call, screen: call.contexts is not None and not any(d.text.strip() for d in call.contexts),
    "contexts_missing": lambda call, screen: call.contexts is None,
    ABSTAINED: _abstained,
    "abandoned": lambda call, screen: call.abandoned,
    "truncated": lambda call, screen: call.cut_chars > 0,
}
"""Conditions that a rule can name."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of the calls that a judge scores: rates, rules and budgets.

    Every call has a probability with which the judge sees it, known before the judge is asked and stored with its
    scores, so that 1 / probability calls stand behind each score and weighted means are unbiased. Two rates (ordinary
    and suspicious) rather than a curve: all calls of a kind weigh the same.

    A rule that matches decides: `never` gives probability 0 and goes before `always`, which gives 1. A rule is the
    name of a condition or a function of the `RagCall` (run in the background; one that raises does not match):
    `error` (it failed after some answer), `no_contexts` (retrieval found nothing), `contexts_missing` (none was seen),
    `abstained` (as the screen reads it; never without a screen), `abandoned`, `truncated` (redaction cut its texts).

    A budget holds in the mean of the random draws. It lowers all probabilities by one factor, which falls as traffic
    outruns the budget and never reaches 0, rather than dropping calls or stopping. How far spending may run ahead
    goes by its slack s: 5 seconds' worth of `per_minute`, 5 minutes' worth of `usd_per_day`, but at least 2 calls. In
    full: over any time it is at most the budget of that time and s * (1 + ln(1 + 1.3 d / s)), where d is what the rates
    alone would have asked for since the process started; the 1 falls away for the time since the start. What a quiet
    time leaves over is kept up to s, not longer. Calls of an `always` rule keep 1 until they alone take more than nine
    tenths of the budget; 4 s are kept for them, and the bound grows by s * (4 + ln(1 + 1.3 d / s)), d being their own.

    Args:
        rate: probability for an ordinary call, in [0, 1].
        suspicious_rate: probability for a call that the screen's metric `suspicious` marks: one whose consistency is
            among the lowest 5 % of the workflow's own baseline (the screen then computes that, whatever other metrics
            are wanted). All others are ordinary: also one that the screen could not score, and every call until there
            is a baseline. None: the same as `rate`.
        per_minute: judge calls a minute, over all replicas; None: no limit.
        usd_per_day: what the judge may cost in 24 hours, in US dollars, over all replicas; None: no limit. Counted
            with the mean cost of recent judgements; before the first, $0.05 each.
        replicas: how many processes share the budgets equally (forked workers count); None: `RAGTRACE_REPLICAS`, or 1.
        always: rules for calls that the judge must see.
        never: rules for calls that it must not see.
        score_head_dropped: whether calls whose trace a head sampler dropped are scored all the same, by screen and
            judge: their scores go out as events and metrics, though there is no span to look at. Then content is
            captured for them too, which costs what it costs for any other call.

    Raises:
        SettingsError: if a value is wrong, or the suspicious rate below the ordinary one.
    """

    rate: float = 0.05
    suspicious_rate: float | None = None
    per_minute: float | None = None
    usd_per_day: float | None = None
    replicas: int | None = None
    always: Sequence[Rule] = ()
    never: Sequence[Rule] = ()
    score_head_dropped: bool = False

    def __post_init__(self) -> None:
        self._set("rate", rate(self.rate, "rate"))
        for name in ("per_minute", "usd_per_day"):
            self._set(name, None if getattr(self, name) is None else amount(getattr(self, name), name))
        self._set("replicas", replicas(self.replicas, os.environ))
        self._set("score_head_dropped", flag(self.score_head_dropped, "score_head_dropped"))
        self._set("always", _rules(self.always, "always"))
        self._set("never", _rules(self.never, "never"))
        if self.suspicious_rate is not None:
            self._set("suspicious_rate", rate(self.suspicious_rate, "suspicious_rate"))
            if self.suspicious_rate < self.rate:
                raise SettingsError(
                    f"suspicious_rate must be at least rate, got {self.suspicious_rate!r} and {self.rate!r}; "
                    "leave suspicious_rate out to judge all calls alike"
                )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def probability(self, *, suspicious: bool) -> float:
        """Return the inclusion probability of a call, suspicious to the screen or not, before rules and budgets."""
        return self.suspicious_rate if suspicious and self.suspicious_rate is not None else self.rate


def sampling_metrics(sampling: Sampling) -> tuple[str, ...]:
    """Return the names of the screen's metrics that *sampling* reads."""
    suspicion = (SUSPICIOUS,) if sampling.suspicious_rate is not None else ()
    return suspicion + ((ANSWERED,) if ABSTAINED in (*sampling.always, *sampling.never) else ())


def warn_of_missing_metrics(wanted: Sequence[str], screened: Collection[str]) -> None:
    """Log which of the metrics *wanted* by sampling are not among those *screened*, so that a setting has no effect."""
    for name in wanted:
        if name not in screened:
            say(
                logging.WARNING,
                "%s has no effect on sampling: it looks at the screen's metric %r, and no screen gives that; write for "
                "instance screen=ragtrace.EmbeddedJudge()",
                "suspicious_rate=" if name == SUSPICIOUS else f"the rule {ABSTAINED!r}",
                name,
            )


def _rules(value: object, name: str) -> tuple[Rule, ...]:
    """Return the rules given as *value* for the setting *name*; a single rule need not be in a list.

    Raises:
        SettingsError: a rule is neither the name of a condition nor a plain function.
    """
    example = f"{name}=['error', lambda call: call.workflow == 'checkout']"
    advice = f"write for instance {example}; known: {', '.join(CONDITIONS)}"
    if isinstance(value, str) or callable(value):
        value = (value,)
    if not isinstance(value, Sequence):
        raise SettingsError(f"{name} must be a list of conditions, got {value!r}; {advice}")
    found: list[Rule] = []
    for item in cast("Sequence[object]", value):
        if isinstance(item, str):
            found.append(choose(item, tuple(CONDITIONS), "condition", f"{name}="))
        elif not callable(item):
            raise SettingsError(f"{name} got {item!r}, which is neither a condition nor a function; {advice}")
        elif inspect.iscoroutinefunction(item) or inspect.isgeneratorfunction(item):
            # A coroutine or generator counts as true, whatever its result would be.
            raise SettingsError(f"{name} got {item!r}, which does not return its answer; write a plain function")
        else:
            found.append(cast("Predicate", item))
    return tuple(found)


def matches(rules: Iterable[Rule], call: RagCall, screen: Evaluation | None) -> bool:
    """Return whether one of *rules* holds. A user's function that raises does not match, and counts as a fault."""
    return any(_holds(rule, call, screen) for rule in rules)


def _holds(rule: Rule, call: RagCall, screen: Evaluation | None) -> bool:
    if isinstance(rule, str):
        return CONDITIONS[rule](call, screen)
    try:
        return bool(rule(call))
    except Exception as error:
        faults.record("a sampling rule", error)
        return False
