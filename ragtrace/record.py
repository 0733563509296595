"""Records one decorated invocation: picks what matters from its arguments and results while the application waits.

Only references to texts are taken here. JSON, redaction and hashing come later, elsewhere.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import time_ns
from typing import Any, Protocol, TypeAlias

from opentelemetry.context import Context, create_key, get_current
from opentelemetry.trace import get_current_span

from ragtrace.arguments import Arguments, Picked
from ragtrace.assemble import Assembly, LooseRetrievals
from ragtrace.capture import (
    UNFROZEN,
    Reply,
    StreamText,
    documents,
    frozen,
    frozen_arguments,
    not_understood,
    reply,
)
from ragtrace.drive import Ending
from ragtrace.errors import faults, guarded
from ragtrace.model import Usage
from ragtrace.spans import SpanWriter
from ragtrace.steps import ErrorRecord, Step, StepKind

FRAME = create_key("ragtrace-frame")
"""Where the OpenTelemetry context keeps (assembly or None, innermost step): whatever carries the context carries it."""
SUPPRESS = "suppress_instrumentation"
"""The key that all instrumentations of OpenTelemetry look for."""
Frame: TypeAlias = "tuple[Assembly | None, Step]"
Selector: TypeAlias = Callable[[Any], object]
_STACKTRACE_CHARS = 20_000
_MOST_PIECES = 1_000
_NO_KEYWORDS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class StepSpec:
    """What is known of a decorated function before it is called."""

    kind: StepKind
    function_name: str
    arguments: Arguments
    name: str = ""
    workflow: str = ""
    rerank: bool | None = None
    """None: a retrieval that is given documents is a re-ranking."""
    provider: str | None = None
    model: str | None = None
    result: Selector | None = None
    """Documents of a retrieval, or answer of a generation or trace, out of what it returned or yielded."""
    sources: Selector | None = None
    """Documents that a generation or trace used, out of what it returned."""


class Engine(Protocol):
    """What recording needs of the runtime."""

    @property
    def writer(self) -> SpanWriter: ...
    @property
    def loose(self) -> LooseRetrievals: ...
    def step_ended(self, assembly: Assembly | None, step: Step) -> None:
        """A step that is not the root of a call is over."""
        ...

    def call_ended(self, assembly: Assembly) -> None:
        """The root of a call is over."""
        ...


def current_frame(context: Context) -> Frame | None:
    """The call and step that *context* is inside of, while that call is still running."""
    frame: Any = context.get(FRAME)
    if frame is None:
        return None
    assembly, step = frame
    # A task that outlives its request keeps the request's context, but what it does belongs to no open call.
    ended = step.ended if assembly is None else assembly.root.ended
    return None if ended else frame


def suppressed() -> bool:
    """Whether this context is not to be traced: above all the background, where a judge may call what it judges."""
    return bool(get_current().get(SUPPRESS))


class Recording:
    """A `Recorder`: one invocation, from its arguments to its finished step."""

    __slots__ = ("_args", "_assembly", "_bound", "_engine", "_kwargs", "_pieces", "_spec", "_stream", "step")

    def __init__(
        self, engine: Engine, spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, bound: bool
    ) -> None:
        self._engine, self._spec = engine, spec
        self._args, self._kwargs, self._bound = args, kwargs, bound
        self._assembly: Assembly | None = None
        self._stream: StreamText | None = None
        self._pieces: list[object] | None = None
        self.step = Step(spec.kind, spec.name, spec.workflow)

    def begin(self) -> Context:
        """Note the arguments, find the enclosing call, start the span."""
        spec, step, engine = self._spec, self.step, self._engine
        step.provider, step.request_model = spec.provider, spec.model
        outside = get_current()
        try:
            self._note_arguments(at_once=not engine.writer.names_later)
        except Exception as error:
            faults.record("capture of arguments", error)
        self._args, self._kwargs = (), _NO_KEYWORDS
        self._place(outside)
        step.context = engine.writer.start(step, outside, FRAME, (self._assembly, step))
        return step.context

    def piece(self, piece: object) -> None:
        """Keep what a stream yielded."""
        if self._spec.kind == "retrieve":
            self._pieces = [] if self._pieces is None else self._pieces
            if len(self._pieces) < _MOST_PIECES:
                self._pieces.append(piece)
            else:
                faults.warn_once("capture.documents.cut", "only %d yielded documents are recorded", _MOST_PIECES)
            return
        if self._stream is None:
            self._stream = StreamText()
        self._stream.add(piece if self._spec.result is None else self._spec.result(piece))

    def end(self, ending: Ending) -> None:
        """Note what was returned and hand the step over."""
        step = self.step
        step.end_ns = time_ns()
        step.streamed, step.abandoned = ending.streamed, ending.abandoned
        step.deferred.append(partial(_take_timing, step, ending))
        try:
            if ending.error is not None:
                step.error = _error_record(ending.error)
            self._note_result(ending)
        except Exception as error:
            faults.record("capture of results", error)
        finally:
            step.ended = True
            if self._assembly is not None and self._assembly.root is step:
                self._engine.call_ended(self._assembly)
            else:
                self._engine.step_ended(self._assembly, step)

    def _note_arguments(self, *, at_once: bool) -> None:
        """Read the arguments now, or keep them for later if none of them can change."""
        kept = frozen_arguments(self._args, self._kwargs) if self._spec.arguments.can_wait and not at_once else None
        if kept is None:
            picked = self._spec.arguments.pick(self._args, self._kwargs, self._bound)
            _take_arguments(self.step, self._spec, picked)
        else:
            self.step.deferred.append(partial(_pick_later, self.step, self._spec, *kept, self._bound))

    def _place(self, outside: Context) -> None:
        """Join the enclosing call, or open a new one, or stay loose (a retrieval outside any call)."""
        step, frame = self.step, current_frame(outside)
        if frame is not None:
            self._assembly, step.parent = frame
        if self._assembly is not None:
            self._assembly.add(step)
            return
        around = get_current_span(outside).get_span_context()
        if step.kind == "retrieve":
            if around.is_valid and step.parent is None:
                self._engine.loose.add(around, step)
            return
        loose = self._engine.loose.under(around) if step.kind == "generate" and around.is_valid else ()
        self._assembly = Assembly(step, loose)

    def _note_result(self, ending: Ending) -> None:
        spec, step = self._spec, self.step
        value: Any = ending.value
        if spec.kind == "retrieve":
            value = self._pieces if ending.streamed else value
            if ending.error is not None and not self._pieces:
                return
            value = value if spec.result is None else spec.result(value)
            self._defer(_take_documents, value, step, spec)
            return
        if spec.sources is not None and value is not None:
            step.documents = documents(spec.sources(value))
        if spec.result is not None and value is not None and not ending.streamed:
            value = self._selected(value)
        self._defer(_take_reply, value, step, spec, self._stream)

    def _selected(self, value: Any) -> object:
        selector = self._spec.result
        try:
            return value if selector is None else selector(value)
        except Exception as error:
            faults.record(f"answer= of {self._spec.function_name}", error)
            return value

    def _defer(self, take: Callable[..., None], value: Any, *others: object) -> None:
        """Take *value* later if it cannot change, else now."""
        kept = frozen(value)
        if kept is UNFROZEN:
            self.step.complete()  # in order: what the arguments told comes first
            take(value, *others)
        else:
            self.step.deferred.append(partial(take, kept, *others))


def _pick_later(step: Step, spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: bool) -> None:
    _take_arguments(step, spec, spec.arguments.pick(args, kwargs, bound))


def _take_arguments(step: Step, spec: StepSpec, picked: Picked) -> None:
    step.query, step.top_k = picked.query, picked.top_k
    step.conversation_id, step.user_id = picked.session, picked.user
    step.request_model = spec.model or picked.model
    if spec.kind == "retrieve":
        step.rerank = picked.documents is not None if spec.rerank is None else spec.rerank
    elif spec.kind == "generate":
        step.documents = picked.documents


def _take_timing(step: Step, ending: Ending) -> None:
    step.timing = ending.timing()


def _take_documents(value: object, step: Step, spec: StepSpec) -> None:
    step.documents = documents(value)
    if step.documents is None and not step.abandoned:
        not_understood("documents", spec.function_name, value)


def _take_reply(value: object, step: Step, spec: StepSpec, stream: StreamText | None) -> None:
    returned = None if value is None else reply(value)
    streamed = None if stream is None else stream.reply()
    for found in (returned, streamed):  # what was streamed is the answer; the object around it may know the sources
        if found is not None:
            _take_fields(step, found)
    if spec.kind == "generate" and returned is None and streamed is None and step.error is None:
        not_understood("answer", spec.function_name, value)


def _take_fields(step: Step, found: Reply) -> None:
    step.answer = found.text if found.text is not None else step.answer
    step.response_model = found.model or step.response_model
    step.response_id = found.response_id or step.response_id
    step.finish_reasons = found.finish_reasons or step.finish_reasons
    if found.input_tokens is not None or found.output_tokens is not None:
        step.usage = Usage(found.input_tokens, found.output_tokens)
    step.cut_chars += found.cut_chars
    if step.documents is None:
        step.documents = found.documents


def type_name(error: BaseException) -> str:
    """The value of `error.type`: with its module unless it is a builtin."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _error_record(error: BaseException) -> ErrorRecord:
    message = stacktrace = ""
    with guarded("text of an exception"):
        message = str(error)
        stacktrace = "".join(traceback.format_exception(error))[-_STACKTRACE_CHARS:]
    return ErrorRecord(type_name(error), message, stacktrace)
