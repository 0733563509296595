"""Packed blocks of a history: which are packed and when, and that a changed row is read as it is now."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from ragtrace.core.types import Evaluation, Score
from ragtrace.history.history import HistoryRecorder
from ragtrace.history.packed_blocks import pack
from ragtrace.history.reading import HistoryReader
from ragtrace.history.row_reading import BLOCK
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.system.faults import faults
from tests.support.history import GIB, SOURCE, Simulated, made

FOREVER = (0.0, 2e9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def writer(path: Path) -> Iterator[HistoryWriter]:
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as opened:
        yield opened


def write(writer: HistoryWriter, path: Path, blocks: int, calls: int = 3) -> list[QueuedCall]:
    """Store *calls* calls at the beginning of each of *blocks* blocks."""
    rng, times = random.Random(blocks), count(1_000)
    written: list[QueuedCall] = []
    for block in range(blocks):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'calls'", (block * BLOCK,))
        written += [
            made(float(next(times)), Simulated(0.5, 0.5, f"w{block % 2}", "abc"[block % 3]), rng) for _ in range(calls)
        ]
        assert writer.write(written[-calls:]) == 0
    return written


def packed(path: Path) -> list[int]:
    """The packed blocks of the history, by their place."""
    with closing(sqlite3.connect(path)) as database:
        return [first // BLOCK for (first,) in database.execute("SELECT first FROM blocks WHERE format ORDER BY first")]


def pack_all(writer: HistoryWriter) -> None:
    while writer.pack_block():
        pass


def read(path: Path, **chosen: str) -> tuple[list[tuple[int, int, float]], list[tuple[int, str, int]]]:
    """Number, series and score of each score, and the counts of results without a score."""
    with closing(HistoryReader(str(path))) as reader:
        of = {"model": chosen.get("model"), "release": chosen.get("release")}
        counter = reader.unscored_counter(*FOREVER, chosen.get("workflow"), **of)
        columns = reader.columns(*FOREVER, chosen.get("workflow"), **of, unscored=counter)
    numbers = columns.number[columns.scored_call].tolist()
    return [*zip(numbers, columns.scored_series.tolist(), columns.score.tolist(), strict=True)], counter.counts()


def without_blocks(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM blocks")


def test_the_newest_two_blocks_are_not_packed_and_others_newest_first(path: Path, writer: HistoryWriter) -> None:
    """New calls come into the last block, and scores of other processes into that before it."""
    write(writer, path, 5)
    seen = []
    while writer.pack_block():
        seen.append(packed(path))
    assert seen == [[2], [1, 2], [0, 1, 2]]


def test_a_short_history_has_no_packed_block(path: Path, writer: HistoryWriter) -> None:
    """Nor has an empty one."""
    assert not writer.pack_block()
    write(writer, path, 2)
    assert not writer.pack_block()


def test_numbers_without_calls_are_not_packed(path: Path, writer: HistoryWriter) -> None:
    """As after calls were deleted."""
    write(writer, path, 5)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM calls WHERE number / ? = 1", (BLOCK,))
    pack_all(writer)
    assert packed(path) == [0, 2]


@pytest.mark.parametrize(
    "chosen", [{}, {"workflow": "w1"}, {"model": "b"}, {"release": "1.4.0"}, {"release": "none"}, {"workflow": "none"}]
)
def test_packed_blocks_say_what_the_rows_say(path: Path, writer: HistoryWriter, chosen: dict[str, str]) -> None:
    """For every choice of calls, the scores and the counts of results without a score are the same."""
    write(writer, path, 6)
    pack_all(writer)
    found = read(path, **chosen)
    assert packed(path) == [0, 1, 2, 3]
    without_blocks(path)
    assert read(path, **chosen) == found
    assert bool(found[0]) == bool(found[1]) == ("none" not in chosen.values())


@pytest.mark.parametrize("damaged", ["names = '{'", "names = '{}'", "body = x'00'", "body = substr(body, 1, 300)"])
def test_a_damaged_block_is_read_from_its_rows(path: Path, writer: HistoryWriter, damaged: str) -> None:
    """Scores, counts, names and worst scores are those of the rows, whichever part of the packed block is damaged."""
    write(writer, path, 6, calls=40)
    pack_all(writer)

    def found() -> tuple[object, ...]:
        with closing(HistoryReader(str(path))) as reader:
            numbers, badness = reader.worst_scores({1: True}, *FOREVER, None, model=None, release=None)
            return read(path), reader.workflows_and_models(), numbers.tolist(), badness.tolist()

    expected = found()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE blocks SET {damaged} WHERE first < ?", (2 * BLOCK,))
    assert found() == expected


def test_a_block_with_a_damaged_row_is_not_packed(path: Path, writer: HistoryWriter) -> None:
    """Its other rows are read, and the reader knows which call has the damaged one; older blocks are packed."""
    write(writer, path, 6)
    expected = read(path)
    with closing(sqlite3.connect(path)) as database, database:
        series, number = database.execute(
            "SELECT series, number FROM results WHERE number > ?", (2 * BLOCK,)
        ).fetchone()
        where = "number = ? AND series = ?"
        database.execute(f"UPDATE results SET score = 'damaged' WHERE {where}", (number, series))
    for _ in range(8):
        writer.pack_block()
    assert packed(path) == [0, 1, 3]
    scores, unscored = read(path)
    assert scores == [each for each in expected[0] if each[:2] != (number, series)]
    assert unscored == expected[1]
    with closing(HistoryReader(str(path))) as reader:
        reader.columns(*FOREVER)
        assert reader.damaged == {number}


@pytest.mark.parametrize("better", [{1: True}, {1: False, 2: True}, {2: True, 4: True, 99: False}])
@pytest.mark.parametrize("chosen", [{}, {"workflow": "w1", "model": "b"}, {"release": "none"}])
def test_the_worst_score_of_each_call_is_that_of_the_rows(
    path: Path, writer: HistoryWriter, chosen: dict[str, str], better: dict[int, bool]
) -> None:
    """The highest, where a high score is bad; from packed blocks, and where they are missing."""
    write(writer, path, 6, calls=40)
    pack_all(writer)
    of = {"model": chosen.get("model"), "release": chosen.get("release")}
    expected: dict[int, float] = {}
    for number, series, score in read(path, **chosen)[0]:
        if series in better:
            badness = -score if better[series] else score
            expected[number] = max(badness, expected.get(number, badness))
    for _ in range(2):
        with closing(HistoryReader(str(path))) as reader:
            numbers, badness_of = reader.worst_scores(better, *FOREVER, chosen.get("workflow"), **of)
        assert [*zip(numbers.tolist(), badness_of.tolist(), strict=True)] == sorted(expected.items())
        without_blocks(path)
    assert bool(expected) == ("none" not in chosen.values())


def test_bounds_of_row_numbers_hold_the_calls_of_a_time(path: Path, writer: HistoryWriter) -> None:
    """They leave out packed blocks of other times, and a history without calls has none."""
    with closing(HistoryReader(str(path))) as reader:
        assert reader.number_bounds(0.0, 1e9) is None
    write(writer, path, 5)
    pack_all(writer)
    with closing(HistoryReader(str(path))) as reader:
        everything = reader.columns(0.0, 1e9)
        newest = int(everything.number[-1])
        assert reader.number_bounds(0.0, 1e9) == (0, newest)
        for at, number in zip(everything.at.tolist(), everything.number.tolist(), strict=True):
            bounds = reader.number_bounds(at, at + 0.5)
            assert bounds is not None
            assert bounds[0] <= number <= bounds[1] <= newest
        assert reader.number_bounds(float(everything.at[3]), 1e9) == (BLOCK, newest)


def test_results_without_a_score_are_counted_of_a_part_of_the_calls(path: Path, writer: HistoryWriter) -> None:
    """While the columns of all are read, from packed blocks and from rows."""
    write(writer, path, 6)
    pack_all(writer)
    for part in ((1_004.0, 1_017.0), (1_010.0, 1_011.0), (0.0, 1_001.0)):
        with closing(HistoryReader(str(path))) as reader:
            of_part, alone = reader.unscored_counter(*part), reader.unscored_counter(*part)
            assert len(reader.columns(*FOREVER, unscored=of_part)) == 18
            assert len(reader.columns(*part, unscored=alone)) == part[1] - max(part[0], 1_000.0)
        assert of_part.counts() == alone.counts() != []


def test_a_later_score_is_read_and_its_block_packed_again(path: Path, writer: HistoryWriter) -> None:
    """A judge may score a stored call at any time."""
    write(writer, path, 4)
    pack_all(writer)
    before, _ = read(path)
    late = Evaluation("late", "1", "llm_judge", {"relevance": Score(0.25, "relevance", "1")}, 1.0, 0.1)
    assert writer.add_evaluation(2, late)
    assert packed(path) == [1]
    after, _ = read(path)
    assert [row for row in after if row not in before] == [(2, max(series for _, series, _ in after), 0.25)]
    pack_all(writer)
    assert packed(path) == [0, 1]
    assert read(path)[0] == after


def test_scores_of_another_process_for_a_stored_call_are_read(path: Path, writer: HistoryWriter) -> None:
    """The call has the same identity, and its decision may come later, too."""
    written = write(writer, path, 4)
    pack_all(writer)
    other = Evaluation("other", "1", "llm_judge", {"relevance": Score(0.75, "relevance", "1")}, 1.0, 0.1)
    assert writer.write([QueuedCall(written[0].call, (other,), "sampled", 5_000.0)]) == 0
    assert packed(path) == [1]
    assert 0.75 in [score for number, _, score in read(path)[0] if number == 1]


def test_pruning_deletes_the_packed_calls(path: Path, writer: HistoryWriter) -> None:
    """The calls that are left of a block are read, and packed again."""
    write(writer, path, 4)
    pack_all(writer)
    writer.prune(1_002.0)
    assert packed(path) == [1]
    assert {number for number, _, _ in read(path)[0]}.isdisjoint({1, 2})
    pack_all(writer)
    assert packed(path) == [0, 1]
    assert {number for number, _, _ in read(path)[0] if number < BLOCK} == {3}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE calls SET workflow = 'other' WHERE number = 2",
        "DELETE FROM calls WHERE number = 2",
        "UPDATE results SET score = 0.125 WHERE number = 2",
        "DELETE FROM results WHERE number = 2",
        "UPDATE evaluations SET probability = 0.5 WHERE number = 2",
        "DELETE FROM evaluations WHERE number = 2",
    ],
)
def test_a_change_by_any_program_deletes_the_packed_block(path: Path, writer: HistoryWriter, change: str) -> None:
    """Triggers of the file do it."""
    write(writer, path, 4)
    pack_all(writer)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(change)
    assert packed(path) == [1]


def test_blocks_of_another_format_are_not_read(path: Path, writer: HistoryWriter) -> None:
    """As of a later release: the rows are read, and the block is packed again."""
    write(writer, path, 4)
    pack_all(writer)
    found = read(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE blocks SET format = 2, body = 'other'")
    assert read(path) == found
    assert writer.pack_block()


def test_a_history_without_the_table_is_read(path: Path, writer: HistoryWriter) -> None:
    """As an earlier release wrote it."""
    write(writer, path, 4)
    found = read(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE blocks")
    with closing(sqlite3.connect(path)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
    assert read(path) == found


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_block_that_changes_while_it_is_packed_is_not_packed(path: Path, writer: HistoryWriter, moment: int) -> None:
    """At whatever step: no score is missing in what is read then, and the block is packed later."""
    write(writer, path, 3)
    late = Evaluation("late", "1", "llm_judge", {"relevance": Score(0.25, "relevance", "1")}, 1.0, 0.1)
    steps = count()

    @contextmanager
    def use() -> Iterator[sqlite3.Connection]:
        if next(steps) == moment:
            assert writer.add_evaluation(2, late)
        with closing(sqlite3.connect(path)) as database, database:
            yield database

    assert not pack(use, 0, lambda: True)
    assert next(steps) == 6
    assert 0.25 in [score for _, _, score in read(path)[0]]
    assert writer.pack_block()
    assert 0.25 in [score for _, _, score in read(path)[0]]


def test_of_two_processes_that_pack_a_block_the_later_one_does(path: Path, writer: HistoryWriter) -> None:
    """Its row takes the place of the other's, which finds that when it has read the rows."""
    write(writer, path, 3)
    steps, found = count(), list[bool]()

    @contextmanager
    def use() -> Iterator[sqlite3.Connection]:
        if next(steps) == 3:
            found.append(writer.pack_block())
        with closing(sqlite3.connect(path)) as database, database:
            yield database

    found.append(pack(use, 0, lambda: True))
    assert found == [True, False]
    assert packed(path) == [0]
    expected = read(path)
    without_blocks(path)
    assert read(path) == expected


@pytest.mark.parametrize(("takes", "times"), [(0.0, (100.0, 100.9, 101.0, 102.0)), (0.1, (100.0, 102.0, 102.5, 105.0))])
def test_the_recorder_packs_a_block_at_a_time(
    path: Path, writer: HistoryWriter, takes: float, times: tuple[float, ...]
) -> None:
    """The next one follows a second later, or so much later that packing takes a twentieth of the time."""
    write(writer, path, 5)
    now, rng, seen = [0.0], random.Random(9), list[list[int]]()

    def passed() -> float:
        now[0] += takes
        return now[0]

    recorder = HistoryRecorder(str(path), SOURCE, passed=passed, clock=lambda: 2_000.0)
    for now[0] in times:
        assert not recorder.send([made(2_000.0, Simulated(), rng)], 1.0)
        seen.append(packed(path))
    recorder.close(1.0)
    assert seen == [[2], [2], [1, 2], [0, 1, 2]]


@pytest.mark.parametrize("asked", range(4))
def test_packing_stops_for_a_flush_or_a_shutdown(path: Path, writer: HistoryWriter, asked: int) -> None:
    """At any step; what is read stays the same, and the block is packed another time."""
    write(writer, path, 3)
    before, questions = read(path), count()
    assert not writer.pack_block(lambda: next(questions) < asked)
    assert packed(path) == []
    assert read(path) == before
    assert writer.pack_block()


def test_a_recorder_packs_nothing_while_a_flush_or_a_close_waits(path: Path, writer: HistoryWriter) -> None:
    """The waiting time is for what is still to be stored."""
    write(writer, path, 4)
    recorder = HistoryRecorder(str(path), SOURCE, clock=lambda: 2_000.0)
    assert recorder.flush(1.0)
    recorder.close(1.0)
    recorder.send([made(2_000.0, Simulated(), random.Random(9))], 1.0)
    assert packed(path) == []
    recorder.close(1.0)


def test_a_failed_packing_is_counted_and_loses_nothing(path: Path, writer: HistoryWriter) -> None:
    """The calls of the batch are stored before."""
    write(writer, path, 4)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TRIGGER broken BEFORE INSERT ON blocks BEGIN SELECT RAISE(ABORT, 'broken'); END")
    faults.clear()
    recorder = HistoryRecorder(str(path), SOURCE, clock=lambda: 2_000.0)
    assert not recorder.send([made(2_000.0, Simulated(), random.Random(9))], 1.0)
    recorder.close(1.0)
    assert faults.counts() == {"history: packing": 1}
    assert len(read(path)[0]) > 0
