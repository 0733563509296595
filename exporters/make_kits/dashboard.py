"""The Grafana dashboard, built with Grafana's own library."""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as units
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from exporters.make_kits import rules
from ragtrace.core import semconv
from ragtrace.estimates.promql import CALIBRATION_HOLDS, RAW_PROBABILITY, prometheus_name

Panel = Any
SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
HERE: Final = f'{rules.JOB}=~"$service", {rules.WORKFLOW}=~"$workflow"'
SERVICE: Final = f'{rules.JOB}=~"$service"'
RATE: Final = "[$__rate_interval]"
CALLS_A_SECOND: Final = "suffix: calls/s"
FULL, HALF, THIRD = 24, 12, 8


def query(expr: str, legend: str = "", *, ref: str = "A", exemplars: bool = False) -> prometheus.Dataquery:
    """Return a query over the time range shown."""
    found = prometheus.Dataquery().expr(expr).legend_format(legend or "__auto").ref_id(ref).datasource(SOURCE)
    return found.exemplar(exemplars).range()


def legend(*calculated: str) -> common.VizLegendOptions:
    """Return a legend below the plot, with the *calculated* figures of each series."""
    found = common.VizLegendOptions().display_mode(units.LegendDisplayMode.LIST).show_legend(True)
    return found.placement(units.LegendPlacement.BOTTOM).calcs(list(calculated))


def lines(
    title: str, description: str, *queries: prometheus.Dataquery, unit: str = "short", span: int = THIRD
) -> Panel:
    """Return a panel of lines over time, with an axis from 0."""
    panel = timeseries.Panel().title(title).description(description).datasource(SOURCE).unit(unit)
    panel = panel.span(span).height(8).line_width(2).fill_opacity(8).min(0).show_points(units.VisibilityMode.NEVER)
    panel = panel.legend(legend()).tooltip(
        common.VizTooltipOptions().mode(units.TooltipDisplayMode.MULTI).sort(units.SortOrder.DESCENDING)
    )
    for each in queries:
        panel = panel.with_target(each)
    return panel


def style(**properties: object) -> list[model.DynamicConfigValue]:
    """Return the display properties of one series; `__` in a name stands for a dot."""
    return [model.DynamicConfigValue(id_val=key.replace("__", "."), value=value) for key, value in properties.items()]


def fixed(colour: str) -> dict[str, str]:
    """Return a colour that does not depend on the value."""
    return {"mode": "fixed", "fixedColor": colour}


_READ_ME: Final = """\
**Hallucination rate**: the share of answers in which the judge found at least one statement that the retrieved passages \
do not support. It needs a judge. **Consistency** compares the words of answer and passages on every call, without a \
judge. Compare it only with the application's own past. All figures are estimates for *all* calls, although a judge scores \
only a sample; the band is the 95 % interval. The **objective** (dashed line) is the worst value that is still acceptable; \
you set it in the Prometheus rules.

**Read the band, not the line.** If the whole band is worse than the objective, it is a **spike**. If the objective is \
inside the band, the difference may be chance. Every point covers the last $window, so a change needs $window to show in \
full, and $window to disappear. **No line**: nothing was scored; quality is unknown. **Red shading**: a spike. \
**Alerts**: the rules use the window in brackets, so they start and end later than the application's own alert, which \
checks every call. A slow burn can fire after its cause is over.

**Evaluators**: *embedded* is built in and scores every call; a *judge* is the model that you configured and scores a \
sample. The choice *Evaluator* above lists those that score the chosen *Metric*. To read bad answers, click a low diamond \
in *Distribution of scores*: it opens the trace of that call. The documentation of ragtrace defines the metrics.
"""


def _choice(name: str, label: str, metric: str, of: str, where: str = "", *, several: bool) -> dashboard.QueryVariable:
    asked = f"label_values({metric}{f'{{{where}}}' if where else ''}, {of})"
    found = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query({"query": asked, "refId": name})
    found = found.sort(model.VariableSort.ALPHABETICAL_ASC).refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    every = model.VariableOption(selected=True, text="All", value="$__all")
    return found.multi(True).include_all(True).current(every) if several else found.multi(False)


def _variables(timing: rules.Timing) -> list[Any]:
    names = (timing.spike, timing.slow)
    windows = [model.VariableOption(selected=value == timing.spike, text=value, value=value) for value in names]
    metric = _choice("metric", "Metric", rules.SCORE, rules.METRIC, SERVICE, several=False)
    estimated = f'{SERVICE}, {rules.METRIC}="$metric"'
    return [
        dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        _choice("service", "Service", rules.MOMENTS, rules.JOB, several=True),
        _choice("workflow", "Workflow", rules.MOMENTS, rules.WORKFLOW, SERVICE, several=True),
        metric.current(model.VariableOption(selected=True, text="suspicious", value="suspicious")),
        _choice("evaluator", "Evaluator", rules.MOMENTS, rules.EVALUATOR, estimated, several=False),
        dashboard.CustomVariable("window").label("Window").values(",".join(names)).options(windows).current(windows[0]),
    ]


def _count(title: str, description: str, expr: str, legend: str, span: int) -> Any:
    panel = stat.Panel().title(title).description(description).datasource(SOURCE).span(span).height(6)
    panel = panel.graph_mode(units.BigValueGraphMode.NONE).no_value("no data").unit("short").decimals(0)
    return panel.with_target(query(expr, legend))


def _overview() -> list[Panel]:
    limits = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
    limits = limits.steps([model.Threshold(value=None, color="green"), model.Threshold(value=1, color="red")])
    spiking = _count(
        "Spiking now",
        "Number of spikes by the Prometheus rules, one for each metric and workflow. A spike starts when the whole "
        "interval is worse than the objective, and ends when the mean is back. It does not end while no scores come "
        "in. no data: nothing is scored, so quality is unknown.",
        f"count({rules.ACTIVE}{{{HERE}}}) or 0 * count({rules.FRESH}{{{HERE}}})",
        "metrics, by the rules",
        4,
    )
    scored = _count(
        "Calls scored in the time shown",
        "Calls that each evaluator has processed, including those that got no verdict. All evaluators see the same "
        "calls, so do not add the figures up.",
        f'sum by ({rules.EVALUATOR}) (increase({rules.CALLS}{{{HERE}, {rules.OUTCOME}=~"scored|partial"}}[$__range]))',
        f"by {{{{{rules.EVALUATOR}}}}}",
        6,
    )
    named = units.BigValueTextMode.VALUE_AND_NAME
    return [
        estimates_now(),
        spiking.thresholds(limits).color_mode(units.BigValueColorMode.VALUE).text_mode(named),
        scored.color_mode(units.BigValueColorMode.NONE).text_mode(named),
    ]


_SHOWN: Final = f'{HERE}, {rules.METRIC}=~"hallucinated|consistency|answered_without_context|$metric"'
_STATES: Final = (
    ("ok", "green"),
    ("pending", "light-yellow"),
    ("recovering", "yellow"),
    ("no baseline", "light-blue"),
    ("no calibration", "light-purple"),
    ("no data", "blue"),
    ("judge failing", "purple"),
    ("firing", "orange"),
    ("spiking", "red"),
)
"""What a row of the alerts can show, the worst last; the number of a state is its place, from 1."""
_CODE: Final = {name: number for number, (name, _) in enumerate(_STATES, start=1)}


def _headline(matchers: str, end: str) -> str:
    """Return the expression of an estimate, corrected by human labels where a calibration holds: value, low or high."""
    return f"ragtrace:${{window}}_corrected:{end}{{{matchers}}} or ragtrace:${{window}}:{end}{{{matchers}}}"


def estimates_now() -> Panel:
    """Return the table of the current estimates."""
    value = f"ragtrace:${{window}}:value{{{_SHOWN}}}"
    corrected = f"ragtrace:${{window}}_corrected:value{{{_SHOWN}}}"
    counted = (
        f"round(sum by ({rules.BY}) (increase({rules.SCORES}{{{_SHOWN}}}[${{window}}]))) and on ({rules.BY}) {value}"
    )
    objective = f"sum by ({rules.BY}) (0 * {value}) + on ({rules.METRIC}) group_left () ({rules.MOST} or {rules.LEAST})"
    columns = {
        "estimate": f"sum by ({rules.BY}) ({_headline(_SHOWN, 'value')})",
        "95 % low": f"sum by ({rules.BY}) ({_headline(_SHOWN, 'low')})",
        "95 % high": f"sum by ({rules.BY}) ({_headline(_SHOWN, 'high')})",
        "before correction": f"sum by ({rules.BY}) ({value} and {corrected})",
        "objective": objective,
        "scored calls": counted,
    }
    panel = table.Panel().title("Now: last $window, with 95 % intervals").datasource(SOURCE).span(14).height(6)
    panel = panel.description(
        "Estimates of the long-run rate behind all calls of the window. before correction: the rate as the judge sees "
        "it, where the application has a calibration that holds; estimate, low and high are then the rate that human "
        "labels would show. Where that column is empty, all three are the judge's own view, errors of the judge "
        "included. In 95 of 100 windows low and high enclose the rate in question, if calls are independent of each "
        "other. objective: the upper limit of hallucinated and answered_without_context, the lower limit of "
        "faithfulness. scored calls: the number of scores behind the estimate; calls without a verdict are not counted. "
        "Empty: nothing was scored in this window, or the scores are a decision model's uncalibrated probabilities, whose "
        "mean is not a rate."
    ).no_value("nothing scored")
    values = [f"Value #{chr(65 + number)}" for number in range(len(columns))]
    names = dict(zip(values, columns, strict=True))
    names |= {rules.JOB: "service", rules.METRIC: "metric", rules.WORKFLOW: "workflow", rules.EVALUATOR: "scored by"}
    for number, (name, expr) in enumerate(columns.items()):
        target = prometheus.Dataquery().expr(expr).legend_format("__auto").ref_id(chr(65 + number)).datasource(SOURCE)
        panel = panel.with_target(target.instant().format(PromQueryFormat.TABLE))
        unit = {"unit": "percentunit", "decimals": 1} if name != "scored calls" else {"unit": "short", "decimals": 0}
        panel = panel.override_by_name(name, style(**unit))
    order = [rules.METRIC, *values, rules.WORKFLOW, rules.EVALUATOR, rules.JOB]
    index = {name: number for number, name in enumerate(order)}
    organized = {"excludeByName": {"Time": True}, "indexByName": index, "renameByName": names}
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=organized))


def _with_interval(
    metric: str, title: str, description: str, objective: str, *, compared_with: str = "objective"
) -> Panel:
    """Return a mean with its band, and what it is compared with as a dashed line; the newest figures in the legend."""
    matchers = f'{HERE}, {rules.METRIC}="{metric}"'
    of_judge = f"ragtrace:${{window}}:value{{{matchers}}} and ragtrace:${{window}}_corrected:value{{{matchers}}}"
    panel = lines(
        title,
        f"{description} Every point covers the last $window, so a change needs $window to show in full. Shaded: a spike, by "
        "the Prometheus rules or by the application's own alert. Where a calibration holds, mean and band are the rate "
        "that human labels would show, and before correction is the judge's own; elsewhere they are the judge's own.",
        query(_headline(matchers, "value"), "mean"),
        query(_headline(matchers, "low"), "95 % low", ref="B"),
        query(_headline(matchers, "high"), "95 % high", ref="C"),
        query(objective, compared_with, ref="D"),
        query(of_judge, "before correction", ref="E"),
        unit="percentunit",
    ).legend(legend("lastNotNull"))
    band = {"custom__lineWidth": 0, "color": fixed("blue")}
    above = {"custom__fillBelowTo": "95 % low", "custom__fillOpacity": 25, **band}
    dashes = {"custom__lineStyle": {"fill": "dash", "dash": [8, 8]}, "custom__lineWidth": 1, "custom__fillOpacity": 0}
    panel = panel.override_by_name("mean", style(color=fixed("blue"), custom__fillOpacity=0))
    panel = panel.override_by_name("95 % high", style(**above))
    panel = panel.override_by_name("95 % low", style(custom__fillOpacity=0, **band))
    return panel.override_by_name(compared_with, style(color=fixed("red"), **dashes))


def workflow_panels() -> list[Panel]:
    """Return the four panels of a workflow; each axis begins at the good end of the metric and fits its data."""
    hallucinated = _with_interval(
        "hallucinated",
        "Hallucination rate in $workflow",
        "Share of the answers with at least one statement that no retrieved passage supports, as the configured judge "
        "decided. Empty without a judge. Low is good. Act when the whole band is above the objective.",
        f'{rules.MOST}{{{rules.METRIC}="hallucinated"}}',
    )
    consistency = _with_interval(
        "consistency",
        "Consistency in $workflow, against its past week",
        "How well the words of answers agree with the retrieved passages, on every call, without a judge. Every "
        "application has its own scale: compare with the same hours of the past week (dashed line), not with 100 %.",
        f'{rules.WEEK.format("mean")}{{{HERE}, {rules.METRIC}="consistency"}}',
        compared_with="same hours of the past week",
    )
    without_context = _with_interval(
        "answered_without_context",
        "Answers without any context in $workflow",
        "Share of the answers that were given although retrieval returned nothing. Such answers are ungrounded, and "
        "the retriever may be broken. Low is good.",
        f'{rules.MOST}{{{rules.METRIC}="answered_without_context"}}',
    )
    chosen = _with_interval(
        "$metric",
        "Chosen metric: $metric in $workflow",
        "The metric chosen above, scored by $evaluator. Example: suspicious is the share of answers whose consistency "
        "is among the lowest 5 % of the application's baseline. The objective is drawn if the rules have one.",
        f'{rules.MOST}{{{rules.METRIC}="$metric"}} or {rules.LEAST}{{{rules.METRIC}="$metric"}}',
    )
    panels = [
        hallucinated.max(None).axis_soft_max(0.1),
        consistency.min(None).axis_soft_min(0.6).axis_soft_max(1),
        without_context.max(None).axis_soft_max(0.05),
        chosen.min(None).axis_soft_max(0.1),
    ]
    return [panel.span(HALF) for panel in panels]


def distribution() -> Panel:
    """Return the heatmap of scores, whose exemplars link to traces."""
    counted = f'sum by (le) (increase({rules.SCORE}{{{HERE}, {rules.METRIC}="$metric", {rules.EVALUATOR}="$evaluator"}}{RATE}))'
    colour = heatmap.HeatmapColorOptions().scheme("Blues").mode(heatmap_model.HeatmapColorMode.SCHEME).steps(32)
    panel = heatmap.Panel().title("Distribution of scores: $metric by $evaluator").datasource(SOURCE).span(14).height(9)
    panel = panel.description(
        "Number of calls by score. A row is a range of scores; a stronger colour is more calls (scale below). Use it "
        "to see whether many answers are a little worse or a few are entirely wrong. A diamond is one call: click "
        "it to open its trace (the data source needs a link for exemplars, see the README of the kit). Each row "
        "keeps only its latest call, so the number of diamonds says nothing about the number of calls."
    )
    panel = panel.calculate(False).color(colour).exemplars_color("rgba(255,120,10,0.9)").show_legend()
    return panel.with_target(query(counted, "{{le}}", exemplars=True).format(PromQueryFormat.HEATMAP))


def alert_states(timing: rules.Timing) -> Panel:
    """Return the panel with a row for each alert, coloured by its state."""
    panel = statetimeline.Panel().title("Alerts and their states").datasource(SOURCE).span(10).height(9)
    by_value = dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)
    panel = panel.merge_values(True).show_value(units.VisibilityMode.AUTO).legend(legend()).no_value("none")
    results = {
        str(number): model.ValueMappingResult(text=name, color=colour, index=number)
        for number, (name, colour) in enumerate(_STATES, start=1)
    }
    panel = panel.row_height(0.8).fill_opacity(80).color_scheme(by_value).mappings([model.ValueMap(options=results)])
    panel = panel.description(
        f"One row for each alert. Rules use a window (in brackets), so they lag behind. A spike starts when the whole "
        f"interval of the last {timing.spike} is worse than the objective, and ends when the mean of {timing.spike} is back. "
        f"A slow burn is the same over {timing.slow}; it can fire after a spike that is long over. The rows *application* are "
        "alerts that the application configured: the name is the condition, and every call is checked. Losses: calls that "
        "were dropped, or scores that a backend did not accept. Blank: there were no data; quality is unknown."
    )
    name, workflow, of_model = map(prometheus_name, (semconv.ALERT_NAME, semconv.WORKFLOW_NAME, semconv.REQUEST_MODEL))
    estimated = "group(ragtrace:{}:value{{" + HERE + "}})"
    asked, fresh = f"group({rules.CALLS}{{{SERVICE}}})", f"group({rules.FRESH}{{{HERE}}})"
    losses = "RagtraceCallsDropped|RagtraceScoresNotPosted"
    of_state = f'{rules.ALERT_STATE}{{{SERVICE}, {prometheus_name(semconv.ALERT_STATE)}="{{}}"}} == 1'
    codes = {name.replace(" ", "_"): number for name, number in _CODE.items() if name not in ("pending", "firing")}
    states = [f"({of_state.replace('{}', name)}) * {number}" for name, number in codes.items()]
    shown = {"closed": "ok", "half_open": "recovering", "open": "judge failing"}
    of_breaker = f'{rules.JUDGE_STATE}{{{SERVICE}, {rules.BREAKER}="{{}}"}} == 1'
    breakers = [f"({of_breaker.replace('{}', state)}) * {_CODE[name]}" for state, name in shown.items()]
    rows = [
        (
            f"application: {{{{{name}}}}} {{{{{workflow}}}}} {{{{{of_model}}}}}",
            f"max by ({name}, {workflow}, {of_model}) ({' or '.join(states)})",
        ),
        (f"rule: spike ({timing.spike})", _rule("RagtraceSpike", "spiking", estimated.format(timing.spike), HERE)),
        (
            f"rule: corrected spike ({timing.spike})",
            _rule("RagtraceCorrectedSpike", "spiking", estimated.format(f"{timing.spike}_corrected"), HERE),
        ),
        (f"rule: slow burn ({timing.slow})", _rule("RagtraceSlowBurn", "firing", estimated.format(timing.slow), HERE)),
        (f"rule: no data ({timing.quiet})", _rule("RagtraceNoData", "no data", fresh, HERE)),
        (f"rule: judge failing ({timing.trouble})", _rule("RagtraceJudgeFailing", "judge failing", asked, SERVICE)),
        (f"circuit breaker: {{{{{rules.EVALUATOR}}}}}", f"max by ({rules.EVALUATOR}) ({' or '.join(breakers)})"),
        (f"rule: losses ({timing.trouble})", _rule(losses, "firing", asked, SERVICE)),
    ]
    for number, (title, expr) in enumerate(rows):
        panel = panel.with_target(query(expr, title, ref=chr(65 + number)))
    return panel


def _rule(alert: str, state: str, looked: str, where: str) -> str:
    """Return the query for the number of a rule's state; the state is ok only where the query *looked* has data."""
    found = f'max(ALERTS{{alertname=~"{alert}", alertstate="{{}}", {where}}})'
    firing, pending = found.replace("{}", "firing"), found.replace("{}", "pending")
    return f"{firing} * {_CODE[state]} or {pending} * {_CODE['pending']} or {looked}"


_WHO = f"{{{{{rules.EVALUATOR}}}}}"


def call_panels() -> list[Panel]:
    """Return the panels of calls by outcome, for one evaluator at a time: all evaluators see the same calls."""
    ours = f'{HERE}, {rules.EVALUATOR}="$evaluator"'
    offered = f'{rules.CALLS}{{{ours}, {rules.OUTCOME}="offered"}}'
    fates = f'{rules.CALLS}{{{ours}, {rules.OUTCOME}!="offered"}}'
    reasons = f'{rules.CALLS}{{{ours}, {rules.REASON}!="", {rules.REASON}!="not_sampled"}}'
    renamed = f"sum by ({rules.REASON}, {rules.OUTCOME}) (rate({reasons}{RATE}))"
    renamed = f'label_replace({renamed}, "{rules.OUTCOME}", "scored, no verdict", "{rules.OUTCOME}", "scored")'
    renamed = f'label_replace({renamed}, "{rules.OUTCOME}", "left out", "{rules.OUTCOME}", "sampled_out")'
    by_outcome = lines(
        "Calls by outcome: $evaluator",
        "Calls by outcome for the evaluator chosen above. The line is all calls; the coloured areas add up to it. scored: "
        "processed. sampled_out: left out by sampling; the scored calls represent them. partial: some metrics have no "
        "score. failed: no metric has one. dropped: the queue was full. All evaluators see the same calls, so do not add "
        "evaluators up.",
        query(f"sum by ({rules.OUTCOME}) (rate({fates}{RATE}))", f"{{{{{rules.OUTCOME}}}}}"),
        query(f"sum(rate({offered}{RATE}))", "all calls", ref="B"),
        unit=CALLS_A_SECOND,
        span=HALF,
    )
    stacking = common.StackingConfig().mode(units.StackingMode.NORMAL).group("A")
    by_outcome = by_outcome.fill_opacity(40).line_width(1).stacking(stacking)
    unstacked = {"mode": "none", "group": "B"}
    alone = style(custom__stacking=unstacked, custom__fillOpacity=0, custom__lineWidth=2, color=fixed("text"))
    colours = {"scored": "green", "sampled_out": "blue", "partial": "yellow", "failed": "red", "dropped": "purple"}
    for outcome, colour in colours.items():
        by_outcome = by_outcome.override_by_name(outcome, style(color=fixed(colour)))
    why = lines(
        "No score, by reason: $evaluator",
        "Reasons why calls have no score. Calls that sampling left out (not_sampled) are not shown here. failed: the "
        "judge failed, with a timeout for example. left out: a rule, a budget or the queue of a fleet that was filling "
        "(overload) excluded the call. scored, no verdict: the call was processed, but the metrics do not apply "
        "(abstained: the answer declines; no_claims: it states nothing). None of these calls is part of an estimate.",
        query(renamed, f"{{{{{rules.OUTCOME}}}}}: {{{{{rules.REASON}}}}}"),
        unit=CALLS_A_SECOND,
        span=12,
    )
    return [by_outcome.override_by_name("all calls", alone), why]


def judge_panels() -> list[Panel]:
    """Return the panels of the judge: time, work, tokens, cost and failures."""
    kind = prometheus_name(semconv.TOKEN_TYPE)
    failed = f'{SERVICE}, {rules.OUTCOME}="failed"'
    failed = f"sum by ({rules.EVALUATOR}, {rules.REASON}) (rate({rules.CALLS}{{{failed}}}{RATE}))"
    one = f'{SERVICE}, {rules.EVALUATOR}="$evaluator"'
    judging = f'sum by (le) (rate({rules.JUDGE_SECONDS}{{{one}, {rules.CACHED}=""}}{RATE}))'
    fresh, cached = (f'{rules.JUDGED}{{{one}, {rules.CACHED}{sign}""}}' for sign in ("=", "!="))
    cost = f"sum by ({rules.EVALUATOR}) (rate({rules.JUDGE_COST}{{{SERVICE}}}{RATE})) * 3600"
    return [
        lines(
            "Time to judge a call: $evaluator",
            "Median and p95 (95 of 100 calls take no longer) of calls that were judged, without those answered from "
            "the cache. Times under 10 ms are shown as 10 ms. A gap: nothing was judged. Judging runs in the "
            "background: requests do not wait for it.",
            query(f"histogram_quantile(0.5, {judging})", "median", exemplars=True),
            query(f"histogram_quantile(0.95, {judging})", "p95", ref="B"),
            unit="s",
            span=5,
        ),
        lines(
            "Judged: $evaluator",
            "Calls per second that the evaluator judged. from memory: the same question, passages and answer had been "
            "judged before, so the judge was not asked; these calls cost no time, tokens or money.",
            query(f"sum(rate({fresh}{RATE}))", "judged"),
            query(f"sum(rate({cached}{RATE})) or 0 * sum(rate({rules.JUDGED}{{{one}}}{RATE}))", "from memory", ref="B"),
            unit=CALLS_A_SECOND,
            span=5,
        ),
        lines(
            "Judge tokens per minute",
            "Tokens that the judge read (input) and wrote (output), at the current rate. 0: the judge was not asked, "
            "see the panel Judged. No line: no judge that counts tokens.",
            query(f"60 * sum by ({rules.EVALUATOR}, {kind}) (rate({rules.JUDGE_TOKENS}{{{SERVICE}}}{RATE}))",
                  f"{_WHO} {{{{{kind}}}}}"),
            span=5,
        ),
        lines(
            "Judge cost per hour",
            "Cost at the current rate, in US dollars, by the list prices of the model or the configured price.",
            query(cost, _WHO),
            unit="currencyUSD",
            span=4,
        ),
        lines(
            "Judge failures per second",
            "Calls per second that got no score because the judge failed, by reason. No line: no failure since the "
            "start.",
            query(failed, f"{_WHO} {{{{{rules.REASON}}}}}"),
            span=5,
        ),
    ]  # fmt: skip


def guard_panels() -> list[Panel]:
    """Return the panels of guards: what they found, and how long answers waited."""
    guarded = f"sum by ({rules.WORKFLOW}, {rules.VERDICT}) (rate({rules.GUARDED}{{{HERE}}}{RATE}))"
    whole = f"sum by ({rules.WORKFLOW}) (rate({rules.GUARDED}{{{HERE}}}{RATE}))"
    action = prometheus_name(semconv.GUARD_ACTION)
    acted = f"sum by ({rules.WORKFLOW}, {action}) (rate({rules.GUARDED}{{{HERE}}}{RATE}))"
    waited = f"sum by (le, {rules.WORKFLOW}) (rate({rules.GUARD_SECONDS}{{{HERE}}}{RATE}))"
    return [
        lines(
            "Guard: verdicts",
            "Share of the answers with each verdict. All but pass and fail were not checked: the judge was late "
            "(timeout), kept failing (circuit_open), failed (error), or there was nothing to check (unscored). In the "
            "shadow, the verdict that the guard would have had. No line: no guard.",
            query(
                f"{guarded} / on ({rules.WORKFLOW}) group_left () {whole}",
                f"{{{{{rules.WORKFLOW}}}}} {{{{{rules.VERDICT}}}}}",
            ),
            unit="percentunit",
        ),
        lines(
            "Guard: actions per second",
            "Answers per second by what the guard did: none (it passed, or the guard is in the shadow), annotated, "
            "replaced, retried, raised, or released (it left although it was not checked).",
            query(acted, f"{{{{{rules.WORKFLOW}}}}} {{{{{action}}}}}"),
            unit=CALLS_A_SECOND,
        ),
        lines(
            "Guard: time added to answers",
            "Median and p95 of the time for which answers waited for their verdict or, in the shadow, would have "
            "waited. Times under 10 ms are shown as 10 ms.",
            query(f"histogram_quantile(0.5, {waited})", f"{{{{{rules.WORKFLOW}}}}} median"),
            query(f"histogram_quantile(0.95, {waited})", f"{{{{{rules.WORKFLOW}}}}} p95", ref="B"),
            unit="s",
        ),
    ]


def calibration_panels() -> list[Panel]:
    """Return the panels of what labels say about the judge: whether the calibration holds, and canaries."""
    of = f"{rules.METRIC}, {rules.EVALUATOR}"
    series, label = f"{{{{{rules.METRIC}}}}} by {_WHO}", prometheus_name(semconv.CANARY_LABEL)
    agreement, drift = (
        prometheus_name(name) for name in (semconv.METRIC_CANARY_AGREEMENT, semconv.METRIC_CANARY_DRIFT)
    )
    states = {
        0: ("holds", "green"), 1: ("stale", "red"), 2: ("as before", "green"), 3: ("drifts", "red"),
        4: ("uncalibrated: not a rate", "orange"),
    }  # fmt: skip
    results = {
        str(number): model.ValueMappingResult(text=name, color=colour, index=number)
        for number, (name, colour) in states.items()
    }
    shown = statetimeline.Panel().title("Calibration and canaries: does the judge judge as it did?").datasource(SOURCE)
    shown = shown.span(HALF).height(8).merge_values(True).show_value(units.VisibilityMode.AUTO).legend(legend())
    shown = shown.description(
        "calibration: stale if the metric, the judge, its prompts or the model that its server runs is another one than on "
        "the labelled calls, in any process, or if the labels correct nothing; then no rate is corrected: label calls "
        "again. canaries: drifts while the judge agrees with labels less often than before (ragtrace.judge.model_changes "
        "counts new models). uncalibrated: the scores are a decision model's probabilities, and without labels that hold their "
        "mean is not a rate: no figure of it is shown. Blank: no calibration, or no canaries."
    )
    shown = shown.row_height(0.8).fill_opacity(80).no_value("no calibration, no canaries")
    shown = shown.mappings([model.ValueMap(options=results)])
    shown = shown.with_target(
        query(f"1 - min by ({of}) ({CALIBRATION_HOLDS}{{{SERVICE}}})", f"calibration: {series}")
    ).with_target(query(f"2 + max by ({of}) ({drift}{{{SERVICE}}})", f"canaries: {series}", ref="B"))
    holds = f"min by ({of}) ({CALIBRATION_HOLDS}{{{SERVICE}}}) > 0"
    raw = f"4 * max by ({of}) ({RAW_PROBABILITY}{{{SERVICE}}}) unless on ({of}) ({holds})"
    shown = shown.with_target(query(raw, f"scores: {series}", ref="C"))
    agrees = lines(
        "Agreement of the judge with canaries",
        "Share of the latest hundred judgements of labelled calls in which the judge agrees with the label, of calls labelled "
        "bad (sensitivity) and good (specificity); with several processes the lowest. Compare with its own past. No line: no "
        "canaries (ragtrace.Canaries).",
        query(f"min by ({of}, {label}) ({agreement}{{{SERVICE}}})", f"{series}, labelled {{{{{label}}}}}"),
        unit="percentunit",
        span=HALF,
    )
    return [shown, agrees.max(1)]


def application_panels() -> list[Panel]:
    """Return the panels of the application: answer times, and calls that wait for scores."""
    kind = prometheus_name(semconv.OPERATION_NAME)
    of_whole = f"rate({rules.WORKFLOW_SECONDS}_{{}}{{{{{HERE}}}}}{RATE})"
    whole = f"sum by (le, {rules.WORKFLOW}) ({of_whole.format('bucket')})"
    step = f"sum by (le, {kind}) ({_of_steps('bucket')})"
    mean_whole = " / ".join(f"sum by ({rules.WORKFLOW}) ({of_whole.format(end)})" for end in ("sum", "count"))
    mean_step = " / ".join(f"sum by ({kind}) ({_of_steps(end)})" for end in ("sum", "count"))
    return [
        lines(
            "Mean answer time, and of its steps",
            "Mean time of the whole call, by workflow, and of one retrieval and one generation (chat). If each step "
            "runs once and one after the other, the steps plus the application's own time add up to the whole.",
            query(mean_whole, f"{{{{{rules.WORKFLOW}}}}} (whole)", exemplars=True),
            query(mean_step, f"one {{{{{kind}}}}}", ref="B"),
            unit="s",
        ),
        lines(
            "Answer time: p95, of the whole in steps of 1, 5, 10, 30 s",
            "95 of 100 take no longer. The value is as exact as the histogram's buckets, which the conventions set: of "
            "the whole call 1, 5, 10, 30, 60 s and up, with a straight line between them, so that all under 1 s is "
            "shown as at most 1 s; of one retrieval and one generation (chat) from 10 ms, doubling.",
            query(f"histogram_quantile(0.95, {whole})", f"{{{{{rules.WORKFLOW}}}}} p95 (whole)", exemplars=True),
            query(f"histogram_quantile(0.95, {step})", f"one {{{{{kind}}}}} p95", ref="B"),
            unit="s",
        ),
        lines(
            "Waiting for scores",
            "Calls that wait to be scored, and spans that wait for their scores, at each scrape. If the queue keeps "
            "growing, calls will be dropped: lower the sampling rate, or raise judge_concurrency.",
            query(f"sum({rules.QUEUE}{{{SERVICE}}})", "calls in the queue"),
            query(f"sum({rules.HELD}{{{SERVICE}}})", "spans held", ref="B"),
        ),
    ]


def _of_steps(end: str) -> str:
    """Return the rates of the durations of retrievals and inferences, under the released or the unreleased names.

    `or` takes a series that a process sends under both names once.
    """
    names = (rules.OPERATION_SECONDS, rules.INFERENCE_SECONDS)
    return " or ".join(f"rate({name}_{end}{{{SERVICE}}}{RATE})" for name in names)


def text_of(timing: rules.Timing | None = None) -> str:
    """Return the dashboard as Grafana's JSON, for rules of that *timing*."""
    timing = timing or rules.Timing()
    found = dashboard.Dashboard("ragtrace: quality of RAG answers").uid("ragtrace-quality").tags(["ragtrace", "rag"])
    found = found.description("Hallucination rate and consistency of live RAG calls, with intervals.").readonly()
    found = found.refresh("30s").time("now-3h", "now").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
    for variable in _variables(timing):
        found = found.with_variable(variable)
    own = f'{rules.ALERT_STATE}{{{SERVICE}, {prometheus_name(semconv.ALERT_STATE)}="spiking"}} == 1'
    marks = (
        ("Spike by the rules", f"{rules.ACTIVE}{{{HERE}}}", "red"),
        ("Spike by the application's alert", own, "orange"),
    )
    for name, expr, colour in marks:
        mark = dashboard.AnnotationQuery().name(name).expr(expr).datasource(SOURCE)
        found = found.annotation(mark.enable(True).icon_color(colour))
    reading = text.Panel().title("How to read this").content(_READ_ME).mode("markdown").span(FULL).height(6)
    overview = [reading.description("How to read the panels, and what to do."), *_overview()]
    rows = [
        (None, overview),
        (dashboard.Row("Quality: $workflow").repeat("workflow"), workflow_panels()),
        (dashboard.Row("Single scores, and alerts"), [distribution(), alert_states(timing)]),
        (dashboard.Row("Which calls are scored"), call_panels()),
        (dashboard.Row("The judge"), judge_panels()),
        (dashboard.Row("Guards"), guard_panels()),
        (dashboard.Row("Labels and canaries"), calibration_panels()),
        (dashboard.Row("The application"), application_panels()),
    ]
    for row, panels in rows:
        found = found if row is None else found.with_row(row)
        for panel in panels:
            found = found.with_panel(panel)
    made = found.build()
    for number, panel in enumerate(made.panels or (), start=1):
        panel.id_val = number
    return JSONEncoder(sort_keys=True, indent=1).encode(made) + "\n"
