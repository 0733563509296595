"""Columns of a history, compared with its rows."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import pytest

from ragtrace.history.reading import CallColumns, HistoryReader
from ragtrace.history.writing import HistoryWriter
from tests.support.history import GIB, SOURCE, Simulated, fill, made

EDGES: Final = [math.nextafter(at, at + by) for at in (0.0, 2.0**-9, 1.0, 2.0**10, 2.0**40) for by in (-1, 0, 1)]
SCORES: Final = (*EDGES, 0.1, 1.0 - 0.1, 1e-300, math.pi, 1e17, 1e300, math.inf, -0.3, 1_700_000_000.123)


def stored(path: Path, names: int, step: int) -> None:
    """Store 300 calls of all kinds, with rows *step* numbers apart, and of *names* workflows."""
    rng = random.Random(names)
    fill(path, [made(1000.0, Simulated(), rng)])
    calls, evaluations, results = list[tuple[Any, ...]](), list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for number in islice(count(2, step), 300):
        at = rng.choice((1000.0 + number, rng.uniform(0.0, 2e9), 1500.0))
        decision = rng.choice((None, "sampled", "not_sampled"))
        calls.append((number, at, rng.randrange(1, 4), f"w{rng.randrange(names)}", rng.choice("abc"), decision))
        for evaluator in rng.sample(range(1, 6), rng.randrange(4)):
            usual = rng.random() < 0.5
            evaluations.append(
                (number, evaluator, 1.0, rng.choice(SCORES), 0, 0, 0, rng.choice((None, 0.0)), None)
                if usual
                else (
                    number, evaluator, rng.random(), rng.random(), rng.randrange(3), rng.choice((0, 7, 2**40)),
                    rng.randrange(200), rng.choice((None, 0.0, 0.25, math.inf)), rng.choice((None, "Timeout")),
                )
            )  # fmt: skip
            for series in rng.sample(range(evaluator * 50, evaluator * 50 + 50), 3):
                results.append((number, series, rng.choice((None, rng.random(), *SCORES)), None, None))
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany("INSERT INTO calls VALUES (?, NULL, ?, ?, ?, ?, ?)", calls)
        database.executemany("INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", evaluations)
        database.executemany("INSERT INTO results VALUES (?, ?, ?, ?, ?)", results)
        source, evaluator, series = (
            database.execute(f"SELECT * FROM {table}").fetchone() for table in ("sources", "evaluators", "series")
        )
        database.executemany(
            "INSERT INTO sources VALUES (?, ?)", [(each, f'{source[1][:-1]}, "n": {each}}}') for each in (2, 3)]
        )
        database.executemany(
            "INSERT OR IGNORE INTO evaluators VALUES (?, ?, ?, ?)", [(n, f"e{n}", *evaluator[2:]) for n in range(1, 6)]
        )
        database.executemany(
            "INSERT OR IGNORE INTO series VALUES (?, ?, ?, ?, ?)", [(n, f"m{n}", *series[2:]) for n in range(1, 300)]
        )


def pack_all(path: Path) -> None:
    """Pack the blocks of all calls but one, which gets a number far above the others."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO calls VALUES (10000000, NULL, 1500.0, 1, 'w0', 'a', NULL)")
    with closing(HistoryWriter(str(path), SOURCE, most_bytes=GIB, texts=True)) as writer:
        while writer.pack_block():
            pass
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM blocks").fetchone()[0] > 0


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int, bool], Path]:
    """Returns the history of `stored`, packed or not, which all tests of these numbers only read."""

    @cache
    def made_once(names: int, step: int, packed: bool) -> Path:
        path = tmp_path_factory.mktemp("history") / "history.db"
        stored(path, names, step)
        if packed:
            pack_all(path)
        return path

    return made_once


def rows_of(columns: CallColumns) -> tuple[list[Any], list[Any], list[Any]]:
    """The calls, evaluations and scores of *columns*, as rows."""
    workflows, models, decisions = (
        [names[code] for code in codes.tolist()]
        for names, codes in (
            (columns.workflows, columns.workflow),
            (columns.models, columns.model),
            (columns.decisions, columns.why),
        )
    )
    number = columns.number.tolist()
    calls = zip(number, columns.at.tolist(), columns.source.tolist(), workflows, models, decisions, strict=True)
    evaluations = zip(
        [number[at] for at in columns.evaluation_call.tolist()],
        *(
            values.tolist()
            for values in (
                columns.evaluator, columns.probability, columns.duration_s, columns.requests, columns.input_tokens,
                columns.output_tokens, columns.cost_usd, columns.failed,
            )
        ),
        strict=True,
    )  # fmt: skip
    scores = zip(
        [number[at] for at in columns.scored_call.tolist()],
        columns.scored_series.tolist(),
        columns.score.tolist(),
        strict=True,
    )
    return [*calls], [*evaluations], [*scores]


@pytest.mark.parametrize("packed", [False, True], ids=["rows", "packed"])
@pytest.mark.parametrize(("names", "step"), [(1, 1), (3, 1), (3, 7_000), (20, 7_000), (50, 1), (50, 7_000)])
@pytest.mark.parametrize("condition", ["1", "at >= 1200 AND at < 1600", "workflow = 'w0'", "at < 0"])
def test_columns_have_every_value_of_the_rows(
    history: Callable[[int, int, bool], Path], names: int, step: int, condition: str, *, packed: bool
) -> None:
    """To the last digit, from rows and packed blocks, whatever the values, the numbers and the order in time are."""
    path = history(names, step, packed)
    start, end = (1200.0, 1600.0) if " AND " in condition else (-math.inf, 0.0 if "at < 0" in condition else math.inf)
    with closing(HistoryReader(str(path))) as reader:
        columns = reader.columns(start, end, "w0" if "workflow" in condition else None)
        select = reader.database.execute
        what = "number, at, source, workflow, model, coalesce(decision, '')"
        calls = select(f"SELECT {what} FROM calls WHERE {condition} ORDER BY number").fetchall()
        mine = f"number IN (SELECT number FROM calls WHERE {condition})"
        evaluations = select(
            "SELECT number, evaluator, probability, duration_s, n_calls, input_tokens, output_tokens, cost_usd,"
            f" error IS NOT NULL FROM evaluations WHERE {mine} ORDER BY number, evaluator"
        ).fetchall()
        scores = select(
            f"SELECT number, series, score FROM results WHERE {mine} AND score IS NOT NULL ORDER BY number, series"
        ).fetchall()
        in_time = select(f"SELECT workflow FROM calls WHERE {condition} ORDER BY at, number").fetchall()
    found = rows_of(columns)
    priced = [(*row[:7], math.nan if row[7] is None or math.isinf(row[7]) else row[7], row[8]) for row in evaluations]
    assert list(map(repr, found)) == list(map(repr, (calls, priced, scores)))
    assert columns.workflows == list(dict.fromkeys(name for (name,) in in_time))
