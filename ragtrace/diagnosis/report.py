"""Report returned by `ragtrace.doctor()`, as data and as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ragtrace.core.ledger import DeliveryCounts, GuardTally, Stats, Tally
from ragtrace.core.part import PartStatus
from ragtrace.fleet.spool import SpoolContents
from ragtrace.pipeline.health import LATELY_SECONDS, CaptureCounts, RecentOutcome
from ragtrace.system.faults import printable

if TYPE_CHECKING:
    from ragtrace.core.cost import Cost
    from ragtrace.diagnosis.gold_calls import GoldResult
    from ragtrace.labels.canary_judging import CanaryAgreement

State: TypeAlias = Literal["running", "switched off", "shut down", "not configured", "environment", "judge"]
"""State of ragtrace in a process; `environment` is a diagnosis of environment variables without a process, and `judge`
one of a judge alone."""
_STATES: Final[dict[State, str]] = {
    "running": "running in this process",
    "switched off": "switched off: decorated functions run as if undecorated",
    "shut down": "shut down in this process",
    "not configured": "not configured in this process",
    "environment": "as the environment variables would have it; no application was looked at",
    "judge": "a judge alone; no application was looked at",
}
_MOST_OUTCOMES: Final = 20


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting in use: its name, its value as text without secrets, and the source of the value."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Check:
    """Result of checking an endpoint, judge, file or backend: whether it works, and advice if it does not."""

    what: str
    """Target of the check: traces, metrics, logs, id of a judge, store, spool, fleet, fleet queue, fleet store ..."""
    where: str
    ok: bool
    seconds: float
    """Seconds until the target answered or the probe was given up."""
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class EvaluatorStatus:
    """Status of an evaluator, such as the judge: circuit breaker, load and failures."""

    role: str
    """Role of the evaluator: `stopwatch`, `screen` or `judge`."""
    id: str
    version: str
    metrics: tuple[str, ...]
    state: str = ""
    """State of the circuit breaker: closed, open or half_open; empty: the evaluator only computes."""
    waits_s: float = 0.0
    """Seconds until the evaluator accepts the next request; 0: now."""
    in_flight: int = 0
    queued: int = 0
    asked: int = 0
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of calls that the evaluator failed to judge, by cause: key refused, no key, unreachable, timeout ..."""
    failing: int = 0
    """Number of calls in a row, up to the latest, that the evaluator failed to judge."""
    said: str = ""
    """Message of the last failure; empty: there was none."""
    advice: str = ""
    served: tuple[str, ...] = ()
    """Models, with fingerprints, that the judge's server has named in answers, the newest last."""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """Status of an alert: condition, current states and notifiers."""

    name: str
    rule: str
    """Condition of the alert as text: metric, direction and bound."""
    states: tuple[str, ...]
    """State of the alert; of an alert per workflow or model, one state each: `ask: spiking`."""
    tells: tuple[str, ...]
    """Names of the notifiers of the alert."""


@dataclass(frozen=True, slots=True)
class BaselineStatus:
    """Progress in learning the baseline of a metric in one workflow."""

    workflow: str
    metric: str
    evaluator: str
    """Evaluator whose scores the baseline describes, as `id@version`."""
    calls: int
    """Number of calls from which the baseline was learned, or is being learned."""
    complete: bool
    told: str
    """Description of the calls that the baseline was learned from, or of the progress so far."""


@dataclass(frozen=True, slots=True)
class CanaryStatus:
    """Agreement of a judge with its canaries (calls with known labels), and the cost of judging them."""

    agreements: tuple[CanaryAgreement, ...]
    """Agreement of the judge with the canaries' labels, by metric."""
    cost: Cost
    postponed: Mapping[str, int]
    """Numbers of canary judgements that were put off, by reason: busy, unavailable or budget."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Diagnosis of ragtrace in a process: settings, reachable backends, problems, and outcomes of recent RAG calls.

    `str()` gives a report in plain text. The diagnosis holds no secrets: of headers only the names, of URLs neither
    user nor query.

    Examples:
        >>> ragtrace.configure(exporter="none")
        >>> diagnosis = ragtrace.doctor(probe=False)  # printed, a report
        >>> diagnosis.state, diagnosis.problems, [each.id for each in diagnosis.evaluators]
        ('running', (), ['embedded'])
    """

    state: State
    version: str
    python: str
    pid: int
    problems: tuple[str, ...]
    """Problems found, each in whole sentences; empty: there are none."""
    settings: tuple[Setting, ...] = ()
    evaluators: tuple[EvaluatorStatus, ...] = ()
    alerts: tuple[AlertStatus, ...] = ()
    baselines: tuple[BaselineStatus, ...] = ()
    """Progress of the baselines, one for each workflow, metric and evaluator."""
    canaries: CanaryStatus | None = None
    gold: tuple[GoldResult, ...] = ()
    """What the judges made of the gold calls, where they were to judge them."""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    queued: int = 0
    """Number of steps and calls that wait in the background queue."""
    held: int = 0
    """Number of spans that are held back from export until their scores are attached."""
    seen: tuple[CaptureCounts, ...] = ()
    scored_lately: int = 0
    """Number of calls with contexts and an answer that got a score in the last five minutes, counted up to 1,000."""
    stats: Stats | None = None
    notices: Mapping[str, DeliveryCounts] = field(default_factory=dict[str, DeliveryCounts])
    """Numbers of delivered, lost and waiting notifications of alerts, by notifier."""
    spool: SpoolContents | None = None
    parts: tuple[PartStatus, ...] = ()
    """Sections about features that have one of their own."""
    fates: tuple[RecentOutcome, ...] = ()
    """Outcomes of the latest calls, oldest first."""

    def _repr_html_(self) -> str:
        """Return the diagnosis as HTML, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def ok(self) -> bool:
        """Whether the diagnosis has found no problem."""
        return not self.problems

    def as_dict(self) -> Mapping[str, object]:
        """Return the diagnosis as a dict of plain values, which `json.dumps` can encode."""
        found: dict[str, object] = {"ok": self.ok, **asdict(self)}
        found["fates"] = [{**asdict(fate), "why": fate.why} for fate in self.fates]
        return found

    def __str__(self) -> str:
        process = f"ragtrace {self.version}, Python {self.python}, process {self.pid}: {_STATES[self.state]}"
        sections = [
            ("Settings", _table((setting.name, setting.value, setting.origin) for setting in self.settings)),
            ("Evaluators", _table(map(_evaluator, self.evaluators))),
            ("Alerts", _table(map(_alert, self.alerts))),
            ("Baselines", _table(map(_baseline, self.baselines))),
            ("Canaries", [] if self.canaries is None else _canaries(self.canaries)),
            ("Gold calls", _table(map(_gold, self.gold))),
            ("What answers, and can be written to", _table(map(_check, self.checks))),
            ("Accounts since the start", _accounts(self)),
            ("Guards, answers since the start", _guards(self.stats)),
            *((printable(part.title), _table(part.rows)) for part in self.parts),
            ("What was seen of the calls", _table(map(_capture_counts, self.seen))),
            ("Last calls, newest last", _table(map(_outcome, self.fates[-_MOST_OUTCOMES:]))),
            ("Notes", [f"  {note}" for note in self.notes]),
        ]
        lines = [process]
        for title, body in sections:
            lines += ["", title, *body] if body else []
        # The problems come last, as a scrolled terminal shows the end.
        wrong = [f"  {number}. {problem}" for number, problem in enumerate(self.problems, 1)]
        return "\n".join([*lines, "", *(["What is wrong", *wrong] if wrong else [_no_problems_line(self)])]) + "\n"


def _no_problems_line(diagnosis: Diagnosis) -> str:
    """Return the last line in the text of a diagnosis that found no problems.

    The line says "All well" only if calls were scored within the last minutes.
    """
    count, minutes = diagnosis.scored_lately, LATELY_SECONDS / 60
    if count:
        return f"All well: {count} calls with contexts and an answer were scored in the last {minutes:.0f} minutes."
    if diagnosis.state != "running":
        return "Nothing is wrong as far as can be seen from here."
    none = f"no call with contexts and an answer was scored in the last {minutes:.0f} minutes"
    return f"Nothing is wrong as far as can be seen, but {none}."


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Format *rows* as lines of text with aligned columns."""
    rows = list(rows)
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _evaluator(evaluator: EvaluatorStatus) -> tuple[str, ...]:
    status: list[str] = []
    if evaluator.state:
        status.append(f"circuit {evaluator.state}, asked {evaluator.asked} times, {evaluator.in_flight} in flight")
        if len(evaluator.served) > 1:
            status.append(f"answered by {', then '.join(map(printable, evaluator.served))}")
        elif evaluator.served:
            status.append(f"answered by {printable(evaluator.served[0])}")
        if evaluator.waits_s > 0:
            status.append(f"left alone for another {evaluator.waits_s:.0f} s")
    if evaluator.failures:
        status.append(f"failures: {', '.join(f'{cause} {count}' for cause, count in evaluator.failures.items())}")
    return evaluator.role, f"{evaluator.id}@{evaluator.version}", ", ".join(status), ", ".join(evaluator.metrics)


def _alert(alert: AlertStatus) -> tuple[str, ...]:
    rule = "" if alert.name == alert.rule else alert.rule
    return alert.name, rule, ", ".join(alert.states), f"notifies {', '.join(alert.tells)}"


def _baseline(baseline: BaselineStatus) -> tuple[str, ...]:
    return printable(baseline.workflow) or "-", baseline.metric, printable(baseline.evaluator), baseline.told


def _canaries(canaries: CanaryStatus) -> list[str]:
    """Format a judge's agreement with its canaries (calls with known labels), and their cost, as lines of text."""
    rows: list[tuple[str, ...]] = []
    for each in canaries.agreements:
        for label, agreement in each.agreement.items():
            known = "not judged yet" if agreement is None else f"{agreement:.0%} agreement in the latest"
            number = "" if agreement is None else f" {each.judgements[label]} judgements"
            fallen = f", fallen from {each.usual:.0%}" if each.fallen == label and each.usual is not None else ""
            rows.append((each.metric, f"{each.canaries[label]} labelled {label}", f"{known}{number}{fallen}"))
    cost = canaries.cost
    usd = "" if cost.cost_usd is None else f", {cost.cost_usd:.4f} USD"
    spent = f"  {cost.n_calls} requests, {cost.input_tokens} tokens in, {cost.output_tokens} out{usd}"
    late = "".join(f", {count} put off: {reason}" for reason, count in canaries.postponed.items())
    return [*_table(rows), spent + late]


def _gold(gold: GoldResult) -> tuple[str, ...]:
    cost = gold.cost
    usd = "" if cost.cost_usd is None else f", {cost.cost_usd:.4f} USD"
    order = "" if gold.order is None else f"{gold.order:.0%} of the pairs in order"
    spent = f"{cost.n_calls} requests, {cost.input_tokens:,} tokens in, {cost.output_tokens:,} out{usd}"
    wrong = "on the wrong side of 0.5" if gold.is_uncalibrated else "wrong"
    return gold.evaluator, f"{gold.wrong} of {gold.calls} {wrong}" if gold.calls else "none judged", order, spent


def _check(check: Check) -> tuple[str, ...]:
    return check.what, "ok" if check.ok else "FAILED", f"{check.seconds * 1000:.0f} ms", check.where, check.seen


def _accounts(diagnosis: Diagnosis) -> list[str]:
    stats, spool = diagnosis.stats, diagnosis.spool
    if stats is None:
        return []
    head = ("evaluator", "offered", "scored", "partial", "pending", "otherwise")
    lines = _table([head, *(_tally(*each) for each in stats.evaluators.items())]) if stats.evaluators else []
    lines.append(f"  {diagnosis.queued} in the queue, {diagnosis.held} spans held for their scores")
    if stats.after_shutdown:
        lines.append(f"  {stats.after_shutdown} calls ended after the shutdown, and were offered to no evaluator")
    if spool is not None:
        lines.append(f"  {spool.calls} calls in the spool, {spool.claimed} of them being scored")
    posted = [*(("scores for " + name, each) for name, each in stats.sinks.items())]
    posted += [("alerts by " + name, each) for name, each in diagnosis.notices.items() if each.offered]
    for what, each in posted:
        lost = _counts_by({"failed": each.failed, "dropped": each.dropped})
        lines.append(f"  {what}: {', '.join([f'{each.posted} posted', f'{each.pending} waiting', *lost])}")
    return [*lines, *(f"  failures of ragtrace itself: {place}: {count}" for place, count in stats.faults.items())]


def _guards(stats: Stats | None) -> list[str]:
    """Format the counts of answers that guards have seen, by workflow, verdict and action, as lines of text."""
    guards: Mapping[str, GuardTally] = {} if stats is None else stats.guards
    return _table(
        (
            printable(workflow) or "-",
            f"{tally.calls} answers",
            *(_shares(counts, tally.calls) for counts in (tally.verdicts, tally.actions)),
            _added(tally),
        )
        for workflow, tally in guards.items()
    )


def _shares(counts: Mapping[str, int], calls: int) -> str:
    return ", ".join(f"{what} {count} ({count / calls:.1%})" for what, count in counts.items())


def _added(tally: GuardTally) -> str:
    if tally.added_p50_ms is None or tally.added_p95_ms is None:
        return ""
    return f"added {tally.added_p50_ms:.0f} ms (median), {tally.added_p95_ms:.0f} ms (95th percentile)"


def _tally(name: str, tally: Tally) -> tuple[str, ...]:
    otherwise = _counts_by({"sampled out": tally.sampled_out, "failed": tally.failed, "dropped": tally.dropped})
    numbers = (str(number) for number in (tally.offered, tally.scored, tally.partial, tally.pending))
    return (name, *numbers, ", ".join(otherwise))


def _counts_by(outcomes: Mapping[str, Mapping[str, int]]) -> list[str]:
    return [f"{what} {reason} {count}" for what, counts in outcomes.items() for reason, count in counts.items()]


def _capture_counts(seen: CaptureCounts) -> tuple[str, ...]:
    return (
        seen.workflow or "-",
        f"{seen.calls} calls",
        f"{seen.with_contexts} with contexts",
        f"{seen.no_contexts} no_contexts",
        f"{seen.contexts_missing} contexts_missing",
        f"{seen.with_answer} with an answer",
        f"{seen.calls - seen.with_answer} answer_not_captured",
    )


def _outcome(fate: RecentOutcome) -> tuple[str, ...]:
    when = datetime.fromtimestamp(fate.at, timezone.utc).strftime("%H:%M:%SZ")
    return when, fate.trace_id or "-", fate.workflow or "-", fate.evaluator, fate.outcome, fate.why
