"""The report for a terminal: plain lines, with colour where there is any."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from ragtrace.report import words
from ragtrace.report.meaning import meaning
from ragtrace.report.model import Measured, Part, Point, Problem, Report, Rollout

_WIDEST: Final = 100
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_PLAINLY: Final = str.maketrans({"\u2212": "-", "\u00b7": "|"})
_GAP: Final = "·"
_STYLES: Final = {"bad": "1;31", "good": "1;32", "quiet": "1", "dim": "2", "mark": "1;4;31"}
_PASSAGE_CHARS: Final = 300


class Terminal:
    """Writes the report in lines.

    Args:
        width: columns; more than 100 are not used.
        colour: whether escape sequences may be written.
        plain: only ASCII.
    """

    def __init__(self, *, width: int = _WIDEST, colour: bool = False, plain: bool = False) -> None:
        self._width, self._colour, self._plain = max(40, min(width, _WIDEST)), colour, plain

    def render(self, report: Report) -> str:
        """The whole report."""
        text = "\n".join(self._lines(report)) + "\n"
        return text.translate(_PLAINLY).encode("ascii", "replace").decode() if self._plain else text

    def _lines(self, report: Report) -> Iterator[str]:
        said = words.verdict(report)
        yield self._styled(said.title, said.tone)
        yield from self._wrapped(f"{said.detail}.")
        if report.latest is not None:
            rest = f"{words.with_interval(report.latest.estimate)}, {report.latest.judged:,} calls scored"
            yield from self._wrapped(f"{words.latest(report)} {rest}.")
        if words.without_context(report):
            yield from self._wrapped(f"{words.without_context(report)}.")
        if report.headline is not None and meaning(report.headline.metric):
            about = f"{words.title(report.headline.metric)}: {meaning(report.headline.metric)}."
            yield from (self._styled(line, "dim") for line in self._wrapped(about))
        yield from (self._styled(line, "dim") for line in self._wrapped(words.subject(report)))
        for note in report.notes:
            yield from self._wrapped(f"Note: {note}")
        if report.headline is not None and report.headline.timeline:
            yield ""
            yield from self._timeline(report.headline, report.rollouts)
        yield from self._comparison(report)
        if report.headline is not None:
            yield from self._places(report, report.headline)
        yield from self._problems(report)
        yield from self._rest(report)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._colour else text

    def _wrapped(self, text: str, indent: str = "") -> list[str]:
        return textwrap.wrap(
            words.clean(text), self._width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )

    def _timeline(self, item: Measured, rollouts: Sequence[Rollout]) -> Iterator[str]:
        known = [point.estimate.value for point in item.timeline if point.estimate.value is not None]
        if not known:
            return
        low, high = (0.0, max(known)) if not item.higher_is_better else (min(known), 1.0)
        bars = "".join(self._bar(point, low, high) for point in item.timeline)
        first, last = item.timeline[0].period.start, item.timeline[-1].period.end
        yield f"{words.title(item.metric)} over time, {words.percent(low)} to {words.percent(high)}:"
        yield f"  {bars}"
        yield self._styled(f"  {words.between(first, last)}", "dim")
        for rollout in rollouts:
            if first < rollout.at < last:
                yield self._styled(f"  {words.moment(rollout.at)}: release {words.name(rollout.release)}", "dim")

    def _bar(self, point: Point, low: float, high: float) -> str:
        if point.estimate.value is None:
            return "." if self._plain else _GAP
        share = (point.estimate.value - low) / (high - low) if high > low else 0.0
        return str(round(9 * share)) if self._plain else _BLOCKS[round((len(_BLOCKS) - 1) * max(0.0, min(1.0, share)))]

    def _table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """Columns as wide as their widest cell; the first takes the remaining width, and goes on below if need be."""
        if not rows:
            return
        cells = [[words.clean(cell) for cell in row] for row in [head, *rows]]
        widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
        widths[0] = max(8, min(widths[0], self._width - sum(widths[1:]) - 2 * (len(head) - 1)))
        yield ""
        yield self._styled(title, "quiet")
        for number, row in enumerate(cells):
            first, *further = textwrap.wrap(row[0], widths[0], break_on_hyphens=False) or [""]
            rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            for line in ("  ".join([first.ljust(widths[0]), *rest]).rstrip(), *(f"  {more}" for more in further)):
                yield self._styled(line, "dim") if number == 0 else line

    def _comparison(self, report: Report) -> Iterator[str]:
        two = report.comparison
        if two is None or not report.changes:
            rows = [
                (words.title(i.metric), i.evaluator, words.with_interval(i.overall))
                for i in report.measured
                if i.overall
            ]
            yield from self._table("Estimates, with their 95% intervals", ("", "by", "estimate"), rows)
            return
        rows4 = [
            (
                words.title(row.metric),
                words.with_interval(row.before),
                words.with_interval(row.after),
                words.change(row),
            )
            for row in two.rows
        ]
        head = ("", two.before, two.after, "difference")
        yield from self._table("What changed, with 95% intervals", head, rows4)

    def _places(self, report: Report, item: Measured) -> Iterator[str]:
        for kind, parts in (("workflow", item.by_workflow), ("model", item.by_model)):
            title, shown = f"{words.title(item.metric)} by {kind}", parts[: words.MOST_PARTS]
            if any(part.moved for part in shown):
                rows = [_moved(part, report, item) for part in shown]
                yield from self._table(title, ("", "before", "after", "difference", "of the change"), rows)
            else:
                yield from self._table(title, ("", "estimate", "calls", "scored"), [_part(part) for part in shown])
            more = words.left_out(parts)
            if more:
                yield more

    def _problems(self, report: Report) -> Iterator[str]:
        if report.problems:
            yield ""
            yield self._styled(f"The worst answers; [[words]] are {words.marked(report)}", "quiet")
        for number, problem in enumerate(report.problems, start=1):
            yield from self._problem(number, problem)

    def _problem(self, number: int, problem: Problem) -> Iterator[str]:
        score = f"{problem.metric} {words.share(problem.score)}"
        yield ""
        yield from self._wrapped(f"{number}. {problem.query or '(the question is not known)'}  ({score})")
        text, marks = words.excerpt(problem)
        pieces = "".join(f"[[{piece}]]" if marked else piece for piece, marked in words.pieces(text, marks))
        for line in self._wrapped(f"answer: {pieces or 'not kept'}", "   "):
            yield line.replace("[[", f"\x1b[{_STYLES['mark']}m[[").replace("]]", "]]\x1b[0m") if self._colour else line
        for rank, passage in enumerate(problem.passages or (), start=1):
            held = f" ({words.held(problem)})" if passage.held_against else ""
            yield from self._wrapped(f"chunk {rank}{held}: {words.shortened(passage.text, _PASSAGE_CHARS)}", "   ")
        where = [words.moment(problem.at), problem.workflow, problem.model, problem.evaluator, problem.trace_id]
        where.append(words.how_often(problem))
        yield from (self._styled(line, "dim") for line in self._wrapped(", ".join(filter(None, where)), "   "))

    def _rest(self, report: Report) -> Iterator[str]:
        spread = [
            (
                f"{words.title(item.metric)} by {item.evaluator}",
                *map(words.number, (box.low, box.first, box.median, box.third, box.high)),
                f"{box.n:,}",
            )
            for item in report.measured
            if (box := item.box) is not None
        ]
        quantiles = ("", "5%", "25%", "median", "75%", "95%", "scores")
        yield from self._table("How the scores are spread", quantiles, spread)
        reasons = [
            (f"{words.title(item.metric)} by {item.evaluator}", words.reason(reason), f"{count:,}")
            for item in report.measured
            for reason, count in item.unscored.items()
        ]
        yield from self._table("Not scored", ("", "reason", "calls"), reasons)
        spent = [
            (each.evaluator, f"{each.looked_at:,}", f"{each.failed:,}", f"{each.input_tokens:,}",
             f"{each.output_tokens:,}", words.cost(each))
            for each in report.spent
        ]  # fmt: skip
        yield from self._table("What judging cost", ("", "calls", "failed", "tokens in", "out", "cost"), spent)


def _moved(part: Part, report: Report, item: Measured) -> tuple[str, ...]:
    moved = part.moved
    ends = ("-", "-") if moved is None else (words.percent(moved.before.value), words.percent(moved.after.value))
    return words.name(part.name), *ends, words.part_change(part), words.came_from(part, report.compared(item)) or "-"


def _part(part: Part) -> tuple[str, str, str, str]:
    return words.name(part.name), words.with_interval(part.estimate), f"{part.calls:,}", f"{part.judged:,}"
