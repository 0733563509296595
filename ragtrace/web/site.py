"""Web site on a history file: what is going on now, its calls, what changed, labelling, and the state of ragtrace."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route

from ragtrace.web.history_pages import HistoryPages
from ragtrace.web.kept_reports import KeptReports
from ragtrace.web.labelling import LabellingPages
from ragtrace.web.rendering import Pages, SiteSettings
from ragtrace.web.security import HostGuard


def create_application(settings: SiteSettings, reports: KeptReports) -> HostGuard:
    """Create the ASGI application that serves the site of a history, of which it shows *reports*."""
    pages = Pages(settings)
    history, labelling = HistoryPages(settings, pages, reports), LabellingPages(settings, pages)
    served = {
        "/": history.show_now,
        "/calls": history.show_calls,
        "/calls/{number}": history.show_call,
        "/changes": history.show_changes,
        "/health": history.show_health,
        "/cases": history.show_cases,
        "/dataset": history.download_dataset,
        "/label": labelling.show_queue,
        "/label/next": labelling.go_to_next,
        "/label/calls/{identity}": labelling.show_call,
        "/label/disagreements": labelling.show_disagreements,
        "/label/calibration": labelling.show_calibration,
        "/label/reviewer": labelling.show_reviewer,
    }
    forms = {
        "/label/calls/{identity}": labelling.save_review,
        "/label/pick": labelling.pick,
        "/label/undo": labelling.undo,
        "/label/reviewer": labelling.set_reviewer,
    }
    routes = [Route(path, pages.endpoint(handler), methods=["GET"]) for path, handler in served.items()]
    routes += [Route(path, pages.endpoint(handler), methods=["POST"]) for path, handler in forms.items()]
    routes += [Route("/site.css", pages.style), Route("/{name}.js", pages.script)]
    return HostGuard(Starlette(routes=routes, exception_handlers={404: pages.refuse_address}), settings.port)
