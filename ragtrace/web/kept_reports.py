"""Reports on a history that several requests share. That of the first page is made before it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Final, TypeAlias

from ragtrace.history.reading import HistoryReader
from ragtrace.report.analysis import build_report
from ragtrace.report.model import Period, Report, parse_time
from ragtrace.system.freed_memory import return_freed_memory
from ragtrace.system.threads import DaemonPool

if TYPE_CHECKING:
    from concurrent.futures import Future

    Query: TypeAlias = Mapping[str, str]

_MOST_REPORTS: Final = 8
_STOP_SECONDS: Final = 2.0
"""Longest wait for the thread of the first report, which ends between two steps of a few hundredths of a second."""


@dataclass(slots=True)
class _KeptReport:
    """Report that several requests share, with the time it was made at and the seconds that this took."""

    making: threading.Lock = field(default_factory=threading.Lock)
    report: Report | None = None
    made: float = 0.0
    took: float = 0.0


class KeptReports:
    """Reports on a history, at most a few seconds old, by the filters of the page that shows each.

    Args:
        history: file of the history.
    """

    def __init__(self, history: str) -> None:
        self._history = history
        self._reports: dict[tuple[object, ...], _KeptReport] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pool = DaemonPool(1, "ragtrace-first-report")
        self._first: Future[None] | None = None

    def begin_first(self) -> None:
        """Make the report of the first page in a thread: a request for the page waits for what is left of it."""
        self._first = self._pool.submit(self._make_first)

    def close(self) -> None:
        """Stop the thread of the first report."""
        self._stopped.set()
        self._pool.shutdown()
        if self._first is not None:
            wait([self._first], _STOP_SECONDS)

    def _make_first(self) -> None:
        with suppress(Exception):  # a request for the page meets the same error, and shows it
            self._get({}, self._stopped)

    def get(self, query: Query) -> Report:
        """Return the report of the calls that the filters *query* choose.

        It is kept for ten times as long as it took to make, so that a page that refreshes itself uses about a tenth of
        a processor, however long the history is.
        """
        return self._get(query, None)

    def _get(self, query: Query, stopped: threading.Event | None) -> Report:
        key = tuple(sorted(query.items()))
        with self._lock:
            kept = self._reports.setdefault(key, _KeptReport())
            while len(self._reports) > _MOST_REPORTS:
                del self._reports[next(iter(self._reports))]
        with kept.making:  # pages that are open at once share one report, and wait for no other
            if kept.report is None or monotonic() - kept.made > max(1.0, 10 * kept.took):
                began, now = monotonic(), time()
                kept.report = build_report(
                    self._history, self.period(query, now), chosen_name(query, "workflow"),
                    query.get("compare") or ("none" if query.get("since") == "all" else "previous"), made_at=now,
                    model=chosen_name(query, "model"), release=chosen_name(query, "release"),
                    metric=query.get("metric") or None, stopped=stopped,
                )  # fmt: skip
                return_freed_memory()
                kept.made = monotonic()
                kept.took = kept.made - began
            return kept.report

    def period(self, query: Query, now: float) -> Period:
        """Return the time of the calls that the filters *query* choose at the time *now*."""
        since = query.get("since") or "24h"
        if since == "all":
            with closing(HistoryReader(self._history)) as reader:
                oldest = next(iter(reader.time_range() or ()), now)
            return Period(min(oldest, now - 1.0), now + 1.0)
        return Period(parse_time(since, now, "since"), now + 1.0)


def chosen_name(query: Query, kind: str) -> str | None:
    """Return the chosen name of a workflow, model or release, or None for all: `=` stands before a chosen name."""
    value = query.get(kind, "")
    return value[1:] if value.startswith("=") else None
