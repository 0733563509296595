"""Pages of the site that show a history: what is going on now, its calls, what changed, and the state of ragtrace."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from starlette.responses import Response

from ragtrace.core.text import encodable
from ragtrace.history.reading import HistoryReader
from ragtrace.report.analysis import HEADLINE_METRICS
from ragtrace.report.dataset import build_dataset
from ragtrace.report.html_page import report_values
from ragtrace.report.model import Period, parse_time
from ragtrace.report.tables import GUARD, alert_table
from ragtrace.web.call_list import (
    GUARDED,
    SORTS,
    STATUSES,
    CallChoice,
    CallCount,
    CallList,
    Guarded,
    Sort,
    Status,
    names_in,
)
from ragtrace.web.call_page import read_stored_call
from ragtrace.web.kept_orders import KeptOrders
from ragtrace.web.kept_reports import KeptReports, chosen_name, chosen_tags
from ragtrace.web.rendering import Form, Pages, SiteSettings, page_url
from ragtrace.web.security import RefusedError

if TYPE_CHECKING:
    from starlette.requests import Request

    Query: TypeAlias = Mapping[str, str]

TIMES: Final = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days", "all": "All"}
"""Choices of time on the pages, as `--since` of `ragtrace report` takes them."""
_COMPARED: Final = {"previous": "compared with the time before", "none": "compared with nothing"}
_NAMES: Final = ("workflow", "model", "release")
_FILTERS: Final = ("since", *_NAMES, "metric", "tag")
_STATUSES: Final[dict[str, Status]] = {each: each for each in STATUSES}
_SORTS: Final[dict[str, Sort]] = {each: each for each in SORTS}
_GUARDED: Final[dict[str, Guarded]] = {each: each for each in GUARDED}
_OF_LIST: Final = (*_FILTERS, "text", "status", "guard", "sort", "ticked")
_WORD: Final = "word of the query"
"""Kind of the groups of calls that a search for a text finds."""
_TAG: Final = "tag"
"""Kind of the groups of calls with a tag, which are named as the filter names it."""
_MOST_CASES: Final = 1_000
_MOST_NUMBER: Final = 2**63 - 1
"""Largest row number of SQLite."""
_ANY_TIME: Final = Period(0.0, float("inf"))
_NO_TICK: Final = "No call is ticked. Tick the calls that are to become test cases."
_NO_QUESTION: Final = "None of these calls has a question, so there is no test case."
_ASKED_SECONDS: Final = 5.0


class HistoryPages:
    """Request handlers of the pages that show a history."""

    def __init__(self, settings: SiteSettings, pages: Pages, reports: KeptReports) -> None:
        self._settings, self._pages, self._reports = settings, pages, reports
        self._names: tuple[float, dict[str, list[str]]] = (float("-inf"), {})
        self._orders = KeptOrders()

    # --- pages --------------------------------------------------------------------------------------------------------

    def show_now(self, request: Request, _: Form) -> Response:
        """Show the present rate with its line over time, what was not scored, and what judging cost."""
        return self._show_report(request, "now")

    def show_changes(self, request: Request, _: Form) -> Response:
        """Show what changed: groups of calls, kinds of defects, the metrics before and after, the worst answers."""
        return self._show_report(request, "changes")

    def _show_report(self, request: Request, tab: str) -> Response:
        query = _given(request, (*_FILTERS, "compare"))
        report = self._reports.get(query, "headline" if tab == "now" else "shown")
        if not report.calls:
            shared = self._filter_values(query)
            return self._pages.render("empty", tab=tab, **shared, oldest=report.oldest, alerts=alert_table(report))

        def calls_url(kind: str, name: str) -> str | None:
            if kind == GUARD:
                return page_url("/calls", {**query, "workflow": f"={name}", "guard": "fail"})
            if kind not in (*_NAMES, _WORD, _TAG):  # a list has no filter for how calls were retrieved
                return None
            chosen = _chosen_group(kind, name)
            return page_url("/calls", {**query, **chosen, "sort": "worst", "metric": metric})

        metric = report.headline.metric if report.headline else query.get("metric", "")

        def call_url(number: int) -> str:
            return page_url(f"/calls/{number}", query)

        change = report.latest_change
        group = change.group if change is not None and change.direction == "worse" else None
        links: dict[str, Any] = {"calls_url": calls_url, "call_url": call_url, "group_url": ""}
        if group is not None:
            chosen = {key: value for names in group.names for key, value in _chosen_group(*names).items()}
            links["group_url"] = page_url("/calls", {**query, **chosen, "sort": "worst", "metric": metric})
        values = report_values(report) | links | self._filter_values(query)
        return self._pages.render(tab, tab=tab, **values)

    def show_calls(self, request: Request, _: Form) -> Response:
        """Show one page of the list of calls."""
        return self._show_list(request)

    def _show_list(self, request: Request, failed: str = "", status: int = 200) -> Response:
        """Show one page of the list of calls, with a message about what could not be done with it."""
        query = _given(request, _OF_LIST)
        choice, ticked = self._choice(query), _ticked(request)
        if ticked:
            query["ticked"] = ",".join(map(str, ticked))
        after = _position(request)
        with closing(self._call_list(query)) as calls:
            page, count = calls.page(choice, after), calls.count(choice)
        if not after and page.after is None:
            count = CallCount(len(page.calls), is_whole=True)
        here = {call.number for call in page.calls}
        return self._pages.render(
            "calls", tab="calls", page=page, choice=choice, is_first=not after, statuses=STATUSES, sorts=SORTS,
            count=count, ticked=ticked, elsewhere=[number for number in ticked if number not in here], after=after,
            failed=failed, damaged=len(calls.damaged), now=time(), status=status, **self._filter_values(query),
        )  # fmt: skip

    def show_call(self, request: Request, _: Form) -> Response:
        """Show one call with its texts, every score and the reasons of those that are missing."""
        query = _given(request, _OF_LIST)
        choice, number = self._choice(query), _row_number(str(request.path_params["number"]))
        ticked = _ticked(request)
        if ticked:
            query["ticked"] = ",".join(map(str, ticked))
        call = None if number is None else read_stored_call(self._settings.history, number)
        if number is None or call is None:
            raise RefusedError(
                404, "The history has no such call; it may have been deleted for its age, or be damaged."
            )
        with closing(self._call_list(query)) as calls:
            before, after = calls.neighbours(choice, number)
        trace = self._settings.trace_url.replace("{trace_id}", call.trace_id) if call.trace_id else ""
        return self._pages.render(
            "call", tab="calls", call=call, query=query, before=before, after=after, trace=trace, now=time(),
            ticked=ticked, evaluators=self._all_names()["evaluator"],
            ticked_otherwise=_with_other_tick(ticked, number), tabs_query=tabs_query(query),
        )  # fmt: skip

    def show_health(self, request: Request, _: Form) -> Response:
        """Show the state of the history file, the evaluators' failures, and on request what `ragtrace doctor` says."""
        path, query = self._settings.history, _given(request, _FILTERS)
        with closing(HistoryReader(path)) as reader:
            (calls,) = reader.database.execute("SELECT count(*) FROM calls").fetchone()
            times = reader.time_range()
        size = sum(each.stat().st_size for each in (Path(path), Path(f"{path}-wal")) if each.exists())
        found = None
        if request.query_params.get("ask") == "yes":
            from ragtrace.diagnosis import diagnose_environment

            found = diagnose_environment(os.environ, timeout=_ASKED_SECONDS)
        report = self._reports.get({}) if calls else None  # that of the first page
        return self._pages.render(
            "health", tab="health", path=path, size=size, calls=calls, times=times, age=times and time() - times[1],
            diagnosis=found, report=report, query=query, tabs_query=tabs_query(query),
        )  # fmt: skip

    def show_cases(self, request: Request, _: Form) -> Response:
        """Show how many test cases the ticked calls make, or all listed ones, and what to do with them."""
        query, numbers = _given(request, _OF_LIST), self._chosen_calls(request)
        if not numbers and not request.query_params.get("all"):
            return self._show_list(request, _NO_TICK, 400)
        found = build_dataset(self._settings.history, None, _ANY_TIME, numbers=numbers)
        if not found.cases:
            return self._show_list(request, _NO_QUESTION, 400)
        if not request.query_params.get("all"):
            query["ticked"] = ",".join(map(str, numbers))
        asked = {**query, **({"all": "yes"} if request.query_params.get("all") else {})}
        return self._pages.render(
            "cases", tab="calls", found=found, chosen=len(numbers), query=query, asked=asked,
            tabs_query=tabs_query(query), most=_MOST_CASES,
        )  # fmt: skip

    def download_dataset(self, request: Request, _: Form) -> Response:
        """Send the ticked calls, or all listed ones, as test cases, as `ragtrace dataset` writes them."""
        numbers = self._chosen_calls(request)
        if not numbers and not request.query_params.get("all"):
            return self._show_list(request, _NO_TICK, 400)
        found = build_dataset(self._settings.history, None, _ANY_TIME, numbers=numbers)
        if not found.cases:
            return self._show_list(request, _NO_QUESTION, 404)
        lines = "".join(f"{json.dumps(case, ensure_ascii=True)}\n" for case in found.cases)
        named = {"content-disposition": 'attachment; filename="cases.jsonl"'}
        return Response(lines, media_type="application/jsonl", headers=named)

    def _chosen_calls(self, request: Request) -> list[int]:
        """Return the row numbers of the ticked calls, or of all listed ones if these are asked for, in the order of the
        list."""
        query = _given(request, _OF_LIST)
        choice = self._choice(query)
        with closing(self._call_list(query)) as calls:
            if not request.query_params.get("all"):
                return calls.in_order(choice, _ticked(request))
            numbers: list[int] = []
            after: str | None = ""
            while after is not None and len(numbers) < _MOST_CASES:
                page = calls.page(choice, after, _MOST_CASES)
                numbers, after = [*numbers, *(call.number for call in page.calls)], page.after
        return numbers[:_MOST_CASES]

    # --- what the pages share -----------------------------------------------------------------------------------------

    def _call_list(self, query: Query) -> CallList:
        return CallList(self._settings.history, self._orders, chosen_tags(query))

    def _choice(self, query: Query) -> CallChoice:
        names = self._all_names()
        metric = query.get("metric", "")
        if not metric and names["metric"]:
            metric = next((each for each in HEADLINE_METRICS if each in names["metric"]), names["metric"][0])
        return CallChoice(
            self._reports.period(query, time()), chosen_name(query, "workflow"), chosen_name(query, "model"),
            chosen_name(query, "release"), query.get("text", "").strip(), metric,
            _STATUSES.get(query.get("status", ""), "all"),
            _SORTS.get(query.get("sort", ""), "newest"), _GUARDED.get(query.get("guard", ""), "any"),
            query.get("since") or "24h",
        )  # fmt: skip

    def _all_names(self) -> dict[str, list[str]]:
        """Return the names that the filters offer, cached for a while."""
        read_at, found = self._names
        if monotonic() - read_at > 10.0:
            found = names_in(self._settings.history)
            self._names = (monotonic(), found)
        return found

    def _filter_values(self, query: Query) -> dict[str, Any]:
        names: Mapping[str, Sequence[str]] = self._all_names()
        return {
            "query": query,
            "names": names,
            "times": TIMES if query.get("since", "24h") in TIMES else {query["since"]: query["since"], **TIMES},
            "chosen": {kind: chosen_name(query, kind) for kind in _NAMES},
            "since": query.get("since") or "24h",
            "metric": query.get("metric", ""),
            "tag": query.get("tag", ""),
            "compare": query.get("compare", "previous"),
            "compared": _COMPARED.get(compare := query.get("compare", "previous"), compare.replace(":", " \u2192 ")),
            "tabs_query": tabs_query(query),
        }


def _chosen_group(kind: str, name: str) -> dict[str, str]:
    """Return the URL parameter that chooses the calls of a group in a list."""
    if kind == _WORD:
        return {"text": name}
    return {kind: name if kind == _TAG else f"={name}"}


def tabs_query(query: Query) -> str:
    """Return the part of the URL that the links to other pages keep: the filters that all pages have."""
    kept = {name: value for name, value in query.items() if name in _FILTERS}
    return page_url("", kept) if kept else ""


def _given(request: Request, names: Sequence[str]) -> dict[str, str]:
    """Return the URL parameters of *request* that have a value and one of these names.

    Raises:
        SettingsError: the time is none, or the tag.
    """
    given = {name: encodable(request.query_params.get(name, "")) for name in names}
    found = {name: value for name, value in given.items() if value}
    if found.get("since", "all") != "all":
        parse_time(found["since"], time(), "Time")
    chosen_tags(found)
    return found


def _ticked(request: Request) -> list[int]:
    """Return the row numbers of the ticked calls in the URL parameters of *request*: of other pages, and of its own."""
    given = request.query_params
    numbers = [*",".join(given.getlist("ticked")).split(","), *given.getlist("tick")]
    return [*dict.fromkeys(number for each in numbers if (number := _row_number(each)) is not None)][:_MOST_CASES]


def _row_number(text: str) -> int | None:
    """Return the row number that *text* writes in digits, or None if it writes none that SQLite can have."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else _MOST_NUMBER + 1
    return number if number <= _MOST_NUMBER else None


def _with_other_tick(ticked: Sequence[int], number: int) -> list[int]:
    """Return the row numbers *ticked* with *number* if they are without it, and without it otherwise."""
    return [each for each in ticked if each != number] if number in ticked else [*ticked, number]


def _position(request: Request) -> str:
    """Return the position in the list from the URL parameters of *request*, or "" for the beginning."""
    after = request.query_params.get("after", "")
    if after[:1] == "n" and _row_number(after[1:]) is not None:
        return after
    bad, separator, number = after[1:].partition("_")
    if after[:1] != "w" or not separator or _row_number(number) is None:
        return ""
    try:
        return after if float(bad) == float(bad) else ""
    except ValueError:
        return ""
