"""One run of a decorated function as it was captured: plain data that a recorder fills and the pipeline reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from ragtrace.core.types import Document, Timing, Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext

NO_USAGE = Usage()


StepKind: TypeAlias = Literal["trace", "retrieve", "generate"]


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """Exception of the user's function, as text: keeping the object would keep its frames alive."""

    type: str
    message: str | None
    """None where no content may leave the process."""
    stacktrace: str


Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Message(NamedTuple):
    """One message of a prompt: its role and its text."""

    role: Role
    text: str


class Prompt(NamedTuple):
    """Messages that a function was given, oldest first."""

    messages: tuple[Message, ...]
    is_cut: bool = False
    """Earlier messages were left out, as there were too many."""


class DeferredReading(Protocol):
    """Arguments and result of a step, kept unread while the application waited."""

    def read(self) -> None:
        """Put what the arguments and the result say onto the step."""
        ...

    def clear(self) -> None:
        """Drop the arguments and the result."""
        ...


class Step:
    """One run of a decorated function, or of a `ragtrace.call` block.

    Written by the application's thread until `ended`, read by the pipeline afterwards. Every
    field has a default of the class, because setting a field takes time from the application.
    """

    kind: StepKind = "trace"
    name: str = ""
    """Workflow of a trace, data source of a retrieval, empty for a generation."""
    workflow: str = ""
    """Name under which the call is scored if this step is its root."""
    parent: Step | None = None
    rerank: bool = False
    provider: str | None = None
    request_model: str | None = None
    conversation_id: str | None = None
    user_id: str | None = None
    query: str | None = None
    prompt: Prompt | None = None
    """The messages among the arguments of a generation or a trace, the question included."""
    documents: tuple[Document, ...] | None = None
    """Documents that a retrieval returned; documents that a generation or a trace was given, or says it used."""
    contexts_here: tuple[Document, ...] | None = None
    """On a root: the call's contexts, where no retrieval span shows them."""
    answer: str | None = None
    answer_found: bool | None = None
    """Whether the returned or streamed value was understood as an answer, an empty one included; None: no value."""
    reference: str | None = None
    top_k: int | None = None
    response_model: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Usage = NO_USAGE
    timing: Timing | None = None
    streamed: bool = False
    abandoned: bool = False
    error: ErrorRecord | None = None
    ended: bool = False
    redacted: bool = False
    """Its texts have been through `Redact`."""
    cut_chars: int = 0
    bytes: int | None = None
    """Memory that its texts take; None: not measured yet."""
    written: bool = False
    """Its span has been ended."""
    joined: bool = False
    """It has ended, and goes to the pipeline along with the root of its call."""
    end_ns: int = 0
    """Wall clock, nanoseconds since the epoch."""
    span: Span | None = None
    context: Context | None = None
    """The context in which its span is current."""
    deferred: DeferredReading | None = None
    """Arguments and result that are still to be read."""

    def complete(self) -> None:
        """Read the deferred arguments and result: in the background, or at once where the span is written at once."""
        deferred, self.deferred = self.deferred, None
        if deferred is not None:
            deferred.read()

    def clear_texts(self) -> None:
        """Drop all texts, read or not, of a step that is not going to be written or scored."""
        self.query = self.answer = self.documents = self.reference = self.contexts_here = self.prompt = None
        self.bytes = 0
        deferred, self.deferred = self.deferred, None
        if deferred is not None:
            deferred.clear()

    def release_context(self) -> None:
        """Drop the context of a step whose span has ended: the context leads back to the step.

        The texts of the call would otherwise stay in memory until the garbage collector finds the cycle.
        """
        self.context = None
        if not self.written:  # it never will be
            self.span = None

    def detach(self) -> bool:
        """Separate the step from its root; return True to exactly one caller if it was to go along with the root."""
        waited: bool = vars(self).pop("joined", False)  # atomic: the caller that gets True takes over the span
        return waited

    @property
    def span_context(self) -> SpanContext | None:
        """Return the identity of its span; None before the span began."""
        return None if self.span is None else self.span.get_span_context()

    def inside(self, kind: StepKind) -> bool:
        """Return whether an enclosing step is of *kind*."""
        step = self.parent
        while step is not None:
            if step.kind == kind:
                return True
            step = step.parent
        return False
