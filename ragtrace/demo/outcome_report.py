"""Terminal report of the demo, styled if the library rich is installed, and plain otherwise."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ragtrace.core.types import NOT_A_RATE
from ragtrace.demo.generator import ExtractiveModel
from ragtrace.demo.library import SOURCE
from ragtrace.demo.outcome import Alarm, DemoCall, HalfCounts, Outcome
from ragtrace.report.wording import merge_ranges, split_at_marks

if TYPE_CHECKING:
    from rich.console import Console

WORST = 3
"""Number of the worst answers that are shown."""
WIDEST = 100
_ANSWER_CHARS = 420
_QUOTE_CHARS = 260
_COLUMNS, _ROWS, _BLOCKS, _RELEASE = 40, 3, " ▁▂▃▄▅▆▇█", "│"
"""Number of bars in the chart, their height in lines, the characters that bars consist of, and the release mark."""
_UNSUPPORTED = "bold red underline"
"""Style of unsupported words, which are put in brackets where the output has no colours."""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """Unwrapped line of the demo's report: styled parts of text, and an indent in characters."""

    parts: tuple[tuple[str, str], ...]
    indent: int = 0

    def text(self) -> str:
        """Return the line as plain text, with unsupported words in [[ ]]."""
        return "".join(f"[[{text}]]" if style == _UNSUPPORTED else text for text, style in self.parts)


def print_report(outcome: Outcome, rich: bool) -> None:
    """Print the demo's report to standard output, styled with rich if *rich* is true.

    Raises:
        BrokenPipeError: the reader of the output went away.
    """
    picture = (sys.stdout.encoding or "").lower().startswith("utf")
    if not rich:
        sys.stdout.write(report_as_text(outcome, picture))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.width = min(console.width, WIDEST)
    with console.capture() as printed:  # writing directly, rich would end the process if the reader closed the pipe
        print_to(console, outcome, picture)
    sys.stdout.write(printed.get())


def print_to(console: Console, outcome: Outcome, picture: bool) -> None:
    """Print the demo's report to the rich *console*, with the styles that the console supports."""
    from rich.padding import Padding
    from rich.text import Text

    styled = console.color_system is not None and not console.no_color
    for line in report_lines(outcome, picture):
        text = Text.assemble(*line.parts) if styled else Text(line.text())
        console.print(Padding(text, (0, 0, 0, line.indent)) if line.indent else text)


def report_as_text(outcome: Outcome, picture: bool = False) -> str:
    """Return the demo's complete report as plain text, without styles."""
    shown = (
        textwrap.fill(line.text(), WIDEST, initial_indent=" " * line.indent, subsequent_indent=" " * line.indent)
        for line in report_lines(outcome, picture)
    )
    return "\n".join(shown) + "\n"


def report_lines(outcome: Outcome, picture: bool) -> Iterator[ReportLine]:
    """Yield the lines of the demo's report on *outcome*."""
    blank = ReportLine(())
    yield _line(_introduction(outcome))
    yield blank
    if picture and all(half.raw_score is None for half in outcome.halves):
        yield from _bar_chart(outcome)
        yield blank
    yield ReportLine(((f"{'':<36}{'before':>14}{'after the release':>26}", "bold"),))
    for label, before, after in _rows(outcome):
        headline = label.startswith(("Faithfulness", "Hallucination"))
        good, bad = ("green", "bold red") if headline else ("", "")
        yield ReportLine(((f"{label:<36}", ""), (f"{before:>14}", good), (f"{after:>26}", bad)))
    yield blank
    worst = outcome.worst(WORST)
    if worst:
        yield _line("The worst answers", "bold")
    for number, call in enumerate(worst, start=1):
        score = "" if call.verdict.faithfulness is None else f"  faithfulness {call.verdict.faithfulness:.2f}"
        yield ReportLine(((f"{number}. ", "dim"), (call.question, "bold"), (score, "dim")))
        yield ReportLine((("answer    ", "dim"), *mark_unsupported(call)), indent=2)
        yield ReportLine((("closest   ", "dim"), (_quote(call), "italic")), indent=2)
        yield ReportLine((("invented  ", "dim"), (_what_was_invented(call), "yellow")), indent=2)
        yield blank
    for alarm in outcome.alarms:
        yield _line(f"alert    {_alarm(alarm)}")
    for account in _call_counts(outcome.stats):
        yield _line(f"calls    {account}")
    yield _line(f"spans    {_destination(outcome)}")
    yield _line(f"took     {outcome.seconds:.1f} s")
    for each in outcome.backends:
        yield _line(f"backend  {each.name}: {each.url or each.problem}", "yellow" if each.problem else "")


def _line(text: str, style: str = "") -> ReportLine:
    return ReportLine(((text, style),))


def _introduction(outcome: Outcome) -> str:
    raw = any(call.verdict.raw_score is not None for call in outcome.calls)
    how = (
        "It compares words, which is fit here: the answers quote their passages (extractive=True). One unsupported"
        " statement flags an answer."
    )
    if raw:
        how = (
            "It is a decision model, here one that answers by a rule and errs now and then. Its scores are"
            f" probabilities that no labels were held against ({NOT_A_RATE}); an answer is flagged from 0.5 on."
        )
    return (
        f"A RAG application over {outcome.passages:,} passages of {SOURCE} answered {len(outcome.calls):,} questions"
        f" (model: {ExtractiveModel.name}). Each was judged in the background by {outcome.evaluator}; its scores are on"
        f" its span. {how} Half-way a new model was released. This regression is SIMULATED: it"
        f" invents details in about {outcome.share:.0%} of its answers, and the demo knows which."
    )


def _bar_chart(outcome: Outcome) -> Iterator[ReportLine]:
    """Yield the lines of a bar chart of the hallucination rate over the run, with the release in the middle."""
    columns = min(_COLUMNS, len(outcome.calls))
    rates, middle = [rate or 0.0 for rate in outcome.timeline(columns)], columns // 2
    top = max(0.25, *rates)
    yield _line("hallucination rate over the run", "bold")
    for row in reversed(range(_ROWS)):
        bars = [_BLOCKS[max(0, min(8, round(rate / top * _ROWS * 8) - row * 8))] for rate in rates]
        label = f"{top:>4.0%} " if row == _ROWS - 1 else "  0% " if row == 0 else " " * 5
        before, after = "".join(bars[:middle]), "".join(bars[middle:])
        yield ReportLine(((label, "dim"), (before, "green"), (_RELEASE, "dim"), (after, "bold red")))
    yield _line(f"{'':5}{'before':<{middle}}{_RELEASE}after the simulated release", "dim")


def _rows(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return the rows of the demo report's table: label, value before and value after the simulated release."""
    before, after = outcome.halves
    contents: tuple[tuple[str, Callable[[HalfCounts], str]], ...] = (
        ("Calls", lambda half: f"{half.calls:,}"),
        ("Faithfulness, mean", lambda half: _decimals(half.faithfulness)),
        *(
            (("Hallucination rate (share flagged)", lambda half: _share(half.flagged, half.scored)),)
            if before.raw_score is None and after.raw_score is None
            else (("Hallucinated score, mean (no rate)", lambda half: _decimals(half.raw_score)),)
        ),
        ("Answers with invented details", lambda half: f"{half.invented:,}"),
        ("  caught by the judge", lambda half: _share(half.caught, half.invented)),
        ("  with the invented words marked", lambda half: _share(half.located, half.invented)),
        ("Wrongly flagged", lambda half: _share(half.wrongly_flagged, half.healthy)),
        ("Not scored", lambda half: _counts(half.unscored) or "0"),
    )
    return [(label, value(before), value(after)) for label, value in contents]


def mark_unsupported(call: DemoCall) -> tuple[tuple[str, str], ...]:
    """Split a call's answer into pieces of text, each with the style for unsupported words or none.

    The answer is truncated to the length that the report shows.
    """
    answer, ranges = call.answer, [span for finding in call.verdict.findings for span in finding.unsupported]
    marks = merge_ranges(ranges, len(answer))
    return tuple((text, _UNSUPPORTED if bad else "") for text, bad in split_at_marks(answer, marks, _ANSWER_CHARS))


def _quote(call: DemoCall) -> str:
    """Return the passage text that is closest to an unsupported statement, shortened to one line."""
    words = next((finding.quote for finding in call.verdict.findings if finding.quote), "none").split()
    return textwrap.shorten(" ".join(words), _QUOTE_CHARS, placeholder=" ...")


def _what_was_invented(call: DemoCall) -> str:
    """Return a phrase that says what the simulated release invented in the answer."""
    made = call.invention
    if made is None:
        return "nothing: wrongly flagged"
    return f"{made.text!r} instead of {made.instead_of!r}" if made.instead_of else repr(made.text)


def _alarm(alarm: Alarm) -> str:
    """Return a line that says whether the alert was raised, and how many calls after the release."""
    rule = f"{alarm.rule}, at most one false alarm in {alarm.mean_calls:,} scored calls in the mean"
    if alarm.raised_after is None:
        return f"not raised ({rule})"
    soon = (
        f"{alarm.raised_after:,} calls after the release" if alarm.raised_after > 0 else "FALSELY, before the release"
    )
    return f"raised {soon} ({rule})"


def _call_counts(stats: Mapping[str, object]) -> Iterator[str]:
    """Yield for each evaluator a line with the call counts of `ragtrace.stats()`: "offered 400 = scored 390 + ..."."""
    for name, account in cast("Mapping[str, Mapping[str, int | Mapping[str, int]]]", stats["evaluators"]).items():
        shown = {
            key.replace("_", " "): f"{value:,}" if isinstance(value, int) else _counts(value) or "0"
            for key, value in account.items()
        }
        offered, unfit = shown.pop("offered"), shown.pop("not applicable", "0")
        summands = " + ".join(f"{key} {value}" for key, value in shown.items() if value != "0")
        yield f"{name}: offered {offered} = {summands or '0'}" + (f"; no metric for {unfit}" if unfit != "0" else "")
    if stats["faults"]:
        yield f"failures of ragtrace itself: {_counts(cast('Mapping[str, int]', stats['faults']))}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.0%})" if whole else "-"


def _destination(outcome: Outcome) -> str:
    where = outcome.destination
    if where.endpoint is None:
        return "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT to send them to a backend"
    return f"{where.spans:,} to {where.endpoint}" + (f"; it did NOT take {where.failed:,}" if where.failed else "")
