"""The demo's report as plain text, for machines without rich."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ragtrace.demo import wording
from ragtrace.demo.outcome import Call, Outcome

_WIDTH = 96


def report(outcome: Outcome) -> str:
    """The whole report."""
    return "\n".join(_lines(outcome)) + "\n"


def with_marks(text: str, ranges: Sequence[tuple[int, int]]) -> str:
    """*text* with [[ ]] around every range."""
    out, copied = "", 0
    for start, end in ranges:
        out += f"{text[copied:start]}[[{text[start:end]}]]"
        copied = end
    return out + text[copied:]


def _lines(outcome: Outcome) -> Iterator[str]:
    yield from textwrap.wrap(wording.introduction(outcome), _WIDTH)
    yield ""
    yield f"{'':<36}{'before':>20}  {'simulated release':>30}"
    for label, before, after in wording.rows(outcome):
        yield f"{label:<36}{before:>20}  {after:>30}"
    worst = outcome.worst(wording.WORST)
    if worst:
        yield "\nThe worst answers; [[unsupported words]] are marked"
    for number, call in enumerate(worst, start=1):
        yield from _worst(number, call)
    yield ""
    yield from (f"note: {note}" for note in outcome.notes)
    yield from (f"alert: {wording.alarm(found)}" for found in outcome.alarms)
    yield from (f"calls: {line}" for line in wording.accounts(outcome.stats))
    yield f"spans: {wording.destination(outcome.destination)}"
    yield f"took {outcome.seconds:.1f} s"
    yield from (f"backend: {wording.backend(found)}" for found in outcome.backends)


def _worst(number: int, call: Call) -> Iterator[str]:
    faithfulness = f"(faithfulness {call.verdict.faithfulness:.2f})" if call.verdict.faithfulness is not None else ""
    yield f"\n{number}. {call.question} {faithfulness}"
    for label, text in (
        ("answer", with_marks(*wording.marked(call))),
        ("closest passage", wording.quote(call) or "none"),
        ("invented", wording.truth(call)),
    ):
        yield textwrap.fill(text, _WIDTH, initial_indent=f"   {label}: ", subsequent_indent="      ")
