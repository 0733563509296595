"""What benchmarks that compare subjects share: processes to measure in, interleaved rounds, ratios, a table.

Every subject has a process of its own, because tracing libraries fight over what a process has once (the global
tracer provider, exit handlers, patched libraries), and so that the background work of one cannot be billed to another.
The rounds are interleaved: in each, every subject is measured once, in an order that turns, while the others wait for
their orders. A ratio is taken within a round and the median over the rounds is reported, so a slow moment of the
machine hits both sides of it. What remains is that two processes running the very same code differ a little (where
their memory lies): a subject that is listed twice shows how much.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
ANSWER_S: Final = 300.0
"""How long a process may take to answer before it is ended."""


@dataclass(frozen=True)
class Row:
    """A line of a table: which subject, compared with which other row, and the bound that its ratio must keep."""

    label: str
    subject: str
    """MODULE:FUNCTION in `tests.benchmarks.subjects`."""
    reference: str = ""
    """Label of the row that it is divided by."""
    bound: float | None = None
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = sys.executable
    spans: float | None = 3.0
    """Spans that each call must have exported, where the subject counts them; None: not checked."""


class MissingLibraryError(Exception):
    """A subject's library is not installed."""


class Process:
    """A subject in a process of its own, waiting for orders."""

    def __init__(self, row: Row) -> None:
        self.row = row
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_"))}
        self._command = (row.python, "-W", "ignore", "-m", "tests.benchmarks.subjects.worker", row.subject)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**inherited, "PYTHONHASHSEED": "0", **row.environ},
            text=True,
        )
        answer = self._answer()
        if "missing" in answer:
            self.close()
            raise MissingLibraryError(answer["missing"])

    def measure(self, **order: Any) -> dict[str, Any]:
        """Send an order of `worker.Worker` and wait for its answer.

        Raises:
            RuntimeError: the process ended instead of answering, or lost or invented spans.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        spans, wanted = float(answer.get("spans", math.nan)), self.row.spans
        if wanted is not None and abs(spans - wanted) > 1e-9:  # never true of NaN: this subject does not count
            raise RuntimeError(f"{self.row.label}: exported {spans:g} spans a call instead of {wanted:g}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        alarm = threading.Timer(ANSWER_S, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        alarm.cancel()
        if not line:
            code, command = self._process.wait(), " ".join(self._command)
            raise RuntimeError(f"{self.row.label} ended with {code} instead of answering; to see why, run: {command}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _start(row: Row) -> Process | None:
    try:
        return Process(row)
    except MissingLibraryError as error:
        print(f"skipped: {row.label} (no module {error})")
        return None


@contextmanager
def started(rows: Sequence[Row]) -> Iterator[list[Process]]:
    """A process for each row whose library is there; the others are printed as skipped."""
    processes: list[Process] = []
    try:
        processes += (process for row in rows if (process := _start(row)) is not None)
        yield processes
    finally:
        for process in processes:
            process.close()


Results = dict[str, list[float]]
"""The value of each round by the row's label."""


def interleaved(processes: Sequence[Process], rounds: int, **order: Any) -> Results:
    """Measure every process once a round, in an order that turns; the first round is a warm-up and is not counted."""
    results: Results = {process.row.label: [] for process in processes}
    for number in range(rounds + 1):
        first = number % len(processes)
        for process in (*processes[first:], *processes[:first]):
            value = float(process.measure(**order)["value"])
            if number:
                results[process.row.label].append(value)
    return results


@dataclass(frozen=True)
class Line:
    """Median and range of a row, in the unit measured, and of its ratio to the reference."""

    row: Row
    values: tuple[float, float, float]
    """Median, least, most."""
    ratios: tuple[float, float, float] | None

    @property
    def kept(self) -> bool | None:
        """Whether the median ratio keeps the bound; None without a bound."""
        return None if self.row.bound is None or self.ratios is None else self.ratios[0] <= self.row.bound


def summary(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and most of *values*, at least one."""
    return statistics.median(values), min(values), max(values)


def lines(rows: Sequence[Row], results: Results) -> list[Line]:
    """A line for every row that was measured; its ratios are those of the single rounds."""
    made: list[Line] = []
    for row in rows:
        if row.label not in results:
            continue
        mine, base = results[row.label], results.get(row.reference)
        ratios = None if base is None else summary([a / b for a, b in zip(mine, base, strict=True)])
        made.append(Line(row, summary(mine), ratios))
    return made


def show(title: str, unit: str, table: Sequence[Line]) -> None:
    """Print a table."""
    width = max(len(line.row.label) for line in table)
    print(f"\n{title}")
    print(f"{'':<{width}}  {unit:>9}  {'least':>8} {'most':>8}  {'ratio':>6}  {'least':>6} {'most':>6}  bound")
    for line in table:
        median, least, most = line.values
        text = f"{line.row.label:<{width}}  {median:>9.2f}  {least:>8.2f} {most:>8.2f}"
        if line.ratios is not None:
            text += "  {:>6.3f}  {:>6.3f} {:>6.3f}".format(*line.ratios)
        if line.kept is not None:
            text += f"  {line.row.bound:g} {'kept' if line.kept else 'MISSED'}"
        print(text)
