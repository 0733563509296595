"""Onset of a change of the report's main metric: since when its rate is another one, and in which group of calls.

The scores are looked at in order of time, so the periods that the report compares do not matter here. `change_point`
has the estimate and its confidence set, `rhythm` what is usual at a time of the day and the week.

**Looking often.** A page is looked at every hour, or refreshes itself. In a week without any change, a difference
between the last 24 hours and the 24 hours before exceeds 3.6 standard errors at some look, or a change has a p-value of
at most 0.0002, in at most 6 % of weeks (`tests/simulation/test_hourly_looks.py`, docs/history-and-report.md).

**End.** A change is over if a stretch of calls with another mean, and the same mean before and after it, explains the
scores clearly better than a change that lasts, and the means before and after it do not differ.

**Group.** A group is the calls of a workflow, a model, a release, a workflow with one model, or those with a value of
a tag, of a tag that has few. The change is
explained by the group whose own change has the most evidence, if that is as much as for all calls together (a change
within a group is diluted by the calls outside it), and if the group brings more than half of the difference: its share
of the calls times the distance of its mean from the mean before, after the change less before it. A group without
calls before the change, such as a new release, is compared with all calls before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.estimates.change_point import (
    DROP,
    FEWEST,
    ChangePoint,
    Episode,
    evidence_of_difference,
    find_change,
    find_episode,
)
from ragtrace.estimates.ordered_sums import OrderedSums
from ragtrace.estimates.rhythm import TimedSums, learn_rhythm
from ragtrace.report.comparison import MOST_AT_SOME_LOOK, change_between, direction_of
from ragtrace.report.model import Change, ChangedGroup, ChangeEnd, Comparison, Direction, Onset, Rhythm, Rollout

if TYPE_CHECKING:
    from ragtrace.history.reading import CallColumns, TagCodes
    from ragtrace.history.segments import Floats, Ints
    from ragtrace.report.series import Mask, ScoreSeries

_LEVEL: Final = 0.0002
"""Level of the test for a change that no comparison of the report shows, at each of many looks."""
_OVER: Final = 5.0
"""Evidence for the end of a change with which one that lasts is said to be over in at most 2 % of histories: of its
latest calls, a few may be good by chance."""
_MOST_BLOCKS: Final = 2_000
"""Most blocks of scores whose ends are tried as the onset: for more scores, the time is no better known to a reader."""
_BLOCKS_AT_ONCE: Final = 200
"""Blocks that are summed up at once, so that little memory is needed for the products of a million scores."""
_MOST_GROUPS: Final = 20
"""Most names of a kind that are looked at: those with most scores, as smaller groups bring no half of a difference."""
_MOST_OF_CALLS: Final = 0.9
"""Share of the calls, before and after, above which a group is as good as all calls, and explains nothing."""
_MOST_OF_CHANGE: Final = 0.5
"""Share of the difference above which a group has most of it."""
_NEEDED_FOR_BOTH: Final = 2.0
"""Evidence that a workflow with one model must have beyond that of either alone, as it has one name more."""
_NEEDED_FOR_TAG: Final = 2.0
"""Evidence that one tag alone must have beyond that of all calls together, and of a workflow, model or release. Of many
tags the best one has more by chance, about the logarithm of their number."""
_TAG: Final = "tag"
_NOISE: Final = 1.0
"""Evidence by which a group may stay below all calls, as the calls outside it scatter, too."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Group of calls by properties that they share."""

    names: tuple[tuple[str, str], ...]
    """Kind and name of each property."""
    sums: OrderedSums
    """Sums of the group's scores over the blocks of all scores."""

    def needed(self, n_of_tags: int) -> float:
        """Return the evidence that the group must have beyond that of a workflow, a model or a release.

        Of many groups, some look like the cause by chance: those of a workflow with a model, and those of tags.

        Args:
            n_of_tags: number of groups by tags that are looked at.
        """
        if self.names[0][0] == _TAG:
            return _NEEDED_FOR_TAG + math.log(n_of_tags)
        return _NEEDED_FOR_BOTH * (len(self.names) - 1)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Group that may explain a change."""

    group: _Group
    share: float
    """Share of the difference that comes from the group."""
    evidence: float
    change: ChangePoint | None
    """Change within the group; None: it has no calls before the change."""


class _Scores:
    """Judged scores in order of time, in blocks that are the same for all groups of calls."""

    def __init__(self, columns: CallColumns, series: ScoreSeries) -> None:
        counted = series.weights > 0.0
        # A selection copies, and of a million scores each array has megabytes.
        rows: Ints | slice = slice(None) if counted.all() else np.flatnonzero(counted)
        at = columns.at[series.scored_call[rows]]
        if (at[1:] < at[:-1]).any():  # calls are stored about in the order of their ends
            order = np.argsort(at, kind="stable")
            rows, at = np.flatnonzero(counted)[order], at[order]
        self.call, self._at = series.scored_call[rows], at
        self._weights, self._scores = series.weights[rows], series.scores[rows]
        self.blocks = min(_MOST_BLOCKS, len(at))
        self._edges = np.linspace(0, len(at), self.blocks + 1).astype(np.int64)

    def until(self, end: int) -> _Scores:
        """Return the scores of the blocks before *end*."""
        scores = copy(self)
        scores.blocks, scores._edges = end, self._edges[: end + 1]
        last = int(scores._edges[-1])
        scores.call, scores._at = self.call[:last], self._at[:last]
        scores._weights, scores._scores = self._weights[:last], self._scores[:last]
        return scores

    def block_times(self) -> Floats:
        """Return the mean time of each block."""
        if not self.blocks:
            return np.zeros(0)
        start = float(self._at[0])
        times: Floats = np.add.reduceat(self._at - start, self._edges[:-1]) / np.diff(self._edges) + start
        return times

    def block_at(self, at: float) -> int:
        """Return the first block that begins at a time or later."""
        return int(np.searchsorted(self._at[self._edges[:-1]], at)) if self.blocks else 0

    def sums(self, group: Ints | None = None, count: int = 1) -> list[OrderedSums]:
        """Return the sums over each block of the scores of each of *count* groups.

        Args:
            group: index of each score's group; -1: it is in none; None: all scores are in one group.
        """
        terms = np.zeros((len(OrderedSums._fields), self.blocks, count))
        for first in range(0, self.blocks, _BLOCKS_AT_ONCE):
            edges = self._edges[first : first + _BLOCKS_AT_ONCE + 1]
            here, blocks = slice(int(edges[0]), int(edges[-1])), len(edges) - 1
            place = np.repeat(np.arange(0, blocks * (count + 1), count + 1, dtype=np.intp), np.diff(edges))
            # The scores of no group are summed up before the first group.
            place += 1 if group is None else group[here] + 1
            w, y = self._weights[here], np.clip(self._scores[here], 0.0, 1.0)
            for term, values in zip(terms, OrderedSums.of(w, y), strict=True):
                sums = np.bincount(place, weights=values, minlength=blocks * (count + 1))
                term[first : first + blocks] = sums.reshape(blocks, count + 1)[:, 1:]
        return [OrderedSums(*terms[:, :, number]) for number in range(count)]

    def times(self, first: int, earliest: int, latest: int) -> tuple[float, float, float]:
        """Return the time of a change, and of the two ends of its confidence set, from the first blocks after it.

        A change within a block is seen at one of its ends, so the blocks on both sides count as uncertain.
        """
        rows = self._edges[first], self._edges[earliest - 1], self._edges[min(latest + 1, self.blocks)] - 1
        return float(self._at[rows[0]]), float(self._at[rows[1]]), float(self._at[rows[2]])


class ChangeSearch:
    """Search of one metric's scores for changes that are not usual at their time.

    Args:
        columns: the calls, those compared with included.
        series: scores of the metric.
        past: scores of the metric in the weeks before the calls.
        tags: reads the tags of the calls, which is done where a change was found.
    """

    def __init__(
        self,
        columns: CallColumns,
        series: ScoreSeries,
        past: TimedSums,
        tags: Callable[[], Iterable[TagCodes]] = tuple,
    ) -> None:
        self._columns, self._series, self._tags = columns, series, tags
        self._scores = _Scores(columns, series)
        (sums,) = self._scores.sums()
        self._rhythm = learn_rhythm(TimedSums(self._scores.block_times(), sums), past)
        self._whole = self._adjusted(sums)

    @property
    def rhythm(self) -> Rhythm:
        """Rhythm that is known; empty: none."""
        return "" if self._rhythm is None else "week" if self._rhythm.is_weekly else "day"

    def watched(self, change: Change, since: float) -> Change:
        """Return the change of the mean at the time *since*, whose direction is unclear where it is usual then."""
        if self._rhythm is None:
            return change
        block = self._scores.block_at(since)
        if not 0 < block < len(self._whole.w):
            return replace(change, direction="unclear")
        kept = float(self._rhythm.kept(np.array(block)))
        if kept <= 0.0:
            return replace(change, direction="unclear")
        usual = self._rhythm.usual_change(block, self._whole)
        widening = MOST_AT_SOME_LOOK / np.sqrt(kept)
        up = self._series.higher_is_better
        return replace(change, usual=usual, direction=direction_of(change, up, widening=widening, usual=usual))

    def onset(self, comparison: Comparison | None) -> Onset | None:
        """Return since when the metric is better or worse, or was for a time; None: no change is certain.

        Args:
            comparison: comparison of the report: a clear change of the metric in it is enough to look for its onset.
        """
        found = find_change(self._whole, self._rhythm)
        if found is None or not (found.p_value <= _LEVEL or _is_clear(found, self._series, comparison)):
            return None
        episode = find_episode(self._whole, self._rhythm)
        if episode is not None and self._is_over(episode, found):
            return self._ended(episode)
        at, earliest, latest = self._scores.times(found.first, found.earliest, found.latest)
        return self._onset(self._scores, found, (at, earliest, latest), np.inf)

    def _is_over(self, episode: Episode, found: ChangePoint) -> bool:
        """Return whether the scores after an *episode* are as those before it, unlike after the change *found*."""
        before, after = self._whole.part(0, episode.first), self._whole.part(episode.end, len(self._whole.w))
        return episode.evidence >= found.evidence + _OVER and evidence_of_difference(before, after) < DROP

    def _ended(self, episode: Episode) -> Onset | None:
        """Return the onset of a change that is over."""
        scores = self._scores.until(episode.end)
        began = self._scores.times(episode.first, episode.earliest, episode.latest)
        ended = self._scores.times(episode.end, episode.earliest_end, episode.latest_end)
        change = ChangePoint(
            episode.first, episode.earliest, episode.latest, episode.outside, episode.inside, episode.evidence, 0.0
        )
        onset = self._onset(scores, change, began, ended[0])
        if onset is None:
            return None
        since = self._series.estimate(self._columns.at >= ended[0])
        return replace(onset, end=ChangeEnd(*ended, since))

    def _onset(
        self, scores: _Scores, found: ChangePoint, times: tuple[float, float, float], end: float
    ) -> Onset | None:
        columns, series = self._columns, self._series
        at, earliest, latest = times
        before, after = series.split(columns.at < at, (columns.at >= at) & (columns.at < end))
        change = change_between(before, after, higher_is_better=series.higher_is_better)
        if change is None or (change.value > 0.0) is not (found.after > found.before):
            return None
        direction: Direction = "better" if (change.value > 0.0) is series.higher_is_better else "worse"
        whole = self._whole.part(0, scores.blocks)
        if self._rhythm is not None:  # of a group's change, the rhythm takes nothing away
            kept = self._rhythm.kept(np.array(found.first), np.array(scores.blocks))
            found = replace(found, evidence=found.evidence * float(kept))
        group = _changed_group(columns, [*self._tags()], series, scores, whole, found, self._adjusted, end)
        first, last = (earliest, latest) if group is None else (group.earliest, group.latest)
        rollouts = tuple(each for each in rollouts_in(columns) if first <= each.at <= last)
        return Onset(at, earliest, latest, direction, before, after, group, rollouts)

    def _adjusted(self, sums: OrderedSums) -> OrderedSums:
        """Return the sums of the scores of all, or the first, blocks less what is usual at their time."""
        return sums if self._rhythm is None else sums.less(self._rhythm.expected[: len(sums.w)])


def can_be_searched(series: ScoreSeries) -> bool:
    """Return whether changes of a metric can be told: a change of the metric itself looks like one of the answers."""
    return not (series.is_raw or series.versions)


def rollouts_in(columns: CallColumns) -> list[Rollout]:
    """Return the application's releases with their first calls, oldest first, without the release of the oldest call.

    When that one was rolled out is not known: it may have been in use before the calls that were read.
    """
    began: dict[str, float] = {}
    for number, source in columns.sources.items():
        times = columns.at[columns.source == number]
        if source.release and len(times):
            began[source.release] = min(began.get(source.release, np.inf), float(times.min()))
    return [Rollout(at, release) for at, release in sorted((at, release) for release, at in began.items())[1:]]


def _is_clear(found: ChangePoint, series: ScoreSeries, comparison: Comparison | None) -> bool:
    """Return whether the periods compared differ clearly, and in the direction of the change that was found."""
    if comparison is None or comparison.kind != "periods":
        return False
    key = series.metric, series.evaluator
    row = next((row for row in comparison.rows if (row.metric, row.evaluator) == key), None)
    if row is None or row.change is None or row.change.direction == "unclear":
        return False
    return (row.change.value > 0.0) is (found.after > found.before)


# --- the group --------------------------------------------------------------------------------------------------------


def _changed_group(
    columns: CallColumns,
    tags: Sequence[TagCodes],
    series: ScoreSeries,
    scores: _Scores,
    whole: OrderedSums,
    found: ChangePoint,
    adjusted: Callable[[OrderedSums], OrderedSums],
    end: float,
) -> ChangedGroup | None:
    """Return the group that most of a change comes from, or None if it comes from no single one.

    Args:
        columns: the calls.
        tags: tags of the calls.
        series: scores of the metric.
        scores: its scores until the change was over.
        whole: sums over their blocks, less what is usual.
        found: the change.
        adjusted: takes what is usual from the sums of a group.
        end: time when the change was over.
    """
    groups = [_Group(names, adjusted(sums)) for names, sums in _groups(columns, tags, scores)]
    n_of_tags = sum(each.names[0][0] == _TAG for each in groups)
    known = (_candidate(each, whole, found, n_of_tags) for each in groups)
    candidates = [each for each in known if each is not None]
    best = max(candidates, key=lambda each: each.evidence - each.group.needed(n_of_tags), default=None)
    if best is None:
        return None
    # Other names of the same calls, such as a model that only one workflow uses, tell a reader as much.
    alike = [each.group for each in candidates if all(map(np.array_equal, each.group.sums, best.group.sums))]
    names = dict.fromkeys(name for group in (best.group, *alike) for name in group.names)
    member = _calls_of(columns, tags, best.group)
    if best.change is None:
        began = earliest = latest = float(columns.at[member].min())
    else:
        began, earliest, latest = scores.times(best.change.first, best.change.earliest, best.change.latest)
    member &= columns.at < end
    before, after = series.split(member & (columns.at < began), member & (columns.at >= began))
    return ChangedGroup(
        tuple(names), best.share, began, earliest, latest, None if best.change is None else before, after
    )


class _Groups(NamedTuple):
    """Groups of scored calls that have no call in common."""

    names: Sequence[tuple[tuple[str, str], ...]]
    place: Ints
    """Position in `names` of the group of each scored call; -1: it is in none."""


def _groups(
    columns: CallColumns, tags: Sequence[TagCodes], scores: _Scores
) -> Iterator[tuple[tuple[tuple[str, str], ...], OrderedSums]]:
    """Yield names and sums of the groups of the scored calls by workflow, model, release, workflow with model, and
    tag."""
    of_release = {number: source.release for number, source in columns.sources.items()}
    releases = sorted(set(of_release.values()))
    place = np.zeros(max(of_release, default=0) + 1, dtype=np.int32)
    for number, name in of_release.items():
        place[number] = releases.index(name)
    workflow, model, release = (
        _largest([((kind, name),) if name else () for name in names], codes[scores.call])
        for kind, names, codes in (
            ("workflow", columns.workflows, columns.workflow),
            ("model", columns.models, columns.model),
            ("release", releases, place[columns.source]),
        )
    )
    pairs = [(*first, *second) for first in workflow.names for second in model.names]
    both = workflow.place * np.int32(len(model.names)) + model.place
    both[(workflow.place < 0) | (model.place < 0)] = -1
    of_tags = (
        _largest([((_TAG, f"{tag.name}={value}"),) for value in tag.values], tag.code[scores.call]) for tag in tags
    )
    for groups in (workflow, model, release, _largest(pairs, both), *of_tags):
        yield from zip(groups.names, scores.sums(groups.place, len(groups.names)), strict=True)


def _largest(names: Sequence[tuple[tuple[str, str], ...]], codes: Ints) -> _Groups:
    """Return the groups with the most scored calls, without those that have no name.

    Args:
        names: kinds and names of each group.
        codes: position in *names* of the group of each call; -1: it is in none.
    """
    counts = np.bincount(codes + 1, minlength=len(names) + 1)[1:]
    order = np.argsort(-counts, kind="stable").tolist()
    largest = [code for code in order if names[code] and counts[code]][:_MOST_GROUPS]
    place = np.full(len(names) + 1, -1, dtype=np.int32)  # the last element is that of -1
    place[largest] = np.arange(len(largest), dtype=np.int32)
    return _Groups([names[code] for code in largest], place[codes])


def _candidate(group: _Group, whole: OrderedSums, found: ChangePoint, n_of_tags: int) -> _Candidate | None:
    """Return the group with its share of a change and its evidence, or None if it does not explain the change.

    Args:
        group: the group.
        whole: sums of all scores.
        found: the change in these.
        n_of_tags: number of groups by tags that are looked at.
    """
    mine = group.sums
    past, now = _totals(mine.part(0, found.first)), _totals(mine.part(found.first, len(mine.w)))
    all_past, all_now = _totals(whole.part(0, found.first)), _totals(whole.part(found.first, len(whole.w)))
    of_past, of_now = past.calls / all_past.calls, now.calls / all_now.calls
    if now.effective < FEWEST or min(of_past, of_now) >= _MOST_OF_CALLS:
        return None
    brings = of_now * (now.mean - found.before) - of_past * (past.mean - found.before)
    share = brings / (found.after - found.before)
    if past.effective >= FEWEST:
        change = _change_within(mine)
        if change is None or (change.after > change.before) is not (found.after > found.before):
            return None
        evidence = change.evidence
    else:
        change = None
        evidence = evidence_of_difference(whole.part(0, found.first), mine.part(found.first, len(mine.w)))
    of_chance = group.needed(n_of_tags) if group.names[0][0] == _TAG else 0.0
    explains = share > _MOST_OF_CHANGE and evidence >= found.evidence - _NOISE + of_chance
    return _Candidate(group, share, evidence, change) if explains else None


class _Totals(NamedTuple):
    """Number of calls that scores stand for, their mean, and the effective number of scores."""

    calls: float
    mean: float
    effective: float


def _totals(sums: OrderedSums) -> _Totals:
    calls, total, square = (float(each.sum()) for each in (sums.w, sums.wy, sums.ww))
    return _Totals(calls, total / calls, calls * calls / square) if calls > 0.0 else _Totals(0.0, 0.0, 0.0)


def _change_within(mine: OrderedSums) -> ChangePoint | None:
    """Return the change in the scores of a group, with the blocks of all scores that it lies between."""
    blocks = np.flatnonzero(mine.w)  # in the other blocks the group has no scores
    found = find_change(OrderedSums(*(each[blocks] for each in mine)))
    if found is None:
        return None
    # Between the last block with scores before the change and the first one after it: the first of these counts.
    first, latest = int(blocks[found.first]), int(blocks[found.latest])
    return replace(found, first=first, earliest=int(blocks[found.earliest - 1]) + 1, latest=latest)


def _calls_of(columns: CallColumns, tags: Sequence[TagCodes], group: _Group) -> Mask:
    """Return a mask of all calls of a group, also of those without a score."""
    member = np.ones(len(columns), dtype=bool)
    for kind, name in group.names:
        codes: Ints
        if kind == _TAG:
            tag, value = name.split("=", 1)
            codes, numbers = next((each.code, [each.values.index(value)]) for each in tags if each.name == tag)
        elif kind == "release":
            codes, numbers = columns.source, [n for n, source in columns.sources.items() if source.release == name]
        else:
            codes, names = (
                (columns.workflow, columns.workflows) if kind == "workflow" else (columns.model, columns.models)
            )
            numbers = [names.index(name)]
        member &= np.isin(codes, numbers)
    return member
