"""What a report says, before anybody decides how it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ragtrace.estimates import Estimate

Direction: TypeAlias = Literal["better", "worse", "unclear"]


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` until before `end`, in seconds since the epoch."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Point:
    """The estimate of a part of the time."""

    period: Period
    estimate: Estimate
    judged: int


@dataclass(frozen=True, slots=True)
class Change:
    """after - before, with its 95 % interval."""

    value: float
    low: float
    high: float
    direction: Direction
    """`unclear`: the interval has 0 in it."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A part of the calls in both groups that are compared."""

    before: Estimate
    after: Estimate
    judged_before: int
    judged_after: int
    change: Change | None
    """None: in one of them nothing was judged."""
    share: float | None
    """Of the change of all calls, what comes from this part: 1 is all of it; less than 0: it went the other way."""


@dataclass(frozen=True, slots=True)
class Part:
    """The estimate of a part of the calls: a workflow, a model."""

    name: str
    calls: int
    judged: int
    estimate: Estimate
    moved: Moved | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """How the scores are spread, each counted by the calls it stands for."""

    n: int
    low: float
    """5 % of the calls score at most this."""
    first: float
    """25 %"""
    median: float
    third: float
    """75 %"""
    high: float
    """95 %"""
    mean: float
    shares: tuple[float, ...] = ()
    """Shares of the calls in twenty equal parts of [0, 1]; empty if the scores are not in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric as one evaluator gave it."""

    metric: str
    evaluator: str
    """id@version"""
    higher_is_better: bool
    judged: int
    overall: Estimate | None
    """None: the metric is not estimated, as its range is not [0, 1]."""
    timeline: tuple[Point, ...]
    by_workflow: tuple[Part, ...]
    by_model: tuple[Part, ...]
    box: Box | None
    """None: there is no score."""
    unscored: Mapping[str, int]
    """By reason."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric in two groups of calls, by the same evaluator."""

    metric: str
    evaluator: str
    higher_is_better: bool
    before: Estimate | None
    after: Estimate | None
    change: Change | None
    reason: str = ""
    """Why there is no change to tell."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two periods, or two versions."""

    kind: Literal["periods", "releases", "models"]
    before: str
    after: str
    calls_before: int
    calls_after: int
    rows: tuple[Compared, ...]
    releases_before: tuple[str, ...] = ()
    releases_after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest part of the time against the rest of it: what a mean over all of it would hide."""

    since: float
    before: Estimate
    after: Estimate
    change: Change
    """`unclear` unless the 99 % interval leaves 0 out: it is looked at on top of the comparison."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrieved chunk."""

    text: str
    id: str
    held_against: bool
    """An unsupported statement of the answer was held against it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One of the worst answers."""

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
    """Character ranges of the answer that no chunk supports."""
    passages: tuple[Passage, ...] | None
    """None: retrieval was not captured."""
    explanation: str
    repeats: int
    """How many calls of the worst had this very question and answer."""
    texts_kept: bool
    among: int = 0
    """Of so many of the worst."""
    compared: bool = False
    """Only words were compared: no judge says of the marked ones that they have no support."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What an evaluator cost."""

    evaluator: str
    looked_at: int
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unpriced: int
    """Calls whose price is not known."""
    failed: int
    median_s: float
    p95_s: float


@dataclass(frozen=True, slots=True)
class Rollout:
    """The first call of a release that was not there when the time began."""

    at: float
    release: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report says."""

    path: str
    made_at: float
    period: Period
    oldest: float | None
    """When the oldest call was kept."""
    workflow: str | None
    calls: int
    services: tuple[str, ...]
    releases: tuple[str, ...]
    headline: Measured | None
    measured: tuple[Measured, ...]
    comparison: Comparison | None
    recent: Recent | None
    """Of the headline."""
    latest: Point | None
    """The headline in the last hour, or the last sixth of a time under six hours: whether it still goes on."""
    problems: tuple[Problem, ...]
    spent: tuple[Spent, ...]
    decisions: Mapping[str, int]
    """Why the judge saw a call or not, by reason."""
    notes: tuple[str, ...]
    rollouts: tuple[Rollout, ...] = ()
    """In the order of their times."""

    @property
    def changes(self) -> bool:
        """Whether anything could be compared."""
        return self.comparison is not None and any(row.change for row in self.comparison.rows)

    def compared(self, measured: Measured | None) -> Compared | None:
        """The comparison of that metric, if there is one."""
        rows = () if self.comparison is None or measured is None else self.comparison.rows
        return next((row for row in rows if measured and _key(row) == _key(measured)), None)


def _key(item: Measured | Compared) -> tuple[str, str]:
    return item.metric, item.evaluator
