"""Labelling pages of the site: a queue, a page for each call, and the reviewers' disagreements."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from starlette.responses import RedirectResponse, Response

from ragtrace.core.errors import SettingsError
from ragtrace.core.text import encodable
from ragtrace.history.reading import HistoryReader
from ragtrace.labels.label_store import LABELS, STATEMENT_LABELS, LabelStore, Review, ReviewChangedError
from ragtrace.labels.review_queue import SOURCES, STATUSES, QueueFilter, ReviewQueue, Source, Status
from ragtrace.report import wording
from ragtrace.report.analysis import HEADLINE_METRICS
from ragtrace.report.calibration import DEFAULT_METRIC, calibrate, judged_calls, pick_calls
from ragtrace.report.calibration_page import calibration_values
from ragtrace.system.freed_memory import return_freed_memory
from ragtrace.web.call_view import read_call, statement_ranges
from ragtrace.web.history_pages import tabs_query
from ragtrace.web.rendering import Form, Pages, SiteSettings, from_hexadecimal, page_url
from ragtrace.web.security import RefusedError

if TYPE_CHECKING:
    from starlette.requests import Request

_REVIEWER_COOKIE: Final = "ragtrace_reviewer"
_NAME_CHARS: Final = 80
_COMMENT_CHARS: Final = 4_000
_NAMES_SECONDS: Final = 30.0
_DISPUTED_AT_ONCE: Final = 50
_PICKED_AT_ONCE: Final = 60
"""About how many calls are picked at random: as by `ragtrace calibrate pick`, and three times the fewest labels that
correct a rate."""
_OF_THE_QUEUE: Final = ("metric", "source", "status", "workflow", "text")
_OF_OTHER_VIEWS: Final = ("since", "model", "release", "tag")
_SOURCES: Final[dict[str, Source]] = {each: each for each in SOURCES}
_STATUSES: Final[dict[str, Status]] = {each: each for each in STATUSES}
_SAID: Final = {
    "label": "Saved.",
    "draft": "Saved. The call itself has no label yet.",
    "undone": "Undone.",
    "nothing": "There is nothing to undo.",
    "changed": "Not undone: the label of that call was replaced since.",
    "same": "Unchanged.",
}
"""Messages shown after a form was handled, by the code in the URL."""


class LabellingPages:
    """Request handlers of the labelling pages, for their pages and forms.

    Handlers run in threads, and each opens the history file anew: a file that is deleted or replaced while the page is
    open is noticed, and no label is written into a deleted file.
    """

    def __init__(self, settings: SiteSettings, pages: Pages) -> None:
        self._settings, self._pages = settings, pages
        self._writing = threading.Lock()  # two open pages of one reviewer may change the same label
        self._names: tuple[float, list[str], list[str]] = (-_NAMES_SECONDS, [], [])

    def _page(self, template: str, **values: Any) -> Response:
        shared: dict[str, Any] = {
            "sources": SOURCES, "statuses": STATUSES, "comment_chars": _COMMENT_CHARS, "name_chars": _NAME_CHARS
        }  # fmt: skip
        return self._pages.render(template, tab="label", **shared, **values)

    # --- what every page needs -----------------------------------------------------------------------------------

    def _reviewer(self, request: Request) -> str:
        """Return the name of the reviewer, or "" if the page must ask for the name."""
        given = self._settings.reviewer or unquote(request.cookies.get(_REVIEWER_COOKIE, ""), errors="replace")
        return encodable(" ".join(given.split()))[:_NAME_CHARS]

    def _filter(self, request: Request, queue: ReviewQueue) -> QueueFilter:
        """Build the filter of the review queue from the URL parameters of *request*."""
        given = request.query_params
        picked = queue.picked_metrics()
        metric = given.get("metric") or self._settings.metric or next(iter(picked), "") or self._main_metric(queue)
        workflow = given.get("workflow", "")
        return QueueFilter(
            encodable(metric),
            self._reviewer(request),
            _SOURCES.get(given.get("source", ""), "picked" if metric in picked else "all"),
            _STATUSES.get(given.get("status", ""), "unlabelled"),
            encodable(workflow[1:]) if workflow.startswith("=") else None,
            encodable(given.get("text", "").strip()),
        )

    def _main_metric(self, queue: ReviewQueue) -> str:
        """Return the metric that is labelled where none was chosen and no calls are picked."""
        known = self._all_names(queue)[0]
        return next((each for each in HEADLINE_METRICS if each in known), DEFAULT_METRIC)

    def _all_names(self, queue: ReviewQueue) -> tuple[list[str], list[str]]:
        """Return the names of all metrics and workflows in the history, cached for a while."""
        read_at, metrics, workflows = self._names
        if time.monotonic() - read_at > _NAMES_SECONDS:
            metrics, workflows = queue.metrics(), queue.workflows()
            self._names = (time.monotonic(), metrics, workflows)
        return metrics, workflows

    def _common(self, request: Request, queue: ReviewQueue, chosen: QueueFilter) -> dict[str, Any]:
        """Return the template values that every page of the site shows."""
        said = request.query_params.get("said", "")
        return {
            "chosen": chosen,
            "query": self._parameters(request, chosen),
            "kept": _kept(request),
            "tabs_query": tabs_query(self._parameters(request, chosen)),
            "evaluators": queue.evaluators(),
            "progress": queue.progress(chosen.metric, chosen.reviewer),
            "said": said if said in _SAID else "",
            "message": _SAID.get(said, ""),
            "can_rename": self._settings.reviewer is None,
        }

    def _parameters(self, request: Request, chosen: QueueFilter) -> dict[str, str]:
        """Return the URL parameters of links between labelling pages."""
        return {**_filter_parameters(chosen), **_kept(request)}

    # --- pages ---------------------------------------------------------------------------------------------------

    def show_queue(self, request: Request, _: Form) -> Response:
        """Show one page of the review queue."""
        if not self._reviewer(request):
            return RedirectResponse(page_url("/label/reviewer", _given(request)), 303)
        with closing(ReviewQueue(self._settings.history)) as queue:
            chosen = self._filter(request, queue)
            page = queue.page(chosen, _position(request))
            metrics, workflows = self._all_names(queue)
            return self._page(
                "queue", page=page, metrics=sorted({*metrics, chosen.metric}), workflows=workflows, now=time.time(),
                is_first=not _position(request), damaged=len(queue.damaged), **self._common(request, queue, chosen),
            )  # fmt: skip

    def go_to_next(self, request: Request, _: Form) -> Response:
        """Redirect to the next call of the review queue, or show that the queue has ended."""
        if not self._reviewer(request):
            return RedirectResponse(page_url("/label/reviewer", _given(request)), 303)
        with closing(ReviewQueue(self._settings.history)) as queue:
            chosen = self._filter(request, queue)
            page = queue.page(chosen, _position(request), limit=1)
            if page.calls:
                return RedirectResponse(
                    page_url(f"/label/calls/{page.calls[0].identity.hex()}", self._parameters(request, chosen)), 303
                )
            return self._page("end", after=page.after, **self._common(request, queue, chosen))

    def show_call(self, request: Request, _: Form) -> Response:
        """Show the labelling page of one RAG call."""
        if not self._reviewer(request):
            return RedirectResponse(page_url("/label/reviewer", _given(request)), 303)
        with (
            closing(ReviewQueue(self._settings.history)) as queue,
            closing(LabelStore(self._settings.history)) as store,
        ):
            chosen = self._filter(request, queue)
            identity, number = _requested_call(request, queue)
            view = read_call(
                self._settings.history, queue, number, store.review(identity, chosen.metric, chosen.reviewer),
                store.labels_of_call(identity, chosen.metric), is_blind=self._settings.is_blind,
            )  # fmt: skip
            trace = self._settings.trace_url.replace("{trace_id}", identity[:16].hex())
            is_judged = wording.has_verdict(chosen.metric)
            judge = next((each for each, _ in view.verdicts if is_judged and each.is_judge and each.label), None)
            return self._page(
                "labelling", view=view, trace=trace, judge=judge, now=time.time(),
                position=queue.key(identity, number, chosen.metric), **self._common(request, queue, chosen),
            )  # fmt: skip

    def show_disagreements(self, request: Request, _: Form) -> Response:
        """Show the RAG calls that some reviewers labelled good and others bad."""
        if not self._reviewer(request):
            return RedirectResponse(page_url("/label/reviewer", _given(request)), 303)
        with closing(ReviewQueue(self._settings.history)) as queue:
            chosen = self._filter(request, queue)
            after = from_hexadecimal(request.query_params.get("after", ""))
            found = queue.disputed(chosen.metric, after, _DISPUTED_AT_ONCE)
            hidden = [each for each in found if self._settings.is_blind and chosen.reviewer not in each.labels]
            calls = [each for each in found if each not in hidden]
            is_judged = wording.has_verdict(chosen.metric) and not after
            with_judge = queue.judged_otherwise(chosen.metric, chosen.reviewer, _DISPUTED_AT_ONCE) if is_judged else []
            numbers = {*(each.number for each in calls), *(each.number for each in with_judge)}
            return self._page(
                "disagreements", calls=calls, hidden=len(hidden), with_judge=with_judge,
                questions=queue.questions(number for number in numbers if number is not None), is_first=not after,
                after=found[-1].identity.hex() if len(found) == _DISPUTED_AT_ONCE else "",
                **self._common(request, queue, chosen),
            )  # fmt: skip

    def show_calibration(self, request: Request, _: Form) -> Response:
        """Show how far the labels agree with the judge, and the rate that they correct."""
        if not self._reviewer(request):
            return RedirectResponse(page_url("/label/reviewer", _given(request)), 303)
        with closing(ReviewQueue(self._settings.history)) as queue:
            chosen = self._filter(request, queue)
            try:
                found = calibrate(self._settings.history, chosen.metric)
            except SettingsError as error:  # no calls are picked, or none of them is judged
                return self._page("calibration_none", reason=str(error), **self._common(request, queue, chosen))
            return_freed_memory()
            if self._settings.is_blind:  # what others and the judge said of a call is shown once it has a label
                with closing(LabelStore(self._settings.history)) as store:
                    own = {each.identity for each in store.labels(chosen.metric) if each.reviewer == chosen.reviewer}
                found = replace(
                    found, disagreements=tuple(each for each in found.disagreements if each.identity in own)
                )
            numbers = {each.identity: queue.number(each.identity) for each in found.disagreements}
            questions = queue.questions(number for number in numbers.values() if number is not None)

            def shown_call(identity: bytes) -> tuple[str, str] | None:
                """Return the question of a call and the address of its page, or None if it is not stored any more."""
                number = numbers.get(identity)
                if number is None:
                    return None
                url = page_url(f"/label/calls/{identity.hex()}", self._parameters(request, chosen))
                return questions.get(number, "(no question)"), url

            picked = {**self._parameters(request, chosen), "source": "picked", "status": "unlabelled"}
            links = {"shown_call": shown_call, "label_url": page_url("/label/next", picked)}
            values = calibration_values(found) | links
            return self._page("calibration_frame", **values, **self._common(request, queue, chosen))

    def show_reviewer(self, request: Request, _: Form) -> Response:
        """Show the form for the reviewer's name."""
        return self._page("reviewer", name=self._reviewer(request), query=_given(request))

    # --- forms ---------------------------------------------------------------------------------------------------

    def set_reviewer(self, request: Request, form: Form) -> Response:
        """Store the reviewer's name in a cookie, and go on with the filters with which the name was asked for."""
        name = encodable(" ".join(wording.replace_control_characters(form.get("name", "")).split()))
        if not name or len(name) > _NAME_CHARS:
            raise RefusedError(400, f"The name must have 1 to {_NAME_CHARS} characters.")
        response = RedirectResponse(page_url("/label", _given(request)), 303)
        response.set_cookie(
            _REVIEWER_COOKIE, quote(name), max_age=365 * 86_400, httponly=True, samesite="strict"
        )  # fmt: skip
        return response

    def pick(self, request: Request, _: Form) -> Response:
        """Pick judged calls at random for labelling, where none are picked yet, and lead to the first of them.

        As by `ragtrace calibrate pick`: the probability of each is recorded, so that the labels can correct the rate.
        """
        if not self._reviewer(request):
            raise RefusedError(403, "The reviewer has no name yet. Nothing was picked.")
        history = self._settings.history
        with closing(ReviewQueue(history)) as queue, closing(LabelStore(history)) as store, self._writing:
            chosen = self._filter(request, queue)
            if not store.picks(chosen.metric):
                with closing(HistoryReader(history)) as reader:
                    calls = judged_calls(reader, reader.columns(0.0, math.inf).without_costs(), chosen.metric)
                    picks = pick_calls(calls, _PICKED_AT_ONCE)
                    del calls
                return_freed_memory()
                if not picks:
                    raise SettingsError(
                        f"no call can be picked: none of those judged for {chosen.metric} has a trace id"
                    )
                store.replace_picks(chosen.metric, picks, time.time())
        picked = replace(chosen, source="picked", status="unlabelled", workflow=None, text="")
        return RedirectResponse(page_url("/label/next", self._parameters(request, picked)), 303)

    def save_review(self, request: Request, form: Form) -> Response:
        """Save the label, statement label or comment from the submitted form of a RAG call."""
        if not self._reviewer(request):
            raise RefusedError(403, "The reviewer has no name yet. Nothing was saved.")
        with (
            closing(ReviewQueue(self._settings.history)) as queue,
            closing(LabelStore(self._settings.history)) as store,
        ):
            chosen = self._filter(request, queue)
            identity, number = _requested_call(request, queue)
            answer = self._answer(number)
            with self._writing:
                before = store.review(identity, chosen.metric, chosen.reviewer)
                changed = _apply_form(before, form, answer)
                if changed != before:
                    store.save_review(replace(changed, at=time.time()))
            said = "same" if changed == before else "label" if changed.label else "draft"
        return RedirectResponse(
            page_url(f"/label/calls/{identity.hex()}", self._parameters(request, chosen), said=said), 303
        )

    def _answer(self, number: int) -> str:
        with closing(HistoryReader(self._settings.history)) as reader:
            return str(reader.texts([number])[number].body.get("answer") or "")

    def undo(self, request: Request, _: Form) -> Response:
        """Undo the reviewer's latest change, and redirect to the changed call."""
        with (
            closing(ReviewQueue(self._settings.history)) as queue,
            closing(LabelStore(self._settings.history)) as store,
        ):
            chosen = self._filter(request, queue)
            try:
                review = store.undo_review(chosen.metric, chosen.reviewer)
            except ReviewChangedError:
                return RedirectResponse(page_url("/label", self._parameters(request, chosen), said="changed"), 303)
            if review is None:
                return RedirectResponse(page_url("/label", self._parameters(request, chosen), said="nothing"), 303)
            known = queue.number(review.identity) is not None
        page = f"/label/calls/{review.identity.hex()}" if known else "/label"
        return RedirectResponse(page_url(page, self._parameters(request, chosen), said="undone"), 303)


def _apply_form(before: Review, form: Mapping[str, str], answer: str) -> Review:
    """Return a copy of a review with the changes from a submitted form.

    Raises:
        RefusedError: the form holds a wrong value.
    """
    review = before
    if "comment" in form:
        comment = encodable(form["comment"].replace("\r\n", "\n").strip())
        if len(comment) > _COMMENT_CHARS:
            raise RefusedError(400, f"The comment is longer than {_COMMENT_CHARS:,} characters. Nothing was saved.")
        review = replace(review, comment=comment or None)
    if "label" in form:
        label = next((each for each in LABELS if each == form["label"]), None)
        if label is None:
            raise RefusedError(400, "The label is none of good, bad and unsure. Nothing was saved.")
        review = replace(review, label=label)
    if "statement" in form:
        place, _, value = form["statement"].partition(":")
        known = {f"{start}-{end}": (start, end) for start, end in statement_ranges(answer)}
        if place not in known or value not in STATEMENT_LABELS:
            raise RefusedError(400, "The answer has no such statement. Nothing was saved.")
        start, end = known[place]
        same = [each for each in review.statements if (each.get("start"), each.get("end")) == (start, end)]
        others = [each for each in review.statements if each not in same]
        # A repeated press of a label's button removes the label; the page's shortcuts never do.
        if "keep" in form or value not in [each.get("label") for each in same]:
            others.append({"start": start, "end": end, "label": value})
        review = replace(review, statements=tuple(sorted(others, key=_statement_offset)))
    return review


def _statement_offset(statement: Mapping[str, Any]) -> int:
    """Return the offset at which a labelled statement begins, or -1 if another tool stored it without an offset."""
    start = statement.get("start")
    return start if isinstance(start, int) else -1


def _requested_call(request: Request, queue: ReviewQueue) -> tuple[bytes, int]:
    """Return identity and row number of the RAG call named in the URL path of *request*.

    Raises:
        RefusedError: the history has no such call.
    """
    identity = from_hexadecimal(str(request.path_params["identity"]))
    number = queue.number(identity) if identity else None
    if number is None:
        raise RefusedError(404, "The history has no such call; it may have been deleted for its age.")
    return identity, number


def _position(request: Request) -> str:
    """Return the queue position in the URL parameters of *request*, or "" for the beginning of the queue."""
    after = request.query_params.get("after", "")
    is_number = after[:1] == "n" and after[1:].isascii() and after[1:].isdecimal() and len(after) < 20
    is_pick = after[:1] == "p" and len(from_hexadecimal(after[1:])) == 24
    return after if is_number or is_pick else ""


def _kept(request: Request) -> dict[str, str]:
    """Return the filters of other views, which do not apply to labelling but hold again when one goes back to these."""
    return _given(request, _OF_OTHER_VIEWS)


def _given(request: Request, names: Sequence[str] = (*_OF_THE_QUEUE, *_OF_OTHER_VIEWS)) -> dict[str, str]:
    """Return the URL parameters of *request* that have a value and one of these names, which are those of filters."""
    given = {name: encodable(request.query_params.get(name, "")) for name in names}
    return {name: value for name, value in given.items() if value}


def _filter_parameters(chosen: QueueFilter) -> dict[str, str]:
    """Return the URL parameters that represent a filter of the review queue."""
    found = {"metric": chosen.metric, "source": chosen.source, "status": chosen.status}
    if chosen.workflow is not None:
        found["workflow"] = f"={chosen.workflow}"
    if chosen.text:
        found["text"] = chosen.text
    return found
