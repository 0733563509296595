"""Blocks of a history's calls, packed as columns beside their rows, from which a reader has them without reading rows.

A block has the calls of `BLOCK` consecutive numbers. A writer packs it when no new call can get one of the numbers any
more. Triggers of the file delete a packed block when one of its rows changes, whichever program changes it, so a packed
block always says what its rows say. It is packed again later.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ragtrace.history.row_reading import BLOCK, RowReader
from ragtrace.history.segments import CallNames, NameNumbers, Segment, narrow
from ragtrace.history.stored_json import stored_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragtrace.history.segments import Ints

_FORMAT: Final = 1
_UNFINISHED: Final = 0
"""Format of a block that a process is packing."""
_CHANGES: Final = {
    "calls": ("UPDATE", "DELETE"),
    "evaluations": ("INSERT", "UPDATE", "DELETE"),
    "results": ("UPDATE", "DELETE"),
}
"""Changes that delete the packed block of a row. New calls have numbers of no packed block, and new results come with
a row of `evaluations` in the same transaction: a trigger for each of them would slow down the writing of every call."""
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS blocks (
    first INTEGER PRIMARY KEY, format INTEGER NOT NULL, earliest REAL NOT NULL, latest REAL NOT NULL,
    names TEXT NOT NULL, body BLOB NOT NULL
)
"""
_TRIGGER: Final = """
CREATE TRIGGER IF NOT EXISTS blocks_{table}_{change} AFTER {change} ON {table}
BEGIN DELETE FROM blocks WHERE first = {row}.number / {block} * {block}; END
"""
_OF_A_CALL: Final = ("number", "at", "source", "workflow", "model", "why")
_OF_A_SCORE: Final = ("scored_call", "scored_series", "score")
_OF_AN_EVALUATION: Final = tuple(name for name in Segment._fields if name not in {*_OF_A_CALL, *_OF_A_SCORE})


def create_blocks(database: sqlite3.Connection) -> None:
    """Create the table of packed blocks and its triggers, unless the history has them.

    They are also created in a history of an older release, which can still read and write that history.
    """
    database.execute(_TABLE)
    for table, changes in _CHANGES.items():
        for change in changes:
            row = "OLD" if change == "DELETE" else "NEW"
            database.execute(_TRIGGER.format(table=table, change=change, row=row, block=BLOCK))


class ChosenCalls(NamedTuple):
    """Which calls of a history are read."""

    start: float
    """Time of the first call, in seconds since the epoch."""
    end: float
    """Time before which the calls end."""
    workflow: str | None
    """Workflow of the calls; None: any."""
    model: str | None
    """Model of the calls; None: any."""
    sources: frozenset[int] | None
    """Sources of the calls, by number; None: any."""
    numbers: frozenset[int] | None = None
    """Row numbers of the calls; None: any."""
    tags: tuple[tuple[str, str], ...] = ()
    """Name and text of the value of each tag that the calls have."""
    tagged: NDArray[np.int64] | None = None
    """Row numbers of all calls that have these tags, lowest first; None: no tags are asked for."""


class Block(NamedTuple):
    """Columns of the calls of a block, with names of its own, and its results without a score."""

    calls: Segment
    workflows: list[str]
    models: list[str]
    decisions: list[str]
    unscored_call: Ints
    """Position of the call of each result that has no score."""
    unscored_series: Ints
    unscored_reason: Ints
    """Reason of each result that has no score, as an index into `reasons`."""
    reasons: list[str]

    def choose(self, chosen: ChosenCalls) -> NDArray[np.bool_]:
        """Return which calls of the block are *chosen*."""
        calls = self.calls
        mask = (calls.at >= chosen.start) & (calls.at < chosen.end)
        for name, names, codes in (
            (chosen.workflow, self.workflows, calls.workflow),
            (chosen.model, self.models, calls.model),
        ):
            if name is not None:
                mask &= codes == (names.index(name) if name in names else -1)
        for numbers, column in ((chosen.sources, calls.source), (chosen.numbers, calls.number)):
            if numbers is not None:
                mask &= np.isin(column, list(numbers))
        if chosen.tagged is not None:
            first, last = np.searchsorted(chosen.tagged, (calls.number[0], calls.number[-1] + 1))
            mask &= np.isin(calls.number, chosen.tagged[first:last], assume_unique=True)
        return mask

    def segment(self, mask: NDArray[np.bool_], names: CallNames) -> Segment:
        """Return the columns of the calls in *mask*, with the numbers that *names* gives to their names."""
        calls = self.calls
        if not mask.all():
            position = np.cumsum(mask, dtype=np.int32) - 1
            scored, evaluated = mask[calls.scored_call], mask[calls.evaluation_call]
            calls = Segment._make(
                getattr(calls, name)[rows]
                for columns, rows in ((_OF_A_CALL, mask), (_OF_A_SCORE, scored), (_OF_AN_EVALUATION, evaluated))
                for name in columns
            )
            calls = calls._replace(
                scored_call=position[calls.scored_call], evaluation_call=position[calls.evaluation_call]
            )
        return calls._replace(
            workflow=_renumbered(calls.workflow, self.workflows, names.workflows),
            model=_renumbered(calls.model, self.models, names.models),
            why=_renumbered(calls.why, self.decisions, names.decisions),
        )

    def count_unscored(self, mask: NDArray[np.bool_]) -> dict[tuple[int, str], int]:
        """Count the results without a score of the calls in *mask* by series and reason."""
        ours = mask[self.unscored_call]
        key = self.unscored_series[ours].astype(np.int64) * len(self.reasons) + self.unscored_reason[ours]
        numbers, counts = np.unique(key, return_counts=True)
        pairs = (divmod(number, len(self.reasons)) for number in numbers.tolist())
        return {
            (series, self.reasons[reason]): count
            for (series, reason), count in zip(pairs, counts.tolist(), strict=True)
        }


def _renumbered(codes: Ints, own: list[str], names: NameNumbers) -> Ints:
    """Return *codes* of a block's *own* names as numbers of *names*, which gets new ones in the order of the calls."""
    number_of = np.zeros(len(own), np.int64)
    if all(name in names for name in own):  # as in nearly every block
        number_of[:] = [names[name] for name in own]
    else:
        present, first = np.unique(codes, return_index=True)
        for code in present[np.argsort(first)].tolist():
            number_of[code] = names[own[code]]
    return narrow(number_of)[codes]


# --- packing ----------------------------------------------------------------------------------------------------------


def next_to_pack(database: sqlite3.Connection, unless: Collection[int] = ()) -> int | None:
    """Return the first number of the newest block that can be packed and is not, or None if there is none.

    *unless* has the first numbers of the blocks that are not to be packed.

    No new call gets a number below the highest one. One block more is left out, as other processes may still add scores
    to the newest calls.
    """
    low, high = database.execute("SELECT (SELECT min(number) FROM calls), (SELECT max(number) FROM calls)").fetchone()
    if low is None or high < 2 * BLOCK:
        return None
    packed = {first for (first,) in database.execute("SELECT first FROM blocks WHERE format = ?", (_FORMAT,))}
    for first in range(high // BLOCK * BLOCK - 2 * BLOCK, low // BLOCK * BLOCK - 1, -BLOCK):
        found = "SELECT 1 FROM calls WHERE number >= ? AND number < ? LIMIT 1"
        if first not in packed and first not in unless and database.execute(found, (first, first + BLOCK)).fetchone():
            return first
    return None


def pack(
    use: Callable[[], AbstractContextManager[sqlite3.Connection]], first: int, may_go_on: Callable[[], bool]
) -> bool:
    """Pack the block of calls that begins with the number *first*, in steps of a few hundredths of a second.

    No other writer waits, and the application can fork between the steps. A row that stands for the block meanwhile is
    deleted when one of its calls changes, as a packed block is; then the block is not packed.

    Args:
        use: gives the connection to the history for a step.
        first: lowest number of a call of the block.
        may_go_on: returns, before each step, whether there is time for it.

    Returns:
        Whether the block is packed.
    """
    token = os.urandom(16)
    with use() as database:
        database.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, 0, 0, '', ?)", (first, _UNFINISHED, token))
    names, reasons = CallNames.none(), NameNumbers()
    with use() as database:
        calls = RowReader(database, names, "main").read_calls(first, "TRUE", ())
    if not len(calls[0]) or not may_go_on():
        return False
    with use() as database:
        scores = RowReader(database, names, "main").read_scores(calls[0])
    if not may_go_on():
        return False
    with use() as database:
        evaluations = RowReader(database, names, "main").read_evaluations(calls[0])
    if not may_go_on():
        return False
    with use() as database:
        rows = database.execute(
            "SELECT number, series, reason FROM calls NOT INDEXED JOIN results USING (number)"
            " WHERE number >= ? AND number < ? AND score IS NULL",
            (first, first + BLOCK),
        ).fetchall()
    known = [(number, series, reasons[reason]) for number, series, reason in rows]
    number, series, reason = np.array(known, np.int64).reshape(-1, 3).T
    segment = Segment._make((*calls, *scores, *evaluations))
    body = _encoded(
        {
            **segment._asdict(),
            "number": segment.number - first,
            "unscored_call": np.searchsorted(segment.number, number),
            "unscored_series": series,
            "unscored_reason": reason,
        }
    )
    listed = {
        "workflows": names.workflows.names, "models": names.models.names, "decisions": names.decisions.names,
        "reasons": reasons.names,
    }  # fmt: skip
    times = float(segment.at.min()), float(segment.at.max())
    with use() as database:
        packed = database.execute(
            "UPDATE blocks SET format = ?, earliest = ?, latest = ?, names = ?, body = ? WHERE first = ? AND body = ?",
            (_FORMAT, *times, json.dumps(listed), body, first, token),
        )
        return packed.rowcount == 1


def _encoded(columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Encode columns: a line of JSON says name, type, stored and true length of each, and the stored values follow.

    Of a column with one value alone, only that is stored.
    """
    header: list[tuple[str, str, int, int]] = []
    parts: list[bytes] = []
    for name, column in columns.items():
        values = narrow(column) if column.dtype.kind == "i" else column
        bits = values.view(f"i{values.itemsize}")  # no price is NaN, which equals nothing
        stored = values[:1] if len(values) > 1 and bool((bits == bits[0]).all()) else values
        header.append((name, values.dtype.newbyteorder("<").str, len(stored), len(values)))
        parts.append(stored.astype(values.dtype.newbyteorder("<")).tobytes())
    return b"\n".join((json.dumps(header).encode(), b"".join(parts)))


def packed_blocks(database: sqlite3.Connection) -> dict[int, tuple[float, float]]:
    """Return the times of the earliest and the latest call of each packed block, by the first number of the block."""
    rows = database.execute("SELECT first, earliest, latest FROM blocks WHERE format = ?", (_FORMAT,))
    return {first: (earliest, latest) for first, earliest, latest in rows}


def names_of_blocks(database: sqlite3.Connection) -> dict[int, tuple[list[str], list[str]]]:
    """Return the workflows and models of each packed block, by the first number of the block."""
    rows = database.execute("SELECT first, names FROM blocks WHERE format = ?", (_FORMAT,))
    read = ((first, stored_object(text)) for first, text in rows)
    # Names of a damaged block are read from its rows, as if it were not packed.
    whole = ((first, names) for first, names in read if names is not None and {"workflows", "models"} <= names.keys())
    return {first: (names["workflows"], names["models"]) for first, names in whole}


def unpack(database: sqlite3.Connection, first: int) -> Block | None:
    """Return the packed block that begins with the number *first*, whose columns keep the memory of all of them.

    The result is None if the block is damaged. Its rows have the same calls.
    """
    try:
        return _unpack(database, first)
    except (ValueError, TypeError, KeyError):
        return None


def _unpack(database: sqlite3.Connection, first: int) -> Block:
    text, body = database.execute("SELECT names, body FROM blocks WHERE first = ?", (first,)).fetchone()
    end = body.index(b"\n")
    names, at = json.loads(text), end + 1
    columns: dict[str, NDArray[Any]] = {}
    for name, dtype, stored, count in json.loads(body[:end]):
        values = np.frombuffer(body, dtype, stored, at)
        at += values.nbytes
        columns[name] = np.full(count, values[0]) if stored < count else values
    columns["number"] = columns["number"].astype(np.int64) + first
    return Block(
        Segment._make(columns[name] for name in Segment._fields),
        names["workflows"], names["models"], names["decisions"],
        columns["unscored_call"], columns["unscored_series"], columns["unscored_reason"], names["reasons"],
    )  # fmt: skip
