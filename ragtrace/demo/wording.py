"""The words of the demo's report, the same with and without rich."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from ragtrace.demo.application import ExtractiveModel
from ragtrace.demo.outcome import Alarm, Backend, Call, Destination, Half, Outcome
from ragtrace.report.worst_answers import merge_ranges

WORST = 3
"""How many of the worst answers are shown."""
_ANSWER_CHARS = 420
_QUOTE_CHARS = 260


def introduction(outcome: Outcome) -> str:
    """What was run."""
    return (
        f"A RAG application over {outcome.passages:,} passages of {outcome.source} answered {len(outcome.calls):,}"
        f" questions (model: {outcome.model}). Each was judged in the background by {outcome.evaluator}; its scores are"
        f" on its span. {_fitness(outcome)} One unsupported statement flags an answer. Half-way a new model was"
        f" released. This regression is SIMULATED: it invents details in about {outcome.share:.0%} of its answers, and"
        f" the demo knows which."
    )


def _fitness(outcome: Outcome) -> str:
    """Return whether this judge's verdicts can be believed: it compares words."""
    if outcome.model == ExtractiveModel.name:
        return "It compares words, which is fit here: the answers quote their passages (extractive=True)."
    return "It compares words, so it flags true answers in words of the model's own, too."


def rows(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Label, value before, value after the simulated release; an indented label belongs to the row above."""
    halves = outcome.halves
    lines: list[tuple[str, tuple[str, str]]] = [
        ("Calls", _each(halves, lambda half: f"{half.calls:,}")),
        ("Faithfulness, mean", _each(halves, lambda half: _decimal(half.faithfulness))),
        ("Hallucination rate (share flagged)", _each(halves, lambda half: _percent(half.hallucination_rate))),
        ("Answers with invented details", _each(halves, lambda half: f"{half.invented:,}")),
        ("  caught by the judge", _each(halves, lambda half: _share(half.caught, half.invented))),
        ("  with the invented words marked", _each(halves, lambda half: _share(half.located, half.invented))),
        ("Wrongly flagged", _each(halves, lambda half: _share(half.wrongly_flagged, half.healthy))),
        ("Not scored", _each(halves, _unscored)),
    ]
    return [(label, before, after) for label, (before, after) in lines]


def alarm(found: Alarm) -> str:
    """Return whether the alert was raised, and how soon, in one line."""
    rule = f"{found.rule}, at most one false alarm in {found.mean_calls:,} scored calls in the mean"
    after = found.raised_after
    if after is None:
        return f"not raised ({rule})"
    when = f"{after:,} calls after the release" if after > 0 else "FALSELY, before the release"
    return f"raised {when} ({rule})"


def accounts(stats: Mapping[str, object]) -> list[str]:
    """`ragtrace.stats()`, one line an evaluator."""
    evaluators = cast("Mapping[str, Mapping[str, object]]", stats.get("evaluators") or {})
    lines = [f"{name}: {_account(tally)}" for name, tally in evaluators.items()]
    faults = cast("Mapping[str, int]", stats.get("faults") or {})
    return lines + [f"failures of ragtrace itself: {_counts(faults)}"] * bool(faults)


def destination(where: Destination) -> str:
    """Where the spans went."""
    if where.endpoint is None:
        return "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT to send them to a backend"
    lost = f"; it did NOT take {where.failed:,}" if where.failed else ""
    return f"{where.spans:,} to {where.endpoint}{lost}"


def backend(found: Backend) -> str:
    """Where a server beside the demo answers and what it has of it, or why it does not run."""
    if found.url is None:
        return f"{found.name}: {found.problem}"
    return f"{found.name}: {found.url}" + (f" ({found.shows})" if found.shows else "")


def marked(call: Call) -> tuple[str, list[tuple[int, int]]]:
    """The answer, cut to what can be shown around the first marked words, and the ranges to mark in what is left."""
    ranges = merge_ranges([span for finding in call.verdict.findings for span in finding.unsupported], len(call.answer))
    start = max(0, min(ranges[0][0] - _ANSWER_CHARS // 2, len(call.answer) - _ANSWER_CHARS)) if ranges else 0
    end = min(len(call.answer), start + _ANSWER_CHARS)
    head, tail = "... " * (start > 0), " ..." * (end < len(call.answer))
    shift = len(head) - start
    kept = [(max(a, start) + shift, min(b, end) + shift) for a, b in ranges if a < end and b > start]
    return head + call.answer[start:end] + tail, kept


def quote(call: Call) -> str:
    """The closest passage to the first finding that has one, on one line."""
    found = next((finding.quote for finding in call.verdict.findings if finding.quote), "")
    line = " ".join(found.split())
    return line if len(line) <= _QUOTE_CHARS else f"{line[:_QUOTE_CHARS]} ..."


def truth(call: Call) -> str:
    """What the simulated release really invented in this answer."""
    if not call.inventions:
        return "nothing was invented here: wrongly flagged"
    return "; ".join(
        f"{made.text!r} instead of {made.instead_of!r}" if made.instead_of else f"{made.text!r}"
        for made in call.inventions
    )


def _each(halves: tuple[Half, Half], say: Callable[[Half], str]) -> tuple[str, str]:
    return say(halves[0]), say(halves[1])


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.0%})" if whole else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _unscored(half: Half) -> str:
    return _counts(half.unscored) or "0"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def _account(tally: Mapping[str, object]) -> str:
    """ "offered 400 = scored 400 + partial 0 + ...": the accounts, which always balance."""
    summands = [name for name in tally if name not in ("offered", "not_applicable")]
    parts = [f"{name.replace('_', ' ')} {_total(tally[name])}" for name in summands]
    inapplicable = cast("Mapping[str, int]", tally.get("not_applicable") or {})
    note = f"; no metric applies to {_counts(inapplicable)}" if inapplicable else ""
    return f"offered {_total(tally['offered'])} = {' + '.join(parts)}{note}"


def _total(value: object) -> str:
    if isinstance(value, Mapping):
        counts = cast("Mapping[str, int]", value)
        return f"{sum(counts.values()):,}" + (f" ({_counts(counts)})" if counts else "")
    return f"{value:,}"
