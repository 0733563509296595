"""Listener in LangChain and LangGraph: a callback handler for every run of their chains, models, retrievers and tools.

LangChain calls a handler that is registered as a configure hook for all runs of the process, those of LangGraph
included (langchain-core, `langchain_core/tracers/context.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook

from ragtrace.capture import find_query
from ragtrace.capture.fields import label_of
from ragtrace.core import semconv
from ragtrace.recording.recorder import RecordingRuntime
from ragtrace.span_reading.frameworks.runs import FrameworkRuns
from ragtrace.system.faults import guarded

_SESSION: Final = ("session_id", "thread_id", "conversation_id", "chat_id")
_USER: Final = ("user_id",)
_MODEL: Final = ("model", "model_name", "model_id", "deployment_name")
_UNKNOWN_INPUT: Final = {"input": ""}
"""Inputs that LangChain reports when a streamed chain begins, as the real inputs are not known yet."""
_PARTS: Final = ("prompt", "parser")
"""Run types that are always parts of a chain, also where an application runs such a part alone."""
_Fields = Mapping[str, Any] | None


def start(runtime: Callable[[], RecordingRuntime | None]) -> tuple[FrameworkRuns, Callable[[], object]]:
    """Install the listener in LangChain and LangGraph.

    Returns:
        The runs that are listened to, and a function that stops the listener.
    """
    global _handler
    runs = FrameworkRuns("langchain", runtime, _current_run_id, frozenset(semconv.LANGCHAIN_SCOPES))
    if _handler is None:
        _handler = Handler()
        # A hook cannot be removed again, so that one handler serves for the life of the process.
        register_configure_hook(ContextVar("ragtrace-langchain", default=_handler), inheritable=True)
    _handler.runs = runs
    return runs, _stop


def _stop() -> None:
    if _handler is not None:
        _handler.runs = None


class Handler(BaseCallbackHandler):
    """LangChain callback handler that records chains, models, retrievers and tools as steps of RAG calls."""

    run_inline = True
    """Whether asynchronous code calls the handler in its own context and in order, instead of in a thread."""

    def __init__(self) -> None:
        self.runs: FrameworkRuns | None = None
        """Framework runs that get the callbacks; None while the listener is stopped."""

    def __deepcopy__(self, memo: object) -> Handler:
        return self  # applications copy configurations, with the handlers in them

    def on_chain_start(
        self,
        serialized: _Fields,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: _Fields = None,
        run_type: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin the recording of a workflow or of a part of one."""
        if self.runs is None:
            return
        with guarded("LangChain's chain"):
            self.runs.begin(
                run_id,
                parent_run_id,
                "other" if run_type in _PARTS else "workflow",
                None if inputs == _UNKNOWN_INPUT else inputs,
                name=_name(serialized, kwargs),
                session=_session(metadata),
                user=_label(metadata, _USER),
            )

    def on_chain_end(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> None:
        """End the recording of a workflow.

        The input of a streamed workflow is known only now.
        """
        if self.runs is not None:
            self.runs.end(run_id, outputs, inputs)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> None:
        """End the recording of a workflow that raised an exception."""
        if self.runs is not None:
            self.runs.fail(run_id, error, inputs)

    def on_chat_model_start(
        self,
        serialized: _Fields,
        messages: Sequence[Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: _Fields = None,
        **kwargs: Any,
    ) -> None:
        """Begin the recording of a generation by a chat model."""
        self._begin_generation(serialized, messages, run_id, parent_run_id, metadata, kwargs)

    def on_llm_start(
        self,
        serialized: _Fields,
        prompts: Sequence[Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: _Fields = None,
        **kwargs: Any,
    ) -> None:
        """Begin the recording of a generation by a text completion model."""
        self._begin_generation(serialized, prompts, run_id, parent_run_id, metadata, kwargs)

    def _begin_generation(
        self,
        serialized: _Fields,
        prompts: Sequence[Any],
        run_id: UUID,
        parent_run_id: UUID | None,
        metadata: _Fields,
        options: Mapping[str, Any],
    ) -> None:
        if self.runs is None:
            return
        with guarded("LangChain's model"):
            invocation = options.get("invocation_params")
            self.runs.begin(
                run_id,
                parent_run_id,
                "generate",
                prompts[0] if prompts else None,
                name=_name(serialized, options),
                model=_label(metadata, ("ls_model_name",)) or _label(invocation, _MODEL),
                session=_session(metadata),
                user=_label(metadata, _USER),
                owns_context=options.get("batch_size", 1) == 1,
            )

    def on_llm_new_token(self, token: Any, *, run_id: UUID, chunk: Any = None, **kwargs: Any) -> None:
        """Record a chunk of a streamed answer."""
        if self.runs is not None and token:
            self.runs.piece(run_id, token if type(token) is str else chunk)

    def on_stream_event(self, event: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record a chunk of an answer that is streamed as events."""
        if self.runs is None:
            return
        with guarded("LangChain's stream of events"):
            if event.get("event") == "message-start":
                self.runs.release_context()
            delta: dict[str, Any] = event.get("delta") or {}
            if delta.get("type") == "text-delta" and delta.get("text"):
                self.runs.piece(run_id, delta["text"])

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End the recording of a generation."""
        if self.runs is not None:
            self.runs.end(run_id, response)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End the recording of a generation that raised an exception, or whose stream was abandoned."""
        if self.runs is not None:
            self.runs.fail(run_id, error)

    def on_retriever_start(
        self,
        serialized: _Fields,
        query: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: _Fields = None,
        **kwargs: Any,
    ) -> None:
        """Begin the recording of a retrieval."""
        if self.runs is not None:
            self.runs.begin(run_id, parent_run_id, "retrieve", query, name=_name(serialized, kwargs))

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End the recording of a retrieval."""
        if self.runs is not None:
            self.runs.end(run_id, documents)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End the recording of a retrieval that raised an exception."""
        if self.runs is not None:
            self.runs.fail(run_id, error)

    def on_tool_start(
        self,
        serialized: _Fields,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: _Fields = None,
        **kwargs: Any,
    ) -> None:
        """Begin the recording of a tool call."""
        if self.runs is not None:
            query = find_query(inputs) or input_str
            self.runs.begin(run_id, parent_run_id, "tool", query, name=_name(serialized, kwargs))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End the recording of a tool call."""
        if self.runs is not None:
            self.runs.end(run_id, getattr(output, "content", output))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End the recording of a tool call that raised an exception."""
        if self.runs is not None:
            self.runs.fail(run_id, error)


_handler: Handler | None = None


def _current_run_id() -> Hashable | None:
    """Return the LangChain run id that becomes the parent of runs started in the current context."""
    config = var_child_runnable_config.get()
    callbacks: Any = None if config is None else config.get("callbacks")
    parent: UUID | None = getattr(callbacks, "parent_run_id", None)
    return parent


def _name(serialized: _Fields, options: Mapping[str, Any]) -> str:
    """Return the name of a LangChain component: the name given to the run, else the class name."""
    name = options.get("name") or (serialized or {}).get("name")
    if name:
        return str(name)
    path = (serialized or {}).get("id")
    return str(path[-1]) if path else ""


def _label(fields: _Fields, names: Sequence[str]) -> str | None:
    """Return the first value in *fields* that is stored under one of *names*."""
    if fields:
        for name in names:
            if (found := label_of(fields.get(name))) is not None:
                return found
    return None


def _session(metadata: _Fields) -> str | None:
    """Return the conversation id from the run's metadata, else from the configuration of the enclosing run."""
    found = _label(metadata, _SESSION)
    if found is None and (config := var_child_runnable_config.get()) is not None:
        found = _label(config.get("configurable"), _SESSION)
    return found
