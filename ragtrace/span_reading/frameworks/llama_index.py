"""Listener in LlamaIndex: span and event handlers of the root dispatcher of LlamaIndex's instrumentation.

A span of LlamaIndex is a method call: a query engine's `query`, a retriever's `retrieve`, a model's `chat`. The span
ends when the method returns, also where the method returns a stream; an event reports the end of the stream. Checked
with llama-index-core 0.14.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Final, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.chat_engine.types import AgentChatResponse, BaseChatEngine, StreamingAgentChatResponse
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.chat_engine import StreamChatDeltaReceivedEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionInProgressEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.instrumentation.span import BaseSpan, active_span_id
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.tools.types import BaseTool, ToolOutput
from llama_index.core.workflow import StopEvent, Workflow
from llama_index_instrumentation import get_dispatcher
from pydantic import PrivateAttr

from ragtrace.capture import find_documents
from ragtrace.core import semconv
from ragtrace.core.step import CallBuilder
from ragtrace.core.types import Document, documents_from
from ragtrace.recording.recorder import RecordingRuntime
from ragtrace.span_reading.frameworks.runs import FrameworkRuns, RunKind
from ragtrace.system.faults import guarded

_RESPONSES: Final = (
    Response, PydanticResponse, StreamingResponse, AsyncStreamingResponse,
    AgentChatResponse, StreamingAgentChatResponse,
)  # fmt: skip
_ID_CHARS: Final = 37
"""Length of the end of every span's id: a hyphen and a UUID."""
_WORKFLOWS: Final = (
    (BaseQueryEngine, ("query", "aquery")),
    (BaseChatEngine, ("chat", "achat", "stream_chat", "astream_chat")),
    (BaseSynthesizer, ("synthesize", "asynthesize")),
    (Workflow, ("run",)),
)
"""Classes with the names of the methods that are the topmost run of a call."""
_MODEL_METHODS: Final = frozenset(
    ("chat", "achat", "stream_chat", "astream_chat", "complete", "acomplete", "stream_complete", "astream_complete")
)
_TOOL_METHODS: Final = frozenset(("call", "acall", "__call__"))
_WRITERS: Final = frozenset(("write_response_to_history", "awrite_response_to_history"))
"""Methods that read the stream of a chat engine, in a thread or a task, for the conversation's history."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OWN_HISTORY: Final = "chat_history"
"""Start of the name of a conversation that the application has given no name."""
_MOST_STREAMS: Final = 10_000


class _ModelCall:
    """Model call of LlamaIndex: the outermost of several nested method calls.

    Its stream may be read after the method has returned.
    """

    __slots__ = ("given", "instance", "method", "reporting_id", "returned", "run_id")

    def __init__(self, run_id: str, instance: object, method: str, given: object) -> None:
        self.run_id, self.instance, self.method, self.given = run_id, instance, method, given
        self.reporting_id: str | None = None
        """Id of the first span that reported an event, or None. Events of the other nested method calls repeat the
        stream, and are not recorded."""
        self.returned = False
        """Whether the method has returned a stream."""


class LlamaIndexRuns:
    """Recorder of LlamaIndex's spans as runs of workflows, retrievers, models and tools.

    The class and method of a span decide what is recorded.

    Args:
        runs: the open runs, which are recorded.
    """

    def __init__(self, runs: FrameworkRuns) -> None:
        self._runs = runs
        self._lock = threading.RLock()  # re-entrant: a coroutine that is collected meanwhile ends its span
        self._models: OrderedDict[str, _ModelCall] = OrderedDict()
        """Open model calls by the ids of all spans of the call."""
        self._tools: dict[str, object] = {}
        """Tool of each open span, by the span's id."""
        self._writers: OrderedDict[str, str] = OrderedDict()
        """Run id of the chat engine whose stream a span reads, by the span's id."""
        self._parents: OrderedDict[str, str | None] = OrderedDict()
        """Parent ids of the latest spans, by the span's id: where another instrumentation reads a stream, the parent of
        a span may have ended while a run around that parent goes on."""
        self._late: OrderedDict[str, tuple[Callable[[], None] | None]] = OrderedDict()
        """Entry for each streaming chat engine, by run id: the function that ends the run, if the stream was read to
        its end before the method returned; None if the method has returned."""

    def open_run(self, span_id: str | None) -> str | None:
        """Return the id of the innermost open run that is, or encloses, the LlamaIndex span *span_id*, or None."""
        while span_id is not None and not self._runs.is_open(span_id):
            span_id = self._parents.get(span_id)
        return span_id

    def enter(self, span_id: str, parent_id: str | None, instance: object, arguments: dict[str, Any]) -> None:
        """Begin the run that a LlamaIndex span describes, such as a retrieval or a model call."""
        parent_id = self.open_run(parent_id)
        _add_bounded(self._parents, span_id, parent_id)
        method = span_id[:-_ID_CHARS].rpartition(".")[2]
        begin = self._runs.begin
        name = type(instance).__name__
        if isinstance(instance, BaseLLM) and method in _MODEL_METHODS:
            self._enter_model(span_id, parent_id, instance, method, arguments)
        elif isinstance(instance, BaseRetriever) and method in ("retrieve", "aretrieve"):
            begin(span_id, parent_id, "retrieve", arguments.get("str_or_query_bundle"), name=name)
        elif isinstance(instance, BaseNodePostprocessor) and method in ("_postprocess_nodes", "_apostprocess_nodes"):
            nodes = arguments.get("nodes")
            begin(span_id, parent_id, "retrieve", arguments.get("query_bundle"), name=name, documents=nodes)
        elif isinstance(instance, BaseTool) and method in _TOOL_METHODS:
            self._enter_tool(span_id, parent_id, instance, arguments)
        elif any(isinstance(instance, kind) and method in methods for kind, methods in _WORKFLOWS):
            session = _session_of(instance, arguments)
            begin(span_id, parent_id, "workflow", _workflow_input(arguments), name=name, session=session)
        else:
            begin(span_id, parent_id, "other")
            if isinstance(instance, StreamingAgentChatResponse) and method in _WRITERS and parent_id is not None:
                _add_bounded(self._writers, span_id, parent_id)

    def _enter_model(
        self, span_id: str, parent_id: str | None, instance: BaseLLM, method: str, arguments: dict[str, Any]
    ) -> None:
        given = _prompt_of(arguments)
        outer = None if parent_id is None else self._models.get(parent_id)
        if outer is None:
            outer = self._stream_around(instance, method, given)
        kind: RunKind = "other" if outer is not None else "generate"
        call = outer or _ModelCall(span_id, instance, method, given)
        _add_bounded(self._models, span_id, call)
        fields = vars(instance)
        model = fields.get("model") or fields.get("model_name")
        self._runs.begin(span_id, parent_id, kind, given, model=model if isinstance(model, str) else None)

    def _stream_around(self, instance: object, method: str, given: object) -> _ModelCall | None:
        """Return the asynchronous model call that reads the stream of this synchronous method call, or None.

        The default asynchronous methods of a model that cannot stream asynchronously read such a stream, and pass the
        prompt on unchanged.
        """
        for call in list(self._models.values()):
            if call.returned and call.instance is instance and call.given is given and call.method == f"a{method}":
                return call
        return None

    def _enter_tool(self, span_id: str, parent_id: str | None, instance: BaseTool, arguments: dict[str, Any]) -> None:
        kind: RunKind = "tool"
        if parent_id is not None and self._tools.get(parent_id) is instance:
            kind = "other"  # one method of the tool called another one
        self._tools[span_id] = instance
        given = arguments.get("kwargs") or next(iter(arguments.get("args") or ()), None)
        self._runs.begin(span_id, parent_id, kind, given, name=instance.metadata.name or "")

    def exit(self, span_id: str, instance: object, result: object) -> None:
        """Record the end of a LlamaIndex component's method, unless the method has returned a stream."""
        call = self._models.get(span_id)
        if call is not None:
            self._exit_model(span_id, call, result)
            return
        runs = self._runs
        if self._tools.pop(span_id, None) is not None:
            runs.end(span_id, _tool_result(result))
            return
        writing = self._writers.pop(span_id, None)
        if writing is not None:
            runs.end(span_id)
            self._end_late(writing, lambda: runs.end(writing, self._output(writing, instance)))
        elif isinstance(result, (StreamingResponse, AsyncStreamingResponse)):
            runs.stream(span_id, result, self._output(span_id, result))
        elif isinstance(result, StreamingAgentChatResponse):
            if result.is_writing_to_memory:  # the stream is read in a thread or a task
                self._end_late(span_id, None)
            else:
                runs.end(span_id, self._output(span_id, result))
        else:
            runs.end(span_id, self._output(span_id, result))

    def _exit_model(self, span_id: str, call: _ModelCall, result: Any) -> None:
        is_stream = isinstance(cast("object", result), (Generator, AsyncGenerator))
        if is_stream and call.reporting_id is not None:
            call.returned = True
            if span_id != call.run_id:
                self._runs.end(span_id)
            return
        self._models.pop(span_id, None)
        self._runs.end(span_id, result)

    def drop(self, span_id: str, error: BaseException | None) -> None:
        """End the component run of a span whose method has raised *error*."""
        self._models.pop(span_id, None)
        self._tools.pop(span_id, None)
        error = RuntimeError("span dropped") if error is None else error
        writing = self._writers.pop(span_id, None)
        self._runs.fail(span_id, error)
        if writing is not None:
            self._end_late(writing, lambda: self._runs.fail(writing, error))

    def _end_late(self, run_id: str, end: Callable[[], None] | None) -> None:
        """End the run of a streaming chat engine once its method has returned and its stream has been read.

        Args:
            run_id: the run of the chat engine.
            end: ends the run, after the stream has been read; None: the method has returned.
        """
        mine = (end,)
        with self._lock:
            found = self._late.setdefault(run_id, mine)  # in one step, as a finalizer may call this meanwhile
            if found is mine:
                _trim(self._late)
                return
            self._late.pop(run_id, None)
        end = end or found[0]
        if end is not None:
            end()

    def _output(self, span_id: str, result: object) -> object:
        """Return the output to record for a LlamaIndex run.

        For a response with sources, this is the answer and the sources that were retrieved.

        Among the sources of a query engine may be answers to parts of the question, which are no evidence.
        """
        if isinstance(result, StopEvent):
            return result.result
        if not isinstance(result, _RESPONSES):
            return result
        recorder = self._runs.recorder(span_id)
        builder = None if recorder is None else recorder.call_builder
        documents = None if builder is None else _retrieved(find_documents(result.source_nodes) or (), builder)
        # Converting a stream to text would read the stream.
        answer = str(result) if isinstance(result, (Response, PydanticResponse, AgentChatResponse)) else ""
        return {"answer": answer, "documents": documents}

    def take(self, event: BaseEvent) -> None:
        """Record the chunk or the end of a model's stream, as reported by a LlamaIndex *event*."""
        span_id = event.span_id or ""
        if isinstance(event, StreamChatDeltaReceivedEvent):
            writing = self._writers.get(span_id)
            if writing is not None:
                self._runs.piece(writing, event.delta)
            return
        call = self._models.get(span_id)
        if call is None:
            return
        if isinstance(event, (LLMChatStartEvent, LLMCompletionStartEvent)):
            call.reporting_id = call.reporting_id or span_id
        elif not call.returned or span_id != call.reporting_id:
            return
        elif isinstance(event, (LLMChatInProgressEvent, LLMCompletionInProgressEvent)):
            self._runs.piece(call.run_id, event.response)
        elif isinstance(event, (LLMChatEndEvent, LLMCompletionEndEvent)):
            self._end_stream(call)
            self._runs.end(call.run_id, event.response)
        elif isinstance(event, ExceptionEvent):
            self._end_stream(call)
            self._runs.fail(call.run_id, event.exception)

    def _end_stream(self, call: _ModelCall) -> None:
        for span_id in [span_id for span_id in list(self._models) if self._models.get(span_id) is call]:
            self._models.pop(span_id, None)


def _add_bounded(entries: OrderedDict[str, Any], key: str, value: object) -> None:
    """Add an entry to *entries*, and remove the oldest entry if there are too many."""
    entries[key] = value
    _trim(entries)


def _trim(entries: OrderedDict[str, Any]) -> None:
    while len(entries) > _MOST_STREAMS:
        entries.popitem(last=False)


def _prompt_of(arguments: dict[str, Any]) -> object:
    """Return the messages or the prompt in the arguments of a model's method."""
    for name in ("messages", "prompt"):
        if name in arguments:
            return arguments[name]
    given: dict[str, Any] = arguments.get("kwargs") or {}
    return next(iter(arguments.get("args") or ()), given.get("messages", given.get("prompt")))


def _workflow_input(arguments: dict[str, Any]) -> object:
    """Return the question given to a workflow, together with earlier messages if there are any."""
    if "start_event" in arguments:
        event = arguments["start_event"]
        fields: dict[str, Any] = {**vars(event), **dict(event.items())} if event is not None else {}
        question = fields.get("user_msg")
        if question is None:
            return fields
        return {"query": question, "messages": fields.get("chat_history")}
    for name in ("str_or_query_bundle", "query"):
        if name in arguments:
            return arguments[name]
    return {"query": arguments.get("message"), "messages": arguments.get("chat_history")}


def _session_of(instance: object, arguments: dict[str, Any]) -> str | None:
    """Return the conversation name that the application has given to LlamaIndex's memory, or None.

    LlamaIndex names a memory by a random UUID, so that a UUID of the application cannot be told from one of its own.
    """
    event = arguments.get("start_event")
    memory = getattr(instance, "_memory", None) if event is None else event.get("memory")
    for name in ("session_id", "chat_store_key"):
        found = getattr(memory, name, None)
        if isinstance(found, str) and not found.startswith(_OWN_HISTORY) and not _UUID.fullmatch(found):
            return found
    return None


def _tool_result(result: object) -> object:
    """Return the result of a tool as the model saw it: documents if the tool returned a list, else the text."""
    if not isinstance(result, ToolOutput):
        return result
    raw: Any = result.raw_output
    return raw if isinstance(cast("object", raw), (list, tuple)) and find_documents(raw) else result.content


def _retrieved(sources: tuple[Document, ...], builder: CallBuilder) -> tuple[Document, ...] | None:
    """Return the sources of an answer that a retriever found, or None if the call's contexts already show them.

    Without any retrieval step, all sources count.
    """
    steps = [step.documents for step in builder.steps if step.kind == "retrieve" and step.documents is not None]
    known = {document.id for documents in steps for document in documents}
    found = documents_from((each for each in sources if each.id in known), sources) if steps else sources
    shown = builder.build().contexts or ()
    return None if [each.text for each in found] == [each.text for each in shown] else found or None


class _SpanHandler(BaseSpanHandler[BaseSpan]):
    """LlamaIndex span handler that passes each span on to `LlamaIndexRuns` and stores none."""

    _listener: LlamaIndexRuns = PrivateAttr()

    def __init__(self, listener: LlamaIndexRuns) -> None:
        super().__init__()
        self._listener = listener

    @classmethod
    def class_name(cls) -> str:
        return "RagtraceSpanHandler"

    def span_enter(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        with guarded("start of a run of llama_index"):
            self._listener.enter(id_, parent_id, instance, bound_args.arguments)

    def span_exit(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        with guarded("end of a run of llama_index"):
            self._listener.exit(id_, instance, result)

    def span_drop(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        with guarded("failed run of llama_index"):
            self._listener.drop(id_, err)

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Create no span, because `LlamaIndexRuns` keeps the component runs."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Return no span, because none was created."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Return no span, because none was created."""


class _EventHandler(BaseEventHandler):
    """LlamaIndex event handler that passes each event on to `LlamaIndexRuns`."""

    _listener: LlamaIndexRuns = PrivateAttr()

    def __init__(self, listener: LlamaIndexRuns) -> None:
        super().__init__()
        self._listener = listener

    @classmethod
    def class_name(cls) -> str:
        return "RagtraceEventHandler"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        with guarded("event of llama_index"):
            self._listener.take(event)


def start(runtime: Callable[[], RecordingRuntime | None]) -> tuple[FrameworkRuns, Callable[[], object]]:
    """Install the listener in LlamaIndex.

    Returns:
        The runs that are listened to, and a function that stops the listener.
    """

    def current_run_id() -> str | None:
        return listener.open_run(active_span_id.get())

    runs = FrameworkRuns("llama_index", runtime, current_run_id, frozenset(semconv.LLAMA_INDEX_SCOPES))
    listener = LlamaIndexRuns(runs)
    spans, events = _SpanHandler(listener), _EventHandler(listener)
    dispatcher: Any = get_dispatcher()
    dispatcher.add_span_handler(spans)
    dispatcher.add_event_handler(events)

    def stop() -> None:
        # Replaced as a whole, because other threads may be iterating over the lists.
        dispatcher.span_handlers = [handler for handler in dispatcher.span_handlers if handler is not spans]
        dispatcher.event_handlers = [handler for handler in dispatcher.event_handlers if handler is not events]

    return runs, stop
