"""The history's file under forks, a refused `configure`, deletion and renaming: no row is lost, or it is counted."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import ragtrace
from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import create_file
from tests.support.history import GIB, SOURCE, Simulated, made
from tests.support.watched import WAIT_S, ask, watch

ROOT: Final = Path(__file__).parents[3]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    faults.clear()
    return tmp_path / "history.db"


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(database.execute("SELECT count(*) FROM calls").fetchone()[0])


def test_a_deleted_history_is_made_again(path: Path) -> None:
    """Calls after the deletion are in a new file, readable by its owner alone; the deletion is counted."""
    watch(store=path)
    ask("before?")
    assert ragtrace.flush(WAIT_S)
    for name in path.parent.iterdir():
        name.unlink()
    for number in range(5):
        ask(f"after {number}?")
        assert ragtrace.flush(WAIT_S)
    assert rows(path) == 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ragtrace.stats().faults == {"history: file replaced": 1}


def test_a_renamed_history_keeps_its_rows(path: Path) -> None:
    """As a log rotation renames files, without what SQLite keeps beside them."""
    watch(store=path)
    for number in range(3):
        ask(f"before {number}?")
    assert ragtrace.flush(WAIT_S)
    rotated = path.rename(path.with_suffix(".1"))
    for number in range(5):
        ask(f"after {number}?")
    assert ragtrace.shutdown(WAIT_S)
    assert (rows(rotated), rows(path)) == (3, 5)


class DeletingBatch(list[QueuedCall]):
    """A batch that deletes the file when it is first written."""

    def __init__(self, path: Path, offered: QueuedCall) -> None:
        super().__init__([offered])
        self._path, self.due = path, True

    def __iter__(self) -> Iterator[QueuedCall]:
        if self.due:
            self.due = False
            self._path.unlink()
        return super().__iter__()


def test_what_was_written_while_the_file_was_deleted_is_written_again(path: Path) -> None:
    """The first attempt went to a file that nobody can open any more."""
    writer = HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)
    batch = DeletingBatch(path, made(0.0, Simulated(), random.Random(1)))
    assert writer.write(batch) == 0
    assert rows(path) == 1
    writer.close()


def test_a_deleted_spool_is_made_again(path: Path) -> None:
    """With its tables, readable by its owner alone, and counted."""
    from ragtrace.fleet.spool import Spool

    spool = Spool(str(path))
    spool.prepare("spool=")
    for name in path.parent.iterdir():
        name.unlink()
    assert spool.contents().calls == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert faults.counts() == {"spool: deleted": 1}


def test_a_new_file_does_not_inherit_the_log_of_a_deleted_one(path: Path) -> None:
    """SQLite would take it for the new one's."""
    Path(f"{path}-wal").write_bytes(b"old")
    Path(f"{path}-shm").write_bytes(b"old")
    assert create_file(str(path))
    assert not create_file(str(path))
    assert [name.name for name in path.parent.iterdir()] == ["history.db"]


def test_a_file_of_an_earlier_release_is_read_and_written(path: Path) -> None:
    """With its calls, scores and texts; the calls of this process stand beside them."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript((ROOT / "tests" / "files" / "history_version_1.sql").read_text())
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as writer:
        assert writer.write([made(1_700_000_120.0, Simulated(), random.Random(1))]) == 0
    reader = HistoryReader(str(path))
    columns = reader.columns(1_699_999_999.0, 1_700_000_061.0)
    texts = reader.texts([1])[1]
    reader.close()
    assert (len(columns), columns.score.tolist(), columns.sources[1].judged) == (2, [1.0], ("faithfulness",))
    assert (texts.body["query"], texts.body["answer"]) == ("question 1?", "Paris is big.")
    assert rows(path) == 3
