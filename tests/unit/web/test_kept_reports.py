"""The reports that the pages of a history share, and the one that is begun before a page is asked for."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace.history.reading import HistoryReader, ReadingStoppedError
from ragtrace.report.analysis import build_report
from ragtrace.report.model import Period
from ragtrace.system.sqlite_files import SQLiteFileError
from ragtrace.web.kept_reports import KeptReports
from tests.support.history import Simulated, fill, made
from tests.support.watched import eventually


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 60 calls of the last hour."""
    path, rng, now = tmp_path_factory.mktemp("history") / "history.db", random.Random(2), time.time()
    fill(path, [made(now - 60 * number, Simulated(0.3, 0.5), rng) for number in range(60)])
    return path


@pytest.fixture
def reports(history: Path) -> Iterator[KeptReports]:
    with closing(KeptReports(str(history))) as kept:
        yield kept


def test_a_page_shows_the_report_that_was_begun_for_it(history: Path, reports: KeptReports) -> None:
    """It waits for what is left of it; the numbers are those of a report of its own."""
    reports.begin_first()
    report = reports.get({})
    assert report.calls == 60
    assert reports.get({}) is report
    alone = build_report(str(history), report.period, made_at=report.made_at, details="headline")
    assert replace(alone) == report


def test_the_details_are_made_behind_the_first_page(history: Path, reports: KeptReports) -> None:
    """A request for their page waits for what is left of them."""
    reports.begin_first()
    headline = reports.get({})
    shown = reports.get({}, "shown")
    assert reports.get({}, "shown") is shown
    assert shown.problems
    assert not headline.problems
    assert shown == build_report(str(history), shown.period, made_at=shown.made_at, details="shown")


def test_pages_that_are_asked_for_at_once_share_one_report(reports: KeptReports) -> None:
    """Whichever of them, or the thread of the first report, makes it."""
    found, barrier = list[object](), threading.Barrier(4)

    def ask() -> None:
        barrier.wait()
        found.append(reports.get({}))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    barrier.wait()
    reports.begin_first()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in found}) == 1


def test_other_filters_have_a_report_of_their_own(reports: KeptReports) -> None:
    """Which the first one's thread does not make."""
    reports.begin_first()
    assert reports.get({"workflow": "=none"}).calls == 0
    assert reports.get({}).calls == 60


def test_the_first_report_stops_at_the_end(history: Path) -> None:
    """At once, in the middle of its work: no thread is left, and a page that is still asked for gets a report."""
    with closing(KeptReports(str(history))) as reports:
        reports.begin_first()
    assert eventually(lambda: "ragtrace-first-report" not in {thread.name for thread in threading.enumerate()})
    assert reports.get({}).calls == 60


def test_a_report_that_is_not_wanted_any_more_is_not_made(history: Path) -> None:
    """The reader stops before it reads the next block of calls."""
    stopped = threading.Event()
    with closing(HistoryReader(str(history), stopped)) as reader:
        assert len(reader.columns(0.0, 9e9)) == 60
        stopped.set()
        with pytest.raises(ReadingStoppedError):
            reader.columns(0.0, 9e9)
    with pytest.raises(ReadingStoppedError):
        build_report(str(history), Period(0.0, 9e9), stopped=stopped)


def test_a_history_that_cannot_be_read_is_said_by_the_page(tmp_path: Path) -> None:
    """The thread of the first report ends quietly."""
    with closing(KeptReports(str(tmp_path / "none.db"))) as reports:
        reports.begin_first()
        with pytest.raises(SQLiteFileError):
            reports.get({})
