"""Construction of a report from a local history, with the scores of all calls and the texts of the worst answers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from time import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import STATEMENT_METRICS
from ragtrace.estimates import Baseline, Estimate
from ragtrace.history.reading import CallColumns, CallTexts, HistoryReader, TagCodes
from ragtrace.report.alert_history import reported_alerts
from ragtrace.report.calibration import LabelCorrections
from ragtrace.report.comparability import version_note
from ragtrace.report.comparison import (
    MOST_ROWS,
    ComparedGroups,
    ComparedSeries,
    compare_metrics,
    compared_groups,
    estimate_by_group,
    latest_estimate,
    recent_change,
    release_names,
)
from ragtrace.report.grouping import FEWEST_VALUES, MOST_VALUES, group_bad_calls
from ragtrace.report.guard_summary import guard_summaries
from ragtrace.report.model import (
    MOST_POINTS,
    BreakdownRow,
    Change,
    Comparison,
    EvaluatorCost,
    LikelyStatement,
    MetricReport,
    Onset,
    Period,
    Report,
    RetrievedChunk,
    Rollout,
    TimelinePoint,
    WorstAnswer,
    divide_period,
    previous_period,
)
from ragtrace.report.onset import ChangeSearch, can_be_searched, rollouts_in
from ragtrace.report.past_scores import NO_PAST, CallChoice, past_scores
from ragtrace.report.series import ScoreSeries, score_series
from ragtrace.report.user_feedback import feedback_summaries
from ragtrace.report.wording import damaged_sentence, merge_ranges

if TYPE_CHECKING:
    from threading import Event

    from ragtrace.history.segments import Ints
    from ragtrace.report.series import Mask

    UnscoredCounts: TypeAlias = dict[tuple[str, str], dict[str, int]]

HEADLINE_METRICS: Final = ("hallucinated", "hallucination", "faithfulness", "consistency")
"""Metrics that may be the headline of a report, in order of preference."""
_GRADED_BY: Final[Mapping[str, tuple[str, ...]]] = {"hallucinated": ("hallucination", "faithfulness")}
"""Metrics that grade how bad an answer is, in order of preference, for each headline metric that is true or false."""
Details: TypeAlias = Literal["all", "shown", "headline"]
"""Parts of a report: all of them; those that the pages of `ragtrace open` show, with course and breakdowns of the main
metric alone; or the headline, which the first page shows: no breakdowns, no groups, no spread, no worst answers, and of
all metrics but the main one no comparison.
"""
_MOST_ROLLOUTS: Final = 4
_FEWEST_POINTS: Final = 8
_MOST_TAGS: Final = 4
"""Most tags by which a report divides the calls."""
_FEWEST_KNOWN: Final = 2
"""Fewest points with scores that make a line."""
_FEWEST_OF_POINT: Final = 5
"""Fewest scored calls, on average, of a point of a line by call."""
_MOST_STEPS: Final = 500
"""Most calls whose times place an alert or an onset on a line by call: to a fifth of a per cent of its length."""
_MOST_BASELINES: Final = 5
_MOST_READ: Final = 2_000


def build_report(
    path: str,
    period: Period,
    workflow: str | None = None,
    compare: str = "previous",
    worst: int = 10,
    made_at: float | None = None,
    *,
    model: str | None = None,
    release: str | None = None,
    metric: str | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
    stopped: Event | None = None,
    details: Details = "all",
) -> Report:
    """Build the report on the RAG calls of *period* from the local history at *path*.

    Args:
        path: file of the history.
        period: time of the calls.
        workflow: workflow of the calls; None: all.
        compare: `previous`, `none`, or `A:B`, two releases or models.
        worst: number of the worst answers to show.
        made_at: seconds since the epoch; None: now.
        model: model of the calls; None: all.
        release: release of the application that made the calls; None: all.
        metric: main metric of the report, if it has an estimate; None: the first in order of importance.
        tags: texts of the values of tags that each of the calls has, by name.
        stopped: event that is set when nobody wants the report any more; None: it is made in any case.
        details: which parts of the report are made.

    Raises:
        SQLiteFileError: there is no history.
        sqlite3.Error: it cannot be read.
        SettingsError: there is nothing to compare by that name.
        ReadingStoppedError: `stopped` was set.
    """
    builder = ReportBuilder(
        path, period, workflow, compare, worst, made_at,
        model=model, release=release, metric=metric, tags=tags, stopped=stopped,
    )  # fmt: skip
    with closing(builder):
        return builder.build(details)


class ReportBuilder:
    """Builder of a report on a period, and of the parts of it that are wanted first, from calls that are read once.

    It must be closed. The arguments and errors are those of `build_report`.
    """

    def __init__(
        self,
        path: str,
        period: Period,
        workflow: str | None = None,
        compare: str = "previous",
        worst: int = 10,
        made_at: float | None = None,
        *,
        model: str | None = None,
        release: str | None = None,
        metric: str | None = None,
        tags: Mapping[str, str] = MappingProxyType({}),
        stopped: Event | None = None,
    ) -> None:
        self._path, self._period, self._workflow, self._worst = path, period, workflow, worst
        self._made_at = time() if made_at is None else made_at
        self._model, self._release, self._tags = model, release, tags
        self._reader = HistoryReader(path, stopped, tags=tags)
        try:
            self._read_calls(compare)
            self._choose_headline(metric)
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        """Close the history file."""
        self._reader.close()

    def _read_calls(self, compare: str) -> None:
        reader, period, workflow = self._reader, self._period, self._workflow
        model, release = self._model, self._release
        self._since = since = previous_period(period).start if compare == "previous" else period.start
        times = reader.time_range()
        self._oldest = None if times is None else times[0]
        filtered = bool(self._tags) or any(each is not None for each in (workflow, model, release))
        are_all = not filtered and (times is None or (since <= times[0] and times[1] < period.end))
        by_labels = LabelCorrections(reader)
        if not are_all:
            by_labels.read_ahead(period.start, period.end, workflow, model, release)
        without = reader.unscored_counter(period.start, period.end, workflow, model=model, release=release)
        columns = reader.columns(since, period.end, workflow, model=model, release=release, unscored=without)
        self._unscored = _unscored_counts(columns, without.counts())
        self._chosen = columns.at >= period.start
        self._spent = _costs(columns, self._chosen)
        columns = columns.without_costs()  # of a million calls, each column has megabytes
        reader.go_on()
        self._groups = compared_groups(columns, compare, period)
        self._series = {series.key: series for series in score_series(columns)}
        self._corrections = by_labels.rates(columns, self._chosen, tuple(self._series.values()), are_all=are_all)
        self._columns = columns.without_evaluations()
        self._compared: dict[tuple[str, str], ComparedSeries] = {}
        self._items: dict[tuple[tuple[str, str], Details], MetricReport] = {}
        self._choice = CallChoice(workflow, model, release, tuple(sorted(self._tags.items())))
        self._found_search: ChangeSearch | None = None
        self._found_tags: Sequence[TagCodes] | None = None
        self._onset: tuple[Onset | None, ...] = ()
        """Onset of the main metric's change, once it was looked for."""

    def _choose_headline(self, metric: str | None) -> None:
        """Find the metrics of the report, in their order, and that which it begins with."""
        judged = {key: int(self._chosen[each.judged_calls()].sum()) for key, each in self._series.items()}
        estimated = {
            key for key, each in self._series.items() if each.estimated and bool((each.eligible & self._chosen).any())
        }

        def sort_key(key: tuple[str, str]) -> tuple[object, ...]:
            has_nothing = not (judged[key] or self._unscored.get(key))
            return has_nothing, key not in estimated, *_importance(self._series[key], judged[key])

        self._in_order = sorted(self._series, key=sort_key)
        self._measured = [key for key in self._in_order if judged[key] or self._unscored.get(key)]
        known = [key for key in self._measured if key in estimated]
        self._headline = next((key for key in known if key[0] == metric), next(iter(known), None))

    def build(self, details: Details = "all") -> Report:
        """Build the report, with the parts that *details* names."""
        period, columns, chosen, groups = self._period, self._columns, self._chosen, self._groups
        reader, workflow, model, release = self._reader, self._workflow, self._model, self._release
        measured: list[MetricReport] = []
        for key in self._measured:
            reader.go_on()
            measured.append(self._item(key, details))
        headline = None if self._headline is None else measured[self._measured.index(self._headline)]
        measured += _never_scored(columns, self._unscored, measured)
        main = None if self._headline is None else self._series[self._headline]
        comparison = None
        if groups is not None:
            compared = [key for key in self._in_order if details != "headline" or key == self._headline]
            of_compared = [self._compare(key) for key in compared if self._series[key].estimated]
            comparison = compare_metrics(columns, of_compared, groups, self._watched)
        onset = self._find_onset(comparison)
        rated = None if main is None or main.is_raw else main
        relevance = next((each for each in self._series.values() if each.metric == "context_relevance"), None)
        is_whole = details != "headline"
        grouping = group_bad_calls(reader, columns, rated, chosen, relevance) if is_whole and rated else None
        sources = [columns.sources[number] for number in np.unique(columns.source[chosen]).tolist()]
        return Report(
            path=self._path,
            made_at=self._made_at,
            period=period,
            oldest=self._oldest,
            workflow=workflow,
            calls=int(chosen.sum()),
            services=tuple(sorted({source.service for source in sources} - {""})),
            releases=release_names(columns, chosen),
            headline=headline,
            measured=tuple(measured),
            comparison=comparison,
            recent=None if main is None else recent_change(columns, main, period),
            onset=None if onset is None or onset.end is not None else onset,
            ended=None if onset is None or onset.end is None else onset,
            rhythm="" if self._search is None else self._search.rhythm,
            latest=None if main is None else latest_estimate(columns, main, period),
            problems=self._worst_answers() if is_whole else (),
            spent=self._spent,
            decisions=_sampling_decisions(columns, chosen),
            notes=(
                *_notes(columns, chosen, measured, groups, period, self._oldest),
                *filter(None, (version_note(self._series[key], chosen) for key in self._measured)),
                *_baseline_notes(self._path, workflow, self._made_at),
                *([damaged_sentence(len(reader.damaged))] if reader.damaged else []),
            ),
            rollouts=_rollouts(columns, chosen),
            grouping=grouping,
            guards=guard_summaries(reader, period, workflow, model=model, release=release),
            alerts=reported_alerts(reader, period, workflow, model=model, release=release),
            feedback=feedback_summaries(reader, columns, chosen, rated),
            rate=None if headline is None else headline_rate(headline),
            model=model,
            release=release,
            tags=dict(self._tags),
        )

    @property
    def _search(self) -> ChangeSearch | None:
        """Search for changes of the main metric, or None if they cannot be told."""
        main = None if self._headline is None else self._series[self._headline]
        if self._found_search is None and main is not None and can_be_searched(main):
            # Releases and models that are compared are used at the same times, and their calls may be few.
            is_timed = self._groups is None or self._groups.kind == "periods"
            begin = self._since if is_timed and self._oldest is not None else None
            past = NO_PAST
            if begin is not None and self._oldest is not None and self._oldest < begin:
                past = past_scores(self._reader, self._path, self._choice, main, self._oldest, begin)
            self._found_search = ChangeSearch(self._columns, main, past, self._tag_codes)
        return self._found_search

    def _tag_codes(self) -> Sequence[TagCodes]:
        """Return the tags that divide the calls into groups, read once for all reports of the builder."""
        if self._found_tags is None:
            self._found_tags = tuple(self._reader.tag_codes(self._columns.number, FEWEST_VALUES, MOST_VALUES))
        return self._found_tags

    def _watched(self, series: ScoreSeries, change: Change) -> Change:
        """Return the change of a metric between the periods compared, with respect to what is usual at that time."""
        is_main = series.key == self._headline and self._groups is not None and self._groups.kind == "periods"
        search = self._search if is_main else None
        return change if search is None else search.watched(change, self._period.start)

    def _find_onset(self, comparison: Comparison | None) -> Onset | None:
        """Return since when the main metric is better or worse, which all reports of the builder share."""
        if not self._onset:
            self._onset = (None if self._search is None else self._search.onset(comparison),)
        return self._onset[0]

    def _compare(self, key: tuple[str, str]) -> ComparedSeries:
        """Return a metric's estimates for both groups that are compared."""
        if self._groups is None:
            raise ValueError("no groups are compared")
        if key not in self._compared:
            self._compared[key] = ComparedSeries.of(self._series[key], self._groups)
        return self._compared[key]

    def _item(self, key: tuple[str, str], details: Details) -> MetricReport:
        """Return what the report says of one metric by one evaluator."""
        if key == self._headline and details == "shown":
            details = "all"
        if (key, details) not in self._items:
            self._items[key, details] = self._make_item(key, details)
        return self._items[key, details]

    def _make_item(self, key: tuple[str, str], details: Details) -> MetricReport:
        columns, series, chosen, groups = self._columns, self._series[key], self._chosen, self._groups
        estimated = series.estimated and bool((series.eligible & chosen).any())
        known = estimated and not series.is_raw
        is_headline, is_whole = key == self._headline, details == "all"
        is_compared = groups is not None and series.estimated and (is_headline or details != "headline")
        compared = self._compare(key) if is_compared else None
        overall = None
        if estimated:
            of_chosen = compared is not None and groups is not None and np.array_equal(groups.calls_after, chosen)
            overall = compared.after if compared is not None and of_chosen else series.estimate(chosen)
        by_workflow: tuple[BreakdownRow, ...] = ()
        by_model: tuple[BreakdownRow, ...] = ()
        by_tags: tuple[tuple[str, tuple[BreakdownRow, ...]], ...] = ()
        if known and is_whole:
            # Where models are compared, no breakdown by model can have a change.
            model_groups = None if groups is None or groups.kind == "models" else groups
            values = compared.values_of_counted(groups) if groups is not None and compared is not None else []
            by_workflow = estimate_by_group(series, columns.workflow, columns.workflows, chosen, groups, values)
            by_model = estimate_by_group(series, columns.model, columns.models, chosen, model_groups, values)
            by_tags = tuple(self._by_tags(series, values)) if is_headline else ()
        has_spread = details != "headline" or (is_headline and series.is_raw)
        has_line = estimated and (is_headline or (known and is_whole))
        timeline = _timeline(columns, series, self._period, self._oldest) if has_line else ()
        call_times: tuple[float, ...] = ()
        if has_line and sum(point.judged > 0 for point in timeline) < _FEWEST_KNOWN:
            timeline, call_times = _timeline_by_call(columns, series, chosen, self._period) or (timeline, ())
        return MetricReport(
            metric=series.metric,
            evaluator=series.evaluator,
            higher_is_better=series.higher_is_better,
            judged=int(chosen[series.judged_calls()].sum()),
            overall=overall,
            timeline=timeline,
            by_workflow=by_workflow,
            by_model=by_model,
            box=series.spread(chosen) if has_spread else None,
            unscored=self._unscored.get(key, {}),
            corrected=self._corrections.get(key),
            is_raw=series.is_raw,
            box_before=series.spread(groups.calls_before) if series.is_raw and groups is not None else None,
            call_times=call_times,
            by_tags=by_tags,
        )

    def _by_tags(
        self, series: ScoreSeries, overall: Sequence[float | None]
    ) -> Iterator[tuple[str, tuple[BreakdownRow, ...]]]:
        """Yield for each of some tags its name and the estimates of its values, the tags that most calls have first."""
        known = sorted(self._tag_codes(), key=lambda tag: -int((tag.code >= 0).sum()))
        for tag in known[:_MOST_TAGS]:
            names = [*(f"{tag.name}={value}" for value in tag.values), ""]
            codes = np.where(tag.code < 0, len(tag.values), tag.code)
            rows = estimate_by_group(series, codes, names, self._chosen, self._groups, overall)
            yield tag.name, tuple(row for row in rows if row.name)

    def _worst_answers(self) -> tuple[WorstAnswer, ...]:
        """Return the answers with the worst scores, ranked by the first metric that grades the main metric's answers.

        Where none does, the main metric itself ranks them. A decision judge grades with every score.
        """
        if self._headline is None:
            return ()
        metric, main = self._headline[0], self._series[self._headline]
        grades = (metric,) if main.is_raw else (*_GRADED_BY.get(metric, ()), metric)
        # Where several evaluators scored a call, the last one counts: the evaluator that scored the live call.
        in_time = sorted(self._series.values(), key=lambda series: not series.added)
        of_grade = ([s for s in in_time if s.estimated and s.metric == grade] for grade in grades)
        ranked_by = next(filter(None, of_grade), list[ScoreSeries]())
        labelling = {series.evaluator for series in self._series.values() if series.metric in STATEMENT_METRICS}
        return _worst_answers(self._reader, self._columns, ranked_by, self._chosen, self._worst, labelling=labelling)


def headline_rate(item: MetricReport) -> Estimate | None:
    """Return the rate of the metric *item* that a report begins with: corrected by human labels, where these hold."""
    return item.corrected.estimate if item.corrected is not None and item.corrected.holds else item.overall


def _importance(series: ScoreSeries, judged: int) -> tuple[object, ...]:
    """Return the key by which a report sorts metrics that all have an estimate, or all have none."""
    preference = HEADLINE_METRICS.index(series.metric) if series.metric in HEADLINE_METRICS else len(HEADLINE_METRICS)
    latest = len(series.eligible) - 1 - int(series.eligible[::-1].argmax()) if series.eligible.any() else -1
    return preference, series.is_raw, series.metric, series.added, -latest, -judged


def _timeline(
    columns: CallColumns, series: ScoreSeries, period: Period, oldest: float | None
) -> tuple[TimelinePoint, ...]:
    """Return a metric's estimates over time, one for each part of the period.

    If the period begins before the oldest call of the history, the first part begins at that call.
    """
    start = period.start if oldest is None else max(period.start, min(oldest, period.end - 1.0))
    times = columns.at[series.judged_calls()]
    judged = int(((times >= start) & (times < period.end)).sum())
    # Fewest judged calls, on average, of a point on the timeline: with fewer, the interval is too wide to be useful.
    parts = divide_period(Period(start, period.end), min(MOST_POINTS, max(_FEWEST_POINTS, judged // 30)))
    edges = np.array([part.start for part in parts] + [parts[-1].end])
    group = np.searchsorted(edges, columns.at, side="right") - 1
    group = np.where(group < len(parts), group, -1)
    return _timeline_points(series, parts, group)


def _timeline_by_call(
    columns: CallColumns, series: ScoreSeries, chosen: Mask, period: Period
) -> tuple[tuple[TimelinePoint, ...], tuple[float, ...]] | None:
    """Return a metric's estimates call by call, and the times of the calls at equal steps; None for too few calls.

    Where all calls fall into one moment of the period, as those of a demo, the time says nothing about their order.
    """
    calls = np.flatnonzero(chosen)
    calls = calls[np.argsort(columns.at[calls], kind="stable")]
    judged = int(chosen[series.judged_calls()].sum())
    parts = min(MOST_POINTS, max(min(_FEWEST_POINTS, judged // _FEWEST_OF_POINT), judged // 30))
    if parts < _FEWEST_KNOWN:
        return None
    edges = np.linspace(0, len(calls), parts + 1).astype(np.int64)
    group = np.full(len(columns), -1)
    group[calls] = np.repeat(np.arange(parts), np.diff(edges))
    at, steps = columns.at[calls], min(len(calls), _MOST_STEPS)
    starts = [*at[edges[:-1]].tolist(), period.end]
    points = _timeline_points(series, [Period(*pair) for pair in pairwise(starts)], group)
    numbered = zip(points, pairwise(edges.tolist()), strict=True)
    times: list[float] = at[np.arange(steps) * len(calls) // steps].tolist()
    return tuple(replace(point, calls=(first + 1, end)) for point, (first, end) in numbered), tuple(times)


def _timeline_points(series: ScoreSeries, parts: Sequence[Period], group: Ints) -> tuple[TimelinePoint, ...]:
    """Return a metric's estimate for each part of the period, or the median of scores that have none.

    Args:
        group: index of the part of each call; -1: the call is in none.
    """
    estimates, counts = series.estimates(group, len(parts)), series.count_judged(group, len(parts))
    points = [TimelinePoint(*row) for row in zip(parts, estimates, counts, strict=True)]
    if series.is_raw:
        quartiles = zip(points, series.quartiles(group, len(parts)), strict=True)
        points = [replace(each, median=of[1], middle=(of[0], of[2])) if of else each for each, of in quartiles]
    return tuple(points)


def _unscored_counts(columns: CallColumns, rows: Sequence[tuple[int, str, int]]) -> UnscoredCounts:
    """Count the unscored calls of each metric and evaluator by the reason for the missing score."""
    found: UnscoredCounts = {}
    for number, reason, count in sorted(rows, key=lambda row: -row[2]):
        series = columns.series[number]
        reasons = found.setdefault((series.metric, columns.evaluators[series.evaluator]), {})
        reasons[reason] = reasons.get(reason, 0) + count
    return found


def _never_scored(
    columns: CallColumns, unscored: UnscoredCounts, measured: Sequence[MetricReport]
) -> list[MetricReport]:
    """Return a report entry for each metric that has no score on any call of the period."""
    known = {(item.metric, item.evaluator) for item in measured}
    better = {series.metric: series.higher_is_better for series in columns.series.values()}
    return [
        MetricReport(metric, evaluator, better[metric], 0, None, (), (), (), None, reasons)
        for (metric, evaluator), reasons in sorted(unscored.items())
        if (metric, evaluator) not in known
    ]


def _sampling_decisions(columns: CallColumns, chosen: Mask) -> dict[str, int]:
    counts = np.bincount(columns.why[chosen], minlength=len(columns.decisions)).tolist()
    named = {reason: count for reason, count in zip(columns.decisions, counts, strict=True) if reason and count}
    return dict(sorted(named.items(), key=lambda item: -item[1]))


def _costs(columns: CallColumns, chosen: Mask) -> tuple[EvaluatorCost, ...]:
    """Return the cost of each evaluator (requests, tokens, dollars, time), most expensive first."""
    costs: list[EvaluatorCost] = []
    for number, name in columns.evaluators.items():
        rows = np.flatnonzero(columns.evaluator == number)
        rows = rows[chosen[columns.evaluation_call[rows]]]
        if not len(rows):
            continue
        cost, requests = columns.cost_usd[rows], columns.requests[rows]
        median, p95 = np.quantile(columns.duration_s[rows], [0.5, 0.95]).tolist()
        costs.append(
            EvaluatorCost(
                evaluator=name,
                looked_at=len(rows),
                requests=int(requests.sum()),
                input_tokens=int(columns.input_tokens[rows].sum()),
                output_tokens=int(columns.output_tokens[rows].sum()),
                cost_usd=float(np.nansum(cost)),
                unpriced=int((np.isnan(cost) & (requests > 0)).sum()),
                failed=int(columns.failed[rows].sum()),
                median_s=median,
                p95_s=p95,
            )
        )
    return tuple(sorted(costs, key=lambda each: (-each.cost_usd, -each.requests)))


def _rollouts(columns: CallColumns, chosen: Mask) -> tuple[Rollout, ...]:
    """Return the application releases that were first used during the period, each with the time of its first call."""
    first = float(columns.at[chosen].min()) if chosen.any() else np.inf
    return tuple(each for each in rollouts_in(columns) if each.at > first)[-_MOST_ROLLOUTS:]


def _notes(
    columns: CallColumns,
    chosen: Mask,
    measured: Sequence[MetricReport],
    groups: ComparedGroups | None,
    period: Period,
    oldest: float | None,
) -> Iterator[str]:
    """Yield the notes of a report, such as a change of evaluator, a short history, or too many workflows."""
    by_metric: dict[str, list[str]] = {}
    for item in measured:
        if item.overall is not None:
            by_metric.setdefault(item.metric, []).append(item.evaluator)
    for names in sorted({tuple(evaluators) for evaluators in by_metric.values() if len(evaluators) > 1}):
        yield (
            f"Several evaluators scored the same metric ({', '.join(names)}): their scores are shown apart, as they "
            "have no common mean."
        )
    compares_periods = groups is not None and groups.kind == "periods"
    if compares_periods and oldest is not None and oldest > previous_period(period).start:
        if oldest >= period.start:
            yield "The history begins within this time: there is nothing earlier to compare with."
        else:
            yield "The history begins within the time compared with: that time is not complete."
    for what, codes in (("workflows", columns.workflow), ("models", columns.model)):
        count = len(np.unique(codes[chosen]))
        if count > MOST_ROWS:
            yield (
                f"There are {count:,} {what}; estimates are given of the {MOST_ROWS} with most calls. Is their name "
                "unique to a call? Give @trace a name="
            )


def _baseline_notes(path: str, workflow: str | None, now: float) -> list[str]:
    """Return the report's note about the age and the release of the stored `consistency` baseline."""
    path = os.environ.get("RAGTRACE_BASELINE") or f"{path}.baseline.json"
    if not os.path.exists(path):
        return []
    try:
        known = Baseline.load(path).distributions
    except SettingsError as error:
        return [str(error)]
    lines = [
        f"{key.workflow or '-'}, {key.evaluator}: {found.describe(now)}"
        for key, found in sorted(known.items())
        if key.metric == "consistency" and workflow in (None, key.workflow)
    ]
    if len(lines) > _MOST_BASELINES:
        lines[_MOST_BASELINES:] = [f"{len(lines) - _MOST_BASELINES} more"]
    return [f"Baseline of consistency ({'; '.join(lines)})."] if lines else []


# --- the worst answers -----------------------------------------------------------------------------------------------


def _worst_answers(
    reader: HistoryReader,
    columns: CallColumns,
    found: Sequence[ScoreSeries],
    chosen: Mask,
    count: int,
    *,
    labelling: Collection[str],
) -> tuple[WorstAnswer, ...]:
    """Return the *count* answers with the worst scores, with the latest first among equal scores.

    Answers with a perfect score are left out.

    Args:
        found: series of one metric by different evaluators; of a call that several scored the last one counts.
        labelling: evaluators that label statements; other evaluators only compare words.
    """
    badness, by = np.zeros(len(columns)), np.zeros(len(columns), dtype=np.int16)
    for number, series in enumerate(found):
        rows = np.flatnonzero(chosen[series.scored_call] & (series.weights > 0))
        here = series.scored_call[rows]
        badness[here] = 1.0 - series.scores[rows] if series.higher_is_better else series.scores[rows]
        by[here] = number
    bad = np.flatnonzero(badness > 0)
    # Number of calls that are read for each answer shown, as the same question may have gone wrong many times.
    order = bad[np.lexsort((-columns.at[bad], -badness[bad]))][: min(count * 40, _MOST_READ)]
    kept: dict[tuple[object, object], tuple[int, CallTexts]] = {}
    repeats: dict[tuple[object, object], int] = {}
    for at in order.tolist():
        number = int(columns.number[at])
        texts = reader.texts([number])[number]
        if number in reader.damaged:
            continue
        key = (texts.body.get("query"), texts.body.get("answer"))
        key = key if key != (None, None) else (number, None)
        repeats[key] = repeats.get(key, 0) + 1
        if len(kept) < count:
            kept.setdefault(key, (at, texts))
    tags = reader.tags(texts.number for _, texts in kept.values())
    return tuple(
        replace(
            _worst_answer(columns, found[int(by[at])], at, texts, repeats[key], len(order), labelling),
            tags=tags.get(texts.number, {}),
        )
        for key, (at, texts) in kept.items()
    )


def _worst_answer(
    columns: CallColumns,
    series: ScoreSeries,
    at: int,
    texts: CallTexts,
    repeats: int,
    among: int,
    labelling: Collection[str],
) -> WorstAnswer:
    body = texts.body
    answer = str(body.get("answer") or "")
    by_evaluator = {columns.evaluators.get(number): evidence for number, evidence in texts.evidence.items()}
    evidence = by_evaluator.get(series.evaluator, {})
    unsupported = [
        claim
        for claim in evidence.get("claims", ())
        if claim.get("checkable", True) and claim.get("support") not in ("supported", None)
    ]
    # Where the unsupported words of a statement are not known, the whole statement is marked.
    ranges = [span for claim in unsupported for span in claim.get("unsupported") or [(claim["start"], claim["end"])]]
    marks = tuple(merge_ranges([(int(start), int(end)) for start, end in ranges], len(answer)))
    return WorstAnswer(
        at=float(columns.at[at]),
        metric=series.metric,
        score=float(series.scores[np.searchsorted(series.scored_call, at)]),
        evaluator=series.evaluator,
        workflow=columns.workflows[int(columns.workflow[at])],
        model=columns.models[int(columns.model[at])],
        release=columns.sources[int(columns.source[at])].release,
        trace_id=texts.trace_id,
        query=str(body.get("query") or ""),
        answer=answer,
        marks=marks,
        passages=_chunks(body, unsupported),
        explanation=str(evidence.get("explanations", {}).get(series.metric, "")),
        repeats=repeats,
        is_raw=series.is_raw,
        texts_kept=bool(body) and not body.get("without_texts"),
        among=among,
        compared=bool(marks) and series.evaluator not in labelling,
        statements=tuple(
            LikelyStatement(
                answer[int(claim["start"]) : int(claim["end"])],
                float(claim["probability"]),
                tuple(int(rank) + 1 for rank in claim.get("evidence", ())),
            )
            for claim in evidence.get("claims", ())
            if claim.get("probability") is not None
        ),
        number=texts.number,
    )


def _chunks(body: Mapping[str, Any], claims: Iterable[Mapping[str, Any]]) -> tuple[RetrievedChunk, ...] | None:
    held_against = {rank for claim in claims for rank in claim.get("evidence", ())}
    contexts: Sequence[Mapping[str, Any]] | None = body.get("contexts")
    if contexts is None:
        return None
    return tuple(
        RetrievedChunk(str(document.get("text") or ""), str(document.get("id") or ""), rank in held_against)
        for rank, document in enumerate(contexts)
    )
