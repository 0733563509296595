"""Scoring of a file of calls, which can be continued after an interruption.

Every judged call is kept, so that none is paid for twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Judge, Metric
from ragtrace.evaluation.metric_selection import metrics_for
from ragtrace.offline.batch import Summary, SummaryBuilder
from ragtrace.offline.call_records import BadLine, CallFile, CallLine
from ragtrace.offline.journal import Journal
from ragtrace.offline.offline_evaluator import RETRYABLE, OfflineEvaluator, Timeout
from ragtrace.offline.progress import Progress, show_progress
from ragtrace.offline.score_rows import (
    FORMS,
    ScoreRow,
    copy_row,
    row_cost,
    row_values,
    score_row,
    uncalibrated_metrics,
)
from ragtrace.system.atomic_file import write_atomically
from ragtrace.system.sync_bridge import suppress_instrumentation

if TYPE_CHECKING:
    from ragtrace.offline.span_file_calls import SpanFileCalls

FileFormat = Literal["calls", "otlp"]
"""Content of a file to score: records of calls, or spans from which calls are read."""
_MOST_COMPLAINTS: Final = 20
_MOST_COMPLAINT_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """Outcome of scoring a file of calls: summary, duration, and counts such as unreadable lines."""

    summary: Summary
    bad: int
    """Number of lines that could not be read as calls."""
    resumed: int
    """Number of calls that an earlier run had judged."""
    again: int
    """Number of calls that failed for a reason that may pass: if started again, the run judges these and no others."""
    unread_keys: Mapping[str, int]
    """Number of lines with each unknown key."""
    duration_s: float
    spans: Mapping[str, int] | None = None
    """Counts as in `SpanFileCalls.span_counts`; None if the calls were not read from spans."""


def score_file(
    calls: Path,
    out: Path | None,
    *,
    judge: Judge,
    metrics: str | Sequence[str | Metric] | None = None,
    file_format: FileFormat = "calls",
    judge_spec: str = "",
    concurrency: int | None = None,
    timeout: Timeout = "judge",
    restart: bool = False,
    quiet: bool = False,
    complain: Callable[[str], None] = lambda message: None,
) -> FileOutcome:
    """Score the calls in a JSON Lines file, and write the scores to the file *out* if there is one.

    Only a few calls are in memory at a time.

    While it runs, *out* with `.part` behind its name is the journal: killed at any moment and started again with the
    same arguments, it goes on where it was. Then *out* appears as a whole, in the order of *calls*, the same as if
    nothing had happened. A line that describes the same call as another costs nothing. Without *out*, only the
    summary is left: the journal is in a temporary directory, and nothing can be continued.

    Args:
        calls: each line an object with `answer` and any other of `call_records.KEYS`, and perhaps an `id`.
        out: `.jsonl` or `.csv`; None: no file.
        file_format: "otlp": *calls* holds spans in OTLP JSON or in the form of Phoenix, which the calls are read from.
        judge_spec: specification of the judge, part of which its id and version do not tell.
        restart: forget what was judged before; needs *out*.
        quiet: show no progress.
        complain: called with the first bad lines and the first failures of the judge, each in one line of text.

    Raises:
        SettingsError: an argument is wrong, or the journal is of another run.
        JudgeError: the judge kept failing; what it had judged is kept beside *out*.
        OSError: a file cannot be read or written; what was judged is kept beside *out*.
    """
    wanted = metrics_for(judge, metrics)
    if out is None and restart:
        raise SettingsError("--restart is for a file of scores that --out names; leave it out")
    if out is not None:
        _check_paths(calls, out, _journal_of(out), restart=restart)
    # Version of the journal's format, raised whenever the content of a row changes.
    header: dict[str, object] = {
        "ragtrace_score": 1,
        "judge": f"{judge.id}@{judge.version}",
        "asked": judge_spec,
        "metrics": {metric.name: metric.version for metric in wanted},
    }
    if file_format != "calls":
        header["format"] = file_format
    began = monotonic()
    lines = _open(calls, file_format)
    builder = SummaryBuilder()
    with _open_journal(out, header, restart=restart) as journal:
        with show_progress(None, quiet=quiet) as progress, suppress_instrumentation():
            run = _ScoringRun(lines, journal, progress, complain)
            asyncio.run(run.judge_all(OfflineEvaluator(judge, wanted, timeout=timeout, concurrency=concurrency)))
        rows = _add_to_summary(journal.rows(), builder)
        if out is None:
            deque(rows, maxlen=0)  # reads them all, for the summary
        else:
            write_atomically(out, FORMS[out.suffix.lower()](rows, [metric.name for metric in wanted]))
            if not run.again:
                journal.remove()
    unread, spans = (dict(lines.unread_keys), None) if isinstance(lines, CallFile) else ({}, lines.span_counts)
    return FileOutcome(builder.summary(), run.bad, run.resumed, run.again, unread, monotonic() - began, spans)


def _open(calls: Path, file_format: FileFormat) -> CallFile | SpanFileCalls:
    if file_format == "calls":
        return CallFile(calls)
    from ragtrace.offline.span_file_calls import SpanFileCalls

    return SpanFileCalls(calls)


def _journal_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


@contextmanager
def _open_journal(out: Path | None, header: Mapping[str, object], *, restart: bool) -> Generator[Journal, None, None]:
    """Open the journal of a run, beside its file of scores or, where there is none, in a temporary directory."""
    if out is not None:
        with Journal(_journal_of(out), header, restart=restart) as journal:
            yield journal
        return
    with TemporaryDirectory(prefix="ragtrace-score-") as directory, Journal(Path(directory, "part"), header) as journal:
        yield journal


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


def _add_to_summary(rows: Iterator[ScoreRow], builder: SummaryBuilder) -> Iterator[ScoreRow]:
    for row in rows:
        builder.add(row_values(row), row_cost(row), uncalibrated_metrics(row))
        yield row


class _ScoringRun:
    """Run of `score_file`, which judges only the calls that have no stored result yet."""

    def __init__(
        self, lines: CallFile | SpanFileCalls, journal: Journal, progress: Progress, complain: Callable[[str], None]
    ) -> None:
        self._lines, self._journal, self._progress, self._complain = lines, journal, progress, complain
        self._judging: dict[bytes, asyncio.Event] = {}
        """Event for the key of each call that is being judged, set when the call is done."""
        self._failures: set[str] = set()
        self.bad = self.resumed = self.again = 0

    async def judge_all(self, evaluator: OfflineEvaluator) -> None:
        async with aclosing(evaluator):
            await evaluator.for_each(self._lines, lambda line: self._settle(evaluator, line))
        if self.bad > _MOST_COMPLAINTS:  # a file in the wrong form must not fill the terminal
            self._complain(f"{self.bad - _MOST_COMPLAINTS} more lines skipped")

    async def _settle(self, evaluator: OfflineEvaluator, line: CallLine | BadLine) -> None:
        self._progress.share_read = self._lines.share_read
        if isinstance(line, BadLine):
            self.bad += 1
            if self.bad <= _MOST_COMPLAINTS:
                self._complain(f"{line.part} {line.number} skipped: {line.error}")
            return
        if self._journal.has_line(line.number, line.key):
            self.resumed += 1
            return
        while line.key in self._judging:
            await self._judging[line.key].wait()
        twin = self._journal.row_of_same_call(line.key)
        if twin is None:
            await self._judge(evaluator, line)
        else:
            self._add(line, copy_row(twin, line.number, line.id))

    async def _judge(self, evaluator: OfflineEvaluator, line: CallLine) -> None:
        done = self._judging[line.key] = asyncio.Event()
        try:
            evaluation = await evaluator.evaluate_with_retries(line.call)
            # No await between the judge's answer and the journal, so that no paid answer is lost.
            self._add(line, score_row(line.number, line.id, evaluation), again=evaluation.error in RETRYABLE)
        finally:
            del self._judging[line.key]
            done.set()
        if evaluation.error is not None:
            detail = next((result.explanation for result in evaluation.results.values() if result.explanation), "")
            if evaluator.given_up:
                raise JudgeError(evaluation.error, detail)
            failure = f"{evaluation.error}: {detail}" if detail else evaluation.error
            if failure not in self._failures and len(self._failures) < _MOST_COMPLAINTS:
                self._failures.add(failure)
                self._complain(f"{line.part} {line.number} not judged: {failure}"[:_MOST_COMPLAINT_CHARS])

    def _add(self, line: CallLine, row: ScoreRow, *, again: bool = False) -> None:
        self._journal.add(line.key, row, again=again)
        self.again += again
        self._progress.add(row_cost(row))
