"""Look-up of the current run of a RAG framework, through functions that the framework's listeners register."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context

find_context: Callable[[], Context | None] | None = None
"""Function that returns the context of the framework's current run, or None outside a run; None without listeners."""
scopes: frozenset[str] = frozenset()
"""Instrumentation scopes of spans that describe the same runs as an installed listener does."""

span_names: frozenset[str] = frozenset()
"""Names of spans by a framework's own tracer that describe the same runs, whatever their instrumentation scope."""


def set_listeners(
    find: Callable[[], Context | None] | None, of_scopes: frozenset[str], of_names: frozenset[str]
) -> None:
    """Register how to find the current run of a RAG framework, and which spans describe the same runs."""
    global find_context, scopes, span_names
    find_context, scopes, span_names = find, of_scopes, of_names
