"""Prometheus recording rules that compute the estimates, generated from the formulas that ragtrace itself uses.

The rules are in order: first the additive sums over a window, of all replicas; then every named step of the algebra,
each from those before it. Prometheus evaluates the rules of a group one after the other for one point in time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.estimates.calibration import (
    LABEL_SUMS,
    LEAST_INFORMATION,
    UNSURE_SUMS,
    informedness,
    label_rates,
    transported_bounds,
)
from ragtrace.estimates.formulas import IntervalBounds, Method, Target, interval_bounds
from ragtrace.estimates.moments import NAMES, OLDEST

RECORD: Final = "ragtrace:{}:{}"
"""Pattern of a rule's name: the name of the estimate, then the name of the step in the computation."""


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """Recording rule of Prometheus: its name and its PromQL expression."""

    record: str
    expr: str


def _operator_methods(
    sign: str,
) -> tuple[Callable[[Expression, Expression | float], Expression], Callable[[Expression, float], Expression]]:
    """Return the two methods of `Expression` for an operator such as `+`: `__add__` and `__radd__`."""

    def text(term: Expression | float) -> str:
        return term.text if isinstance(term, Expression) else repr(float(term))

    def left(self: Expression, other: Expression | float, /) -> Expression:
        return Expression(f"({self.text} {sign} {text(other)})")

    def right(self: Expression, other: float, /) -> Expression:
        return Expression(f"({text(other)} {sign} {self.text})")

    return left, right


@dataclass(frozen=True, slots=True)
class Expression:
    """PromQL expression that can be combined with others and with numbers by +, -, * and /.

    Its value is an instant vector with the labels that the sums are grouped by.
    """

    text: str

    __add__, __radd__ = _operator_methods("+")
    __sub__, __rsub__ = _operator_methods("-")
    __mul__, __rmul__ = _operator_methods("*")
    __truediv__, __rtruediv__ = _operator_methods("/")


class RecordingRules:
    """Arithmetic on PromQL expressions in which every named step becomes a recording rule.

    Args:
        name: name of the estimate.
        renamed: names of the rules of some steps, where they differ from those of the steps.
    """

    def __init__(self, name: str, renamed: Mapping[str, str] | None = None) -> None:
        self._name, self._renamed = name, renamed or {}
        self.rules: list[RecordingRule] = []

    def define(self, name: str, value: Expression) -> Expression:
        record = RECORD.format(self._name, self._renamed.get(name, name))
        self.rules.append(RecordingRule(record, _strip_parentheses(value.text)))
        return Expression(record)

    def sqrt(self, value: Expression) -> Expression:
        return Expression(f"sqrt({_strip_parentheses(value.text)})")

    def minimum(self, a: Expression, b: Expression | float) -> Expression:
        if isinstance(b, Expression):
            return Expression(f"({a.text} <= {b.text} or {b.text})")
        return Expression(f"clamp_max({_strip_parentheses(a.text)}, {b!r})")

    def maximum(self, a: Expression, b: Expression | float) -> Expression:
        if isinstance(b, Expression):
            return Expression(f"({a.text} >= {b.text} or {b.text})")
        return Expression(f"clamp_min({_strip_parentheses(a.text)}, {b!r})")

    def ratio(self, a: Expression, b: Expression, least: Expression, otherwise: float) -> Expression:
        # A comparison drops the series for which it is false; `or` gives those series the other value.
        return Expression(f"({a.text} / ({b.text} > {least.text}) or ({b.text} * 0.0 + {otherwise!r}))")


def _strip_parentheses(text: str) -> str:
    """Remove the pair of parentheses that encloses all of *text*, if there is one."""
    if not text.startswith("("):
        return text
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return text[1:-1] if at == len(text) - 1 else text
    return text


def prometheus_name(name: str) -> str:
    """Return the attribute or metric *name* as Prometheus spells it, with underscores for dots."""
    return name.replace(".", "_")


LABELS: Final = tuple(
    prometheus_name(name) for name in (semconv.EVALUATION_NAME, semconv.WORKFLOW_NAME, semconv.EVALUATOR_ID)
)
"""Labels of the exported moments in Prometheus. An estimate that is grouped by fewer labels covers more calls."""
LABEL_MOMENT: Final = prometheus_name(semconv.METRIC_LABEL_MOMENT)
CALIBRATION_HOLDS: Final = prometheus_name(semconv.METRIC_CALIBRATION_HOLDS)
"""Name of the gauge in Prometheus that shows whether a calibration is in force."""
RAW_PROBABILITY: Final = prometheus_name(semconv.METRIC_RAW_PROBABILITY)
"""Name of the gauge in Prometheus of metrics whose scores are raw probabilities of a decision model."""
MEANS: Final[Mapping[str, str]] = {"value": "mean_score", "low": "mean_score_low", "high": "mean_score_high"}
"""Rules of the mean score and its interval, by the rule that has the same number where the mean is a rate."""


def recording_rules(
    name: str,
    window: str,
    *,
    labels: Sequence[str] = LABELS,
    selector: str = "",
    method: Method = "tuned",
    of: Target = "rate",
) -> list[RecordingRule]:
    """Return the Prometheus recording rules that compute an estimated mean and its 95 % interval over all replicas.

    The rules are in the order in which they must be evaluated. The results are `ragtrace:NAME:value`, `:low` and
    `:high`. Where the scores are raw probabilities of a decision model, there are none of these: their mean is no rate,
    and stands in `ragtrace:NAME:mean_score`, `:mean_score_low` and `:mean_score_high`, from which
    labels correct it (`corrected_rules`).

    Args:
        name: name of the estimate, in the rules' names: letters, digits and underscores.
        window: time span of the calls, as a PromQL duration: `30m`.
        labels: what to estimate separately, as label names of Prometheus; the metric's name and the evaluator must be
            among them, as scores of two metrics or two evaluators have no common mean.
        selector: label matchers that the moments are selected with: `service_name="bot"`.
        method: method of `estimate_mean`.
        of: target of `estimate_mean`.

    Raises:
        SettingsError: the name would not do in a rule, or the labels mix metrics or evaluators.
    """
    if not name.isascii() or not name.replace("_", "a").isalnum():
        raise SettingsError(f"name must be of letters, digits and underscores, got {name!r}; write for instance '30m'")
    lacking = [label for label in (LABELS[0], LABELS[2]) if label not in labels]
    if lacking:
        raise SettingsError(
            f"labels= must include {' and '.join(lacking)}, got {list(labels)!r}: a mean over several metrics or "
            "evaluators is meaningless; add what is missing, and choose one value with selector="
        )
    moment, by = prometheus_name(semconv.MOMENT), ", ".join(labels)
    metric = prometheus_name(semconv.METRIC_MOMENT) + "_total"
    steps = RecordingRules(name, MEANS)
    sums: dict[str, Expression] = {}
    for each in NAMES:
        matchers = ", ".join(filter(None, [f'{moment}="{each}"', selector]))
        found = f"sum by ({by}) (increase({metric}{{{matchers}}}[{window}]))"
        # A replica of a version that does not export a sum counts as 0 in that sum, so that the estimate goes on.
        missing = "" if each in OLDEST else f" or {sums['w'].text} * 0.0"
        sums[each] = steps.define(each, Expression(found + missing))
    # A window without judged calls has no series, rather than NaN.
    judged = dict(sums)
    judged["w"] = steps.define("judged", Expression(f"{sums['w'].text} > 0"))
    judged["n"] = steps.define("calls", sums["n"] + judged["w"] * 0.0)
    interval_bounds(judged, steps, method, of)
    # Longer than the gauge is seen after the last process has ended, its calls are in the window.
    on = ", ".join(label for label in labels if label != LABELS[1])
    chosen = f"{{{selector}}}" if selector else ""
    raw = f"unless on ({on}) last_over_time({RAW_PROBABILITY}{chosen}[{window}])"
    for end, mean in MEANS.items():
        steps.rules.append(RecordingRule(RECORD.format(name, end), f"{RECORD.format(name, mean)} {raw}"))
    return steps.rules


def corrected_rules(name: str, *, labels: Sequence[str] = LABELS) -> list[RecordingRule]:
    """Return the Prometheus recording rules that correct an estimate by the calibration of its judge.

    The results are `ragtrace:NAME_corrected:value`, `:low` and `:high`, for metrics whose processes have a calibration
    that holds in all of them; of the others there is no series. Replicas with different calibrations, as during a
    rollout, count with the mean of both.

    Args:
        name: name of the estimate, whose rules come before these (see `recording_rules`).
        labels: labels of the estimate.
    """
    steps = RecordingRules(f"{name}_corrected")
    on = ", ".join(label for label in labels if label != LABELS[1])
    estimated = RECORD.format(name, MEANS["value"])
    judge = steps.define("judge", Expression(f"({estimated} unless on ({on}) ({CALIBRATION_HOLDS} == 0))"))
    moment = prometheus_name(semconv.MOMENT)
    sums: dict[str, Expression] = {}
    for each in LABEL_SUMS:
        found = f'on ({on}) group_left () avg by ({on}) ({LABEL_MOMENT}{{{moment}="{each}"}})'
        given = judge * 0.0 + Expression(found)
        # Processes of older versions do not export the sums over unsure labels.
        missing = f" or {judge.text} * 0.0" if each in UNSURE_SUMS else ""
        sums[each] = steps.define(each, Expression(given.text + missing))
    known = label_rates(sums, steps)
    informed = informedness(sums, known, steps)
    usable = steps.define("usable", Expression(f"(({informed.text} > {LEAST_INFORMATION!r}) * 0.0)"))
    value, low, high = (usable + Expression(RECORD.format(name, mean)) for mean in MEANS.values())
    transported_bounds(IntervalBounds(value, low, high, usable), sums, steps)
    return steps.rules
