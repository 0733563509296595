"""What all pages of the site share: settings, templates, static files, and the check of each request's session."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit, urlunsplit

from jinja2 import Environment, PackageLoader
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from ragtrace.core.errors import SettingsError
from ragtrace.report import charts, wording
from ragtrace.report.html_page import template_environment
from ragtrace.system.sqlite_files import SQLiteFileError
from ragtrace.web.security import RefusedError, Session

if TYPE_CHECKING:
    from starlette.requests import Request

Form: TypeAlias = Mapping[str, str]
Handler: TypeAlias = "Callable[[Request, Form], Response]"
_SCRIPTS: Final = ("labelling", "live")
_TITLES: Final[Mapping[int, str]] = {
    400: "This cannot be shown", 403: "Not allowed", 404: "Not found", 503: "The history cannot be used"
}  # fmt: skip
"""Titles of the pages that refuse a request, by their status."""


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """Settings of the site, as given on the command line."""

    history: str
    token: str
    """Secret in the printed URL that lets a browser in."""
    port: int
    metric: str | None = None
    """Metric whose picked calls are labelled; None: the metric for which calls were picked last."""
    reviewer: str | None = None
    """Name of the reviewer; None: the page asks for the name."""
    is_blind: bool = True
    """Whether verdicts of judges and labels of others are hidden until the reviewer has labelled the call."""
    trace_url: str = ""
    """URL of a trace, with `{trace_id}` in place of the id; empty: there is no link."""
    start: str = "/"
    """Path of the page that the printed URL leads to."""


class Pages:
    """Renderer of the site's pages, and guard of the requests to them."""

    def __init__(self, settings: SiteSettings) -> None:
        self._start = settings.start
        self._session = Session(settings.token, settings.port)
        self._templates = _compiled_templates()
        self._shared: dict[str, Any] = {
            "wording": wording,
            "charts": charts,
            "form_token": self._session.form_token,
            "link": page_url,
            "tab": "",
        }
        style = files("ragtrace.report").joinpath("templates/style.css").read_text("utf-8")
        static = files("ragtrace.web").joinpath("static")
        self._style = style + static.joinpath("site.css").read_text("utf-8")
        self._scripts = {name: static.joinpath(f"{name}.js").read_text("utf-8") for name in _SCRIPTS}

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
                return self._refuse(request, str(refused), refused.status)
            except SettingsError as error:
                return self._refuse(request, str(error), 400)
            except (sqlite3.Error, SQLiteFileError) as error:
                return self._refuse(request, f"The history cannot be used, and nothing was saved: {error}", 503)

        return answer

    async def style(self, _: Request) -> Response:
        """Serve the style sheet of the site, which begins with the style sheet of the report."""
        return Response(self._style, media_type="text/css")

    async def script(self, request: Request) -> Response:
        """Serve one of the site's scripts."""
        text = self._scripts.get(str(request.path_params["name"]))
        return Response(text or "", 404 if text is None else 200, media_type="text/javascript")

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Render a page from *template* and the values that it shows."""
        return HTMLResponse(self._templates.get_template(f"{template}.html").render(self._shared | values), status)

    async def refuse_address(self, request: Request, _: Exception) -> Response:
        """Say that the site has no page at an address."""
        return self._refuse(request, f"There is no page at {request.url.path}.", 404)

    def _refuse(self, request: Request, text: str, status: int) -> Response:
        """Render a page that says why a request is refused, and leads back to the page that it came from."""
        before = urlsplit(request.headers.get("referer", ""))
        is_ours = before.netloc == request.headers.get("host") and re.match("/(?!/)", before.path)
        back = urlunsplit(("", "", before.path, before.query, "")) if is_ours else ""
        here = request.url.path if request.method == "GET" and request.url.query and status == 400 else ""
        title = _TITLES.get(status, "Not done")
        return self.render("message", title=title, text=text, back=back, here=here, status=status)

    def _open_session(self) -> Response:
        """Set the session cookie, and return a page that leads the browser to the first page of the site.

        By a page and not by a redirect: a browser does not send a strict cookie with a redirect of another site's link.
        """
        response = self.render("session", start=self._start)
        response.set_cookie(self._session.cookie, self._session.cookie_value, httponly=True, samesite="strict")
        return response


@cache
def _compiled_templates() -> Environment:
    """Return the Jinja2 environment of the site's templates, all of them compiled.

    It is cached, as compiling them takes 0.25 s. They are compiled before the first request, which would wait for it.
    """
    environment = template_environment("ragtrace.web")  # the site shows the parts of the report by its templates
    of_site, of_report = PackageLoader("ragtrace.web"), PackageLoader("ragtrace.report")
    parts = (name for name in of_report.list_templates() if name.startswith("part_"))
    for name in (*of_site.list_templates(), *parts):
        environment.get_template(name)
    return environment


def page_url(path: str, query: Mapping[str, str], **more: str) -> str:
    """Return the URL of a page with the given path and query parameters."""
    given = urlencode({**query, **more})
    return f"{path}?{given}" if given else path


def from_hexadecimal(text: str) -> bytes:
    """Return the bytes that *text* spells in hexadecimal digits, or none if it spells none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
