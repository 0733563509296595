"""Listener in the OpenAI Agents SDK: a trace processor in addition to the application's own.

A span of the SDK has its input and its output when it ends. Later versions have a span of type `task` for each run of
the SDK's `Runner`, which is a call; without such spans, a whole trace is one call. Checked with openai-agents 0.7 and
0.24.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast

from ragtrace.capture import find_answer
from ragtrace.capture.fields import getter, items_of, label_of
from ragtrace.capture.plain_json import parse_json
from ragtrace.core import semconv
from ragtrace.recording.proxies import Proxy
from ragtrace.recording.recorder import RecordingRuntime
from ragtrace.span_reading.frameworks.runs import FrameworkRuns
from ragtrace.system.faults import faults, guarded

_MODELS: Final = ("generation", "response")
_PARTS: Final = ("agent", *_MODELS, "function", "handoff", "turn")
"""Types of the topmost spans of a call without a span of type `task`."""
_SCOPES: Final = ("guardrail", "function")
"""Types of spans inside which an agent's answer is not the answer of the call."""
_USER: Final = ("user_id", "user", semconv.USER_ID)
_MOST_ITEMS: Final = 1_000
_MOST_OPEN: Final = 10_000


class SpanError(Exception):
    """Error reported by a span of the OpenAI Agents SDK, which does not provide the exception itself."""


class _Call:
    """Outermost run of the Agents SDK, with the input of its first model call and the answer of its last."""

    __slots__ = ("answer", "error", "given")

    def __init__(self) -> None:
        self.given: object = None
        """Input of the first model call; None before that call."""
        self.answer: str | None = None
        self.error: BaseException | None = None


class TraceListener:
    """Trace processor of the OpenAI Agents SDK that records agents, model calls and tools as steps of RAG calls."""

    def __init__(self) -> None:
        self.runs: FrameworkRuns | None = None
        """Framework runs that get the spans; None while the listener is stopped."""
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        """Open calls by the id of the call's span, or of its trace if the trace has no span of type `task`."""
        self._traces: OrderedDict[str, Any] = OrderedDict()
        self._owners: OrderedDict[str, str] = OrderedDict()
        """Id of the enclosing call, guardrail or tool of each open span, by the span's id."""

    def on_trace_start(self, trace: Any) -> None:
        """Store the trace of the Agents SDK, which has the names of the workflow and the conversation."""
        with guarded("start of a trace of openai_agents"):
            _add_bounded(self._traces, trace.trace_id, trace)

    def on_trace_end(self, trace: Any) -> None:
        """End the RAG call of a trace that has no task span."""
        with guarded("end of a trace of openai_agents"):
            self._traces.pop(trace.trace_id, None)
            self._end_call(trace.trace_id, None)

    def on_span_start(self, span: Any) -> None:
        """Begin the recording of the agent, model call or tool that *span* describes."""
        with guarded("start of a run of openai_agents"):
            if self.runs is not None:
                self._begin(self.runs, span, span.span_data.type)

    def _begin(self, runs: FrameworkRuns, span: Any, kind: str) -> None:
        data: Any = span.span_data
        span_id: str = span.span_id
        parent_id: str | None = span.parent_id
        if kind == "task":
            self._begin_call(runs, span_id, parent_id, span.trace_id, data.name)
            _add_bounded(self._owners, span_id, span_id)
            return
        if parent_id is None and kind in _PARTS and span.trace_id not in self._calls:
            self._begin_call(runs, span.trace_id, None, span.trace_id, "")
        owner = self._owners.get(parent_id or "", span.trace_id)
        _add_bounded(self._owners, span_id, span_id if kind in _SCOPES else owner)
        parent_id = parent_id or span.trace_id
        if kind in _MODELS:
            runs.begin(span_id, parent_id, "generate", model=getattr(data, "model", None))
        elif kind == "function":
            runs.begin(span_id, parent_id, "tool", name=data.name)
        else:
            runs.begin(span_id, parent_id, "other")

    def _begin_call(self, runs: FrameworkRuns, run_id: str, parent_id: str | None, trace_id: str, name: str) -> None:
        trace = self._traces.get(trace_id)
        metadata: dict[str, Any] = getattr(trace, "metadata", None) or {}
        user = next((found for key in _USER if (found := label_of(metadata.get(key))) is not None), None)
        session = label_of(getattr(trace, "group_id", None))
        name = getattr(trace, "name", None) or name
        _add_bounded(self._calls, run_id, _Call())
        runs.begin(run_id, parent_id, "workflow", name=name, session=session, user=user)

    def on_span_end(self, span: Any) -> None:
        """End the recording of the agent, model call or tool that *span* describes, with its input and output."""
        with guarded("end of a run of openai_agents"):
            if self.runs is not None:
                self._end(self.runs, span, span.span_data.type)

    def _end(self, runs: FrameworkRuns, span: Any, kind: str) -> None:
        data, span_id = span.span_data, span.span_id
        owner = self._owners.pop(span_id, "")
        error = _error_of(span.error)
        call = self._calls.get(owner)
        if kind == "task":
            self._end_call(span_id, error)
            return
        if error is not None and kind == "agent" and call is not None:
            call.error = error
        given, output = _recorded_input_and_output(data, kind)
        if kind in _MODELS and call is not None:
            found = find_answer(output)
            call.given = given if call.given is None else call.given
            call.answer = call.answer if found is None or found.text is None else found.text
        if error is not None:
            runs.fail(span_id, error, given)
        else:
            runs.end(span_id, output, given)

    def _end_call(self, run_id: str, error: BaseException | None) -> None:
        """End a RAG call, with the query of its first model call and the answer of its last."""
        call = self._calls.pop(run_id, None)
        if call is None or self.runs is None:
            return
        error = error or call.error
        if error is not None:
            self.runs.fail(run_id, error, call.given)
        else:
            self.runs.end(run_id, None if call.answer is None else {"answer": call.answer}, call.given)

    def shutdown(self, timeout: float | None = None) -> None:
        """Do nothing, because ragtrace's own exit hook flushes at the end of the process."""

    def force_flush(self) -> None:
        """Do nothing, because the application flushes with `ragtrace.flush`."""


def _add_bounded(entries: OrderedDict[str, Any], key: str, value: object) -> None:
    """Add an entry to *entries*, and remove the oldest entry if there are too many."""
    entries[key] = value
    while len(entries) > _MOST_OPEN:
        entries.popitem(last=False)


def _error_of(error: object) -> BaseException | None:
    get = getter(error)
    if get is None:
        return None
    details = getter(get("data"))
    said = None if details is None else details("error")
    return SpanError(f"{get('message')}: {said}" if said else str(get("message")))


def _recorded_input_and_output(data: Any, kind: str) -> tuple[object, object]:
    """Return the input and output to record, from the contents *data* of an Agents SDK span."""
    if kind == "function":
        return parse_json(data.input), data.output
    if kind == "response":
        return _input_messages(data.input), data.response
    if kind == "generation":
        return _input_messages(data.input), _completion(data)
    return None, None


def _input_messages(given: Any) -> object:
    """Convert the input items of a model call to messages, with the result of a tool as a message with the role
    "tool".
    """
    if not isinstance(cast("object", given), (list, tuple)):
        return given
    messages: list[object] = []
    for item in items_of(given, _MOST_ITEMS) or ():
        get = getter(item)
        if get is None:
            continue
        role = "tool" if get("type") == "function_call_output" else get("role")
        if role != "tool":
            messages += [] if role is None else [item]
        elif not _is_handoff(result := get("output") or get("content")):
            messages.append({"role": "tool", "content": result})
    return messages


def _is_handoff(result: object) -> bool:
    """Return whether *result* is the SDK's notice of a handoff (the next agent's name) and not a real tool result."""
    value: Any = parse_json(result)
    return isinstance(value, dict) and list(cast("dict[str, object]", value)) == ["assistant"]


def _completion(data: Any) -> object:
    """Return the model's reply in the contents *data* of a generation span, as a chat completion or a response."""
    get = getter((items_of(data.output, 1) or [None])[0])
    if get is None:
        return None
    usage = data.usage if data.usage and data.usage.get("input_tokens") else None  # 0 where the model reported none
    if get("output") is None:
        message = {name: get(name) for name in ("role", "content", "tool_calls", "refusal")}
        return {"choices": [{"message": message}], "usage": usage, "model": data.model}
    ids = (
        getter(part("provider_data")) for item in items_of(get("output"), _MOST_ITEMS) or () if (part := getter(item))
    )
    response_id = next((label_of(found("response_id")) for found in ids if found is not None), None)
    # The SDK makes up the id of the response, which is the same for all.
    return {"output": get("output"), "usage": usage, "model": data.model, "id": response_id}


class _KeepingProvider(Proxy):
    """Transparent proxy of the SDK's trace provider, which keeps ragtrace's listener when all processors are replaced.

    Some instrumentations do so, and applications that do not want the SDK to send its traces itself.
    """

    def set_processors(self, processors: list[Any]) -> None:
        """Replace all trace processors except ragtrace's listener."""
        self.__wrapped__.set_processors([*processors, _listener])

    def create_trace(self, *args: Any, **kwargs: Any) -> Any:
        """Create a trace, after adding ragtrace's listener again if it is missing from the trace processors."""
        with guarded("listener of openai_agents"):
            processors = getattr(getattr(self.__wrapped__, "_multi_processor", None), "_processors", None)
            if isinstance(processors, (list, tuple)) and _listener not in processors:
                self.__wrapped__.register_processor(_listener)
        return self.__wrapped__.create_trace(*args, **kwargs)

    def set_disabled(self, disabled: bool) -> None:
        """Disable or enable tracing in the Agents SDK, and log once if it is disabled."""
        self.__wrapped__.set_disabled(disabled)
        if disabled and _listener.runs is not None:
            _log_disabled()


def _log_disabled() -> None:
    faults.log_once(
        "openai_agents.disabled",
        "tracing of the OpenAI Agents SDK is disabled, so that ragtrace does not see its runs; enable it with "
        "agents.set_tracing_disabled(False), and keep the SDK from sending traces itself with "
        "agents.set_trace_processors([])",
    )


_listener: Final = TraceListener()


def start(runtime: Callable[[], RecordingRuntime | None]) -> tuple[FrameworkRuns, Callable[[], object]]:
    """Install the listener in the OpenAI Agents SDK.

    Returns:
        The runs that are listened to, and a function that stops the listener.
    """
    tracing: Any = import_module("agents.tracing")

    def current_run_id() -> str | None:
        span, trace = tracing.get_current_span(), tracing.get_current_trace()
        found = span.span_id if span is not None else None if trace is None else trace.trace_id
        return found if isinstance(found, str) else None

    runs = FrameworkRuns("openai_agents", runtime, current_run_id, frozenset(semconv.OPENAI_AGENTS_SCOPES))
    provider = tracing.get_trace_provider()
    if type(provider) is not _KeepingProvider:
        tracing.add_trace_processor(_listener)
        tracing.set_trace_provider(_KeepingProvider(provider))
    _listener.runs = runs
    if type(provider.create_trace("ragtrace")).__name__ == "NoOpTrace":
        _log_disabled()
    return runs, _stop


def _stop() -> None:
    _listener.runs = None  # a processor cannot be removed again without the others
