"""Prometheus rules: estimates over the fleet with their intervals, and alerts that stand on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from exporters.make_kits.names import (
    CALLS,
    EVALUATOR,
    JOB,
    JUDGE_STATE,
    METRIC,
    MOMENT,
    MOMENTS,
    OUTCOME,
    POSTED,
    REASON,
    SERIES,
    WORKFLOW,
)
from ragtrace.estimates.promql import recording_rules

Rule = dict[str, Any]
_BY: Final = ", ".join(SERIES)
MOST: Final = "ragtrace:objective:most"
LEAST: Final = "ragtrace:objective:least"
FRESH: Final = "ragtrace:scores:fresh"
KNOWN: Final = "ragtrace:scores:known"
ACTIVE: Final = "ragtrace:spike:active"


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations in the rules, as PromQL has them. A test shortens them."""

    interval: str = "30s"
    spike: str = "30m"
    slow: str = "6h"
    quiet: str = "15m"
    """Without a score for so long there are no data."""
    patience: str = "5m"
    """How long data may be missing before somebody is told: a restart takes less."""
    memory: str = "1d"
    """What was scored within it is missed."""
    trouble: str = "10m"


def objectives() -> Rule:
    """The group that a user edits."""
    return {
        "name": "ragtrace-objectives",
        "rules": [
            {"record": MOST, "labels": {METRIC: "hallucination"}, "expr": "vector(0.05)"},
            # The same objective from the other side: a statement is supported or it is not.
            {
                "record": LEAST,
                "labels": {METRIC: "faithfulness"},
                "expr": f'1 - {MOST}{{{METRIC}="hallucination"}}',
            },
        ],
    }


def estimates(timing: Timing) -> list[Rule]:
    """A group a window: `ragtrace:30m:value`, `:low` and `:high`, and the steps of the algebra before them."""
    return [
        {
            "name": f"ragtrace-estimates-{window}",
            "interval": timing.interval,
            "rules": [{"record": r.record, "expr": r.expr} for r in recording_rules(window, window, labels=SERIES)],
        }
        for window in (timing.spike, timing.slow)
    ]


def alerts(timing: Timing) -> Rule:
    """The group of the alerts, with what they remember."""
    return {
        "name": "ragtrace-alerts",
        "interval": timing.interval,
        "rules": [
            *_memory(timing),
            _spike(timing),
            _slow_burn(timing),
            _no_data(timing),
            _judge_failing(timing),
            _dropped(timing),
            _not_posted(timing),
        ],
    }


def _beyond(low: str, high: str) -> str:
    """The series for which *low* is above, or *high* below, the objective of their metric."""
    on = f"on ({METRIC}) group_left ()"
    return f"{low} > {on} {MOST} or {high} < {on} {LEAST}"


def _memory(timing: Timing) -> list[Rule]:
    w = f'{MOMENTS}{{{MOMENT}="w"}}'
    low, high, value = (f"ragtrace:{timing.spike}:{end}" for end in ("low", "high", "value"))
    begins = f"group by ({_BY}) ({_beyond(low, high)})"
    # Over only when the estimate itself is back, and never because there is nothing to see any more.
    goes_on = f"{ACTIVE} and on ({_BY}) ({_beyond(value, value)})"
    unseen = f"{ACTIVE} and on ({_BY}) {KNOWN} unless on ({_BY}) {FRESH}"
    return [
        {"record": KNOWN, "expr": f"group by ({_BY}) (last_over_time({w}[{timing.memory}]))"},
        {
            "record": FRESH,
            "expr": f"group by ({_BY}) (sum by ({_BY}) (increase({w}[{timing.quiet}])) > 0) and on ({_BY}) {w}",
        },
        {"record": ACTIVE, "expr": f"({begins}) or ({goes_on}) or ({unseen})"},
    ]


def _alert(name: str, expr: str, severity: str, summary: str, description: str, wait: str = "") -> Rule:
    rule: Rule = {"alert": name, "expr": expr}
    if wait:
        rule["for"] = wait
    return {
        **rule,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }


_WHERE: Final = f"{{{{ $labels.{JOB} }}}}, workflow {{{{ $labels.{WORKFLOW} }}}}"
_WHAT: Final = f"{{{{ $labels.{METRIC} }}}}"
_WHO: Final = f"{{{{ $labels.{EVALUATOR} }}}}"


def _looked_up(record: str) -> str:
    """A template that gives the value of *record* for the series of the alert."""
    matchers = ",".join(f"{label}=%q" for label in SERIES)
    values = " ".join(f"$labels.{label}" for label in SERIES)
    asked = f'{{{{ with printf "{record}{{{matchers}}}" {values} | query }}}}'
    return f"{asked}{{{{ . | first | value | humanizePercentage }}}}{{{{ else }}}}unknown{{{{ end }}}}"


def _interval(window: str) -> str:
    value, low, high = (_looked_up(f"ragtrace:{window}:{end}") for end in ("value", "low", "high"))
    return f"{value} (95 % interval {low} to {high})"


def _spike(timing: Timing) -> Rule:
    return _alert(
        "RagtraceSpike",
        f"{ACTIVE} > 0",
        "critical",
        f"{_WHAT} is worse than its objective in {_WHERE}",
        f"Mean of the last {timing.spike}: {_interval(timing.spike)}, scored by {_WHO}. The whole interval is on the bad "
        "side of the objective, so it is not chance. It ends when the mean is back on the good side; while no scores come in "
        "it stays.",
    )


def _slow_burn(timing: Timing) -> Rule:
    low, high = (f"ragtrace:{timing.slow}:{end}" for end in ("low", "high"))
    return _alert(
        "RagtraceSlowBurn",
        f"({_beyond(low, high)}) unless on ({_BY}) {ACTIVE}",
        "warning",
        f"{_WHAT} has been a little worse than its objective for hours in {_WHERE}",
        f"Mean of the last {timing.slow}: {_interval(timing.slow)}, scored by {_WHO}. Too little to be told from chance in "
        f"{timing.spike}, but not in {timing.slow}.",
    )


def _no_data(timing: Timing) -> Rule:
    return _alert(
        "RagtraceNoData",
        f"{KNOWN} unless on ({_BY}) {FRESH}",
        "warning",
        f"no scores of {_WHAT} any more from {_WHERE}",
        f"{_WHO} scored calls within the last {timing.memory}, and none now: the application is gone, has no traffic, or "
        "its calls are not scored. Whether its answers are good is not known.",
        timing.patience,
    )


def _judge_failing(timing: Timing) -> Rule:
    by = f"sum by ({JOB}, {EVALUATOR})"
    failed = f'{by} (increase({CALLS}{{{OUTCOME}="failed"}}[{timing.trouble}]))'
    tried = f'{by} (increase({CALLS}{{{OUTCOME}=~"scored|partial|failed"}}[{timing.trouble}]))'
    is_open = f'group by ({JOB}, {EVALUATOR}) ({JUDGE_STATE}{{{label_of_state()}="open"}} > 0)'
    return _alert(
        "RagtraceJudgeFailing",
        f"({failed} / {tried} > 0.2 and {failed} >= 5) or {is_open}",
        "warning",
        f"the evaluator {_WHO} fails in {{{{ $labels.{JOB} }}}}",
        "More than a fifth of the calls that it looked at got no score, or it is not asked at all for a while (circuit "
        "breaker). Scores are missing, not bad; see the reasons in the dashboard, or run: ragtrace doctor.",
    )


def label_of_state() -> str:
    """The label with the state of a circuit breaker."""
    from ragtrace import semconv
    from ragtrace_exporters.openmetrics.naming import label_name

    return label_name(semconv.JUDGE_STATE)


def _risen(series: str, window: str) -> str:
    """The counters that rose, those that are new included: their first value is not in `increase`."""
    return f"increase({series}[{window}]) > 0 or ({series} > 0 unless {series} offset {window})"


def _dropped(timing: Timing) -> Rule:
    lost = f'{CALLS}{{{OUTCOME}="dropped", {REASON}!="spooled"}}'
    return _alert(
        "RagtraceCallsDropped",
        f"sum by ({JOB}, {EVALUATOR}, {REASON}) ({_risen(lost, timing.trouble)}) > 0",
        "warning",
        f"calls are not scored for want of room in {{{{ $labels.{JOB} }}}}: {{{{ $labels.{REASON} }}}}",
        f"{{{{ $value | humanize }}}} calls were lost to {_WHO} in the last {timing.trouble}. Rates are still right if "
        "the loss has nothing to do with quality; raise capacity=, or lower the sampling rate.",
    )


def _not_posted(timing: Timing) -> Rule:
    from ragtrace import semconv
    from ragtrace_exporters.openmetrics.naming import label_name

    sink = label_name(semconv.SINK)
    lost = f'{POSTED}{{{OUTCOME}=~"failed|dropped"}}'
    return _alert(
        "RagtraceScoresNotPosted",
        f"sum by ({JOB}, {sink}, {REASON}) ({_risen(lost, timing.trouble)}) > 0",
        "warning",
        f"scores do not reach {{{{ $labels.{sink} }}}} from {{{{ $labels.{JOB} }}}}: {{{{ $labels.{REASON} }}}}",
        f"{{{{ $value | humanize }}}} scores in the last {timing.trouble} were not taken by the backend's own API. They "
        "are in the telemetry; look at the application's log for what the backend said.",
    )


def files(timing: Timing | None = None) -> dict[str, list[Rule]]:
    """The groups of every rule file, by its name."""
    timing = timing or Timing()
    return {
        "objectives.rules.yml": [objectives()],
        "estimates.rules.yml": estimates(timing),
        "alerts.rules.yml": [alerts(timing)],
    }
