"""Views of a history's tables that leave out damaged rows, and the calls that such rows belong to.

SQLite stores a value of any type in a column of any type. A damaged value, such as a text in a column of numbers, would
end whatever calculates with it; converted to a number, it would be one that nobody has stored.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from ragtrace.history.schema import OF_A_CALL, history_file

_CHECKS: Final = {
    "REAL": "+{0} <= 9e999",  # infinity: numbers come before texts and blobs
    "INTEGER": "+{0} BETWEEN -9e15 AND 9e15",
    "TEXT": "+{0} < x''",  # and these before blobs
    "BLOB": "+{0} >= x''",
}
"""SQL of what holds for each value of a column, by the column's type.

The plus signs keep SQLite from looking up these bounds in an index instead of those that the reader asks for.
"""
_REFERENCES: Final[Mapping[str, Mapping[str, str]]] = {
    "evaluators": {},
    "series": {"evaluator": "evaluators"},
    "calls": {"source": "sources"},
    "results": {"series": "series"},
    "evaluations": {"evaluator": "evaluators"},
    "feedback": {},
    "guard_verdicts": {},
    "tags": {},
    "alerts": {},
}
"""Tables whose damaged rows are left out, each with the tables that its columns refer to.

Damaged JSON, in the other tables, is found by those who read it.
"""


def connect_to_intact_rows(path: str) -> sqlite3.Connection:
    """Return a read-only connection to the history at *path*, whose tables have no damaged rows.

    Raises:
        SQLiteFileError: it is no history.
        sqlite3.Error: it cannot be read.
    """
    database = history_file(path).connect_to_read()
    try:
        for table in _REFERENCES:
            if is_intact := _intact(database, table):
                database.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE {is_intact}")
    except BaseException:
        database.close()
        raise
    return database


def damaged_calls(database: sqlite3.Connection, where: str, values: Sequence[object]) -> set[int]:
    """Return the row numbers of chosen calls of which any row is damaged.

    Args:
        database: a connection to the history.
        where: SQL condition for `number`, the row number of a call.
        values: values of its parameters.
    """
    found = set[int]()
    for table in _REFERENCES.keys() & set(OF_A_CALL):
        if is_intact := _intact(database, table):
            rows = database.execute(
                f"SELECT number FROM main.{table} WHERE {where} AND ({is_intact}) IS NOT TRUE", values
            )
            found.update(number for (number,) in rows)
    return found


def _intact(database: sqlite3.Connection, table: str) -> str:
    """Return an SQL condition for the rows of *table* that are not damaged, or "" if the file has no such table."""
    columns, references = database.execute(f"PRAGMA main.table_info({table})").fetchall(), _REFERENCES[table]
    conditions: list[str] = []
    for _, name, type_, is_set, _, in_key in columns:
        if name in references:
            conditions.append(f"+{name} IN (SELECT id FROM {references[name]})")
        # Rows of other tables are found by the numbers of calls. A later release may have types of its own.
        elif type_ in _CHECKS and (name != "number" or table == "calls"):
            check = _CHECKS[type_].format(name)
            conditions.append(check if is_set or in_key else f"({name} IS NULL OR {check})")
    return " AND ".join(conditions)
