"""Reading of the rows of calls, scores and evaluations as numpy arrays."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

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
"""Numbers of calls that are read at a time: as Python objects they take many times the memory of columns."""


class RowReader:
    """Reader of calls, scores and evaluations from their tables.

    Args:
        database: the history, within a transaction.
        names: numbers of the names of the calls, to which new names are added.
        schema: "main" for the tables as they are, where no row is damaged; "temp" for the views without such rows.
    """

    def __init__(self, database: sqlite3.Connection, names: CallNames, schema: Literal["main", "temp"]) -> None:
        self._database, self._names, self._schema = database, names, schema

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
        rows = self._database.execute(
            f"SELECT number, at, source, workflow, model, coalesce(decision, '') FROM {self._schema}.calls NOT INDEXED"
            f" WHERE number >= ? AND number < ? AND {where} ORDER BY number",
            [first, first + BLOCK, *values],
        )
        workflows, models, decisions = self._names
        block = np.fromiter(((n, at, s, workflows[w], models[m], decisions[d]) for n, at, s, w, m, d in rows), _CALLS)
        return block["number"].copy(), block["at"].copy(), *(narrow(block[name]) for name, _ in _CALLS[2:])

    def read_scores(self, numbers: Ints) -> tuple[Ints, Ints, Floats]:
        """Return position of the call in *numbers*, series and score of every score of the given calls."""
        bits = self._key_bits("series")
        key, score = self._rows_of_calls(numbers, "results", "series", f"number << {bits} | series", "score")
        at, ours = _positions(numbers, key >> bits)
        return at, narrow((key & (1 << bits) - 1)[ours]), score[ours]

    def read_evaluations(self, numbers: Ints) -> tuple[Ints, Ints, Floats, Floats, Ints, Ints, Ints, Floats, Ints]:
        """Return the evaluations of the given calls, with the position of each one's call in *numbers*.

        Most calls are seen by an evaluator that sees all calls and asks no model, so the probability, requests, tokens
        and costs are read only where they differ from that.
        """
        bits = self._key_bits("evaluators")
        flagged = f"(number << {bits} | evaluator) << 2 | ((cost_usd IS NULL) << 1) | (error IS NOT NULL)"
        flags, duration_s = self._rows_of_calls(numbers, "evaluations", "evaluator", flagged, "duration_s")
        call, ours = _positions(numbers, flags >> bits + 2)
        flags, duration_s = flags[ours], duration_s[ours]
        key, unpriced, failed = flags >> 2, (flags >> 1 & 1).astype(bool), (flags & 1).astype(np.int8)
        # numpy has no NULL: of an unknown price, the row of the evaluation has told.
        what = f"number << {bits} | evaluator, probability, n_calls, input_tokens, output_tokens, coalesce(cost_usd, 0)"
        differs = "(probability <> 1 OR n_calls OR input_tokens OR output_tokens OR coalesce(cost_usd, 0))"
        details = np.fromiter(
            self._database.execute(
                f"SELECT {what} FROM {self._schema}.evaluations WHERE number BETWEEN ? AND ? AND {differs}"
                " ORDER BY number, evaluator",
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

    def _rows_of_calls(
        self, numbers: Ints, table: str, column: str, key: str, value: str
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return key and value of a table's rows for the given calls, and for calls between them, ordered by the key.

        Args:
            numbers: row numbers of the calls, sorted, at least one.
            table: name of the table.
            column: column of its primary key, after the number of the call.
            key: SQL of an integer that grows with the primary key.
            value: column with a float; rows without one are left out.
        """
        rows = self._database.execute(
            f"SELECT {key}, {value} FROM {self._schema}.{table} WHERE number BETWEEN ? AND ? AND {value} IS NOT NULL"
            f" ORDER BY number, {column}",
            (int(numbers[0]), int(numbers[-1])),
        )
        found = np.fromiter(rows, dtype=[("key", "i8"), ("value", "f8")])
        return found["key"].copy(), found["value"].copy()


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


def _filled(count: int, usual: float, rows: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Return an array of *count* times the *usual* value, with other *values* in some *rows*."""
    values = narrow(values) if values.dtype == np.int64 else values
    filled = np.full(count, usual, dtype=values.dtype)
    filled[rows] = values
    return filled
