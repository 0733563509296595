"""Human labels in the history file: the calls that were picked for labelling, and the reviewers' labels and drafts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from ragtrace.core.feedback import decode_call_id
from ragtrace.core.text import encodable
from ragtrace.history.schema import history_file
from ragtrace.history.stored_json import needed_list
from ragtrace.system.sqlite_files import transaction

if TYPE_CHECKING:
    from ragtrace.history.reading import HistoryReader

LabelValue: TypeAlias = Literal["bad", "good", "unsure"]
LABELS: Final[tuple[LabelValue, ...]] = get_args(LabelValue)
STATEMENT_LABELS: Final = ("supported", "not", "unsure")
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS picks (
    identity BLOB NOT NULL, metric TEXT NOT NULL, evaluator TEXT NOT NULL, probability REAL NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (identity, metric)
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS labels (
    identity BLOB NOT NULL, metric TEXT NOT NULL, reviewer TEXT NOT NULL, label TEXT NOT NULL, comment TEXT,
    statements TEXT, at REAL NOT NULL, PRIMARY KEY (identity, metric, reviewer)
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS label_drafts (
    identity BLOB NOT NULL, metric TEXT NOT NULL, reviewer TEXT NOT NULL, comment TEXT, statements TEXT,
    at REAL NOT NULL, PRIMARY KEY (identity, metric, reviewer)
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS label_changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, identity BLOB NOT NULL, metric TEXT NOT NULL, reviewer TEXT NOT NULL,
    before TEXT NOT NULL, at REAL NOT NULL
)""",
    "CREATE INDEX IF NOT EXISTS label_changes_reviewer ON label_changes (reviewer, metric, number)",
)
"""SQL of the tables of labels. A history of an older release gets the tables when labels are first used; older releases
can still read the file. Labels outlive the calls that are deleted for their age, as labels are the work of people."""
_NAMES: Final = ("picks", "labels", "label_drafts", "label_changes_reviewer")
"""Names of tables, and of the index that is created last, whose existence shows that all have been created."""


@dataclass(frozen=True, slots=True)
class Pick:
    """RAG call that was picked to be labelled, with its inclusion probability."""

    identity: bytes
    """Trace id and span id of the call's root span."""
    metric: str
    evaluator: str
    """Judge (`id@version`) from whose calls this one was picked."""
    probability: float


@dataclass(frozen=True, slots=True)
class Label:
    """Label that one reviewer gave to one RAG call for one metric."""

    identity: bytes
    metric: str
    reviewer: str
    label: LabelValue
    comment: str | None = None
    statements: tuple[Mapping[str, Any], ...] = ()
    """Labels of the answer's statements: `label` (supported, not, unsure), and keys that identify the statement."""
    at: float = 0.0
    """Time of the label, in seconds since the epoch; 0: not set."""


@dataclass(frozen=True, slots=True)
class Review:
    """Review of one RAG call by one reviewer for one metric, which is a draft as long as `label` is None."""

    identity: bytes
    metric: str
    reviewer: str
    label: LabelValue | None = None
    comment: str | None = None
    statements: tuple[Mapping[str, Any], ...] = ()
    """Labels of the answer's statements, as in `Label`."""
    at: float = 0.0
    """Time of the last change, in seconds since the epoch; 0: not set."""

    @property
    def is_empty(self) -> bool:
        """Whether the review has neither a label nor a comment."""
        return self.label is None and not self.comment and not self.statements


class ReviewChangedError(Exception):
    """Raised when a review cannot be undone because something else, such as an import of labels, has changed it."""


def call_of_identity(identity: bytes) -> str:
    """Convert an identity (trace id and span id as bytes) to a call id, as returned by `ragtrace.call_id`."""
    return f"00-{identity[:16].hex()}-{identity[16:].hex()}-01"


def identity_of_call(call: str) -> bytes | None:
    """Convert a call id to an identity (trace id and span id as bytes), or return None if *call* is not a call id."""
    span = decode_call_id(call)
    return None if span is None else span.trace_id.to_bytes(16, "big") + span.span_id.to_bytes(8, "big")


def read_labels(database: sqlite3.Connection, metric: str | None = None) -> list[Label]:
    """Return the human labels in the history *database*, for *metric* or for all metrics."""
    rows = database.execute(
        "SELECT identity, metric, reviewer, label, comment, statements, at FROM labels "
        "WHERE ?1 IS NULL OR metric = ?1 ORDER BY at, identity, reviewer",
        (metric,),
    )
    return [
        Label(identity, of, reviewer, label, comment, tuple(needed_list(statements or "[]", "label")), at)
        for identity, of, reviewer, label, comment, statements, at in rows
    ]


def read_picks(database: sqlite3.Connection, metric: str | None = None) -> list[Pick]:
    """Return the calls picked for labelling in the history *database*, for *metric* or for all metrics."""
    rows = database.execute(
        "SELECT identity, metric, evaluator, probability FROM picks WHERE ?1 IS NULL OR metric = ?1", (metric,)
    )
    return [Pick(*row) for row in rows]


def labels_in(history: HistoryReader) -> list[Label]:
    """Return all human labels in *history*, or an empty list if it has no table of labels yet."""
    return read_labels(history.database) if history.has_table("labels") else []


def picks_in(history: HistoryReader, metric: str) -> list[Pick]:
    """Return the calls of *history* picked for labelling for *metric*, or an empty list if it has no such table yet."""
    return read_picks(history.database, metric) if history.has_table("picks") else []


class LabelStore:
    """Store of human labels, and of the calls picked for labelling, in an existing history file.

    Raises:
        SQLiteFileError: it is no history.
        sqlite3.Error: it cannot be read or written.
    """

    def __init__(self, path: str) -> None:
        file = history_file(path)
        with closing(file.connect_to_read()):  # raises if the file is no history
            pass
        self._database = file.connect()
        tables = "SELECT count(*) FROM sqlite_master WHERE name IN (?, ?, ?, ?)"
        if self._database.execute(tables, _NAMES).fetchone() == (len(_NAMES),):
            return  # no transaction is begun, as it would wait for other writers
        with transaction(self._database):
            for table in _TABLES:
                self._database.execute(table)

    def close(self) -> None:
        """Close the history file."""
        self._database.close()

    def replace_picks(self, metric: str, picks: Sequence[Pick], at: float) -> None:
        """Store *picks* as the calls to be labelled for *metric*, replacing all earlier picks for the metric."""
        with transaction(self._database):
            self._database.execute("DELETE FROM picks WHERE metric = ?", (metric,))
            self._database.executemany(
                "INSERT INTO picks VALUES (?, ?, ?, ?, ?)",
                [(pick.identity, pick.metric, pick.evaluator, pick.probability, at) for pick in picks],
            )

    def picks(self, metric: str | None = None) -> list[Pick]:
        """Return the calls picked for labelling, for *metric* or for all metrics."""
        return read_picks(self._database, metric)

    def add(self, labels: Iterable[Label]) -> None:
        """Store *labels* in one transaction, replacing earlier labels of the same call, metric and reviewer."""
        with transaction(self._database):
            self._database.executemany(
                "INSERT OR REPLACE INTO labels VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        each.identity, each.metric, encodable(each.reviewer), each.label,
                        None if each.comment is None else encodable(each.comment),
                        json.dumps(list(each.statements)) if each.statements else None, each.at,
                    )
                    for each in labels
                ],
            )  # fmt: skip

    def labels(self, metric: str | None = None) -> list[Label]:
        """Return the stored labels, for *metric* or for all metrics."""
        return read_labels(self._database, metric)

    def labels_of_call(self, identity: bytes, metric: str) -> list[Label]:
        """Return the labels of one RAG call for *metric*, sorted by reviewer."""
        rows = self._database.execute(
            "SELECT reviewer, label, comment, statements, at FROM labels WHERE identity = ? AND metric = ?"
            " ORDER BY reviewer",
            (identity, metric),
        )
        return [
            Label(identity, metric, reviewer, label, comment, tuple(needed_list(statements or "[]", "label")), at)
            for reviewer, label, comment, statements, at in rows
        ]

    def review(self, identity: bytes, metric: str, reviewer: str) -> Review:
        """Return the review of a RAG call by *reviewer*, which is empty if the reviewer has not begun."""
        key = (identity, metric, reviewer)
        for what in ("label, comment, statements, at FROM labels", "NULL, comment, statements, at FROM label_drafts"):
            row = self._database.execute(
                f"SELECT {what} WHERE identity = ? AND metric = ? AND reviewer = ?", key
            ).fetchone()
            if row is not None:
                label, comment, statements, at = row
                return Review(*key, label, comment, tuple(needed_list(statements or "[]", "label")), at)
        return Review(*key)

    def save_review(self, review: Review) -> None:
        """Store *review* in one transaction, keeping the former review for `undo_review`.

        A review without a label becomes a draft, which counts as no label.
        """
        with transaction(self._database):
            before = self.review(review.identity, review.metric, review.reviewer)
            if replace(before, at=review.at) == review:
                return
            said = json.dumps([before.label, before.comment, list(before.statements), before.at])
            self._database.execute(
                "INSERT INTO label_changes (identity, metric, reviewer, before, at) VALUES (?, ?, ?, ?, ?)",
                (review.identity, review.metric, review.reviewer, said, review.at),
            )
            self._write_review(review)

    def undo_review(self, metric: str, reviewer: str) -> Review | None:
        """Undo the latest change that *reviewer* made by `save_review`, and return the restored review.

        The result is None if there is no change to undo.

        Raises:
            ReviewChangedError: the label was replaced by other means since; it is left as it is.
        """
        with transaction(self._database):
            row = self._database.execute(
                "SELECT number, identity, before, at FROM label_changes WHERE metric = ? AND reviewer = ? "
                "ORDER BY number DESC LIMIT 1",
                (metric, reviewer),
            ).fetchone()
            if row is None:
                return None
            number, identity, before, at = row
            self._database.execute("DELETE FROM label_changes WHERE number = ?", (number,))
            now = self.review(identity, metric, reviewer)
            label, comment, statements, before_at = needed_list(before, "change of a label")
            review = Review(identity, metric, reviewer, label, comment, tuple(statements), before_at)
            undone = now.at == at or (now.is_empty and not now.at)
            if undone:
                self._write_review(review)
        if not undone:
            raise ReviewChangedError("the label of that call was replaced since, so it was left as it is")
        return review

    def _write_review(self, review: Review) -> None:
        """Replace the stored review of a call by *review*, as a label or, if it has none, as a draft.

        The caller begins the transaction. An empty review is only deleted.
        """
        key = (review.identity, review.metric, review.reviewer)
        for table in ("labels", "label_drafts"):
            self._database.execute(f"DELETE FROM {table} WHERE identity = ? AND metric = ? AND reviewer = ?", key)
        if review.is_empty:
            return
        statements = json.dumps(list(review.statements)) if review.statements else None
        if review.label is None:
            values: tuple[object, ...] = (*key, review.comment, statements, review.at)
            self._database.execute("INSERT INTO label_drafts VALUES (?, ?, ?, ?, ?, ?)", values)
        else:
            values = (*key, review.label, review.comment, statements, review.at)
            self._database.execute("INSERT INTO labels VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def identities(self) -> dict[int, bytes]:
        """Return the identity (trace id and span id) of each stored call that has one, by row number."""
        return dict(self._database.execute("SELECT number, identity FROM calls WHERE identity IS NOT NULL").fetchall())
