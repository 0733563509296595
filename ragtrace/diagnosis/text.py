"""The diagnosis in plain, aligned text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Final

from ragtrace.core.ledger import Posted, Stats, Tally
from ragtrace.diagnosis.report import AlertNow, BaselineNow, CallsSeen, Check, Diagnosis, Evaluating
from ragtrace.pipeline.recent_outcomes import Fate
from ragtrace.runtime.health import LATELY_SECONDS
from ragtrace.system.faults import printable

_MOST_FATES: Final = 20
_STATES: Final = {
    "running": "running in this process",
    "switched off": "switched off: decorated functions run as if undecorated",
    "shut down": "shut down in this process",
    "not configured": "not configured in this process",
    "environment": "as the environment variables would have it; no application was looked at",
}


def text(diagnosis: Diagnosis) -> str:
    """All of it; what is wrong comes last, where the eye is when a terminal has scrolled by."""
    head = (
        f"ragtrace {diagnosis.version}, Python {diagnosis.python}, process {diagnosis.pid}: {_STATES[diagnosis.state]}"
    )
    sections = [
        ("Settings", _table((setting.name, setting.value, setting.origin) for setting in diagnosis.settings)),
        ("Evaluators", _table(_evaluator(evaluator) for evaluator in diagnosis.evaluators)),
        ("Alerts", _table(_alert(alert) for alert in diagnosis.alerts)),
        ("Baselines", _table(_baseline(baseline) for baseline in diagnosis.baselines)),
        ("What answers, and can be written to", _table(_check(check) for check in diagnosis.checks)),
        ("Accounts since the start", _accounts(diagnosis)),
        ("What was seen of the calls", _table(_seen(seen) for seen in diagnosis.seen)),
        ("Last calls, newest last", _table(_fate(fate) for fate in diagnosis.fates[-_MOST_FATES:])),
        ("Notes", [f"  {note}" for note in diagnosis.notes]),
    ]
    lines = [head]
    for title, body in sections:
        if body:
            lines += ["", title, *body]
    return "\n".join([*lines, "", *_verdict(diagnosis)]) + "\n"


def _verdict(diagnosis: Diagnosis) -> list[str]:
    if diagnosis.ok:
        return [_well(diagnosis)]
    return ["What is wrong", *(f"  {number}. {what}" for number, what in enumerate(diagnosis.problems, 1))]


def _well(diagnosis: Diagnosis) -> str:
    """Return what holds where nothing is wrong: "All well" only if calls are being scored now."""
    count, minutes = diagnosis.scored_lately, LATELY_SECONDS / 60
    if count:
        return f"All well: {count} calls with contexts and an answer were scored in the last {minutes:.0f} minutes."
    if diagnosis.state != "running":
        return "Nothing is wrong as far as can be seen from here."
    return f"Nothing is wrong as far as can be seen, but no call was scored in the last {minutes:.0f} minutes."


def _seen(seen: CallsSeen) -> tuple[str, ...]:
    return (
        seen.workflow or "-",
        f"{seen.calls} calls",
        f"{seen.with_contexts} with contexts",
        f"{seen.calls - seen.with_contexts} contexts_missing",
        f"{seen.with_answer} with an answer",
        f"{seen.calls - seen.with_answer} answer_not_captured",
    )


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned columns; the last one is as long as it is."""
    rows = list(rows)
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _evaluator(evaluator: Evaluating) -> tuple[str, ...]:
    standing = ""
    if evaluator.state:
        standing = f"circuit {evaluator.state}, asked {evaluator.asked} times, {evaluator.in_flight} in flight"
        if evaluator.waits_s > 0:
            standing += f", left alone for another {evaluator.waits_s:.0f} s"
    if evaluator.failures:
        causes = ", ".join(f"{cause} {count}" for cause, count in evaluator.failures.items())
        standing += f"{', ' if standing else ''}failures: {causes}"
    return evaluator.role, f"{evaluator.id}@{evaluator.version}", standing, ", ".join(evaluator.metrics)


def _alert(alert: AlertNow) -> tuple[str, ...]:
    rule = "" if alert.name == alert.rule else alert.rule
    return alert.name, rule, ", ".join(alert.states), f"tells {', '.join(alert.tells)}"


def _baseline(baseline: BaselineNow) -> tuple[str, ...]:
    return printable(baseline.workflow) or "-", baseline.metric, printable(baseline.evaluator), baseline.told


def _check(check: Check) -> tuple[str, ...]:
    return check.what, "ok" if check.ok else "FAILED", f"{check.seconds * 1000:.0f} ms", check.where, check.seen


def _accounts(diagnosis: Diagnosis) -> list[str]:
    stats = diagnosis.stats
    if stats is None:
        return []
    rows = [_tally(name, tally) for name, tally in stats.evaluators.items()]
    lines = _table([("evaluator", "offered", "scored", "partial", "pending", "otherwise"), *rows]) if rows else []
    waiting = [f"  {diagnosis.queued} in the queue, {diagnosis.held} spans held for their scores"]
    if diagnosis.spool is not None:
        spool = diagnosis.spool
        waiting.append(f"  {spool.calls} calls in the spool, {spool.claimed} of them being scored")
    books = [*(("scores for " + name, posted) for name, posted in stats.sinks.items())]
    books += [("alerts told by " + name, posted) for name, posted in diagnosis.notices.items() if posted.offered]
    return [*lines, *waiting, *(_posted(what, posted) for what, posted in books), *_faults(stats)]


def _tally(name: str, tally: Tally) -> tuple[str, ...]:
    otherwise = [
        f"{what} {reason} {count}"
        for what, counts in (("sampled out", tally.sampled_out), ("failed", tally.failed), ("dropped", tally.dropped))
        for reason, count in counts.items()
    ]
    numbers = (str(number) for number in (tally.offered, tally.scored, tally.partial, tally.pending))
    return (name, *numbers, ", ".join(otherwise))


def _posted(what: str, posted: Posted) -> str:
    lost = [
        f"{word} {reason} {count}"
        for word, of in (("failed", posted.failed), ("dropped", posted.dropped))
        for reason, count in of.items()
    ]
    return f"  {what}: {', '.join([f'{posted.posted} posted', f'{posted.pending} waiting', *lost])}"


def _faults(stats: Stats) -> list[str]:
    return [f"  failures of ragtrace itself: {place}: {count}" for place, count in stats.faults.items()]


def _fate(fate: Fate) -> tuple[str, ...]:
    when = datetime.fromtimestamp(fate.at, timezone.utc).strftime("%H:%M:%SZ")
    return when, fate.trace_id or "-", fate.workflow or "-", fate.evaluator, fate.outcome, fate.why
