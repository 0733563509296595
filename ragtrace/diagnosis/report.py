"""What the doctor found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Literal, TypeAlias

from ragtrace.core.ledger import Posted, Stats
from ragtrace.history.spool_codec import SpoolContents
from ragtrace.pipeline.recent_outcomes import Fate

State: TypeAlias = Literal["running", "switched off", "shut down", "not configured", "environment"]
"""environment: no process was looked at, but what the environment variables would make of one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as text without secrets, and where it came from."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was asked for a sign of life."""

    what: str
    """traces, metrics, logs, the id of a judge, store, spool, page of metrics, notifier, scores for a backend ..."""
    where: str
    ok: bool
    seconds: float
    """Until it answered, or was given up."""
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Evaluating:
    """One evaluator and how it stands."""

    role: str
    """stopwatch, screen or judge."""
    id: str
    version: str
    metrics: tuple[str, ...]
    state: str = ""
    """Of the circuit breaker: closed, open or half_open; empty if it only computes."""
    waits_s: float = 0.0
    """Until it may be asked again."""
    in_flight: int = 0
    queued: int = 0
    asked: int = 0
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Calls that it failed to judge, by cause: key refused, no key, unreachable, timeout, garbage ..."""
    failing: int = 0
    """Calls in a row that it has failed to judge up to now."""
    said: str = ""
    """What the last failure said."""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CallsSeen:
    """What was seen of the calls of one workflow; calls that raised are not among them."""

    workflow: str
    calls: int
    with_contexts: int
    with_answer: int


@dataclass(frozen=True, slots=True)
class AlertNow:
    """One alert and how it stands."""

    name: str
    rule: str
    """Metric, direction and bound."""
    states: tuple[str, ...]
    """Of each workflow or model, where it is watched on its own: `ask: spiking`."""
    tells: tuple[str, ...]
    """Whom it tells, by name."""


@dataclass(frozen=True, slots=True)
class BaselineNow:
    """How far the baseline of a workflow's metric has come."""

    workflow: str
    metric: str
    evaluator: str
    """id@version"""
    calls: int
    """Calls it was learned from, or is being learned from."""
    complete: bool
    told: str
    """What it was learned from and when, or how many calls there are so far."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is configured, what answers, and what became of the last calls. Printed, it is a report in plain text.

    Nothing in it is secret: of headers only the names are told, of URLs neither user nor query.
    """

    state: State
    version: str
    python: str
    pid: int
    problems: tuple[str, ...]
    """What is wrong, in whole sentences; empty when all is well."""
    settings: tuple[Setting, ...] = ()
    evaluators: tuple[Evaluating, ...] = ()
    alerts: tuple[AlertNow, ...] = ()
    baselines: tuple[BaselineNow, ...] = ()
    """By workflow, metric and evaluator."""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    queued: int = 0
    """Steps and calls that wait in the background."""
    held: int = 0
    """Spans that wait for their scores."""
    seen: tuple[CallsSeen, ...] = ()
    scored_lately: int = 0
    """Calls with contexts and an answer that got a score in the last five minutes; at most 1,000 are counted."""
    stats: Stats | None = None
    notices: Mapping[str, Posted] = field(default_factory=dict[str, Posted])
    """What became of what the alerts had to tell, by notifier."""
    spool: SpoolContents | None = None
    fates: tuple[Fate, ...] = ()
    """Oldest first."""

    def _repr_html_(self) -> str:
        """The report as it is printed, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def as_dict(self) -> Mapping[str, object]:
        """The same as a structure of dicts, lists, strings, numbers, booleans and None, for `json.dumps`."""
        told: dict[str, object] = {"ok": self.ok, **asdict(self)}
        told["fates"] = [{**asdict(fate), "why": fate.why} for fate in self.fates]
        return told

    def __str__(self) -> str:
        from ragtrace.diagnosis.text import text

        return text(self)
