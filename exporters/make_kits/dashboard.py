"""The Grafana dashboard, built with Grafana's own library."""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard, stat, text
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as units
from grafana_foundation_sdk.models import dashboard as model

from exporters.make_kits import operation, quality
from exporters.make_kits.names import ALERT_STATE, CALLS, EVALUATOR, JOB, METRIC, MOMENTS, OUTCOME, SCORE, WORKFLOW
from exporters.make_kits.panels import FULL, HERE, SERVICE, SOURCE, Panel, query
from exporters.make_kits.rules import ACTIVE, FRESH, Timing
from ragtrace.core import semconv
from ragtrace_exporters.openmetrics.naming import label_name

_READ_ME: Final = """\
The **hallucination rate** is the share of answers in which a judge found anything that the retrieved passages do not \
support. **Consistency** needs no judge: it compares words, on every call, and means something only against the \
application's own past. Figures are estimates for *all* calls, though a judge sees only a sample; the band is the 95 % \
interval. The **objective** (dashed) is the worst that is still all right; you set it in the rules.

**Look at the band, not at the line**: all of it worse than the objective is a **spike**; with the objective inside, it \
may be chance. Every point is of the last $window, so a change shows in full, and is over, that much later. \
**No line, blank**: nothing was scored, which is neither good nor bad. **Shaded red**: a spike. **Alerts**: the rules look at the \
window in brackets, so they begin and end later than the application's own alert, which goes call by call; a slow burn \
may be told of when its cause is over.

**Evaluators**: *embedded* is built in and looks at every call; a *judge* is the model that you configured and looks at a \
sample. *Evaluator* above offers those that the chosen *Metric* is estimated from; metrics are defined in the documentation \
of ragtrace. To see bad answers, click a low diamond in *Distribution of scores*: it opens the trace of that call.
"""


def _choice(name: str, label: str, metric: str, of: str, where: str = "", *, several: bool) -> dashboard.QueryVariable:
    asked = f"label_values({metric}{{{where}}}, {of})" if where else f"label_values({metric}, {of})"
    found = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
    found = found.query({"query": asked, "refId": name}).sort(model.VariableSort.ALPHABETICAL_ASC).multi(several)
    if several:
        return found.include_all(True).current(model.VariableOption(selected=True, text="All", value="$__all"))
    return found


def _variables(timing: Timing) -> list[Any]:
    names = (timing.spike, timing.slow)
    windows = [model.VariableOption(selected=value == timing.spike, text=value, value=value) for value in names]
    metric = _choice("metric", "Metric", SCORE, METRIC, SERVICE, several=False)
    estimated = f'{SERVICE}, {METRIC}="$metric"'
    return [
        dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        _choice("service", "Service", MOMENTS, JOB, several=True),
        _choice("workflow", "Workflow", MOMENTS, WORKFLOW, SERVICE, several=True),
        metric.current(model.VariableOption(selected=True, text="suspicious", value="suspicious")),
        _choice("evaluator", "Evaluator", MOMENTS, EVALUATOR, estimated, several=False),
        dashboard.CustomVariable("window").label("Window").values(",".join(names)).options(windows).current(windows[0]),
    ]


def _count(title: str, description: str, expr: str, legend: str, span: int) -> Any:
    panel = stat.Panel().title(title).description(description).datasource(SOURCE).span(span).height(6)
    panel = panel.graph_mode(units.BigValueGraphMode.NONE).no_value("no data").unit("short").decimals(0)
    return panel.with_target(query(expr, legend))


def _overview() -> list[Panel]:
    steps = [model.Threshold(value=None, color="green"), model.Threshold(value=1, color="red")]
    limits = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
    spiking = _count(
        "Spiking now",
        "Metrics, each in each workflow, whose whole interval went to the bad side of the objective, and whose mean is "
        "not back yet, by the Prometheus rules. A spike stays while no scores come in. no data: nothing is scored, so "
        "nobody knows.",
        f"count({ACTIVE}{{{HERE}}}) or 0 * count({FRESH}{{{HERE}}})",
        "metrics, by the rules",
        4,
    )
    scored = _count(
        "Calls scored in the time shown",
        "Calls that an evaluator decided, those without a verdict included. Each evaluator counts its own; all look "
        "at the same calls.",
        f'sum by ({EVALUATOR}) (increase({CALLS}{{{HERE}, {OUTCOME}=~"scored|partial"}}[$__range]))',
        f"by {{{{{EVALUATOR}}}}}",
        6,
    )
    named = units.BigValueTextMode.VALUE_AND_NAME
    return [
        quality.now(),
        spiking.thresholds(limits).color_mode(units.BigValueColorMode.VALUE).text_mode(named),
        scored.color_mode(units.BigValueColorMode.NONE).text_mode(named),
    ]


def _marks() -> list[dashboard.AnnotationQuery]:
    """Spikes, marked in every panel over time."""
    own = f'{ALERT_STATE}{{{SERVICE}, {label_name(semconv.ALERT_STATE)}="spiking"}} == 1'
    asked = {"Spike by the rules": f"{ACTIVE}{{{HERE}}}", "Spike by the application's alert": own}
    return [
        dashboard.AnnotationQuery().name(name).expr(expr).datasource(SOURCE).enable(True).icon_color(colour)
        for (name, expr), colour in zip(asked.items(), ("red", "orange"), strict=True)
    ]


def build(timing: Timing) -> dashboard.Dashboard:
    """The dashboard."""
    found = dashboard.Dashboard("ragtrace: quality of RAG answers").uid("ragtrace-quality").tags(["ragtrace", "rag"])
    found = found.description("Hallucination rate and consistency of live RAG calls, with intervals.").readonly()
    found = found.refresh("30s").time("now-3h", "now").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
    for variable in _variables(timing):
        found = found.with_variable(variable)
    for mark in _marks():
        found = found.annotation(mark)
    reading = text.Panel().title("How to read this").content(_READ_ME).mode("markdown").span(FULL).height(6)
    found = found.with_panel(reading.description("What the panels say, and what to do."))
    for panel in _overview():
        found = found.with_panel(panel)
    found = found.with_row(dashboard.Row("Quality: $workflow").repeat("workflow"))
    for panel in quality.estimates():
        found = found.with_panel(panel)
    rows = {
        "Single scores, and alerts": [quality.distribution(), quality.alerts(timing)],
        "Which calls are scored": operation.calls(),
        "The judge": operation.judges(),
        "The application": operation.application(),
    }
    for title, panels in rows.items():
        found = found.with_row(dashboard.Row(title))
        for panel in panels:
            found = found.with_panel(panel)
    return found


def text_of(timing: Timing | None = None) -> str:
    """The dashboard as Grafana's JSON, for rules of that *timing*."""
    made = build(timing or Timing()).build()
    for number, panel in enumerate(made.panels or (), start=1):
        panel.id_val = number
    return JSONEncoder(sort_keys=True, indent=1).encode(made) + "\n"
