"""What a user says about sampling: rates, rules and budgets."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import amount, flag, rate, replicas
from ragtrace.evaluation.rules import ABSTAINED, ANSWERED, SUSPICIOUS, Rule, rules
from ragtrace.system.faults import say


@dataclass(frozen=True, slots=True)
class Sampling:
    """How often a judge looks at a call.

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
        self._set("always", rules(self.always, "always"))
        self._set("never", rules(self.never, "never"))
        self._check_suspicion()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_suspicion(self) -> None:
        if self.suspicious_rate is None:
            return
        self._set("suspicious_rate", rate(self.suspicious_rate, "suspicious_rate"))
        if self.suspicious_rate < self.rate:
            raise SettingsError(
                f"suspicious_rate must be at least rate, got {self.suspicious_rate!r} and {self.rate!r}; "
                "leave suspicious_rate out to judge all calls alike"
            )

    def probability(self, *, suspicious: bool) -> float:
        """Return the inclusion probability of a call, suspicious to the screen or not, before rules and budgets."""
        return self.suspicious_rate if suspicious and self.suspicious_rate is not None else self.rate


def heeded(sampling: Sampling) -> tuple[str, ...]:
    """Names of the screen's metrics that *sampling* looks at."""
    suspicion = (SUSPICIOUS,) if sampling.suspicious_rate is not None else ()
    return suspicion + ((ANSWERED,) if ABSTAINED in (*sampling.always, *sampling.never) else ())


def warn_of_unheeded(wanted: Sequence[str], screened: Collection[str]) -> None:
    """Say in the log which of the *wanted* metrics are not among the *screened*: sampling waits for them in vain."""
    for name in wanted:
        if name not in screened:
            what = "suspicious_rate=" if name == SUSPICIOUS else f"the rule {ABSTAINED!r}"
            say(
                logging.WARNING,
                "%s has no effect on sampling: it looks at the screen's metric %r, and no screen gives that; write for "
                "instance screen=ragtrace.EmbeddedJudge()",
                what,
                name,
            )
