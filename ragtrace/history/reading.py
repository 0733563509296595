"""Reader of a history file, which returns RAG calls and scores as numpy arrays, one for each table column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from ragtrace.core.types import UNCALIBRATED, EvaluatorType
from ragtrace.estimates import ADJUSTED_CALLS, NOT_LEARNED, Baseline, BaselineKey, CallTraits, CollectedScores
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = "NDArray[np.float64]"
    Ints: TypeAlias = "NDArray[np.signedinteger[Any]]"
    """Integers of any width: of the millions in a large history, each takes the bytes that it needs."""
    Part: TypeAlias = "tuple[NDArray[Any], ...]"

_CALLS: Final = [("number", "i8"), ("at", "f8"), ("source", "i8"), ("workflow", "i8"), ("model", "i8"), ("why", "i8")]
_DETAILS: Final = [
    ("key", "i8"), ("probability", "f8"), ("requests", "i8"), ("input", "i8"), ("output", "i8"), ("cost", "f8"),
]  # fmt: skip
_BLOCK: Final = 16_384
"""Calls, or rows, that are read at a time: as texts or Python objects they take many times the memory of columns."""
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
    raw_scores: frozenset[tuple[str, str]] = frozenset()
    """Metric and evaluator (`id@version`) of scores that are raw probabilities of a decision model: no rates."""

    def __len__(self) -> int:
        return len(self.number)

    def without_costs(self) -> CallColumns:
        """Return the columns without durations, tokens and prices, whose memory is free when these here are gone."""
        empty = np.zeros(0, np.int8)
        return replace(
            self, duration_s=np.zeros(0), requests=empty, input_tokens=empty, output_tokens=empty,
            cost_usd=np.zeros(0), failed=empty,
        )  # fmt: skip

    def without_evaluations(self) -> CallColumns:
        """Return the columns of the calls alone, without scores, evaluations and costs."""
        empty = np.zeros(0, np.int8)
        return replace(
            self.without_costs(), scored_call=empty, scored_series=empty, score=np.zeros(0), evaluation_call=empty,
            evaluator=empty, probability=np.zeros(0),
        )  # fmt: skip


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
        # Asked for both at once, SQLite reads the whole index.
        ends = "SELECT (SELECT min(at) FROM calls), (SELECT max(at) FROM calls)"
        low, high = self.database.execute(ends).fetchone()
        return None if low is None else (low, high)

    def columns(
        self,
        start: float,
        end: float,
        workflow: str | None = None,
        *,
        model: str | None = None,
        release: str | None = None,
    ) -> CallColumns:
        """Return the RAG calls between two times as columns, with their scores and evaluations.

        Args:
            start: time of the first call, in seconds since the epoch.
            end: time before which the calls end.
            workflow: of this workflow alone; None: of all.
            model: of this model alone; None: of all.
            release: of this release of the application alone; None: of all.
        """
        where, chosen = self.calls_condition(start, end, workflow, model, release)
        select = self.database.execute
        names = _NameNumbers(), _NameNumbers(), _NameNumbers()
        number, at, source, workflow_code, model_code, why = self._calls(where, chosen, names)
        scored_call, scored_series, score = self._scores(number)
        costs = self._evaluations(number)
        sources = {number: CallOrigin.decode(body) for number, body in select("SELECT id, body FROM sources")}
        named = select("SELECT id, name, version, type FROM evaluators").fetchall()
        evaluators = {number: f"{name}@{version}" for number, name, version, _ in named}
        types: dict[int, EvaluatorType] = {number: type_ for number, _, _, type_ in named}
        rows = select("SELECT id, metric, version, evaluator, higher_is_better FROM series")
        series = {number: StoredSeries(metric, version, by, bool(up)) for number, metric, version, by, up in rows}
        return CallColumns(
            _narrow(number), at, source, workflow_code, model_code, why,
            sources, names[0].names, names[1].names, names[2].names, evaluators, series,
            scored_call, scored_series, score, *costs, self._raw_scores(evaluators, types, series),
        )  # fmt: skip

    def _calls(
        self, where: str, chosen: Sequence[object], names: tuple[_NameNumbers, _NameNumbers, _NameNumbers]
    ) -> list[NDArray[Any]]:
        """Return number, time, source, workflow, model and decision of the calls that meet an SQL condition, by number.

        Args:
            where: the condition.
            chosen: values of its parameters.
            names: the numbers of workflows, models and decisions, which are added to it.
        """
        select = self.database.execute
        first, last = select(f"SELECT min(number), max(number) FROM calls WHERE {where}", chosen).fetchone()
        parts: list[Part] = [(np.zeros(0, np.int64), np.zeros(0), *(np.zeros(0, np.int8) for _ in range(4)))]
        while first is not None and first <= last:
            end = min(first + _BLOCK, last + 1)
            condition, values = f"number >= ? AND number < ? AND {where}", [first, end, *chosen]
            parts.append(self._packed_calls(condition, values, names) or self._named_calls(condition, values, names))
            (first,) = select("SELECT min(number) FROM calls WHERE number >= ?", (end,)).fetchone()
        number, at, *codes = _joined(parts)
        source, *named = codes
        if (at[1:] < at[:-1]).any():  # names have the order of the calls in time
            order = np.argsort(at, kind="stable")
            named = [each.reorder(code, order) for each, code in zip(names, named, strict=True)]
        return [number, at, source, *named]

    def _packed_calls(self, condition: str, values: Sequence[Any], names: Sequence[_NameNumbers]) -> Part | None:
        """Return a block of calls as `_named_calls` does, or None if it has a name that is not known yet.

        SQLite packs what is no float into one integer, as each value that it hands to Python takes its time.
        """
        if self._key_bits("sources") > _SOURCE_BITS or not all(0 < len(each.names) <= _OTHER_NAME for each in names):
            return None
        columns, parameters, packed = ("workflow", "model", "coalesce(decision, '')"), list[object](), "source"
        for column, known in zip(columns, names, strict=True):
            cases = " ".join(f"WHEN ? THEN {code}" for code in range(len(known.names)))
            packed = f"({packed}) << {_NAME_BITS} | CASE {column} {cases} ELSE {_OTHER_NAME} END"
            parameters += known.names
        above = _SOURCE_BITS + len(names) * _NAME_BITS
        packed = f"(number - ?) << {above} | ({packed})"
        key, at = self._block("calls NOT INDEXED", packed, "at", condition, values, [values[0], *parameters])
        codes = [key >> bits * _NAME_BITS & _OTHER_NAME for bits in (2, 1, 0)]
        if any((code == _OTHER_NAME).any() for code in codes):
            return None
        source = key >> len(names) * _NAME_BITS & (1 << _SOURCE_BITS) - 1
        return (key >> above) + values[0], at, _narrow(source), *map(_narrow, codes)

    def _named_calls(self, condition: str, values: Sequence[object], names: Sequence[_NameNumbers]) -> Part:
        """Return the columns of the calls that meet a condition, and add new names to *names*."""
        rows = self.database.execute(
            "SELECT number, at, source, workflow, model, coalesce(decision, '') FROM calls NOT INDEXED"
            f" WHERE {condition} ORDER BY number",
            values,
        )
        workflows, models, decisions = names
        block = np.fromiter(((n, at, s, workflows[w], models[m], decisions[d]) for n, at, s, w, m, d in rows), _CALLS)
        return block["number"].copy(), block["at"].copy(), *(_narrow(block[name]) for name, _ in _CALLS[2:])

    def _scores(self, numbers: Ints) -> tuple[Ints, Ints, Floats]:
        """Return position of the call in *numbers*, series and score of every score of the given calls."""
        bits = self._key_bits("series")
        parts: list[Part] = [(np.zeros(0, np.int8), np.zeros(0, np.int8), np.zeros(0))]
        for key, score in self._keyed_rows(numbers, "results", f"number << {bits} | series", "score"):
            at, ours = _positions(numbers, key >> bits)
            series = key & (1 << bits) - 1
            parts.append((at, _narrow(series[ours]), score[ours]))
        call, of_series, score = _joined(parts)
        return call, of_series, score

    def _evaluations(self, numbers: Ints) -> tuple[Ints, Ints, Floats, Floats, Ints, Ints, Ints, Floats, Ints]:
        """Return the evaluations of the given calls, with the position of each one's call in *numbers*.

        Most calls are seen by an evaluator that sees all calls and asks no model, so the probability, requests, tokens
        and costs are read only where they differ from that.
        """
        bits = self._key_bits("evaluators")
        parts: list[Part] = [(np.zeros(0, np.int64), np.zeros(0), *(np.zeros(0, np.int8) for _ in range(4)))]
        flagged = f"(number << {bits} | evaluator) << 2 | ((cost_usd IS NULL) << 1) | (error IS NOT NULL)"
        for key, duration_s in self._keyed_rows(numbers, "evaluations", flagged, "duration_s"):
            at, ours = _positions(numbers, key >> bits + 2)
            evaluator = _narrow((key >> 2 & (1 << bits) - 1)[ours])
            flags = ((key >> bit & 1)[ours].astype(np.int8) for bit in (1, 0))
            parts.append(((key >> 2)[ours], duration_s[ours], at, evaluator, *flags))
        key, duration_s, call, evaluator, unpriced, failed = _joined(parts)
        # numpy has no NULL: of an unknown price, the row of the evaluation has told.
        what = f"number << {bits} | evaluator, probability, n_calls, input_tokens, output_tokens, coalesce(cost_usd, 0)"
        differs = "(probability <> 1 OR n_calls OR input_tokens OR output_tokens OR coalesce(cost_usd, 0))"
        rows_of = self.database.execute(
            f"SELECT {what} FROM evaluations WHERE number BETWEEN ? AND ? AND {differs} ORDER BY number, evaluator",
            (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1),
        )
        parts = [tuple(np.zeros(0, dtype) for _, dtype in _DETAILS)]
        while len(block := np.fromiter(islice(rows_of, _BLOCK), dtype=_DETAILS)):
            _, ours = _positions(numbers, block["key"] >> bits)
            parts.append(tuple(block[name][ours] for name, _ in _DETAILS))
        known, *details = _joined(parts)
        rows = np.searchsorted(key, known)
        probability, requests, read, written, cost = (
            _filled(len(key), usual, rows, values) for usual, values in zip((1.0, 0, 0, 0, 0.0), details, strict=True)
        )
        cost[unpriced.astype(bool) | np.isinf(cost)] = np.nan
        return call, evaluator, probability, duration_s, requests, read, written, cost, failed

    def _key_bits(self, table: str) -> int:
        """Return how many bits the ids of a small table take, below the number of a call."""
        (largest,) = self.database.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        return int(largest).bit_length()

    def _keyed_rows(
        self, numbers: Ints, table: str, key: str, value: str
    ) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Yield key and value of a table's rows for the given calls, and for calls between them, in blocks.

        Args:
            numbers: row numbers of the calls, sorted.
            table: name of the table.
            key: SQL of an integer that grows with the table's primary key.
            value: column with the value; rows without one are left out.
        """
        first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
        while first is not None and first <= last:
            end = min(first + _BLOCK, last + 1)
            condition = f"number >= ? AND number < ? AND {value} IS NOT NULL"
            yield self._block(table, key, value, condition, (first, end))
            (first,) = self.database.execute(f"SELECT min(number) FROM {table} WHERE number >= ?", (end,)).fetchone()

    def _block(
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
        texts = self.database.execute(
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
            rows = self.database.execute(
                f"SELECT {key}, {value} FROM {table} WHERE {condition}", [*key_values, *values]
            )
            found = dict(rows.fetchall())
            floats[others] = [found[number] for number in keys[others].tolist()]
        return keys, floats

    def _raw_scores(
        self, evaluators: Mapping[int, str], types: Mapping[int, EvaluatorType], series: Mapping[int, StoredSeries]
    ) -> frozenset[tuple[str, str]]:
        """Return metric and evaluator of the scores that are raw probabilities.

        All scores of a decision judge are. A model of the user's own may give some, which its evidence says.
        """
        found = {
            (each.metric, evaluators[each.evaluator]) for each in series.values() if types[each.evaluator] == "decision"
        }
        for number in (number for number, type_ in types.items() if type_ == "model"):
            rows = self.database.execute(
                "SELECT body FROM evidence WHERE evaluator = ? AND instr(body, ?) ORDER BY number DESC LIMIT 50",
                (number, UNCALIBRATED),
            )
            for (body,) in rows:
                found.update((metric, evaluators[number]) for metric in json.loads(body).get(UNCALIBRATED, ()))
        return frozenset(found)

    def calls_condition(
        self, start: float, end: float, workflow: str | None, model: str | None, release: str | None
    ) -> tuple[str, list[object]]:
        """Return an SQL condition for calls as `columns` chooses them, and the values of its parameters."""
        where, values = "at >= ? AND at < ?", list[object]([start, end])
        for column, name in (("workflow", workflow), ("model", model)):
            if name is not None:
                where, values = f"{where} AND {column} = ?", [*values, name]
        if release is not None:
            rows = self.database.execute("SELECT id, body FROM sources")
            found = [str(int(number)) for number, body in rows if CallOrigin.decode(body).release == release]
            where = f"{where} AND source IN ({', '.join(found)})"
        return where, values

    def count_unscored(
        self,
        start: float,
        end: float,
        workflow: str | None = None,
        *,
        model: str | None = None,
        release: str | None = None,
    ) -> list[tuple[int, str, int]]:
        """Count the unscored results of a period by metric and reason, of the calls that `columns` chooses.

        Returns:
            For each number of a `StoredSeries` and each reason, how many there are.
        """
        where, chosen = self.calls_condition(start, end, workflow, model, release)
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

    def reorder(self, codes: Ints, order: NDArray[np.int64]) -> Ints:
        """Number the names anew, by the first of their calls in *order*, and return the new *codes* of the calls."""
        _, first = np.unique(codes[order], return_index=True)
        ranked = np.argsort(first)
        self.names = [self.names[code] for code in ranked.tolist()]
        self._codes = {name: code for code, name in enumerate(self.names)}
        return _narrow(np.argsort(ranked)[codes])


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


def _narrow(values: NDArray[np.int64]) -> Ints:
    """Return *values* in the narrowest type of integer that holds them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    fits = (each for each in (np.int8, np.int16, np.int32) if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
    return values.astype(next(fits, np.int64))


def _joined(parts: list[Part]) -> list[NDArray[Any]]:
    """Join columns that were read in *parts*, one column after the other, and empty the list to free their memory."""
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    joined: list[NDArray[Any]] = []
    for column in columns:
        joined.append(np.concatenate(column))
        column.clear()
    return joined


def _filled(count: int, usual: float, rows: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Return an array of *count* times the *usual* value, with other *values* in some *rows*."""
    values = _narrow(values) if values.dtype == np.int64 else values
    filled = np.full(count, usual, dtype=values.dtype)
    filled[rows] = values
    return filled


def _question_and_traits(body: Mapping[str, Any]) -> tuple[str | None, CallTraits | None]:
    """Return the query of a stored call and its traits; None where the history has no texts."""
    query = body.get("query") or None
    documents = [(each.get("id"), each.get("text")) for each in body.get("contexts") or ()]
    if not body or any(text is None for _, text in documents) or (query is None and not documents):
        return query, None
    return query, CallTraits.of_texts(query, documents)
