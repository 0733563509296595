"""Queue for the spans of other instrumentations, filled on the application's threads and read in the background."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from weakref import ref

from opentelemetry.context import get_current

from ragtrace.core import semconv
from ragtrace.core.step import CallBuilder, Step
from ragtrace.system import framework_runs
from ragtrace.system.context import RECORDER_KEY
from ragtrace.system.faults import faults
from ragtrace.system.forks import PerProcess

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

_SPAN_BYTES: Final = 2_000
"""Memory of a span without the texts."""
_MOST_OPEN: Final = 16_384
_MOST_STEPS: Final = 2_000
"""Most steps of one decorated call, spans inside it included."""
_MODEL_LIBRARIES: Final = (
    "genai", "gen_ai", "openai", "anthropic", "langchain", "langgraph", "llamaindex", "llama_index", "haystack",
    "pydantic-ai", "pydantic_ai", "pydantic ai", "traceloop", "openinference", "bedrock", "vertexai",
    "google_generativeai", "cohere",
    "mistral", "ollama", "groq", "together", "litellm", "dspy", "crewai", "agno", "autogen", "smolagents",
    "chroma", "pinecone", "qdrant", "weaviate", "milvus", "lancedb", "marqo", "mcp", "agents", "ragtrace",
)  # fmt: skip
"""Parts of the names of instrumentation scopes whose spans describe model calls, retrievals, tools and agents."""
_MARKS: Final = frozenset(
    {
        semconv.OPERATION_NAME,
        semconv.OI_KIND,
        semconv.TRACELOOP_KIND,
        semconv.LLM_REQUEST_TYPE,
        semconv.HAYSTACK_COMPONENT_NAME,
        semconv.HAYSTACK_PIPELINE_INPUT,
    }
)
"""Names of attributes of which every span of generative AI has at least one."""

FillStep: TypeAlias = "Callable[[ReadableSpan, Step], bool]"
_SKIPPED: Final = Step()
"""Marker of a span that is no step here: a framework's listener records it, or nothing is to be recorded."""


@lru_cache(maxsize=1024)
def _names_model_library(scope: str) -> bool:
    return any(part in scope.lower() for part in _MODEL_LIBRARIES)


def is_genai(span: ReadableSpan) -> bool:
    """Return whether *span* describes a generative AI operation, judged by its instrumentation scope and attributes."""
    scope = span.instrumentation_scope
    if scope is not None and _names_model_library(scope.name):
        return True
    # Six look-ups in the SDK's attributes would take longer.
    return not _MARKS.isdisjoint(span.attributes or ())


def span_bytes(span: ReadableSpan) -> int:
    """Return the approximate memory size of *span* and its attribute values, in bytes."""
    attributes: Any = span.attributes
    if attributes is None:
        return _SPAN_BYTES
    # Each look-up in the SDK's mapping takes a Python call, while a copy is a dict.
    copy = getattr(attributes, "copy", None)
    return _SPAN_BYTES + sum(map(getsizeof, (attributes if copy is None else copy()).values()))


class LostSpan(NamedTuple):
    """Ended span that did not fit into the queue, reduced to its ids and its parent's id."""

    context: SpanContext
    parent_id: int
    """Span id of the parent; 0 for a root span."""
    is_genai: bool


class _QueuedSpans:
    """Spans that one process has queued for evaluation."""

    def __init__(self) -> None:
        self.spans: deque[tuple[ReadableSpan | ref[ReadableSpan], int]] = deque()
        """Queue of weak references to started spans, and of ended spans, each with its bytes; 0 if not measured."""
        self.bytes = 0
        self.lock = threading.Lock()
        self.dropped: deque[LostSpan | None] = deque()
        """Ended spans that did not fit into the queue; None for those beyond `_MOST_OPEN`."""
        # Ordered: the first key of a dict is found by passing all that were removed before it, for each span anew.
        self.open: OrderedDict[int, Step | None] = OrderedDict()
        self.woken: object = None
        """Reader that was woken last: each runtime's worker is started once."""


class SpanIntake:
    """Bounded queue of started and ended spans, from the application's threads to the background thread.

    A span is queued when it starts, by a weak reference, and again when it ends. On the application's threads no more
    is done than that, and to tell which spans may be the root of a call. A span inside a decorated function becomes a
    step of that call.
    """

    def __init__(self) -> None:
        self._queued = PerProcess(_QueuedSpans)
        _intakes.append(ref(self))

    def started(self, span: ReadableSpan, context: Context | None) -> None:
        """Queue the started *span*.

        If it is a span of generative AI, spans below it are known to be no root of a call.

        Args:
            span: the span.
            context: the context in which it was started; None: the current one.
        """
        span_context = span.context
        if _reader is None or span_context is None or not span_context.trace_flags.sampled:
            return
        recorder: Any = (get_current() if context is None else context).get(RECORDER_KEY)
        names = framework_runs.span_names
        if framework_runs.find_context is not None and (is_genai(span) or span.name in names):
            scope = span.instrumentation_scope
            is_same = scope is not None and scope.name in framework_runs.scopes
            if is_same or span.name in names:
                self._note_open(span_context.span_id, _SKIPPED)
                return
            if recorder is None and (run := framework_runs.find_context()) is not None:
                recorder = run[RECORDER_KEY]
                if getattr(recorder, "call_builder", None) is None:  # dropped by the head sampler, or in no call
                    self._note_open(span_context.span_id, _SKIPPED)
                    return
        builder: CallBuilder | None = getattr(recorder, "call_builder", None)
        if recorder is not None and builder is not None:
            self._begin_step(span, recorder.step, builder)
        elif is_genai(span):
            self._note_open(span_context.span_id, None)
        if builder is None:
            # A weak reference, as the span itself would keep its texts in memory. Where there is no room nothing is
            # lost yet: the span is queued again when it ends, with all that is on it, and counted if that fails, too.
            self._add(ref(span), 0)

    def _begin_step(self, span: ReadableSpan, outer: Step, builder: CallBuilder) -> None:
        """Add a step for a started span to the RAG call of the surrounding decorated function."""
        if len(builder.steps) >= _MOST_STEPS:
            faults.warn_once(
                "spans not evaluated: too many in one call",
                "a decorated call has more than %d spans of other instrumentations inside; further ones are no steps "
                "of it, and each is counted in ragtrace.stats().faults",
                _MOST_STEPS,
            )
            return
        step = Step()
        above = None if span.parent is None else self._queued.get().open.get(span.parent.span_id)
        if above is _SKIPPED:
            above = None
        step.parent, step.written, step.end_ns = above or outer, True, 0
        builder.steps.append(step)
        if span.context is not None:
            self._note_open(span.context.span_id, step)

    def _note_open(self, span_id: int, step: Step | None) -> None:
        open_steps = self._queued.get().open
        open_steps[span_id] = step
        if len(open_steps) > _MOST_OPEN:  # spans that were never ended
            with suppress(KeyError):  # other threads have ended all of them meanwhile
                open_steps.popitem(last=False)

    def open_step(self, span_id: int) -> Step | None:
        """Return the step of a span in progress inside a decorated function, or None if there is no such span."""
        step = self._queued.get().open.get(span_id)
        return None if step is _SKIPPED else step

    def ended(self, span: ReadableSpan) -> int:
        """Queue the ended *span*, and return its size in bytes if it may be the root span of a RAG call, else 0.

        A span that may be a root waits for scores.
        """
        context = span.context
        reader = _reader
        if reader is None or context is None or not context.trace_flags.sampled:
            return 0
        queued = self._queued.get()
        step = queued.open.pop(context.span_id, None)
        if step is _SKIPPED:
            return 0
        if step is not None:
            step.deferred_reading, step.ended = _DeferredSpan(span, step, reader.fill), True
            return 0
        scope, parent = span.instrumentation_scope, span.parent
        is_own = scope is not None and scope.name == semconv.SCOPE  # only the runtime itself may hold this back
        may_be_root = not is_own and (parent is None or parent.span_id not in queued.open) and is_genai(span)
        # Fewest spans in the queue at which the memory of all is measured: with fewer, the worker keeps up.
        is_measured = may_be_root or len(queued.spans) >= 64
        size = span_bytes(span) if is_measured else 0
        if not self._add(span, size):
            is_known = len(queued.dropped) < _MOST_OPEN
            parent_id = 0 if parent is None else parent.span_id
            queued.dropped.append(LostSpan(context, parent_id, is_genai(span)) if is_known else None)
            return 0
        return size if may_be_root else 0

    def _add(self, span: ReadableSpan | ref[ReadableSpan], size: int) -> bool:
        # The worker empties the queue four times a second. Its last span may exceed the 16 MiB.
        queued = self._queued.get()
        if len(queued.spans) >= 8_192 or queued.bytes > (16 << 20):
            return False
        queued.spans.append((span, size))
        if size:
            with queued.lock:
                queued.bytes += size
        reader = _reader
        if reader is not None and queued.woken is not reader:
            queued.woken = reader
            reader.wake()
        return True

    def take(self) -> ReadableSpan | None:
        """Remove the oldest span from the queue and return it, or None if the queue is empty."""
        queued = self._queued.get()
        with suppress(IndexError):
            while True:
                span, size = queued.spans.popleft()
                if size:
                    with queued.lock:
                        queued.bytes -= size
                found = span() if isinstance(span, ref) else span
                if found is not None:  # None: the span has ended, did not fit into the queue, and is gone
                    return found
        return None

    def take_dropped(self) -> list[LostSpan | None]:
        """Return the ended spans that did not fit into the queue since the previous call of this method.

        The entry for one after very many others is None.
        """
        dropped: list[LostSpan | None] = []
        queue = self._queued.get().dropped
        with suppress(IndexError):
            while True:
                dropped.append(queue.popleft())
        return dropped


class _DeferredSpan:
    """Ended span inside a decorated function, to be read later as a step of its RAG call."""

    __slots__ = ("_fill", "_span", "_step")

    def __init__(self, span: ReadableSpan, step: Step, fill: FillStep) -> None:
        self._span: ReadableSpan | None = span
        self._step = step
        self._fill = fill

    def read(self) -> None:
        """Read the span, and copy its contents into the step of the RAG call.

        If the span describes no step of a RAG call, mark the step as not ended.
        """
        span, self._span = self._span, None
        if span is None or not self._fill(span, self._step):
            self._step.ended = False

    def clear(self) -> None:
        """Discard the span without reading it."""
        self._span = None


class SpanReader(NamedTuple):
    """What a runtime reads the queued spans with."""

    wake: Callable[[], object]
    """Starts the worker; called at the first span of a queue."""
    fill: FillStep
    """Copies what a span inside a decorated function says into its step; False if the span is no step of a call."""


_intakes: list[ref[SpanIntake]] = []
_reader: SpanReader | None = None
"""Reader of the runtime that reads spans; None as long as none does."""


def set_reader(reader: SpanReader) -> None:
    """Let all span queues accept spans, for *reader*."""
    global _reader
    _reader = reader


def clear_reader(reader: SpanReader) -> None:
    """Let all span queues refuse spans.

    Nothing happens if a reader other than *reader* has been set since.
    """
    global _reader
    if _reader == reader:
        _reader = None


def intakes() -> list[SpanIntake]:
    """Return all span queues of this process, one for each span processor that evaluates spans."""
    return [intake for entry in tuple(_intakes) if (intake := entry()) is not None]


def open_step(span_id: int) -> Step | None:
    """Return the step of a span in progress of another instrumentation, inside a decorated function, or None."""
    return next((step for intake in intakes() if (step := intake.open_step(span_id)) is not None), None)
