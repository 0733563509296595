"""Checks of single calls: one that an answer waits for, and one in shadow mode, after the answer has left.

**Order of the file.** The protocols of what a check is given; `VerdictWait`, the wait for one verdict; `GuardOutcome`,
which acts on the verdict; `AnswerCheck` and `AnswerOutcome`, both for one whole answer (parts of a streamed one:
`streams.py`); `HeldRecorder`, which keeps the call meanwhile; `ShadowCheck` and `ShadowRuntime`, which only count.

**Who runs what.** The thread or task of the application waits (`wait`, `wait_in_task`), acts on the verdict (`act`,
`end`), and hands the call over. The worker's event loop finds the verdict (`_find` and what it calls), and goes on with
the evaluation when the application has left. The two meet in three fields, under `VerdictWait._lock`, which is held for
assignments only: the first verdict in `_decided` stays; and by `_is_building` and `_is_handed_over`, the later one of
the worker's building of the call and the application's `hand_over` hands the call over, so that no two threads read its
texts. A shadow check has no lock: the application's thread has it until the call has ended, then the worker's.

**Invariants**, each with the test that guards it, in `tests/unit/guard/test_drivers.py`.

- The verdict is there by the deadline, and the call is scored all the same:
  `test_an_answer_leaves_at_the_deadline_and_is_scored_all_the_same`, `test_a_closed_guard_blocks_at_the_deadline`.
- The judge sees a call once, by the guard or by the pipeline: `test_a_call_is_judged_once`.
- Where a function of the application fails, or ragtrace ends, the answer leaves as it is:
  `test_a_function_of_the_application_that_raises_changes_nothing`,
  `test_a_runtime_that_ends_while_an_answer_is_checked_releases_it`.
- A cancelled wait is counted, and its call is scored: `test_a_cancelled_wait_is_counted_and_scored`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, Final, Literal, Protocol

from ragtrace.core.step import CHECKED, CallBuilder, CallRouter, Step
from ragtrace.core.types import Evaluation, RagCall
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.guard.decision import blocks
from ragtrace.guard.guards import GuardedFunction, Guards, HasParts, guards_of
from ragtrace.guard.outcomes import Action, Check, GuardBlocked, GuardNotice, outcome_attributes
from ragtrace.recording.recorder import RecordingRuntime, StepRecorder
from ragtrace.system.faults import faults, guarded

_DONE: Final[Mapping[str, Action]] = {
    "annotate": "annotated",
    "replace": "replaced",
    "retry": "annotated",
    "raise": "raised",
}
NOT_RUNNING: Final = "not_running"
"""Reason of answers that were not checked because ragtrace was shut down meanwhile, or has no thread."""
NOT_HELD: Final = "not_held"
"""Reason of answers that may have been read by another way than the one that is held."""
RETRY: Final = object()
"""Marker in the place of an answer: the function is to be called once more."""
HAND_OVER_SECONDS: Final = 1.0
"""Time in which an application that has its verdict hands the call over, or a stream comes to its next sentence, if
nothing keeps it from going on; a shutdown waits no longer for that."""
_LATE: Final = Check("timeout", reason="timeout")
_OPEN: Final = Check("circuit_open", reason="circuit_open")


class UrgentWorker(Protocol):
    """Worker that runs coroutines of which the application waits for the result."""

    def run_soon(self, work: Callable[[], Coroutine[Any, Any, None]], check: object, until: float) -> bool:
        """Run the coroutine function *work* before all queued items, and return whether the worker runs.

        A flush and a shutdown wait for `end_check` with *check*, which comes by the monotonic time *until*.
        """
        ...

    def pause_check(self, check: object, until: float) -> None:
        """Have a shutdown alone wait for `end_check` with *check*."""
        ...

    def end_check(self, check: object) -> None:
        """Have nobody wait for *check* any more: its call is queued."""
        ...


class GuardRuntime(RecordingRuntime, HasParts, Protocol):
    """Runtime in which guarded functions are recorded and their answers checked."""

    @property
    def worker(self) -> UrgentWorker: ...
    @property
    def processor(self) -> GuardProcessor: ...


class GuardProcessor(Protocol):
    """Processor that builds the calls which guards have judged."""

    def build_guarded(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Return the redacted RAG call of a guarded function, and the reason why it must not be judged, or ""."""
        ...

    def build_partial(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Return a redacted RAG call with a part of a streamed answer, and why it must not be judged, or ""."""
        ...

    def count_partial(self, evaluation: Evaluation) -> None:
        """Count the cost of judging a part of a streamed answer."""
        ...


class VerdictWait:
    """Wait for one verdict, which is found on the worker's thread, or by the deadline.

    The thread or task of the application waits, until the deadline at most. Whichever of the two finds a verdict first,
    decides. The evaluation goes on after the deadline.

    Args:
        function: the guarded function.
        runtime: the runtime.
        recorder: recorder of the run that gives the answer.
        seconds: most seconds to wait, from now on.
    """

    def __init__(
        self, function: GuardedFunction, runtime: GuardRuntime, recorder: HeldRecorder, seconds: float
    ) -> None:
        self._function, self._guard, self._runtime, self._recorder = function, function.guard, runtime, recorder
        self._lock = threading.RLock()  # re-entrant: a stream that is collected meanwhile asks for its check
        self._decided: Check | None = None
        self._notify: Callable[[], object] = lambda: None
        self._evaluator: Evaluator | None = None
        self._is_building = self._is_handed_over = False
        self._awaited: object = recorder
        """Object that stands for the call to come, for which a flush and a shutdown wait."""
        self._began = monotonic()
        self._deadline = self._began + seconds

    @property
    def check(self) -> Check:
        """Verdict that was found."""
        return self._decided or Check("error", reason=NOT_RUNNING)

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return monotonic() - self._began

    @property
    def is_being_handed_over(self) -> bool:
        """Whether the worker reads texts of the call, and hands it over afterwards."""
        with self._lock:
            return self._is_building and self._is_handed_over

    # --- on the application's thread ----------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait for the verdict, until the deadline at most."""
        ready = threading.Event()
        if self._begin(ready.set):
            try:
                ready.wait(self._seconds_left())
            except BaseException:  # Ctrl-C
                self._leave()
                raise
            self._decide(_LATE)

    async def wait_in_task(self) -> None:
        """Wait for the verdict, until the deadline at most, without blocking the event loop of asyncio."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # trio, say, which has no futures of asyncio to wait for
            self._decide(Check("error", reason="not_asyncio"))
            return
        ready: asyncio.Future[None] = loop.create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        def notify() -> None:
            with guarded("guard"):  # the application's loop may have been closed
                loop.call_soon_threadsafe(set_ready)

        if not self._begin(notify):
            return
        try:
            await asyncio.wait({ready}, timeout=self._seconds_left())
        except BaseException:  # the task was cancelled
            self._leave()
            raise
        self._decide(_LATE)

    def _begin(self, notify: Callable[[], object]) -> bool:
        """Have the worker find the verdict, and return whether the application has to wait for it."""
        self._notify = notify
        try:
            if (unheld := self._unheld_reason()) or self._seconds_left() <= 0:
                unchecked = Check("error" if unheld == "internal" else "unscored", reason=unheld)
                self._decide(unchecked if unheld else _LATE)
                return False
            self._evaluator = evaluator = guards_of(self._runtime).evaluator_of(self._function)
            waits_s = evaluator.judge_client.status.waits_s
            if guards_of(self._runtime).circuit_of(evaluator).state == "open" or waits_s > self._seconds_left():
                self._decide(_OPEN)
            elif self._runtime.worker.run_soon(self._find, self._awaited, self._deadline + HAND_OVER_SECONDS):
                return True
            else:
                self._decide(Check("error", reason=NOT_RUNNING))
        except Exception as error:
            faults.record("guard", error)
            self._decide(Check("error", reason="internal"))
        return False

    def _unheld_reason(self) -> str:
        """Return why there is nothing to check, or an empty text."""
        return ""

    def _leave(self) -> None:
        """End the wait for a verdict that nobody needs, because the function was cancelled."""
        self._decide(Check("unscored", reason="cancelled"))

    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - monotonic())

    def hand_over(self) -> None:
        """Hand the call over to be scored, or leave that to the worker while it reads the texts of the call."""
        with self._lock:
            self._is_handed_over = True
            if self._is_building:
                return
        self._hand_over_now()

    def _hand_over_now(self) -> None:
        try:
            self._recorder.hand_over()
        finally:
            self._runtime.worker.end_check(self._awaited)

    # --- on the worker's thread ---------------------------------------------------------------------------------------

    async def _find(self) -> None:
        """Find the verdict; after the deadline, wait for the evaluation all the same."""
        try:
            if self._evaluator is not None:
                await self._find_with(self._evaluator)
        except asyncio.CancelledError:
            self._decide(Check("error", reason=NOT_RUNNING))
            raise
        except BaseException as error:  # whatever a user's redaction raises, the answer does not wait for it
            faults.record("guard", error)
            self._decide(Check("error", reason="internal"))

    async def _find_with(self, evaluator: Evaluator) -> None:
        raise NotImplementedError

    def _build(self, build: Callable[[CallBuilder], tuple[RagCall, str]], builder: CallBuilder) -> RagCall | None:
        """Return the call that *build* makes, or None if the verdict is known without it."""
        with self._lock:
            if self._decided is not None:
                return None
            self._is_building = True
        try:
            call, unjudged = build(builder)
        finally:
            with self._lock:
                self._is_building = False
                late = self._is_handed_over
            if late:
                self._hand_over_now()
        if unjudged:
            self._decide(Check("unscored", reason=unjudged))
        return None if unjudged else call

    async def _evaluate(self, evaluator: Evaluator, call: RagCall) -> Evaluation | None:
        """Have *call* evaluated, decide, and return the evaluation, or None if there is none."""
        circuit = guards_of(self._runtime).circuit_of(evaluator)
        ticket = circuit.admit()
        if ticket is None:
            self._decide(_OPEN)
            return None
        began = monotonic()
        task = asyncio.ensure_future(evaluate(evaluator, call))
        self._judging(task)
        try:
            await asyncio.wait({task}, timeout=self._seconds_left())
            circuit.record(ticket, began, in_time=task.done())
            if not task.done():
                self._decide(_LATE)
                await asyncio.wait({task})
        finally:
            task.cancel()  # at a shutdown; a task that has ended ignores it
        if task.cancelled():
            return None
        evaluation = task.result()
        self._decide(guards_of(self._runtime).check(self._function, call, evaluation))
        return evaluation

    def _judging(self, task: asyncio.Task[Evaluation]) -> None:
        """Note that the judge is asked, in *task*."""

    def _decide(self, check: Check) -> None:
        """Set the verdict, unless there is one."""
        with self._lock:
            if self._decided is not None:
                return
            self._decided = check
        self._notify()


class GuardOutcome:
    """Outcome of a guard for one call: verdict and action, which it counts and puts on the call's span.

    The root step of the call keeps it. So it lets go of the recorder and of the check, which refer to that step, as
    soon as the call has been handed over: else the texts of each guarded call would wait for the garbage collector.

    Args:
        function: the guarded function.
        runtime: the runtime.
        recorder: recorder of the run that gives the answer.
    """

    def __init__(self, function: GuardedFunction, runtime: GuardRuntime, recorder: HeldRecorder) -> None:
        self._function, self._runtime = function, runtime
        self._recorder: HeldRecorder | None = recorder
        """None: the call has ended."""
        self._latest: VerdictWait | None = None
        """Latest check, whose texts the worker may still be reading after the deadline; None: there is none now."""
        self.check = Check("error", reason=NOT_RUNNING)
        self.is_retry = False
        """Whether the answer is that of a second call, which is not retried."""
        self.added_s: float | None = None
        """Seconds for which the answer was held back; None: nobody waited to the end."""
        self._action: Action = "none"
        self._reason = ""

    def act(self, check: Check, result: Any, shape: object, waited: float, *, action: str = "") -> Any:
        """Do with an answer what is configured for the verdict.

        Return what is to leave in the place of *result*, or `RETRY`.

        Args:
            check: the verdict.
            result: the answer.
            shape: object that a text must be like to replace the answer.
            waited: seconds for which the answer was held back.
            action: what to do instead of the guard's action.

        Raises:
            GuardBlocked: the answer must not leave, and the action is "raise", or the guard is closed and nothing can
                take the answer's place.
        """
        guard = self._function.guard
        self.check = check
        if not blocks(guard, check.verdict):
            self.end("none" if check.verdict in CHECKED else "released", waited)
            return result
        action = action or guard.action
        if action == "retry" and not self.is_retry:
            self.end("retried", waited)
            return RETRY
        notice = self.notice(waited)
        try:
            if guard.on_fail is not None:
                with guarded("on_fail= of a guard"):
                    guard.on_fail(notice)
            if action == "replace":
                result = self._fallback_for(shape, notice)
        except Exception as error:
            faults.record("fallback= of a guard", error)
            self._reason = "not_replaced"
            if guard.on_error == "open":
                self.end("released", waited)
                return result
            action = "raise"
        except BaseException:  # Ctrl-C in a function of the application
            self.end("none", waited)
            raise
        self.end(_DONE[action], waited)
        if action == "raise":
            raise GuardBlocked(notice)
        return result

    def _fallback_for(self, shape: object, notice: GuardNotice) -> object:
        """Return the fallback for an answer of the shape of *shape*.

        Raises:
            TypeError: the fallback is a text, and *shape* is none.
        """
        fallback = self._function.guard.fallback
        if not isinstance(fallback, str):
            return fallback(notice) if fallback is not None else None
        if type(shape) is not str:
            raise TypeError(
                f"the guarded function {notice.workflow!r} returned {type(shape).__name__}, which the text of "
                "fallback= cannot replace; give a function that builds one"
            )
        return fallback

    def notice(self, waited: float) -> GuardNotice:
        """Return the notice of an answer that did not pass, and was held back for *waited* seconds."""
        guard, recorder = self._function.guard, self._recorder
        context = None if recorder is None else recorder.step.span_context
        return GuardNotice(
            self.check.verdict,
            guard.metric,
            self.check.score,
            guard.below,
            guard.above,
            self.check.reason,
            self._function.workflow,
            "" if context is None else f"{context.trace_id:032x}",
            waited * 1000,
        )

    def end(self, action: Action, waited: float | None = None) -> None:
        """Count the answer, put verdict and action on its span, and hand the call over to be scored.

        Args:
            action: what was done with the answer.
            waited: seconds for which the answer was held back; None: nobody waited to the end.
        """
        recorder, latest = self._recorder, self._latest
        self._recorder = self._latest = None
        self._action, self._reason, self.added_s = action, self._reason or self.check.reason, waited
        with guarded("guard"):
            guards_of(self._runtime).count(self._function, self.check.verdict, action, waited)
        if recorder is None:
            return
        step = recorder.step
        with guarded("guard"):
            if step.span is not None and (recorder.is_held or not step.ended):
                step.span.set_attributes(self.attributes())
        if recorder.is_held:
            (recorder if latest is None else latest).hand_over()

    # --- as the guard of the call's root step -------------------------------------------------------------------------

    @property
    def evaluator(self) -> str:
        """Id of the evaluator whose score the guard reads; empty: none was found."""
        return guards_of(self._runtime).evaluator_id_of(self._function)

    @property
    def score(self) -> float | None:
        """Score by which the verdict was found."""
        return self.check.score

    def close(self, reason: str = "unscored") -> None:
        """Do nothing: the answer was counted before the call ended."""

    def attributes(self) -> Mapping[str, str | int]:
        """Return verdict and action as attributes for a span or an event."""
        guard = self._function.guard
        return outcome_attributes(guard.metric, guard.action, self.check.verdict, self._action, self._reason)


class AnswerCheck(VerdictWait):
    """Check of one whole answer, whose evaluation becomes the score of the call.

    Args:
        function: the guarded function.
        runtime: the runtime.
        recorder: recorder of the run that gave the answer.
        is_retry: whether it is the second run.
    """

    def __init__(
        self, function: GuardedFunction, runtime: GuardRuntime, recorder: HeldRecorder, *, is_retry: bool = False
    ) -> None:
        super().__init__(function, runtime, recorder, function.guard.budget_ms / 1000)
        self._outcome = AnswerOutcome(self, function, runtime, recorder)
        self._outcome.is_retry = is_retry
        if recorder.is_root:
            recorder.step.guard = self._outcome

    def apply(self, result: Any, shape: object) -> Any:
        """Return what the function is to return for *result*, or `RETRY`, and hand the call over to be scored.

        Args:
            result: the answer.
            shape: object that a text must be like to replace the answer.

        Raises:
            GuardBlocked: the answer must not leave, and the guard's action is "raise".
        """
        return self._outcome.act(self.check, result, shape, self.waited)

    def _unheld_reason(self) -> str:
        return self._recorder.unheld_reason()

    def _leave(self) -> None:
        super()._leave()
        self._outcome.check = self.check
        self._outcome.end("none")

    async def _find_with(self, evaluator: Evaluator) -> None:
        builder = self._recorder.call_builder
        if builder is not None:
            self._outcome.call = call = self._build(self._runtime.processor.build_guarded, builder)
            if call is not None:
                await self._evaluate(evaluator, call)

    def _judging(self, task: asyncio.Task[Evaluation]) -> None:
        self._outcome.task = task


class AnswerOutcome(GuardOutcome):
    """Outcome of the check of one whole answer.

    Args:
        answer_check: the check.
        function: the guarded function.
        runtime: the runtime.
        recorder: recorder of the run that gave the answer.
    """

    def __init__(
        self, answer_check: AnswerCheck, function: GuardedFunction, runtime: GuardRuntime, recorder: HeldRecorder
    ) -> None:
        super().__init__(function, runtime, recorder)
        self._latest = answer_check
        self.call: RagCall | None = None
        """Call that the check has built."""
        self.task: asyncio.Task[Evaluation] | None = None
        """Task in which the check has the judge asked; None: it does not."""

    @property
    def has_evaluation(self) -> bool:
        """Whether the judge has been asked, and has not failed by now."""
        task = self.task
        return task is not None and not (task.done() and (task.cancelled() or task.exception() is not None))

    async def evaluation(self, call: RagCall, evaluate: Callable[[], Awaitable[Evaluation]]) -> Evaluation:
        """Return the evaluation that the check has begun, or what *evaluate* makes where the check made none."""
        task = self.task
        if task is not None:
            await asyncio.wait({task})
            if not task.cancelled() and task.exception() is None:
                return task.result()
        return await evaluate()


class HeldRecorder(StepRecorder):
    """Recorder of a guarded function's run, which keeps a finished call until its answer has been checked."""

    is_held = False
    """Whether the call has ended with an answer, and waits to be handed over."""
    has_returned = False
    """Whether what ends later is handed over at once: a stream that is not held, or that has its verdict."""
    is_streaming = False
    """Whether a held stream gives the answer, and hands the call over however it ends."""
    is_read_otherwise = False
    """Whether the answer may have been read by another way than the pieces of a held stream."""

    def _hand_over(self) -> None:
        step = self.step
        has_no_answer = not self.is_streaming and (step.error is not None or step.abandoned)
        if self.has_returned or has_no_answer or not self.is_root:
            super()._hand_over()
            return
        self._keep_ended()
        self.is_held = True

    @property
    def is_root(self) -> bool:
        """Whether the run is the root of a RAG call."""
        return self.call_builder is not None and self.call_builder.root is self.step

    def hand_over(self) -> None:
        """Hand the held call over to the runtime, which scores it."""
        super()._hand_over()

    def with_part(self, text: str) -> CallBuilder:
        """Return the builder of a call that has *text*, a part of the streamed answer, as its answer.

        The call has the question, and what has been retrieved so far. Called while the function does not run.
        """
        self.read()
        step, root = self.step, Step()
        root.kind, root.name, root.workflow, root.span = step.kind, step.name, step.workflow, step.span
        root.query, root.prompt, root.reference = step.query, step.prompt, step.reference
        root.conversation_id, root.user_id, root.tags = step.conversation_id, step.user_id, step.tags
        root.answer, root.answer_found, root.ended, root.streamed = text, True, True, True
        found = self.call_builder or CallBuilder(root, [])
        inner = [each for each in list(found.steps) if each is not step and each.ended]
        return CallBuilder(root, [root, *inner], found.orphans)

    def unheld_reason(self, left: str = "") -> str:
        """Return why the answer of a run cannot be checked, or an empty text if it has ended and can.

        Args:
            left: why a stream has ended early, where nothing else is the reason.
        """
        if self.is_held and not left:
            return NOT_HELD if self.is_read_otherwise else ""
        if self.is_dropped:
            return "head_dropped"
        if self.step.span is None:
            return "internal"
        if self.call_builder is not None and not self.is_root:
            return "not_outermost"
        if left:
            return left
        return "forked" if self.step.ended else NOT_HELD


class ShadowCheck:
    """Check of one answer after it has left, which counts what a guard would have done.

    Args:
        function: the guarded function.
        guards: the guards of the runtime.
    """

    call: RagCall | None = None
    """None: the call is built when its turn to be scored has come."""
    has_evaluation = False
    """The judge is asked when the call's turn to be scored has come."""
    added_s: float | None = None
    """Seconds for which a guard would have held the answer back; None: it was not checked."""

    def __init__(self, function: GuardedFunction, guards: Guards) -> None:
        self._function, self._guards = function, guards
        self._checks: list[Check] = []
        """Checks in the order in which they were made. The first one counts."""

    @property
    def evaluator(self) -> str:
        """Id of the evaluator whose score the guard reads; empty: none was found."""
        return self._guards.evaluator_id_of(self._function)

    @property
    def score(self) -> float | None:
        """Score by which the verdict was found."""
        return self._checks[0].score if self._checks else None

    async def evaluation(self, call: RagCall, evaluate: Callable[[], Awaitable[Evaluation]]) -> Evaluation:
        """Return what *evaluate* makes, and find the verdict that the guard would have had by its deadline."""
        began = monotonic()
        evaluation = await evaluate()
        took, budget = monotonic() - began, self._function.guard.budget_ms / 1000
        found = _LATE
        if took <= budget:
            found = self._guards.check(self._function, call, evaluation)
        self._count(found, min(took, budget))
        return evaluation

    def close(self, reason: str = "unscored") -> None:
        """Count the answer as not checked, for *reason*, unless it has a verdict."""
        if not self._checks:
            self._count(Check("unscored", reason=reason or "unscored"), None)

    def attributes(self) -> Mapping[str, str | int]:
        """Return the verdict as attributes for a span or an event."""
        check, guard = self._checks[0] if self._checks else Check("unscored"), self._function.guard
        return outcome_attributes(guard.metric, guard.action, check.verdict, "none", check.reason)

    def _count(self, check: Check, added: float | None) -> None:
        # Atomic: a shutdown may drop the call while the worker's thread finds the verdict.
        self._checks.append(check)
        if self._checks[0] is not check:
            return
        self.added_s = added
        self._guards.count(self._function, check.verdict, "none", added)


class ShadowRuntime:
    """Runtime that recorders of functions with a shadow guard hand their steps to: it sees to the guard, and passes on.

    These functions have no recorder class of their own. The interpreter fits the code of a recorder to one class, and
    a second one beside it would cost the application's thread two microseconds a call.

    Args:
        runtime: the runtime.
    """

    def __init__(self, runtime: GuardRuntime) -> None:
        self.runtime, self.writer, self.orphans = runtime, runtime.writer, runtime.orphans
        self._call_ended = runtime.call_ended

    @property
    def scores_head_dropped(self) -> bool:
        """Whether RAG calls are scored even if the head sampler dropped their trace."""
        return self.runtime.scores_head_dropped

    @property
    def baggage_tags(self) -> tuple[str, ...]:
        """Names that a RAG call's tags are read from, where OpenTelemetry's baggage has them."""
        return self.runtime.baggage_tags

    @property
    def router(self) -> CallRouter | None:
        """Says where the telemetry of each RAG call goes."""
        return self.runtime.router

    @property
    def looks_around(self) -> bool:
        """Whether there are `baggage_tags` or a `router`."""
        return self.runtime.looks_around

    def call_ended(self, builder: CallBuilder) -> None:
        """Pass on a RAG call whose root step has ended; the verdict comes with its scores."""
        root = builder.root
        if root.error is not None:  # a run that failed has no answer to be checked
            root.guard = None
        self._call_ended(builder)
        if builder.root is not root and root.guard is not None:  # the call is over already: the queue was full
            root.guard.close("queue_full")

    def step_ended(self, builder: CallBuilder | None, step: Step) -> None:
        """Pass on a step that is not the root of a RAG call, and whose answer is not checked therefore."""
        if step.guard is not None and step.error is None:
            step.guard.close("not_outermost")
        self.runtime.step_ended(builder, step)

    def unrecorded(self, step: Step, reason: Literal["head_dropped", "forked"], *, is_call: bool) -> None:
        """Pass on a step that is not recorded, and whose answer is not checked therefore."""
        if step.guard is not None:
            step.guard.close(reason)
        self.runtime.unrecorded(step, reason, is_call=is_call)
