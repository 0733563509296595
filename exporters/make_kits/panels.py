"""What all panels of the dashboard are made with."""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.builders import common, prometheus, timeseries
from grafana_foundation_sdk.models import common as units
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from exporters.make_kits.names import JOB, WORKFLOW

Panel = Any
SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
HERE: Final = f'{JOB}=~"$service", {WORKFLOW}=~"$workflow"'
SERVICE: Final = f'{JOB}=~"$service"'
RATE: Final = "[$__rate_interval]"
CALLS_A_SECOND: Final = "suffix: calls/s"
FULL, HALF, THIRD = 24, 12, 8


def query(expr: str, legend: str = "", *, ref: str = "A", exemplars: bool = False) -> prometheus.Dataquery:
    """A query over the time shown."""
    found = prometheus.Dataquery().expr(expr).legend_format(legend or "__auto").ref_id(ref).datasource(SOURCE)
    return found.exemplar(exemplars).range()


def at_once(expr: str, ref: str) -> prometheus.Dataquery:
    """A query of the moment, for a table."""
    found = prometheus.Dataquery().expr(expr).legend_format("__auto").ref_id(ref).datasource(SOURCE)
    return found.instant().format(PromQueryFormat.TABLE)


def legend(*calculated: str) -> common.VizLegendOptions:
    """A legend below the picture, with a figure for each series if asked."""
    found = common.VizLegendOptions().display_mode(units.LegendDisplayMode.LIST).show_legend(True)
    return found.placement(units.LegendPlacement.BOTTOM).calcs(list(calculated))


def lines(
    title: str, description: str, *queries: prometheus.Dataquery, unit: str = "short", span: int = THIRD
) -> Panel:
    """Series over time, from 0 on."""
    panel = timeseries.Panel().title(title).description(description).datasource(SOURCE).unit(unit)
    panel = panel.span(span).height(8).line_width(2).fill_opacity(8).min(0).show_points(units.VisibilityMode.NEVER)
    panel = panel.legend(legend()).tooltip(
        common.VizTooltipOptions().mode(units.TooltipDisplayMode.MULTI).sort(units.SortOrder.DESCENDING)
    )
    for each in queries:
        panel = panel.with_target(each)
    return panel


def stacked(title: str, description: str, *queries: prometheus.Dataquery, unit: str) -> Panel:
    """Series over time, one upon the other."""
    panel = lines(title, description, *queries, unit=unit, span=HALF).fill_opacity(40).line_width(1)
    return panel.stacking(common.StackingConfig().mode(units.StackingMode.NORMAL).group("A"))


def style(**properties: object) -> list[model.DynamicConfigValue]:
    """Properties of one series; `__` stands for a dot."""
    return [model.DynamicConfigValue(id_val=key.replace("__", "."), value=value) for key, value in properties.items()]


def fixed(colour: str) -> dict[str, str]:
    """A colour whatever the value is."""
    return {"mode": "fixed", "fixedColor": colour}
