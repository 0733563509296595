"""Pages and commands on a history of which single rows are damaged."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ragtrace.cli import main
from ragtrace.history.reading import HistoryReader
from ragtrace.labels.label_store import Label, LabelStore
from ragtrace.report.analysis import build_report
from ragtrace.report.model import Period
from ragtrace.system.terminal import FAILURE, OK
from tests.support.history import Simulated, fill, made
from tests.unit.web.test_labelling import client

PAGES: Final = (
    "/", "/changes", "/calls", "/calls?sort=worst", "/calls?text=question", "/calls?status=failed", "/calls/3",
    "/calls/4", "/cases?all=yes", "/label", "/label/disagreements", "/label/calibration", "/health",
)  # fmt: skip
SHAPES: Final = {"cut": "substr({0}, 1, 40)", "no JSON": "'\x01\x02'", "no object": "'[1, 2]'", "empty": "''"}


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history of 40 bad calls of the last hour."""
    path, rng = tmp_path / "history.db", random.Random(3)
    calls = [made(time.time() - 3600 + 60 * at, Simulated(bad=1.0, probability=1.0), rng) for at in range(40)]
    fill(path, [replace(each, call=replace(each.call, query=f"Question {at}?")) for at, each in enumerate(calls)])
    LabelStore(str(path)).close()  # which creates its tables
    return path


def damage(path: Path, table: str, column: str, shape: str, where: str = "1") -> None:
    """Replace *column* of some rows by a damaged text."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE {table} SET {column} = {SHAPES[shape].format(column)} WHERE {where}")


@pytest.mark.parametrize("table", ["bodies", "evidence"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_page_fails_because_of_one_damaged_call(history: Path, table: str, shape: str) -> None:
    """All pages are shown, whichever part of a call is damaged and however."""
    damage(history, table, "body", shape, "number = 3")
    browser = client(history)
    assert {path: browser.get(path).status_code for path in PAGES} == dict.fromkeys(PAGES, 200)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_damaged_call_is_left_out_and_counted(history: Path, shape: str) -> None:
    """Lists, queue and report say how many calls are left out, and call no damaged text one that was not kept."""
    damage(history, "bodies", "body", shape, "number IN (3, 7)")
    said = "Parts of 2 stored calls are damaged: they are left out."
    pages = {path: client(history).get(path).text for path in ("/calls?after=n20", "/calls?sort=worst", "/changes")}
    assert "Question 2?" not in pages["/calls?after=n20"]
    assert "Question 3?" in pages["/calls?after=n20"]
    assert said in pages["/calls?after=n20"]
    assert said in pages["/changes"]
    assert "The texts of this call were not kept" not in pages["/changes"]
    assert "Question 2?" not in client(history).get("/label?source=all&after=n20").text
    assert said in client(history).get("/label?source=all&after=n20").text
    assert "is damaged, and is not shown" in client(history).get("/calls/3").text
    assert "NO_CONTENT" not in client(history).get("/calls/3").text


def test_a_report_counts_damaged_calls_and_keeps_their_scores(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ragtrace report` ends well, says what was left out, and rates the same number of calls."""
    now = time.time()
    period = Period(now - 86_400, now + 1)
    before = build_report(str(history), period)
    damage(history, "bodies", "body", "cut", "number = 3")
    after = build_report(str(history), period)
    assert after.headline is not None
    assert before.headline is not None
    assert after.headline.overall == before.headline.overall
    assert [note for note in after.notes if note not in before.notes] == [
        "Parts of 1 stored call are damaged: they are left out."
    ]
    assert main(["report", str(history)]) == OK
    assert "Parts of 1 stored call are damaged" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_damaged_row_of_many_calls_is_an_error_in_words(
    history: Path, capsys: pytest.CaptureFixture[str], shape: str
) -> None:
    """The origin of calls cannot be left out: the pages and the report say that it is damaged."""
    damage(history, "sources", "body", shape)
    page = client(history).get("/calls")
    assert page.status_code == 503
    assert "source of calls is damaged" in page.text
    assert main(["report", str(history)]) == FAILURE
    assert "source of calls is damaged" in capsys.readouterr().err


def test_damaged_statements_of_a_label_are_an_error_in_words(history: Path) -> None:
    """A label is not read without its statements, which a later change would then delete."""
    with closing(HistoryReader(str(history))) as reader:
        identity = reader.identity(3)
    assert identity is not None
    with closing(LabelStore(str(history))) as store:
        statement = {"start": 0, "end": 4, "label": "supported"}
        store.add([Label(identity, "hallucination", "ada", "bad", None, (statement,), 1.0)])
    damage(history, "labels", "statements", "cut")
    page = client(history).get(f"/label/calls/{identity.hex()}")
    assert (page.status_code, "a stored label is damaged" in page.text) == (503, True)


VALUES: Final = ("'damaged'", "'12x'", "x'00ff'", "9e300")
OTHERS: Final = {"REAL": VALUES[:3], "INTEGER": VALUES, "TEXT": VALUES[2:3], "BLOB": (*VALUES[:2], "7", "0.5")}
"""Values that a column of each type has only if it is damaged: SQLite converts none of them when it is written."""


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("calls", "at"), ("calls", "source"), ("calls", "workflow"), ("calls", "model"), ("calls", "identity"),
        ("results", "series"), ("results", "score"), ("results", "reason"),
        ("evaluations", "evaluator"), ("evaluations", "probability"), ("evaluations", "duration_s"),
        ("evaluations", "n_calls"), ("evaluations", "input_tokens"), ("evaluations", "cost_usd"),
        ("evaluations", "error"),
        ("guard_verdicts", "verdict"), ("guard_verdicts", "score"), ("guard_verdicts", "added_s"),
        ("tags", "value"), ("tags", "type"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_left_out_and_counted(
    history: Path, capsys: pytest.CaptureFixture[str], table: str, column: str
) -> None:
    """Such a value ends neither a page nor a report, and is converted to none that nobody has stored."""
    now, verdict = time.time(), "'consistency', 'shadow', 'fail', 'none', '', 0.2, 0.1"
    with closing(sqlite3.connect(history)) as database, database:
        types = {name: type_ for _, name, type_, *_ in database.execute(f"PRAGMA table_info({table})")}
        numbers = range(3, 3 + 4 * len(OTHERS[types[column]]), 4)
        for number, value in zip(numbers, OTHERS[types[column]], strict=True):
            database.execute(f"INSERT INTO guard_verdicts VALUES ({number}, {verdict})")
            database.execute(f"INSERT INTO tags VALUES ({number}, 'tenant', 'acme', 'text')")
            # Of one row, as a column in its primary key would have the same value twice.
            (key,) = [name for name in ("series", "evaluator") if name in types] or ["number"]
            first = f"(SELECT min({key}) FROM {table} WHERE number = {number})"
            changed = database.execute(
                f"UPDATE {table} SET {column} = {value} WHERE number = {number} AND {key} = {first}"
            )
            assert changed.rowcount == 1
    browser, damaged = client(history), f"Parts of {len(numbers)} stored call{'s' * (len(numbers) > 1)} are damaged"
    pages = [each for each in PAGES if each != "/calls/3"]
    assert {path: browser.get(path).status_code for path in pages} == dict.fromkeys(pages, 200)
    assert "damaged" in browser.get("/calls/3").text
    assert damaged in browser.get("/calls").text
    report = build_report(str(history), Period(now - 86_400, now + 1))
    assert report.calls == 40 - len(numbers) * (table == "calls")
    assert main(["report", str(history)]) == OK
    assert damaged in " ".join(capsys.readouterr().out.split())


def test_a_column_of_a_later_release_is_no_damage(history: Path) -> None:
    """Whatever its type: what is not known is not checked."""
    with closing(sqlite3.connect(history)) as database, database:
        database.execute("ALTER TABLE calls ADD COLUMN later BOOLEAN")
        database.execute("UPDATE calls SET later = 'yes'")
    assert client(history).get("/calls/3").status_code == 200
    assert "damaged" not in client(history).get("/calls").text
