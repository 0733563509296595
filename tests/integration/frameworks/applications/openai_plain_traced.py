"""Question answering with the client of OpenAI, with one span of its own for each request, as of a web server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from applications import openai_plain
from opentelemetry import trace

_tracer = trace.get_tracer("shop.assistant")


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    openai_plain.run(mode, log, _request)


def _request(session: str, user: str, query: str) -> AbstractContextManager[Any]:
    attributes = {"http.request.method": "POST", "http.route": "/ask", "session.id": session, "enduser.id": user}
    return _tracer.start_as_current_span("POST /ask", kind=trace.SpanKind.SERVER, attributes=attributes)
