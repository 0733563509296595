"""Reports on a history that several requests share. That of the first page is made before it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Final, TypeAlias

from ragtrace.core.tags import parse_tag
from ragtrace.history.reading import HistoryReader
from ragtrace.report.analysis import Details, ReportBuilder
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

    def keep(self, report: Report, began: float) -> None:
        """Keep *report*, whose making began at the time *began* of the monotonic clock."""
        self.report, self.made = report, monotonic()
        self.took = self.made - began

    def is_fresh(self) -> bool:
        """Return whether the report is shown as it is."""
        return monotonic() - self.made <= max(1.0, 10 * self.took)


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
        """Make the reports of the first page and of its details in a thread: a request waits for what is left of it."""
        self._first = self._pool.submit(self._make_first)

    def close(self) -> None:
        """Stop the thread of the first reports."""
        self._stopped.set()
        self._pool.shutdown()
        if self._first is not None:
            wait([self._first], _STOP_SECONDS)

    def _make_first(self) -> None:
        headline, shown = self._kept({}, "headline"), self._kept({}, "shown")
        # A request for one of the pages meets the same error, and shows it.
        with suppress(Exception), shown.making, ExitStack() as opened:
            began = monotonic()
            with headline.making:
                builder = opened.enter_context(closing(self._builder({}, self._stopped)))
                if headline.report is None:
                    headline.keep(builder.build("headline"), began)
            if shown.report is None:
                shown.keep(builder.build("shown"), began)
            del builder
        return_freed_memory()

    def get(self, query: Query, details: Details = "headline") -> Report:
        """Return the report of the calls that the filters *query* choose, with the parts that *details* names.

        It is kept for ten times as long as it took to make, so that a page that refreshes itself uses about a tenth of
        a processor, however long the history is.
        """
        kept = self._kept(query, details)
        with kept.making:  # pages that are open at once share one report, and wait for no other
            if kept.report is None or not kept.is_fresh():
                began = monotonic()
                with closing(self._builder(query, None)) as builder:
                    report = builder.build(details)
                del builder
                return_freed_memory()
                kept.keep(report, began)
                return report
            return kept.report

    def _kept(self, query: Query, details: Details) -> _KeptReport:
        key = (details, *sorted(query.items()))
        with self._lock:
            kept = self._reports.setdefault(key, _KeptReport())
            while len(self._reports) > _MOST_REPORTS:
                del self._reports[next(iter(self._reports))]
        return kept

    def _builder(self, query: Query, stopped: threading.Event | None) -> ReportBuilder:
        now = time()
        return ReportBuilder(
            self._history, self.period(query, now), chosen_name(query, "workflow"),
            query.get("compare") or ("none" if query.get("since") == "all" else "previous"), made_at=now,
            model=chosen_name(query, "model"), release=chosen_name(query, "release"),
            metric=query.get("metric") or None, tags=chosen_tags(query), stopped=stopped,
        )  # fmt: skip

    def period(self, query: Query, now: float) -> Period:
        """Return the time of the calls that the filters *query* choose at the time *now*."""
        since = query.get("since") or "24h"
        if since == "all":
            with closing(HistoryReader(self._history)) as reader:
                oldest = next(iter(reader.time_range() or ()), now)
            return Period(min(oldest, now - 1.0), now + 1.0)
        return Period(parse_time(since, now, "Time"), now + 1.0)


def chosen_name(query: Query, kind: str) -> str | None:
    """Return the chosen name of a workflow, model or release, or None for all: `=` stands before a chosen name."""
    value = query.get(kind, "")
    return value[1:] if value.startswith("=") else None


def chosen_tags(query: Query) -> dict[str, str]:
    """Return the tag that calls are chosen by, with the text of its value; empty: none is.

    Raises:
        SettingsError: the filter is none.
    """
    given = query.get("tag", "")
    return dict([parse_tag(given)]) if given else {}
