"""One decorated invocation as it was captured: plain data that the recording fills and everything behind it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ragtrace.core.types import Document, Timing, Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext

NO_USAGE = Usage()


StepKind: TypeAlias = Literal["trace", "retrieve", "generate"]


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An exception of the user's function, as text: keeping the object would keep its frames alive."""

    type: str
    message: str | None
    """None where no content may leave the process."""
    stacktrace: str


Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Message(NamedTuple):
    """One message of a prompt: who speaks, and the text of what is said."""

    role: Role
    text: str


class Prompt(NamedTuple):
    """The messages that a function was given, oldest first."""

    messages: tuple[Message, ...]
    is_cut: bool = False
    """Earlier messages were left out, as there were too many."""


class Step:
    """One invocation of a decorated function, or one `ragtrace.call` block.

    Written by the application's thread until `ended`, read by the background afterwards. What most steps never set is
    a default of the class: making one takes time from the application.
    """

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
    """Of a retrieval: what it returned. Of a generation or a trace: what it was given, or says it used."""
    contexts_here: tuple[Document, ...] | None = None
    """Of a root: the call's contexts, where no retrieval span shows them."""
    answer: str | None = None
    answer_found: bool | None = None
    """Whether what was returned or streamed was understood as a reply, an empty one included; None: nothing was."""
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
    """Memory that its texts take; None: not weighed yet."""
    written: bool = False
    """Its span has been ended."""
    joined: bool = False
    """It has ended, and goes to the background along with the root of its call."""
    end_ns: int = 0
    """Wall clock, nanoseconds since the epoch."""
    span: Span | None = None
    context: Context | None = None
    """The context its span is current in."""

    def __init__(self, kind: StepKind, name: str = "", workflow: str = "") -> None:
        self.kind: StepKind = kind
        self.name = name
        """Workflow of a trace, data source of a retrieval, empty for a generation."""
        self.workflow = workflow
        """Name under which the call is scored if this step is its root."""

    def forget(self) -> None:
        """Let go of all texts: nobody is going to read them."""
        self.query = self.answer = self.documents = self.reference = self.contexts_here = self.prompt = None
        self.bytes = 0

    def let_go(self) -> None:
        """It is over and its span has ended: let go of the context, which leads back to the step.

        A call would otherwise live on, with all its texts, until the collector of cycles comes by.
        """
        self.context = None
        if not self.written:  # it never will be
            self.span = None

    def part(self) -> bool:
        """Whether it was to go along with its root; from now on it is not. Of several that ask, one is told so."""
        waited: bool = vars(self).pop("joined", False)  # one atomic step: whoever gets it deals with the span
        return waited

    def complete(self) -> None:
        """Read what was left for later. In the background, or at once where the span is written at once."""

    @property
    def span_context(self) -> SpanContext | None:
        """Identity of its span; None before it began."""
        return None if self.span is None else self.span.get_span_context()

    def inside(self, kind: StepKind) -> bool:
        """Whether an enclosing step is of *kind*."""
        step = self.parent
        while step is not None:
            if step.kind == kind:
                return True
            step = step.parent
        return False
