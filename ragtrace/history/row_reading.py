"""Reading of the rows of calls, scores and evaluations as numpy arrays, which SQLite packs into texts for speed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragtrace.history.segments import NO_CALLS, CallNames, Segment, narrow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragtrace.history.segments import Floats, Ints, Part

_CALLS: Final = [("number", "i8"), ("at", "f8"), ("source", "i8"), ("workflow", "i8"), ("model", "i8"), ("why", "i8")]
_DETAILS: Final = [
    ("key", "i8"), ("probability", "f8"), ("requests", "i8"), ("input", "i8"), ("output", "i8"), ("cost", "f8"),
]  # fmt: skip
BLOCK: Final = 16_384
"""Numbers of calls that are read at a time: as texts or Python objects they take many times the memory of columns."""
_NAME_BITS: Final = 5
"""Bits of the code of a name in a packed row, which stands for 31 names; the highest code is that of all others."""
_OTHER_NAME: Final = (1 << _NAME_BITS) - 1
_SOURCE_BITS: Final = 24
_FRACTIONS: Final = (2.0**62, 2.0**52, 2.0**22)
"""Denominators of the floats that are read as integers: below 1, below 1024, and above, such as times."""
_AS_INTEGER: Final = """
CASE
    WHEN {0} < 1.0 THEN
        CASE
            WHEN {0} >= 0.001953125 THEN CAST({0} * ?1 AS INTEGER)
            WHEN {0} = 0.0 THEN 0
            WHEN {0} > 0.0 AND CAST({0} * ?1 AS INTEGER) = {0} * ?1 THEN CAST({0} * ?1 AS INTEGER)
            ELSE -1
        END
    WHEN {0} < 1024.0 THEN CAST({0} * ?2 AS INTEGER) + (1 << 62)
    WHEN {0} < 1099511627776.0 AND CAST({0} * ?3 AS INTEGER) = {0} * ?3 THEN -2 - CAST({0} * ?3 AS INTEGER)
    ELSE -1
END
"""
"""SQL of an integer that stands for the float {0} exactly, or -1 if none does; `_as_floats` reads it.

A float has 53 bits, so one from 1/512 to 1 is a multiple of 2**-62, and one from 1 to 1024 a multiple of 2**-52.
"""


class RowReader:
    """Reader of calls, scores and evaluations from their tables.

    Args:
        database: the history, within a transaction.
        names: numbers of the names of the calls, to which new names are added.
    """

    def __init__(self, database: sqlite3.Connection, names: CallNames) -> None:
        self._database, self._names = database, names

    def read(self, first: int, where: str, values: Sequence[object]) -> Segment:
        """Return chosen calls of a block, with their scores and evaluations, by the number of the call.

        Args:
            first: lowest number of a call of the block, which has `BLOCK` numbers.
            where: SQL condition for columns of the table `calls` that the chosen calls meet.
            values: values of its parameters.
        """
        calls = self.read_calls(first, where, values)
        if not len(calls[0]):
            return NO_CALLS
        return Segment._make((*calls, *self.read_scores(calls[0]), *self.read_evaluations(calls[0])))

    def read_calls(self, first: int, where: str, values: Sequence[object]) -> Part:
        """Return number, time, source, workflow, model and decision of chosen calls of a block, as `read` does."""
        condition, chosen = f"number >= ? AND number < ? AND {where}", [first, first + BLOCK, *values]
        return self._packed_calls(condition, chosen) or self._named_calls(condition, chosen)

    def _packed_calls(self, condition: str, values: Sequence[Any]) -> Part | None:
        """Return a block of calls as `_named_calls` does, or None if it has a name that is not known yet.

        SQLite packs what is no float into one integer, as each value that it hands to Python takes its time.
        """
        names = self._names
        if self._key_bits("sources") > _SOURCE_BITS or not all(0 < len(each.names) <= _OTHER_NAME for each in names):
            return None
        columns, parameters, packed = ("workflow", "model", "coalesce(decision, '')"), list[object](), "source"
        for column, known in zip(columns, names, strict=True):
            cases = " ".join(f"WHEN ? THEN {code}" for code in range(len(known.names)))
            packed = f"({packed}) << {_NAME_BITS} | CASE {column} {cases} ELSE {_OTHER_NAME} END"
            parameters += known.names
        above = _SOURCE_BITS + len(names) * _NAME_BITS
        packed = f"(number - ?) << {above} | ({packed})"
        key, at = self._keyed_rows("calls NOT INDEXED", packed, "at", condition, values, [values[0], *parameters])
        codes = [key >> bits * _NAME_BITS & _OTHER_NAME for bits in (2, 1, 0)]
        if any((code == _OTHER_NAME).any() for code in codes):
            return None
        source = key >> len(names) * _NAME_BITS & (1 << _SOURCE_BITS) - 1
        return (key >> above) + values[0], at, narrow(source), *map(narrow, codes)

    def _named_calls(self, condition: str, values: Sequence[object]) -> Part:
        """Return the columns of the calls that meet a condition, and number the names that are new."""
        rows = self._database.execute(
            "SELECT number, at, source, workflow, model, coalesce(decision, '') FROM calls NOT INDEXED"
            f" WHERE {condition} ORDER BY number",
            values,
        )
        workflows, models, decisions = self._names
        block = np.fromiter(((n, at, s, workflows[w], models[m], decisions[d]) for n, at, s, w, m, d in rows), _CALLS)
        return block["number"].copy(), block["at"].copy(), *(narrow(block[name]) for name, _ in _CALLS[2:])

    def read_scores(self, numbers: Ints) -> tuple[Ints, Ints, Floats]:
        """Return position of the call in *numbers*, series and score of every score of the given calls."""
        bits = self._key_bits("series")
        key, score = self._rows_of_calls(numbers, "results", f"number << {bits} | series", "score")
        at, ours = _positions(numbers, key >> bits)
        return at, narrow((key & (1 << bits) - 1)[ours]), score[ours]

    def read_evaluations(self, numbers: Ints) -> tuple[Ints, Ints, Floats, Floats, Ints, Ints, Ints, Floats, Ints]:
        """Return the evaluations of the given calls, with the position of each one's call in *numbers*.

        Most calls are seen by an evaluator that sees all calls and asks no model, so the probability, requests, tokens
        and costs are read only where they differ from that.
        """
        bits = self._key_bits("evaluators")
        flagged = f"(number << {bits} | evaluator) << 2 | ((cost_usd IS NULL) << 1) | (error IS NOT NULL)"
        flags, duration_s = self._rows_of_calls(numbers, "evaluations", flagged, "duration_s")
        call, ours = _positions(numbers, flags >> bits + 2)
        flags, duration_s = flags[ours], duration_s[ours]
        key, unpriced, failed = flags >> 2, (flags >> 1 & 1).astype(bool), (flags & 1).astype(np.int8)
        # numpy has no NULL: of an unknown price, the row of the evaluation has told.
        what = f"number << {bits} | evaluator, probability, n_calls, input_tokens, output_tokens, coalesce(cost_usd, 0)"
        differs = "(probability <> 1 OR n_calls OR input_tokens OR output_tokens OR coalesce(cost_usd, 0))"
        details = np.fromiter(
            self._database.execute(
                f"SELECT {what} FROM evaluations WHERE number BETWEEN ? AND ? AND {differs} ORDER BY number, evaluator",
                (int(numbers[0]), int(numbers[-1])),
            ),
            dtype=_DETAILS,
        )
        details = details[_positions(numbers, details["key"] >> bits)[1]]
        rows = np.searchsorted(key, details["key"])
        probability, requests, read, written, cost = (
            _filled(len(key), usual, rows, details[name])
            for name, usual in (("probability", 1.0), ("requests", 0), ("input", 0), ("output", 0), ("cost", 0.0))
        )
        cost[unpriced | np.isinf(cost)] = np.nan
        evaluator = narrow(key & (1 << bits) - 1)
        return call, evaluator, probability, duration_s, requests, read, written, cost, failed

    def _key_bits(self, table: str) -> int:
        """Return how many bits the ids of a small table take, below the number of a call."""
        (largest,) = self._database.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        return int(largest).bit_length()

    def _rows_of_calls(self, numbers: Ints, table: str, key: str, value: str) -> tuple[NDArray[np.int64], Floats]:
        """Return key and value of a table's rows for the given calls, and for calls between them.

        Args:
            numbers: row numbers of the calls, sorted, at least one.
            table: name of the table.
            key: SQL of an integer that grows with the table's primary key.
            value: column with the value; rows without one are left out.
        """
        condition = f"number BETWEEN ? AND ? AND {value} IS NOT NULL"
        return self._keyed_rows(table, key, value, condition, (int(numbers[0]), int(numbers[-1])))

    def _keyed_rows(
        self,
        table: str,
        key: str,
        value: str,
        condition: str,
        values: Sequence[object],
        key_values: Sequence[object] = (),
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return key and value of the rows that meet a condition, ordered by the key.

        SQLite writes each as one text, which numpy reads, as a Python object for every row takes several times as long.

        Args:
            table: name of the table.
            key: SQL of a different integer for each row.
            value: column with a float.
            condition: the SQL condition.
            values: parameters of the condition.
            key_values: parameters of the key.
        """
        coded = _AS_INTEGER.format(value)
        texts = self._database.execute(
            f"SELECT group_concat({coded}), group_concat({key}) FROM {table} WHERE {condition}",
            [*_FRACTIONS, *key_values, *values],
        ).fetchone()
        integers, keys = (np.fromstring(text or "", dtype=np.int64, sep=",") for text in texts)
        if (keys[1:] <= keys[:-1]).any():  # SQLite promises no order
            order = np.argsort(keys)
            integers, keys = integers[order], keys[order]
        floats = _as_floats(integers)
        others = integers == -1
        if others.any():
            rows = self._database.execute(
                f"SELECT {key}, {value} FROM {table} WHERE {condition}", [*key_values, *values]
            )
            found = dict(rows.fetchall())
            floats[others] = [found[number] for number in keys[others].tolist()]
        return keys, floats


def _positions(numbers: Ints, wanted: NDArray[np.int64]) -> tuple[Ints, NDArray[np.bool_] | slice]:
    """Return where the *wanted* numbers are in *numbers*, and which of them are there at all.

    Args:
        numbers: sorted numbers, at least one.
        wanted: numbers between the first and the last of them.
    """
    if int(numbers[-1]) - int(numbers[0]) + 1 == len(numbers):
        return (wanted - numbers[0]).astype(np.int32), slice(None)
    at = np.searchsorted(numbers, wanted)
    ours = numbers[at] == wanted
    return at[ours].astype(np.int32), ours


def _as_floats(integers: NDArray[np.int64]) -> Floats:
    """Return the floats that integers of `_AS_INTEGER` stand for. No value is rounded: they have 53 bits at most."""
    below_1, below_1024, above = _FRACTIONS
    large = integers >= 1 << 62
    floats = np.where(large, integers - (1 << 62), integers) / np.where(large, below_1024, below_1)
    negative = integers < 0
    floats[negative] = (-2 - integers[negative]) / above
    return floats


def _filled(count: int, usual: float, rows: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Return an array of *count* times the *usual* value, with other *values* in some *rows*."""
    values = narrow(values) if values.dtype == np.int64 else values
    filled = np.full(count, usual, dtype=values.dtype)
    filled[rows] = values
    return filled
