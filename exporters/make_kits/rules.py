"""Prometheus rules: estimates over the fleet with their intervals, and the alerts that stand on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ragtrace.core import semconv
from ragtrace.estimates.promql import (
    CALIBRATION_HOLDS,
    RAW_PROBABILITY,
    corrected_rules,
    prometheus_name,
    recording_rules,
)

JOB: Final = "job"
"""Prometheus's label for the service: its name, where `scrape_configs` follow the kit or a collector is between."""
METRIC: Final = prometheus_name(semconv.EVALUATION_NAME)
WORKFLOW: Final = prometheus_name(semconv.WORKFLOW_NAME)
EVALUATOR: Final = prometheus_name(semconv.EVALUATOR_ID)
OUTCOME: Final = prometheus_name(semconv.OUTCOME)
REASON: Final = prometheus_name(semconv.REASON)
MOMENT: Final = prometheus_name(semconv.MOMENT)
SERIES: Final = (JOB, METRIC, WORKFLOW, EVALUATOR)
"""What an estimate is of."""

SCORE: Final = "ragtrace_eval_score_bucket"
MOMENTS: Final = "ragtrace_eval_moment_total"
CALLS: Final = "ragtrace_calls_total"
SCORES: Final = "ragtrace_eval_score_count"
JUDGE_SECONDS: Final = "ragtrace_eval_duration_seconds_bucket"
JUDGED: Final = "ragtrace_eval_duration_seconds_count"
CACHED: Final = prometheus_name(semconv.CACHED)
JUDGE_TOKENS: Final = "ragtrace_eval_tokens_total"
JUDGE_COST: Final = "ragtrace_eval_cost_USD_total"
JUDGE_STATE: Final = "ragtrace_judge_state"
POSTED: Final = "ragtrace_sink_scores_total"
GUARDED: Final = "ragtrace_guard_results_total"
GUARD_SECONDS: Final = "ragtrace_guard_added_seconds_bucket"
VERDICT: Final = prometheus_name(semconv.GUARD_VERDICT)
UNCHECKED: Final = "timeout|unscored|circuit_open|error"
"""Verdicts on answers that a guard could not check."""
QUEUE: Final = "ragtrace_queue_size"
HELD: Final = "ragtrace_held_size"
BREAKER: Final = prometheus_name(semconv.JUDGE_STATE)
"""The label with the state of a circuit breaker."""
ALERT_STATE: Final = "ragtrace_alert_state"
OPERATION_SECONDS: Final = "gen_ai_client_operation_duration_seconds"
INFERENCE_SECONDS: Final = "gen_ai_client_inference_duration_seconds"
"""Durations of inferences, where OTEL_SEMCONV_STABILITY_OPT_IN selects the unreleased names of the conventions."""
WORKFLOW_SECONDS: Final = "gen_ai_invoke_workflow_duration_seconds"

Rule = dict[str, Any]
BY: Final = ", ".join(SERIES)
MOST: Final = "ragtrace:objective:most"
LEAST: Final = "ragtrace:objective:least"
FRESH: Final = "ragtrace:scores:fresh"
KNOWN: Final = "ragtrace:scores:known"
ACTIVE: Final = "ragtrace:spike:active"
CORRECTED_ACTIVE: Final = "ragtrace:spike_corrected:active"
WEEK: Final = "ragtrace:week:{}"
"""Records of `consistency` in the window of a spike against the same hours of the days before."""
_LOWER: Final = f'{METRIC}="consistency"'
_LABELLED: Final = "faithfulness|hallucinated|hallucination"
"""Metrics of a judge that labels statements: where one of them has a rate, `consistency` is not what pages."""
_SUMS: Final = ("w", "ww", "wy", "wyy")
"""The sums from which the mean of seen calls and its variance are computed."""
_DAYS: Final = range(1, 8)
_SURE: Final = 4.0
"""Standard errors of a fall: 30 minutes are looked at 336 times a week."""
_SPREAD: Final = 0.0025
"""Variance that scores have at least, lest calls with equal scores look certain."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in the rules, in the notation of PromQL; tests shorten them."""

    interval: str = "30s"
    spike: str = "30m"
    slow: str = "6h"
    quiet: str = "15m"
    """Without a score for so long there are no data."""
    patience: str = "5m"
    """How long data may be missing before an alert fires: a restart takes less."""
    memory: str = "1d"
    """What was scored within it is missed."""
    trouble: str = "10m"
    day: str = "d"
    """Unit of the days that are compared with."""


def objectives() -> Rule:
    """Return the group of objectives, which the user edits."""
    return {
        "name": "ragtrace-objectives",
        "rules": [
            # The headline: the share of answers in which a judge found anything unsupported.
            {"record": MOST, "labels": {METRIC: "hallucinated"}, "expr": "vector(0.05)"},
            {"record": MOST, "labels": {METRIC: "answered_without_context"}, "expr": "vector(0.05)"},
            # Shares of the statements, from both sides.
            {"record": MOST, "labels": {METRIC: "hallucination"}, "expr": "vector(0.05)"},
            {"record": LEAST, "labels": {METRIC: "faithfulness"}, "expr": f'1 - {MOST}{{{METRIC}="hallucination"}}'},
        ],
    }


def estimates(timing: Timing) -> list[Rule]:
    """Return a group for each window: `ragtrace:30m:value`, `:low` and `:high` (`30m_corrected`: by human labels)."""
    return [
        {
            "name": f"ragtrace-estimates-{window}",
            "interval": timing.interval,
            "rules": [
                {"record": r.record, "expr": r.expr}
                for r in (*recording_rules(window, window, labels=SERIES), *corrected_rules(window, labels=SERIES))
            ],
        }
        for window in (timing.spike, timing.slow)
    ]


def week(timing: Timing) -> Rule:
    """Return the rules that compare mean `consistency` with the same hours of the past week."""
    rules: list[Rule] = []
    for name in _SUMS:
        counter = f'{MOMENTS}{{{MOMENT}="{name}", {_LOWER}}}'
        # The days have one another's labels, and `or` keeps one series of equal labels: so each gets its own.
        days = " or ".join(
            f'label_replace(increase({counter}[{timing.spike}] offset {day}{timing.day}), "day", "{day}", "", "")'
            for day in _DAYS
        )
        rules.append({"record": WEEK.format(f"past_{name}"), "expr": f"sum by ({BY}) ({days})"})
    past = {name: WEEK.format(f"past_{name}") for name in _SUMS}
    now = {name: f"ragtrace:{timing.spike}:{name}{{{_LOWER}}}" for name in _SUMS}
    change, error = WEEK.format("change"), WEEK.format("error")
    fall = f"{change} < -{_SURE} * {error}"
    enough = f"{past['w']} * {past['w']} / {past['ww']} >= 200 and {now['w']} * {now['w']} / {now['ww']} >= 30"
    labelled = f'last_over_time({MOMENTS}{{{MOMENT}="w", {METRIC}=~"{_LABELLED}"}}[{timing.memory}])'
    # A decision model's scores have no rate until labels make one, so that no other alert watches them.
    evaluator = f"on ({JOB}, {METRIC}, {EVALUATOR})"
    without_rate = f"last_over_time({RAW_PROBABILITY}[{timing.memory}]) unless {evaluator} ({CALIBRATION_HOLDS} == 1)"
    return {
        "name": "ragtrace-week",
        "interval": timing.interval,
        "rules": [
            *rules,
            {"record": WEEK.format("mean"), "expr": f"{past['wy']} / ({past['w']} > 0)"},
            {"record": change, "expr": f"{now['wy']} / ({now['w']} > 0) - {WEEK.format('mean')}"},
            {"record": error, "expr": f"sqrt({_squared_error(past)} + {_squared_error(now)})"},
            {"record": WEEK.format("change_low"), "expr": f"{change} - 1.96 * {error}"},
            {"record": WEEK.format("change_high"), "expr": f"{change} + 1.96 * {error}"},
            {
                "record": WEEK.format("fallen"),
                "expr": f"group by ({BY}) ({fall} and {enough}) "
                f"unless on ({JOB}, {WORKFLOW}) ({labelled} unless {evaluator} ({without_rate}))",
            },
        ],
    }


def _squared_error(of: dict[str, str]) -> str:
    """Return the PromQL expression of the squared standard error of a weighted mean, from its moments."""
    w, ww, wy, wyy = of.values()
    variance = f"clamp_min({wyy} / ({w} > 0) - ({wy} / {w}) * ({wy} / {w}), {_SPREAD})"
    return f"{variance} * {ww} / ({w} * {w})"


def _fell(timing: Timing) -> Rule:
    change, low, high = (_looked_up(WEEK.format(end), "") for end in ("change", "change_low", "change_high"))
    was = _looked_up(WEEK.format("mean"), "")
    return _alert(
        "RagtraceConsistencyFell",
        f"{WEEK.format('fallen')} > 0",
        "critical",
        f"answers agree less with their sources than they used to in {_WHERE}",
        f"Mean consistency of the last {timing.spike}: {_looked_up(f'ragtrace:{timing.spike}:value', '')}, and {was} in "
        f"the same hours of the past week: changed by {change} (95 % interval {low} to {high}), scored by {_WHO}. "
        "The words of answers are less supported than usual; that alone does not prove hallucinations. Compare question, "
        "chunks and answer of the calls with the lowest scores, and look for what changed: release, prompt, model, index. The alert "
        "ends when the mean is back, or when the low level has become the usual one of the past week.",
    )


def alerts(timing: Timing) -> Rule:
    """Return the rule group of the alerts, with the recording rules of their states."""
    made = (
        _spike,
        _corrected_spike,
        _slow_burn,
        _fell,
        _no_data,
        _judge_failing,
        _dropped,
        _not_posted,
        _guard_blocks,
        _guard_blind,
    )
    return {
        "name": "ragtrace-alerts",
        "interval": timing.interval,
        "rules": [*_memory(timing), *(alert(timing) for alert in made)],
    }


def _beyond(low: str, high: str) -> str:
    """Return the query for series whose *low* is above, or whose *high* is below, the objective of their metric."""
    on = f"on ({METRIC}) group_left ()"
    return f"{low} > {on} {MOST} or {high} < {on} {LEAST}"


def _memory(timing: Timing) -> list[Rule]:
    w = f'{MOMENTS}{{{MOMENT}="w"}}'
    low, high, value = (f"ragtrace:{timing.spike}:{end}" for end in ("low", "high", "value"))
    begins = f"group by ({BY}) ({_beyond(low, high)})"
    # Over only when the estimate itself is back, and never because there is nothing to see any more.
    goes_on = f"{ACTIVE} and on ({BY}) ({_beyond(value, value)})"
    unseen = f"{ACTIVE} and on ({BY}) {KNOWN} unless on ({BY}) {FRESH}"
    fresh = f"group by ({BY}) (sum by ({BY}) (increase({w}[{timing.quiet}])) > 0) and on ({BY}) {w}"
    low, high, value = (f"ragtrace:{timing.spike}_corrected:{end}" for end in ("low", "high", "value"))
    corrected_begins = f"group by ({BY}) ({_beyond(low, high)})"
    # A stale calibration ends nothing: the corrected rate is unknown. One that no process has any more ends it.
    of_calibration = ", ".join(label for label in SERIES if label != WORKFLOW)
    known = f"on ({of_calibration}) last_over_time({CALIBRATION_HOLDS}[{timing.memory}]) and on ({METRIC}) ({MOST} or {LEAST})"
    on = f"on ({METRIC}) group_left ()"
    back = f"({value} <= {on} {MOST} or {value} >= {on} {LEAST})"
    stays = f"{CORRECTED_ACTIVE} and {known} unless on ({BY}) {back}"
    return [
        {"record": KNOWN, "expr": f"group by ({BY}) (last_over_time({w}[{timing.memory}]))"},
        {"record": FRESH, "expr": fresh},
        {"record": ACTIVE, "expr": f"({begins}) or ({goes_on}) or ({unseen})"},
        {"record": CORRECTED_ACTIVE, "expr": f"({corrected_begins}) or ({stays})"},
    ]


def _alert(name: str, expr: str, severity: str, summary: str, description: str, wait: str = "") -> Rule:
    rule: Rule = {"alert": name, "expr": expr, **({"for": wait} if wait else {}), "labels": {"severity": severity}}
    return {**rule, "annotations": {"summary": summary, "description": description}}


_WHERE: Final = f"{{{{ $labels.{JOB} }}}}, workflow {{{{ $labels.{WORKFLOW} }}}}"
_WHAT: Final = f"{{{{ $labels.{METRIC} }}}}"
_WHO: Final = f"{{{{ $labels.{EVALUATOR} }}}}"


def _looked_up(record: str, form: str = "humanizePercentage") -> str:
    """Return an alert template that shows the value of *record* for the series of the alert, formatted as *form*."""
    matchers = ",".join(f"{label}=%q" for label in SERIES)
    values = " ".join(f"$labels.{label}" for label in SERIES)
    asked = f'{{{{ with printf "{record}{{{matchers}}}" {values} | query }}}}'
    shown = f". | first | value | {form}" if form else '. | first | value | printf "%.3f"'
    return f"{asked}{{{{ {shown} }}}}{{{{ else }}}}unknown{{{{ end }}}}"


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
        "side of the objective. A rate that is just on its good side gets there now and then, as the rule looks all the time; "
        "one that is well on it does not. Compare question, chunks and answer of the worst calls, and look for "
        "what changed: release, prompt, model, index. The alert ends when the mean is back on the good side; it does not end while no scores come in.",
    )


def _corrected_spike(timing: Timing) -> Rule:
    corrected = f"{timing.spike}_corrected"
    return _alert(
        "RagtraceCorrectedSpike",
        f"{CORRECTED_ACTIVE} > 0",
        "critical",
        f"{_WHAT}, corrected by human labels, is worse than its objective in {_WHERE}",
        f"Rate of the last {timing.spike} that human labels would show: {_interval(corrected)}; by {_WHO} itself "
        f"{_looked_up(f'ragtrace:{timing.spike}:value')}. The whole corrected interval, which counts the errors of judge and "
        "labels, is on the bad side of the objective. Compare question, chunks and answer of the worst calls, and look for what "
        "changed: release, prompt, model, index. The alert ends when the corrected rate is back on the good side; it does "
        "not end while no scores come in, or while the calibration is stale.",
    )


def _slow_burn(timing: Timing) -> Rule:
    low, high = (f"ragtrace:{timing.slow}:{end}" for end in ("low", "high"))
    return _alert(
        "RagtraceSlowBurn",
        f"({_beyond(low, high)}) unless on ({BY}) {ACTIVE}",
        "warning",
        f"{_WHAT} has been a little worse than its objective for hours in {_WHERE}",
        f"Mean of the last {timing.slow}: {_interval(timing.slow)}, scored by {_WHO}. The difference is too small to show in "
        f"{timing.spike}, but shows over {timing.slow}. A rate that is just on the good side of the objective gets there now and then.",
    )


def _no_data(timing: Timing) -> Rule:
    return _alert(
        "RagtraceNoData",
        f"{KNOWN} unless on ({BY}) {FRESH}",
        "info",
        f"no new scores of {_WHAT} from {_WHERE}",
        f"{_WHO} scored calls within the last {timing.memory}, but none in the last {timing.quiet}. The application is "
        "down, has no traffic, as at night, or its calls are not scored. The quality of its answers is unknown. To be paged where that "
        "is unusual, use the application's own alert, which learns the usual gaps.",
        timing.patience,
    )


def _judge_failing(timing: Timing) -> Rule:
    by = f"sum by ({JOB}, {EVALUATOR})"
    failed = f'{by} (increase({CALLS}{{{OUTCOME}="failed"}}[{timing.trouble}]))'
    tried = f'{by} (increase({CALLS}{{{OUTCOME}=~"scored|partial|failed"}}[{timing.trouble}]))'
    is_open = f'group by ({JOB}, {EVALUATOR}) ({JUDGE_STATE}{{{BREAKER}="open"}} > 0)'
    return _alert(
        "RagtraceJudgeFailing",
        f"({failed} / {tried} > 0.2 and {failed} >= 5) or {is_open}",
        "warning",
        f"the evaluator {_WHO} fails in {{{{ $labels.{JOB} }}}}",
        f"More than a fifth of its calls in the last {timing.trouble} got no score, or its circuit breaker is open, so that it is "
        "not asked. Scores are missing; this says nothing about the answers. For the reasons see the dashboard, or run: ragtrace doctor.",
    )


def _risen(series: str, window: str) -> str:
    """Return the query for counters that rose within *window*, new ones included, whose first value `increase` misses."""
    return f"increase({series}[{window}]) > 0 or ({series} > 0 unless {series} offset {window})"


def _dropped(timing: Timing) -> Rule:
    lost = f'{CALLS}{{{OUTCOME}="dropped", {REASON}!="spooled"}}'
    return _alert(
        "RagtraceCallsDropped",
        f"sum by ({JOB}, {EVALUATOR}, {REASON}) ({_risen(lost, timing.trouble)}) > 0",
        "warning",
        f"calls are dropped unscored in {{{{ $labels.{JOB} }}}}: {{{{ $labels.{REASON} }}}}",
        f"{{{{ $value | humanize }}}} calls were not scored by {_WHO} in the last {timing.trouble}. Estimates "
        "stay right as long as the loss has nothing to do with quality. Raise Limits(capacity=), or lower the sampling rate.",
    )


def _rises(verdicts: str, timing: Timing) -> str:
    """Return the query for workflows in which the share of answers with one of *verdicts* is higher than the day before.

    Higher by four standard errors, of 100 answers at least against 1,000.
    """
    by, past = f"sum by ({JOB}, {WORKFLOW})", f"[{timing.memory}] offset {timing.spike}"
    some = f'{GUARDED}{{{VERDICT}=~"{verdicts}"}}'
    now, all_now = f"{by} (increase({some}[{timing.spike}]))", f"{by} (increase({GUARDED}[{timing.spike}]))"
    all_before = f"{by} (increase({GUARDED}{past}))"
    share = f"(({by} (increase({some}{past})) or 0 * {all_before}) / {all_before})"
    error = f"sqrt(({share} * (1 - {share}) + 1 / {all_now}) / {all_now})"
    return f"({now} / {all_now} - {share} > 4 * {error}) and {all_now} >= 100 and {all_before} >= 1000"


def _guard_blocks(timing: Timing) -> Rule:
    return _alert(
        "RagtraceGuardBlocks",
        _rises("fail", timing),
        "warning",
        f"the guard fails more answers than usual in {_WHERE}",
        f"The share of answers that failed in the last {timing.spike} is {{{{ $value | humanizePercentage }}}} higher than in the day "
        "before. Either the answers are worse, or the guard fails good ones: read some of them before the bound is changed.",
    )


def _guard_blind(timing: Timing) -> Rule:
    return _alert(
        "RagtraceGuardBlind",
        _rises(UNCHECKED, timing),
        "warning",
        f"the guard checks fewer answers than usual in {_WHERE}",
        f"The share of answers that were not checked in the last {timing.spike} is {{{{ $value | humanizePercentage }}}} higher than in "
        'the day before; they left unchecked or, with on_error="closed", were treated as failed. For the reasons see the '
        "dashboard, or run: ragtrace doctor.",
    )


def _not_posted(timing: Timing) -> Rule:
    sink = prometheus_name(semconv.SINK)
    lost = f'{POSTED}{{{OUTCOME}=~"failed|dropped"}}'
    return _alert(
        "RagtraceScoresNotPosted",
        f"sum by ({JOB}, {sink}, {REASON}) ({_risen(lost, timing.trouble)}) > 0",
        "warning",
        f"scores do not reach {{{{ $labels.{sink} }}}} from {{{{ $labels.{JOB} }}}}: {{{{ $labels.{REASON} }}}}",
        f"{{{{ $value | humanize }}}} scores in the last {timing.trouble} were not accepted by the backend's own API. They "
        "are still in spans, events and metrics. The application's log says what the backend answered.",
    )


def files(timing: Timing | None = None) -> dict[str, list[Rule]]:
    """Return the groups of every rule file, by its name."""
    timing = timing or Timing()
    return {
        "objectives.rules.yml": [objectives()],
        "estimates.rules.yml": [*estimates(timing), week(timing)],
        "alerts.rules.yml": [alerts(timing)],
    }
