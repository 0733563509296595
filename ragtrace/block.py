"""The functions `ragtrace.call`, for code that cannot be decorated, and `usage` and `reference` inside a call."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final

from ragtrace.capture import find_documents, warn_not_found
from ragtrace.capture.arguments import FunctionArguments
from ragtrace.capture.documents import add_documents
from ragtrace.capture.fields import text_of, whole_of
from ragtrace.capture.tags import joined_tags, kept_tags
from ragtrace.core.step import FINDING_KINDS, Step
from ragtrace.core.tags import TagValue
from ragtrace.core.text import encodable_name
from ragtrace.core.types import Usage
from ragtrace.recording.invocation import Invocation
from ragtrace.recording.recorder import (
    Selector,
    StepRecorder,
    StepSpec,
    current_recorder,
    is_recording_suppressed,
    recording_context,
)
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults, guarded

_TAGS: Final = "tags of ragtrace.call"


class CallBlock:
    """Context manager whose block is traced and scored as one RAG call, like a decorated function.

    Use with `with` or `async with`. An exception in the block is recorded and goes on.

    Examples:
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> with ragtrace.call("Where is the tower?", name="support") as call:
        ...     call.retrieved([{"id": "tower.md", "text": "The tower is in Paris."}])
        ...     call.answered(["In ", "Paris."], reduce="".join)
        >>> ragtrace.flush()
        True
        >>> captured.root().name
        'invoke_workflow support'
    """

    def __init__(
        self,
        name: str,
        arguments: dict[str, str | None],
        reference: str | None,
        tags: Mapping[str, TagValue | None] | None = None,
    ) -> None:
        self._answer: object = None
        self._query = arguments.get("query")
        self._step: Step | None = None
        self._invocation: Invocation | None = None
        runtime = current()
        if runtime is not None and not is_recording_suppressed():
            name = encodable_name(name)
            spec = StepSpec("trace", _ARGUMENTS, name=name, workflow=name)
            recorder = StepRecorder(runtime, spec, (), arguments, False)
            self._step = recorder.step
            self._step.reference = reference
            if tags:
                self._add_tags(tags)
            self._invocation = Invocation(recorder)

    def retrieved(self, found: object) -> None:
        """Record the documents that were retrieved, in any form that `@retrieve` understands.

        Called again, it adds documents.
        """
        step = self._step
        if step is None:
            return
        with guarded("capture of results"):
            read = find_documents(found, query=self._query)
            if read is None:
                warn_not_found("documents", "ragtrace.call", found)
            else:
                step.documents = add_documents(step.documents, read)

    def answered(self, answer: object, *, reduce: Selector | None = None) -> None:
        """Record the answer of the RAG call: a text, or any object that `@generate` understands.

        Args:
            answer: the answer, or the list of a stream's pieces if *reduce* is given.
            reduce: takes that list and gives the text. It is called at once. If it raises, the answer is not captured.
        """
        self._answer = answer
        if reduce is None or self._step is None:
            return
        self._answer = None
        with guarded("reduce= of ragtrace.call"):
            if not isinstance(answer, (list, tuple)):
                raise TypeError(f"answered(reduce=) takes the list of the pieces, got {type(answer).__name__}")
            self._answer = reduce(answer)

    def tag(self, name: str, value: TagValue | None) -> None:
        """Give the call a tag, in the place of an earlier one of the same name. Never raises.

        Examples:
            >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(answer_label="answered"))
            >>> ragtrace.configure(exporter="none", screen=judge)
            >>> with ragtrace.call("Where is the tower?", tags={"tenant": "acme"}) as call:
            ...     call.tag("prompt_version", 7)
            ...     call.answered("In Paris.")
            >>> ragtrace.flush()
            True
            >>> judge.calls[0].tags
            {'tenant': 'acme', 'prompt_version': 7}

        Args:
            name: name of the tag: a letter, then letters, digits, `_`, `-` and `.`, at most 64.
            value: a text of at most 200 characters, a boolean or a finite number; None: nothing is added. Anything else
                is left out and counted.
        """
        if self._step is not None:
            with guarded("tags of ragtrace.call"):
                self._add_tags({name: value})

    def _add_tags(self, tags: Mapping[str, TagValue | None]) -> None:
        if (step := self._step) is not None:
            kept = kept_tags(tags, _TAGS)
            step.tags = joined_tags(step.tags or {}, kept, _TAGS)
            if step.route and (runtime := current()) is not None and runtime.router is not None:
                runtime.router.add_tags(step, kept)

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
    tags: Mapping[str, TagValue | None] | None = None,
) -> CallBlock:
    """Return a context manager whose block is traced and scored as one RAG call.

    For code that no decorator fits.

    Examples:
        >>> ragtrace.configure(exporter="console")
        >>> with ragtrace.call("Where is the tower?", name="support") as call:
        ...     call.retrieved(["The tower is in Paris."])
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        16:08:09 support: ok consistency=1 answered=1 contexts=1 query=...
        True

    Args:
        query: what was asked.
        name: the workflow's name, of low cardinality.
        session: id of the conversation.
        user: id of the user.
        reference: the right answer, for metrics that need one.
        tags: values of the call's tags by their names, such as `{"tenant": "acme"}`; 16 at most.
    """
    return CallBlock(name, {"query": query, "session": session, "user": user}, reference, tags)


_ARGUMENTS = FunctionArguments(call, "trace", query="query", session="session", user="user")


def usage(*, input_tokens: int | None = None, output_tokens: int | None = None, model: str | None = None) -> None:
    """Attach token counts and the model name to the generation in progress.

    For answers that do not carry them. To be called inside a `@generate`, or a `@trace` without one: by a function that
    yields text while it reads a model's stream, say. Called again, the counts are added up. Outside a call it does
    nothing and says so once in the log. Never raises.

    Examples:
        >>> @ragtrace.generate
        ... def answer(question: str, docs: list[str]):
        ...     yield from ("In ", "Paris.")  # what a model's stream gives
        ...     ragtrace.usage(input_tokens=24, output_tokens=3, model="my-model")  # what its last chunk says
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> "".join(answer("Where is the tower?", ["The tower is in Paris."]))
        'In Paris.'
        >>> ragtrace.flush()
        True
        >>> captured.root().attributes["gen_ai.usage.output_tokens"]
        3

    Args:
        input_tokens: tokens that the model read.
        output_tokens: tokens that it wrote.
        model: name of the model that answered.
    """
    with guarded("usage"):
        if current() is None or is_recording_suppressed():
            return
        recorder = current_recorder(recording_context())
        step = None if recorder is None else recorder.step
        while step is not None and step.kind in FINDING_KINDS:
            step = step.parent
        if step is None:
            faults.warn_once(
                "usage",
                "ragtrace.usage(...) was called outside a traced call and was ignored; call it inside a function "
                "decorated with @ragtrace.generate",
            )
            return
        known, given = step.usage, (whole_of(input_tokens), whole_of(output_tokens))
        step.usage = Usage(_sum(known.input_tokens, given[0]), _sum(known.output_tokens, given[1]))
        step.response_model = text_of(model) or step.response_model


def _sum(known: int | None, more: int | None) -> int | None:
    return more if known is None else known + (more or 0)


def reference(text: str) -> None:
    """Attach the reference answer to the RAG call in progress, for metrics that compare the answer with a reference.

    To be called anywhere below a `@trace`, or in a `@generate` without one; the last text given counts. Outside a call
    it does nothing and says so once in the log. Never raises.

    Examples:
        >>> @ragtrace.trace
        ... def ask(question: str) -> str:
        ...     ragtrace.reference("The tower is in Paris.")  # the right answer, where it is known
        ...     return "In Paris."
        >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(answer_label="answered"))
        >>> ragtrace.configure(exporter="none", screen=judge)
        >>> ask("Where is the tower?")
        'In Paris.'
        >>> ragtrace.flush()
        True
        >>> judge.calls[0].reference
        'The tower is in Paris.'

    Args:
        text: the right answer.
    """
    with guarded("reference"):
        if current() is None or is_recording_suppressed():
            return
        recorder = current_recorder(recording_context())
        if recorder is None or recorder.call_builder is None:
            faults.warn_once(
                "reference",
                "ragtrace.reference(...) was called outside a traced call and was ignored; call it inside a function "
                "decorated with @ragtrace.trace",
            )
        else:
            recorder.call_builder.root.reference = str(text)
