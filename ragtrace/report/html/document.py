"""The whole page."""

from __future__ import annotations

from typing import Final

from ragtrace.report import words
from ragtrace.report.html import sections
from ragtrace.report.html.element import Html, element, joined
from ragtrace.report.html.places import places
from ragtrace.report.html.style import CSS
from ragtrace.report.html.worst import problems
from ragtrace.report.model import Report

# Nothing on the page is ever run or loaded, whatever an answer tries: escaping is the wall, this the one behind it.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_FOOT: Final = (
    "Every figure is an estimate for all calls of its time, also of those that the judge did not see: each score "
    "counts by the inverse of the probability with which its call was drawn, and the screen's view of all calls is "
    "used as far as it agrees with the judge. An interval holds the truth in 95 of 100 cases. Times are in UTC."
)


def page(report: Report) -> str:
    """The report as a complete HTML document."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{words.verdict(report).title} - ragtrace report"),
        element("style", Html(CSS)),
    )
    body = element("body", element("main", *_body(report)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _body(report: Report) -> list[Html | None]:
    item = report.headline
    return [
        element("header", element("h1", "ragtrace report"), element("p", words.subject(report))),
        sections.hero(report),
        places(report, item) if item is not None else None,
        problems(report),
        sections.comparison(report),
        sections.spreads(report),
        sections.unscored(report),
        sections.costs(report),
        element("footer", element("p", _FOOT), element("p", joined("Made ", words.moment(report.made_at), "."))),
    ]
