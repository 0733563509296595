"""Sampling of the calls that a judge scores: settings, rules, budgets, and the decision for each call."""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from time import monotonic
from typing import Final, TypeAlias, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import check_known, parse_amount, parse_flag, parse_rate, resolve_replicas
from ragtrace.core.tags import TagValue, parse_tag, tag_text
from ragtrace.core.types import (
    CALIBRATED_PROBABILITY,
    Evaluation,
    RagCall,
    Result,
    SamplingDecision,
    Score,
    is_raw_probability,
)
from ragtrace.system.faults import faults, log_safely

Predicate: TypeAlias = "Callable[[RagCall], bool]"
Rule: TypeAlias = "str | Predicate"
ABSTAINED: Final = "abstained"
"""Name of a rule's condition, and of the label and the reason for an answer that declines to answer."""
ANSWERED: Final = "answered"
"""Metric of the screen whose label may be `abstained`."""
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
"""Conditions that a sampling rule can name, each as a function of the call and the screen's evaluation."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of the sampling of calls for the judge: rates, rules and budgets.

    Every call has a probability with which the judge sees it, known before the judge is asked and stored with its
    scores, so that 1 / probability calls stand behind each score and weighted means are unbiased. Two rates (ordinary
    and suspicious) rather than a curve: all calls of a kind weigh the same.

    A rule that matches decides: `never` gives probability 0 and goes before `always`, which gives 1. A rule is the
    name of a condition, a tag such as "tenant=acme", or a function of the `RagCall` (run in the background; one that
    raises does not match):
    `error` (it failed after some answer), `no_contexts` (retrieval found nothing), `contexts_missing` (none was seen),
    `abstained` (as the screen reads it; never without a screen), `abandoned`, `truncated` (redaction cut its texts).

    Where the screen is a decision model, which gives the probability that a call is bad, ordinary calls are judged with
    `rate` times 0.5 + 0.5 u / mean u, u = sqrt(g (1 - g)): half of the judgements are spread over all calls alike, and
    half go where the screen is least certain. g is the calibrated probability where there is one, else the raw score;
    the mean is that of earlier calls.

    A budget holds in the mean of the random draws. It lowers all probabilities by one factor, which falls as traffic
    outruns the budget and never reaches 0, rather than dropping calls or stopping. How far spending may run ahead
    goes by its slack s: 5 seconds' worth of `per_minute`, 5 minutes' worth of `usd_per_day`, but at least 2 calls. In
    full: over any time it is at most the budget of that time and s * (1 + ln(1 + 1.3 d / s)), where d is what the rates
    alone would have asked for since the process started; the 1 falls away for the time since the start. What a quiet
    time leaves over is kept up to s, not longer. Calls of an `always` rule keep 1 until they alone take more than nine
    tenths of the budget; 4 s are kept for them, and the bound grows by s * (4 + ln(1 + 1.3 d / s)), d being their own.

    Examples:
        >>> sampling = ragtrace.Sampling(
        ...     rate=0.05, always=["error", lambda call: call.workflow == "checkout"], usd_per_day=5
        ... )
        >>> judge = ragtrace.OpenAIJudge("gpt-4o-mini", api_key="...")
        >>> ragtrace.configure(exporter="none", judge=judge, sampling=sampling)

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
        rates: probability for the calls of a tag in place of `rate`, such as {"tenant=acme": 1.0}; of several that a
            call has, the first counts. A suspicious call has at least `suspicious_rate`.
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
    rates: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)

    def __post_init__(self) -> None:
        self._set("rate", parse_rate(self.rate, "rate"))
        for name in ("per_minute", "usd_per_day"):
            self._set(name, None if getattr(self, name) is None else parse_amount(getattr(self, name), name))
        self._set("replicas", resolve_replicas(self.replicas, os.environ))
        self._set("score_head_dropped", parse_flag(self.score_head_dropped, "score_head_dropped"))
        self._set("always", _as_rules(self.always, "always"))
        self._set("never", _as_rules(self.never, "never"))
        self._set("rates", _as_rates(self.rates))
        if self.suspicious_rate is not None:
            self._set("suspicious_rate", parse_rate(self.suspicious_rate, "suspicious_rate"))
            if self.suspicious_rate < self.rate:
                raise SettingsError(
                    f"suspicious_rate must be at least rate, got {self.suspicious_rate!r} and {self.rate!r}; "
                    "leave suspicious_rate out to judge all calls alike"
                )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def probability(self, *, suspicious: bool, tags: Mapping[str, TagValue] | None = None) -> float:
        """Return the configured probability that a call is judged, before rules and budgets are applied.

        Args:
            suspicious: whether the screen has marked the call as suspicious.
            tags: tags of the call.
        """
        rate = self.rate
        if tags:
            rate = next((each for tag, each in self.rates.items() if _has_tag(tags, tag)), rate)
        return max(rate, self.suspicious_rate) if suspicious and self.suspicious_rate is not None else rate

    @property
    def lowest_rate(self) -> float:
        """Lowest probability above 0 that a call without a rule may have, before budgets; 0: none has any."""
        rates = (self.rate, *self.rates.values())
        return min([rate for rate in rates if rate > 0], default=self.suspicious_rate or 0.0)


def sampling_metrics(sampling: Sampling) -> tuple[str, ...]:
    """Return the names of the metrics that *sampling* needs from the screen, the cheap judge of every call."""
    suspicion = (SUSPICIOUS,) if sampling.suspicious_rate is not None else ()
    return suspicion + ((ANSWERED,) if ABSTAINED in (*sampling.always, *sampling.never) else ())


def warn_of_missing_metrics(wanted: Sequence[str], screened: Collection[str]) -> None:
    """Log a warning for each sampling setting that has no effect because its metric is not computed.

    The screen, a cheap judge of every call, would compute the metric.

    Args:
        wanted: metrics that the sampling settings depend on.
        screened: metrics that the screen computes.
    """
    for name in wanted:
        if name not in screened:
            log_safely(
                logging.WARNING,
                "%s has no effect on sampling: it looks at the screen's metric %r, and no screen gives that; write for "
                "instance screen=ragtrace.EmbeddedJudge()",
                "suspicious_rate=" if name == SUSPICIOUS else f"the rule {ABSTAINED!r}",
                name,
            )


def _as_rules(value: object, name: str) -> tuple[Rule, ...]:
    """Convert the value of a sampling setting, one rule or a list of rules, to a tuple of rules.

    The setting is called *name*: `always` or `never`.

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
        if isinstance(item, str) and "=" in item:
            found.append("=".join(parse_tag(item, f"{name}=")))
        elif isinstance(item, str):
            found.append(check_known(item, tuple(CONDITIONS), "condition", f"{name}="))
        elif not callable(item):
            raise SettingsError(f"{name} got {item!r}, which is neither a condition nor a function; {advice}")
        elif inspect.iscoroutinefunction(item) or inspect.isgeneratorfunction(item):
            # The rule's coroutine or generator would count as true, whatever its result.
            raise SettingsError(
                f"{name} got the async or generator function {item!r}; write a plain function that returns a bool"
            )
        else:
            found.append(cast("Predicate", item))
    return tuple(found)


def _as_rates(value: object) -> dict[str, float]:
    """Return the rates of tags, each tag as `name=value`.

    Raises:
        SettingsError: *value* is no mapping of tags to probabilities above 0.
    """
    if not isinstance(value, Mapping):
        raise SettingsError(f"rates must be a mapping of tags to rates, got {value!r}; write {{'tenant=acme': 1.0}}")
    given = cast("Mapping[object, object]", value)
    rates: dict[str, float] = {}
    for tag, rate in given.items():
        rates["=".join(parse_tag(str(tag), "rates="))] = parsed = parse_rate(rate, f"rates[{tag!r}]")
        if not parsed:  # such calls would be missing in every estimate, which a `never` rule says of them
            raise SettingsError(f"rates[{tag!r}] must be above 0, got {rate!r}; to judge none write never=[{tag!r}]")
    return rates


def _has_tag(tags: Mapping[str, TagValue], written: str) -> bool:
    """Return whether *tags* have the one that is *written* `name=value`."""
    name, _, value = written.partition("=")
    return name in tags and tag_text(tags[name]) == value


def matches_any_rule(rules: Iterable[Rule], call: RagCall, screen: Evaluation | None) -> bool:
    """Return whether a call matches one of the sampling rules.

    A user's function that raises does not match, and counts as a fault.

    Args:
        rules: the rules.
        call: the call.
        screen: the screen's evaluation of the call; None: it was not screened.
    """
    return any(_matches_rule(rule, call, screen) for rule in rules)


def _matches_rule(rule: Rule, call: RagCall, screen: Evaluation | None) -> bool:
    if isinstance(rule, str):
        return _has_tag(call.tags, rule) if "=" in rule else CONDITIONS[rule](call, screen)
    try:
        return bool(rule(call))
    except Exception as error:
        faults.record("a sampling rule", error)
        return False


# --- budgets ---------------------------------------------------------------------------------------------------------

_RULED_SHARE: Final = 0.9
_LEAST_CALLS: Final = 2.0
_KEPT: Final = 1.0
"""Most unused income that a budget saves from a quiet time for a busy one, in slacks (units of the balance)."""
_KEPT_FOR_RULES: Final = 4.0
"""Most unused income saved for calls of `always` rules, in slacks: their bursts are to be judged completely."""
GUESS_USD: Final = 0.05
"""Assumed cost of a judgement in US dollars until a cost is reported: 10,000 tokens read and 1,000 written at the
prices of a large model. The guess is high, so that the first calls do not spend the day's money."""
_REMEMBERED: Final = 50
_SILENT: Final = 3
UNPRICED: Final = (
    "usd_per_day= is set, but none of the first %d judgements said what it cost: each is counted as $%g. Tell the "
    "judge its price, OpenAIJudge(..., price=Price(input=0.15, output=0.6)), in US dollars for a million "
    "tokens, or limit per_minute= instead"
)


class Budget:
    """Sampling budget of one process, which lowers sampling probabilities to limit the cost of judging over time.

    The cost is in judge calls or in US dollars. The budget counts expected spending (probability times cost), not the
    outcome of the random draws: so a probability does not depend on earlier draws (except through the mean cost they
    revealed), and is exact also where one draw decides about several calls of a trace.

    Its balance of income and spending is in units of the slack. While spending is not ahead of income, calls keep their
    probability; ahead of it, the probability falls by the factor e for each slack. In a burst the nth call so gets
    about slack / n, as in a reservoir: the sum grows with the logarithm of the burst, and no call is out of reach. A
    factor in proportion to the remaining budget would spend less, but fall exponentially: the end of a burst would in
    truth never be sampled, and estimates would be unbiased on paper only.

    Args:
        per_second: income a second, in the unit of the cost.
        slack_seconds: seconds of income that spending may run ahead before probabilities fall.
        ruled: whether there are `always` rules; they get a balance of their own, filled first with nine tenths of the
            income. Income that one balance cannot hold goes to the other.
        clock: monotonic seconds.
    """

    def __init__(self, per_second: float, slack_seconds: float, *, ruled: bool, clock: Callable[[], float]) -> None:
        self.per_second, self._slack_seconds, self._clock = per_second, slack_seconds, clock
        self._ruled_share = _RULED_SHARE if ruled else 0.0
        self._ordinary, self._ruled = 0.0, _KEPT
        self._filled = self._clock()

    def factor(self, cost: float, *, ruled: bool) -> float:
        """Return the factor in (0, 1] by which the budget lowers a call's sampling probability.

        Args:
            cost: cost of judging one call, in the unit of the budget.
            ruled: whether an `always` rule matches the call.
        """
        # Income depends on the clock alone, so a call that is not sampled gives nothing back to the budget.
        now = self._clock()
        income = max(0.0, now - self._filled) * self.per_second / self._slack(cost)
        self._filled = max(now, self._filled)
        if self._ruled_share:
            reserved = income * self._ruled_share
            self._ruled, rest = _add_income(self._ruled, reserved, _KEPT_FOR_RULES)
            self._ordinary, rest = _add_income(self._ordinary, income - reserved + rest, _KEPT)
            self._ruled, _ = _add_income(self._ruled, rest, _KEPT_FOR_RULES)
        else:
            self._ordinary, _ = _add_income(self._ordinary, income, _KEPT)
        return math.exp(min(0.0, self._ruled if ruled else self._ordinary))

    def charge(self, probability: float, cost: float, *, ruled: bool) -> None:
        """Charge the expected cost of a call (probability times cost) to the budget.

        Args:
            probability: with which the call is judged.
            cost: cost of judging it, in the unit of the budget.
            ruled: whether an `always` rule matches the call.
        """
        spent = probability * cost / self._slack(cost)
        if ruled:
            self._ruled -= spent
        else:
            self._ordinary -= spent

    def _slack(self, cost: float) -> float:
        return max(self.per_second * self._slack_seconds, _LEAST_CALLS * cost)


def _add_income(balance: float, income: float, most: float) -> tuple[float, float]:
    """Add *income* to a budget's balance, up to *most*. Return the new balance and the unused income."""
    taken = min(income, most - balance)
    return balance + taken, income - taken


class JudgementCosts:
    """Running mean of the cost of a judgement, over about the last fifty costs that the judge reported.

    Args:
        guess: cost of a judgement before the first report; rather too high.
        unreported: warning that is logged when the first judgements report no cost; it is formatted with their number
            and the guess.
    """

    def __init__(self, guess: float = GUESS_USD, unreported: str = UNPRICED) -> None:
        self._guess, self._unreported = guess, unreported
        self._known = self._silent = 0
        self._recent = 0.0

    @property
    def mean(self) -> float:
        """Mean cost of one judgement, or a high guess until the judge has reported some costs."""
        # Factor on the guess for each reported cost, so that one report of a cheap (cached) judgement changes little.
        return max(self._recent, self._guess * 0.1**self._known)

    def add(self, cost: float | None) -> None:
        """Add the cost of one judgement to the mean. None or an implausible number counts as not reported."""
        # The judge of a user may report any number.
        # Largest plausible cost of one judgement, as a multiple of the guess: a million US dollars.
        most = self._guess * 2e7
        if isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost < most:
            self._known += 1
            self._recent += (float(cost) - self._recent) / min(self._known, _REMEMBERED)
            return
        self._silent += 1
        if not self._known and self._silent == _SILENT:
            faults.log_once("judgements without a cost", self._unreported, _SILENT, self._guess)


# --- queue load -----------------------------------------------------------------------------------------------------

_ORDINARY_LEVEL: Final = 0.25
_RULED_LEVEL: Final = 0.75
_LEAST_FACTOR: Final = 0.001


class QueueLoad:
    """Load of the queue of calls for the judge, which lowers sampling probabilities as the queue fills.

    Up to a quarter of the queue's capacity probabilities stay as they are. Above, they fall exponentially, to a
    thousandth when the queue is full, and never to 0. So a queue that fills settles where as many calls are sampled as
    are judged. Calls of `always` rules keep their probability up to three quarters. A probability is known before the
    random draw, and stored with the scores: weighted means stay unbiased.

    Args:
        capacity: calls that the queue holds at most.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.depth = 0
        """Number of calls in the queue when the length of the queue was last read."""

    def factor(self, *, ruled: bool) -> float:
        """Return the factor in (0, 1] by which the present load lowers a call's sampling probability.

        Args:
            ruled: whether an `always` rule matches the call.
        """
        level = _RULED_LEVEL if ruled else _ORDINARY_LEVEL
        above = min(1.0, max(0.0, self.depth / self.capacity - level) / (1.0 - level))
        return float(_LEAST_FACTOR**above)


# --- decisions ------------------------------------------------------------------------------------------------------

_SALT: Final = b"ragtrace evaluation sampling"
_DAY_SECONDS: Final = 86_400.0
_CALLS_SLACK_SECONDS: Final = 5.0
_USD_SLACK_SECONDS: Final = 300.0
_ALIKE: Final = 0.5
"""Share of the judgements that is spread over all calls alike, whatever a decision model says about them."""
_LEAST_CHANCE: Final = 0.001
_REMEMBERED_CHANCES: Final = 1_000
_CERTAIN_ABOUT: Final = ("hallucinated",)
"""Metrics whose probability by a decision model tells how uncertain a call's label is."""


class Uncertainty:
    """Uncertainty of a decision model about calls, relative to its mean over earlier calls.

    The mean is over about the last thousand calls, and is known before a call is: so the probability that follows from
    it is one that the call could have had, whatever its label is.
    """

    def __init__(self) -> None:
        self._known, self._mean = 0, 0.0

    @property
    def is_known(self) -> bool:
        """Whether the screen is a decision model that has given probabilities."""
        return self._known > 0

    def share(self, screen: Evaluation) -> float | None:
        """Return the factor of the sampling rate for a call, or None if the screen is no decision model.

        Args:
            screen: the screen's evaluation of the call.
        """
        chance = next((each for each in map(_chance_of_bad, screen.results.items()) if each is not None), None)
        if chance is None:
            return None
        limited = min(1.0 - _LEAST_CHANCE, max(_LEAST_CHANCE, chance))
        u = math.sqrt(limited * (1.0 - limited))
        share = 1.0 if not self._known else _ALIKE + (1.0 - _ALIKE) * u / self._mean
        self._known = min(self._known + 1, _REMEMBERED_CHANCES)
        self._mean += (u - self._mean) / self._known
        return share


def _chance_of_bad(result: tuple[str, Result]) -> float | None:
    """Return the probability, by a decision model, that a call is bad, or None for other results."""
    name, score = result
    if name not in _CERTAIN_ABOUT or not isinstance(score, Score) or not is_raw_probability(score):
        return None
    known = score.attributes.get(CALIBRATED_PROBABILITY)
    return known if isinstance(known, float) else score.value


class Sampler:
    """Sampler that decides which calls of a process the judge scores. Used by one thread only.

    Args:
        sampling: the sampling settings.
        clock: returns monotonic seconds.
        costs: mean cost of a judgement as known by now; None: nothing is known.
    """

    def __init__(
        self, sampling: Sampling, clock: Callable[[], float] = monotonic, costs: JudgementCosts | None = None
    ) -> None:
        self._sampling, self._costs, self._clock = sampling, costs or JudgementCosts(), clock
        self._next_canary, self._uncertainty = 0.0, Uncertainty()
        self._samples = False
        """Whether any call was sampled, and not judged because a guard reads the score."""
        self.queue_load: QueueLoad | None = None
        """Load of the queue for sampled calls; None: the calls go into no queue outside this process."""
        self._calls = self._usd = None
        ruled, shares = bool(sampling.always), sampling.replicas or 1
        if sampling.per_minute is not None:
            per_second = sampling.per_minute / 60.0 / shares
            self._calls = Budget(per_second, _CALLS_SLACK_SECONDS, ruled=ruled, clock=clock)
        if sampling.usd_per_day is not None:
            per_second = sampling.usd_per_day / _DAY_SECONDS / shares
            self._usd = Budget(per_second, _USD_SLACK_SECONDS, ruled=ruled, clock=clock)

    def decide(self, call: RagCall, screen: Evaluation | None) -> SamplingDecision:
        """Return the decision whether the judge scores *call*, with its probability and its reason.

        A call that the rate alone would have included has the reason `budget` or `overload`, whichever lowered its
        probability more: the budgets, or the queue of calls for the judge.

        Args:
            call: the call.
            screen: the screen's evaluation; None: the call was not screened.
        """
        sampling, self._samples = self._sampling, True
        if matches_any_rule(sampling.never, call, screen):
            return SamplingDecision(False, 0.0, "never_rule")
        ruled = matches_any_rule(sampling.always, call, screen)
        result = None if screen is None else screen.results.get(SUSPICIOUS)
        suspicious = sampling.suspicious_rate is not None and isinstance(result, Score) and result.value > 0
        if ruled:
            wanted, reason = 1.0, "always_rule"
        else:
            wanted, reason = (
                sampling.probability(suspicious=suspicious, tags=call.tags),
                "suspicious" if suspicious else "sampled",
            )
        lowest = sampling.lowest_rate
        uncertain = None if screen is None else self._uncertainty.share(screen)
        if uncertain is not None and not ruled:
            wanted = min(1.0, wanted * uncertain)
        if self._uncertainty.is_known:  # also where the model gave this call no probability: others may have had less
            lowest *= _ALIKE
        ordinary = lowest * self._lowering_factor(ruled=False)
        possible = [ordinary, self._lowering_factor(ruled=True)] if sampling.always else [ordinary]
        least = min([probability for probability in possible if probability > 0.0], default=0.0)
        by_budget, by_load = self._budget_factor(ruled=ruled), self._load_factor(ruled=ruled)
        probability = wanted * min(by_budget, by_load)
        for budget, cost in self._budgets():
            budget.charge(probability, cost, ruled=ruled)
        # Without a trace id the draw is random, by `SystemRandom`, which does not repeat numbers in a forked child.
        has_trace = call.span is not None and call.span.is_valid
        draw = _hash_fraction(call.span.trace_id) if has_trace and call.span is not None else SystemRandom().random()
        if draw < probability:
            return SamplingDecision(True, probability, reason, least)
        if draw >= wanted:
            return SamplingDecision(False, probability, "not_sampled", least)
        return SamplingDecision(False, probability, "overload" if by_load < by_budget else "budget", least)

    def decide_guarded(self) -> SamplingDecision:
        """Return the decision about a call of a function whose guard reads the judge's score: judged like by a rule.

        Such calls are a stratum of their own, like those of `always` rules. They are charged to the budgets, which
        lower the probabilities of all other calls for them.
        """
        for budget, cost in self._budgets():
            budget.charge(1.0, cost, ruled=False)
        lowest = self._sampling.lowest_rate or 1.0
        lowest *= (_ALIKE if self._uncertainty.is_known else 1.0) * self._lowering_factor(ruled=False)
        return SamplingDecision(True, 1.0, "always_rule", lowest if self._samples else 1.0)

    def charge_canary(self) -> bool:
        """Charge the judgement of one canary (labelled test call) to the budgets, or return False if it must wait.

        Canaries get at most a fiftieth of each budget. Probabilities of later calls fall as for any judgement, so the
        budgets hold for canaries and calls together.
        """
        now = self._clock()
        if now < self._next_canary:
            return False
        for budget, cost in self._budgets():
            budget.charge(1.0, cost, ruled=False)
            # Largest share of each budget that may be spent on canaries.
            self._next_canary = max(self._next_canary, now + cost / (0.02 * budget.per_second))
        return True

    def _budgets(self) -> list[tuple[Budget, float]]:
        """Return each configured budget with the cost of judging one call, in the budget's unit."""
        budgets = ((self._calls, 1.0), (self._usd, self._costs.mean))
        return [(budget, cost) for budget, cost in budgets if budget is not None]

    def _lowering_factor(self, *, ruled: bool) -> float:
        """Return the factor in (0, 1] by which budgets and the queue lower a sampling probability."""
        return min(self._budget_factor(ruled=ruled), self._load_factor(ruled=ruled))

    def _budget_factor(self, *, ruled: bool) -> float:
        """Return the factor in (0, 1] by which the budgets lower a sampling probability."""
        return min((budget.factor(cost, ruled=ruled) for budget, cost in self._budgets()), default=1.0)

    def _load_factor(self, *, ruled: bool) -> float:
        """Return the factor in (0, 1] by which the queue of calls for the judge lowers a sampling probability."""
        return 1.0 if self.queue_load is None else self.queue_load.factor(ruled=ruled)

    def record_cost(self, cost_usd: float | None) -> None:
        """Record the cost of one judgement in US dollars, or None if the judge did not report it."""
        if self._usd is not None:
            self._costs.add(cost_usd)


def is_sampled(trace_id: int, probability: float) -> bool:
    """Return whether a call is sampled at *probability*, with the same result in every process.

    A hash of the trace id decides. It is salted, so that it is independent of a head sampler that reads the bits of
    the trace id.
    """
    return _hash_fraction(trace_id) < probability


def _hash_fraction(trace_id: int) -> float:
    """Return a hash of a trace id as a number in [0, 1).

    The hash has 53 bits, so that the division is exact and never rounds up to 1.
    """
    digest = hashlib.blake2b(trace_id.to_bytes(16, "big"), digest_size=8, key=_SALT).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53
