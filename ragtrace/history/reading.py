"""Reader of a history file, which returns RAG calls and scores as numpy arrays, one for each table column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.step import GuardVerdict
from ragtrace.core.tags import TagValue, tag_value
from ragtrace.core.types import UNCALIBRATED, EvaluatorType
from ragtrace.estimates import ADJUSTED_CALLS, NOT_LEARNED, Baseline, BaselineKey, CallTraits, CollectedScores
from ragtrace.history.intact_rows import connect_to_intact_rows, damaged_calls
from ragtrace.history.packed_blocks import Block, ChosenCalls, names_of_blocks, packed_blocks, unpack
from ragtrace.history.row_reading import BLOCK, RowReader
from ragtrace.history.schema import TAG_TYPES
from ragtrace.history.segments import CallNames, Segment, join_segments
from ragtrace.history.source import CallOrigin
from ragtrace.history.stored_json import stored_object

if TYPE_CHECKING:
    from threading import Event

    from numpy.typing import NDArray

    from ragtrace.history.segments import Floats, Ints

_TAGGED: Final = "SELECT number FROM main.tags WHERE name = ? AND value = ? ORDER BY number"
_HAS_TAG: Final = "SELECT 1 FROM main.tags t WHERE t.number = calls.number AND t.name = ? AND t.value = ?"
"""SQL of the calls with a tag, which an index has whole, and of the condition that a call has it."""


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


class StoredVerdict(NamedTuple):
    """Verdict of a guard on the answer of one RAG call, as stored in the history."""

    number: int
    """Row number of the call in the history file."""
    verdict: GuardVerdict


class TagCodes(NamedTuple):
    """Values of one tag of some calls."""

    name: str
    values: Sequence[str]
    """Texts of the values."""
    code: NDArray[np.int16]
    """Position in `values` of the value of each call; -1: it has no such tag."""


class GuardCount(NamedTuple):
    """Number of stored RAG calls that a guard treated alike."""

    workflow: str
    metric: str
    mode: str
    verdict: str
    action: str
    reason: str
    calls: int


class ReadingStoppedError(Exception):
    """Raised by a reader that has been told to stop."""


class HistoryReader:
    """Reader of a history file, which sees the file as it was when the reader was opened.

    Args:
        path: the file.
        stopped: event that is set when the reader is to stop; None: it reads to the end.
        tags: texts of the values of tags by name: of all methods that choose calls by time, workflow, model and
            release, each chooses those with all of these tags alone.

    Raises:
        SQLiteFileError: it is no history.
        sqlite3.Error: it cannot be read.
    """

    def __init__(
        self, path: str, stopped: Event | None = None, *, tags: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._stopped, self._tags = stopped, tuple(tags.items())
        self.damaged: set[int] = set()
        """Row numbers of the calls of which anything was found damaged so far, and left out."""
        self.database = connect_to_intact_rows(path)
        self.database.execute("BEGIN")  # all later reads see the file as of this moment

    def close(self) -> None:
        """Close the history file."""
        with closing(self.database):
            self.database.rollback()

    def go_on(self) -> None:
        """Return at once, unless the reader has been told to stop. It is called before each block or text is read.

        Raises:
            ReadingStoppedError: it has been told to stop.
        """
        if self._stopped is not None and self._stopped.is_set():
            raise ReadingStoppedError

    def note_damage(self, where: str, values: Sequence[object] = ()) -> bool:
        """Add those of the calls that *where* chooses by `number` to `damaged` of which a row is damaged.

        Returns whether there are any.
        """
        found = damaged_calls(self.database, where, values)
        self.damaged |= found
        return bool(found)

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
        numbers: Iterable[int] | None = None,
        unscored: UnscoredCounter | None = None,
    ) -> CallColumns:
        """Return the RAG calls between two times as columns, with their scores and evaluations.

        Args:
            start: time of the first call, in seconds since the epoch.
            end: time before which the calls end.
            workflow: of this workflow alone; None: of all.
            model: of this model alone; None: of all.
            release: of this release of the application alone; None: of all.
            numbers: row numbers of the only calls to read; None: all calls.
            unscored: counts the results without a score of its calls, which must be among these, in the same pass.
        """
        select, names = self.database.execute, CallNames.none()
        chosen = self._chosen_calls(start, end, workflow, model, release)
        chosen = chosen if numbers is None else chosen._replace(numbers=frozenset(numbers))
        blocks = self._blocks(chosen)
        found = join_segments(self._segments(blocks, chosen, names, unscored), len(blocks), names)
        sources = {number: CallOrigin.decode(body) for number, body in select("SELECT id, body FROM sources")}
        named = select("SELECT id, name, version, type FROM evaluators").fetchall()
        evaluators = {number: f"{name}@{version}" for number, name, version, _ in named}
        types: dict[int, EvaluatorType] = {number: type_ for number, _, _, type_ in named}
        rows = select("SELECT id, metric, version, evaluator, higher_is_better FROM series")
        series = {number: StoredSeries(metric, version, by, bool(up)) for number, metric, version, by, up in rows}
        return CallColumns(
            **found._asdict(),
            sources=sources,
            workflows=names.workflows.names,
            models=names.models.names,
            decisions=names.decisions.names,
            evaluators=evaluators,
            series=series,
            raw_scores=self._raw_scores(evaluators, types, series),
        )

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
                of_evidence = stored_object(body) or {}
                found.update((metric, evaluators[number]) for metric in of_evidence.get(UNCALIBRATED, ()))
        return frozenset(found)

    def calls_condition(
        self, start: float, end: float, workflow: str | None, model: str | None, release: str | None
    ) -> tuple[str, list[object]]:
        """Return an SQL condition for calls as `columns` chooses them, and the values of its parameters."""
        return _condition(self._chosen_calls(start, end, workflow, model, release))

    def _chosen_calls(
        self, start: float, end: float, workflow: str | None, model: str | None, release: str | None
    ) -> ChosenCalls:
        """Return the choice of calls that the arguments of `columns` make."""
        of_release = None
        if release is not None:
            rows = self.database.execute("SELECT id, body FROM sources")
            of_release = frozenset(int(number) for number, body in rows if CallOrigin.decode(body).release == release)
        return ChosenCalls(start, end, workflow, model, of_release, tags=self._tags, tagged=self._tagged)

    @cached_property
    def _tagged(self) -> NDArray[np.int64] | None:
        """Row numbers of all calls with the reader's tags, lowest first; None: it has none."""
        if not self._tags:
            return None
        if not self.has_table("tags"):  # an older release created the history
            return np.empty(0, np.int64)
        of_tags = (
            np.fromiter((number for (number,) in self.database.execute(_TAGGED, tag)), np.int64) for tag in self._tags
        )
        return reduce(lambda found, more: np.intersect1d(found, more, assume_unique=True), of_tags)

    def _segments(
        self, blocks: Mapping[int, bool], chosen: ChosenCalls, names: CallNames, unscored: UnscoredCounter | None
    ) -> Iterator[Segment]:
        """Yield the columns of the chosen calls, lowest number first, block by block."""
        rows, intact = (RowReader(self.database, names, schema) for schema in ("main", "temp"))
        for first, is_packed in blocks.items():
            self.go_on()
            block = unpack(self.database, first) if is_packed else None
            found = first if block is None else block
            if unscored is not None:
                unscored.add(found)
            if isinstance(found, Block):
                yield found.segment(found.choose(chosen), names)
            else:
                is_whole = not self.note_damage("number >= ? AND number < ?", (found, found + BLOCK))
                yield (rows if is_whole else intact).read(found, *_condition(chosen))

    def worst_scores(
        self,
        better: Mapping[int, bool],
        start: float,
        end: float,
        workflow: str | None = None,
        *,
        model: str | None,
        release: str | None,
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return how bad the worst score of each RAG call is, of those calls that `columns` chooses and have a score.

        Args:
            better: numbers of the stored series whose scores count, and whether a high score of each is good.
            start: as for `columns`.
            end: as for `columns`.
            workflow: as for `columns`.
            model: as for `columns`.
            release: as for `columns`.

        Returns:
            The numbers of the calls, lowest first, and for each the highest score, or the lowest with a minus sign
            where a high score is good.
        """
        chosen = self._chosen_calls(start, end, workflow, model, release)
        blocks = (
            (first, unpack(self.database, first) if is_packed else None)
            for first, is_packed in self._blocks(chosen).items()
        )
        parts = [
            self._worst_in_rows(first, chosen, better) if block is None else _worst_in_block(block, chosen, better)
            for first, block in blocks
        ]
        numbers = np.concatenate([np.empty(0, np.int64), *(number for number, _ in parts)])
        return numbers, np.concatenate([np.empty(0, np.float64), *(badness for _, badness in parts)])

    def _worst_in_rows(
        self, first: int, chosen: ChosenCalls, better: Mapping[int, bool]
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return what `worst_scores` does of the calls of a block that is not packed."""
        where, values = _condition(chosen)
        rows = self.database.execute(
            f"SELECT number, max(CASE WHEN series IN ({', '.join(str(each) for each, up in better.items() if up)})"
            f" THEN -score ELSE score END) FROM calls JOIN results USING (number) WHERE {where} AND number >= ?"
            f" AND number < ? AND series IN ({', '.join(map(str, better))}) AND score IS NOT NULL"
            " GROUP BY number ORDER BY number",
            (*values, first, first + BLOCK),
        )
        found = np.fromiter(rows, dtype=[("number", "i8"), ("badness", "f8")])
        return found["number"], found["badness"]

    def workflows_and_models(self) -> tuple[list[str], list[str]]:
        """Return the names of the workflows and of the models of all calls, sorted."""
        packed = names_of_blocks(self.database) if self.has_table("blocks") else {}
        workflows, models = set[str](), set[str]()
        for first in self._first_numbers():
            if first in packed:
                workflows.update(packed[first][0])
                models.update(packed[first][1])
                continue
            for name, found in (("workflow", workflows), ("model", models)):
                condition = "number >= ? AND number < ?"
                rows = self.database.execute(
                    f"SELECT DISTINCT {name} FROM calls WHERE {condition}", (first, first + BLOCK)
                )
                found.update(value for (value,) in rows)
        return sorted(workflows), sorted(models)

    def _first_numbers(self) -> Iterator[int]:
        """Yield the first number of each block that has calls."""
        select = self.database.execute
        (number,) = select("SELECT min(number) FROM calls").fetchone()
        while number is not None:
            first = number // BLOCK * BLOCK
            yield first
            (number,) = select("SELECT min(number) FROM calls WHERE number >= ?", (first + BLOCK,)).fetchone()

    def _blocks(self, chosen: ChosenCalls) -> dict[int, bool]:
        """Return the first number of each block that may have calls of the chosen time, with whether it is packed."""
        packed = packed_blocks(self.database) if self.has_table("blocks") else {}
        found: dict[int, bool] = {}
        for first in self._first_numbers():
            times = packed.get(first)
            if chosen.tagged is not None and not np.diff(np.searchsorted(chosen.tagged, (first, first + BLOCK)))[0]:
                continue
            if chosen.numbers is not None and not any(first <= number < first + BLOCK for number in chosen.numbers):
                continue
            if times is None or (times[0] < chosen.end and times[1] >= chosen.start):
                found[first] = times is not None
        return found

    def number_bounds(self, start: float, end: float) -> tuple[int, int] | None:
        """Return bounds of the row numbers of the calls between two times, which need not be the narrowest.

        The result is None if there are no calls. It is found by the blocks, as SQLite would look at each call.
        """
        blocks = [*self._blocks(self._chosen_calls(start, end, None, None, None))]
        if not blocks:
            return None
        (newest,) = self.database.execute("SELECT max(number) FROM calls").fetchone()
        return blocks[0], min(newest, blocks[-1] + BLOCK - 1)

    def unscored_counter(
        self,
        start: float,
        end: float,
        workflow: str | None = None,
        *,
        model: str | None = None,
        release: str | None = None,
    ) -> UnscoredCounter:
        """Return a counter of the results without a score of the calls that `columns` chooses by these arguments."""
        return UnscoredCounter(self, self._chosen_calls(start, end, workflow, model, release))

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
            self.go_on()
            row = self.database.execute("SELECT body FROM bodies WHERE number = ?", (number,)).fetchone()
            if row is not None and (body := self._object(number, row[0])):
                found[number] = body
        return found

    def _object(self, number: int, text: str | None) -> Mapping[str, Any]:
        """Return the JSON object that is stored of the call *number*, or {} if there is none or it is damaged."""
        if text is None:
            return {}
        found = stored_object(text)
        if found is None:
            self.damaged.add(number)
        return found or {}

    def evidence(self, number: int) -> dict[int, Mapping[str, Any]]:
        """Return the evidence for the scores of a stored call (claims and explanations), by evaluator number."""
        rows = self.database.execute("SELECT evaluator, body FROM evidence WHERE number = ?", (number,))
        return {evaluator: self._object(number, body) for evaluator, body in rows}

    def errors(self, first: int, last: int) -> dict[int, str]:
        """Return the exception type of each stored RAG call that raised, by row number.

        Args:
            first: row number of the first call.
            last: row number of the last call.
        """
        rows = self.database.execute("SELECT number, body FROM bodies WHERE number BETWEEN ? AND ?", (first, last))
        failed = ((number, body) for number, body in rows if '"error": null' not in body)
        found = {number: self._object(number, body).get("error") for number, body in failed}
        return {number: str(error) for number, error in found.items() if error}

    def identity(self, number: int) -> bytes | None:
        """Return the identity (trace id and span id) of the stored call with the row *number*, if it has one."""
        row = self.database.execute("SELECT identity FROM calls WHERE number = ?", (number,)).fetchone()
        return None if row is None else row[0]

    def without_identity(self) -> NDArray[np.int64]:
        """Return the row numbers of the stored calls that have no identity, in no order."""
        rows = self.database.execute("SELECT number FROM calls WHERE identity IS NULL")  # by the index, usually none
        return np.fromiter((number for (number,) in rows), np.int64)

    def numbers_of(self, identities: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        """Yield those of the *identities* that a stored call has, each with the row number of the call."""
        for identity in identities:
            row = self.database.execute("SELECT number FROM calls WHERE identity = ?", (identity,)).fetchone()
            if row is not None:
                yield identity, row[0]

    def feedback(self) -> list[StoredFeedback]:
        """Return the user feedback on RAG calls, oldest first, or nothing if an older release created the history."""
        if not self.has_table("feedback"):
            return []
        rows = self.database.execute(
            "SELECT identity, at, name, score, label, comment, correction FROM feedback ORDER BY at"
        )
        return [StoredFeedback(*row) for row in rows]

    def guard_counts(
        self, start: float, end: float, workflow: str | None = None, *, model: str | None, release: str | None
    ) -> list[GuardCount]:
        """Count the verdicts of guards on the calls that `columns` chooses by guard, verdict, action and reason."""
        if not self.has_table("guard_verdicts"):
            return []
        if self.database.execute("SELECT 1 FROM guard_verdicts LIMIT 1").fetchone() is None:
            return []  # else SQLite looks for a verdict on each of the calls
        where, values = self.calls_condition(start, end, workflow, model, release)
        rows = self.database.execute(
            "SELECT workflow, metric, mode, verdict, action, reason, count(*) FROM guard_verdicts"
            f" JOIN calls USING (number) WHERE {where} GROUP BY 1, 2, 3, 4, 5, 6",
            values,
        )
        return [GuardCount(*row) for row in rows]

    def guard_added(
        self, start: float, end: float, workflow: str, metric: str, mode: str, *, model: str | None, release: str | None
    ) -> Floats:
        """Return the seconds for which a guard held answers back, of the calls that `columns` chooses."""
        where, values = self.calls_condition(start, end, workflow, model, release)
        rows = self.database.execute(
            f"SELECT added_s FROM guard_verdicts JOIN calls USING (number) WHERE {where} AND metric = ? AND mode = ?"
            " AND added_s IS NOT NULL",
            [*values, metric, mode],
        )
        return np.fromiter((seconds for (seconds,) in rows), np.float64)

    def guard_verdicts_of(
        self,
        identities: Iterable[bytes],
        start: float,
        end: float,
        workflow: str | None = None,
        *,
        model: str | None,
        release: str | None,
    ) -> Iterator[tuple[bytes, str, GuardVerdict]]:
        """Yield identity, workflow and guard's verdict of the calls with *identities* that `columns` chooses."""
        where, values = self.calls_condition(start, end, workflow, model, release)
        for identity in identities:
            rows = self.database.execute(
                "SELECT workflow, metric, mode, verdict, action, reason, score, added_s FROM calls"
                f" JOIN guard_verdicts USING (number) WHERE identity = ? AND {where}",
                [identity, *values],
            )
            for of_workflow, *verdict in rows:
                yield identity, of_workflow, GuardVerdict(*verdict)

    def guard_verdicts(self, first: int, last: int) -> list[StoredVerdict]:
        """Return the verdicts of guards on stored RAG calls, or nothing if an older release created the history.

        Args:
            first: row number of the first call.
            last: row number of the last call.
        """
        if not self.has_table("guard_verdicts"):
            return []
        rows = self.database.execute(
            "SELECT number, metric, mode, verdict, action, reason, score, added_s FROM guard_verdicts"
            " WHERE number BETWEEN ? AND ? ORDER BY number",
            (first, last),
        )
        return [StoredVerdict(number, GuardVerdict(*rest)) for number, *rest in rows]

    def tags(self, numbers: Iterable[int]) -> dict[int, dict[str, TagValue]]:
        """Return the tags of stored RAG calls by row number and name, without the calls that have none.

        There are none if an older release created the history. A damaged tag is left out.
        """
        if not self.has_table("tags"):
            return {}
        found: dict[int, dict[str, TagValue]] = {}
        for number in numbers:
            rows = self.database.execute("SELECT name, value, type FROM tags WHERE number = ? ORDER BY name", (number,))
            for name, text, type_ in rows:
                value = _tag_value(text, type_)
                if value is None:
                    self.damaged.add(number)
                else:
                    found.setdefault(number, {})[name] = value
        return found

    def tag_names(self) -> list[str]:
        """Return the names of all tags of calls, sorted."""
        if not self.has_table("tags"):  # an older release created the history
            return []
        found: list[str] = []
        following = "SELECT min(name) FROM main.tags WHERE name > ?"  # by the index, whose values are not looked at
        while (name := self.database.execute(following, (found[-1] if found else "",)).fetchone()[0]) is not None:
            found.append(str(name))
        return found

    def tag_codes(self, numbers: NDArray[Any], fewest: int, most: int) -> Iterator[TagCodes]:
        """Yield the tags by which calls can be divided into groups, each with the value of every call.

        Args:
            numbers: row numbers of the calls.
            fewest: fewest values that a tag has among these calls.
            most: most values that it has in the history, whose other calls are not looked at.
        """
        if not len(numbers):
            return
        first, last = int(numbers.min()), int(numbers.max())
        for name in self.tag_names():
            self.go_on()
            values = self._tag_values(name, most)
            of_value = [self._numbers_with(name, value, first, last) for value in values]
            if sum(map(bool, map(len, of_value))) < fewest:
                continue
            tagged = np.concatenate(of_value)
            codes = np.repeat(np.arange(len(values), dtype=np.int16), [len(each) for each in of_value])
            order = np.argsort(tagged, kind="stable")
            tagged, codes = tagged[order], codes[order]
            place = np.minimum(np.searchsorted(tagged, numbers), len(tagged) - 1)
            yield TagCodes(name, values, np.where(tagged[place] == numbers, codes[place], np.int16(-1)))

    def _tag_values(self, name: str, most: int) -> list[str]:
        """Return the texts of all values of a tag, or nothing if there are more than *most*."""
        following = "SELECT min(value) FROM main.tags WHERE name = ? AND value > ?"  # by the index, as in `tag_names`
        found: list[str] = []
        while len(found) <= most:
            (value,) = self.database.execute(following, (name, found[-1] if found else "")).fetchone()
            if not isinstance(value, str):  # none, or damaged ones, which come last
                return found
            found.append(value)
        return []

    def _numbers_with(self, name: str, value: str, first: int, last: int) -> NDArray[np.int64]:
        rows = self.database.execute(
            "SELECT number FROM main.tags WHERE name = ? AND value = ? AND number BETWEEN ? AND ?",
            (name, value, first, last),
        )
        return np.fromiter((number for (number,) in rows), np.int64)

    def tag_texts(self, name: str, first: int, last: int) -> list[tuple[int, str]]:
        """Return row number and text of the value of each stored RAG call that has a tag.

        Args:
            name: name of the tag.
            first: row number of the first call.
            last: row number of the last call.
        """
        if not self.has_table("tags"):  # an older release created the history
            return []
        rows = self.database.execute(
            "SELECT number, value FROM tags WHERE name = ? AND number BETWEEN ? AND ?", (name, first, last)
        )
        return rows.fetchall()

    def alerts(self, start: float, end: float) -> list[AlertIncident]:
        """Return the incidents of alerts that lasted at some time of a period, the earliest first.

        There are none if an older release created the history.
        """
        if not self.has_table("alerts"):
            return []
        names = [each.name for each in fields(AlertIncident)]
        rows = self.database.execute(
            f"SELECT {', '.join(names)} FROM alerts WHERE since < ? AND coalesce(ended, seen) >= ? ORDER BY since, id",
            (end, start),
        )
        found = (AlertIncident(*row) for row in rows)
        return [replace(each, against_baseline=bool(each.against_baseline), is_raw=bool(each.is_raw)) for each in found]

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
        return {} if row is None else self._object(number, row[0])

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

    def served_models(self, evaluator: str, numbers: Iterable[int]) -> dict[int, str]:
        """Return the model that the judge's server used for some stored calls, by row number.

        Calls of which it is not known are left out.

        Args:
            evaluator: the judge, as id@version.
            numbers: row numbers of the calls.
        """
        name, _, version = evaluator.rpartition("@")
        found: dict[int, str] = {}
        for number in sorted(numbers):
            rows = self.database.execute(
                "SELECT body FROM evidence WHERE number = ? AND evaluator IN (SELECT id FROM evaluators WHERE name = ?"
                " AND version = ?) AND instr(body, '\"served_model\": ') > 0 ORDER BY rowid",
                (number, name, version),
            )
            models = (self._object(number, body).get("served_model") for (body,) in rows)
            found.update((number, model) for model in models if isinstance(model, str))
        return found

    def questions(self, numbers: Iterable[int]) -> dict[int, str | None]:
        """Return the queries of stored RAG calls by row number, with None where the history has no texts."""
        found: dict[int, str | None] = {}
        for number in sorted(numbers):
            row = self.database.execute("SELECT body FROM bodies WHERE number = ?", (number,)).fetchone()
            found[number] = None if row is None else self._object(number, row[0]).get("query") or None
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
            {} if row is None else self._object(number, row[0]),
            {evaluator: self._object(number, body) for evaluator, body in shown},
            dict(labels),
        )


class UnscoredCounter:
    """Counter of the results without a score of chosen calls by metric and reason, block by block.

    Args:
        reader: the history.
        chosen: the calls.
    """

    def __init__(self, reader: HistoryReader, chosen: ChosenCalls) -> None:
        self._database, self._chosen = reader.database, chosen
        self._counts: Counter[tuple[int, str]] = Counter()

    def add(self, found: Block | int) -> None:
        """Count the results of a packed block, or of the block that begins with a number."""
        if isinstance(found, Block):
            self._counts.update(found.count_unscored(found.choose(self._chosen)))
            return
        where, values = _condition(self._chosen)
        rows = self._database.execute(
            "SELECT series, reason, count(*) FROM calls NOT INDEXED JOIN results USING (number) WHERE number >= ?"
            f" AND number < ? AND {where} AND score IS NULL GROUP BY series, reason",
            [found, found + BLOCK, *values],
        )
        self._counts.update({(series, reason): count for series, reason, count in rows})

    def counts(self) -> list[tuple[int, str, int]]:
        """Return how many there are for each number of a `StoredSeries` and each reason."""
        in_order = sorted(self._counts.items(), key=lambda item: (item[0][0], item[0][1] or ""))
        return [(series, reason, count) for (series, reason), count in in_order]


def _worst_in_block(block: Block, chosen: ChosenCalls, better: Mapping[int, bool]) -> tuple[NDArray[np.int64], Floats]:
    """Return what `HistoryReader.worst_scores` does of the calls of a packed block."""
    calls, worst = block.calls, np.full(len(block.calls.number), -np.inf)
    for series, up in better.items():
        of_series = calls.scored_series == series
        at = calls.scored_call[of_series]  # a call has one score of a series at most
        worst[at] = np.maximum(worst[at], -calls.score[of_series] if up else calls.score[of_series])
    found = (worst > -np.inf) & block.choose(chosen)
    return calls.number[found].astype(np.int64), worst[found]


def _condition(chosen: ChosenCalls) -> tuple[str, list[object]]:
    """Return an SQL condition for the chosen calls, and the values of its parameters."""
    where, values = "at >= ? AND at < ?", list[object]([chosen.start, chosen.end])
    for column, name in (("workflow", chosen.workflow), ("model", chosen.model)):
        if name is not None:
            where, values = f"{where} AND {column} = ?", [*values, name]
    if chosen.sources is not None:
        where = f"{where} AND source IN ({', '.join(map(str, sorted(chosen.sources)))})"
    if chosen.numbers is not None:
        where = f"{where} AND number IN ({', '.join(map(str, sorted(chosen.numbers)))})"
    for tag in chosen.tags:
        if chosen.tagged is not None and not len(chosen.tagged):  # the table may be missing
            return f"{where} AND 0", values
        where = f"{where} AND EXISTS ({_HAS_TAG})"
        values += tag
    return where, values


def _tag_value(text: str, type_: str) -> TagValue | None:
    """Return the value of a stored tag, or None if it is damaged."""
    try:
        if type_ == TAG_TYPES[bool]:
            return {"true": True, "false": False}[text]
        return tag_value(next(kind for kind, name in TAG_TYPES.items() if name == type_)(text))
    except (KeyError, ValueError, StopIteration):
        return None


def _question_and_traits(body: Mapping[str, Any]) -> tuple[str | None, CallTraits | None]:
    """Return the query of a stored call and its traits; None where the history has no texts."""
    query = body.get("query") or None
    documents = [(each.get("id"), each.get("text")) for each in body.get("contexts") or ()]
    if not body or any(text is None for _, text in documents) or (query is None and not documents):
        return query, None
    return query, CallTraits.of_texts(query, documents)
