"""A history to a report: everything is counted in one pass over the columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import LABELLING
from ragtrace.estimates import Baseline
from ragtrace.history.reading import Columns, Reader
from ragtrace.report.breakdown import MOST_PARTS, parts
from ragtrace.report.comparing import Sides, compared, latest, recent, releases, sides
from ragtrace.report.model import Measured, Period, Point, Report, Rollout, Spent
from ragtrace.report.periods import MOST_POINTS, before, divided
from ragtrace.report.problems import worst
from ragtrace.report.series import Track, parts_of, tracks

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRIMARY: Final = ("hallucinated", "hallucination", "faithfulness", "consistency")
"""Metrics that a report opens with, the first that there is."""
_WORST_BY: Final[Mapping[str, tuple[str, ...]]] = {"hallucinated": ("hallucination", "faithfulness")}
"""Metrics that tell how bad an answer is, where the headline only says that it is."""
_MOST_ROLLOUTS: Final = 4
_FEWEST_POINTS: Final = 8
_JUDGED_A_POINT: Final = 30
"""With fewer, the interval of a point in time says nothing."""

_MOST_BASELINES: Final = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to report on."""

    path: str
    period: Period
    workflow: str | None = None
    compare: str = "previous"
    """`previous`, `none`, or `A:B`, two releases or models."""
    worst: int = 10
    made_at: float | None = None


def report(wanted: Wanted) -> Report:
    """Read the history and say what is in it.

    Raises:
        StoreError: there is no history.
        sqlite3.Error: it cannot be read.
        SettingsError: there is nothing to compare by that name.
    """
    period = wanted.period
    since = before(period).start if wanted.compare == "previous" else period.start
    with closing(Reader(wanted.path)) as reader:
        columns = reader.columns(since, period.end, wanted.workflow)
        bounds = reader.bounds()
        unscored = _by_series(columns, reader.unscored(period.start, period.end, wanted.workflow))
        chosen = columns.at >= period.start
        found = tracks(columns)
        two = sides(columns, wanted.compare, period)
        measured = sorted(
            (_measured(columns, track, chosen, period, bounds, unscored, two) for track in found),
            key=lambda item: _rank(item, found),
        )
        measured = [item for item in measured if item.judged or item.unscored]
        measured += _never_scored(columns, unscored, measured)
        headline = next((item for item in measured if item.overall is not None), None)
        about = [track for track in found if headline and track.estimated and track.metric == headline.metric]
        ranked_by = _ranking(found, headline) or about
        labelling = {track.evaluator for track in found if track.metric in LABELLING}
        problems = worst(reader, columns, ranked_by, chosen, wanted.worst, labelling=labelling) if about else ()
    return Report(
        wanted.path,
        time() if wanted.made_at is None else wanted.made_at,
        period,
        None if bounds is None else bounds[0],
        wanted.workflow,
        int(chosen.sum()),
        *_names(columns, chosen),
        headline,
        tuple(measured),
        None if two is None else compared(columns, _in_order(found, measured), two),
        next((recent(columns, track, period) for track in about if headline and _is(track, headline)), None),
        next((latest(columns, track, period) for track in about if headline and _is(track, headline)), None),
        problems,
        _spent(columns, chosen),
        _decisions(columns, chosen),
        (*_notes(measured, two, bounds, wanted), *_many(columns, chosen), *_baselines(wanted)),
        _rollouts(columns, chosen),
    )


def _baselines(wanted: Wanted) -> list[str]:
    """Say how old the baseline is that `suspicious` compares with, and of which release."""
    path = os.environ.get("RAGTRACE_BASELINE") or f"{wanted.path}.baseline.json"
    if not os.path.exists(path):
        return []
    try:
        known = Baseline.load(path).distributions
    except SettingsError as error:
        return [str(error)]
    now = time() if wanted.made_at is None else wanted.made_at
    mine = [
        f"{key.workflow or '-'}, {key.evaluator}: {found.describe(now)}"
        for key, found in sorted(known.items())
        if key.metric == "consistency" and wanted.workflow in (None, key.workflow)
    ]
    shown = [*mine[:_MOST_BASELINES], *([f"{len(mine) - _MOST_BASELINES} more"] if len(mine) > _MOST_BASELINES else [])]
    return [f"Baseline of consistency ({'; '.join(shown)})."] if shown else []


def _rollouts(columns: Columns, chosen: NDArray[np.bool_]) -> tuple[Rollout, ...]:
    """Return the releases that came up among the *chosen* calls after another one."""
    began: dict[str, float] = {}
    for number, source in columns.sources.items():
        times = columns.at[columns.source == number]
        if source.release and len(times):
            began[source.release] = min(began.get(source.release, np.inf), float(times.min()))
    first = float(columns.at[chosen].min()) if chosen.any() else np.inf
    later = sorted((at, release) for release, at in began.items() if at > max(first, min(began.values())))
    return tuple(Rollout(at, release) for at, release in later[-_MOST_ROLLOUTS:])


def _ranking(found: Sequence[Track], headline: Measured | None) -> list[Track]:
    """Return the tracks of the first metric, by the evaluators of the headline, that grades how bad an answer is."""
    for metric in _WORST_BY.get(headline.metric, ()) if headline is not None else ():
        tracks_of_metric = [track for track in found if track.estimated and track.metric == metric]
        if tracks_of_metric:
            return tracks_of_metric
    return []


def _is(track: Track, item: Measured) -> bool:
    return (track.metric, track.evaluator) == (item.metric, item.evaluator)


def _rank(item: Measured, found: Sequence[Track]) -> tuple[object, ...]:
    """Those that are estimated first, of these the `PRIMARY` ones; of two evaluators the latest one."""
    primary = PRIMARY.index(item.metric) if item.metric in PRIMARY else len(PRIMARY)
    counted = next(track.counted for track in found if _is(track, item))
    latest = int(np.flatnonzero(counted)[-1]) if counted.any() else -1
    return item.overall is None, primary, item.metric, -latest, -item.judged


def _in_order(found: Sequence[Track], measured: Sequence[Measured]) -> list[Track]:
    order = {(item.metric, item.evaluator): number for number, item in enumerate(measured)}
    return sorted(found, key=lambda track: order.get((track.metric, track.evaluator), len(order)))


def _measured(
    columns: Columns,
    track: Track,
    chosen: NDArray[np.bool_],
    period: Period,
    bounds: tuple[float, float] | None,
    unscored: dict[tuple[str, str], dict[str, int]],
    two: Sides | None,
) -> Measured:
    whole = np.where(chosen, 0, -1)
    estimated = track.estimated and bool((track.counted[chosen] > 0).any())
    by_model = None if two is None or two.kind == "models" else two  # a model has no other model before
    return Measured(
        track.metric,
        track.evaluator,
        track.higher_is_better,
        track.judged(whole, 1)[0],
        track.estimates(whole, 1)[0] if estimated else None,
        tuple(_timeline(columns, track, period, bounds)) if estimated else (),
        parts(track, columns.workflow, columns.workflows, chosen, two) if estimated else (),
        parts(track, columns.model, columns.models, chosen, by_model) if estimated else (),
        track.box(chosen),
        unscored.get((track.metric, track.evaluator), {}),
    )


def _timeline(columns: Columns, track: Track, period: Period, bounds: tuple[float, float] | None) -> list[Point]:
    """From the first call that was kept, if that is later: an empty half of a chart tells nothing."""
    start = period.start if bounds is None else max(period.start, min(bounds[0], period.end - 1.0))
    judged = track.judged(np.where((columns.at >= start) & (columns.at < period.end), 0, -1), 1)[0]
    parts = divided(Period(start, period.end), min(MOST_POINTS, max(_FEWEST_POINTS, judged // _JUDGED_A_POINT)))
    group = parts_of(columns, [part.start for part in parts] + [parts[-1].end])
    estimates, counts = track.estimates(group, len(parts)), track.judged(group, len(parts))
    return [Point(*row) for row in zip(parts, estimates, counts, strict=True)]


def _by_series(columns: Columns, rows: Sequence[tuple[int, str, int]]) -> dict[tuple[str, str], dict[str, int]]:
    """Unscored results by metric and evaluator, the most frequent reason first."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for number, reason, count in sorted(rows, key=lambda row: -row[2]):
        series = columns.series[number]
        reasons = found.setdefault((series.metric, columns.evaluators[series.evaluator]), {})
        reasons[reason] = reasons.get(reason, 0) + count
    return found


def _never_scored(
    columns: Columns, unscored: dict[tuple[str, str], dict[str, int]], measured: Sequence[Measured]
) -> list[Measured]:
    """Metrics that have reasons only."""
    known = {(item.metric, item.evaluator) for item in measured}
    better = {series.metric: series.higher_is_better for series in columns.series.values()}
    return [
        Measured(metric, evaluator, better[metric], 0, None, (), (), (), None, reasons)
        for (metric, evaluator), reasons in sorted(unscored.items())
        if (metric, evaluator) not in known
    ]


def _names(columns: Columns, chosen: NDArray[np.bool_]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Services and releases of the *chosen* calls."""
    sources = [columns.sources[number] for number in np.unique(columns.source[chosen]).tolist()]
    return tuple(sorted({source.service for source in sources} - {""})), releases(columns, chosen)


def _decisions(columns: Columns, chosen: NDArray[np.bool_]) -> dict[str, int]:
    counts = np.bincount(columns.why[chosen], minlength=len(columns.decisions)).tolist()
    named = {reason: count for reason, count in zip(columns.decisions, counts, strict=True) if reason and count}
    return dict(sorted(named.items(), key=lambda item: -item[1]))


def _spent(columns: Columns, chosen: NDArray[np.bool_]) -> tuple[Spent, ...]:
    """What each evaluator cost, the dearest first."""
    rows = chosen[columns.evaluation_call] if len(columns) else np.zeros(0, dtype=bool)
    spent = [
        _of_one(columns, name, rows & (columns.evaluator == number)) for number, name in columns.evaluators.items()
    ]
    return tuple(sorted((each for each in spent if each.looked_at), key=lambda each: (-each.cost_usd, -each.requests)))


def _of_one(columns: Columns, name: str, rows: NDArray[np.bool_]) -> Spent:
    duration, cost, requests = columns.duration_s[rows], columns.cost_usd[rows], columns.requests[rows]
    median, p95 = np.quantile(duration, [0.5, 0.95]).tolist() if len(duration) else (0.0, 0.0)
    return Spent(
        name,
        int(rows.sum()),
        int(requests.sum()),
        int(columns.input_tokens[rows].sum()),
        int(columns.output_tokens[rows].sum()),
        float(np.nansum(cost)),
        int((np.isnan(cost) & (requests > 0)).sum()),
        int(columns.failed[rows].sum()),
        median,
        p95,
    )


def _many(columns: Columns, chosen: NDArray[np.bool_]) -> list[str]:
    """What is left out where there are more workflows or models than anybody can look at."""
    counts = (("workflows", columns.workflow), ("models", columns.model))
    found = [(what, len(np.unique(codes[chosen]))) for what, codes in counts]
    return [
        f"There are {count:,} {what}; estimates are given of the {MOST_PARTS} with most calls. Is their name unique to "
        "a call? Give @trace a name="
        for what, count in found
        if count > MOST_PARTS
    ]


def _notes(
    measured: Sequence[Measured], two: Sides | None, bounds: tuple[float, float] | None, wanted: Wanted
) -> list[str]:
    """What a reader must know in order not to read too much into it."""
    notes: list[str] = []
    by_metric: dict[str, list[str]] = {}
    for item in measured:
        if item.overall is not None:
            by_metric.setdefault(item.metric, []).append(item.evaluator)
    changed = sorted({tuple(evaluators) for evaluators in by_metric.values() if len(evaluators) > 1})
    notes += [
        f"The evaluator changed within this time ({', '.join(names)}): its scores are shown apart, as they have no "
        "common mean."
        for names in changed
    ]
    if two is not None and two.kind == "periods" and bounds is not None and bounds[0] > before(wanted.period).start:
        if bounds[0] >= wanted.period.start:
            notes.append("The history begins within this time: there is nothing earlier to compare with.")
        else:
            notes.append("The history begins within the time compared with: that time is not complete.")
    return notes
