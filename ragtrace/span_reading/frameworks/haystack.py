"""Listener in Haystack: a proxy around Haystack's tracer that works with any tracer of the application.

Haystack hands the inputs and outputs of each component to the span of its tracer, as objects; the span decides whether
it keeps them. So ragtrace has them although the tracing of content is off for all other tracers. Checked with Haystack
2.31 and 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, cast

from haystack.tracing.tracer import ProxyTracer, tracer

from ragtrace.capture import find_answer
from ragtrace.capture.fields import getter, items_of, label_of, values_of
from ragtrace.core import semconv
from ragtrace.recording.proxies import Proxy
from ragtrace.recording.recorder import RecordingRuntime
from ragtrace.span_reading.frameworks.runs import FrameworkRuns, RunKind
from ragtrace.span_reading.haystack import question_among_inputs
from ragtrace.span_reading.messages import documents_of_results
from ragtrace.system.faults import guarded

_INPUTS: Final = frozenset(
    (
        semconv.HAYSTACK_COMPONENT_INPUT, semconv.HAYSTACK_AGENT_INPUT, semconv.HAYSTACK_LLM_INPUT,
        semconv.HAYSTACK_TOOL_INPUT,
    )
)  # fmt: skip
_OUTPUTS: Final = frozenset(
    (
        semconv.HAYSTACK_PIPELINE_OUTPUT, semconv.HAYSTACK_COMPONENT_OUTPUT, semconv.HAYSTACK_AGENT_OUTPUT,
        semconv.HAYSTACK_LLM_OUTPUT, semconv.HAYSTACK_TOOL_OUTPUT,
    )
)  # fmt: skip
_SOURCES: Final = ("Retriever", "WebSearch", "Ranker", "Reranker")
"""Endings of the class names of components that find documents or select from them."""
_GENERATOR: Final = "Generator"
_TOOL_INVOKER: Final = "ToolInvoker"
_SESSION: Final = ("session_id", "conversation_id", "thread_id", "chat_history_id", "chat_id")
_USER: Final = ("user_id",)
_MOST_COMPONENTS: Final = 100
_MOST_ITEMS: Final = 1_000


class _ComponentRun:
    """Run of a Haystack pipeline, component, agent or tool.

    The run is recorded from the time when its inputs are known.

    Args:
        operation: name of the operation.
        tags: what the tracer is told of it when it begins.
        parent: the run inside which it begins; None: a topmost one.
    """

    __slots__ = ("begun", "has_retrieved", "operation", "output", "parent", "tags")

    def __init__(self, operation: str, tags: Mapping[str, Any], parent: _ComponentRun | None) -> None:
        self.operation, self.tags, self.parent = operation, tags, parent
        self.begun = False
        self.output: object = None
        self.has_retrieved = False
        """Whether a component inside this topmost run has found documents."""

    def top(self) -> _ComponentRun:
        """Return the outermost run that encloses this run, or this run itself if none does."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    def recorded(self) -> _ComponentRun | None:
        """Return the innermost recorded run: this run, or a run that encloses it."""
        run: _ComponentRun | None = self
        while run is not None and not run.begun:
            run = run.parent
        return run


_current: ContextVar[_ComponentRun | None] = ContextVar("ragtrace-haystack", default=None)


def _current_run() -> _ComponentRun | None:
    run = _current.get()
    return None if run is None else run.recorded()


class HaystackRuns:
    """Recorder of Haystack's traced operations, such as pipeline and component runs.

    The operation's name and the component's class decide how an operation is recorded.

    Args:
        runs: the open runs, which are recorded.
    """

    def __init__(self, runs: FrameworkRuns) -> None:
        self._runs = runs

    def start(self, operation: str, tags: Mapping[str, Any], parent: _ComponentRun | None) -> _ComponentRun:
        """Begin a component run. The recording of a run with inputs begins when the inputs are known."""
        run = _ComponentRun(operation, tags, parent)
        if operation in semconv.HAYSTACK_PIPELINE_SPANS:
            with guarded("start of a pipeline of haystack"):
                self._start_pipeline(run)
        return run

    def _start_pipeline(self, run: _ComponentRun) -> None:
        data = run.tags.get(semconv.HAYSTACK_PIPELINE_INPUT)
        of_metadata = getter(run.tags.get(semconv.HAYSTACK_PIPELINE_METADATA))
        name = None if of_metadata is None else of_metadata("name")
        query = question_among_inputs(data)
        session, user = (_label(data, names) for names in (_SESSION, _USER))
        self._begin(run, "workflow", query, name=str(name or "Pipeline"), session=session, user=user)
        run.output = run.tags.get(semconv.HAYSTACK_PIPELINE_OUTPUT)  # Haystack 2 adds outputs until the pipeline ends

    def _begin(self, run: _ComponentRun, kind: RunKind, value: object, **options: Any) -> None:
        run.begun = True
        parent = None if run.parent is None else run.parent.recorded()
        self._runs.begin(run, parent, kind, value, **options)

    def tag(self, run: _ComponentRun, key: str, value: object) -> None:
        """Record the inputs or the output of a component, which Haystack sets as tags of the component's span."""
        with guarded("content of a run of haystack"):
            if key in _OUTPUTS:
                run.output = value
            elif key in _INPUTS and not run.begun:
                self._take_inputs(run, value)

    def _take_inputs(self, run: _ComponentRun, inputs: object) -> None:
        tags, operation = run.tags, run.operation
        if operation == semconv.HAYSTACK_AGENT_SPAN:
            self._begin(run, "workflow", inputs, name="Agent")
        elif operation == semconv.HAYSTACK_LLM_SPAN:
            self._begin(run, "generate", inputs)
        elif semconv.HAYSTACK_TOOL_NAME in tags:
            self._begin(run, "tool", inputs, name=str(tags[semconv.HAYSTACK_TOOL_NAME]))
        else:
            self._begin_component(run, inputs, str(tags.get(semconv.HAYSTACK_COMPONENT_TYPE)))

    def _begin_component(self, run: _ComponentRun, inputs: object, kind: str) -> None:
        name = str(run.tags.get(semconv.HAYSTACK_COMPONENT_NAME) or kind)
        if kind.endswith(_GENERATOR):
            self._begin(run, "generate", inputs)
            return
        if kind.endswith(_TOOL_INVOKER):
            self._begin(run, "tool", inputs, name=name)
            return
        fields: Mapping[str, object] = cast("Any", inputs) if isinstance(inputs, Mapping) else {}
        documents = fields.get("documents") or fields.get("retrieved_documents")
        returns = "documents" in (run.tags.get(semconv.HAYSTACK_OUTPUT_SPEC) or ())
        # The output of a joiner or filter replaces what was found; a splitter, which prepares documents, finds none.
        chooses = returns and bool(documents) and run.top().has_retrieved
        if not chooses and not kind.endswith(_SOURCES):
            self._begin(run, "other", None)
            return
        run.top().has_retrieved = True
        top_k = fields.get("top_k")
        top_k = top_k if isinstance(top_k, int) else None
        self._begin(run, "retrieve", fields.get("query"), name=name, documents=documents, top_k=top_k)

    def end(self, run: _ComponentRun) -> None:
        """End a component run that has succeeded."""
        if run.begun:
            with guarded("end of a run of haystack"):
                if run.tags.get(semconv.HAYSTACK_TOOL_ERROR):
                    said = getter(run.output)
                    self._runs.fail(run, RuntimeError(None if said is None else said("error")))
                else:
                    self._runs.end(run, self._output(run))

    def fail(self, run: _ComponentRun, error: BaseException) -> None:
        """End a component run that raised *error*."""
        if run.begun:
            self._runs.fail(run, error)

    def _output(self, run: _ComponentRun) -> object:
        """Convert the output of a Haystack run to what is recorded, such as an answer or documents."""
        get = getter(run.output)
        if run.operation in semconv.HAYSTACK_PIPELINE_SPANS or run.operation == semconv.HAYSTACK_AGENT_SPAN:
            found = find_answer(run.output)
            if found is None or found.text is None:
                return None
            # Documents in the result may be those of any component: the retrievals show which the model was given.
            documents = found.previews if found.documents is None else found.documents
            return {"answer": found.text, "documents": None if run.has_retrieved else documents}
        if semconv.HAYSTACK_TOOL_NAME in run.tags or get is None:
            return run.output
        if (said := get("tool_messages")) is not None:
            return _tool_results(said)
        replies = items_of(get("replies"), 1)
        if replies and isinstance(replies[0], str):  # the prompt of a generator that takes a text
            return {"answer": replies[0], "meta": (items_of(get("meta"), 1) or [None])[0]}
        retrieved = get("documents")
        return get("context_windows") if retrieved is None and replies is None else retrieved or run.output


def _tool_results(messages: object) -> object:
    """Return the tool results in *messages* as documents."""
    results: list[object] = []
    for message in items_of(messages, _MOST_ITEMS) or ():
        results += [getattr(result, "result", None) for result in getattr(message, "tool_call_results", ())]
    return documents_of_results(results)


def _label(data: object, names: tuple[str, ...]) -> str | None:
    """Return the first value found under one of *names* in the inputs of a pipeline's components."""
    for inputs in values_of(data, _MOST_COMPONENTS):
        get = getter(inputs)
        for name in names if get is not None else ():
            if get is not None and (found := label_of(get(name))) is not None:
                return found
    return None


class _ObservedSpan(Proxy):
    """Transparent proxy of a tracer's span that passes the span's inputs and outputs to the listener.

    Args:
        span: the span.
        run: the run that it describes.
        listener: takes the contents.
    """

    def __init__(self, span: Any, run: _ComponentRun, listener: HaystackRuns) -> None:
        Proxy.__init__(self, span)
        self._self_run, self._self_listener = run, listener

    @property
    def observed_run(self) -> _ComponentRun:
        """Haystack run that the span describes."""
        return self._self_run

    def set_tag(self, key: str, value: Any) -> None:
        if key == semconv.HAYSTACK_TOOL_ERROR:
            self._self_run.tags = {**self._self_run.tags, key: value}
        self.__wrapped__.set_tag(key, value)

    def set_content_tag(self, key: str, value: Any) -> None:
        self._self_listener.tag(self._self_run, key, value)
        self.__wrapped__.set_content_tag(key, value)


class _ListeningTracer(ProxyTracer):
    """Proxy tracer that records Haystack's operations and passes them on to the application's tracer.

    The application may enable its tracer at any time, before or after.
    """

    @contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: Any | None = None
    ) -> Generator[Any]:
        """Trace a Haystack operation with the application's tracer, and record the operation."""
        listener = _listener
        is_ours = type(parent_span) is _ObservedSpan
        inner = parent_span.__wrapped__ if parent_span is not None and is_ours else parent_span
        with super().trace(operation_name, tags=tags, parent_span=inner) as span:
            if listener is None:
                yield span
                return
            parent = parent_span.observed_run if parent_span is not None and is_ours else _current.get()
            run = listener.start(operation_name, tags or {}, parent)
            # An asynchronous pipeline yields inside this block, and its reader's own code would run in its context.
            token = None if operation_name in semconv.HAYSTACK_PIPELINE_SPANS else _current.set(run)
            try:
                yield _ObservedSpan(span, run, listener)
            except BaseException as error:
                listener.fail(run, error)
                raise
            else:
                listener.end(run)
            finally:
                if token is not None:
                    _leave_run(token)

    def current_span(self) -> Any | None:
        """Return the application's current span, wrapped so that the listener sees its inputs and outputs."""
        span, run = super().current_span(), _current.get()
        return span if span is None or run is None or _listener is None else _ObservedSpan(span, run, _listener)


def _leave_run(token: Any) -> None:
    try:
        _current.reset(token)
    except ValueError:  # a generator that another task or thread has closed
        _current.set(None)


_listener: HaystackRuns | None = None


def start(runtime: Callable[[], RecordingRuntime | None]) -> tuple[FrameworkRuns, Callable[[], object]]:
    """Install the listener in Haystack.

    Returns:
        The runs that are listened to, and a function that stops the listener.
    """
    global _listener
    runs = FrameworkRuns("haystack", runtime, _current_run, frozenset(semconv.HAYSTACK_SCOPES), semconv.HAYSTACK_SPANS)
    _listener = HaystackRuns(runs)
    # All of Haystack refers to this object, and the application may replace the tracer inside at any time.
    tracer.__class__ = _ListeningTracer
    return runs, _stop


def _stop() -> None:
    global _listener
    _listener = None
    tracer.__class__ = ProxyTracer
