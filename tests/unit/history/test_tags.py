"""Tags of calls in the history: each is a row, read with its type, chosen by and deleted with its call."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import ragtrace
from ragtrace.core.tags import TagValue, tag_text
from ragtrace.history.reading import HistoryReader
from ragtrace.history.row_reading import BLOCK
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.history import GIB, SOURCE, Simulated, fill, made
from tests.support.tagged import ask_tagged
from tests.support.watched import GOOD, WAIT_S, ask, watch

FOREVER = (0.0, 4e9)
FILES = Path(__file__).parents[2] / "files"
LAYOUTS = ("history_version_1.sql", "history_with_feedback.sql", "history_with_labels.sql")
"""Statements that made the histories of former releases, each after those before it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def tagged(at: float, **tags: TagValue) -> QueuedCall:
    """A call with *tags*, stored at *at*."""
    queued = made(at, Simulated(0.5, 0.5), random.Random(at))
    return replace(queued, call=replace(queued.call, tags=tags))


def tags(path: Path) -> list[dict[str, TagValue]]:
    """The tags of all calls, in their order."""
    with closing(HistoryReader(str(path))) as reader:
        numbers = reader.columns(*FOREVER).number.tolist()
        found = reader.tags(numbers)
        assert reader.damaged == set()
        return [found.get(number, {}) for number in numbers]


def chosen(path: Path, **wanted: str) -> list[int]:
    """The numbers of the calls that a reader with these tags chooses."""
    with closing(HistoryReader(str(path), tags=wanted)) as reader:
        return reader.columns(*FOREVER).number.tolist()


@pytest.mark.parametrize("capture", ["NO_CONTENT", "SPAN_AND_EVENT"])
def test_a_stored_call_has_its_tags_with_their_types(path: Path, capture: str) -> None:
    """Whatever is captured, as its spans have them, too; a call without tags has none."""
    faults.clear()
    watch(screen=FakeJudge(GOOD), store=path, capture_content=capture)
    given: dict[str, TagValue] = {"tenant": "acme", "paying": True, "trial": False, "seats": 3, "share": 0.5}
    ask_tagged("where?", **given)
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().faults == {}
    found, without = tags(path)
    assert (found, without) == (given, {})
    assert {name: type(value) for name, value in found.items()} == {n: type(value) for n, value in given.items()}


def test_a_call_that_is_stored_twice_has_its_tags_once(path: Path) -> None:
    """As by the application and by the worker that has judged it."""
    call = tagged(1.0, tenant="acme")
    fill(path, [call])
    fill(path, [call])
    assert tags(path) == [{"tenant": "acme"}]


def test_tags_go_with_their_call(path: Path) -> None:
    """Of deleted calls nothing is kept."""
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as writer:
        writer.write([tagged(1.0, tenant="acme"), tagged(5.0, tenant="globex")])
        writer.prune(2.0)
    assert tags(path) == [{"tenant": "globex"}]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM tags").fetchone() == (1,)


@pytest.mark.parametrize("layouts", range(1, 4))
def test_a_history_of_an_earlier_layout_has_no_tags_until_they_are_written(path: Path, layouts: int) -> None:
    """It is read as it is, chooses no call by a tag, and gets the table from its next writer."""
    with closing(sqlite3.connect(path)) as database:
        for name in LAYOUTS[:layouts]:
            database.executescript((FILES / name).read_text(encoding="utf-8"))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT 1 FROM sqlite_master WHERE name = 'tags'").fetchone() is None
    before = tags(path)
    assert before
    assert not any(before)
    assert chosen(path, tenant="acme") == []
    fill(path, [tagged(3e9, tenant="acme")])
    assert tags(path) == [*before, {"tenant": "acme"}]
    assert len(chosen(path, tenant="acme")) == 1


@pytest.mark.parametrize(
    "wanted",
    [
        {"tenant": "acme"},
        {"tenant": "nobody"},
        {"seats": "2"},
        {"paying": "true"},
        {"paying": "True"},
        {"share": "0.5"},
        {"tenant": "globex", "paying": "false"},
        {"tenant": "acme", "seats": "7"},
        {"rare": "yes"},
    ],
)
def test_a_reader_with_tags_reads_the_calls_that_have_them_all(path: Path, wanted: dict[str, str]) -> None:
    """In packed blocks as in rows; values are compared as texts."""
    rng, times, given = random.Random(7), count(1_000), dict[int, dict[str, TagValue]]()
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as writer:
        for block in range(5):
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'calls'", (block * BLOCK,))
            calls: list[QueuedCall] = []
            for place in range(1, 9):
                drawn: dict[str, TagValue] = {
                    "tenant": rng.choice(("acme", "globex")), "seats": rng.randrange(3), "paying": rng.random() < 0.5,
                    "share": rng.choice((0.5, 1.0)),
                }  # fmt: skip
                drawn = {} if place == 8 else drawn | ({"rare": "yes"} if (block, place) == (1, 3) else {})
                given[block * BLOCK + place] = drawn
                calls.append(tagged(float(next(times)), **drawn))
            assert writer.write(calls) == 0
        while writer.pack_block():
            pass
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM blocks WHERE format").fetchone() == (3,)
    expected = [n for n, of in given.items() if all(n_ in of and tag_text(of[n_]) == v for n_, v in wanted.items())]
    assert chosen(path, **wanted) == expected
    with closing(HistoryReader(str(path), tags=wanted)) as reader:
        where, values = reader.calls_condition(*FOREVER, None, None, None)
        rows = reader.database.execute(f"SELECT number FROM calls WHERE {where} ORDER BY number", values)
        assert [number for (number,) in rows] == expected
        better = {number: each.higher_is_better for number, each in reader.columns(*FOREVER).series.items()}
        worst, _ = reader.worst_scores(better, *FOREVER, model=None, release=None)
        assert worst.tolist() == expected
        counter = reader.unscored_counter(*FOREVER)
        reader.columns(*FOREVER, unscored=counter)
        rows = reader.database.execute("SELECT number FROM results WHERE score IS NULL")
        assert sum(calls for *_, calls in counter.counts()) == sum(number in set(expected) for (number,) in rows)


def test_calls_with_a_tag_are_found_in_an_index(path: Path) -> None:
    """A million texts are not looked at for each question."""
    fill(path, [tagged(1.0, tenant="acme")])
    with closing(HistoryReader(str(path), tags={"tenant": "acme"})) as reader:
        statements: list[str] = []
        reader.database.set_trace_callback(statements.append)
        assert len(reader.columns(*FOREVER)) == 1
        reader.database.set_trace_callback(None)
        (statement,) = [each for each in statements if "main.tags WHERE name" in each]
        ((*_, plan),) = reader.database.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    assert "USING COVERING INDEX tags_value (name=? AND value=?)" in plan


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("value = 'many' WHERE name = 'seats'", {"tenant": "acme"}),
        ("type = 'complex' WHERE name = 'seats'", {"tenant": "acme"}),
        ("type = 'boolean' WHERE name = 'tenant'", {"seats": 3}),
        ("value = x'00ff' WHERE name = 'tenant'", {"seats": 3}),
    ],
)
def test_a_damaged_tag_is_left_out_and_its_call_counted(path: Path, change: str, left: dict[str, TagValue]) -> None:
    """The other tags of the call stay."""
    fill(path, [tagged(1.0, tenant="acme", seats=3), tagged(2.0)])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE tags SET {change}")
    with closing(HistoryReader(str(path))) as reader:
        numbers = reader.columns(*FOREVER).number.tolist()
        assert (reader.tags(numbers), reader.damaged) == ({numbers[0]: left}, {numbers[0]})


def test_the_values_of_each_tag_divide_the_calls(path: Path) -> None:
    """Of those between the first and the last call, by tags with neither too few values nor too many."""
    rng, given = random.Random(2), list[dict[str, TagValue]]()
    for number in range(200):
        mine: dict[str, TagValue] = {"id": f"r{number}", "tenant": rng.choice("abc"), "only": 1}
        mine |= {"half": rng.random() < 0.5} if number % 3 else {}
        given.append(mine | {"old": number} if number < 2 else mine)
    fill(path, [tagged(float(number + 1), **mine) for number, mine in enumerate(given)])
    with closing(HistoryReader(str(path))) as reader:
        numbers = reader.columns(50.0, 180.0).number
        found = {each.name: each for each in reader.tag_codes(numbers, 2, 50)}
        assert [*reader.tag_codes(numbers[:0], 2, 50)] == []
    assert sorted(found) == ["half", "tenant"]
    for name, of in found.items():
        seen = [None if code < 0 else of.values[code] for code in of.code.tolist()]
        expected = [mine.get(name) for mine in given[49:179]]
        assert seen == [None if value is None else tag_text(value) for value in expected]
