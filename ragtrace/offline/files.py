"""`score_file`: a file of calls to a file of scores; what is judged is never lost, and never paid for twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Judge, Metric
from ragtrace.evaluation.metric_selection import chosen
from ragtrace.offline.batch import in_turn, panelled
from ragtrace.offline.evaluator import CONCURRENCY, PASSING, TIMEOUT_S, Panel
from ragtrace.offline.journal import Journal
from ragtrace.offline.lines import Line, Lines
from ragtrace.offline.progress import Progress, shown
from ragtrace.offline.rows import Row, copy_of, cost_of_row, row_of, values_of_row
from ragtrace.offline.summary import Summary, Tallier
from ragtrace.offline.tables import FORMS, publish
from ragtrace.system.sync_bridge import unwatched

_FORMAT: Final = 1
"""Of the journal's entries: one more whenever what is in a row changes."""


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of a file of calls."""

    summary: Summary
    bad: int
    """Lines that could not be read as calls."""
    resumed: int
    """Calls that an earlier run had judged."""
    again: int
    """Calls that failed for a reason that may pass: the same run, started again, judges these and no others."""
    unread_keys: Mapping[str, int]
    """Keys of the lines that say nothing we know, and on how many lines."""
    duration_s: float


def score_file(
    calls: Path,
    out: Path,
    *,
    judge: Judge,
    metrics: str | Sequence[str | Metric] | None = None,
    asked: str = "",
    concurrency: int = CONCURRENCY,
    timeout: float | None = TIMEOUT_S,
    restart: bool = False,
    quiet: bool = False,
    on_bad: Callable[[int, str], None] = lambda number, what: None,
    on_failure: Callable[[int, str], None] = lambda number, what: None,
) -> FileOutcome:
    """Score the calls of a JSON Lines file, a few in memory at a time.

    While it runs, *out* with `.part` behind its name is the journal: killed at any moment and started again with the
    same arguments, it goes on where it was. Then *out* appears as a whole, in the order of *calls*, the same as if
    nothing had happened. A line that describes the same call as another costs nothing.

    Args:
        calls: each line an object with `answer` and any other of `offline.calls.KEYS`, and perhaps an `id`.
        out: `.jsonl` or `.csv`.
        asked: how the judge was asked for, where its id and version do not tell all of it.
        restart: forget what was judged before.
        quiet: show no progress.
        on_bad: told of each line that cannot be read: its number, from 1, and what is wrong with it.
        on_failure: told of each call that the judge failed to judge: the line's number, and the reason.

    Raises:
        SettingsError: an argument is wrong, or the journal is of another run.
        JudgeError: the judge kept failing; what it had judged is kept.
        OSError: a file cannot be read or written; what was judged is kept.
    """
    wanted = chosen(judge, metrics)
    journal_path = out.with_name(f"{out.name}.part")
    _check_paths(calls, out, journal_path, restart=restart)
    header = {
        "ragtrace_score": _FORMAT,
        "judge": f"{judge.id}@{judge.version}",
        "asked": asked,
        "metrics": {metric.name: metric.version for metric in wanted},
    }
    began = monotonic()
    lines = Lines(calls, on_bad)
    with Journal(journal_path, header, restart=restart) as journal, shown(None, quiet=quiet) as bar, unwatched():
        run = _Run(lines, journal, bar, on_failure)
        asyncio.run(run.judge_all(judge, wanted, concurrency, timeout))
        tallier = Tallier()
        publish(out, _tallied(journal.rows(), tallier), [metric.name for metric in wanted])
        if not run.again:
            journal.remove()
    return FileOutcome(
        tallier.summary(), lines.bad, run.resumed, run.again, dict(lines.unread_keys), monotonic() - began
    )


def _check_paths(calls: Path, out: Path, journal: Path, *, restart: bool) -> None:
    if out.suffix.lower() not in FORMS:
        raise SettingsError(f"cannot tell the form of {out}; name it {' or '.join(f'*{suffix}' for suffix in FORMS)}")
    if out.exists() and calls.exists() and out.samefile(calls):
        raise SettingsError(f"{out} is the file of the calls itself; choose another output")
    if out.exists() and not journal.exists() and not restart:
        raise SettingsError(
            f"{out} is there already, and no {journal.name} beside it says that it is unfinished; choose another "
            "output, or --restart to judge all anew and replace it"
        )


def _tallied(rows: Iterator[Row], tallier: Tallier) -> Iterator[Row]:
    for row in rows:
        tallier.add(values_of_row(row), cost_of_row(row))
        yield row


class _Run:
    """One run over the lines: judges those that the journal does not have."""

    def __init__(self, lines: Lines, journal: Journal, bar: Progress, on_failure: Callable[[int, str], None]) -> None:
        self._lines, self._journal, self._bar, self._on_failure = lines, journal, bar, on_failure
        self._judging: dict[bytes, asyncio.Event] = {}
        """By key, what is being judged; the event is set when it is done."""
        self.resumed = self.again = 0

    async def judge_all(self, judge: Judge, metrics: Sequence[Metric], concurrency: int, timeout: float | None) -> None:
        async with panelled(judge, metrics, concurrency, timeout) as panel:
            # Twice as many: those that pause before a further try leave no place at the judge unused.
            await in_turn(self._lines, lambda line: self._settle(panel, line), 2 * concurrency)

    async def _settle(self, panel: Panel, line: Line) -> None:
        self._bar.reached(self._lines.share)
        if self._journal.has(line.number, line.key):
            self.resumed += 1
            return
        while line.key in self._judging:
            await self._judging[line.key].wait()
        twin = self._journal.twin(line.key)
        if twin is None:
            await self._judge(panel, line)
        else:
            self._add(line, copy_of(twin, line.number, line.id))

    async def _judge(self, panel: Panel, line: Line) -> None:
        done = self._judging[line.key] = asyncio.Event()
        try:
            evaluation = await panel.patiently(line.call)
            # Without a pause between the judge's answer and this, so that what is paid for is kept.
            self._add(line, row_of(line.number, line.id, evaluation), again=evaluation.error in PASSING)
        finally:
            del self._judging[line.key]
            done.set()
        if evaluation.error is not None:
            detail = next((result.explanation for result in evaluation.results.values() if result.explanation), "")
            if panel.given_up:
                raise JudgeError(evaluation.error, detail)
            self._on_failure(line.number, f"{evaluation.error}: {detail}" if detail else evaluation.error)

    def _add(self, line: Line, row: Row, *, again: bool = False) -> None:
        self._journal.add(line.key, row, again=again)
        self.again += again
        self._bar.judged(cost_of_row(row))
