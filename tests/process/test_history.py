"""The local history: what was offered is in the file, once and whole, and the file stays within its bounds."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall
from ragtrace.history.history import BATCH_SECONDS, HistoryRecorder
from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import HistoryWriter
from ragtrace.runtime import current
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import SQLiteFileError
from ragtrace.testing import FakeClock, FakeJudge
from tests.support.history import BAD, GIB, SOURCE, Simulated, call_of, fill, made
from tests.support.scored import screen
from tests.support.watched import GOOD, WAIT_S, ask, watch

ROOT = Path(__file__).parents[2]
DAY = 86_400.0
LOST_AT_MOST = 1.0
"""Seconds before a kill in which offered calls may be lost."""


@dataclass
class Decided:
    """A decision about the judge."""

    reason: str


@pytest.fixture
def path(tmp_path: Path) -> str:
    faults.clear()
    return str(tmp_path / "history.db")


@pytest.fixture
def rng() -> random.Random:
    return random.Random(5)


@pytest.fixture
def histories() -> Iterator[list[HistoryRecorder]]:
    """Histories to be closed after the test."""
    opened: list[HistoryRecorder] = []
    yield opened
    for history in opened:
        history.close(5.0)


def rows(path: str, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def count(path: str, table: str = "calls") -> int:
    return int(rows(path, f"SELECT count(*) FROM {table}")[0][0])


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_a_call_is_kept_with_everything_that_is_known_of_it(path: str, rng: random.Random) -> None:
    """Texts, chunks, workflow, model, trace and span, time, scores, labels, reasons, evidence, tokens and cost."""
    history = HistoryRecorder(path, SOURCE, clock=FakeClock(1000.0))
    offered = made(0.0, Simulated(bad=1.0, probability=1.0), rng)
    history(offered.call, offered.evaluations, Decided("sampled"))
    assert history.close(5.0)
    with closing(HistoryReader(path)) as reader:
        columns = reader.columns(0, 2000)
        (texts,) = reader.texts(columns.number.tolist()).values()
    assert (columns.at.tolist(), columns.workflows, columns.models) == ([1000.0], ["support"], ["small-1"])
    assert (columns.decisions, list(columns.sources.values())) == (["sampled"], [SOURCE])
    assert sorted(columns.evaluators.values()) == ["judge@2", "screen@1"]
    assert offered.call.span is not None
    assert texts.trace_id == f"{offered.call.span.trace_id:032x}"
    assert (texts.body["answer"], len(texts.body["contexts"])) == (BAD, 3)
    judge = next(number for number, name in columns.evaluators.items() if name == "judge@2")
    assert [claim["unsupported"] for claim in texts.evidence[judge]["claims"]] == [[[34, 41]], [[63, 84]]]
    assert (columns.input_tokens.sum(), columns.probability.tolist()) == (900, [1.0, 1.0])


def test_what_is_unscored_is_kept_with_its_reason(path: str, rng: random.Random) -> None:
    """Never as a number."""
    fill(Path(path), [made(0.0, Simulated(probability=1.0), rng)])
    assert rows(path, "SELECT count(*), max(score) FROM results WHERE reason = 'no_citations'") == [(2, None)]


def test_without_texts_only_what_no_text_tells_is_kept(path: str, rng: random.Random) -> None:
    """Offsets and numbers, but no word of query, answer, chunks or evidence."""
    fill(Path(path), [made(0.0, Simulated(bad=1.0, probability=1.0), rng)], texts=False)
    kept = json.dumps(rows(path, "SELECT body FROM bodies UNION ALL SELECT body FROM evidence"))
    assert not [word for word in ("shoes", "voucher", "delivery", "days") if word in kept]
    assert "start" in kept


def test_a_call_scored_in_two_processes_is_one_call(path: str, rng: random.Random) -> None:
    """One takes up what another has begun: the evaluations come together, and a repeat changes nothing."""
    offered = made(0.0, Simulated(probability=1.0), rng)
    for evaluations in (offered.evaluations[:1], offered.evaluations[1:], offered.evaluations[1:]):
        history = HistoryRecorder(path, SOURCE)
        history(offered.call, evaluations, None)
        assert history.close(5.0)
    assert (count(path), count(path, "evaluations"), count(path, "results")) == (1, 2, 6)


def test_calls_without_a_span_are_calls_each(path: str) -> None:
    """There is nothing to tell them apart by, so none is taken for another."""
    history = HistoryRecorder(path, SOURCE)
    for _ in range(3):
        history(RagCall("q", None, "a"), (), None)
    assert history.close(5.0)
    assert count(path) == 3


def test_names_and_texts_that_no_encoding_can_hold_are_kept(path: str, rng: random.Random) -> None:
    """Lone surrogates, NUL, and any length."""
    history = HistoryRecorder(path, SOURCE)
    history(call_of(rng, "a\ud800b\0" + "x" * 100_000, workflow="w\udfff", model="m\0"), (), None)
    assert history.close(5.0)
    assert rows(path, "SELECT workflow, model FROM calls") == [("w\ufffd", "m\ufffd")]


def test_a_call_that_cannot_be_put_into_rows_costs_no_other(path: str, rng: random.Random) -> None:
    """It is counted as lost, the rest of its batch is kept."""
    history = HistoryRecorder(path, SOURCE)
    good = made(0.0, Simulated(), rng)
    history(good.call, good.evaluations, None)
    history(RagCall("q", None, "a", error=object()), (), None)  # type: ignore[arg-type]
    assert not history.flush(5.0)
    assert (count(path), history.lost) == (1, {"unreadable": 1})
    assert not history.close(0.0) or history.lost


# --- its bounds ------------------------------------------------------------------------------------------------------


def test_old_calls_are_forgotten(path: str, rng: random.Random) -> None:
    """At the age given, with everything of theirs."""
    clock = FakeClock(100 * DAY)
    fill(Path(path), [made(days * DAY, Simulated(), rng) for days in (69, 71, 99.5)])
    history = HistoryRecorder(path, SOURCE, days=30, clock=clock)
    history(call_of(rng), (), None)
    assert history.close(5.0)
    assert [at / DAY for (at,) in rows(path, "SELECT at FROM calls ORDER BY at")] == [71, 99.5, 100]
    numbers = {number for (number,) in rows(path, "SELECT number FROM calls")}
    for table in ("results", "evaluations", "bodies"):
        assert {number for (number,) in rows(path, f"SELECT number FROM {table}")} <= numbers


@pytest.mark.parametrize("when", ["before it starts", "while it runs"])
def test_a_clock_that_jumps_forward_deletes_nothing_for_a_day(path: str, rng: random.Random, when: str) -> None:
    """It may be wrong for a moment; one that stays there is believed."""
    clock, passed = FakeClock(100 * DAY), FakeClock()
    fill(Path(path), [made(days * DAY, Simulated(), rng) for days in (80, 99.5)])
    history = HistoryRecorder(path, SOURCE, days=30, clock=clock, passed=passed)

    def keep() -> list[float]:
        history(call_of(rng), (), None)
        assert history.flush(5.0)
        return [at / DAY for (at,) in rows(path, "SELECT at FROM calls ORDER BY at")]

    seen = [80, 99.5]
    if when == "while it runs":
        assert keep() == (seen := [80, 99.5, 100])
    clock.advance(365 * DAY)
    assert keep() == [*seen, 465]
    for each in (clock, passed):
        each.advance(0.9 * DAY)
    assert keep() == [*seen, 465, 465.9]
    for each in (clock, passed):
        each.advance(0.2 * DAY)
    history(call_of(rng), (), None)
    assert history.close(5.0)
    assert [round(at / DAY, 1) for (at,) in rows(path, "SELECT at FROM calls ORDER BY at")] == [465, 465.9, 466.1]


def test_a_full_file_forgets_the_oldest(path: str, rng: random.Random) -> None:
    """Its size stays at what was given, and the calls of the last time are there."""
    history = HistoryRecorder(path, SOURCE, most_bytes=2**20)
    for number in range(600):
        history(call_of(rng, "x" * 4000, workflow=str(number)), (), None)
        if number % 100 == 99:
            assert history.flush(10.0)
    assert history.close(5.0)
    kept = [int(name) for (name,) in rows(path, "SELECT workflow FROM calls ORDER BY number")]
    assert kept[-1] == 599
    assert 0 < len(kept) < 300
    assert os.path.getsize(path) <= 1.7 * 2**20
    assert faults.counts()["history: pruned for its size"] > 0


def test_a_burst_that_cannot_be_written_is_counted(
    path: str, rng: random.Random, histories: list[HistoryRecorder]
) -> None:
    """While somebody else has the file locked the queue takes what it can, and says how many it could not."""
    history = HistoryRecorder(path, SOURCE)
    histories.append(history)
    history.prepare("store=")
    call = call_of(rng)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(10_600):
            history(call, (), None)
        other.execute("COMMIT")
    assert 0 < history.lost["queue_full"] <= 600
    assert not history.flush(0.0) or history.lost


@pytest.mark.timing
def test_offering_never_waits(path: str, rng: random.Random, histories: list[HistoryRecorder]) -> None:
    """Not even for a file that another process has locked."""
    history = HistoryRecorder(path, SOURCE)
    histories.append(history)
    history.prepare("store=")
    call = call_of(rng)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        locked = [_seconds_to_offer(history, call) for _ in range(200)]
        other.execute("COMMIT")
    assert history.flush(WAIT_S)
    free = [_seconds_to_offer(history, call) for _ in range(200)]
    assert median(locked) < 10 * median(free)


def _seconds_to_offer(history: HistoryRecorder, call: RagCall) -> float:
    began = time.perf_counter()
    history(call, (), None)
    return time.perf_counter() - began


# --- its end ---------------------------------------------------------------------------------------------------------


def test_what_is_offered_after_the_end_is_counted(path: str, rng: random.Random) -> None:
    """It is lost, and nothing raises."""
    history = HistoryRecorder(path, SOURCE)
    assert history.close(5.0)
    history(call_of(rng), (), None)
    assert history.lost == {"closed": 1}


def test_a_file_that_fails_later_costs_the_calls_and_nothing_else(path: str, rng: random.Random) -> None:
    """They are counted as not written."""
    history = HistoryRecorder(path, SOURCE)
    Path(path).write_bytes(b"no database at all" * 1000)
    history(call_of(rng), (), None)
    assert not history.close(20.0)
    assert history.lost.total() == 1
    assert faults.counts()["history: writing"] > 0


@pytest.mark.parametrize("what", ["a directory", "a foreign database", "no database"])
def test_a_path_that_cannot_be_used_is_refused_at_once(tmp_path: Path, what: str) -> None:
    """With what was wrong and where the path came from, and the file is left as it is."""
    path = tmp_path / "other.db"
    if what == "a directory":
        path.mkdir()
    elif what == "no database":
        path.write_bytes(b"something else" * 100)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE theirs (x)")
    with pytest.raises(SettingsError, match="RAGTRACE_STORE"):
        HistoryRecorder(str(path), SOURCE).prepare("RAGTRACE_STORE")


def test_the_file_is_its_owners_alone(path: str) -> None:
    """It holds what users asked."""
    HistoryRecorder(path, SOURCE).prepare("store=")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_reading_a_file_that_is_no_history_says_so(tmp_path: Path) -> None:
    """And does not make one."""
    with pytest.raises(SQLiteFileError, match="no history"):
        HistoryReader(str(tmp_path / "missing.db"))
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_its_own_calls_only(path: str, rng: random.Random) -> None:
    """What waits at the fork is written by the parent, once; the child starts empty and writes its own."""
    history = HistoryRecorder(path, SOURCE)
    history(call_of(rng, workflow="parent"), (), None)
    child = os.fork()
    if child == 0:
        history = HistoryRecorder(path, SOURCE)
        history(call_of(random.Random(9), workflow="child"), (), None)
        os._exit(0 if history.close(5.0) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert history.close(5.0)
    assert sorted(name for (name,) in rows(path, "SELECT workflow FROM calls")) == ["child", "parent"]


# --- several processes, and kills ------------------------------------------------------------------------------------


def start(path: str, name: str, calls: int, pause: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.history_writer", path, name, str(calls), str(pause)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def whole(path: str) -> set[str]:
    """Workflows of the calls, after a check that every call has all that belongs to it."""
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, "SELECT count(*) FROM calls WHERE number NOT IN (SELECT number FROM bodies)") == [(0,)]
    for table in ("results", "evaluations", "bodies", "evidence"):
        assert rows(path, f"SELECT count(*) FROM {table} WHERE number NOT IN (SELECT number FROM calls)") == [(0,)]
    per_call = rows(path, "SELECT DISTINCT count(*) FROM results GROUP BY number")
    assert per_call in ([(6,)], [])
    return {name for (name,) in rows(path, "SELECT workflow FROM calls")}


def test_four_writers_lose_nothing(path: str) -> None:
    """Each call of each process is there, once, and nothing is torn."""
    writers = [start(path, f"p{number}", 300) for number in range(4)]
    for writer in writers:
        writer.communicate(timeout=400)
        assert writer.returncode == 0
    assert whole(path) == {f"p{process} {number}" for process in range(4) for number in range(300)}
    assert count(path) == 1200


def test_a_killed_process_loses_less_than_the_last_second(path: str) -> None:
    """At whatever moment: what was offered earlier is there, whole, beside a writer that goes on."""
    survivor, kills = start(path, "survivor", 400, 0.02), random.Random(3)
    for kill in range(5):
        victim = start(path, f"v{kill}", 100_000, 0.004)
        assert victim.stdout is not None
        lines = [victim.stdout.readline()]  # it has begun
        timer = threading.Timer(BATCH_SECONDS + kills.uniform(0.3, 1.3), victim.send_signal, [signal.SIGKILL])
        timer.start()
        lines += victim.stdout.readlines()
        killed = time.time()
        victim.wait(10)
        victim.stdout.close()
        offered = [(int(line.split()[0]), float(line.split()[1])) for line in lines if line.endswith("\n")]
        due = {f"v{kill} {number}" for number, at in offered if at < killed - LOST_AT_MOST}
        assert due <= whole(path)
        assert len(offered) > 10
    survivor.communicate(timeout=240)
    assert survivor.returncode == 0
    assert {f"survivor {number}" for number in range(400)} <= whole(path)


def test_many_may_make_the_file_at_once(tmp_path: Path) -> None:
    """None of them finds it locked, or takes it for another program's."""
    failures: list[str] = []
    together = threading.Barrier(8)

    def make(path: str) -> None:
        together.wait(10)
        try:
            HistoryRecorder(path, SOURCE).prepare("store=")
        except SettingsError as error:
            failures.append(str(error))

    for number in range(10):
        threads = [threading.Thread(target=make, args=(str(tmp_path / f"{number}.db"),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert failures == []


def test_a_process_killed_while_it_makes_the_file_leaves_a_file_to_go_on_with(path: str) -> None:
    """Or none: whoever comes next keeps its calls there."""
    kills = random.Random(11)
    for kill in range(6):
        victim = start(path, f"v{kill}", 100_000, 0.001)
        timer = threading.Timer(kills.uniform(0.2, 1.0), victim.send_signal, [signal.SIGKILL])
        timer.start()
        victim.communicate(timeout=240)
        HistoryRecorder(path, SOURCE).prepare("store=")
        whole(path)
    heir = start(path, "heir", 10)
    heir.communicate(timeout=240)
    assert heir.returncode == 0
    assert {f"heir {number}" for number in range(10)} <= whole(path)


def test_a_batch_is_all_there_or_not_at_all(path: str, rng: random.Random) -> None:
    """A failure half-way through a batch leaves nothing of it."""
    writer = HistoryWriter(path, SOURCE, most_bytes=GIB, texts=True)
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON calls WHEN NEW.workflow = 'last'"
                      " BEGIN SELECT RAISE(FAIL, 'disk full'); END")  # fmt: skip
    batch = [made(0.0, Simulated(workflow=name), rng) for name in ("first", "second", "last")]
    with pytest.raises(sqlite3.Error):
        writer.write(batch)
    assert count(path) == 0
    assert writer.write(batch[:2]) == 0
    writer.close()
    assert len(whole_names(path)) == 2


def whole_names(path: str) -> set[str]:
    return {name for (name,) in rows(path, "SELECT workflow FROM calls")}


# --- in an application -----------------------------------------------------------------------------------------------


def test_configure_keeps_every_call(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the release that the resource names, and what was to be scored by whom."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=9.1")
    judge = FakeJudge(GOOD, name="judge")
    watch(service="bot", store=path, screen=screen(), judge=judge, sampling=ragtrace.Sampling(rate=1.0))
    for number in range(3):
        ask(f"question {number}?")
    assert ragtrace.flush()
    with closing(HistoryReader(path)) as reader:
        columns = reader.columns(0, time.time() + 1)
        texts = [each.body["query"] for each in reader.texts(columns.number.tolist()).values()]
    (source,) = columns.sources.values()
    assert (source.service, source.release, source.screen, source.judge) == ("bot", "9.1", "screen@1", "judge@1")
    assert "faithfulness" in source.judged
    assert sorted(texts) == ["question 0?", "question 1?", "question 2?"]
    assert columns.workflows == ["guide"]
    assert columns.decisions == ["sampled"]


def test_what_is_redacted_is_not_in_the_file(path: str) -> None:
    """Nowhere in its bytes."""
    watch(store=path, redact=ragtrace.Redact(patterns=["secret"]))
    ask("the secret question?")
    assert ragtrace.shutdown()
    assert b"secret" not in Path(path).read_bytes()
    assert count(path) == 1


def test_no_content_means_no_texts_in_the_file_either(path: str) -> None:
    """Scores and offsets only."""
    watch(store=path, capture_content="NO_CONTENT")
    ask("a question of mine?")
    assert ragtrace.shutdown()
    raw = Path(path).read_bytes()
    assert not [word for word in (b"question of mine", b"Paris", b"Mars") if word in raw]
    assert count(path, "results") > 0


def test_a_call_that_was_not_drawn_is_kept_with_the_reason(path: str) -> None:
    """The estimates need to know of it."""
    judge = FakeJudge(GOOD, name="judge")
    watch(store=path, screen=screen(), judge=judge, sampling=ragtrace.Sampling(rate=0.0, suspicious_rate=0.0))
    ask("where?")
    assert ragtrace.flush()
    assert rows(path, "SELECT decision FROM calls") == [("not_sampled",)]


def test_a_file_that_fails_costs_the_application_nothing(path: str) -> None:
    """Its calls are answered and scored; what was not kept is counted."""
    captured = watch(store=path)
    for name in (path, f"{path}-wal", f"{path}-shm"):
        Path(name).unlink(missing_ok=True)
    Path(path).write_bytes(b"no database any more" * 1000)
    assert ask("where?")
    ragtrace.shutdown(timeout=8.0)
    assert len(captured.roots()) == 1
    assert ragtrace.stats().faults["history: write_failed"] == 1


def test_a_path_that_cannot_be_used_stops_configure(tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(SettingsError, match="store="):
        ragtrace.configure(store=tmp_path / "no" / "such" / "directory.db")
    assert current() is None


def test_the_environment_names_the_file_and_its_bounds(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RAGTRACE_STORE, RAGTRACE_STORE_DAYS, RAGTRACE_STORE_BYTES."""
    monkeypatch.setenv("RAGTRACE_STORE", path)
    monkeypatch.setenv("RAGTRACE_STORE_DAYS", "0.5")
    monkeypatch.setenv("RAGTRACE_STORE_BYTES", "1000000")
    watch()
    ask("where?")
    assert ragtrace.flush()
    assert count(path) == 1
    monkeypatch.setenv("RAGTRACE_STORE_DAYS", "0")
    with pytest.raises(SettingsError, match="RAGTRACE_STORE_DAYS"):
        ragtrace.configure()
