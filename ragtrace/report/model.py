"""Data classes for the contents of a report, from which every output format (HTML, Markdown, JSON) is rendered.

Their field names are the keys of the report's JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from ragtrace.core.errors import SettingsError
from ragtrace.core.tags import TagValue
from ragtrace.estimates import Estimate, Interval
from ragtrace.estimates.label_demand import labels_needed

Rhythm: TypeAlias = Literal["", "day", "week"]
Direction: TypeAlias = Literal["better", "worse", "unclear"]
ComparisonKind: TypeAlias = Literal["periods", "releases", "models"]
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_WIDTHS: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
MOST_POINTS: Final = 48
UNRELIABLE: Final = "UNRELIABLE"
"""First word of a doubt about labels that reviewers do not agree on: such labels correct no headline."""


@dataclass(frozen=True, slots=True)
class Period:
    """Time interval that includes `start` and excludes `end`, in seconds since the epoch."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Estimate of one metric over a part of the reported period."""

    period: Period
    estimate: Estimate
    judged: int
    median: float | None = None
    """Median of a decision judge's scores, which have no estimate; None for other scores, or if there are none."""
    middle: tuple[float, float] | None = None
    """Quartiles between which the middle half of these scores lies."""
    calls: tuple[int, int] | None = None
    """First and last of its calls, counted from 1 in order of time, where the timeline has a part for every so many
    calls; None: its parts are of equal times."""

    @property
    def value(self) -> float | None:
        """Level of the line at this point: the estimate, or the median of scores that have none."""
        return self.estimate.value if self.median is None else self.median


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between a metric's estimates in two groups of calls (after - before), with its 95 % interval."""

    value: float
    low: float
    high: float
    direction: Direction
    """Direction of the change; `unclear` if it may be chance at one of a week's hourly looks, which asks for more than
    that the interval does not contain 0."""
    usual: float = 0.0
    """Part of the difference that the rhythm of days and weeks makes."""


@dataclass(frozen=True, slots=True)
class BreakdownChange:
    """Estimates of one workflow or model in the two compared groups of calls, with their difference."""

    before: Estimate
    after: Estimate
    judged_before: int
    judged_after: int
    change: Change | None
    """Difference of the estimates; None if no call was judged in one of the groups."""
    share: float | None
    """Share of the overall change that comes from this workflow or model, negative if it changed the other way; None if
    no share can be given."""


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """Estimate of one metric over the calls of one workflow, one model or one value of a tag."""

    name: str
    calls: int
    judged: int
    estimate: Estimate
    moved: BreakdownChange | None = None


@dataclass(frozen=True, slots=True)
class ScoreSpread:
    """Distribution of one metric's scores: quantiles, mean and histogram.

    Each score is weighted by the number of calls that it stands for.
    """

    n: int
    low: float
    """5 % quantile."""
    first: float
    """25 % quantile."""
    median: float
    third: float
    """75 % quantile."""
    high: float
    """95 % quantile."""
    mean: float
    shares: tuple[float, ...] = ()
    """Histogram: shares of the calls in twenty equal parts of [0, 1]; empty if the scores are not in [0, 1]."""


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """Rate of bad calls as corrected by human labels, shown beside the judge's rate."""

    estimate: Estimate
    """Corrected estimate: `corrected` is the method, and `stale` the reason why the labels no longer hold, if any."""
    labels: int
    """Number of labelled calls that the estimate rests on."""
    doubt: str = ""
    """Reason why the labels may be wrong; empty if several reviewers agree well."""
    unsure: int = 0
    """Number of further calls that the reviewers are unsure about; the interval contains what these may be."""
    decision_judge: str = ""
    """Decision judge whose scores of the calls count, too, as the first stage of a cascade; empty: there is none."""

    @property
    def labels_needed(self) -> int:
        """Number of labels with which the corrected rate may stand for the rate; `labels` if these suffice."""
        return labels_needed(self.estimate, self.labels)

    @property
    def has_too_few(self) -> bool:
        """Whether the labels are too few for the corrected rate to be shown."""
        return self.labels < self.labels_needed

    @property
    def holds(self) -> bool:
        """Whether the corrected rate can stand for the rate: it is known by enough labels on which reviewers agree, and
        not stale."""
        doubted = bool(self.estimate.stale) or self.doubt.startswith(UNRELIABLE)
        return self.estimate.value is not None and not doubted and not self.has_too_few


@dataclass(frozen=True, slots=True)
class MetricReport:
    """Everything that a report says about one metric as scored by one evaluator."""

    metric: str
    evaluator: str
    """Evaluator, as "id@version"."""
    higher_is_better: bool
    judged: int
    overall: Estimate | None
    """Estimate over all calls; None if the metric is not estimated, for instance because its range is not [0, 1]."""
    timeline: tuple[TimelinePoint, ...]
    by_workflow: tuple[BreakdownRow, ...]
    by_model: tuple[BreakdownRow, ...]
    box: ScoreSpread | None
    """Distribution of the scores; None if there is no score."""
    unscored: Mapping[str, int]
    """Number of unscored calls by reason."""
    corrected: CorrectedRate | None = None
    """Overall rate as corrected by human labels; None if the metric has no labels."""
    is_raw: bool = False
    """Whether the scores are probabilities that a decision model gave: their mean is no rate, and no estimate has a
    value."""
    box_before: ScoreSpread | None = None
    """Distribution of uncalibrated scores in the time or group compared with, as their change cannot be estimated; None
    for other scores, or if nothing is compared."""
    call_times: tuple[float, ...] = ()
    """Times of the calls at equal steps of their order, where the timeline is by call; empty: it is by time."""
    by_tags: tuple[tuple[str, tuple[BreakdownRow, ...]], ...] = ()
    """Names of tags, with a row for each value, whose name is `tenant=acme`; of the main metric alone."""

    @property
    def unscored_shares(self) -> Mapping[str, float]:
        """Share of the calls without a score by reason, of all calls that the evaluator looked at for the metric."""
        seen = self.judged + sum(self.unscored.values())
        return {reason: count / seen for reason, count in self.unscored.items()}


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """Estimates of one metric by one evaluator in the two groups of calls that are compared."""

    metric: str
    evaluator: str
    higher_is_better: bool
    before: Estimate
    after: Estimate
    change: Change | None
    reason: str = ""
    """Reason why no change can be given; empty if there is one."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of every metric between two periods, two releases or two models."""

    kind: ComparisonKind
    before: str
    after: str
    calls_before: int
    calls_after: int
    rows: tuple[MetricComparison, ...]
    releases_before: tuple[str, ...] = ()
    releases_after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecentChange:
    """Change of a metric in the newest quarter of the period, compared with the rest of the period."""

    since: float
    before: Estimate
    after: Estimate
    change: Change
    """Change with its interval at one look; its direction is that at 99 % confidence."""


@dataclass(frozen=True, slots=True)
class ChangedGroup:
    """Group of calls that most of a change comes from, with the time since when the metric is another one there."""

    names: tuple[tuple[str, str], ...]
    """Kind (workflow, model, release, tag) and name of each property that the group's calls share. That of a tag is
    name=value."""
    share: float
    """Share of the change that comes from the group; above 1 where the other calls changed the other way."""
    at: float
    """Time of the first call after the change within the group, or of the group's first call where it is new."""
    earliest: float
    """Time from which on the change within the group lies, with 95 % confidence."""
    latest: float
    before: Estimate | None
    """Estimate of the group before the change; None: the group has no calls before it, or hardly any."""
    after: Estimate


@dataclass(frozen=True, slots=True)
class ChangeEnd:
    """End of a change, after which the metric is as it was before."""

    at: float
    """Time of the first call after it, as it is most likely."""
    earliest: float
    """Time from which on the end lies, with 95 % confidence."""
    latest: float
    since: Estimate
    """Estimate of the calls after it."""


@dataclass(frozen=True, slots=True)
class Onset:
    """Time since when the headline metric is better or worse, whichever periods the report compares."""

    at: float
    """Time of the first call after the change, as it is most likely."""
    earliest: float
    """Time from which on the change lies, with 95 % confidence."""
    latest: float
    """Time until which it lies."""
    direction: Direction
    before: Estimate
    """Estimate of all calls before `at` that the report has read, those of the period compared with included."""
    after: Estimate
    group: ChangedGroup | None
    """Group of calls that most of the change comes from; None: it comes from no single one."""
    rollouts: tuple[Rollout, ...] = ()
    """Releases whose first call lies within the times of the onset, of the group's where there is one: a change at the
    same time, which may be the cause or not."""
    end: ChangeEnd | None = None
    """When the change was over, and `after` is the estimate until then; None: it is not known to be over."""


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """One chunk that the application retrieved for a call."""

    text: str
    id: str
    held_against: bool
    """Whether an unsupported statement of the answer was compared with this chunk."""


@dataclass(frozen=True, slots=True)
class LikelyStatement:
    """Statement of an answer, with the probability, by a decision model, that the retrieved chunks support it."""

    text: str
    probability: float
    chunks: tuple[int, ...]
    """Ranks from 1 of the chunks that share most words with the statement, the closest first."""


@dataclass(frozen=True, slots=True)
class WorstAnswer:
    """Answer with one of the worst scores, with its question, retrieved chunks and unsupported words."""

    at: float
    metric: str
    score: float
    evaluator: str
    workflow: str
    model: str
    release: str
    trace_id: str
    query: str
    answer: str
    marks: tuple[tuple[int, int], ...]
    """Ranges of characters in the answer that no chunk supports."""
    passages: tuple[RetrievedChunk, ...] | None
    """Retrieved chunks in rank order; None if the retrieval was not captured."""
    explanation: str
    repeats: int
    """Number of calls, of the `among` worst ones, with the same question and answer."""
    texts_kept: bool
    among: int = 0
    """Number of worst calls that were read."""
    compared: bool = False
    """Whether the evaluator only compared words, which does not show that the marked words lack support."""
    is_raw: bool = False
    """Whether the score is a raw probability of a decision model."""
    statements: tuple[LikelyStatement, ...] = ()
    """Statements of the answer with their probabilities, in order; empty if the evaluator gives none."""
    number: int = 0
    """Row number of the call in the history file."""
    tags: Mapping[str, TagValue] = field(default_factory=dict[str, TagValue])
    """Tags of the call."""


@dataclass(frozen=True, slots=True)
class GroupRate:
    """Group of calls in which a metric is clearly worse than in all other calls."""

    kind: str
    """Kind of the common property: workflow, model, release, tag (named name=value), retrieval, chunk, or word of the
    query."""
    name: str
    judged: int
    estimate: Estimate
    others: Estimate
    """Estimate of all calls outside the group."""
    change: Change
    """Difference between the group and all other calls."""
    alike: tuple[str, ...] = ()
    """Kinds and names of other groups with almost the same calls."""
    questions: int = 0
    """Number of distinct questions of the judged calls: each counts once in the estimates."""
    mostly: RepeatedQuestion | None = None
    """Question of more than half of the group's bad calls, if there is one."""


@dataclass(frozen=True, slots=True)
class RepeatedQuestion:
    """Question that more than half of the bad calls ask."""

    query: str
    calls: int
    """Number of bad calls that ask it."""
    of: int
    """Number of all bad calls, of the group or of all calls whose texts were read."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Kind of defect found in some of the bad calls, with its share of the bad calls."""

    kind: str
    meaning: str
    judged: int
    share: Estimate


@dataclass(frozen=True, slots=True)
class Grouping:
    """Common properties of a metric's bad calls: groups that are clearly worse, and kinds of defects."""

    metric: str
    evaluator: str
    judged: int
    read: int
    """Number of judged calls whose texts were read."""
    examined: int
    """Number of groups that were compared."""
    worse: tuple[GroupRate, ...]
    """Groups that are clearly worse, the one with the most excess bad calls first."""
    defects: tuple[Defect, ...]
    questions: int = 0
    """Number of distinct questions of the calls whose texts were read: each counts once in the groups."""
    mostly: RepeatedQuestion | None = None
    """Question of more than half of the bad calls, if there is one."""


@dataclass(frozen=True, slots=True)
class FeedbackSummary:
    """Summary of the user feedback of one name, beside the main metric's scores of the rated calls.

    Users choose what they rate, so these figures describe the rated calls alone.
    """

    name: str
    ratings: int
    """Number of feedback entries with a score."""
    mean: float | None
    """Mean score of the feedback; None if no feedback has a score."""
    low: int
    """Number of ratings below 0.5."""
    corrections: int
    judged_low: int
    """Number of calls with a rating below 0.5 that the headline metric scored."""
    mean_low: float | None
    """Mean score of the headline metric on the calls with a rating below 0.5; None if there are none."""
    judged_other: int
    """Number of calls with no rating below 0.5 that the headline metric scored."""
    mean_other: float | None


@dataclass(frozen=True, slots=True)
class GuardSummary:
    """Summary of what a guard did with the answers of one workflow or, in shadow mode, would have done."""

    workflow: str
    metric: str
    mode: str
    """Action for which the guard is configured, such as shadow or replace."""
    answers: int
    passed: int
    failed: int
    failed_share: Interval
    """Share of all answers that failed."""
    unchecked: Mapping[str, int]
    """Number of answers that could not be checked, by reason: they have neither passed nor failed."""
    actions: Mapping[str, int]
    """Number of answers by what was done with them; answers that were let through as they are, are left out."""
    added_p50_ms: float | None
    """Median of the time for which answers were held back, or would have been; None: none was."""
    added_p95_ms: float | None
    labelled_good: int
    """Number of checked answers that people call good for the metric."""
    good_failed: Interval | None
    """Share of the labelled good answers that failed; None: there are none."""
    labelled_bad: int
    bad_failed: Interval | None
    """Share of the labelled bad answers that failed; None: there are fewer than ten."""


@dataclass(frozen=True, slots=True)
class ReportedAlert:
    """Alert that lasted at some time of the reported period, as all processes together saw it."""

    name: str
    metric: str
    evaluator: str
    """Id of the evaluator whose scores the alert watches."""
    problem: str
    """Kind of the problem: `spiking`, `no_data`, `judge_failing` or `judge_drift`."""
    direction: str
    """Side of the bound on which a mean is bad: `above` or `below`."""
    bound: float
    against_baseline: bool
    """Whether the bound follows from a baseline."""
    workflow: str | None
    """Workflow of the calls; None: all workflows."""
    model: str | None
    """Model of the calls; None: all models."""
    since: float
    last_seen: float
    """Time when the alert was last known to last in any process."""
    ended: float | None
    """Time when the alert was over in the last process; None: it is not known to be over in all of them."""
    processes: int
    """Number of incidents that are this alert: usually one for each process that saw it."""
    calls: int
    """Number of scored calls behind `value`, of the process that saw the most."""
    value: float | None
    """Mean score that this process saw since a spike began; None: the alert is about no spike."""
    low: float | None
    high: float | None
    before: float | None
    """Mean score before the spike; None: not known."""
    is_raw: bool
    """Whether the scores are raw probabilities, whose mean is no rate."""


@dataclass(frozen=True, slots=True)
class EvaluatorCost:
    """Cost of one evaluator: requests, tokens, dollars and time."""

    evaluator: str
    looked_at: int
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unpriced: int
    """Number of calls of unknown price, which `cost_usd` leaves out."""
    failed: int
    median_s: float
    p95_s: float


@dataclass(frozen=True, slots=True)
class Rollout:
    """Application release, with the time of its first call."""

    at: float
    release: str


@dataclass(frozen=True, slots=True)
class Report:
    """Whole contents of a report on a local history of scored calls."""

    path: str
    made_at: float
    period: Period
    oldest: float | None
    """Time of the oldest call in the history, in seconds since the epoch; None if there is none."""
    workflow: str | None
    calls: int
    services: tuple[str, ...]
    releases: tuple[str, ...]
    headline: MetricReport | None
    measured: tuple[MetricReport, ...]
    comparison: Comparison | None
    recent: RecentChange | None
    """Change of the headline metric in the newest quarter of the period; None if there is none to give."""
    onset: Onset | None
    """Since when the headline metric is better or worse; None: no change is certain."""
    ended: Onset | None
    """Change of the headline metric that is over; None: none is certain, or the latest one lasts."""
    rhythm: Rhythm
    """Rhythm that the headline metric's changes were adjusted for; empty: fewer than two days of scores are known."""
    latest: TimelinePoint | None
    """Headline metric in the last hour, or in the last sixth of a period shorter than six hours."""
    problems: tuple[WorstAnswer, ...]
    spent: tuple[EvaluatorCost, ...]
    decisions: Mapping[str, int]
    """Number of calls by sampling decision."""
    notes: tuple[str, ...]
    rollouts: tuple[Rollout, ...] = ()
    """Rollouts in order of time."""
    grouping: Grouping | None = None
    """Common properties of the bad calls of the headline metric; None if no call was judged."""
    guards: tuple[GuardSummary, ...] = ()
    """Summaries of what guards did, one for each workflow, metric and mode."""
    alerts: tuple[ReportedAlert, ...] = ()
    """Alerts that lasted at some time of the period, the latest first."""
    feedback: tuple[FeedbackSummary, ...] = ()
    """Summaries of the users' feedback, one for each feedback name."""
    rate: Estimate | None = None
    """Rate at the top of the report: the headline metric as corrected by human labels (`corrected` says by which
    method), or, where no labels hold, as its evaluator gave it; None: there is no headline."""
    model: str | None = None
    """Model of the calls that the report is about; None: all."""
    release: str | None = None
    """Release of the application that the report is about; None: all."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tags of the calls that the report is about, with the texts of their values; empty: all calls."""

    @property
    def latest_change(self) -> Onset | None:
        """The change of the headline metric that lasts, or else the one that is over."""
        return self.onset or self.ended

    @property
    def changes(self) -> bool:
        """Whether at least one metric could be compared between the two groups of calls."""
        return self.comparison is not None and any(row.change for row in self.comparison.rows)

    @property
    def evaluators(self) -> frozenset[str]:
        """Every evaluator that the report names, as "id@version"."""
        compared = () if self.comparison is None else self.comparison.rows
        measured = {each.evaluator for each in self.measured} | {each.evaluator for each in compared}
        return frozenset(measured | {each.evaluator for each in self.spent})

    def compared(self, item: MetricReport | None) -> MetricComparison | None:
        """Return the before-and-after comparison of one metric by one evaluator, or None if there is none."""
        if self.comparison is None or item is None:
            return None
        key = item.metric, item.evaluator
        return next((row for row in self.comparison.rows if (row.metric, row.evaluator) == key), None)


def parse_time(text: str, now: float, name: str) -> float:
    """Parse a time from the command line (`24h` ago, `now`, a date) into seconds since the epoch.

    A date without a time zone is in UTC.

    Raises:
        SettingsError: *text* is neither, or a time that no calendar has; *name* is the option that the message names.
    """
    text = text.strip()
    if text == "now":
        return now
    try:
        if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
            at = now - float(ago[1]) * _UNITS[ago[2]]
        else:
            when = datetime.fromisoformat(text.replace("Z", "+00:00"))
            at = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
        datetime.fromtimestamp(at, timezone.utc)  # which fails for a time that no calendar has
    except (ValueError, OverflowError, OSError):
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise SettingsError(
            f"{name} must be a time, got {shown!r}; write for instance 24h, 7d, 2025-11-03 or 2025-11-03T14:00"
        ) from None
    return at


def parse_period(since: str, until: str, now: float) -> Period:
    """Parse the values of the command-line options `--since` and `--until` into a period.

    Raises:
        SettingsError: one of them is not a time, or the end is not after the start.
    """
    period = Period(parse_time(since, now, "--since"), parse_time(until, now, "--until"))
    if not period.start < period.end:
        raise SettingsError(
            f"--since must be before --until, got {since!r} and {until!r}; both may be times ago (24h) or dates"
        )
    return period


def previous_period(period: Period) -> Period:
    """Return the period of the same length that ends where *period* begins."""
    return Period(2 * period.start - period.end, period.start)


def divide_period(period: Period, most: int = MOST_POINTS) -> list[Period]:
    """Divide *period* into at most *most* parts that begin and end at round times.

    All parts but the first and the last have the same width.
    """
    length = period.end - period.start
    width = next((width for width in _WIDTHS if length / width <= most - 1), _WIDTHS[-1])
    first, last = int(period.start // width), int(-(-period.end // width))
    inner = [number * width for number in range(max(first, last - 4 * MOST_POINTS) + 1, last)]
    # A short part at either end would have by far the widest interval, so it is joined with its neighbour.
    inner = [edge for edge in inner if edge - period.start >= width / 2 and period.end - edge >= width / 2]
    return [Period(*pair) for pair in pairwise([period.start, *inner, period.end])]


def to_json(report: Report) -> str:
    """Render the whole report as one JSON object in ASCII. Times are in seconds since the epoch."""
    record = asdict(report)
    for item, shown in zip(report.measured, record["measured"], strict=True):
        shown["unscored_shares"] = dict(item.unscored_shares)
        if item.corrected is not None:
            shown["corrected"]["labels_needed"] = item.corrected.labels_needed
    return json.dumps({"version": 1, **record}, allow_nan=False) + "\n"
