"""Web site for labelling stored RAG calls: a queue, a page for each call, and the reviewers' disagreements."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ragtrace.cli.review.call_view import read_call, statement_ranges
from ragtrace.cli.review.security import HostGuard, RefusedError, Session
from ragtrace.core.text import encodable
from ragtrace.history.reading import HistoryReader
from ragtrace.labels.label_store import LABELS, STATEMENT_LABELS, LabelStore, Review, ReviewChangedError
from ragtrace.labels.review_queue import SOURCES, STATUSES, QueueFilter, ReviewQueue, Source, Status
from ragtrace.report import wording
from ragtrace.report.calibration import DEFAULT_METRIC
from ragtrace.system.sqlite_files import SQLiteFileError

if TYPE_CHECKING:
    from starlette.requests import Request

    Form = Mapping[str, str]
    Handler = Callable[["Request", Form], Response]

_REVIEWER_COOKIE: Final = "ragtrace_reviewer"
_NAME_CHARS: Final = 80
_COMMENT_CHARS: Final = 4_000
_NAMES_SECONDS: Final = 30.0
_DISPUTED_AT_ONCE: Final = 50
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


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """Settings of the labelling page, as given on the command line."""

    history: str
    token: str
    """Secret in the printed URL that lets a browser in."""
    port: int
    metric: str | None = None
    """Metric whose picked calls are shown; None: the metric for which calls were picked last."""
    reviewer: str | None = None
    """Name of the reviewer; None: the page asks for the name."""
    is_blind: bool = True
    """Whether verdicts of judges and labels of others are hidden until the reviewer has labelled the call."""
    trace_url: str = ""
    """URL of a trace, with `{trace_id}` in place of the id; empty: there is no link."""


def create_application(settings: ReviewSettings) -> HostGuard:
    """Create the ASGI application that serves the labelling page of a history."""
    site = ReviewSite(settings)
    pages = Starlette(
        routes=[
            Route("/", site.endpoint(site.show_queue)),
            Route("/next", site.endpoint(site.go_to_next)),
            Route("/calls/{identity}", site.endpoint(site.show_call), methods=["GET"]),
            Route("/calls/{identity}", site.endpoint(site.save_review), methods=["POST"]),
            Route("/undo", site.endpoint(site.undo), methods=["POST"]),
            Route("/disagreements", site.endpoint(site.show_disagreements)),
            Route("/reviewer", site.endpoint(site.show_reviewer), methods=["GET"]),
            Route("/reviewer", site.endpoint(site.set_reviewer), methods=["POST"]),
            Route("/review.css", site.style),
            Route("/review.js", site.script),
        ]
    )
    return HostGuard(pages, settings.port)


class ReviewSite:
    """Request handlers of the labelling page, for its pages and forms.

    Handlers run in threads, and each opens the history file anew: a file that is deleted or replaced while the page is
    open is noticed, and no label is written into a deleted file.
    """

    def __init__(self, settings: ReviewSettings) -> None:
        self._settings = settings
        self._session = Session(settings.token, settings.port)
        self._writing = threading.Lock()  # two open pages of one reviewer may change the same label
        self._names: tuple[float, list[str], list[str]] = (-_NAMES_SECONDS, [], [])
        self._templates = Environment(
            loader=PackageLoader("ragtrace.cli.review"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_without_control_characters,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._shared: dict[str, Any] = {
            "wording": wording,
            "sources": SOURCES,
            "statuses": STATUSES,
            "form_token": self._session.form_token,
            "comment_chars": _COMMENT_CHARS,
            "name_chars": _NAME_CHARS,
            "link": _page_url,
        }
        self._templates.filters["thousands"] = "{:,}".format
        for name in self._templates.list_templates():  # compiles each now, as the first page would wait 0.1 s for that
            self._templates.get_template(name)
        style = files("ragtrace.report").joinpath("templates/style.css").read_text("utf-8")
        self._style = style + files("ragtrace.cli.review").joinpath("static/review.css").read_text("utf-8")
        self._script = files("ragtrace.cli.review").joinpath("static/review.js").read_text("utf-8")

    def endpoint(self, handler: Handler) -> Callable[[Request], Any]:
        """Wrap *handler* in an endpoint that checks the session of the request and runs the handler in a thread."""

        async def answer(request: Request) -> Response:
            if request.method == "GET" and self._session.is_token(request.query_params.get("token", "")):
                return self._open_session()
            try:
                self._session.check(request)
                form = await self._session.read_form(request) if request.method == "POST" else {}
                return await run_in_threadpool(handler, request, form)
            except RefusedError as refused:
                return self._page("message", title="Not done", text=str(refused), status=refused.status)
            except (sqlite3.Error, SQLiteFileError) as error:
                text = f"The history cannot be used, and nothing was saved: {error}"
                return self._page("message", title="Not done", text=text, status=503)

        return answer

    async def style(self, _: Request) -> Response:
        """Serve the style sheet of the labelling page, which includes the style sheet of the report."""
        return Response(self._style, media_type="text/css")

    async def script(self, _: Request) -> Response:
        """Serve the JavaScript of the labelling page."""
        return Response(self._script, media_type="text/javascript")

    def _open_session(self) -> Response:
        """Set the session cookie, and return a page that leads the browser to the review queue.

        By a page and not by a redirect: a browser does not send a strict cookie with a redirect of another site's link.
        """
        response = self._page("session")
        response.set_cookie(self._session.cookie, self._session.cookie_value, httponly=True, samesite="strict")
        return response

    def _page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._templates.get_template(f"{template}.html").render(self._shared | values), status)

    # --- what every page needs -----------------------------------------------------------------------------------

    def _reviewer(self, request: Request) -> str:
        """Return the name of the reviewer, or "" if the page must ask for the name."""
        given = self._settings.reviewer or unquote(request.cookies.get(_REVIEWER_COOKIE, ""), errors="replace")
        return encodable(" ".join(given.split()))[:_NAME_CHARS]

    def _filter(self, request: Request, queue: ReviewQueue) -> QueueFilter:
        """Build the filter of the review queue from the URL parameters of *request*."""
        given = request.query_params
        picked = queue.picked_metrics()
        metric = given.get("metric") or self._settings.metric or next(iter(picked), DEFAULT_METRIC)
        workflow = given.get("workflow", "")
        return QueueFilter(
            encodable(metric),
            self._reviewer(request),
            _SOURCES.get(given.get("source", ""), "picked" if metric in picked else "all"),
            _STATUSES.get(given.get("status", ""), "unlabelled"),
            encodable(workflow[1:]) if workflow.startswith("=") else None,
            encodable(given.get("text", "").strip()),
        )

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
            "query": _filter_parameters(chosen),
            "progress": queue.progress(chosen.metric, chosen.reviewer),
            "said": said if said in _SAID else "",
            "message": _SAID.get(said, ""),
            "can_rename": self._settings.reviewer is None,
        }

    # --- pages ---------------------------------------------------------------------------------------------------

    def show_queue(self, request: Request, _: Form) -> Response:
        """Show one page of the review queue."""
        if not self._reviewer(request):
            return RedirectResponse("/reviewer", 303)
        with closing(ReviewQueue(self._settings.history)) as queue:
            chosen = self._filter(request, queue)
            page = queue.page(chosen, _position(request))
            metrics, workflows = self._all_names(queue)
            return self._page(
                "queue", page=page, metrics=sorted({*metrics, chosen.metric}), workflows=workflows,
                is_first=not _position(request), **self._common(request, queue, chosen),
            )  # fmt: skip

    def go_to_next(self, request: Request, _: Form) -> Response:
        """Redirect to the next call of the review queue, or show that the queue has ended."""
        if not self._reviewer(request):
            return RedirectResponse("/reviewer", 303)
        with closing(ReviewQueue(self._settings.history)) as queue:
            chosen = self._filter(request, queue)
            page = queue.page(chosen, _position(request), limit=1)
            if page.calls:
                return RedirectResponse(
                    _page_url(f"/calls/{page.calls[0].identity.hex()}", _filter_parameters(chosen)), 303
                )
            return self._page("end", after=page.after, **self._common(request, queue, chosen))

    def show_call(self, request: Request, _: Form) -> Response:
        """Show the labelling page of one RAG call."""
        if not self._reviewer(request):
            return RedirectResponse("/reviewer", 303)
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
            return self._page(
                "call", view=view, trace=trace, position=queue.key(identity, number, chosen.metric),
                **self._common(request, queue, chosen),
            )  # fmt: skip

    def show_disagreements(self, request: Request, _: Form) -> Response:
        """Show the RAG calls that some reviewers labelled good and others bad."""
        if not self._reviewer(request):
            return RedirectResponse("/reviewer", 303)
        with closing(ReviewQueue(self._settings.history)) as queue:
            chosen = self._filter(request, queue)
            after = _hexadecimal(request.query_params.get("after", ""))
            found = queue.disputed(chosen.metric, after, _DISPUTED_AT_ONCE)
            hidden = [each for each in found if self._settings.is_blind and chosen.reviewer not in each.labels]
            return self._page(
                "disagreements", calls=[each for each in found if each not in hidden], hidden=len(hidden),
                after=found[-1].identity.hex() if len(found) == _DISPUTED_AT_ONCE else "",
                **self._common(request, queue, chosen),
            )  # fmt: skip

    def show_reviewer(self, request: Request, _: Form) -> Response:
        """Show the form for the reviewer's name."""
        return self._page("reviewer", name=self._reviewer(request))

    # --- forms ---------------------------------------------------------------------------------------------------

    def set_reviewer(self, request: Request, form: Form) -> Response:
        """Store the reviewer's name in a cookie."""
        name = encodable(" ".join(wording.replace_control_characters(form.get("name", "")).split()))
        if not name or len(name) > _NAME_CHARS:
            raise RefusedError(400, f"The name must have 1 to {_NAME_CHARS} characters.")
        response = RedirectResponse("/", 303)
        response.set_cookie(
            _REVIEWER_COOKIE, quote(name), max_age=365 * 86_400, httponly=True, samesite="strict"
        )  # fmt: skip
        return response

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
        return RedirectResponse(_page_url(f"/calls/{identity.hex()}", _filter_parameters(chosen), said=said), 303)

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
                return RedirectResponse(_page_url("/", _filter_parameters(chosen), said="changed"), 303)
            if review is None:
                return RedirectResponse(_page_url("/", _filter_parameters(chosen), said="nothing"), 303)
            known = queue.number(review.identity) is not None
        page = f"/calls/{review.identity.hex()}" if known else "/"
        return RedirectResponse(_page_url(page, _filter_parameters(chosen), said="undone"), 303)


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
    identity = _hexadecimal(str(request.path_params["identity"]))
    number = queue.number(identity) if identity else None
    if number is None:
        raise RefusedError(404, "The history has no such call; it may have been deleted for its age.")
    return identity, number


def _hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _position(request: Request) -> str:
    """Return the queue position in the URL parameters of *request*, or "" for the beginning of the queue."""
    after = request.query_params.get("after", "")
    is_number = after[:1] == "n" and after[1:].isascii() and after[1:].isdecimal() and len(after) < 20
    is_pick = after[:1] == "p" and len(_hexadecimal(after[1:])) == 24
    return after if is_number or is_pick else ""


def _filter_parameters(chosen: QueueFilter) -> dict[str, str]:
    """Return the URL parameters that represent a filter of the review queue."""
    found = {"metric": chosen.metric, "source": chosen.source, "status": chosen.status}
    if chosen.workflow is not None:
        found["workflow"] = f"={chosen.workflow}"
    if chosen.text:
        found["text"] = chosen.text
    return found


def _page_url(path: str, query: Mapping[str, str], **more: str) -> str:
    """Return the URL of a page with the given path and query parameters."""
    return f"{path}?{urlencode({**query, **more})}"


def _without_control_characters(value: object) -> object:
    if isinstance(value, str) and not hasattr(value, "__html__"):  # `__html__`: markup of the template itself
        return wording.replace_control_characters(value)
    return value
