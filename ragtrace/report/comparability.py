"""Comparability of scores: which groups of calls a report compares by a metric, and why it does not compare others.

Scores are compared where all that may differ is the calls. So
    - they are of one evaluator: a `ScoreSeries` never has scores of two, as each evaluator has a scale of its own;
    - they are of one version of the metric: another version has another formula, other labels or another threshold;
    - they are no raw probabilities of a decision model, whose mean is no rate;
    - both groups have judged calls.
Whatever a report says of a change asks here first: the comparison of two groups, the change within the period, the
breakdowns by workflow and model, and the onset of a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.core.types import NOT_A_RATE

if TYPE_CHECKING:
    from ragtrace.report.series import Mask, ScoreSeries


def why_not_comparable(series: ScoreSeries, before: Mask, after: Mask) -> str:
    """Return why two groups of calls cannot be compared by the scores of a metric, or "" if they can."""
    if series.is_raw:
        return NOT_A_RATE
    judged = series.judged_calls()
    for group, when in ((before, "before"), (after, "after")):
        if not group.any():  # such as a release that was used at another time
            return f"there are no calls {when}"
        if not group[judged].any():
            return f"nothing was judged by {series.evaluator} {when}"
    was, became = versions_in(series, before), versions_in(series, after)
    if len({*was, *became}) <= 1:
        return ""
    return f"other versions of the metric: {_named(was)} before, {_named(became)} after"


def versions_in(series: ScoreSeries, chosen: Mask) -> tuple[str, ...]:
    """Return the versions of a metric that scored some of the *chosen* calls; none if all its scores are of one."""
    return tuple(version for version, calls in series.versions if chosen[calls].any())


def version_note(series: ScoreSeries, chosen: Mask) -> str:
    """Return the note of a report whose *chosen* calls were scored by several versions of a metric, or ""."""
    versions = versions_in(series, chosen)
    if len(versions) <= 1:
        return ""
    return (
        f"{series.metric} by {series.evaluator} was scored by {_named(versions)} of the metric: its estimate mixes "
        "them, and no change is given between them."
    )


def _named(versions: tuple[str, ...]) -> str:
    return f"version{'s' if len(versions) > 1 else ''} {' and '.join(versions)}"
