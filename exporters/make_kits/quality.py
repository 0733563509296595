"""Panels on quality: estimates with their intervals, single scores, alerts."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, heatmap, statetimeline, table
from grafana_foundation_sdk.models import common as units
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from exporters.make_kits.names import (
    ALERT_STATE,
    CALLS,
    EVALUATOR,
    JOB,
    JUDGE_STATE,
    METRIC,
    SCORE,
    SCORES,
    SERIES,
    WORKFLOW,
)
from exporters.make_kits.panels import (
    HALF,
    HERE,
    RATE,
    SERVICE,
    SOURCE,
    Panel,
    at_once,
    fixed,
    legend,
    lines,
    query,
    style,
)
from exporters.make_kits.rules import FRESH, LEAST, MOST, WEEK, Timing, label_of_state
from ragtrace.core import semconv
from ragtrace_exporters.openmetrics.naming import label_name

_BY: Final = ", ".join(SERIES)
_SHOWN: Final = f'{HERE}, {METRIC}=~"hallucinated|consistency|answered_without_context|$metric"'
_PERCENT: Final = {"unit": "percentunit", "decimals": 1}
_STATES: Final = (
    ("ok", "green"),
    ("pending", "light-yellow"),
    ("recovering", "yellow"),
    ("no baseline", "light-blue"),
    ("no data", "blue"),
    ("judge failing", "purple"),
    ("firing", "orange"),
    ("spiking", "red"),
)
"""What a row of the alerts can show, the worst last; the number of a state is its place, from 1."""
_CODE: Final = {name: number for number, (name, _) in enumerate(_STATES, start=1)}


def now() -> Panel:
    """Every estimate of the moment in figures."""
    value = f"ragtrace:${{window}}:value{{{_SHOWN}}}"
    counted = f"round(sum by ({_BY}) (increase({SCORES}{{{_SHOWN}}}[${{window}}]))) and on ({_BY}) {value}"
    objective = f"sum by ({_BY}) (0 * {value}) + on ({METRIC}) group_left () ({MOST} or {LEAST})"
    columns = {
        "estimate": f"sum by ({_BY}) ({value})",
        "95 % low": f"sum by ({_BY}) (ragtrace:${{window}}:low{{{_SHOWN}}})",
        "95 % high": f"sum by ({_BY}) (ragtrace:${{window}}:high{{{_SHOWN}}})",
        "objective": objective,
        "scored calls": counted,
    }
    panel = table.Panel().title("Now: last $window, with 95 % intervals").datasource(SOURCE).span(14).height(6)
    panel = panel.description(
        "Estimates for all calls of the window. The truth is between low and high in 95 of 100 cases. objective: at most "
        "for hallucinated, the share of bad answers; at least for faithfulness. scored calls: how many the figure rests "
        "on; calls without a verdict are not among them. Empty: nothing was scored in this window."
    ).no_value("nothing scored")
    names = {f"Value #{chr(65 + number)}": name for number, name in enumerate(columns)}
    names |= {JOB: "service", METRIC: "metric", WORKFLOW: "workflow", EVALUATOR: "scored by"}
    for number, (name, expr) in enumerate(columns.items()):
        panel = panel.with_target(at_once(expr, chr(65 + number)))
        unit = _PERCENT if name != "scored calls" else {"unit": "short", "decimals": 0}
        panel = panel.override_by_name(name, style(**unit))
    order = [METRIC, *(f"Value #{chr(65 + number)}" for number in range(len(columns))), WORKFLOW, EVALUATOR, JOB]
    organized = {
        "excludeByName": {"Time": True},
        "indexByName": {name: number for number, name in enumerate(order)},
        "renameByName": names,
    }
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=organized))


def _of(metric: str, end: str) -> str:
    return f'ragtrace:${{window}}:{end}{{{HERE}, {METRIC}="{metric}"}}'


def _with_interval(
    metric: str, title: str, description: str, objective: str, *, compared_with: str = "objective"
) -> Panel:
    """Return a mean with its band, and what it is compared with as a dashed line; the newest figures in the legend."""
    panel = lines(
        title,
        f"{description} Over the last $window at every moment, so a change shows in full only after $window. Shaded: a "
        "spike, by the Prometheus rules or by the application's own alert.",
        query(_of(metric, "value"), "mean"),
        query(_of(metric, "low"), "95 % low", ref="B"),
        query(_of(metric, "high"), "95 % high", ref="C"),
        query(objective, compared_with, ref="D"),
        unit="percentunit",
    ).legend(legend("lastNotNull"))
    band = {"custom__lineWidth": 0, "color": fixed("blue")}
    above = {"custom__fillBelowTo": "95 % low", "custom__fillOpacity": 25, **band}
    dashes = {"custom__lineStyle": {"fill": "dash", "dash": [8, 8]}, "custom__lineWidth": 1, "custom__fillOpacity": 0}
    panel = panel.override_by_name("mean", style(color=fixed("blue"), custom__fillOpacity=0))
    panel = panel.override_by_name("95 % high", style(**above))
    panel = panel.override_by_name("95 % low", style(custom__fillOpacity=0, **band))
    return panel.override_by_name(compared_with, style(color=fixed("red"), **dashes))


def estimates() -> list[Panel]:
    """Return the four panels of a workflow; each axis is as long as its data, from its good end."""
    hallucinated = _with_interval(
        "hallucinated",
        "Hallucination rate in $workflow",
        "Share of the answers with at least one statement that no retrieved passage supports, by the verdicts of the "
        "configured judge; empty without one. Low is good: bad is a band wholly above the objective.",
        f'{MOST}{{{METRIC}="hallucinated"}}',
    )
    consistency = _with_interval(
        "consistency",
        "Consistency in $workflow, against its past week",
        "How far the words of answers agree with the retrieved passages, on every call, without a judge. The scale "
        "belongs to the application: compare with the same hours of its past week (broken line), not with 100 %.",
        f'{WEEK.format("mean")}{{{HERE}, {METRIC}="consistency"}}',
        compared_with="same hours of the past week",
    )
    without_context = _with_interval(
        "answered_without_context",
        "Answers without any context in $workflow",
        "Share of the answers that were given although retrieval returned nothing: the plainest sign of an ungrounded "
        "answer and of a broken retriever. Low is good.",
        f'{MOST}{{{METRIC}="answered_without_context"}}',
    )
    chosen = _with_interval(
        "$metric",
        "Chosen metric: $metric in $workflow",
        "The metric chosen above, scored by $evaluator; suspicious, for one, is the share of answers that agree less with "
        "their passages than 95 % of the application's baseline. An objective is drawn if the rules have one.",
        f'{MOST}{{{METRIC}="$metric"}} or {LEAST}{{{METRIC}="$metric"}}',
    )
    panels = [
        hallucinated.max(None).axis_soft_max(0.1),
        consistency.min(None).axis_soft_min(0.6).axis_soft_max(1),
        without_context.max(None).axis_soft_max(0.05),
        chosen.min(None).axis_soft_max(0.1),
    ]
    return [panel.span(HALF) for panel in panels]


def distribution() -> Panel:
    """Single scores, with the way to their traces."""
    counted = f'sum by (le) (increase({SCORE}{{{HERE}, {METRIC}="$metric", {EVALUATOR}="$evaluator"}}{RATE}))'
    colour = heatmap.HeatmapColorOptions().scheme("Blues").mode(heatmap_model.HeatmapColorMode.SCHEME).steps(32)
    panel = heatmap.Panel().title("Distribution of scores: $metric by $evaluator").datasource(SOURCE).span(14).height(9)
    panel = panel.description(
        "How many scored calls got which score: a row is a range of scores, a stronger colour is more calls (scale below). "
        "A mean hides whether many answers are a little worse or a few are entirely wrong; here it shows. A diamond is "
        "one call: click it to open its trace (the data source needs a link for exemplars, see the kit). Each row keeps "
        "only its last call, so that rare scores have as many diamonds as frequent ones: count colours, not diamonds."
    )
    panel = panel.calculate(False).color(colour).exemplars_color("rgba(255,120,10,0.9)").show_legend()
    return panel.with_target(query(counted, "{{le}}", exemplars=True).format(PromQueryFormat.HEATMAP))


def alerts(timing: Timing) -> Panel:
    """One row an alert, coloured by its state."""
    panel = statetimeline.Panel().title("Alerts and their states").datasource(SOURCE).span(10).height(9)
    by_value = dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)
    panel = panel.merge_values(True).show_value(units.VisibilityMode.AUTO).legend(legend()).no_value("none")
    panel = panel.row_height(0.8).fill_opacity(80).color_scheme(by_value).mappings([_mapping()])
    panel = panel.description(
        f"A row is an alert. Rules look at a window (in brackets), so they lag behind: a spike of a rule begins when the "
        f"interval of the last {timing.spike} is wholly worse than the objective and ends when the mean of {timing.spike} "
        f"is back; a slow burn is the same over {timing.slow}, and may follow a spike that is long over. The rows "
        "*application* are alerts that the application was configured with: each has its condition for a name, and goes call by call. Losses: calls dropped, or scores that "
        "a backend did not take. Blank: there was nothing to judge by, which is neither good nor bad."
    )
    for number, (name, expr) in enumerate(_rows(timing)):
        panel = panel.with_target(query(expr, name, ref=chr(65 + number)))
    return panel


def _mapping() -> model.ValueMap:
    shown = enumerate(_STATES, start=1)
    return model.ValueMap(
        options={
            str(number): model.ValueMappingResult(text=name, color=colour, index=number)
            for number, (name, colour) in shown
        }
    )


def _rows(timing: Timing) -> list[tuple[str, str]]:
    name, workflow, of_model = (
        label_name(each) for each in (semconv.ALERT_NAME, semconv.WORKFLOW_NAME, semconv.REQUEST_MODEL)
    )
    estimated = "group(ragtrace:{}:value{{" + HERE + "}})"
    asked = f"group({CALLS}{{{SERVICE}}})"
    return [
        (
            f"application: {{{{{name}}}}} {{{{{workflow}}}}} {{{{{of_model}}}}}",
            f"max by ({name}, {workflow}, {of_model}) ({_own()})",
        ),
        (f"rule: spike ({timing.spike})", _rule("RagtraceSpike", "spiking", estimated.format(timing.spike), HERE)),
        (f"rule: slow burn ({timing.slow})", _rule("RagtraceSlowBurn", "firing", estimated.format(timing.slow), HERE)),
        (f"rule: no data ({timing.quiet})", _rule("RagtraceNoData", "no data", f"group({FRESH}{{{HERE}}})", HERE)),
        (f"rule: judge failing ({timing.trouble})", _rule("RagtraceJudgeFailing", "judge failing", asked, SERVICE)),
        (f"circuit breaker: {{{{{EVALUATOR}}}}}", _breakers()),
        (
            f"rule: losses ({timing.trouble})",
            _rule("RagtraceCallsDropped|RagtraceScoresNotPosted", "firing", asked, SERVICE),
        ),
    ]


def _rule(alert: str, state: str, looked: str, where: str) -> str:
    """The number of a rule's state: fine only while *looked* says that it had something to look at."""
    found = f'max(ALERTS{{alertname=~"{alert}", alertstate="{{}}", {where}}})'
    firing, pending = found.replace("{}", "firing"), found.replace("{}", "pending")
    return f"{firing} * {_CODE[state]} or {pending} * {_CODE['pending']} or {looked}"


def _own() -> str:
    state = label_name(semconv.ALERT_STATE)
    codes = {name.replace(" ", "_"): number for name, number in _CODE.items() if name not in ("pending", "firing")}
    each = (f'({ALERT_STATE}{{{SERVICE}, {state}="{name}"}} == 1) * {number}' for name, number in codes.items())
    return " or ".join(each)


def _breakers() -> str:
    shown = {"closed": "ok", "half_open": "recovering", "open": "judge failing"}
    each = (
        f'({JUDGE_STATE}{{{SERVICE}, {label_of_state()}="{state}"}} == 1) * {_CODE[name]}'
        for state, name in shown.items()
    )
    return f"max by ({EVALUATOR}) ({' or '.join(each)})"
