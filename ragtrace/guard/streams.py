"""Guarded streams: the pieces of an answer leave as they come, sentence by sentence, or after the whole answer.

A held stream reads its source only when its own reader asks for a piece, in the reader's thread or task, and keeps the
pieces as the objects that they are. While a sentence is checked, the source is not read; what a server sends meanwhile
waits in the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import islice
from sys import is_finalizing, maxsize
from time import monotonic
from typing import Any, Final

from ragtrace.capture.answer_stream import AnswerStream, is_framed
from ragtrace.core import semconv
from ragtrace.core.reasoning import MARK_ENDS, SplitAnswer, split_reasoning, without_end_mark
from ragtrace.core.step import CHECKED
from ragtrace.core.types import Evaluation, RagCall
from ragtrace.evaluation.scoring import Evaluator
from ragtrace.guard.decision import blocks
from ragtrace.guard.guarded_call import (
    HAND_OVER_SECONDS,
    NOT_HELD,
    AnswerCheck,
    GuardOutcome,
    GuardRuntime,
    HeldRecorder,
    VerdictWait,
)
from ragtrace.guard.guards import GuardedFunction
from ragtrace.guard.outcomes import Check, GuardBlocked
from ragtrace.judges.lexical.statements import sentences
from ragtrace.recording.drivers import start_async_generator
from ragtrace.system.faults import faults, guarded

_NEVER: Final = maxsize
"""Number of characters up to which no answer is checked sentence by sentence."""


class SentenceCheck(VerdictWait):
    """Check of one sentence of a streamed answer, by itself.

    Args:
        function: the guarded function.
        runtime: the runtime.
        recorder: recorder of the run that streams the answer.
        seconds: most seconds to wait.
        text: the sentence.
        awaited: object that stands for the stream's call to come.
    """

    def __init__(
        self,
        function: GuardedFunction,
        runtime: GuardRuntime,
        recorder: HeldRecorder,
        seconds: float,
        text: str,
        awaited: object,
    ) -> None:
        super().__init__(function, runtime, recorder, seconds)
        self._awaited = awaited
        self._builder = recorder.with_part(text) if recorder.is_root else None

    def _unheld_reason(self) -> str:
        return "" if self._builder is not None else self._recorder.unheld_reason()

    async def _find_with(self, evaluator: Evaluator) -> None:
        if self._builder is None:
            return
        call = self._build(self._runtime.processor.build_partial, self._builder)
        evaluation = None if call is None else await self._evaluate(evaluator, call)
        if evaluation is not None:
            self._runtime.processor.count_partial(evaluation)


class SentenceOutcome(GuardOutcome):
    """Outcome of the checks of a stream's sentences: `fail` where one failed, `pass` where all have passed."""

    call: RagCall | None = None
    """None: the whole call is built when its turn to be scored has come."""
    has_evaluation = False
    """Sentences were judged, each by itself; the whole answer was not."""
    has_verdict = False
    """Whether any sentence has been checked, or could not be."""
    sentences = 0
    """Number of sentences that were to be checked."""
    unchecked = 0
    """Number of them that could not be checked."""

    def add_sentence(self, sentence: SentenceCheck) -> None:
        """Add the verdict on one more sentence."""
        self._latest = sentence
        self.sentences += 1
        self.unchecked += sentence.check.verdict not in CHECKED
        self.add(sentence.check)

    def add(self, found: Check) -> None:
        """Add a verdict to that on the whole answer."""
        if self.has_verdict and not (self.check.verdict == "pass" or found.verdict == "fail"):
            return  # the first reason why a sentence was not checked stays
        if self.has_verdict and found.verdict == self.check.verdict == "pass":
            found = min(found, self.check, key=self._goodness)  # the score shown is the worst sentence's
        self.check, self.has_verdict = found, True

    def _goodness(self, check: Check) -> float:
        score = check.score or 0.0
        return score if self._function.guard.below is not None else -score

    def warn_of_budget(self) -> None:
        """Say once a function that its budget does not suffice for all sentences of an answer."""
        guard = self._function.guard
        faults.log_once(
            f"guard budget: {self._function.workflow} {guard!r}",
            "the guard of %r, %r, has spent its budget on the first %d of the %d sentences of a stream, and could not "
            "check the others in time. budget_ms= is for all sentences of a stream together: allow for as many checks "
            "as your answers have sentences, or give stream='all', which checks the answer once",
            self._function.workflow,
            guard,
            self.sentences - self.unchecked,
            self.sentences,
        )

    def attributes(self) -> Mapping[str, str | int]:
        """Return verdict, action and the numbers of sentences as attributes for a span or an event."""
        numbers = {semconv.GUARD_SENTENCES: self.sentences, semconv.GUARD_SENTENCES_UNCHECKED: self.unchecked}
        return {**super().attributes(), **(numbers if self.sentences else {})}

    async def evaluation(self, call: RagCall, evaluate: Callable[[], Awaitable[Evaluation]]) -> Evaluation:
        """Return what *evaluate* makes: the whole answer is judged after its sentences have left."""
        return await evaluate()


class HeldStream:
    """Pieces of a streamed answer that are held back, and the checks for which they wait.

    Args:
        function: the guarded function.
        runtime: the runtime.
        recorder: recorder of the run that streams the answer.
        select: the function that selects the text of a piece; None: it is found by itself.
    """

    def __init__(
        self,
        function: GuardedFunction,
        runtime: GuardRuntime,
        recorder: HeldRecorder,
        select: Callable[[Any], object] | None,
    ) -> None:
        self._function, self._guard = function, function.guard
        self._runtime, self._recorder, self._select = runtime, recorder, select
        self._mode = function.guard.stream
        self._held: deque[tuple[object, int]] = deque()
        """Pieces that have not left, each with the number of the answer's characters up to its end."""
        self._answer = AnswerStream()
        """Reads the pieces, and says whether their text is known."""
        self._text = ""
        """Text that has come since the first sentence that is not checked, which begins at the offset `_checked`."""
        self._checked = 0
        self._split = SplitAnswer("", "", "")
        """`_text` by the time it was last looked at."""
        self._has_thought = False
        """Whether the answer has begun with reasoning."""
        self._may_speak = False
        """Whether the text may have more than reasoning."""
        self._spent = 0.0
        self._is_open = self._mode == "after"
        """Whether pieces leave as they come."""
        self.is_blocked = False
        """Whether a sentence has failed, so that no further piece may leave."""
        self._outcome: SentenceOutcome | None = None
        self._latest: SentenceCheck | None = None
        """Check of the latest sentence."""
        self._is_finished = self._counts_itself = False
        self._is_left = self._has_released = False
        self.has_passed = False
        """Whether the whole answer has left, so that its text may be read in any way."""
        self._awaited = object()
        self._why = "abandoned"
        """Reason of an answer that ends unchecked, unless it has a verdict."""
        recorder.is_streaming = True

    def add(self, piece: object) -> None:
        """Take up a piece that the source has given."""
        if self._mode != "sentence":
            self._held.append((piece, _NEVER))
            return
        try:
            new = self._answer.add(piece if self._select is None else self._select(piece)) or ""
            self._text += new
            is_thinking = bool(self._split.reasoning) and not self._split.mark
            self._may_speak = not is_thinking or any(end in new for end in MARK_ENDS)
        except Exception as error:  # of answer=, a function of the application
            faults.record("guard", error)
            self._answer.lose("which answer= has raised")
        # What is not known cannot be checked: it waits for the end. A closed guard lets nothing leave before some text
        # has passed, as an answer in whose pieces no text is found is not known either.
        least = 1 if self._guard.on_error == "closed" else 0
        self._held.append((piece, _NEVER if self._answer.unknown else max(least, self._answer.chars)))

    def released(self) -> Iterator[object]:
        """Yield the held pieces that may leave now, in their order."""
        while not (self.is_blocked or self._is_left):
            try:
                if not self._is_open and self._held[0][1] > self._checked:
                    return
                piece, _ = self._held.popleft()
            except IndexError:  # none is left, or another thread has closed the stream just now
                return
            self._has_released = True
            yield piece

    # --- sentence by sentence -----------------------------------------------------------------------------------------

    def next_check(self, *, last: bool = False) -> SentenceCheck | None:
        """Return the check of the next complete sentence, to be waited for, or None if there is no such sentence.

        Args:
            last: whether the answer has ended, so that what is left is a sentence.
        """
        if self._mode != "sentence" or self._is_open or self.is_blocked:
            return None
        if last:
            self._text += self._answer.rest()
        elif not self._may_speak:
            return None
        self._split = split = split_reasoning(self._text)
        self._has_thought = self._has_thought or bool(split.reasoning)
        begin, said = len(split.reasoning), self._text[len(split.reasoning) :]
        if last and self._has_thought:
            said = without_end_mark(said)
        found = list(islice(sentences(said), 2))
        if not found or (len(found) < 2 and not last):
            return None
        if self._answer.unknown is not None or (self._checked == 0 and is_framed(self._text)):
            return None  # no text is judged that is not known to be the answer
        left, text = self._guard.budget_ms / 1000 - self._spent, said[found[0][0] : found[0][1]]
        # White space belongs to the sentence before it: a piece leaves once all of its words are checked. Reasoning
        # leaves with the first sentence behind it.
        passed = begin + found[1][0] if len(found) > 1 else len(self._text)
        self._checked += passed
        self._text = self._text[passed:]
        return SentenceCheck(self._function, self._runtime, self._recorder, left, text, self._awaited)

    def take_verdict(self, check: SentenceCheck) -> None:
        """Take up the verdict of a sentence's check."""
        self._latest = check
        self._sentences().add_sentence(check)
        self._spent += check.waited
        self._runtime.worker.pause_check(self._awaited, monotonic() + HAND_OVER_SECONDS)
        if blocks(self._guard, check.check.verdict):
            self.is_blocked = self._guard.action != "annotate"
            self._is_open = not self.is_blocked

    def _sentences(self) -> SentenceOutcome:
        if self._outcome is None:
            self._outcome = SentenceOutcome(self._function, self._runtime, self._recorder)
            if self._recorder.is_root:
                self._recorder.step.guard = self._outcome
        return self._outcome

    # --- the end ------------------------------------------------------------------------------------------------------

    def answer_check(self) -> AnswerCheck | None:
        """Return the check of the whole answer, after the stream has ended, or None if its sentences were checked."""
        if self._mode == "sentence" or self._is_finished:
            return None
        self._counts_itself = True
        return AnswerCheck(self._function, self._runtime, self._recorder)

    def finish(self, check: AnswerCheck | None = None) -> bool:
        """Let pieces leave at the end of a stream or after a sentence that failed, and return whether it was replaced.

        Args:
            check: the check of the whole answer; None: its sentences were checked.

        Raises:
            GuardBlocked: the answer must not leave, and the guard's action is "raise".
        """
        if self._is_finished:
            return False
        self._is_finished = True
        held = list(self._held)
        shape = held[0][0] if held else ""
        if check is not None:
            left = check.apply(held, shape)
        else:
            outcome = self._sentences()
            is_thought = bool(self._split.reasoning) and not self._split.answer.strip()
            found = self._answer.answer()
            is_unread = is_thought or found is None or bool(found.text and not outcome.has_verdict)
            unread = "answer_not_captured" if is_unread else ""
            unread = NOT_HELD if self._recorder.is_read_otherwise else unread
            if unread or not outcome.has_verdict:
                outcome.add(Check("unscored", reason=self._recorder.unheld_reason() or unread or "empty_answer"))
            if 0 < outcome.unchecked < outcome.sentences and self._spent >= self._guard.budget_ms / 1000:
                outcome.warn_of_budget()
            # Where the function goes on or is closed, its end hands the call over; it has a verdict by then.
            self._recorder.has_returned = True
            left = outcome.act(outcome.check, held, shape, self._spent)
        self._is_open, self.is_blocked = True, False
        if left is held:
            self.has_passed = True
            return False
        self._held = deque([(left, _NEVER)])
        return True

    def rest(self) -> Iterator[object]:
        """Yield the held pieces before an exception of the source, after which nobody checks them."""
        if self._guard.on_error == "open" and not self.is_blocked:
            self._is_open = True
            yield from self.released()

    def was_left(self) -> bool:
        """Return whether the reader has left a held stream, so that it gets no piece and no exception any more."""
        return self._is_left

    def fail(self, error: BaseException) -> None:
        """Note that the source has ended with *error*, an exception or the cancellation of its reader."""
        self._why = "failed" if isinstance(error, Exception) else "cancelled"

    def leave(self) -> None:
        """Count a stream that ends before its answer has, unless it was counted."""
        if is_finalizing():  # a background thread that is no more may hold any lock
            return
        self._is_left = self._is_left or self._mode != "after"
        self._held.clear()
        if self._is_finished or self._counts_itself:
            return
        self._is_finished = True
        outcome, is_read = self._sentences(), self._recorder.is_read_otherwise
        if is_read or not outcome.has_verdict:
            outcome.add(Check("unscored", reason=self._recorder.unheld_reason(NOT_HELD if is_read else self._why)))
        self._recorder.has_returned = True  # where the source is still open, its end hands the call over
        is_released = (is_read or self._has_released) and outcome.check.verdict not in CHECKED
        outcome.end("released" if is_released else "none")

    def read_otherwise(self, way: str) -> None:
        """Note that the answer may be read by another way than its pieces, unless the whole answer has left.

        Args:
            way: an attribute or method of the stream.

        Raises:
            GuardBlocked: the guard is closed, and lets no answer leave before it has passed.
        """
        is_over, recorder = self._is_finished or self._counts_itself, self._recorder
        lets_pass = self._guard.on_error == "open" or self._guard.action == "annotate"
        if self.has_passed or (is_over and lets_pass):
            return
        recorder.is_read_otherwise = True
        faults.log_once(
            f"guard not held: {self._function.workflow} {self._guard!r}",
            "the guard of %r, %r, holds the pieces of a stream whose text may have been read by %s: the answer is "
            "unscored (not_held), and on_error= decides about it. Read the pieces alone, and anything else after the "
            "last one",
            self._function.workflow,
            self._guard,
            way,
        )
        if lets_pass:
            return
        self._is_left = True
        self._held.clear()
        check = Check("unscored", reason=recorder.unheld_reason(NOT_HELD))
        if is_over:
            outcome = GuardOutcome(self._function, self._runtime, recorder)
            outcome.check = check
            raise GuardBlocked(outcome.notice(0.0))
        self._is_finished = recorder.has_returned = True
        outcome = self._sentences()
        outcome.add(check)
        try:
            outcome.act(outcome.check, None, None, self._spent, action="raise")
        finally:
            self.end()

    def end(self) -> None:
        """Leave the stream, whose source has ended: the one exit of every stream, however it came to its end."""
        if is_finalizing():
            return
        try:
            self.leave()
        finally:
            if self._latest is None or not self._latest.is_being_handed_over:
                self._runtime.worker.end_check(self._awaited)

    def __del__(self) -> None:
        # A returned stream that is not iterated runs no code when it is collected. A generator has not begun then.
        if self._recorder.step.span is not None:
            with guarded("guard"):
                self.end()


def hold(held: HeldStream, source: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Yield the pieces of the generator *source*, each when the guard lets it leave."""
    resume: Callable[[], Any] = source.__next__
    is_thrown = False
    result: Any = None
    is_over = False
    try:
        while not (is_over or held.was_left()):
            try:
                held.add(resume())
            except StopIteration as stop:
                result, is_over = stop.value, True
            except BaseException as error:
                held.fail(error)
                if not is_thrown and isinstance(error, Exception):
                    yield from held.rest()
                if held.was_left():
                    return None
                raise
            finally:
                resume, is_thrown = source.__next__, False
            try:
                while (check := held.next_check(last=is_over)) is not None:
                    check.wait()
                    held.take_verdict(check)
                if is_over or held.is_blocked:
                    if (answer := held.answer_check()) is not None:
                        answer.wait()
                    if held.finish(answer):
                        is_over = True
                        source.close()
            except BaseException:  # the answer is blocked, or the reader was cancelled
                held.leave()
                source.close()
                raise
            for piece in held.released():
                try:
                    sent = yield piece
                except GeneratorExit:
                    held.leave()
                    source.close()
                    raise
                except BaseException as error:
                    if is_over:
                        raise
                    resume, is_thrown = partial(source.throw, error), True
                    break
                if sent is not None and not is_over:
                    resume = partial(source.send, sent)
        return None if held.was_left() else result
    finally:
        held.end()


async def hold_async(held: HeldStream, source: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """Yield the pieces of the asynchronous generator *source*, each when the guard lets it leave."""
    resume: Callable[[], Awaitable[Any]] = partial(start_async_generator, source)
    is_thrown = is_over = False
    try:
        while not (is_over or held.was_left()):
            try:
                held.add(await resume())
            except StopAsyncIteration:
                is_over = True
            except BaseException as error:
                held.fail(error)
                if not is_thrown and isinstance(error, Exception):
                    for piece in held.rest():
                        yield piece
                if held.was_left():
                    return
                raise
            finally:
                resume, is_thrown = partial(source.asend, None), False
            try:
                while (check := held.next_check(last=is_over)) is not None:
                    await check.wait_in_task()
                    held.take_verdict(check)
                if is_over or held.is_blocked:
                    if (answer := held.answer_check()) is not None:
                        await answer.wait_in_task()
                    if held.finish(answer):
                        is_over = True
                        await source.aclose()
            except BaseException:  # the answer is blocked, or the reader was cancelled
                held.leave()
                await source.aclose()
                raise
            for piece in held.released():
                try:
                    sent = yield piece
                except GeneratorExit:
                    held.leave()
                    await source.aclose()
                    raise
                except BaseException as error:
                    if is_over:
                        raise
                    resume, is_thrown = partial(source.athrow, error), True
                    break
                if sent is not None and not is_over:
                    resume = partial(source.asend, sent)
    finally:
        held.end()
