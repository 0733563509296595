"""Which span of a trace goes where: known when a call begins, kept by the ids of spans, and looked up when they end.

| Span | Goes to the exporter of |
|---|---|
| root of a call | the value that its tags have when it begins |
| step of a call, and whatever else begins inside a call | the call's |
| retrieval outside any call | the value that the tags around it have |
| carrier | its call's, whose route is in the context in which it is started |
| span above calls, such as that of an HTTP request | those calls', if all calls in the trace so far have one value |
| any other span, and one that is not known any more | nobody: the default |

A span beside a call, below the same request, is nobody's: it may be about the next tenant of a batch.

**Threads.** The maps are written on the application's threads and by the worker. Their operations are atomic, and the
lock is for what is known of whole traces, which only spans of other instrumentations need.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from opentelemetry.trace import get_current_span

from ragtrace.core.tags import TagValue, tag_text
from ragtrace.recording.recorder import current_recorder
from ragtrace.system.context import ROUTE_KEY, SPAN_KEY
from ragtrace.system.faults import faults
from ragtrace.system.forks import PerProcess
from ragtrace.telemetry.spans.fast import FastSpan, FastTracer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, SpanKind

    from ragtrace.core.step import CallBuilder, Step
    from ragtrace.core.types import RagCall
    from ragtrace.telemetry.spans.fast import StartAttributes

DEFAULT: Final = ""
"""Value of what goes to the default exporter."""
_MOST_OPEN: Final = 65_536
_MOST_RECENT: Final = 16_384
"""Root spans of the latest calls that are known, for feedback."""


class _TraceCalls:
    """What the calls of one trace have in common, for the spans above them."""

    __slots__ = ("__weakref__", "is_mixed", "value")

    def __init__(self) -> None:
        self.value: str | None = None
        """Value of all calls that have begun so far; None: there is none."""
        self.is_mixed = False

    def add(self, value: str) -> None:
        self.is_mixed = self.is_mixed or self.value not in (None, value)
        self.value = value


class _Outside:
    """Span in progress that is in no call."""

    __slots__ = ("calls", "is_above", "parent_id")

    def __init__(self, calls: _TraceCalls, parent_id: int) -> None:
        self.calls, self.parent_id = calls, parent_id
        self.is_above = False
        """Whether a call has begun below the span."""


class _Known:
    """What one process knows of its spans."""

    def __init__(self) -> None:
        self.open: OrderedDict[int, str | _Outside] = OrderedDict()
        """Values of spans in progress, and of ended ones that wait for their scores, by span id."""
        self.recent: OrderedDict[int, str] = OrderedDict()
        """Values of the latest calls, by the span id of their root."""
        self.traces: WeakValueDictionary[int, _TraceCalls] = WeakValueDictionary()
        """Traces with spans in no call, by trace id, as long as one of these is in progress."""
        self.lock = threading.RLock()  # re-entrant: garbage collection may end a stream, and begin a span, under it


class SpanRoutes:
    """Routes of the calls and spans of one configuration.

    Args:
        tag: name of the tag.
        values: its values that have an exporter of their own, as text.
    """

    def __init__(self, tag: str, values: Collection[str]) -> None:
        self._tag, self._values = tag, frozenset(values)
        self._known = PerProcess(_Known)

    # --- at the begin of calls, as their router -----------------------------------------------------------------------

    def begin_call(self, builder: CallBuilder, outside: Context) -> None:
        """Set the route of a call that begins, by the tags that its root step has now.

        Retrievals outside the call that go elsewhere are none of the call's: its scores would show their documents.
        """
        root = builder.root
        self._begin(root, root.tags or {}, outside)
        if builder.orphans:
            builder.orphans = [step for step in builder.orphans if step.route == root.route]

    def begin_retrieval(self, step: Step, tags: Mapping[str, TagValue], outside: Context) -> None:
        """Set the route of a retrieval outside any call, by the *tags* around it."""
        self._begin(step, tags, outside)

    def add_tags(self, root: Step, tags: Mapping[str, TagValue]) -> None:
        """Note that *tags* are added to a call in progress, whose route stays."""
        if self._tag in tags and self._value(tags) != self.value_of_route(root.route):
            self._tell_of_late_tag()

    def check_tags(self, call: RagCall) -> None:
        """Note a finished call that has a tag for another exporter, as a step inside it may have given one."""
        value = self._value(call.tags)
        if value != DEFAULT and call.route and value != self.value_of_route(call.route):
            self._tell_of_late_tag()

    def _tell_of_late_tag(self) -> None:
        faults.log_once(
            "tag of a route set too late",
            "the tag %r was set or changed when its call had begun, which does not change the exporter that the call "
            "goes to: give it by tags= of the call's root, or by a block of ragtrace.tags around the call",
            self._tag,
        )

    def _begin(self, step: Step, tags: Mapping[str, TagValue], outside: Context) -> None:
        value, known = self._value(tags), self._known.get()
        step.route = f"{self._tag}={value}"
        span = step.span
        if span is None:
            return
        context = span.get_span_context()
        if span.is_recording():
            self._note(known, context.span_id, value)
        known.recent[context.span_id] = value
        if len(known.recent) > _MOST_RECENT:
            with suppress(KeyError):
                known.recent.popitem(last=False)
        if known.traces:
            parent = get_current_span(outside).get_span_context()
            self._mark_above(known, parent, value)

    def _mark_above(self, known: _Known, parent: SpanContext, value: str) -> None:
        with known.lock:
            if (calls := known.traces.get(parent.trace_id)) is not None:
                calls.add(value)
        span = known.open.get(parent.span_id)
        while isinstance(span, _Outside) and not span.is_above:
            span.is_above = True
            span = known.open.get(span.parent_id)

    def _value(self, tags: Mapping[str, TagValue]) -> str:
        given = tags.get(self._tag)
        value = DEFAULT if given is None else tag_text(given)
        return value if value in self._values else DEFAULT

    # --- at the start of other spans ----------------------------------------------------------------------------------

    def started(self, span: SpanContext, parent: SpanContext | None, context: Context) -> None:
        """Note a span that has started in *context*; if it is the root of a call, `begin_call` follows."""
        known = self._known.get()
        route = context.get(ROUTE_KEY)
        recorder = current_recorder(context)
        builder = None if recorder is None else recorder.call_builder
        if isinstance(route, str):
            self._note(known, span.span_id, self.value_of_route(route))
        elif builder is not None:
            self._note(known, span.span_id, self.value_of_route(builder.root.route))
        elif parent is not None and isinstance(value := known.open.get(parent.span_id), str):
            self._note(known, span.span_id, value)
        else:
            with known.lock:
                calls = known.traces.get(span.trace_id)
                if calls is None:
                    calls = known.traces[span.trace_id] = _TraceCalls()
            self._note(known, span.span_id, _Outside(calls, 0 if parent is None else parent.span_id))

    def _note(self, known: _Known, span_id: int, value: str | _Outside) -> None:
        known.open[span_id] = value
        if len(known.open) > _MOST_OPEN:  # spans that were never ended
            with suppress(KeyError):
                known.open.popitem(last=False)
                faults.warn_once(
                    "routes of spans forgotten",
                    "more than %d spans are in progress; the oldest goes to the default exporter, and every further "
                    "one is counted in ragtrace.stats().faults",
                    _MOST_OPEN,
                )

    # --- at the end of spans, and later -------------------------------------------------------------------------------

    def take(self, span_id: int) -> str:
        """Return where an ended span goes, and forget it."""
        found = self._known.get().open.pop(span_id, None)
        if isinstance(found, _Outside):
            with self._known.get().lock:
                calls = found.calls
                return calls.value if found.is_above and not calls.is_mixed and calls.value else DEFAULT
        return self._known.get().recent.get(span_id, DEFAULT) if found is None else found

    def value_of_span(self, span_id: int) -> str:
        """Return where the call or step with the span *span_id* goes, if it is in progress or one of the latest."""
        known = self._known.get()
        found = known.open.get(span_id)
        return found if isinstance(found, str) else known.recent.get(span_id, DEFAULT)

    def value_of_route(self, route: str) -> str:
        """Return where a call with that `RagCall.route` goes; one of another tag's, or with none, is nobody's."""
        tag, _, value = route.partition("=")
        return value if tag == self._tag and value in self._values else DEFAULT


class RoutedTracer(FastTracer):
    """Tracer of fast spans, each of which is noted at its start, as no span processor sees that.

    Args: as of `FastTracer`, after
        routes: note the spans.
    """

    def __init__(self, routes: SpanRoutes, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._routes = routes

    def start_span(self, context: Context, kind: SpanKind, start_attributes: StartAttributes) -> Span:
        """Start a span as a child of the current span of *context*."""
        span = super().start_span(context, kind, start_attributes)
        if type(span) is FastSpan:
            parent = get_current_span(context).get_span_context() if SPAN_KEY in context else None
            self._routes.started(span.get_span_context(), parent, context)
        return span


def count_unrouted(what: str, count: int = 1) -> None:
    """Count spans, events or scores that are dropped, because there is no default exporter."""
    faults.warn_once(
        f"{what} without a route",
        "%s of calls without a value that has an exporter, or of no call, are dropped, as Route(default=) is None; "
        "each is counted in ragtrace.stats().faults",
        what,
        count=count,
    )
