"""Alerts of the reported period, from what each process has stored of them in the history.

Each process watches the calls that it scores, and has alerts of its own. The incidents of several processes are one
alert if they are of the same problem and overlap in time; it is over when it is over in all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragtrace.report.model import ReportedAlert

if TYPE_CHECKING:
    from ragtrace.core.alert_incident import AlertIncident
    from ragtrace.history.reading import HistoryReader
    from ragtrace.report.model import Period


def reported_alerts(
    reader: HistoryReader, period: Period, workflow: str | None, *, model: str | None, release: str | None
) -> tuple[ReportedAlert, ...]:
    """Return the alerts that lasted at some time of the period, the latest first.

    An alert on one workflow or model is left out where the report is about another one, or about another release.

    Args:
        reader: the history.
        period: the time.
        workflow: workflow that the report is about; None: all.
        model: model that the report is about; None: all.
        release: release of the application that the report is about; None: all.
    """
    by_problem: defaultdict[str, list[AlertIncident]] = defaultdict(list)
    for each in reader.alerts(period.start, period.end):
        if _is_about(each.workflow, workflow) and _is_about(each.model, model) and release in (None, each.release):
            by_problem[each.key].append(each)
    found = [_merged(group) for incidents in by_problem.values() for group in _overlapping(incidents)]
    return tuple(sorted(found, key=lambda alert: (-alert.since, alert.name)))


def _is_about(watched: str | None, chosen: str | None) -> bool:
    return watched is None or chosen is None or watched == chosen


def _last_seen(incident: AlertIncident) -> float:
    return incident.seen if incident.ended is None else incident.ended


def _overlapping(incidents: Sequence[AlertIncident]) -> list[list[AlertIncident]]:
    """Divide the incidents of one problem, in order of their beginnings, into groups that overlap in time."""
    groups: list[list[AlertIncident]] = []
    until = 0.0
    for each in incidents:
        if groups and each.since <= until:
            groups[-1].append(each)
            until = max(until, _last_seen(each))
        else:
            groups.append([each])
            until = _last_seen(each)
    return groups


def _merged(incidents: Sequence[AlertIncident]) -> ReportedAlert:
    """Return one alert of what several processes saw; its figures are those of the process with the most calls."""
    most = max(incidents, key=lambda each: each.calls)
    ends = [each.ended for each in incidents if each.ended is not None]
    return ReportedAlert(
        name=most.alert,
        metric=most.metric,
        evaluator=most.evaluator,
        problem=most.problem,
        direction=most.direction,
        bound=most.bound,
        against_baseline=most.against_baseline,
        workflow=most.workflow,
        model=most.model,
        since=min(each.since for each in incidents),
        last_seen=max(map(_last_seen, incidents)),
        ended=max(ends) if len(ends) == len(incidents) else None,
        processes=len(incidents),
        calls=most.calls,
        value=most.value,
        low=most.low,
        high=most.high,
        before=most.before,
        is_raw=most.is_raw,
    )
