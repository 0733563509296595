"""Incidents of alerts in the history: one row for each process, from the beginning to the end, as long as the calls."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import ragtrace
from ragtrace.core.alert_incident import AlertIncident
from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import HistoryWriter, Queued
from ragtrace.testing import FakeJudge
from tests.support.alerted import Board
from tests.support.history import GIB, SOURCE, Simulated, made
from tests.support.watched import GOOD, HALF, WAIT_S, ask, watch

T: Final = 1_800_000_000.0
OPEN: Final = AlertIncident(
    "i1", "k1", "too many", "hallucination", "spiking", "above", 0.05, False, "support", None, "1.4.0", "judge", T,
    T + 60.0, None, 40, 0.3, 0.2, 0.45, 0.02, False,
)  # fmt: skip
OVER: Final = replace(OPEN, seen=T + 600.0, ended=T + 600.0, calls=0, value=None, low=None, high=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def write(path: Path, *batches: Iterable[Queued], most_bytes: int = GIB, prune_before: float | None = None) -> None:
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=most_bytes, texts=True)) as writer:
        for batch in batches:
            assert writer.write(list(batch)) == 0
        if prune_before is not None:
            writer.prune(prune_before)


def stored(path: Path) -> list[AlertIncident]:
    with closing(HistoryReader(str(path))) as reader:
        return reader.alerts(0.0, 2 * T)


def call_at(at: float) -> Queued:
    return made(at, Simulated(), random.Random(at))


def test_an_incident_comes_back_as_it_was_stored(path: Path) -> None:
    """All fields, a lone surrogate in a name excepted, which SQLite refuses."""
    other = replace(OPEN, id="i2", workflow="\ud800", model="small-1", ended=T + 90.0, is_raw=True)
    write(path, [OPEN, other])
    first, second = stored(path)
    assert first == OPEN
    assert replace(second, workflow=other.workflow) == other


def test_the_end_of_an_incident_leaves_what_was_seen(path: Path) -> None:
    """One row, with the end and the mean of the calls that made the alert."""
    write(path, [OPEN], [replace(OPEN, seen=T + 90.0, calls=80, value=0.35)], [OVER])
    [found] = stored(path)
    assert found == replace(OPEN, seen=T + 600.0, ended=T + 600.0, calls=80, value=0.35)


def test_while_it_lasts_an_incident_is_seen_with_the_calls_of_its_process(path: Path) -> None:
    """So a reader knows until when it lasted in a process that was killed; other incidents stay as they are."""
    write(path, [replace(OPEN, id="i2", key="k2")])
    write(path, [OPEN], [call_at(T + 300.0)], [call_at(T + 200.0)])
    assert {each.id: each.seen for each in stored(path)} == {"i1": T + 300.0, "i2": T + 60.0}
    write(path, [replace(OVER, ended=T + 400.0, seen=T + 400.0)], [call_at(T + 900.0)])
    assert [each.seen for each in stored(path) if each.id == "i1"] == [T + 400.0]


def test_a_period_has_the_incidents_that_lasted_in_it(path: Path) -> None:
    """From the beginning to the end, or to when it was last seen."""
    write(path, [OVER, replace(OPEN, id="i2")])
    with closing(HistoryReader(str(path))) as reader:
        assert [each.id for each in reader.alerts(T + 500.0, T + 501.0)] == ["i1"]
        assert [each.id for each in reader.alerts(T - 10.0, T)] == []
        assert [each.id for each in reader.alerts(T + 30.0, T + 31.0)] == ["i1", "i2"]


def test_incidents_are_deleted_with_the_calls_of_their_time(path: Path) -> None:
    """By age and by size: those that were over before the oldest call that is left."""
    late = replace(OVER, id="i2", since=T + 920.0, seen=T + 1000.0, ended=T + 1000.0)
    write(path, [OVER, late], [call_at(T + 10.0 * number) for number in range(200)], prune_before=T)
    assert [each.id for each in stored(path)] == ["i1", "i2"]
    write(path, prune_before=T + 900.0)
    assert [each.id for each in stored(path)] == ["i2"]
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as writer:
        half = writer.used_bytes // 2
    write(path, most_bytes=half, prune_before=T)
    assert stored(path) == []


def test_without_old_calls_pruning_takes_no_lock(path: Path) -> None:
    """Another process may be writing: nobody waits where nothing is to be deleted."""
    write(path, [OVER], [call_at(T + 5000.0)])
    with (
        closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as writer,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        assert writer.prune(T) == 0
        other.execute("ROLLBACK")
    assert len(stored(path)) == 1


def test_a_history_of_an_older_release_has_none(path: Path) -> None:
    """Until it is opened for writing, which makes the table."""
    write(path, [call_at(T)])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE alerts")
    assert stored(path) == []
    write(path, [OPEN])
    assert stored(path) == [OPEN]


def test_each_process_has_an_incident_of_its_own() -> None:
    """With the same key: the end in one is not that in the other."""
    seen: list[list[AlertIncident]] = [[], []]
    for of_process in seen:
        board = Board(stores=[of_process.append], above=0.05)
        board.score(*[0.0] * 100, *[1.0] * 30)
    (one,), (other,) = seen
    assert one.key == other.key
    assert one.id != other.id
    assert (one.problem, one.ended, one.value is not None) == ("spiking", None, True)


def test_the_end_has_the_id_of_the_beginning() -> None:
    """And a second spike has another one."""
    seen: list[AlertIncident] = []
    board = Board(stores=[seen.append], above=0.05)
    for _ in range(2):
        board.score(*[0.0] * 300, *[1.0] * 30)
    board.score(*[0.0] * 300)
    first, end, second, last = seen
    assert (first.id, second.id) == (end.id, last.id)
    assert first.id != second.id
    assert end.ended is not None
    assert end.value is None


def test_a_configured_process_keeps_its_alerts(path: Path) -> None:
    """From real calls by way of the alert to the row."""
    alert = ragtrace.Alert("hallucination", above=0.05, name="too many")
    script = [GOOD] * 100 + [HALF] * 60
    screen = FakeJudge(*script, name="screen", limits=ragtrace.JudgeLimits(concurrency=1))
    watch(service="bot", screen=screen, alerts=[alert], metrics=["hallucination"], store=path)
    for number in range(len(script)):
        ask(f"where? {number}")
    assert ragtrace.flush(WAIT_S)
    [found] = stored(path)
    assert (found.alert, found.metric, found.evaluator, found.ended) == ("too many", "hallucination", "screen", None)
    assert found.value is not None
    assert found.value > 0.05
