"""Recording of a framework's runs of workflows, retrievers, models and tools as steps of RAG calls.

Nothing is attached to the OpenTelemetry context, because callbacks begin and end in different contexts where streams
are read late or abandoned. The parent of a run is found by its id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from functools import partial
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from ragtrace.capture import find_query
from ragtrace.capture.arguments import FunctionArguments
from ragtrace.core import semconv
from ragtrace.core.step import FINDING_KINDS, StepKind
from ragtrace.core.text import encodable_name
from ragtrace.recording.drivers import settle
from ragtrace.recording.invocation import Invocation
from ragtrace.recording.recorder import (
    RecordingRuntime,
    StartTime,
    StepRecorder,
    StepSpec,
    current_recorder,
    is_recording_suppressed,
    recording_context,
)
from ragtrace.recording.tag_layers import current_layer
from ragtrace.system import framework_runs
from ragtrace.system.faults import faults, guarded
from ragtrace.system.forks import PerProcess

if TYPE_CHECKING:
    from opentelemetry.context import Context

RunKind: TypeAlias = Literal["workflow", "retrieve", "generate", "tool", "other"]
"""Kind of a run. A topmost workflow becomes the trace of a call. A workflow inside another one, and a run of the kind
`other`, is no step."""
_KINDS: Final[dict[RunKind, StepKind]] = {
    "workflow": "trace", "retrieve": "retrieve", "generate": "generate", "tool": "tool",
}  # fmt: skip
_MOST_OPEN: Final = 10_000
"""Most runs of one framework in progress; beyond, the oldest run is recorded as never ended."""
_MOST_STEPS: Final = 2_000
"""Most steps of one call; further runs are not recorded."""


def framework_run(
    query: object = None,
    messages: object = None,
    *,
    documents: object = None,
    top_k: object = None,
    model: object = None,
    session_id: object = None,
    user_id: object = None,
) -> None:
    """Do nothing; the signature only declares the argument names of a framework's component run.

    `FunctionArguments` reads the signature.
    """


class RunNeverEndedError(Exception):
    """Error recorded for a component run whose end the framework has never reported."""


class Run:
    """Run of a framework's component (a workflow, retriever, model or tool) that is in progress.

    Args:
        kind: what the component does.
        parent: the run inside which it began; None: it is a topmost one.
        outside: the context in which a topmost run began, with the step around it; None: a topmost run that is not to
            be recorded, or a run inside another one.
    """

    __slots__ = (
        "arguments", "invocation", "kind", "outside", "parent", "query", "recorder", "spec", "started", "streams",
        "tags",
    )  # fmt: skip

    def __init__(self, kind: RunKind, parent: Run | None, outside: Context | None) -> None:
        self.kind: RunKind = kind
        self.parent, self.outside = parent, outside
        self.started = StartTime(perf_counter(), time_ns())
        self.tags = current_layer.get()
        """Tags of the blocks in which the run began; recording may begin later, and in another context."""
        self.recorder: StepRecorder | None = None
        """Recorder of the step that the run is; None if the run is no step, or its recording has not begun."""
        self.invocation: Invocation | None = None
        self.spec: StepSpec | None = None
        """Specification of the run's step until its recording begins; then, and for a run that is no step, None."""
        self.arguments: dict[str, object] = {}
        self.query: str | None = None
        """Query of the first retrieval or tool inside this topmost run; None if there is none."""
        self.streams: list[Run] = []
        """Streaming runs: this run once it streams and, on a topmost run, all runs inside that stream."""

    def top(self) -> Run:
        """Return the outermost run that encloses this run, or this run itself if none does."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    def release(self) -> None:
        """Drop all references held by the run, because a context may keep the run alive for long."""
        self.parent = self.outside = self.recorder = self.invocation = self.spec = None
        self.arguments, self.streams = {}, []


_generating: ContextVar[Run | None] = ContextVar("ragtrace-generating", default=None)
"""Last run of a model in this context, from its begin to its first piece or its end; else None."""


class FrameworkRuns:
    """Open runs of one framework's components, such as retrievers and models.

    The framework's workflows, retrievals, generations and tools are recorded as steps. Callbacks may come from any
    thread; those of one run come one after the other. Nothing here raises.

    Args:
        framework: name of the framework, for log lines.
        runtime: returns the configured runtime, None if there is none.
        current_run_id: returns the id of the framework's run in progress in the current context, None outside of one.
        scopes: instrumentation scopes of the instrumentations that record the same runs as spans; those spans are not
            evaluated.
        span_names: names of spans of the framework's own tracer, which are not evaluated either.
        most_open: most runs that may be in progress.
    """

    def __init__(
        self,
        framework: str,
        runtime: Callable[[], RecordingRuntime | None],
        current_run_id: Callable[[], Hashable | None],
        scopes: frozenset[str] = frozenset(),
        span_names: frozenset[str] = frozenset(),
        *,
        most_open: int = _MOST_OPEN,
    ) -> None:
        self.framework, self.scopes, self.span_names, self._most_open = framework, scopes, span_names, most_open
        self._runtime, self._current_run_id = runtime, current_run_id
        self._functions = {kind: FunctionArguments(framework_run, kind, query="query") for kind in _KINDS.values()}
        for kind, function in self._functions.items():
            function.function_name = f"{framework} ({kind})"
        self._runs: dict[Hashable, Run] = {}
        self._lock = PerProcess(threading.RLock)

    def begin(
        self,
        run_id: Hashable,
        parent_id: Hashable | None,
        kind: RunKind,
        value: object = None,
        *,
        name: str = "",
        documents: object = None,
        top_k: int | None = None,
        model: str | None = None,
        session: str | None = None,
        user: str | None = None,
        owns_context: bool = False,
    ) -> None:
        """Begin a component run, and record it if it is a step of a RAG call.

        Args:
            run_id: id of the run, unique in the process.
            parent_id: id of the run inside which it begins; None, or an unknown id: it is a topmost run.
            kind: what the component does.
            value: what the component was given: a question, messages, or a record with one of these.
            name: name of the workflow, tool or component.
            documents: documents that a re-ranking orders anew, or that a generation is given.
            top_k: most documents that a retrieval returns.
            model: name of the model.
            session: id of the conversation.
            user: id of the user.
            owns_context: whether nothing but the client of the model runs in the current context from now on until the
                first piece of the answer or the end of the run: spans that begin there are then inside the run.
        """
        with guarded(f"start of a run of {self.framework}"):
            run = self._new_run(kind, self._runs.get(parent_id))
            self._runs[run_id] = run
            if len(self._runs) > self._most_open:
                self._evict()
            if run.kind == "other" or (run.parent is None and run.outside is None):
                return
            query = _query_of(value)
            run.arguments = {
                "query": query, "messages": None if type(value) is str else value, "documents": documents,
                "top_k": top_k, "model": model, "session_id": session, "user_id": user,
            }  # fmt: skip
            step_kind = _KINDS[run.kind]
            workflow = encodable_name(name) or self.framework
            named = "" if step_kind in ("generate", "retrieve") else workflow
            run.spec = StepSpec(step_kind, self._functions[step_kind], name=named, workflow=workflow)
            if run.kind == "workflow":
                return  # recorded as soon as something inside it is: a topmost parser alone is no RAG call
            top = run.top()
            if kind in FINDING_KINDS and top.query is None:
                top.query = query
            if session is not None and top.arguments.get("session_id") is None:
                top.arguments["session_id"] = session
            self._record(run)
            if owns_context:
                _generating.set(run)

    def _new_run(self, kind: RunKind, parent: Run | None) -> Run:
        """Create a component run inside the run *parent*.

        The run is an outermost one if *parent* is None or the RAG call of *parent* has ended.
        """
        if parent is not None and not self._is_over(parent):
            if kind == "workflow":
                kind = "other"  # a workflow inside another run is no step
            return Run(kind, parent, None)
        if self._runtime() is None or is_recording_suppressed():
            return Run(kind, None, None)
        outside = recording_context()
        run = Run(kind, None, outside)
        if kind == "workflow" and (around := current_recorder(outside)) is not None and around.call_builder is not None:
            run.kind, run.recorder = "other", around  # part of the call of a decorated function
        return run

    def _is_over(self, parent: Run) -> bool:
        """Return whether the RAG call of the run *parent* has ended.

        A run inside *parent* then begins a new call.
        """
        top = parent.top()
        if top.outside is None:
            return False  # not recorded, and so is nothing inside
        if top.recorder is not None:
            builder = top.recorder.call_builder
            return top.recorder.step.ended if builder is None else builder.root.ended
        return top.kind == "other"

    def _evict(self) -> None:
        """Remove the oldest component run and record it as failed, or as abandoned if its answer was being streamed."""
        oldest = self._runs.pop(next(iter(self._runs)), None)
        faults.warn_once(
            f"runs of {self.framework} that never ended",
            "%d runs of %s are in progress; the oldest is recorded as one that never ended, and each further one is "
            "counted in ragtrace.stats().faults",
            self._most_open,
            self.framework,
        )
        if oldest is not None:
            if oldest.invocation is not None:
                oldest.invocation.abandoned() if oldest.streams else oldest.invocation.failed(RunNeverEndedError())
            oldest.release()

    def piece(self, run_id: Hashable, piece: object) -> None:
        """Record a chunk of the answer that a model streams."""
        with guarded(f"stream of {self.framework}"):
            run = self._runs.get(run_id)
            if run is not None and run.invocation is not None:
                if not run.streams:
                    run.streams.append(run)
                    run.invocation.is_stream = True
                    if (top := run.top()) is not run:
                        top.streams.append(run)
                run.invocation.add(piece)

    def release_context(self) -> None:
        """Stop attributing spans of the current context to a model call, as the application's code runs now."""
        _generating.set(None)

    def end(self, run_id: Hashable, output: object = None, value: object = None) -> None:
        """Remove a component run that has succeeded, and record its output.

        Args:
            run_id: id of the run.
            output: what the component returned.
            value: what it was given, where this was not known when it began; else None.
        """
        with guarded(f"end of a run of {self.framework}"):
            run = self._take(run_id, value)
            if run is None:
                return
            if (invocation := run.invocation) is not None:
                if run.kind == "workflow" and _abandon_streams(run):
                    invocation.result, invocation.is_stream = output, True
                    invocation.abandoned()
                else:
                    invocation.done(output)
            run.release()

    def _take(self, run_id: Hashable, value: object = None) -> Run | None:
        """Remove and return an ended component run, or None if the run is unknown.

        Arguments that were unknown when the run began are completed from *value*.
        """
        run = self._runs.pop(run_id, None)
        if run is not None and run.recorder is not None and run.invocation is not None:
            self._complete_arguments(run, run.recorder, value)
        return run

    def stream(self, run_id: Hashable, response: object, output: object) -> None:
        """End a component run when the stream that it returned has been read.

        Args:
            run_id: id of the run.
            response: an object whose `response_gen` is a generator, which is replaced by one that records its pieces.
            output: what is recorded of the response beside the pieces.
        """
        with guarded(f"stream of {self.framework}"):
            run = self._take(run_id)
            if run is None:
                return
            invocation, run.invocation = run.invocation, None  # only the stream keeps it: it ends where that is dropped
            if invocation is None:
                run.release()
                return
            # Another instrumentation reads the stream in a context of its own, where only ids tell what is inside.
            self._runs[run_id] = run
            invocation.on_end = partial(self._forget, run_id)
            settle(invocation, response)
            invocation.result = output

    def _forget(self, run_id: Hashable) -> None:
        """Remove a component run whose recording has ended by itself."""
        if (run := self._runs.pop(run_id, None)) is not None:
            run.release()

    def fail(self, run_id: Hashable, error: BaseException, value: object = None) -> None:
        """End a component run that raised *error*.

        A `GeneratorExit` means that its stream was abandoned.

        Args:
            run_id: id of the run.
            error: the exception.
            value: what the component was given, where this was not known when it began; else None.
        """
        with guarded(f"failed run of {self.framework}"):
            run = self._take(run_id, value)
            if run is None:
                return
            if (invocation := run.invocation) is not None:
                if run.kind == "workflow" and _abandon_streams(run):
                    invocation.is_stream = True
                invocation.failed(error)
            run.release()

    def _complete_arguments(self, run: Run, recorder: StepRecorder, value: object) -> None:
        """Pass the late arguments of a component run to the run's recorder.

        These arguments were unknown when the run began.
        """
        if run.kind != "workflow" and value is None:
            return
        query = run.arguments["query"] if value is None else _query_of(value)
        if value is not None:
            run.arguments["messages"] = None if type(value) is str else value
        elif query is not None:
            return
        run.arguments["query"] = run.query if query is None else query
        recorder.replace_arguments(run.arguments)

    def is_open(self, run_id: Hashable) -> bool:
        """Return whether the component run *run_id* has begun and not ended."""
        return run_id in self._runs

    def recorder(self, run_id: Hashable) -> StepRecorder | None:
        """Return the recorder of the component run *run_id* or of the innermost step around it, or None."""
        run = self._runs.get(run_id)
        return None if run is None else self._recorder_around(run)

    def current_recorder(self) -> StepRecorder | None:
        """Return the recorder of the component run that is in progress in the current context, or None."""
        run = _generating.get()
        if run is not None and run.recorder is not None and not run.streams:
            return run.recorder
        run_id = self._current_run_id()
        return None if run_id is None else self.recorder(run_id)

    def _recorder_around(self, run: Run | None) -> StepRecorder | None:
        """Return the recorder of *run*, or of the innermost enclosing run that is a step, or None.

        If that run is a workflow that is not recorded yet, its recording begins.
        """
        while run is not None:
            if run.recorder is None and run.kind == "workflow" and run.spec is not None:
                with self._lock.get():
                    self._record(run)
            if run.recorder is not None:
                return run.recorder
            run = run.parent
        return None

    def _record(self, run: Run) -> None:
        """Begin to record the component run *run* as a step."""
        spec, run.spec = run.spec, None
        runtime = self._runtime()
        if spec is None or runtime is None:
            return
        outside = run.outside
        if run.parent is not None:
            around = self._recorder_around(run.parent)
            if around is None or around.current is None or around.is_dropped:
                return
            builder = around.call_builder
            if builder is not None and len(builder.steps) >= _MOST_STEPS:
                faults.warn_once(
                    f"runs of {self.framework} not recorded: too many in one call",
                    "a call of %s has more than %d steps; further ones are not recorded, and each is counted in "
                    "ragtrace.stats().faults",
                    self.framework,
                    _MOST_STEPS,
                )
                return
            outside = _inner_context(around.current)
        recorder = StepRecorder(runtime, spec, (), run.arguments, False)
        recorder.step.instrumentation, recorder.tags_around = semconv.SCOPE, run.tags
        if recorder.begin(outside, run.started) is not None:
            run.invocation = Invocation(recorder)
            run.recorder = recorder


def _abandon_streams(workflow: Run) -> bool:
    """Record the streams that are still open inside an ended workflow as abandoned.

    Returns:
        Whether there was one.
    """
    inside = (run for run in workflow.streams if run is not workflow)  # a chat engine streams its own answer, too
    still_open = [run.invocation for run in inside if run.invocation is not None]
    for invocation in still_open:
        invocation.abandoned()
    return bool(still_open)


def _inner_context(around: Context) -> Context:
    """Return the current context if a decorated function runs inside the framework's run, else *around*."""
    here = recording_context()
    inner, outer = current_recorder(here), current_recorder(around)
    if inner is not None and outer is not None and outer.step in inner.step.enclosing():
        return here
    return around


def _query_of(value: object) -> str | None:
    """Find the user's question in *value*, the input of a framework's run.

    In a dictionary without a well-known field, the only text is the question.
    """
    found = find_query(value)
    if found is None and type(value) is dict:
        fields = cast("dict[object, Any]", value)
        texts = [text for text in fields.values() if type(text) is str]
        return texts[0] if len(texts) == 1 else None
    return found or None


# --- installed listeners ----------------------------------------------------------------------------------------------

_listeners: dict[str, tuple[FrameworkRuns, Callable[[], object]]] = {}


def install(runs: FrameworkRuns, stop: Callable[[], object]) -> None:
    """Register the listener of a framework, so that the framework's run in progress can be found.

    Args:
        runs: the runs of the listener's framework.
        stop: removes the listener from the framework.
    """
    _listeners[runs.framework] = (runs, stop)
    _publish()


def uninstall(framework: str) -> None:
    """Remove the listener from the framework named *framework*, if there is one."""
    _, stop = _listeners.pop(framework, (None, None))
    _publish()
    if stop is not None:
        stop()


def listeners() -> dict[str, tuple[FrameworkRuns, Callable[[], object]]]:
    """Return the component runs and the stop function of each installed framework listener, by framework name."""
    return dict(_listeners)


def _publish() -> None:
    scopes = frozenset(scope for runs, _ in _listeners.values() for scope in runs.scopes)
    names = frozenset(name for runs, _ in _listeners.values() for name in runs.span_names)
    framework_runs.set_listeners(_find_context if _listeners else None, scopes, names)


def _find_context() -> Context | None:
    """Return the context of the innermost component run in progress in any framework, or None. Never raises."""
    found: StepRecorder | None = None
    try:
        for runs, _ in list(_listeners.values()):
            recorder = runs.current_recorder()
            if recorder is not None and (found is None or found.step in recorder.step.enclosing()):
                found = recorder
        return None if found is None else found.current
    except Exception as error:
        faults.record("look-up of a framework's run", error)
        return None
