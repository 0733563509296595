"""Plan of what to spend on which stage of a cascade: decision judge, chat judge and people.

**Variance.** With z the label, h its probability given score and verdict, g that given the score alone, the variance of
the estimated rate is about
    var(z | h) / labels + var(h | g) / verdicts + var(g) / decisions,
where a stage that sees every call adds nothing. At given money, the best numbers are in proportion to the root of
variance by price (Neyman allocation). Two limits come from simulation: with fewer than five verdicts a label, or more
than a third of the money for verdicts, the chat judge costs more labels than it saves.

**Designs.** The plan compares people alone, with the decision judge, with the chat judge, and with both, and advises
the one with the most effective labels: labels alone that would give the same variance. Where nothing is known, decision
and chat judge are taken to be as in the simulations: an AUROC of 0.85, a sensitivity of 0.90, a specificity of 0.95.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from ragtrace.core.errors import SettingsError

USD_A_LABEL: Final = 1.0
USD_A_VERDICT: Final = 0.01
USD_A_DECISION: Final = 0.0001
AUROC: Final = 0.85
SENSITIVITY: Final = 0.90
SPECIFICITY: Final = 0.95
LEAST_VERDICTS_A_LABEL: Final = 5.0
MOST_FOR_VERDICTS: Final = 1.0 / 3.0
FEWEST_LABELS: Final = 50
_GRID: Final = 400
_SPAN: Final = 6.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one label, one verdict of the chat judge and one request of the decision judge, in US dollars."""

    label: float = USD_A_LABEL
    verdict: float = USD_A_VERDICT
    decision: float = USD_A_DECISION

    def __post_init__(self) -> None:
        for name, price in (("label", self.label), ("verdict", self.verdict), ("decision", self.decision)):
            if not 0.0 <= price < math.inf or (name == "label" and not price):
                raise SettingsError(f"the price of a {name} must be a number of dollars, got {price!r}")


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of a label, and the parts of it that judges leave open, each the mean over the traffic."""

    label: float
    """Variance r (1 - r) of a label at the rate r."""
    after_decision: float
    """Variance of a label whose call's decision score is known."""
    after_verdict: float
    """Variance of a label whose call's verdict is known, without the decision score."""
    after_both: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of labels, verdicts and decisions for a given sum of money, and what they are worth."""

    labels: int
    verdicts: int
    decisions: int
    usd: float
    """What all of it costs."""
    effective_labels: float
    """Number of labels alone, drawn at random, that would give the rate as precisely."""
    usd_of_labels: float
    usd_of_verdicts: float
    usd_of_decisions: float

    @property
    def stages(self) -> str:
        """Stages that the plan uses, in words."""
        used = (("decision judge", self.decisions), ("chat judge", self.verdicts), ("people", self.labels))
        return " -> ".join(name for name, number in used if number)


def assumed_spread(
    rate: float, *, auroc: float = AUROC, sensitivity: float = SENSITIVITY, specificity: float = SPECIFICITY
) -> Spread:
    """Return how far a decision judge and a chat judge would explain the labels, from assumed qualities.

    The decision judge's scores of good and bad calls are taken as normal with equal variance, and its errors as
    independent of the chat judge's.

    Args:
        rate: rate of bad calls, in (0, 1).
        auroc: that of the decision judge's scores, in (0.5, 1).
        sensitivity: of the chat judge.
        specificity: of the chat judge.

    Raises:
        SettingsError: a value is outside its range.
    """
    for name, value, least in (("rate", rate, 0.0), ("auroc", auroc, 0.5)):
        if not least < value < 1.0:
            raise SettingsError(f"{name} must be more than {least:g} and less than 1, got {value!r}")
    apart = _quantile(auroc) * math.sqrt(2.0)
    step = 2.0 * (_SPAN + apart) / _GRID
    after_decision = after_both = 0.0
    verdicts = ((sensitivity, 1.0 - specificity), (1.0 - sensitivity, specificity))
    for at in range(_GRID):
        score = -_SPAN + (at + 0.5) * step
        good, bad = (_density(score - centre) * step for centre in (0.0, apart))
        if score > apart + _SPAN:
            break
        after_decision += _open_variance(rate * bad, (1.0 - rate) * good)
        after_both += sum(_open_variance(rate * bad * of_bad, (1.0 - rate) * good * of_good)
                          for of_bad, of_good in verdicts)  # fmt: skip
    after_verdict = sum(_open_variance(rate * of_bad, (1.0 - rate) * of_good) for of_bad, of_good in verdicts)
    return Spread(rate * (1.0 - rate), after_decision, after_verdict, after_both)


def _open_variance(bad: float, good: float) -> float:
    """Return the share of the calls times the variance of their labels, of which *bad* and *good* are the shares."""
    return bad * good / (bad + good) if bad + good > 0.0 else 0.0


def _density(value: float) -> float:
    return math.exp(-value * value / 2.0) / math.sqrt(2.0 * math.pi)


def _quantile(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def plan_spending(usd: float, calls: int, spread: Spread, prices: Prices | None = None) -> list[Plan]:
    """Return the best plan of each design for a sum of money, the most effective labels first.

    Args:
        usd: money for all stages.
        calls: number of calls of the traffic whose rate is wanted.
        spread: what each judge leaves open of the labels' variance.
        prices: prices; None: the usual ones.

    Raises:
        SettingsError: the money does not buy `FEWEST_LABELS` labels, or a number is not positive.
    """
    costs = prices or Prices()
    if not 0.0 < usd < math.inf or calls < 1:
        raise SettingsError(f"money and calls must be positive, got {usd!r} and {calls!r}")
    found = [_best(usd, calls, spread, costs, with_decisions, with_verdicts)
             for with_decisions, with_verdicts in product((False, True), repeat=2)]  # fmt: skip
    plans = [plan for plan in found if plan is not None]
    if not plans:
        raise SettingsError(
            f"{usd:g} dollars buy fewer than {FEWEST_LABELS} labels at {costs.label:g} dollars each, the fewest that a "
            "rate is corrected by; spend more, or say what a label costs (--label-usd)"
        )
    return sorted(plans, key=lambda plan: -plan.effective_labels)


def _best(
    usd: float, calls: int, spread: Spread, prices: Prices, with_decisions: bool, with_verdicts: bool
) -> Plan | None:
    """Return the best plan of one design, or None if it leaves too little money for labels."""
    best: Plan | None = None
    for decisions in _numbers(calls) if with_decisions else (0,):
        for verdicts in _numbers(decisions if with_decisions else calls) if with_verdicts else (0,):
            spent = decisions * prices.decision + verdicts * prices.verdict
            labels = min(int((usd - spent) / prices.label + 1e-9), verdicts if with_verdicts else calls)
            if labels < FEWEST_LABELS:
                continue
            if with_verdicts and (
                verdicts < LEAST_VERDICTS_A_LABEL * labels or verdicts * prices.verdict > MOST_FOR_VERDICTS * usd
            ):
                continue
            worth = _effective(calls, labels, verdicts, decisions, spread)
            if best is None or worth > best.effective_labels:
                best = Plan(
                    labels, verdicts, decisions, spent + labels * prices.label, worth, labels * prices.label,
                    verdicts * prices.verdict, decisions * prices.decision,
                )  # fmt: skip
    return best


def _numbers(most: int) -> Sequence[int]:
    """Return the numbers of calls that are tried for a stage, up to *most*."""
    return sorted({round(most * share / 50) for share in range(1, 51)} - {0})


def _effective(calls: int, labels: int, verdicts: int, decisions: int, spread: Spread) -> float:
    """Return the number of labels alone that would give the rate of these calls as precisely."""
    stages: list[tuple[float, int]] = []
    known = spread.label
    if decisions:
        stages.append((known - spread.after_decision, decisions))
        known = spread.after_decision
    if verdicts:
        left = spread.after_both if decisions else spread.after_verdict
        stages.append((known - left, verdicts))
        known = left
    stages.append((known, labels))
    # Few labels know the judges' weights badly: as in `corrected`, the gain shrinks by x^2 / (x^2 + 3).
    rarer = labels * spread.label
    kept = rarer * rarer / (rarer * rarer + 3.0)
    variance = sum(part * (1.0 / number - 1.0 / calls) for part, number in stages)
    alone = spread.label * (1.0 / labels - 1.0 / calls)
    mixed = kept * variance + (1.0 - kept) * alone
    return spread.label / (mixed + spread.label / calls)
