"""Recorder of one step: one run of a decorated function, of a `ragtrace.call` block, or of a framework's component.

Query, documents and answer are extracted from the run's arguments and result. While the application waits, values that
are immutable are only kept; they are extracted on ragtrace's background thread. JSON, redaction and hashing are done
later, elsewhere.

**Order of the file.** `StepSpec` and `RecordingRuntime`, what a recorder is given; the functions on the OpenTelemetry
context; `StepRecorder`, in the order of a run: `begin`, `piece`, `done` or `end`, the hand-over, and the reading of
what was kept; then functions that tell mutable from immutable values.

**Who runs what.** A recorder has no lock: it belongs to one thread at a time.

    until the hand-over    the application's threads, one after another: `begin`, `piece`, `done` or `end`
    hand-over              `_hand_over`, once: sets `Step.ended` and gives step and recorder to the runtime
    while a guard checks   the thread or task of the application that waits, and the background thread, which builds the
                           call to be judged; `ragtrace.guard.guarded_call` says how they take turns
    afterwards             the background thread: `read` or `clear`, through `Step.complete` and `Step.clear_texts`

**What is kept.** Arguments and result are each in one of three states:

| State | Arguments | Result | Who changes it |
|---|---|---|---|
| given | `_given_arguments` | | the application's thread, by `_keep_or_read_arguments` |
| kept: immutable, and not read yet | `_kept_arguments` | `_kept_result` | any thread that has the recorder, by `read` |
| read | fields of the step | fields of the step | |

What is mutable goes from given to read at once, on the application's thread, and so does what the root span shows at
its start. Pieces of a stream are collected as they come, by `piece`, and become a part of the result.

**Invariants**, each with the test that guards it.

- Nothing here raises into the application: `begin` returns None, and the function runs unrecorded
  (`tests/unit/recording/test_failures.py`, `tests/unit/capture/test_hostile_objects.py`).
- What cannot change is read in the background, what may change before the function returns, and what nobody wants is
  never read: the last three tests of `tests/unit/recording/test_recorder.py`.
- Of a trace that the head sampler drops, no text stays in memory: `tests/unit/telemetry/test_head_dropped.py`. Its
  sampler sees the arguments where it asks for them: `tests/unit/telemetry/test_fast_span_sampling.py`.
- A child process ends no step of its parent: `tests/process/test_forked_calls.py`.
- Without a guard, no instruction here names one: `test_without_a_guard_the_request_path_knows_nothing_of_guards` in
  `tests/unit/guard/test_drivers.py`.

**How to change it.** Everything from `begin` to `_hand_over` costs the application's request: what can wait belongs to
`read`. Each function call there was weighed, and the interpreter fits this code to one class, so that there is neither
a helper for a line nor a subclass without a need. `tests/benchmarks/overhead.py --only request` says what a change
costs; compare it with the commit before, in turns.

"Call" means a RAG call here, which is made of steps. Functions, blocks and components have runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import is_finalizing
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from opentelemetry.context import Context, get_current
from opentelemetry.trace import get_current_span

from ragtrace.capture import (
    Answer,
    AnswerStream,
    answer_in_json,
    find_answer,
    find_documents,
    find_tool_result,
    is_tool_error,
    says_no_answer,
    warn_not_found,
    warn_not_reduced,
    warn_unknown_stream,
)
from ragtrace.capture.arguments import ExtractedArguments, FunctionArguments
from ragtrace.capture.documents import MAX_DOCUMENTS, add_documents
from ragtrace.capture.exceptions import message_of, traceback_of
from ragtrace.capture.fields import full_name_of
from ragtrace.capture.providers import provider_of
from ragtrace.capture.redact import MARGIN_CHARS, STACKTRACE_CHARS
from ragtrace.capture.tags import joined_tags
from ragtrace.core.step import (
    FINDING_KINDS,
    CallBuilder,
    CallRouter,
    ErrorRecord,
    OrphanRetrievals,
    Step,
    StepKind,
)
from ragtrace.core.tags import TagValue
from ragtrace.core.types import Timing, Usage
from ragtrace.recording.tag_layers import TagLayer, baggage_tags, current_layer
from ragtrace.system import collection, forks, framework_runs
from ragtrace.system.context import RECORDER_KEY, SPAN_KEY
from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.spans.intake import open_step
from ragtrace.telemetry.spans.writer import SPAN_KINDS, SpanWriter

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from opentelemetry.util.types import Attributes

Selector: TypeAlias = Callable[[Any], object]
Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of one run."""

SUPPRESS: Final = "suppress_instrumentation"
"""Context key by which all instrumentations of OpenTelemetry are suppressed."""
_MOST_YIELDED_DOCUMENTS: Final = MAX_DOCUMENTS + 1
"""Most documents that are kept of a retrieval that yields them one by one: as many as are read of one that returns a
list, and one more, by which it is known that there were more. A streamed answer has a limit of its own
(`AnswerStream`)."""
_FIRST_OF_JSON: Final = "{` \t\r\n"
_MOST_PIECES: Final = 200_000
"""Most pieces of a stream that are kept for the user's function that reduces them: it is given all or none."""
_STACKTRACE_CHARS: Final = STACKTRACE_CHARS + MARGIN_CHARS
"""Last characters of a stack trace that are redacted. Redaction cuts off the margin, where a match may be split."""
_MUTABLE: Final = object()
"""Marker of a value that may still change, so that texts have to be extracted from it at once."""
_NOTHING: Final = object()
"""Marker of a result that is not kept, as None may be a result."""
_IMMUTABLE_TYPES: Final = frozenset(map(id, (str, bytes, int, float, bool, type(None))))
"""Ids of immutable classes. Not the classes: a metaclass may prevent hashing."""
_class_of: Callable[[object], type[object]] = type
"""`type`, annotated for the type checker: `typing.cast` would cost a function call at run time."""


class StepSpec(NamedTuple):
    """Specification of the steps of one function, block or component: options, and the meaning of the arguments."""

    kind: StepKind
    arguments: FunctionArguments
    name: str = ""
    """Workflow of a trace, data source of a retrieval, name of a tool; empty for a generation."""
    workflow: str = ""
    """Name under which the RAG call is scored if the step is its root; a retrieval or tool never is."""
    rerank: bool | None = None
    """Whether the retrieval is a re-ranking; None if that depends on whether the function is given documents."""
    provider: str | None = None
    model: str | None = None
    select_result: Selector | None = None
    """Function that selects the documents (retrieval) or the answer (any other step) from the result or a piece."""
    select_sources: Selector | None = None
    """Function that selects from the result, or a piece, the documents that a generation or trace used."""
    reduce: Selector | None = None
    """Function that makes the answer of the list of a stream's pieces, of which `select_result` is not asked then."""


class StartTime(NamedTuple):
    """Start time of a step, on the monotonic clock and since the epoch."""

    seconds: float
    """Monotonic seconds."""
    start_ns: int
    """Wall clock, nanoseconds since the epoch."""


class RecordingRuntime(Protocol):
    """Interface through which step recorders hand finished steps and RAG calls to the configured runtime."""

    @property
    def writer(self) -> SpanWriter: ...
    @property
    def orphans(self) -> OrphanRetrievals: ...
    @property
    def scores_head_dropped(self) -> bool:
        """Whether RAG calls are scored even if the head sampler dropped their trace."""
        ...

    @property
    def baggage_tags(self) -> tuple[str, ...]:
        """Names that a RAG call's tags are read from, where OpenTelemetry's baggage has them; empty: none are."""
        ...

    @property
    def router(self) -> CallRouter | None:
        """Says where the telemetry of each RAG call goes; None: all of it to one exporter."""
        ...

    @property
    def looks_around(self) -> bool:
        """Whether there are `baggage_tags` or a `router`, which a RAG call without tags around it needs, too."""
        ...

    def step_ended(self, builder: CallBuilder | None, step: Step) -> None:
        """Receive a finished step that is not the root of a RAG call, to write its span.

        Args:
            builder: the builder of the RAG call that the step is part of; None for a retrieval outside any RAG call.
            step: the step.
        """
        ...

    def call_ended(self, builder: CallBuilder) -> None:
        """Receive a RAG call whose root step has ended, to write its span and score it."""
        ...

    def unrecorded(self, step: Step, reason: Literal["head_dropped", "forked"], *, is_call: bool) -> None:
        """Receive a step that has ended and is not recorded.

        Args:
            step: the step, without texts.
            reason: `head_dropped`: the head sampler dropped its trace; `forked`: it began in the parent process.
            is_call: whether it is the root of a RAG call, which is then counted as sampled out.
        """
        ...


class DroppedTrace:
    """Marker in the OpenTelemetry context that the head sampler dropped the trace, so that nothing is recorded."""

    __slots__ = ("span",)

    def __init__(self, span: Span) -> None:
        self.span = span


def is_recording_suppressed() -> bool:
    """Return whether decorated functions called in the current context must not be recorded.

    That is so on the background thread, where a judge may call the functions that it judges, in a trace that the
    head sampler has dropped, in a finalizer that may not set context variables, and when the interpreter ends: a
    background thread that is no more may hold any lock.
    """
    if is_finalizing():
        return True
    if collection.thread and collection.is_on_this_thread():
        faults.warn_once(
            "called by the garbage collector",
            "a decorated function or block ran in a finalizer (__del__, or a generator's finally) during garbage "
            "collection and is not recorded: the request that is interrupted is not its own. Close what is left",
        )
        return True
    context = get_current() if framework_runs.find_context is None else recording_context()
    if context.get(SUPPRESS):
        return True
    marker = context.get(RECORDER_KEY)
    if type(marker) is not DroppedTrace:
        return False
    span: Any = context.get(SPAN_KEY)
    # Another library may have begun a trace of its own below the dropped span, with another decision.
    try:
        return span is marker.span or not (span and span.get_span_context().trace_flags.sampled)
    except Exception as error:  # a span of another library
        faults.record("context of a span", error)
        return True


def recording_context() -> Context:
    """Return the current context, extended by the span and recorder of a framework's component run in progress.

    Listeners attach nothing to the current context: inside a run, the run's span and recorder are put into a copy.
    """
    context = get_current()
    run = None if framework_runs.find_context is None else framework_runs.find_context()
    if run is None:
        return context
    innermost, of_run = current_recorder(context), current_recorder(run)
    if innermost is not None and of_run is not None and of_run.step in innermost.step.enclosing():
        return context  # of a decorated function inside the run
    return Context({**context, SPAN_KEY: run[SPAN_KEY], RECORDER_KEY: run[RECORDER_KEY]})


def current_recorder(context: Context) -> StepRecorder | None:
    """Return the recorder of the innermost step in progress in *context*, or None outside a RAG call in progress."""
    recorder: Any = context.get(RECORDER_KEY)
    if recorder is None or type(recorder) is DroppedTrace:
        return None
    # Steps of a task that outlives its request are in the request's context, but belong to no open RAG call. Neither do
    # steps of a forked child, as the RAG call belongs to the parent process and ends there.
    builder: CallBuilder | None = recorder.call_builder
    ended = recorder.step.ended if builder is None else builder.root.ended
    return None if ended or recorder.process is not forks.process else recorder


class StepRecorder:
    """Recorder of one run of a function, block or component, which fills a step and hands the step to the runtime.

    `begin` comes first; then `piece` for each piece of a stream; then, once, `done` or `end`. `done` is for a plain
    value that the function has returned, the usual case, and measures the duration itself; `end` is for all else, and
    is given the times that `Invocation` has measured.

    Guards that hold an answer back (`ragtrace.guard.guarded_call`) have a subclass, which overrides `_hand_over` to
    keep the call until its answer was checked. Those in shadow mode stand between the recorder and the runtime instead.

    Args:
        runtime: takes over the finished step.
        spec: the specification of the decorated function's steps.
        args: positional arguments of the run.
        kwargs: keyword arguments of the run.
        bound: whether *args* leaves out the function's first parameter, self or cls.
    """

    call_builder: CallBuilder | None = None
    """Builder of the RAG call to which the step belongs; None for a retrieval outside any RAG call."""
    started_at: float = 0.0
    """Start of the run, in monotonic seconds; 0 before `begin`."""
    current: Context | None = None
    """Context to run the function in, with what the function has attached; None before `begin` and after the end."""
    tags_around: TagLayer | None = None
    """Tags of the `ragtrace.tags` blocks around the place where the function was called; None: there is none."""
    is_dropped = False
    """Whether the head sampler has dropped the step."""
    _counts_as_dropped = False
    """Whether the dropped step is the root of a RAG call, which is then counted as sampled out."""
    _ended_at: float | None = None
    """End of a run that `done` has ended, in monotonic seconds; None: `end` was given the times."""
    _kept_arguments: Arguments | None = None
    """Immutable arguments that are not read yet; None: there are none."""
    _kept_result: object = _NOTHING
    """Immutable result that is not read yet, or `_NOTHING`."""
    _answer_stream: AnswerStream | None = None
    """Pieces of a streamed answer; None: none has come."""
    _pieces: list[object] | None = None
    """Pieces of a stream that the user's function is to reduce; None: there are none, or they were reduced."""
    _reduced: Answer | None = None
    """What the user's function has made of the pieces; None: nothing that is an answer."""
    _sources_error: Exception | None = None
    """What the function that selects the sources has raised first, of a chunk of the stream; None: nothing."""
    _yielded_documents: list[object] | None = None
    """What a retrieval or tool has yielded; None: nothing."""

    def __init__(
        self, runtime: RecordingRuntime, spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: bool
    ) -> None:
        self.step = step = Step()
        step.kind, step.name, step.workflow = spec.kind, spec.name, spec.workflow
        self.process = forks.process
        self._runtime, self._spec, self._bound = runtime, spec, bound
        self._given_arguments: Arguments | None = (args, kwargs)
        """Arguments that are neither kept nor read yet; None from then on."""
        # Not in `begin`: a generator begins at its first `next`, when the block that it was called in may have ended.
        around = current_layer.get()
        if around is not None:
            self.tags_around = around

    def begin(self, outside: Context | None = None, started: StartTime | None = None) -> Context | None:
        """Begin to record the run: start a span, keep the arguments, find the enclosing RAG call. Never raises.

        Args:
            outside: the context around the run, in which it begins; None: the current one.
            started: when the run began; None: now.

        Returns:
            The context to run the function in; None if that failed, so that nothing is recorded.
        """
        try:
            if outside is None:
                outside = get_current() if framework_runs.find_context is None else recording_context()
            self.started_at = perf_counter() if started is None else started.seconds
            step, writer = self.step, self._runtime.writer
            if self._spec.arguments.has_tags and self._given_arguments is not None:
                step.tags = self._spec.arguments.extract_tags(*self._given_arguments, self._bound)
            fast = writer.fast_tracer  # makes spans at less cost than the SDK; None: the SDK makes them
            if fast is not None and not fast.usable:
                fast = None
            # The arguments come before the span where its start shows them: to processors and samplers, of an SDK span,
            # and to a head sampler that decides by more than ids. Else they come after it, as the trace may be dropped.
            if fast is None or not fast.ids_only:
                self._keep_or_read_arguments()
            if fast is None:
                self.read()
                step.span = span = writer.start_sdk_span(step, outside, None if started is None else started.start_ns)
            else:
                step.span = span = fast.start_span(outside, SPAN_KINDS[step.kind], self._start_attributes)
                if started is not None:  # a component run is often recorded only after it has begun
                    fast.backdate(span, started.start_ns)
            if not span.is_recording() and (fast or writer).drops_children and not self._runtime.scores_head_dropped:
                context = self._drop(span, outside)
            else:
                begins_call = self._join_or_begin_call(outside)
                if begins_call and (self.tags_around is not None or self._runtime.looks_around):
                    self._take_tags_around(outside)
                if begins_call and SPAN_KEY in outside and fast is not None:
                    fast.separate_root(span, outside)  # from a span that goes to another provider's backend
                if self._given_arguments is not None:
                    self._keep_or_read_arguments()
                context = Context({**outside, SPAN_KEY: span, RECORDER_KEY: self})
        except Exception as error:
            # A span that was started is never ended, and so never exported. The function runs unrecorded.
            faults.record("begin", error)
            return None
        except BaseException as error:  # the application's own, out of a function that it has given: it goes on
            faults.warn_once(
                "begin",
                "%s was raised while a call began to be recorded, by a function that query=, session=, user= or tags= "
                "names, or by Ctrl-C: the call is not recorded",
                type(error).__name__,
            )
            raise
        step.context = self.current = context
        return context

    def _start_attributes(self) -> tuple[str, Attributes]:
        """Return the span's name and start attributes, which the head sampler sees."""
        if not self.step.ended:
            self.read()
        return self._runtime.writer.start_attributes(self.step)

    def _drop(self, span: Span, outside: Context) -> Context:
        """Stop recording because the head sampler dropped the trace, and return a context that records nothing."""
        self.clear()
        self.step.clear_texts()
        self.is_dropped = True
        self._counts_as_dropped = self.step.kind not in FINDING_KINDS and current_recorder(outside) is None
        return Context({**outside, SPAN_KEY: span, RECORDER_KEY: DroppedTrace(span)})

    def _join_or_begin_call(self, outside: Context) -> bool:
        """Add the step to the enclosing RAG call, or begin a new one, and return whether a RAG call was begun.

        A retrieval outside any RAG call is noted, and kept for a later generation under the same parent span, if any.
        """
        step = self.step
        if RECORDER_KEY in outside and (recorder := current_recorder(outside)) is not None:
            step.parent, builder = recorder.step, recorder.call_builder
            if builder is not None:
                if outside.get(SPAN_KEY) is not recorder.step.span:  # another instrumentation's span, of a tool say
                    inner = open_step(get_current_span(outside).get_span_context().span_id)
                    step.parent = inner or recorder.step
                self.call_builder = builder
                builder.steps.append(step)
                return False
        if step.kind == "trace":
            self.call_builder = CallBuilder(step, [step])
            return True
        parent_span = get_current_span(outside).get_span_context()
        if step.kind in FINDING_KINDS:
            if step.parent is None:
                self._runtime.orphans.add(parent_span, step, self._spec.arguments.function_name)
                if (router := self._runtime.router) is not None:
                    router.begin_retrieval(step, self._tags_around(outside), outside)
            return False
        orphans = self._runtime.orphans.under(parent_span) if parent_span.is_valid else ()
        self.call_builder = CallBuilder(step, [step], orphans)
        return True

    def _take_tags_around(self, outside: Context) -> None:
        """Add to the tags of a RAG call's root those around it: of blocks, and of the baggage in *outside*.

        What the function's own arguments say counts first, then the innermost block, then the baggage.
        """
        tags, own = self._tags_around(outside), self.step.tags
        self.step.tags = tags if own is None else joined_tags(tags, own, "a call and what is around it")
        router = self._runtime.router
        if router is not None and self.call_builder is not None:
            router.begin_call(self.call_builder, outside)

    def _tags_around(self, outside: Context) -> Mapping[str, TagValue]:
        names, around = self._runtime.baggage_tags, self.tags_around
        tags: Mapping[str, TagValue] = baggage_tags(names, outside) if names else {}
        if around is None:
            return tags
        return joined_tags(tags, around.tags, "the blocks and the baggage around a call") if tags else around.tags

    def add_tags(self, tags: Mapping[str, TagValue]) -> None:
        """Add *tags* to the RAG call of the step, in the place of earlier ones of the same names."""
        if self.call_builder is not None:
            root = self.call_builder.root
            root.tags = joined_tags(root.tags or {}, tags, "a call in progress")
            if (router := self._runtime.router) is not None:
                router.add_tags(root, tags)

    def replace_arguments(self, kwargs: Mapping[str, Any]) -> None:
        """Replace the recorded arguments by *kwargs*, because some of them were unknown when the run began."""
        if not self.is_dropped and not self.step.ended:
            self._given_arguments = ((), kwargs)
            self._keep_or_read_arguments()

    def take_provider(self, found: object) -> None:
        """Set the model provider that a stream or its first chunk shows, if any."""
        if self.step.kind == "generate" and not self.step.provider:
            self.step.provider = provider_of(found) or self.step.provider

    def piece(self, piece: object) -> None:
        """Record a chunk of the function's stream: a document of a retrieval, or a part of the answer."""
        if self.is_dropped:
            return
        if self.step.kind in FINDING_KINDS:
            self._yielded_documents = [] if self._yielded_documents is None else self._yielded_documents
            if len(self._yielded_documents) < _MOST_YIELDED_DOCUMENTS:
                self._yielded_documents.append(piece)
            return
        if self._answer_stream is None:
            self._answer_stream = AnswerStream()
            if type(piece) is not str:
                self.take_provider(piece)
        if self._spec.select_sources is not None:
            self._add_sources(self._spec.select_sources, piece)
        if self._spec.reduce is not None:
            self._pieces = [] if self._pieces is None else self._pieces
            if len(self._pieces) <= _MOST_PIECES:
                self._pieces.append(piece)
        elif self._spec.select_result is not None:
            try:
                piece = self._spec.select_result(piece)
            except Exception:
                self._answer_stream.lose("which answer= has raised")  # the other pieces are a part of the answer
                raise
        self._answer_stream.add(piece)

    def _add_sources(self, select: Selector, piece: object) -> None:
        """Add the documents that the user's function selects from a chunk of the answer, which need not have any."""
        try:
            found = find_documents(select(piece))
        except Exception as error:
            self._sources_error = self._sources_error or error
            return
        if found is not None:
            self.step.documents = add_documents(self.step.documents, found)

    def done(self, value: object) -> None:
        """Record the end of a run that returned *value*, which is neither a stream nor an awaitable. Never raises."""
        try:
            if self.is_dropped or self.process is not forks.process:
                self._count_dropped()
                return
            # `read` makes the step's timing of this, on the background thread: the application waits here.
            self._ended_at, self.step.end_ns = perf_counter(), time_ns()
            try:
                self._keep_or_read_result(value, streamed=False)
            except Exception as error:
                faults.record("capture of results", error)
            finally:  # also of an exit or a cancellation out of a function of the application, which goes on
                self._hand_over()
        except Exception as error:
            faults.record("end", error)

    def end(
        self, value: object, error: BaseException | None, *, timing: Timing, abandoned: bool, streamed: bool
    ) -> None:
        """Record the end of a run that failed, or whose result was a stream or an awaitable.

        Args:
            value: what the function returned; the pieces of a stream were recorded before.
            error: what the function raised.
            timing: how long the run took, when the first and the last piece of a stream came, and how long the reader
                held the stream between them. `Invocation` measures it.
            abandoned: whether the stream was left before its end, also by a reader that was cancelled (with *error*),
                or an awaitable was never awaited to its end.
            streamed: whether the function returned a stream, read or not.
        """
        if self.is_dropped or self.process is not forks.process:
            self._count_dropped()
            return
        step = self.step
        step.end_ns, step.timing, step.streamed, step.abandoned = time_ns(), timing, streamed, abandoned
        try:
            if error is not None:
                shows_content = self._runtime.writer.shows_content
                message, stacktrace = "" if shows_content else None, ""
                with guarded("text of an exception"):
                    message = message_of(error) if shows_content else None
                    stacktrace = traceback_of(error, messages=shows_content)[-_STACKTRACE_CHARS:]
                step.error = ErrorRecord(full_name_of(type(error)), message, stacktrace)
            if error is None or step.kind not in FINDING_KINDS or self._yielded_documents:
                self._keep_or_read_result(value, streamed=streamed)
        except Exception as fault:
            faults.record("capture of results", fault)
        finally:
            self._hand_over()

    def _hand_over(self) -> None:
        """End the step and give it to the runtime. From here on, this thread changes neither step nor recorder."""
        step, builder = self.step, self.call_builder
        # As in `_keep_ended`, which is not called here, since a request waits for each call of a function.
        step.deferred_reading, step.ended, self.current = self, True, None
        if builder is not None and builder.root is step:
            self._runtime.call_ended(builder)
        else:
            self._runtime.step_ended(builder, step)

    def _keep_ended(self) -> None:
        """End the step as `_hand_over` does, but keep it: a later `_hand_over` gives it to the runtime."""
        self.step.deferred_reading, self.step.ended, self.current = self, True, None

    def _count_dropped(self) -> None:
        """End a step that nothing is recorded of, and count the RAG call that it would have been the root of.

        That is a step that the head sampler dropped, or one that a forked child ends: it belongs to the parent process.
        """
        self.step.ended = True
        is_call = self._counts_as_dropped and self.process is forks.process
        self._runtime.unrecorded(self.step, "head_dropped" if self.is_dropped else "forked", is_call=is_call)

    def _keep_or_read_arguments(self) -> None:
        """Keep the function's arguments, to read query and documents from them in the background.

        If any is mutable, they are read at once.
        """
        spec, step = self._spec, self.step
        if spec.provider is not None:
            step.provider = spec.provider
        if spec.model is not None:
            step.request_model = spec.model
        arguments = self._given_arguments
        if arguments is None:
            return
        self._given_arguments = None
        try:
            # `can_wait` is False if a function of the user selects from the arguments. Such a function runs on the
            # application's thread and in its context, on which it may depend, although the application waits for it.
            self._kept_arguments = _immutable_arguments(*arguments) if spec.arguments.can_wait else None
            if self._kept_arguments is None:
                self._fill_from_arguments(spec.arguments.extract(*arguments, self._bound))
        except Exception as error:
            faults.record("capture of arguments", error)

    def _keep_or_read_result(self, value: Any, *, streamed: bool) -> None:
        """Keep an immutable result, to extract texts from it in the background. A mutable one is read at once."""
        if streamed and self.step.kind in FINDING_KINDS:
            # Of a stream that was left before its first piece it is not known whether it would have had any.
            nothing = None if self.step.abandoned else list[object]()
            value = nothing if self._yielded_documents is None else self._yielded_documents
        if streamed and self._pieces is not None and not (collection.thread and collection.is_on_this_thread()):
            self._reduce()  # a finalizer may interrupt any code, so that `read` reduces them later
        if self._spec.select_result is not None or self._spec.select_sources is not None:
            value = self._select_from_result(value, streamed=streamed)
        kept = value if type(value) is str else _immutable_copy(value)
        if kept is _MUTABLE:
            self.read()  # the arguments first, then the result
            self._fill_from_result(value)
        else:
            self._kept_result = kept

    def _select_from_result(self, value: Any, *, streamed: bool) -> Any:
        """Return what the user's function selects from a result, having filled in the sources that another selects.

        Both functions run here, on the application's thread. One that raises for an answer or its sources selects
        nothing, and the result is recorded as it is; for documents, it raises.
        """
        spec, step = self._spec, self.step
        if step.kind in FINDING_KINDS:
            return value if spec.select_result is None else spec.select_result(value)
        if spec.select_sources is not None and step.documents is None:  # no piece of a stream had any
            error = self._sources_error
            try:
                step.documents = None if value is None else find_documents(spec.select_sources(value))
            except Exception as raised:  # the answer is kept all the same
                error = error or raised
            if error is not None and step.documents is None:
                faults.record(f"sources= of {spec.arguments.function_name}", error)
        if value is None:
            return None
        if spec.select_result is not None and not streamed:  # pieces of a stream were selected one by one
            try:
                return spec.select_result(value)
            except Exception as error:
                faults.record(f"answer= of {spec.arguments.function_name}", error)
        return value

    def _reduce(self) -> None:
        """Have the user's function make the answer of the stream's pieces, and log what keeps it from being one."""
        spec, name = self._spec, self._spec.arguments.function_name
        pieces, self._pieces = self._pieces, None
        if not pieces or spec.reduce is None:
            return
        if len(pieces) > _MOST_PIECES:
            faults.warn_once(
                f"reduce= of {name}",
                "the stream of %s has more than %d pieces, and its answer is not captured: so many are not kept for "
                "reduce=. Yield larger pieces, or give answer=, which takes them one by one",
                name,
                _MOST_PIECES,
            )
            return
        try:
            made = spec.reduce(pieces)
            self._reduced = find_answer(made)
        except Exception as error:
            faults.record(f"reduce= of {name}", error)
        else:
            if self._reduced is None:
                warn_not_reduced(name, made)

    # --- reading of what was kept, mostly on the background thread ----------------------------------------------------

    def clear(self) -> None:
        """Drop the recorded arguments, result and stream without reading them."""
        self._given_arguments = self._kept_arguments = self._answer_stream = self._yielded_documents = None
        self._pieces = None
        self._kept_result = _NOTHING

    def read(self) -> None:
        """Extract query, documents and answer from the recorded arguments and result into the step."""
        arguments, self._kept_arguments = self._kept_arguments, None
        result, self._kept_result = self._kept_result, _NOTHING
        try:
            if arguments is not None:
                # They are texts, numbers and lists of texts: no messages need to be looked for in them.
                self._fill_from_arguments(self._spec.arguments.extract(*arguments, self._bound, is_immutable=True))
        except Exception as error:
            faults.record("capture", error)
        if self._pieces is not None and self.step.ended:
            self._reduce()
        if self._ended_at is not None:
            self.step.timing = Timing(self._ended_at - self.started_at)
        try:
            if result is not _NOTHING:
                self._fill_from_result(result)
        except Exception as error:
            faults.record("capture", error)

    def _fill_from_arguments(self, found: ExtractedArguments) -> None:
        spec, step = self._spec, self.step
        step.query, step.top_k = found.query, found.top_k
        step.conversation_id, step.user_id = found.session, found.user
        step.request_model = spec.model or found.model
        if found.prompt is not None:
            step.prompt = found.prompt
        if spec.kind == "retrieve":
            step.rerank = found.documents is not None if spec.rerank is None else spec.rerank
            if step.rerank:
                step.reranked = found.documents
        elif spec.kind == "generate":
            step.documents = found.documents
            step.provider = found.provider if step.provider is None else step.provider

    def _fill_from_result(self, value: object) -> None:
        spec, step = self._spec, self.step
        if step.kind in FINDING_KINDS:
            is_retrieval = step.kind == "retrieve"
            step.documents = find_documents(value, query=step.query) if is_retrieval else find_tool_result(value)
            is_nothing = step.kind == "tool" and (value is None or is_tool_error(value))
            if step.documents is None and not (step.abandoned or is_nothing):
                what: Literal["documents", "result"] = "documents" if step.kind == "retrieve" else "result"
                warn_not_found(what, spec.arguments.function_name, value)
        elif type(value) is str and self._answer_stream is None:
            step.answer = answer_in_json(value) if value[:1] in _FIRST_OF_JSON else value
        else:
            self._fill_answer(value)

    def _fill_answer(self, value: object) -> None:
        """Fill in the answer of a generation or trace from a streamed answer, from the returned *value*, or both.

        Whether the answer was found (`Step.answer_found`), by what there is:

            an object, or pieces of a stream         if any has words or tool calls
            None, of a stream without a piece        yes: an empty answer
            the same, of a stream that nobody read   no: it is not known
            None from a generation                   no: what it sends elsewhere is not known
            an exception                             as None; the error says that there is no answer
            None from a trace                        left open: its generation may have the answer
        """
        step = self.step
        returned = None if value is None else find_answer(value)
        stream, is_reduced = self._answer_stream, self._answer_stream is not None and self._spec.reduce is not None
        streamed = self._reduced if is_reduced else None if stream is None else stream.answer()
        is_unread = step.abandoned and self._answer_stream is None
        if is_unread and returned is not None and returned.text == "":
            returned.text = None  # nobody has read the stream, so that the answer is not known to be empty
        if value is not None or self._answer_stream is not None:
            # A response that has documents but neither words nor tool calls holds a stream that was not recorded.
            step.answer_found = any(
                found is not None and (found.text is not None or found.tool_calls > 0) for found in (returned, streamed)
            )
        elif step.streamed or step.kind == "generate":
            step.answer_found = step.streamed and not is_unread
        step.denies_answer = step.kind == "trace" and value is not None and says_no_answer(value)
        facts = None if stream is None or not is_reduced else stream.facts
        for found in (
            returned,
            facts,
            streamed,
        ):  # the streamed text last: it is the answer, the object may have the sources
            if found is not None:
                _merge_answer(step, found)
        if step.kind == "generate":
            is_missing = returned is None and streamed is None
        else:
            is_given = value is not None or (self._answer_stream is not None and streamed is None)
            is_missing = is_given and step.answer is None and self._lacks_generation()
        if is_missing and step.error is None and not (is_unread or is_reduced):
            why = None if stream is None else stream.unknown
            if why is not None:
                warn_unknown_stream(self._spec.arguments.function_name, why)
            else:
                warn_not_found("answer", self._spec.arguments.function_name, value)

    def _lacks_generation(self) -> bool:
        """Return whether the RAG call has steps, but none that may have its answer."""
        steps = () if self.call_builder is None else self.call_builder.steps
        return bool(steps) and all(each.kind != "generate" for each in steps)


def _merge_answer(step: Step, found: Answer) -> None:
    """Add to *step* what was found in a returned object or in a stream. Texts found later take precedence."""
    step.answer = found.text if found.text is not None else step.answer
    step.response_model = found.model or step.response_model
    step.response_id = found.response_id or step.response_id
    step.finish_reasons = found.finish_reasons or step.finish_reasons
    if found.input_tokens is not None or found.output_tokens is not None:
        step.usage = Usage(found.input_tokens, found.output_tokens)
    if step.kind == "generate":
        step.provider = step.provider or found.provider
    step.cut_chars += found.cut_chars
    step.answer_cut_chars += found.cut_chars
    step.documents = found.documents if step.documents is None else step.documents
    step.previews = found.previews if step.previews is None else step.previews


def _immutable_copy(value: Any) -> Any:
    """Return an immutable copy of *value*, or `_MUTABLE` if there is none that is cheap to make.

    Texts and numbers are returned as they are, a list or tuple of texts as a copy. Only exact types count: a subclass
    may do anything.
    """
    kind = _class_of(value)
    if kind is str or id(kind) in _IMMUTABLE_TYPES:
        return value
    if kind is list or kind is tuple:
        for item in value:
            if type(item) is not str:
                return _MUTABLE
        return tuple(value)
    return _MUTABLE


def _immutable_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments | None:
    """Return immutable copies of a function's arguments, or None if an argument is mutable."""
    kept: list[Any] = []
    for value in args:
        if type(value) is str:
            kept.append(value)
            continue
        value = _immutable_copy(value)
        if value is _MUTABLE:
            return None
        kept.append(value)
    if not kwargs:
        return tuple(kept), kwargs
    named = {name: _immutable_copy(value) for name, value in kwargs.items()}
    return None if _MUTABLE in named.values() else (tuple(kept), named)
