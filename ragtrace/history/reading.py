"""Reader of a history file, which returns RAG calls and scores as numpy arrays, one for each table column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from ragtrace.estimates import ADJUSTED_CALLS, NOT_LEARNED, Baseline, BaselineKey, CallTraits, CollectedScores
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = "NDArray[np.float64]"
    Ints: TypeAlias = "NDArray[np.int64]"

_CALLS: Final = [("number", "i8"), ("at", "f8"), ("source", "i4"), ("workflow", "i4"), ("model", "i4"), ("why", "i4")]
_RESULTS: Final = [("number", "i8"), ("series", "i4"), ("score", "f8")]
_EVALUATIONS: Final = [
    ("number", "i8"), ("evaluator", "i4"), ("probability", "f8"), ("duration", "f8"), ("requests", "i8"),
    ("input", "i8"), ("output", "i8"), ("cost", "f8"), ("failed", "i1"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """Key of stored scores in a history file: a metric in one version, and the evaluator that computed it."""

    metric: str
    version: str
    evaluator: int
    """Number of the evaluator in `CallColumns.evaluators`."""
    higher_is_better: bool


@dataclass(frozen=True, slots=True)
class CallColumns:
    """RAG calls of a period with their scores and evaluations as numpy arrays, oldest call first.

    Scores and evaluations refer to a call by its position (`scored_call`, `evaluation_call`).
    """

    number: Ints
    at: Floats
    """Times of the calls, in seconds since the epoch."""
    source: Ints
    workflow: Ints
    model: Ints
    why: Ints
    """Reason of the sampling decision for each call, as an index into `decisions`."""
    sources: Mapping[int, CallOrigin]
    workflows: Sequence[str]
    models: Sequence[str]
    decisions: Sequence[str]
    evaluators: Mapping[int, str]
    """Evaluators as `id@version`, by number."""
    series: Mapping[int, StoredSeries]
    scored_call: Ints
    scored_series: Ints
    score: Floats
    evaluation_call: Ints
    evaluator: Ints
    probability: Floats
    duration_s: Floats
    requests: Ints
    input_tokens: Ints
    output_tokens: Ints
    cost_usd: Floats
    """Cost in US dollars; NaN: the price is not known."""
    failed: Ints

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True)
class CallTexts:
    """Texts of one stored RAG call, with the evaluators' claims and explanations, and the labels of the scores."""

    number: int
    trace_id: str
    body: Mapping[str, Any]
    evidence: Mapping[int, Mapping[str, Any]]
    """Evidence of each evaluator, by the number of the evaluator."""
    labels: Mapping[int, str]
    """Labels of the scores, by the number of the series."""


class StoredResult(NamedTuple):
    """Result of one metric for one stored RAG call: a score, or the reason for a missing score."""

    number: int
    """Row number of the call in the history file."""
    series: int
    score: float | None
    reason: str | None
    label: str | None


class StoredFeedback(NamedTuple):
    """User feedback on one RAG call, as stored in the history."""

    identity: bytes
    at: float
    name: str
    score: float | None
    label: str | None
    comment: str | None
    correction: str | None


class HistoryReader:
    """Reader of a history file, which sees the file as it was when the reader was opened.

    Raises:
        SQLiteFileError: it is no history.
        sqlite3.Error: it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.database = history_file(path).connect_to_read()
        self.database.execute("BEGIN")  # all later reads see the file as of this moment

    def close(self) -> None:
        """Close the history file."""
        with closing(self.database):
            self.database.rollback()

    def time_range(self) -> tuple[float, float] | None:
        """Return the times of the oldest and the newest RAG call in the history, or None if it has no calls."""
        low, high = self.database.execute("SELECT min(at), max(at) FROM calls").fetchone()
        return None if low is None else (low, high)

    def columns(self, start: float, end: float, workflow: str | None = None) -> CallColumns:
        """Return the RAG calls between two times as columns, with their scores and evaluations.

        Args:
            start: time of the first call, in seconds since the epoch.
            end: time before which the calls end.
            workflow: of this workflow alone; None: of all.
        """
        where, chosen = _calls_condition(start, end, workflow)
        names = _NameNumbers(), _NameNumbers(), _NameNumbers()
        rows = self.database.execute(
            f"SELECT number, at, source, workflow, model, coalesce(decision, '') FROM calls WHERE {where}", chosen
        )
        coded = ((n, at, s, names[0][w], names[1][m], names[2][d]) for n, at, s, w, m, d in rows)
        calls = np.fromiter(coded, dtype=_CALLS)
        calls = calls[np.argsort(calls["number"], kind="stable")]
        scored_call, scored = self._rows_of_calls(
            calls["number"], _RESULTS, "results", "series, score", "score IS NOT NULL"
        )
        what = "evaluator, probability, duration_s, n_calls, input_tokens, output_tokens, cost_usd, error IS NOT NULL"
        evaluation_call, looked = self._rows_of_calls(calls["number"], _EVALUATIONS, "evaluations", what, "1")
        select = self.database.execute
        sources = {number: CallOrigin.decode(body) for number, body in select("SELECT id, body FROM sources")}
        named = select("SELECT id, name, version FROM evaluators")
        evaluators = {number: f"{name}@{version}" for number, name, version in named}
        rows = select("SELECT id, metric, version, evaluator, higher_is_better FROM series")
        series = {number: StoredSeries(metric, version, by, bool(up)) for number, metric, version, by, up in rows}
        return CallColumns(
            calls["number"], calls["at"], calls["source"], calls["workflow"], calls["model"], calls["why"],
            sources, names[0].names, names[1].names, names[2].names, evaluators, series,
            scored_call, scored["series"], scored["score"],
            evaluation_call, looked["evaluator"], looked["probability"], looked["duration"], looked["requests"],
            looked["input"], looked["output"], looked["cost"], looked["failed"],
        )  # fmt: skip

    def _rows_of_calls(
        self, numbers: Ints, dtype: Sequence[tuple[str, str]], table: str, what: str, condition: str
    ) -> tuple[Ints, Any]:
        """Return the rows of a table that belong to the given calls, each with the position of its call in *numbers*.

        Args:
            numbers: row numbers of the calls, sorted.
            dtype: fields of the rows.
            table: name of the table.
            what: its columns to read.
            condition: SQL condition for its rows.
        """
        least, most = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
        rows = self.database.execute(
            f"SELECT number, {what} FROM {table} WHERE number BETWEEN ? AND ? AND {condition}", (least, most)
        )
        known: Iterable[tuple[Any, ...]] = rows
        if table == "evaluations":  # numpy has no NULL, so an unknown price becomes NaN
            known = (row if row[7] is not None else (*row[:7], np.nan, *row[8:]) for row in rows)
        found = np.fromiter(known, dtype=list(dtype))
        if not len(numbers):
            return np.zeros(0, dtype=np.int64), found
        at = np.minimum(np.searchsorted(numbers, found["number"]), len(numbers) - 1)
        ours = numbers[at] == found["number"]
        return at[ours], found[ours]

    def count_unscored(self, start: float, end: float, workflow: str | None = None) -> list[tuple[int, str, int]]:
        """Count the unscored results of a period by metric and reason.

        Returns:
            For each number of a `StoredSeries` and each reason, how many there are.
        """
        where, chosen = _calls_condition(start, end, workflow)
        return self.database.execute(
            f"SELECT series, reason, count(*) FROM calls JOIN results USING (number) WHERE {where} AND score IS NULL"
            " GROUP BY series, reason",
            chosen,
        ).fetchall()

    def results(self, first: int, last: int, metric: str | None = None) -> Iterator[StoredResult]:
        """Yield the metric results of stored RAG calls, with or without a score.

        Args:
            first: row number of the first call.
            last: row number of the last call.
            metric: of this metric alone; None: of all.
        """
        rows = self.database.execute(
            "SELECT number, series, score, reason, label FROM results WHERE number BETWEEN ?1 AND ?2"
            " AND (?3 IS NULL OR series IN (SELECT id FROM series WHERE metric = ?3))",
            (first, last, metric),
        )
        return map(StoredResult._make, rows)

    def bodies(self, numbers: Iterable[int]) -> dict[int, Mapping[str, Any]]:
        """Return the stored texts, documents and usage of RAG calls, by row number.

        The evaluators' evidence is not included.
        """
        found: dict[int, Mapping[str, Any]] = {}
        for number in numbers:
            row = self.database.execute("SELECT body FROM bodies WHERE number = ?", (number,)).fetchone()
            if row is not None:
                found[number] = json.loads(row[0])
        return found

    def evidence(self, number: int) -> dict[int, Mapping[str, Any]]:
        """Return the evidence for the scores of a stored call (claims and explanations), by evaluator number."""
        rows = self.database.execute("SELECT evaluator, body FROM evidence WHERE number = ?", (number,))
        return {evaluator: json.loads(body) for evaluator, body in rows}

    def errors(self, first: int, last: int) -> dict[int, str]:
        """Return the exception type of each stored RAG call that raised, by row number.

        Args:
            first: row number of the first call.
            last: row number of the last call.
        """
        rows = self.database.execute("SELECT number, body FROM bodies WHERE number BETWEEN ? AND ?", (first, last))
        found = {number: json.loads(body).get("error") for number, body in rows if '"error": null' not in body}
        return {number: str(error) for number, error in found.items() if error}

    def identities(self) -> dict[int, bytes]:
        """Return the identity (trace id and span id) of each stored call that has one, by row number."""
        return dict(self.database.execute("SELECT number, identity FROM calls WHERE identity IS NOT NULL").fetchall())

    def feedback(self) -> list[StoredFeedback]:
        """Return the user feedback on RAG calls, oldest first, or nothing if an older release created the history."""
        if not self.has_table("feedback"):
            return []
        rows = self.database.execute(
            "SELECT identity, at, name, score, label, comment, correction FROM feedback ORDER BY at"
        )
        return [StoredFeedback(*row) for row in rows]

    def has_table(self, name: str) -> bool:
        """Return whether the file has a table called *name*: an older release may have created the file."""
        found = self.database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,))
        return found.fetchone() is not None

    def baseline(self, start: float, end: float, *, release: str | None, calls: int, least: int) -> Baseline:
        """Compute a baseline, the usual scores of the application, from the stored scores between two times.

        Scores of metrics with another range than [0, 1] are left out.

        Args:
            start: time of the first call, in seconds since the epoch.
            end: time before which the calls end.
            release: use calls of that `service.version` alone; None: of all.
            calls: how many scored calls to use of each workflow, metric and evaluator, the oldest first.
            least: fewest scored calls that make a baseline; with fewer, a running process goes on learning from them.
        """
        columns = self.columns(start, end)
        probability = {
            (call, columns.evaluators[evaluator]): chance
            for call, evaluator, chance in zip(
                columns.evaluation_call.tolist(), columns.evaluator.tolist(), columns.probability.tolist(), strict=True
            )
        }
        rows = zip(columns.scored_call.tolist(), columns.scored_series.tolist(), columns.score.tolist(), strict=True)
        found: dict[BaselineKey, list[tuple[int, float, float]]] = {}
        for call, number, score in sorted(rows):
            series, source = columns.series[number], columns.sources[int(columns.source[call])]
            evaluator = columns.evaluators[series.evaluator]
            of_screen = evaluator == source.screen and series.metric in source.screened
            of_judge = evaluator == source.judge and series.metric in source.judged
            if release not in (None, source.release) or not (of_screen or of_judge):
                continue
            if series.metric in NOT_LEARNED or not 0.0 <= score <= 1.0:
                continue
            key = BaselineKey(columns.workflows[int(columns.workflow[call])], series.metric, evaluator)
            mine = found.setdefault(key, [])
            if len(mine) < calls:
                mine.append((call, score, probability.get((call, evaluator), 1.0)))
        numbers = sorted({int(columns.number[call]) for mine in found.values() for call, *_ in mine})
        asked = {number: _question_and_traits(self.body(number)) for number in numbers}
        begun = {
            key: CollectedScores.concat(
                CollectedScores.single(
                    score,
                    chance,
                    asked[int(columns.number[call])][0],
                    float(columns.at[call]),
                    columns.sources[int(columns.source[call])].release,
                    asked[int(columns.number[call])][1],
                )
                for call, score, chance in mine
            )
            for key, mine in found.items()
        }
        return Baseline(
            {key: mine.distribution_of_first(len(mine)) for key, mine in begun.items() if len(mine) >= least},
            {key: mine for key, mine in begun.items() if len(mine) < least},
            {
                key: mine.adjustment_of_first(len(mine))
                for key, mine in begun.items()
                if len(mine) >= ADJUSTED_CALLS and mine.has_traits
            },
        )

    def body(self, number: int) -> Mapping[str, Any]:
        """Return the stored texts and usage of the call with the row *number*, or {} if there is no such call."""
        row = self.database.execute("SELECT body FROM bodies WHERE number = ?", (number,)).fetchone()
        found: Mapping[str, Any] = {} if row is None else json.loads(row[0])
        return found

    def judged_calls(self, evaluator: str, metrics: Mapping[str, str]) -> set[int]:
        """Return the row numbers of the calls for which one judge has results for all of the given metrics.

        Args:
            evaluator: id@version of the judge.
            metrics: versions of the metrics, by name.
        """
        name, _, version = evaluator.rpartition("@")
        named = [f"{metric}@{of_metric}" for metric, of_metric in metrics.items()]
        rows = self.database.execute(
            "SELECT number FROM results WHERE series IN (SELECT id FROM series WHERE evaluator IN (SELECT id FROM"
            " evaluators WHERE name = ? AND version = ?) AND metric || '@' || version IN"
            f" ({', '.join('?' * len(named))})) GROUP BY number HAVING count(*) >= ?",
            (name, version, *named, len(named)),
        )
        return {number for (number,) in rows}

    def served_models(self, evaluator: str) -> dict[int, str]:
        """Return the model that the judge's server used for each stored call, by row number.

        Calls of which it is not known are left out.
        """
        name, _, version = evaluator.rpartition("@")
        rows = self.database.execute(
            "SELECT number, body FROM evidence WHERE evaluator IN (SELECT id FROM evaluators WHERE name = ? AND"
            " version = ?) AND instr(body, '\"served_model\": ') > 0",
            (name, version),
        )
        found = ((number, json.loads(body).get("served_model")) for number, body in rows)
        return {number: model for number, model in found if isinstance(model, str)}

    def questions(self, numbers: Iterable[int]) -> dict[int, str | None]:
        """Return the queries of stored RAG calls by row number, with None where the history has no texts."""
        found: dict[int, str | None] = {}
        for number in sorted(numbers):
            row = self.database.execute("SELECT body FROM bodies WHERE number = ?", (number,)).fetchone()
            found[number] = None if row is None else json.loads(row[0]).get("query") or None
        return found

    def workflow(self, number: int) -> str:
        """Return the workflow name of the stored call with the row *number*."""
        (found,) = self.database.execute("SELECT workflow FROM calls WHERE number = ?", (number,)).fetchone()
        return str(found)

    def texts(self, numbers: Iterable[int]) -> dict[int, CallTexts]:
        """Return the texts of stored RAG calls by row number, with the evaluators' claims and explanations.

        Args:
            numbers: the row numbers of the calls.
        """
        return {number: self._texts(number) for number in numbers}

    def _texts(self, number: int) -> CallTexts:
        (identity,) = self.database.execute("SELECT identity FROM calls WHERE number = ?", (number,)).fetchone()
        row = self.database.execute("SELECT body FROM bodies WHERE number = ?", (number,)).fetchone()
        shown = self.database.execute("SELECT evaluator, body FROM evidence WHERE number = ?", (number,)).fetchall()
        labels = self.database.execute(
            "SELECT series, label FROM results WHERE number = ? AND label IS NOT NULL", (number,)
        ).fetchall()
        return CallTexts(
            number,
            "" if identity is None else identity[:16].hex(),
            {} if row is None else json.loads(row[0]),
            {evaluator: json.loads(body) for evaluator, body in shown},
            dict(labels),
        )


def _calls_condition(start: float, end: float, workflow: str | None) -> tuple[str, list[object]]:
    """Return an SQL condition for the calls of a period and a workflow, and the values of its parameters."""
    where, values = "at >= ? AND at < ?", [start, end]
    return (where, [*values]) if workflow is None else (f"{where} AND workflow = ?", [*values, workflow])


class _NameNumbers:
    """Mapping that assigns the numbers 0, 1, 2 ... to names on first look-up."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self.names)
            self.names.append(name)
        return code


def _question_and_traits(body: Mapping[str, Any]) -> tuple[str | None, CallTraits | None]:
    """Return the query of a stored call and its traits; None where the history has no texts."""
    query = body.get("query") or None
    documents = [(each.get("id"), each.get("text")) for each in body.get("contexts") or ()]
    if not body or any(text is None for _, text in documents) or (query is None and not documents):
        return query, None
    return query, CallTraits.of_texts(query, documents)
