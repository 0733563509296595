"""Queue of the spans that other instrumentations start and end, filled by the application, read in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from opentelemetry.context import get_current

from ragtrace.core import semconv
from ragtrace.core.step import CallBuilder, Step
from ragtrace.system.context import FRAME
from ragtrace.system.faults import faults
from ragtrace.system.forks import call_in_child

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan

_CAPACITY: Final = 8_192
"""Most spans that wait for the background, which takes them four times a second."""
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
"""Parts of the names of instrumentation scopes whose spans describe calls of models, retrievals, tools and agents."""
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
"""Attributes of which spans of generative AI have at least one."""


@lru_cache(maxsize=1024)
def _names_model_library(scope: str) -> bool:
    return any(part in scope.lower() for part in _MODEL_LIBRARIES)


def is_genai(span: ReadableSpan) -> bool:
    """Return whether *span* describes a step of generative AI, by its instrumentation scope or its attributes."""
    scope = span.instrumentation_scope
    if scope is not None and _names_model_library(scope.name):
        return True
    # Six look-ups in the SDK's attributes would take longer.
    return not _MARKS.isdisjoint(span.attributes or ())


class SpanIntake:
    """Bounded queue of started and ended spans, from the application's threads to the background.

    A span is queued when it starts and again when it ends. On the application's threads no more is done than that, and
    to tell which spans may be the root of a call. A span inside a decorated function becomes a step of that call.
    """

    def __init__(self) -> None:
        self.reset()
        call_in_child(self.reset)
        _intakes.append(ref(self))

    def reset(self) -> None:
        """Remove all spans, at the start and in a forked child, as they belong to the parent process."""
        self._spans: deque[ReadableSpan] = deque()
        self._dropped: deque[None] = deque()
        self._open: dict[int, Step | None] = {}
        self._woken: object = None
        """Function that was called with the first span, to start the background of that runtime."""

    def started(self, span: ReadableSpan, context: Context | None) -> None:
        """Queue the started *span*, and note that spans below it are no roots if it is one of generative AI.

        Args:
            span: the span.
            context: the context in which it was started; None: the current one.
        """
        if _wake is None or span.context is None or not span.context.trace_flags.sampled:
            return
        recorder: Any = (get_current() if context is None else context).get(FRAME)
        builder: CallBuilder | None = getattr(recorder, "call_builder", None)
        if builder is not None:
            self._begin_step(span, recorder.step, builder)
        elif is_genai(span):
            self._note_open(span.context.span_id, None)
        if builder is None:
            self._add(span)

    def _begin_step(self, span: ReadableSpan, outer: Step, builder: CallBuilder) -> None:
        """Add a step to the call of a decorated function, inside of which the *span* has started."""
        if len(builder.steps) >= _MOST_STEPS:
            faults.warn_once(
                "spans not evaluated: too many in one call",
                "a decorated call has more than %d spans of other instrumentations inside; further ones are no steps "
                "of it, and each is counted in ragtrace.stats().faults",
                _MOST_STEPS,
            )
            return
        step = Step()
        above = None if span.parent is None else self._open.get(span.parent.span_id)
        step.parent, step.written, step.end_ns = above or outer, True, 0
        builder.steps.append(step)
        if span.context is not None:
            self._note_open(span.context.span_id, step)

    def _note_open(self, span_id: int, step: Step | None) -> None:
        self._open[span_id] = step
        if len(self._open) > _MOST_OPEN:  # spans that were never ended
            self._open.pop(next(iter(self._open), 0), None)

    def ended(self, span: ReadableSpan) -> bool:
        """Queue the ended *span*; return whether it may be the root of a call, which waits for its scores."""
        context = span.context
        if _wake is None or context is None or not context.trace_flags.sampled:
            return False
        step = self._open.pop(context.span_id, None)
        if step is not None:
            step.deferred, step.ended = _DeferredSpan(span, step), True
            return False
        if not self._add(span):
            return False
        scope, parent = span.instrumentation_scope, span.parent
        is_own = scope is not None and scope.name == semconv.SCOPE  # held back, if at all, by its own runtime
        return not is_own and (parent is None or parent.span_id not in self._open) and is_genai(span)

    def _add(self, span: ReadableSpan) -> bool:
        if len(self._spans) >= _CAPACITY:
            self._dropped.append(None)
            return False
        self._spans.append(span)
        wake = _wake
        if self._woken is not wake and wake is not None:
            self._woken = wake
            wake()
        return True

    def take(self) -> ReadableSpan | None:
        """Remove the oldest span from the queue and return it; None if the queue is empty."""
        try:
            return self._spans.popleft()
        except IndexError:
            return None

    def take_dropped(self) -> int:
        """Return how many spans did not fit into the queue since the last time that this was asked."""
        dropped = 0
        with suppress(IndexError):
            while True:
                self._dropped.pop()
                dropped += 1
        return dropped


class _DeferredSpan:
    """Ended span inside a decorated function, to be read into the step of the call in the background."""

    __slots__ = ("_span", "_step")

    def __init__(self, span: ReadableSpan, step: Step) -> None:
        self._span: ReadableSpan | None = span
        self._step = step

    def read(self) -> None:
        """Read the span into the step; a span that describes no step of a call leaves one that has not ended."""
        from ragtrace.telemetry.reading.finished_span import from_sdk_span  # only where spans are read
        from ragtrace.telemetry.reading.readers import read_span

        span, step = self._span, self._step
        self._span = None
        finished = None if span is None else from_sdk_span(span)
        reading = None if finished is None else read_span(finished)
        if reading is None or reading.calls_tools:
            step.ended = False
            return
        parent = step.parent
        vars(step).update(vars(reading.step))
        step.parent = parent

    def clear(self) -> None:
        """Discard the span without reading it."""
        self._span = None


_intakes: list[ref[SpanIntake]] = []
_wake: Callable[[], object] | None = None
"""Starts the background when a queue gets its first span; None as long as no runtime takes the spans."""


def set_wake(wake: Callable[[], object]) -> None:
    """Have all queues take spans from now on, and call *wake*, which starts the background, with the first one."""
    global _wake
    _wake = wake


def clear_wake(wake: Callable[[], object]) -> None:
    """Have all queues take no more spans, unless another function was set by now."""
    global _wake
    if _wake == wake:
        _wake = None


def takes_spans() -> bool:
    """Return whether a runtime of this process takes the spans of other instrumentations."""
    return _wake is not None


def intakes() -> list[SpanIntake]:
    """Return all queues of spans in this process, one for each processor that evaluates spans."""
    return [intake for entry in tuple(_intakes) if (intake := entry()) is not None]
