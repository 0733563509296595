"""Store of messages that instrumentations report separately from their spans, until the spans are read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.trace import SpanContext

from ragtrace.system.faults import faults
from ragtrace.system.forks import call_in_child

_MOST_SPANS: Final = 512
"""Most spans whose contents are kept until they are read, a quarter of a second after the end of the span."""


class SpanContents:
    """Bounded store of messages by the span that they belong to."""

    def __init__(self) -> None:
        self.reset()
        call_in_child(self.reset)

    def reset(self) -> None:
        """Remove all stored messages, at the start and in a forked child."""
        self._lock = threading.Lock()
        self._contents: OrderedDict[tuple[int, int], Mapping[str, Any]] = OrderedDict()

    def keep(self, span: SpanContext, contents: Mapping[str, Any]) -> None:
        """Store the messages of a span until the span is read.

        *contents* are the messages by attribute name.
        """
        with self._lock:
            self._contents[span.trace_id, span.span_id] = contents
            lost = len(self._contents) > _MOST_SPANS
            if lost:
                self._contents.popitem(last=False)
        if lost:
            faults.warn_once(
                "contents of spans not evaluated",
                "the contents that a completion hook received were dropped, as those of %d spans wait to be read",
                _MOST_SPANS,
            )

    def take(self, span: SpanContext) -> Mapping[str, Any]:
        """Remove and return the stored messages of *span*, or an empty mapping if there are none."""
        if not self._contents:
            return {}
        with self._lock:
            return self._contents.pop((span.trace_id, span.span_id), {})


span_contents: Final = SpanContents()
"""Contents of the spans of this process."""
