"""List of the stored RAG calls that a filter selects, page by page, newest first or with the worst scores first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from ragtrace.core.step import CHECKED, GuardVerdict
from ragtrace.history.reading import HistoryReader
from ragtrace.history.source import CallOrigin
from ragtrace.history.stored_json import stored_object
from ragtrace.labels.review_queue import has_text, sql_needle
from ragtrace.report.model import Period
from ragtrace.report.wording import has_verdict
from ragtrace.web.kept_orders import KeptOrders, Order

Status: TypeAlias = Literal["all", "bad", "scored", "unscored", "failed"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
Sort: TypeAlias = Literal["newest", "worst"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
Guarded: TypeAlias = Literal["any", "pass", "fail", "unchecked"]
GUARDED: Final[tuple[Guarded, ...]] = get_args(Guarded)


class _ListedSeries(NamedTuple):
    """Stored series of the metric of a list."""

    evaluator: str
    """Evaluator, as `id@version`."""
    higher_is_better: bool
    is_raw: bool
    """Whether its scores are raw probabilities of a decision model."""
    rank: int
    """Place of its scores in a row of the list: judges stand before evaluators that see every call."""


_Series: TypeAlias = Mapping[int, _ListedSeries]
"""Stored series of a metric, by their number."""
_BAD: Final = 0.5
"""Lowest badness, from 0 to 1, with which a judge finds a call bad, as in a calibration of the judge."""
_MOST_COUNTED: Final = 1_000
"""Most calls of a list that are counted, as many as become test cases at once."""
_EXISTS: Final = "EXISTS (SELECT 1 FROM results r WHERE r.number = calls.number AND r.series IN ({})"
"""Condition, in SQL, that a call has a result of one of some series. More conditions on the result may follow, and the
bracket that ends it."""
_CHECKED: Final = ", ".join(f"'{verdict}'" for verdict in CHECKED)
_VERDICTS: Final[Mapping[Guarded, str]] = {
    "pass": "verdict = 'pass'",
    "fail": "verdict = 'fail'",
    "unchecked": f"verdict NOT IN ({_CHECKED})",
}
"""Condition, in SQL, on the verdict of a guard that each choice but `any` stands for."""


@dataclass(frozen=True, slots=True)
class CallChoice:
    """Filter and order of a list of RAG calls."""

    period: Period
    workflow: str | None = None
    model: str | None = None
    release: str | None = None
    text: str = ""
    """Text that must occur in the query or the answer, ignoring case; empty: any call."""
    metric: str = ""
    """Metric whose scores the list shows, and by which `status` and `sort` are meant; empty: none."""
    status: Status = "all"
    """`bad`: calls that a judge finds bad by the metric; `scored`, `unscored`: calls with and without a score of it;
    `failed`: calls that raised an exception."""
    sort: Sort = "newest"
    guard: Guarded = "any"
    """`pass`, `fail`: calls whose answer a guard found within or beyond its bound; `unchecked`: calls whose guard could
    not find out; `any`: all calls, with a guard and without."""
    since: str = ""
    """The time as it was chosen, such as `24h`, by which a kept order of the list is found; empty: none is kept."""


@dataclass(frozen=True, slots=True)
class ListedScore:
    """Result of one evaluator for one metric of a listed call: a score, or the reason why there is none."""

    evaluator: str
    """Evaluator, as `id@version`."""
    score: float | None
    reason: str
    label: str
    is_raw: bool
    """Whether the score is a raw probability of a decision model."""


@dataclass(frozen=True, slots=True)
class ListedCall:
    """RAG call in a list, with its results for the chosen metric."""

    number: int
    """Row number of the call in the history file."""
    at: float
    workflow: str
    model: str
    release: str
    query: str
    answer: str
    has_texts: bool
    error: str
    scores: tuple[ListedScore, ...]
    """Results for the metric, that of the judge first."""
    guard: GuardVerdict | None
    """Verdict of a guard, if the list is of calls with one."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """Page of a list of calls, with the position after which the next page begins."""

    calls: tuple[ListedCall, ...]
    after: str | None
    """Position after which the next page begins; None: this page is the last."""


class CallCount(NamedTuple):
    """Number of the calls of a list, as far as they were counted."""

    calls: int
    is_whole: bool
    """Whether there are no more."""


class CallList:
    """Reader of lists of RAG calls in a history file.

    Args:
        path: the file.
        orders: beginnings of lists that are kept from request to request; None: none are.
        tags: texts of the values of tags by name, which all calls of the lists have.

    Raises:
        SQLiteFileError: it is no history.
        sqlite3.Error: it cannot be read.
    """

    def __init__(
        self, path: str, orders: KeptOrders | None = None, tags: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._reader, self._orders, self._tags = HistoryReader(path, tags=tags), orders, tuple(tags.items())
        sources = self._reader.database.execute("SELECT id, body FROM sources")
        self._releases: dict[int, str] = {number: CallOrigin.decode(body).release for number, body in sources}

    def close(self) -> None:
        """Close the history file."""
        self._reader.close()

    @property
    def damaged(self) -> set[int]:
        """Row numbers of the calls of which anything was found damaged so far, and left out."""
        return self._reader.damaged

    def page(self, choice: CallChoice, after: str = "", limit: int = 25) -> ListPage:
        """Return the next page of the calls that *choice* selects.

        A search that finds few calls ends after a fraction of a second: the page then has fewer calls than *limit*, or
        none, and `after` says where to continue.

        Args:
            choice: filter and order of the calls.
            after: position after which the page begins; empty: at the beginning.
            limit: most calls of the page.
        """
        series = self._series(choice.metric)
        deadline, found = monotonic() + 0.1, list[ListedCall]()
        parts = self._worst(choice, series, after) if choice.sort == "worst" and series else self._newest(choice, after)
        for numbers, position in parts:
            of_part = {call.number: call for call in self._rows(choice, series, numbers)}
            for number in numbers:
                if number in of_part:
                    found.append(of_part[number])
                    if len(found) == limit:
                        return ListPage(tuple(found), self._position(choice, series, number))
            if monotonic() > deadline:
                return ListPage(tuple(found), position)
        return ListPage(tuple(found), None)

    def count(self, choice: CallChoice) -> CallCount:
        """Count the calls that *choice* selects, up to `_MOST_COUNTED` and for a fraction of a second.

        Calls that a text is searched in are not counted, as each of them would be read.
        """
        if choice.text or choice.status == "failed":
            return CallCount(0, is_whole=False)
        series, deadline, found = self._series(choice.metric), monotonic() + 0.05, 0
        where, values = self._filter(choice, series)
        if choice.sort == "worst" and series:  # which has the calls with a score
            where = f"{where} AND {_EXISTS.format(_numbers(series))} AND r.score IS NOT NULL)"
        # Each part takes some milliseconds, whether many of its calls fit or none.
        for numbers, _ in self._newest(choice, ""):
            (fitting,) = self._reader.database.execute(
                f"SELECT count(*) FROM calls NOT INDEXED WHERE {where} AND number BETWEEN ? AND ?",
                (*values, numbers[-1], numbers[0]),
            ).fetchone()
            found += fitting
            if found > _MOST_COUNTED or monotonic() > deadline:
                return CallCount(min(found, _MOST_COUNTED), is_whole=False)
        return CallCount(found, is_whole=True)

    def in_order(self, choice: CallChoice, numbers: Collection[int]) -> list[int]:
        """Return the calls *numbers* in the order of the list; those that are not in it come last."""
        place = {number: at for at, number in enumerate(sorted(numbers, reverse=True))}
        series = self._series(choice.metric)
        if choice.sort == "worst" and series:
            ordered = self._order(choice, series).numbers
            if not set(numbers) <= set(ordered.tolist()):
                ordered = self._order(choice, series, whole=True).numbers
            listed = ordered[np.isin(ordered, list(numbers))].tolist()
            place = {number: at + len(listed) for number, at in place.items()}
            place.update((number, at) for at, number in enumerate(listed))
        return sorted(numbers, key=lambda number: place[number])

    def neighbours(self, choice: CallChoice, number: int) -> tuple[int | None, int | None]:
        """Return the row numbers of the calls before and after the call *number* in the list.

        None stands for the end of the list, for a call that is in it no more, and where none was found in time.
        """
        series = self._series(choice.metric)
        if choice.sort == "worst" and series:
            kept = self._order(choice, series)
            found = self._neighbours_in(kept, choice, series, number)
            if kept.is_whole or found[1] is not None:
                return found
            return self._neighbours_in(self._order(choice, series, whole=True), choice, series, number)
        newer, older = self._reader.database.execute("SELECT max(number), min(number) FROM calls").fetchone()
        return (
            self._first(choice, series, _parts(range(number + 1, newer + 1))),
            self._first(choice, series, _parts(range(number - 1, older - 1, -1))),
        )

    def _neighbours_in(
        self, order: Order, choice: CallChoice, series: _Series, number: int
    ) -> tuple[int | None, int | None]:
        places = np.flatnonzero(order.numbers == number)
        if not len(places):
            return None, None
        place = int(places[0])
        earlier, later = order.numbers[:place][::-1].tolist(), order.numbers[place + 1 :].tolist()
        return self._first(choice, series, _parts(earlier)), self._first(choice, series, _parts(later))

    def _first(self, choice: CallChoice, series: _Series, parts: Iterable[Sequence[int]]) -> int | None:
        """Return the first call of *parts* that the filter selects, or None if none was found in time."""
        deadline = monotonic() + 0.1
        for numbers in parts:
            fitting = {call.number for call in self._rows(choice, series, numbers)}
            if found := next((each for each in numbers if each in fitting), None):
                return found
            if monotonic() > deadline:
                break
        return None

    def _series(self, metric: str) -> _Series:
        """Return the stored series of *metric*, by number."""
        rows = self._reader.database.execute(
            "SELECT s.id, e.name || '@' || e.version, s.higher_is_better, e.type = 'decision',"
            " CASE e.type WHEN 'llm_judge' THEN 0 WHEN 'decision' THEN 1 ELSE 2 END FROM series s"
            " JOIN evaluators e ON e.id = s.evaluator WHERE s.metric = ?",
            (metric,),
        )
        return {number: _ListedSeries(by, bool(up), bool(raw), rank) for number, by, up, raw, rank in rows}

    # --- order --------------------------------------------------------------------------------------------------------

    def _newest(self, choice: CallChoice, after: str) -> Iterator[tuple[Sequence[int], str]]:
        """Yield the numbers of the calls of the period part by part, newest first, each with a position to go on from.

        Calls are stored in the order in which they end, so the number says which one is newer.
        """
        bounds = self._reader.number_bounds(choice.period.start, choice.period.end)
        if bounds is None:
            return
        least, most = bounds
        end = min(int(after[1:]), most + 1) if after.startswith("n") else most + 1
        if choice.guard != "any":  # few of many calls: other calls are not looked at
            yield from ((part, f"n{part[-1]}") for part in self._guarded(choice, least, end))
            return
        if self._tags:
            yield from ((part, f"n{part[-1]}") for part in self._tagged(least, end))
            return
        while end > least:
            begin = max(least, end - 500)
            yield [*range(end - 1, begin - 1, -1)], f"n{begin}"
            end = begin

    def _guarded(self, choice: CallChoice, least: int, end: int) -> Iterator[Sequence[int]]:
        """Yield the numbers of the calls below *end* with the chosen verdict of a guard part by part, newest first."""
        if not self._reader.has_table("guard_verdicts"):  # an older release created the history
            return
        while True:
            rows = self._reader.database.execute(
                f"SELECT number FROM guard_verdicts WHERE number >= ? AND number < ? AND {_VERDICTS[choice.guard]}"
                " ORDER BY number DESC LIMIT 500",
                (least, end),
            )
            part = [number for (number,) in rows]
            if not part:
                return
            yield part
            end = part[-1]

    def _tagged(self, least: int, end: int) -> Iterator[Sequence[int]]:
        """Yield the numbers of the calls below *end* with the first of the chosen tags part by part, newest first."""
        if not self._reader.has_table("tags"):  # an older release created the history
            return
        while True:
            rows = self._reader.database.execute(
                "SELECT number FROM main.tags WHERE name = ? AND value = ? AND number >= ? AND number < ?"
                " ORDER BY number DESC LIMIT 500",
                (*self._tags[0], least, end),
            )
            part = [number for (number,) in rows]
            if not part:
                return
            yield part
            end = part[-1]

    def _worst(self, choice: CallChoice, series: _Series, after: str) -> Iterator[tuple[Sequence[int], str]]:
        """Yield the numbers of the scored calls of the period part by part, the worst first."""
        order = self._order(choice, series)
        for part in _parts(_after(order, after)):
            after = self._position(choice, series, part[-1])
            yield part, after
        if not order.is_whole:
            for part in _parts(_after(self._order(choice, series, whole=True), after)):
                yield part, self._position(choice, series, part[-1])

    def _order(self, choice: CallChoice, series: _Series, *, whole: bool = False) -> Order:
        """Return the scored calls of the period, worst first: all of them, or those of the beginning that was kept.

        Args:
            choice: filter of the list.
            series: stored series of its metric.
            whole: whether all are needed.
        """
        filters = choice.since, choice.workflow, choice.model, choice.release, choice.metric, self._tags
        orders = self._orders if choice.since else None
        if orders is not None and not whole and (kept := orders.find(filters)) is not None:
            return kept
        began = monotonic()
        order = Order(*self._ordered(choice, series), is_whole=True)
        if orders is not None:
            orders.keep(filters, order, monotonic() - began)
        return order

    def _ordered(
        self, choice: CallChoice, series: _Series
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the scored calls of the period, worst first, and how bad each is: its worst score by any evaluator."""
        period, better = choice.period, {number: each.higher_is_better for number, each in series.items()}
        numbers, badness = self._reader.worst_scores(
            better, period.start, period.end, choice.workflow, model=choice.model, release=choice.release
        )
        numbers, badness = numbers[::-1], badness[::-1]  # the newest first, which a stable sort keeps
        order = np.argsort(-badness, kind="stable")
        return numbers[order], badness[order]

    def _position(self, choice: CallChoice, series: _Series, number: int) -> str:
        """Return the position of the call *number* in the list, after which a page can begin."""
        if choice.sort != "worst" or not series:
            return f"n{number}"
        (badness,) = self._reader.database.execute(
            f"SELECT max(CASE WHEN series IN ({_numbers(n for n, each in series.items() if each.higher_is_better)})"
            f" THEN -score ELSE score END) FROM results WHERE number = ? AND series IN ({_numbers(series)})",
            (number,),
        ).fetchone()
        return f"w{badness if badness is not None else 0.0!r}_{number}"

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _condition(self, choice: CallChoice) -> tuple[str, list[object]]:
        period = choice.period
        return self._reader.calls_condition(period.start, period.end, choice.workflow, choice.model, choice.release)

    def _filter(self, choice: CallChoice, series: _Series) -> tuple[str, list[object]]:
        """Return an SQL condition for the calls that *choice* selects, but for text and errors, and its parameters."""
        where, values = self._condition(choice)
        of_metric = _EXISTS.format(_numbers(series))
        if choice.status == "scored":
            where += f" AND {of_metric} AND r.score IS NOT NULL)"
        elif choice.status == "unscored":
            where += f" AND NOT {of_metric} AND r.score IS NOT NULL)"
        elif choice.status == "bad" and not has_verdict(choice.metric):
            where += " AND 0"
        elif choice.status == "bad":
            first = min((each.rank for each in series.values()), default=0)
            judges = {number: each for number, each in series.items() if each.rank in (first, 0, 1)}
            up, down = (
                _EXISTS.format(_numbers(n for n, each in judges.items() if each.higher_is_better is side))
                for side in (True, False)
            )
            where += f" AND ({up} AND r.score <= {1.0 - _BAD}) OR {down} AND r.score >= {_BAD}))"
        if choice.guard != "any":
            if not self._reader.has_table("guard_verdicts"):  # an older release created the history
                return f"{where} AND 0", values
            of_guard = f"SELECT 1 FROM guard_verdicts g WHERE g.number = calls.number AND {_VERDICTS[choice.guard]}"
            where += f" AND EXISTS ({of_guard})"
        return where, values

    def _rows(self, choice: CallChoice, series: _Series, numbers: Iterable[int]) -> Iterator[ListedCall]:
        """Yield those of the calls *numbers* that the filter selects."""
        chosen = f"number IN ({_numbers(map(int, numbers))})"
        self._reader.note_damage(chosen)
        where, values = self._filter(choice, series)
        if choice.status == "failed":
            where += " AND instr(body, '\"error\": null') = 0"
        if needle := sql_needle(choice.text):  # in SQL first, as parsing the JSON of each body takes longer
            where, values = f"{where} AND instr(lower(body), ?) > 0", [*values, needle]
        rows = self._reader.database.execute(
            f"SELECT number, at, workflow, model, source, body FROM calls LEFT JOIN bodies USING (number) WHERE {where}"
            f" AND {chosen}",
            values,
        )
        for number, at, workflow, model, source, body in rows:
            texts = {} if body is None else stored_object(body)
            if texts is None:
                self.damaged.add(number)
                continue
            error = str(texts.get("error") or "")
            if (choice.text and not has_text(texts, choice.text)) or (choice.status == "failed" and not error):
                continue
            query, answer = str(texts.get("query") or ""), str(texts.get("answer") or "")
            has_texts = bool(texts) and not texts.get("without_texts")
            verdicts = self._reader.guard_verdicts(number, number) if choice.guard != "any" else ()
            yield ListedCall(
                number, at, workflow, model, self._releases.get(source, ""), query, answer, has_texts, error,
                self._scores(number, series), next((each.verdict for each in verdicts), None),
            )  # fmt: skip

    def _scores(self, number: int, series: _Series) -> tuple[ListedScore, ...]:
        rows = self._reader.database.execute(
            f"SELECT series, score, coalesce(reason, ''), coalesce(label, '') FROM results WHERE number = ?"
            f" AND series IN ({_numbers(series)}) ORDER BY series DESC",
            (number,),
        )
        return tuple(
            ListedScore(series[number].evaluator, score, reason, label, series[number].is_raw)
            for number, score, reason, label in sorted(rows, key=lambda row: series[row[0]].rank)
        )


def names_in(path: str) -> dict[str, list[str]]:
    """Return the names of workflows, models, releases, metrics and evaluators in the history at *path*.

    `guard` has the choices of a guard's verdict, or nothing if no guard checked any call, and `tag` the names of tags.
    """
    with closing(HistoryReader(path)) as reader:
        select = reader.database.execute
        sources = (CallOrigin.decode(body).release for (body,) in select("SELECT body FROM sources"))
        workflows, models = reader.workflows_and_models()
        is_guarded = reader.has_table("guard_verdicts") and select("SELECT 1 FROM guard_verdicts LIMIT 1").fetchone()
        return {
            "workflow": workflows,
            "model": models,
            "release": sorted({release for release in sources if release}),
            "metric": [name for (name,) in select("SELECT DISTINCT metric FROM series ORDER BY 1")],
            "guard": [*GUARDED] if is_guarded else [],
            "tag": reader.tag_names(),
            "evaluator": [name for (name,) in select("SELECT DISTINCT name || '@' || version FROM evaluators")],
        }


def _after(order: Order, position: str) -> list[int]:
    """Return the calls of an order that come after a position in the list, or all for an empty one."""
    begin = 0
    if position.startswith("w"):
        bad, _, number = position[1:].partition("_")
        # Among equal scores, the newest call comes first.
        first = int(np.searchsorted(-order.badness, -float(bad), side="left"))
        last = int(np.searchsorted(-order.badness, -float(bad), side="right"))
        begin = first + int((order.numbers[first:last] >= int(number)).sum())
    listed: list[int] = order.numbers[begin:].tolist()
    return listed


def _numbers(numbers: Iterable[int]) -> str:
    """Return *numbers* as the list of an SQL condition."""
    return ", ".join(map(str, numbers))


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[begin : begin + 500] for begin in range(0, len(numbers), 500))
