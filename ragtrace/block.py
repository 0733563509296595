"""`with ragtrace.call(...)`: for code that no decorator fits."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from opentelemetry.context import get_current

from ragtrace.capture import find_documents, warn_not_found
from ragtrace.capture.arguments import Arguments, Picked
from ragtrace.capture.fields import text_of, whole_of
from ragtrace.core.step import Step
from ragtrace.core.types import Usage
from ragtrace.instrument.invocation import Invocation
from ragtrace.instrument.recorder import Recording, current_step, unobserved
from ragtrace.instrument.step_fields import StepSpec
from ragtrace.runtime import current
from ragtrace.system.faults import faults, guarded


class _Given(Arguments):
    """Arguments that are known without looking."""

    def __init__(self, picked: Picked) -> None:
        self._picked = picked
        self.can_wait = False

    def pick(self, args: Any, kwargs: Any, bound: bool, *, is_frozen: bool = False) -> Picked:
        return self._picked


class CallBlock:
    """One RAG call as a block: told what was retrieved and answered, it is traced and scored like a decorated one.

    Use with `with` or `async with`. An exception in the block is recorded and goes on.
    """

    def __init__(self, name: str, picked: Picked, reference: str | None) -> None:
        self._answer: object = None
        self._invocation: Invocation | None = None
        self._recording: Recording | None = None
        runtime = current()
        if runtime is not None and not unobserved():
            spec = StepSpec("trace", name, _Given(picked), name=name, workflow=name)
            self._recording = Recording(runtime, spec, (), {}, False)
            self._recording.reference = reference
            self._invocation = Invocation(self._recording)

    def retrieved(self, found: object) -> None:
        """What was retrieved, in anything `@retrieve` understands; called again, the documents are added."""
        if self._recording is None:
            return
        with guarded("capture of results"):
            read = find_documents(found)
            if read is None:
                warn_not_found("documents", "ragtrace.call", found)
            else:
                self._recording.documents = (self._recording.documents or ()) + read

    def answered(self, answer: object) -> None:
        """The answer: a text, or anything `@generate` understands."""
        self._answer = answer

    def __enter__(self) -> CallBlock:
        if self._invocation is not None:
            self._invocation.begin()
            self._invocation.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._invocation is None:
            return
        self._invocation.__exit__()
        if error is not None:
            self._invocation.failed(error)
        else:
            self._invocation.done(self._answer)

    async def __aenter__(self) -> CallBlock:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def call(
    query: str | None = None,
    *,
    name: str = "call",
    session: str | None = None,
    user: str | None = None,
    reference: str | None = None,
) -> CallBlock:
    """Open one RAG call by hand.

    Example:
        with ragtrace.call(question, name="support") as call:
            call.retrieved(docs)
            call.answered(text)

    Args:
        query: what was asked.
        name: the workflow's name, of low cardinality.
        session: id of the conversation.
        user: id of the user.
        reference: the right answer, for metrics that need one.
    """
    return CallBlock(name, Picked(query=query, session=session, user=user), reference)


def usage(*, input_tokens: int | None = None, output_tokens: int | None = None, model: str | None = None) -> None:
    """Attach token counts and the model to the generation in progress, where its answer does not carry them.

    To be called inside a `@generate`, or a `@trace` without one: by a function that yields text while it reads a
    model's stream, say. Called again, the counts are added up. Outside a call it does nothing and says so once in the
    log. Never raises.

    Example:
        @ragtrace.generate
        def answer(question: str, docs: list[str]) -> Iterator[str]:
            for chunk in client.chat.completions.create(..., stream=True, stream_options={"include_usage": True}):
                if chunk.usage:
                    ragtrace.usage(
                        input_tokens=chunk.usage.prompt_tokens,
                        output_tokens=chunk.usage.completion_tokens,
                        model=chunk.model,
                    )
                yield from (choice.delta.content or "" for choice in chunk.choices)

    Args:
        input_tokens: tokens that the model read.
        output_tokens: tokens that it wrote.
        model: name of the model that answered.
    """
    with guarded("usage"):
        if current() is None or unobserved():
            return
        step: Step | None = current_step(get_current())
        while step is not None and step.kind == "retrieve":
            step = step.parent
        if step is None:
            faults.warn_once("usage", "ragtrace.usage(...) was called outside a call; put it below a @generate")
            return
        known, given = step.usage, (whole_of(input_tokens), whole_of(output_tokens))
        step.usage = Usage(_sum(known.input_tokens, given[0]), _sum(known.output_tokens, given[1]))
        step.response_model = text_of(model) or step.response_model


def _sum(known: int | None, more: int | None) -> int | None:
    return more if known is None else known + (more or 0)


def reference(text: str) -> None:
    """Attach the right answer to the call in progress, for metrics that compare the answer with it.

    To be called anywhere below a `@trace`, or in a `@generate` without one; the last text given counts. Outside a call
    it does nothing and says so once in the log. Never raises.

    Example:
        @ragtrace.trace
        def ask(question: str) -> str:
            ragtrace.reference(golden_answers[question])
            ...
    """
    with guarded("reference"):
        if current() is None or unobserved():
            return
        step = current_step(get_current())
        if step is None or step.assembly is None:
            faults.warn_once("reference", "ragtrace.reference(...) was called outside a call; put it below a @trace")
        else:
            step.assembly.root.reference = str(text)
