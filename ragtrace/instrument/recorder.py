"""Records one decorated invocation: picks what matters from its arguments and results while the application waits.

Only references to texts are taken here. JSON, redaction and hashing come later, elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.context import Context, create_key, get_current
from opentelemetry.trace import get_current_span

from ragtrace.capture import AnswerStream, find_documents, warn_not_found
from ragtrace.capture.frozen import UNFROZEN, frozen, frozen_arguments
from ragtrace.core.step import Step
from ragtrace.core.types import Timing
from ragtrace.instrument.call_builder import Assembly, LooseRetrievals
from ragtrace.instrument.invocation import Ending
from ragtrace.instrument.step_fields import Selector, StepSpec, error_record, take_arguments, take_documents, take_reply
from ragtrace.system.context import SPAN_KEY
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.writer import SPAN_KINDS, SpanWriter

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from opentelemetry.util.types import Attributes

    from ragtrace.telemetry.spans.fast import FastTracer

FRAME = create_key("ragtrace-frame")
"""Where the OpenTelemetry context keeps the innermost step: whatever carries the context carries it."""
SUPPRESS = "suppress_instrumentation"
"""The key that all instrumentations of OpenTelemetry look for."""
_MOST_PIECES = 1_000
_NOTHING = object()
_process = object()
"""Stands for this process: comparing it costs less than asking for a number."""


def forked() -> None:
    """In a forked child: what had begun by now is the parent's."""
    global _process
    _process = object()


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

    @property
    def scores_head_dropped(self) -> bool:
        """Whether calls that head sampling dropped are scored all the same."""
        ...

    def head_dropped(self, workflow: str) -> None:
        """A call is over of which nothing was recorded, as head sampling dropped it."""
        ...


class Dropped:
    """Stands in the context where a step would, below a span that head sampling dropped: nothing there is recorded."""

    __slots__ = ("span",)

    def __init__(self, span: Span) -> None:
        self.span = span


def unobserved() -> bool:
    """Whether what runs in this context is not to be recorded.

    Either it is the background, where a judge may call what it judges; or the head sampler has dropped the call.
    """
    context = get_current()
    if context.get(SUPPRESS):
        return True
    frame = context.get(FRAME)
    if type(frame) is not Dropped:
        return False
    span: Any = context.get(SPAN_KEY)
    # Below it, somebody else may have begun a trace of their own, with another decision.
    try:
        return span is frame.span or not (span and span.get_span_context().trace_flags.sampled)
    except Exception as error:  # a span of somebody else's making
        faults.record("context of a span", error)
        return True


def current_step(context: Context) -> Recording | None:
    """The step that *context* is inside of, while its call is still running."""
    step: Any = context.get(FRAME)
    if step is None or type(step) is Dropped:
        return None
    # A task that outlives its request keeps the request's context, but what it does belongs to no open call. Nor does
    # what a forked child does: the call is its parent's, and ends there.
    ended = step.ended if step.assembly is None else step.assembly.root.ended
    return None if ended or step.is_inherited else step


class Recording(Step):
    """A `Recorder`, and the step that it records: one invocation, from its arguments to its finished step."""

    assembly: Assembly | None = None
    """The call it is part of; None for a retrieval outside any call."""
    began: float = 0.0
    current: Context | None = None
    _unread = True
    """Something was left for later."""
    _dropped = False
    _counts = False
    """Dropped as the root of a call: one call more that was sampled out."""
    _over: float | None = None
    _ending: Ending | None = None
    _kept_arguments: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None
    _kept_result: object = _NOTHING
    _stream: AnswerStream | None = None
    _pieces: list[object] | None = None

    def __init__(
        self, engine: Engine, spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: bool
    ) -> None:
        self.kind, self.name, self.workflow = spec.kind, spec.name, spec.workflow
        self._engine, self._spec, self._bound = engine, spec, bound
        self._given: tuple[tuple[Any, ...], Mapping[str, Any]] | None = (args, kwargs)
        self._process = _process

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked while the step ran: then it is the parent's."""
        return self._process is not _process

    def begin(self) -> Context | None:
        """Note the arguments, find the enclosing call, start the span. Never raises."""
        try:
            outside = get_current()
            self.began = perf_counter()
            fast = self._engine.writer.fast
            context = self._begin_ordinary(outside) if fast is None else self._begin_fast(fast, outside)
        except Exception as error:
            faults.record("begin", error)
            return None
        self.context = self.current = context
        return context

    def _begin_fast(self, fast: FastTracer, outside: Context) -> Context:
        if not fast.ids_only:
            self._note_arguments()  # the sampler wants to know name and attributes now
        self.span = span = fast.start_span(outside, SPAN_KINDS[self.kind], self._told)
        if not span.is_recording() and fast.drops_children and not self._engine.scores_head_dropped:
            if not fast.ids_only:
                self.forget()
            return self._drop(span, outside)
        if self._place(outside) and SPAN_KEY in outside:
            fast.separate_root(span, outside)
        self._note_arguments()
        return Context({**outside, SPAN_KEY: span, FRAME: self})

    def _drop(self, span: Span, outside: Context) -> Context:
        """The head sampler does not want it, nor what is below it: count it when it is over, and record nothing."""
        self._dropped, self._given = True, None
        self._counts = self.kind != "retrieve" and current_step(outside) is None
        return Context({**outside, SPAN_KEY: span, FRAME: Dropped(span)})

    def _told(self) -> tuple[str, Attributes]:
        return self._engine.writer.start_attributes(self)

    def _begin_ordinary(self, outside: Context) -> Context:
        self._note_arguments()
        self.complete()  # the SDK wants to know everything now
        writer = self._engine.writer
        self.span = span = writer.start_sdk_span(self, outside)
        if writer.drops_children and not span.is_recording() and not self._engine.scores_head_dropped:
            self.forget()
            return self._drop(span, outside)
        self._place(outside)
        return Context({**outside, SPAN_KEY: span, FRAME: self})

    def piece(self, piece: object) -> None:
        """Keep what a stream yielded."""
        if self._dropped:
            return
        if self.kind == "retrieve":
            self._pieces = [] if self._pieces is None else self._pieces
            if len(self._pieces) < _MOST_PIECES:
                self._pieces.append(piece)
            else:
                faults.warn_once("capture.documents.cut", "only %d yielded documents are recorded", _MOST_PIECES)
            return
        if self._stream is None:
            self._stream = AnswerStream()
        self._stream.add(piece if self._spec.result is None else self._spec.result(piece))

    def done(self, value: object) -> None:
        """Note what was returned and hand the step over. Never raises."""
        try:
            if self._dropped or self._process is not _process:
                self._count_dropped()
                return
            self._over, self.end_ns = perf_counter(), time_ns()
            try:
                self._note_result(value, streamed=False)
            except Exception as error:
                faults.record("capture of results", error)
            self._hand_over()
        except Exception as error:
            faults.record("end", error)

    def end(self, ending: Ending) -> None:
        """The same for what took longer, or failed."""
        if self._dropped or self._process is not _process:
            self._count_dropped()
            return
        self.end_ns = time_ns()
        self.streamed, self.abandoned, self._ending = ending.streamed, ending.abandoned, ending
        try:
            if ending.error is not None:
                self.error = error_record(ending.error, messages=self._engine.writer.shows_content)
            if ending.error is None or self.kind != "retrieve" or self._pieces:
                self._note_result(ending.value, streamed=ending.streamed)
        except Exception as error:
            faults.record("capture of results", error)
        finally:
            self._ending.value = self._ending.error = None  # an exception keeps its frames alive
            self._hand_over()

    def _hand_over(self) -> None:
        self.ended = self._unread = True
        assembly = self.assembly
        if assembly is not None and assembly.root is self:
            self._engine.call_ended(assembly)
        else:
            self._engine.step_ended(assembly, self)

    def _count_dropped(self) -> None:
        self.ended = True
        if self._counts and self._process is _process:
            self._engine.head_dropped(self.workflow)

    def _place(self, outside: Context) -> bool:
        """Join the enclosing call, open a new one, or stay loose (a retrieval outside any call); whether it is new."""
        if FRAME in outside and (step := current_step(outside)) is not None:
            self.parent, assembly = step, step.assembly
            if assembly is not None:
                self.assembly = assembly
                assembly.add(self)
                return False
        if self.kind == "trace":
            self.assembly = Assembly(self)
            return True
        around = get_current_span(outside).get_span_context()
        if self.kind == "retrieve":
            if around.is_valid and self.parent is None:
                self._engine.loose.add(around, self)
            return False
        self.assembly = Assembly(self, self._engine.loose.under(around) if around.is_valid else ())
        return True

    def _note_arguments(self) -> None:
        """Read the arguments now, or keep them for later if none of them can change."""
        spec = self._spec
        if spec.provider is not None:
            self.provider = spec.provider
        if spec.model is not None:
            self.request_model = spec.model
        given, self._given = self._given, None
        if given is None:
            return
        try:
            self._kept_arguments = frozen_arguments(*given) if spec.arguments.can_wait else None
            if self._kept_arguments is None:
                take_arguments(self, spec, spec.arguments.pick(*given, self._bound))
        except Exception as error:
            faults.record("capture of arguments", error)

    def _note_result(self, value: Any, *, streamed: bool) -> None:
        spec = self._spec
        if self.kind == "retrieve":
            value = self._pieces if streamed else value
            value = value if spec.result is None else spec.result(value)
        elif value is not None:
            if spec.sources is not None:
                self.documents = find_documents(spec.sources(value))
            if spec.result is not None and not streamed:
                value = self._selected(spec.result, value)
        kept = frozen(value)
        if kept is UNFROZEN:
            self.complete()  # in order: what the arguments told comes first
            self._take_result(value)
        else:
            self._kept_result = kept

    def _selected(self, selector: Selector, value: Any) -> object:
        try:
            return selector(value)
        except Exception as error:
            faults.record(f"answer= of {self._spec.function_name}", error)
            return value

    def forget(self) -> None:
        """Let go of all texts, read or not."""
        super().forget()
        self._unread, self._kept_arguments, self._kept_result = False, None, _NOTHING
        self._stream = self._pieces = None

    def let_go(self) -> None:
        """Let go of the contexts that lead back here."""
        super().let_go()
        self.current = None

    def complete(self) -> None:
        """Read what was left for later: arguments, times, result."""
        if not self._unread:
            return
        self._unread = False
        kept, self._kept_arguments = self._kept_arguments, None
        result, self._kept_result = self._kept_result, _NOTHING
        try:
            if kept is not None:
                take_arguments(self, self._spec, self._spec.arguments.pick(*kept, self._bound, is_frozen=True))
        except Exception as error:
            faults.record("capture", error)
        if self._ending is not None:
            self.timing = self._ending.timing()
        elif self._over is not None:
            self.timing = Timing(duration_s=self._over - self.began)
        try:
            if result is not _NOTHING:
                self._take_result(result)
        except Exception as error:
            faults.record("capture", error)

    def _take_result(self, value: object) -> None:
        if self.kind == "retrieve":
            take_documents(value, self, self._spec)
        else:
            take_reply(value, self, self._spec, self._stream)
            if self.answer is None and self.kind == "trace":
                self._tell_of_no_answer(value)

    def _tell_of_no_answer(self, value: object) -> None:
        """Say once that a call has no answer: neither in what its root returned nor in any generation inside it."""
        if value is None or self.error is not None or self.assembly is None:
            return
        if all(step.kind != "generate" for step in self.assembly.steps):
            warn_not_found("answer", self._spec.function_name, value)
