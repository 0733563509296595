"""Datasets of test cases without duplicates, made from the stored RAG calls that a filter selects."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragtrace.capture.redact import Redact
from ragtrace.core.step import GuardVerdict
from ragtrace.core.tags import MOST_VALUE_CHARS
from ragtrace.core.unscored_reasons import status_of
from ragtrace.history.call_filter import CallFilter, tag_of
from ragtrace.history.reading import CallColumns, HistoryReader, StoredFeedback, StoredResult
from ragtrace.labels.label_store import Label, call_of_identity, labels_in
from ragtrace.report.model import Period

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORDS: Final = re.compile(r"\w+")
_NO_TEXT: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Dataset:
    """Test cases made from the RAG calls of a history, and counts of the calls that were left out, by reason."""

    cases: tuple[dict[str, Any], ...]
    """Test cases as objects of a JSON Lines file that `ragtrace score` and the pytest plugin read."""
    calls: int
    """Number of calls of the period."""
    matched: int
    unknown: int
    """Number of calls without a value that the filter compares, which match neither the filter nor its opposite."""
    duplicates: int
    """Number of matching calls that are duplicates of one before them: see `build_dataset`."""
    no_content: int
    """Number of matching calls without a stored query."""
    left_out: int
    """Number of matching calls beyond the wanted number of cases."""


def build_dataset(
    path: str,
    where: CallFilter | None,
    period: Period,
    *,
    one_per_query: bool = False,
    most: int | None = None,
    redact: Redact | None = None,
    numbers: Sequence[int] | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> Dataset:
    """Build a dataset of test cases from the RAG calls in the history at *path*.

    Args:
        path: file of the history.
        where: which calls; None: all.
        period: time of the calls.
        one_per_query: whether calls with the same query are duplicates whatever their contexts are.
        most: most cases; None: no limit.
        redact: rules for the texts, in addition to those that the application redacted them by.
        numbers: row numbers of the only calls to take, in the order of the cases; None: all that *where* selects, the
            newest first. No other calls are read.
        tags: texts of the values of tags that each call has, by name.

    Raises:
        SettingsError: the filter names a metric of which the calls have no results.
        SQLiteFileError: there is no history.
        sqlite3.Error: it cannot be read.
    """
    with closing(HistoryReader(path, tags=tags)) as reader:
        columns = reader.columns(period.start, period.end, numbers=numbers)
        facts = _CallFacts(reader, columns)
        every = np.ones(len(columns), dtype=bool)
        chosen, other = (every, ~every) if where is None else where.select(facts)
        matching = np.flatnonzero(chosen)
        in_order: list[int] = matching[np.argsort(-columns.at[matching], kind="stable")].tolist()
        if numbers is not None:
            position = {int(columns.number[at]): at for at in in_order}
            in_order = [position[number] for number in numbers if number in position]
        cases: dict[tuple[object, ...], dict[str, Any]] = {}
        no_content = duplicates = left_out = 0
        for at in in_order:
            number = int(columns.number[at])
            body = reader.texts([number])[number].body
            query = body.get("query")
            if not isinstance(query, str) or not query.strip():
                no_content += 1
                continue
            workflow = columns.workflows[int(columns.workflow[at])]
            key = (workflow, normalized(query), None if one_per_query else _contexts_key(body))
            if key in cases:
                duplicates += 1
                cases[key]["duplicates"] += 1
            elif most is not None and len(cases) >= most:
                left_out += 1
            else:
                cases[key] = facts.case(at, body, redact)
        selected_by = [] if where is None else where.metrics
        for case in cases.values():
            case["selected_by"] = selected_by
    return Dataset(
        tuple(cases.values()),
        calls=len(columns),
        matched=len(matching),
        unknown=int((~chosen & ~other).sum()),
        duplicates=duplicates,
        no_content=no_content,
        left_out=left_out,
    )


def normalized(query: str) -> str:
    """Return the words of *query* in a normal form that is equal for near-identical queries.

    Case, punctuation, whitespace and the width of characters make no difference.
    """
    text = unicodedata.normalize("NFKC", query).casefold()
    return " ".join(_WORDS.findall(text)) or " ".join(text.split())


def _contexts_key(body: Mapping[str, Any]) -> frozenset[str] | None:
    contexts: Sequence[Mapping[str, Any]] | None = body.get("contexts")
    return None if contexts is None else frozenset(" ".join(str(each.get("text")).split()) for each in contexts)


class _CallFacts:
    """Data of a period's calls, for evaluating a filter and for building test cases."""

    def __init__(self, reader: HistoryReader, columns: CallColumns) -> None:
        self._reader, self._columns = reader, columns
        self._position = {number: at for at, number in enumerate(columns.number.tolist())}
        self._first, self._last = min(self._position, default=0), max(self._position, default=-1)

    # --- what a filter compares ---------------------------------------------------------------------------------------

    def metrics(self) -> Sequence[str]:
        """Return the names of all metrics for which the history has results."""
        return sorted({series.metric for series in self._columns.series.values()})

    def numbers(self, field: str) -> NDArray[np.float64]:
        """Return the score of each call for the metric *field*, with NaN for calls without a score.

        For the field `feedback`, it is the lowest score that users gave the call.
        """
        found = np.full(len(self._columns), np.nan)
        if field == "feedback":
            for at, given in self._feedback.items():
                found[at] = min((each.score for each in given if each.score is not None), default=np.nan)
            return found
        for at, result in self._results_of(field).items():
            found[at] = np.nan if result.score is None else result.score
        return found

    def texts(self, field: str) -> Sequence[frozenset[str]]:
        """Return the text values that each call has for *field*, such as the workflow or the labels."""
        columns, (metric, _, part) = self._columns, field.rpartition(".")
        if field in ("workflow", "model"):
            codes, names = (
                (columns.workflow, columns.workflows) if field == "workflow" else (columns.model, columns.models)
            )
            return [_texts(names[int(code)]) for code in codes]
        if field in ("release", "service"):
            of_source = {number: _texts(getattr(source, field)) for number, source in columns.sources.items()}
            return [of_source[number] for number in columns.source.tolist()]
        if field == "status":
            failed = self._reader.errors(self._first, self._last)
            return [_texts("error" if number in failed else "ok") for number in columns.number.tolist()]
        if (tag := tag_of(field)) is not None:
            return self._of_tag(tag)
        if field == "guard" or metric == "guard":
            return [self._of_guard(at, part) for at in range(len(columns))]
        if field == "label" or metric == "label":
            return [
                frozenset(each.label for each in self._labels.get(at, ()) if field == "label" or each.metric == part)
                for at in range(len(columns))
            ]
        results = self._results_of(metric)
        return [_texts(self._part(results[at], part)) if at in results else _NO_TEXT for at in range(len(columns))]

    def _of_tag(self, name: str) -> list[frozenset[str]]:
        """Return the text of one tag of each call, or nothing for a call without it."""
        texts = dict(self._reader.tag_texts(name, self._first, self._last))
        return [_texts(texts.get(number, "")) for number in self._columns.number.tolist()]

    def _of_guard(self, at: int, part: str) -> frozenset[str]:
        """Return one field of the guard's verdict on the call at position *at*, or nothing for a call without one."""
        found = self._guards.get(at)
        if found is None:
            return _NO_TEXT
        if part == "guard":
            return frozenset({found.verdict} if found.is_checked else {found.verdict, "unchecked"})
        if part == "reason":
            return _texts(found.reason_in_counts)
        return _texts({"metric": found.metric, "mode": found.mode, "action": found.action}[part])

    @cached_property
    def _guards(self) -> dict[int, GuardVerdict]:
        rows = self._reader.guard_verdicts(self._first, self._last)
        return {self._position[row.number]: row.verdict for row in rows if row.number in self._position}

    def _part(self, result: StoredResult, part: str) -> str:
        if part == "evaluator":
            return self._evaluator(result)
        if part == "status":
            return _status(result)
        return (result.reason if part == "reason" else result.label) or ""

    def _results_of(self, metric: str) -> dict[int, StoredResult]:
        """Return one result of *metric* for each call, from the preferred evaluator.

        A score is preferred to a missing score, and then the evaluator from whose scores the metric is estimated.
        """
        found: dict[int, StoredResult] = {}
        for result in self._reader.results(self._first, self._last, metric):
            at = self._position.get(result.number)
            if at is not None and (at not in found or self._rank(at, result) < self._rank(at, found[at])):
                found[at] = result
        return found

    def _rank(self, at: int, result: StoredResult) -> tuple[bool, int, int]:
        """Return a sort key that puts the preferred result of a call first."""
        source, evaluator = self._columns.sources[int(self._columns.source[at])], self._evaluator(result)
        preferred = (source.estimated_by(self._columns.series[result.series].metric), source.judge, source.screen)
        return (
            result.score is None,
            preferred.index(evaluator) if evaluator in preferred else len(preferred),
            -result.series,
        )

    def _evaluator(self, result: StoredResult) -> str:
        return self._columns.evaluators[self._columns.series[result.series].evaluator]

    # --- what people said ---------------------------------------------------------------------------------------------

    @cached_property
    def _labels(self) -> dict[int, list[Label]]:
        return self._by_call(labels_in(self._reader))

    @cached_property
    def _feedback(self) -> dict[int, list[StoredFeedback]]:
        return self._by_call(self._reader.feedback())

    def _by_call(self, given: Sequence[Any]) -> dict[int, list[Any]]:
        of_given = self._reader.numbers_of({each.identity for each in given})
        position = {identity: self._position[number] for identity, number in of_given if number in self._position}
        found: dict[int, list[Any]] = {}
        for each in given:
            if each.identity in position:
                found.setdefault(position[each.identity], []).append(each)
        return found

    # --- the case of a call -------------------------------------------------------------------------------------------

    def case(self, at: int, body: Mapping[str, Any], redact: Redact | None) -> dict[str, Any]:
        """Build the test case for the call at position *at*, with its texts, scores, human labels and feedback.

        Args:
            at: position of the call among the columns.
            body: its stored texts.
            redact: rules for the texts.
        """
        columns = self._columns
        text = _redacted_by(redact)
        contexts: Sequence[Mapping[str, Any]] | None = body.get("contexts")
        feedback = self._feedback.get(at, [])
        corrections = [each.correction for each in feedback if each.correction]
        number = int(columns.number[at])
        identity = self._reader.identity(number)
        return {
            "id": None if identity is None else call_of_identity(identity),
            "query": text(body.get("query")),
            "contexts": None
            if contexts is None
            else [
                {"text": text(each.get("text")), "id": text(each.get("id")), "score": each.get("score")}
                for each in contexts
            ],
            "answer": text(body.get("answer")),
            # A person's correction of the answer is the best reference.
            "reference": text(corrections[-1] if corrections else body.get("reference")),
            "workflow": columns.workflows[int(columns.workflow[at])],
            "model": columns.models[int(columns.model[at])] or None,
            "tags": {
                name: (text(value) or "")[:MOST_VALUE_CHARS] if isinstance(value, str) else value
                for name, value in self._reader.tags([number]).get(number, {}).items()
            },
            "release": columns.sources[int(columns.source[at])].release,
            "at": float(columns.at[at]),
            "error": body.get("error"),
            "scores": self._scores(at),
            "labels": [
                {
                    "metric": each.metric,
                    "label": each.label,
                    "reviewer": each.reviewer,
                    "comment": text(each.comment),
                }
                for each in self._labels.get(at, ())
            ],
            "feedback": [
                {"name": each.name, "score": each.score, "label": each.label, "comment": text(each.comment)}
                for each in feedback
            ],
            "duplicates": 0,
        }

    def _scores(self, at: int) -> dict[str, dict[str, Any]]:
        """Return the results of the call at position *at* by metric."""
        number = int(self._columns.number[at])
        best: dict[str, StoredResult] = {}
        for result in self._reader.results(number, number):
            metric = self._columns.series[result.series].metric
            if metric not in best or self._rank(at, result) < self._rank(at, best[metric]):
                best[metric] = result
        return {metric: dict(self._score_fields(result)) for metric, result in sorted(best.items())}

    def _score_fields(self, result: StoredResult) -> Iterator[tuple[str, Any]]:
        if result.score is None:
            yield from (("status", _status(result)), ("reason", result.reason))
        else:
            yield "score", result.score
        if result.label is not None:
            yield "label", result.label
        yield "evaluator", self._evaluator(result)
        yield "version", self._columns.series[result.series].version


def _texts(text: str) -> frozenset[str]:
    return frozenset({text}) if text else _NO_TEXT


def _status(result: StoredResult) -> str:
    if result.score is not None:
        return "scored"
    try:
        return status_of(result.reason or "")
    except ValueError:  # a reason of another release, or of a user's metric
        return "unscored"


def _redacted_by(redact: Redact | None) -> Callable[[str | None], str | None]:
    def redacted(text: str | None) -> str | None:
        return text if text is None or redact is None else redact.text(text).text

    return redacted
