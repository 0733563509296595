"""Writer of a history file, which stores batches of RAG calls in transactions and deletes old calls."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.cost import Cost
from ragtrace.core.feedback import Feedback
from ragtrace.core.labels import Claim
from ragtrace.core.step import GuardVerdict
from ragtrace.core.tags import TagValue, tag_text
from ragtrace.core.text import encodable
from ragtrace.core.types import UNCALIBRATED, Evaluation, RagCall, Score, is_raw_probability
from ragtrace.history.intact_rows import damaged_calls
from ragtrace.history.packed_blocks import create_blocks, next_to_pack, pack
from ragtrace.history.row_reading import BLOCK
from ragtrace.history.schema import (
    ALERT_TABLE,
    FEEDBACK_TABLE,
    GUARD_TABLE,
    IN_A_BODY,
    OF_A_CALL,
    TAG_INDEX,
    TAG_TABLE,
    TAG_TYPES,
    WHERE_SET,
    history_file,
)
from ragtrace.history.source import CallOrigin
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import ForkSafeConnection, transaction

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

_PRUNED_AT_ONCE: Final = 500
"""Largest number of calls deleted in one transaction, so that other writers wait only briefly."""
_MOST_ROUNDS: Final = 20
"""Largest number of pruning transactions in a row; the next batch continues the pruning."""
_OF_THE_VALUES: Final = (sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""Errors of SQLite for a value of an unsupported type."""
_MOST_CLAIMS: Final = 200
_TEXT_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """Finished RAG call with its evaluations, waiting to be stored in the history."""

    call: RagCall
    evaluations: tuple[Evaluation, ...]
    decision: str | None
    """Reason of the sampling decision for the judge; None: there was no decision."""
    at: float
    """Time when the finished call was queued, in seconds since the epoch."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory used by the queued call, in bytes."""
        call = self.call
        texts = [call.query or "", call.answer or "", *(document.text for document in call.contexts or ())]
        # Memory in bytes that a call takes without its texts, estimated.
        return 1_000 + 200 * len(call.tags) + sum(map(len, texts))


@dataclass(frozen=True, slots=True)
class QueuedVerdict:
    """Verdict of a guard on the answer of a call, waiting to be stored behind the call."""

    span: SpanContext
    """Context of the root span of the call."""
    verdict: GuardVerdict


Queued: TypeAlias = QueuedCall | QueuedVerdict | Feedback | AlertIncident
"""Everything that is written to a history."""


class HistoryWriter:
    """Single-threaded writer of a history file, which stores RAG calls with their scores and deletes old calls.

    Every method may raise `sqlite3.Error`.

    Args:
        path: the file; it is created if there is none.
        source: service, release and evaluators of this process.
        most_bytes: size that the file may have.
        texts: whether to store queries, documents and answers.
    """

    def __init__(self, path: str, source: CallOrigin, *, most_bytes: int, texts: bool) -> None:
        self._path, self._most_bytes, self._texts = path, most_bytes, texts
        self._database_file = history_file(path)
        self._source = source.encode()
        self._ids: dict[tuple[object, ...], int] = {}
        self._damaged_blocks: set[int] = set()
        """First numbers of the blocks of calls that are not packed, as a row of them is damaged."""
        self._open_alerts: set[str] = set()
        """Ids of this process's incidents that last."""
        self._file = (0, 0)
        self._kept = ForkSafeConnection(self._connect)
        with self._kept.use():
            pass

    def _connect(self) -> sqlite3.Connection:
        self._database_file.create()
        before = _file_identity(self._path)
        database = self._database_file.connect()
        if before is None or _file_identity(self._path) != before:
            database.close()
            raise sqlite3.OperationalError("the file was deleted or replaced while it was opened")
        database.execute(FEEDBACK_TABLE)
        database.execute(GUARD_TABLE)
        database.execute(ALERT_TABLE)
        database.execute(TAG_TABLE)
        database.execute(TAG_INDEX)
        create_blocks(database)
        self._file = before
        self._ids.clear()
        return database

    def close(self) -> None:
        """Close the history file."""
        self._kept.close()

    def write(self, calls: Sequence[Queued]) -> int:
        """Store a batch of calls, verdicts, feedback and incidents in one transaction.

        Return how many could not be stored.

        If the file was deleted or renamed since it was opened, a new one is created.
        """
        self._close_if_replaced()
        # Number of attempts to write a batch while the file is being deleted or replaced.
        for _ in range(3):
            unreadable = self._write_batch(calls)
            if not self._close_if_replaced():  # True: the file may have been replaced before these calls were written
                return unreadable
        raise sqlite3.OperationalError("the file was deleted or replaced again and again")

    def _close_if_replaced(self) -> bool:
        """Close the history file if it has been deleted or replaced on disk, and return whether it was closed."""
        with self._kept.use() as database:
            if _file_identity(self._path) == self._file:
                return False
            # The log still has the old name and would be lost, so its contents are moved into the renamed file.
            with suppress(sqlite3.Error):
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._kept.close()
        faults.warn_once(
            "history: file replaced",
            "the history %r was deleted, renamed or replaced while it was in use; calls are kept in a new file from "
            "now on; every further time is counted in ragtrace.stats().faults",
            self._path,
        )
        return True

    def _write_batch(self, calls: Sequence[Queued]) -> int:
        unreadable = 0
        with self._transaction() as database:
            for call in calls:
                database.execute("SAVEPOINT one")
                try:
                    if isinstance(call, Feedback):
                        _write_feedback(database, call, texts=self._texts)
                    elif isinstance(call, QueuedVerdict):
                        _write_verdict(database, call)
                    elif isinstance(call, AlertIncident):
                        self._write_alert(database, call)
                    else:
                        self._write(database, call)
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_THE_VALUES):
                        raise
                    # The application's names and numbers may be of any type, so one call may be impossible to store.
                    database.execute("ROLLBACK TO one")
                    self._ids.clear()
                    faults.record("history: a call", error)
                    unreadable += 1
                database.execute("RELEASE one")
            self._note_open_alerts(database, calls)
        return unreadable

    def _write_alert(self, database: sqlite3.Connection, incident: AlertIncident) -> None:
        """Store what is known of an incident; what was seen while it lasted stays."""
        values = [_storable_text(each) if isinstance(each, str) else each for each in astuple(incident)]
        database.execute(
            f"INSERT INTO alerts VALUES ({', '.join('?' * len(values))}) ON CONFLICT (id) DO UPDATE SET"
            " seen = max(seen, excluded.seen), ended = coalesce(excluded.ended, ended),"
            " calls = max(calls, excluded.calls), value = coalesce(excluded.value, value),"
            " low = coalesce(excluded.low, low), high = coalesce(excluded.high, high)",
            values,
        )
        if incident.ended is None:
            self._open_alerts.add(incident.id)
        else:
            self._open_alerts.discard(incident.id)

    def _note_open_alerts(self, database: sqlite3.Connection, stored: Sequence[Queued]) -> None:
        """Store with a batch of calls that this process's open incidents last.

        Of a process that is killed, a reader then knows until when they did.
        """
        times = [each.at for each in stored if isinstance(each, QueuedCall)]
        if times and self._open_alerts:
            rows = [(max(times), incident) for incident in sorted(self._open_alerts)]
            database.executemany("UPDATE alerts SET seen = max(seen, ?) WHERE id = ?", rows)

    def add_evaluation(self, number: int, evaluation: Evaluation) -> bool:
        """Add *evaluation* to a stored call that other evaluators have scored.

        Return False if the call has been deleted.

        Of an earlier evaluation by the same evaluator, the probability stays, and its cost is added.

        Args:
            number: row number of the call.
            evaluation: the evaluation.
        """
        with self._transaction() as database:
            if database.execute("SELECT 1 FROM calls WHERE number = ?", (number,)).fetchone() is None:
                return False
            row = database.execute(
                "SELECT probability, n_calls, input_tokens, output_tokens, cost_usd FROM evaluations WHERE number = ?"
                " AND evaluator IN (SELECT id FROM evaluators WHERE name = ? AND version = ? AND type = ?)",
                (number, *_storable_texts((evaluation.evaluator, evaluation.version, evaluation.type))),
            ).fetchone()
            if row is not None:
                total = Cost.from_report(evaluation) + Cost(*row[1:])
                evaluation = replace(evaluation, probability=row[0], **asdict(total))
            self._insert_evaluation(database, number, evaluation, is_new=False)
            return True

    def _write(self, database: sqlite3.Connection, offered: QueuedCall) -> None:
        number, is_new = self._insert_call(database, offered)
        if is_new:
            row = number, _call_json(offered.call, texts=self._texts)
            database.execute("INSERT INTO bodies (number, body) VALUES (?, ?)", row)
        if offered.call.tags:  # where a call is stored a second time, they are the same
            rows = [
                (number, name, encodable(tag_text(value)), _tag_type(value))
                for name, value in offered.call.tags.items()
            ]
            database.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?, ?, ?)", rows)
        for evaluation in offered.evaluations:
            self._insert_evaluation(database, number, evaluation, is_new=is_new)

    def _insert_call(self, database: sqlite3.Connection, offered: QueuedCall) -> tuple[int, bool]:
        """Insert the row of a RAG call, and return the row number and whether the row is new.

        A row is old if another process has stored the same call with the scores of other evaluators.
        """
        call, decision, span = offered.call, _storable_text(offered.decision), offered.call.span
        # A call scored in two processes has the same trace and span ids, and so becomes one row.
        key = None if span is None else _identity(span)
        source = self._row_id(database, "sources", ("body",), (self._source,))
        cursor = database.execute(
            "INSERT OR IGNORE INTO calls (identity, at, source, workflow, model, decision) VALUES (?, ?, ?, ?, ?, ?)",
            (key, offered.at, source, *_storable_texts((call.workflow, call.model)), decision),
        )
        if cursor.rowcount and cursor.lastrowid is not None:
            return cursor.lastrowid, True
        (number,) = database.execute("SELECT number FROM calls WHERE identity = ?", (key,)).fetchone()
        database.execute("UPDATE calls SET decision = coalesce(?, decision) WHERE number = ?", (decision, number))
        return number, False

    def _insert_evaluation(
        self, database: sqlite3.Connection, number: int, evaluation: Evaluation, *, is_new: bool
    ) -> None:
        names = _storable_texts((evaluation.evaluator, evaluation.version, evaluation.type))
        who = self._row_id(database, "evaluators", ("name", "version", "type"), names)
        database.execute(
            "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number, who, evaluation.probability, evaluation.duration_s, evaluation.n_calls,
                evaluation.input_tokens, evaluation.output_tokens, evaluation.cost_usd,
                _storable_text(evaluation.error),
            ),
        )  # fmt: skip
        rows: list[tuple[object, ...]] = []
        for name, result in evaluation.results.items():
            names = ("metric", "version", "evaluator", "higher_is_better")
            series = encodable(name), encodable(result.metric_version), who, int(result.higher_is_better)
            row = number, self._row_id(database, "series", names, series)
            if isinstance(result, Score):
                rows.append((*row, result.value, None, _storable_text(result.label)))
            else:
                rows.append((*row, None, encodable(result.reason), None))
        database.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", rows)
        if not is_new:
            database.execute("DELETE FROM evidence WHERE number = ? AND evaluator = ?", (number, who))
        shown = _evidence_json(evaluation, texts=self._texts)
        if shown is not None:
            database.execute("INSERT INTO evidence VALUES (?, ?, ?)", (number, who, shown))

    def _row_id(
        self, database: sqlite3.Connection, table: str, names: Sequence[str], values: tuple[object, ...]
    ) -> int:
        """Return the id of the row of *table* with these *values*, inserting the row if necessary."""
        known = self._ids.get((table, *values))
        if known is not None:
            return known
        marks, where = ", ".join("?" * len(names)), " AND ".join(f"{name} = ?" for name in names)
        database.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})", values)
        (found,) = database.execute(f"SELECT id FROM {table} WHERE {where}", values).fetchone()
        self._ids[(table, *values)] = found
        return int(found)

    def pack_block(self, may_go_on: Callable[[], bool] = lambda: True) -> bool:
        """Pack the newest block of calls that can be packed and is not, and return whether one was packed.

        Args:
            may_go_on: returns, before each step, whether there is time for it; else the block is packed another time.
        """
        with self._kept.use() as database:
            first = next_to_pack(database, self._damaged_blocks)
            if first is None:
                return False
            if damaged_calls(database, "number >= ? AND number < ?", (first, first + BLOCK)):
                self._damaged_blocks.add(first)
                return False  # readers read its rows, of which they leave out those that are damaged
        return may_go_on() and pack(self._kept.use, first, may_go_on)

    def prune(self, before: float) -> int:
        """Delete old calls from the history file, and further calls, oldest first, if the file is too large.

        Args:
            before: time before which a call is old, in seconds since the epoch.

        Returns:
            How many calls that were not old were deleted because of the size.
        """
        self._delete_old_feedback(before)
        deleted = 0
        for _ in range(_MOST_ROUNDS):
            of_round = self._delete(
                "SELECT number FROM calls WHERE at < ? ORDER BY at LIMIT ?", (before, _PRUNED_AT_ONCE)
            )
            if not of_round:
                break
            deleted += of_round
        early = self._delete_for_size()
        if deleted or early:
            self._delete_old_alerts()
        return early

    def _delete_for_size(self) -> int:
        """Delete calls, oldest first, if the file is too large, and return how many."""
        if self.used_bytes <= self._most_bytes:
            return 0
        early = 0
        for _ in range(_MOST_ROUNDS):
            # Share of the size limit to which pruning shrinks the file.
            excess = 1.0 - 0.95 * self._most_bytes / self.used_bytes
            if excess <= 0.0:
                break
            with self._kept.use() as database:
                (calls,) = database.execute("SELECT coalesce(max(number) - min(number), 0) + 1 FROM calls").fetchone()
            share = max(1, min(_PRUNED_AT_ONCE, round(excess * int(calls))))
            early += self._delete("SELECT number FROM calls ORDER BY at LIMIT ?", (share,))
        return early

    @property
    def newest_time(self) -> float | None:
        """Time of the newest call in the history in seconds since the epoch, or None if it has no calls."""
        with self._kept.use() as database:
            (at,) = database.execute("SELECT max(at) FROM calls").fetchone()
        return None if at is None else float(at)

    @property
    def used_bytes(self) -> int:
        """Number of bytes of the history file that are in use. SQLite keeps the rest of the file for later calls."""
        with self._kept.use() as database:
            pages, free, each = (
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * each)

    def _delete_old_feedback(self, before: float) -> None:
        """Delete all user feedback that was given before the time *before*.

        The calls that such feedback is about are older than the feedback, so the history does not keep them either.
        """
        with self._kept.use() as database:
            if database.execute("SELECT 1 FROM feedback WHERE at < ? LIMIT 1", (before,)).fetchone():
                with self._transaction():
                    database.execute("DELETE FROM feedback WHERE at < ?", (before,))

    def _delete_old_alerts(self) -> None:
        """Delete the incidents of alerts that were over before the oldest call that is still stored."""
        old = "coalesce(ended, seen) < (SELECT min(at) FROM calls)"
        with self._kept.use() as database:
            if database.execute(f"SELECT 1 FROM alerts WHERE {old} LIMIT 1").fetchone():
                with self._transaction():
                    database.execute(f"DELETE FROM alerts WHERE {old}")

    def _delete(self, which: str, values: tuple[object, ...]) -> int:
        with self._kept.use() as database:
            numbers = database.execute(which, values).fetchall()
            if not numbers:  # the usual case, without a transaction for which other writers would wait
                return 0
            with self._transaction():
                of_these = "identity = (SELECT identity FROM calls WHERE number = ?)"
                database.executemany(f"DELETE FROM feedback WHERE {of_these}", numbers)
                for table in OF_A_CALL:
                    database.executemany(f"DELETE FROM {table} WHERE number = ?", numbers)
            return len(numbers)

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        with self._kept.use() as database:
            try:
                with transaction(database):
                    yield database
            except BaseException:
                self._ids.clear()  # the cached ids may belong to rows that are rolled back
                raise


def _identity(span: SpanContext) -> bytes:
    """Return the identity (trace id and span id) of the RAG call with the root span *span*."""
    return span.trace_id.to_bytes(16, "big") + span.span_id.to_bytes(8, "big")


def _write_feedback(database: sqlite3.Connection, feedback: Feedback, *, texts: bool) -> None:
    """Store *feedback*, replacing older feedback with the same id."""
    said = _storable_text(feedback.comment), _storable_text(feedback.correction)
    database.execute(
        "INSERT INTO feedback VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at, "
        "score = excluded.score, label = excluded.label, comment = excluded.comment, "
        "correction = excluded.correction WHERE excluded.at >= at",
        (
            feedback.id, _identity(feedback.span), feedback.time_ns / 1e9, encodable(feedback.name), feedback.score,
            _storable_text(feedback.label), *(said if texts else (None, None)), _storable_text(feedback.user),
        ),
    )  # fmt: skip


def _write_verdict(database: sqlite3.Connection, queued: QueuedVerdict) -> None:
    """Store the verdict of a guard with its call. Of a call that is not stored, which is counted, there is none."""
    found = queued.verdict
    names = _storable_texts((found.metric, found.mode, found.verdict, found.action, found.reason))
    database.execute(
        "INSERT OR REPLACE INTO guard_verdicts SELECT number, ?, ?, ?, ?, ?, ?, ? FROM calls WHERE identity = ?",
        (*names, found.score, found.added_s, _identity(queued.span)),
    )


def _tag_type(value: TagValue) -> str:
    """Return the type of a tag's value, as it is stored beside the value's text."""
    return next(name for kind, name in TAG_TYPES.items() if isinstance(value, kind))


def _file_identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode numbers of the file at *path*, or None if there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


# --- a call and its evaluations as rows -------------------------------------------------------------------------------


def _call_json(call: RagCall, *, texts: bool) -> str:
    """Encode the texts and usage of a RAG call as one line of ASCII JSON.

    The JSON has all texts, or without *texts* only the number of documents.
    """
    record: dict[str, Any] = {name: getattr(call, name) for name in IN_A_BODY}
    record |= {name: value for name in WHERE_SET if (value := getattr(call, name))}
    record["input_tokens"], record["output_tokens"] = call.usage.input_tokens, call.usage.output_tokens
    record["duration_s"] = None if call.timing is None else call.timing.duration_s
    passages: list[dict[str, Any]] = [{"text": None} for _ in call.contexts or ()]
    if texts:
        names = ("text", "id", "score", "duplicate")
        passages = [{name: getattr(each, name) for name in names} for each in call.contexts or ()]
        for passage, each in zip(passages, call.contexts or (), strict=True):
            if each.cut_chars:
                passage["cut_chars"] = each.cut_chars
    record["contexts"] = None if call.contexts is None else passages
    if not texts:
        record |= dict.fromkeys(("query", "answer", "reference", "conversation_id")) | {"without_texts": True}
    return json.dumps(record)


def _evidence_json(evaluation: Evaluation, *, texts: bool) -> str | None:
    """Encode the evidence for scores as JSON, or return None if there is none.

    The evidence: claims, explanations, the served model, and the names of the metrics whose scores are uncalibrated.
    """
    results = evaluation.results
    claims = next((r.claims for r in results.values() if isinstance(r, Score) and r.claims), ())
    explained = {name: r.explanation[:_TEXT_CHARS] for name, r in results.items() if r.explanation and texts}
    served = {"served_model": evaluation.served_model} if evaluation.served_model else {}
    # The stored score is raw also where a calibration gave it a probability.
    raw = [name for name, r in results.items() if is_raw_probability(r)]
    uncalibrated = {UNCALIBRATED: raw} if raw else {}
    if not claims and not explained and not served and not raw:
        return None
    kept = [_claim_fields(claim, texts=texts) for claim in claims[:_MOST_CLAIMS]]
    return json.dumps({"claims": kept, "explanations": explained, **served, **uncalibrated})


def _claim_fields(claim: Claim, *, texts: bool) -> Mapping[str, Any]:
    names = ("start", "end", "support", "checkable", "unsupported", "evidence", "score")
    record: dict[str, Any] = {name: getattr(claim, name) for name in names}
    if claim.probability is not None:
        record["probability"] = claim.probability
    if texts:
        record |= {"text": claim.text[:_TEXT_CHARS], "quote": (claim.quote or "")[:_TEXT_CHARS]}
    return record


def _storable_text(value: str | None) -> str | None:
    """Return *text* without lone surrogates, which SQLite refuses, or None if *text* is None."""
    return None if value is None else encodable(value)


def _storable_texts(values: Sequence[str | None]) -> tuple[str, ...]:
    """Return each text without lone surrogates, which SQLite refuses, with "" for None."""
    return tuple(encodable(value or "") for value in values)
