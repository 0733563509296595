"""Captured runs of decorated functions, called steps, and the builder that combines them into RAG calls."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from ragtrace.core.labels import Turn
from ragtrace.core.previews import contexts_beside
from ragtrace.core.reasoning import split_reasoning, without_reasoning
from ragtrace.core.tags import MOST_TAGS, TagValue
from ragtrace.core.types import Document, DocumentsInPart, Evaluation, RagCall, Timing, Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext

NO_USAGE = Usage()


StepKind: TypeAlias = Literal["trace", "retrieve", "generate", "tool"]
_ANSWERING: Final = ("trace", "generate")
FINDING_KINDS: Final = ("retrieve", "tool")
"""Kinds of steps whose result is evidence for the answer and never the answer."""
_CLOCKS_NS: Final = 1_000_000
"""Largest error, in nanoseconds, of a start that is the end by one clock minus the duration by another."""


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """Exception that a decorated function raised, kept as text.

    Keeping the object would keep its frames alive.
    """

    type: str
    message: str | None
    """Message of the exception; None where no content may leave the process."""
    stacktrace: str


Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Message(NamedTuple):
    """One message of a prompt: its role and its text."""

    role: Role
    text: str


class Prompt(NamedTuple):
    """Chat messages that a decorated function was given as its prompt, oldest first."""

    messages: tuple[Message, ...]
    is_cut: bool = False
    """Whether earlier messages were left out because of the limits on a prompt's size."""


class DeferredReading(Protocol):
    """Arguments and result of a decorated function, kept until they are read in the background."""

    def read(self) -> None:
        """Read the kept arguments and result into the fields of the step."""
        ...

    def clear(self) -> None:
        """Discard the kept arguments and result without reading them."""
        ...


CHECKED: Final = ("pass", "fail")
"""Verdicts of guards on answers that were checked; every other verdict says why one was not."""


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """Verdict and action of a guard on the answer of one call."""

    metric: str
    """Metric by which the guard checks."""
    mode: str
    """Action for which the guard is configured: shadow, annotate, replace, retry or raise."""
    verdict: str
    """`pass`, `fail`, or why the answer was not checked: timeout, unscored, circuit_open, error."""
    action: str
    """Action on the answer: none, annotated, replaced, retried, raised or released."""
    reason: str
    """Reason why the answer was not checked, or could not be replaced; else empty."""
    score: float | None
    """Score by which the verdict was found; None: there is none."""
    added_s: float | None
    """Seconds for which the guard held the answer back or, in shadow mode, would have held it back; None: nobody waited
    to the end."""

    @property
    def is_checked(self) -> bool:
        """Whether the answer was checked: it has passed or failed."""
        return self.verdict in CHECKED

    @property
    def reason_in_counts(self) -> str:
        """Reason by which the answer is counted: that of the verdict, or the verdict where it says enough."""
        return self.reason if self.reason or self.is_checked else self.verdict


class StepGuard(Protocol):
    """Guard of one RAG call, on the call's root step."""

    @property
    def evaluator(self) -> str:
        """Id of the evaluator whose score the guard reads."""
        ...

    @property
    def call(self) -> RagCall | None:
        """Call that the guard has built and redacted; None: it has built none."""
        ...

    @property
    def score(self) -> float | None:
        """Score by which the verdict was found; None: there is none."""
        ...

    @property
    def added_s(self) -> float | None:
        """Seconds for which the answer was held back, or would have been; None: nobody waited to the end."""
        ...

    @property
    def has_evaluation(self) -> bool:
        """Whether the guard has had the call evaluated, or has begun to, so that the judge is not asked once more."""
        ...

    async def evaluation(self, call: RagCall, evaluate: Callable[[], Awaitable[Evaluation]]) -> Evaluation:
        """Return the evaluation of *call* that the guard had made, or else what *evaluate* makes."""
        ...

    def close(self, reason: str = "unscored") -> None:
        """Count the call as not checked, for *reason*, unless it has a verdict."""
        ...

    def attributes(self) -> Mapping[str, str | int]:
        """Return verdict and action as attributes for a span or an event."""
        ...


class Step:
    """Step of a RAG call: one run of a decorated function, or of a `ragtrace.call` block.

    Written by the application's thread until `ended`, read by the pipeline afterwards. Every
    field has a default of the class, because setting a field takes time from the application.
    """

    kind: StepKind = "trace"
    name: str = ""
    """Workflow of a trace or data source of a retrieval; empty for a generation."""
    workflow: str = ""
    """Name under which the call is scored if the step is the root of the call."""
    parent: Step | None = None
    rerank: bool = False
    instrumentation: str = ""
    """Scope of the spans of the instrumentation or listener that recorded the step; empty: a decorator or a block."""
    provider: str | None = None
    request_model: str | None = None
    conversation_id: str | None = None
    user_id: str | None = None
    tags: Mapping[str, TagValue] | None = None
    """Tags that the step gives its call; None: it gives none."""
    route: str = ""
    """`RagCall.route` of the call, on its root step, and of a retrieval outside any call; empty: nothing is routed."""
    query: str | None = None
    prompt: Prompt | None = None
    """Chat messages among the arguments of a generation or a trace, including the question; None: there were none."""
    documents: tuple[Document, ...] | None = None
    """Documents that a retrieval returned, or that a generation or a trace was given or reports as used."""
    previews: tuple[Document, ...] | None = None
    """Documents that came with the answer, of which some break off with an ellipsis and may be previews; else None."""
    reranked: tuple[Document, ...] | None = None
    """Documents that a re-ranking was given, where a span shows them; else None."""
    contexts_here: tuple[Document, ...] | None = None
    """Contexts of the call, set on the root step where no retrieval span shows them; else None."""
    prompt_documents: tuple[Document, ...] | None = None
    """Documents found in the prompt of a root or generation, with results of tools since the question; else None."""
    answer: str | None = None
    denies_answer: bool = False
    """Whether the returned record says that there is no answer: with an error, or a field for it that is None."""
    answer_found: bool | None = None
    """Whether the returned or streamed value was understood as an answer, if only an empty one; None: no value."""
    reference: str | None = None
    top_k: int | None = None
    response_model: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Usage = NO_USAGE
    total_usage: Usage | None = None
    """Token counts of all model calls, on the root of a call that was read from spans; else None."""
    timing: Timing | None = None
    streamed: bool = False
    abandoned: bool = False
    error: ErrorRecord | None = None
    ended: bool = False
    redacted: bool = False
    """Whether the texts of the step have been through `Redact`."""
    cut_chars: int = 0
    answer_cut_chars: int = 0
    """Number of those characters that belong to the answer."""
    bytes: int | None = None
    """Memory in bytes that the texts of the step take; None: not measured yet."""
    written: bool = False
    """Whether the span of the step has been ended."""
    joined: list[None] = []  # noqa: RUF012  # the default stays empty
    """One item while the step, which has ended, waits to go to the pipeline with the root of the call."""
    end_ns: int = 0
    """End of the step by the wall clock, in nanoseconds since the epoch; 0: not known yet."""
    span: Span | None = None
    context: Context | None = None
    """OpenTelemetry context in which the span of the step is current."""
    deferred_reading: DeferredReading | None = None
    """Arguments and result that are still to be read in the background; None: there is nothing left to read."""
    defect: str = ""
    """Reason why the texts of a call that was read from spans cannot be judged, on the root step; else empty."""
    guard: StepGuard | None = None
    """Guard of the call, on the root step of a guarded function; else None."""

    def complete(self) -> None:
        """Read the function's arguments and result into the fields of the step, if reading them was deferred."""
        reading, self.deferred_reading = self.deferred_reading, None
        if reading is not None:
            reading.read()

    def text_bytes(self) -> int:
        """Return the memory in bytes that the texts of the step take, or 0 if the step has not ended."""
        if self.bytes is None and self.ended:
            self.complete()
            documents = (*(self.documents or ()), *self._other_documents())
            texts = [self.query, self.answer, *(document.text for document in documents)]
            texts += [] if self.prompt is None else [message.text for message in self.prompt.messages]
            self.bytes = sum(map(getsizeof, texts))
        return self.bytes or 0

    def is_plain(self, most_chars: int) -> bool:
        """Return whether all texts of the step are short and ASCII, so that none needs cutting or encoding.

        That is so in the usual case, which is found at little cost: every text is ASCII of at most *most_chars*
        characters without NUL, and there is no error.
        """
        if self.error is not None:
            return False
        texts = [self.query, self.answer, self.reference, self.conversation_id, self.user_id]
        texts += [self.request_model, self.response_model, self.response_id]
        if self.tags is not None:
            texts += [value for value in self.tags.values() if isinstance(value, str)]
        if self.prompt is not None:
            texts += [message.text for message in self.prompt.messages]
        for document in self.documents or ():
            texts += (document.text, document.id)
        for document in self._other_documents():
            texts += (document.text, document.id)
        given = list(filter(None, texts))
        if sum(map(len, given)) <= most_chars:  # nearly always; to look at one text takes half the time
            whole = "".join(given)
            return whole.isascii() and "\0" not in whole
        for text in given:  # noqa: SIM110  # all() over a generator takes twice as long
            if not text.isascii() or "\0" in text or len(text) > most_chars:
                return False
        return True

    def _other_documents(self) -> tuple[Document, ...]:
        return (*(self.reranked or ()), *(self.prompt_documents or ()), *(self.previews or ()))

    def clear_texts(self) -> None:
        """Discard all texts of the step, because they will not be written or scored."""
        self.query = self.answer = self.documents = self.reference = self.contexts_here = self.prompt = None
        self.reranked = self.prompt_documents = self.previews = None
        self.bytes = 0
        reading, self.deferred_reading = self.deferred_reading, None
        if reading is not None:
            reading.clear()

    def release_context(self) -> None:
        """Release the OpenTelemetry context of the step after its span has ended.

        The context leads back to the step, so the texts of the call would stay in memory until the garbage collector
        finds the cycle.
        """
        self.context = None
        if not self.written:  # the span will never be ended
            self.span = None

    def detach(self) -> bool:
        """Detach the step from its call, so that its span can be written before the call ends.

        Returns True to exactly one caller; False if the step does not wait, or no longer.
        """
        try:
            self.joined.pop()  # atomic, so only one caller gets True and takes over the span
        except IndexError:
            return False
        return True

    @property
    def span_context(self) -> SpanContext | None:
        """`SpanContext` of the step's span, or None before the span has begun."""
        return None if self.span is None else self.span.get_span_context()

    def enclosing(self) -> Generator[Step, None, None]:
        """Yield the steps inside which this step runs, from the innermost to the outermost."""
        step = self.parent
        while step is not None:
            yield step
            step = step.parent

    def inside(self, kind: StepKind) -> bool:
        """Return whether the step runs inside another step of *kind*: trace, retrieve, generate or tool."""
        return any(step.kind == kind for step in self.enclosing())


class CallRouter(Protocol):
    """Says where the telemetry of each call goes, where an application has several exporters."""

    def begin_call(self, builder: CallBuilder, outside: Context) -> None:
        """Set the route of a call that begins, by the tags that its root step has now.

        Retrievals outside the call that go elsewhere are none of the call's.

        Args:
            builder: the call.
            outside: the context in which it begins.
        """
        ...

    def begin_retrieval(self, step: Step, tags: Mapping[str, TagValue], outside: Context) -> None:
        """Set the route of a retrieval outside any call, by the *tags* around it."""
        ...

    def add_tags(self, root: Step, tags: Mapping[str, TagValue]) -> None:
        """Note that *tags* are added to a call in progress, whose route stays."""
        ...


_OVER: Final = Step()
"""Ended step that replaces the root of every call that has been scored or dropped."""
_OVER.ended = True


@dataclass(eq=False, slots=True)
class CallBuilder:
    """Builder of one RAG call from its steps, the runs of decorated functions inside it.

    The root of the call is the outermost trace or, without one, a generation. Any thread or task may add a step to
    `steps`: appending to a list is atomic.
    """

    root: Step
    steps: list[Step]
    """Steps of the call, the root first."""
    orphans: Sequence[Step] = ()
    """Retrievals outside the call, but under the same parent span, that ended before the call began."""

    def close(self) -> None:
        """Release the steps of the call after it has been scored or dropped.

        The steps refer back to the builder. A task that outlives the call and still runs inside it finds a root that
        has ended.
        """
        self.root, self.steps, self.orphans = _OVER, [], ()

    def build(self) -> RagCall:
        """Return the finished RAG call, built from the steps that have ended, without the reasoning of its model."""
        ended = [step for step in self.steps if step.ended]
        root = self.root
        final = _final_generation(root, ended)
        contexts, source = self._contexts(final, ended)
        # Nobody got the text of a generation that broke, or for which the application raised or says there is none.
        is_kept = root.error is not None and not root.streamed
        is_given = final is root or (final.error is None and not root.denies_answer and not is_kept)
        answer = _first(root.answer, final.answer if is_given else None)
        found = {root.answer_found, final.answer_found if is_given else None}
        query = _first(root.query, final.query, *(step.query for step in ended))
        turns = _turns(root, query, answer) or _turns(final, query, answer)
        call = RagCall(
            query=query,
            contexts=contexts,
            answer=answer,
            answer_captured=answer is not None or (True in found and False not in found),
            reference=root.reference,
            workflow=root.workflow,
            conversation_id=_first(root.conversation_id, *(step.conversation_id for step in ended)),
            model=final.response_model or final.request_model,
            timing=final.timing,
            usage=final.usage,
            total_usage=root.total_usage,
            error=None if root.error is None else root.error.type,
            streamed=any(step.streamed for step in ended if step.kind not in FINDING_KINDS),
            abandoned=root.abandoned,
            cut_chars=sum(step.cut_chars for step in ended),
            answer_cut_chars=(final if root.answer is None else root).answer_cut_chars,
            contexts_in_part=isinstance(contexts, DocumentsInPart),
            span=root.span_context,
            turns=turns,
            # A prompt that was cut still has the latest messages.
            earlier_turns=None if turns else (_turns_before(root) or _turns_before(final) or None),
            context_source="" if contexts is None else source,
            defect=root.defect,
            tags=_tags(root, ended),
            route=root.route,
        )
        return without_reasoning(call)

    def show_contexts(self) -> None:
        """Store the retrieved contexts on the call's root step if no retrieval span shows them.

        A reviewer must see what was judged.
        """
        shown = any(step.kind in FINDING_KINDS and step.documents is not None for step in (*self.steps, *self.orphans))
        if not shown:
            ended = [step for step in self.steps if step.ended]
            self.root.contexts_here, _ = self._contexts(_final_generation(self.root, ended), ended)

    def _contexts(self, final: Step, ended: list[Step]) -> tuple[tuple[Document, ...] | None, str]:
        """Return the documents on which the answer is based, or None, and the name of their source.

        In order of precedence: the documents given to the final generation, those that the root reports as used, those
        of retrievals and tools, and the results of tools in a prompt, where results since the question come first.
        Texts beside an answer that may be previews count by what of the latter two they show.
        """
        for step, source in ((final, "arguments"), (self.root, "result")):
            # An empty list of sources in an answer object, as of LlamaIndex, does not mean that there were no contexts.
            if step.documents is not None and step.kind in _ANSWERING and (step.documents or step.kind != "trace"):
                return step.documents, source
        found, source = self._found(final, ended)
        previews = self.root.previews if final.previews is None else final.previews
        return (found, source) if previews is None else contexts_beside(previews, found, source)

    def _found(self, final: Step, ended: list[Step]) -> tuple[tuple[Document, ...] | None, str]:
        """Return the documents of retrievals, tools and prompts, or None, and the name of their source."""
        before = [step for step in ended if not _came_after(step, final)] if _is_answer(final, self.root) else ended
        found, source = _retrieved(before)
        if found is None:
            found, source = _retrieved(self.orphans)
        if found is not None:
            return found, source
        if final.prompt_documents is not None:
            return final.prompt_documents, "prompt"
        for step in (final, self.root):
            messages = () if step.prompt is None else step.prompt.messages
            asked = 0 if step.prompt is None else _question_index(step.prompt)
            # Without results since the question, those that tools had found for an earlier question count.
            for shown in (messages[asked:], messages):
                if results := tuple(Document(message.text) for message in shown if message.role == "tool"):
                    return results, "prompt"
        if self.root.prompt_documents is not None:
            return self.root.prompt_documents, "prompt"
        return self.root.documents, "result"


def _tags(root: Step, ended: Sequence[Step]) -> dict[str, TagValue]:
    """Return the tags of a call, at most `MOST_TAGS`: those of its root, then those that other steps alone have."""
    tags: dict[str, TagValue] = {}
    for step in (root, *ended):
        for name, value in (step.tags or {}).items():
            if len(tags) < MOST_TAGS:
                tags.setdefault(name, value)
    return tags


def _final_generation(root: Step, ended: Sequence[Step]) -> Step:
    """Return the generation among the steps *ended* that gave the answer of *root*, or *root* if there is none.

    Others rewrote the query, wrote drafts, or came after the answer: a moderation, or questions to ask next. Of several
    with the same text, the one that ended last counts.
    """
    generations = sorted((step for step in ended if step.kind == "generate"), key=lambda step: -step.end_ns)
    if len(generations) < 2:
        return generations[0] if generations else root
    said = split_reasoning(root.answer or "").answer.strip()
    texts = [(step, split_reasoning(step.answer or "").answer.strip()) for step in generations]
    if said:
        inside = [(step, text) for step, text in texts if text and (text in said or said in text)]
        # Of parts of the answer the longest counts, as a verdict such as "no" is part of many answers.
        found = max(inside, key=lambda pair: (pair[1] == said, min(len(pair[1]), len(said))), default=None)
        if found is not None:
            return found[0]
    return next((step for step in generations if step.documents or step.previews), generations[0])


def _is_answer(final: Step, root: Step) -> bool:
    """Return whether the text of the generation *final* is the answer of *root*, or most of it."""
    if final is root or final.kind != "generate" or not (final.answer or "").strip():
        return False
    text, said = ((step.answer or "").strip() for step in (final, root))
    return not said or (text in said and 2 * len(text) >= len(said)) or said in text


def _came_after(step: Step, final: Step) -> bool:
    """Return whether a retrieval or tool began after the generation of the answer, which has not seen its result.

    Related articles, for instance, or sources that are looked up for the answer.
    """
    times = None if step.kind not in FINDING_KINDS else _times(step)
    if times is None or final.timing is None:
        return False
    tolerance = _CLOCKS_NS if step.instrumentation or final.instrumentation else 0
    return times[0] > final.end_ns + tolerance


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value is not None), None)


def _turns(step: Step, query: str | None, answer: str | None) -> tuple[Turn, ...] | None:
    """Return the turns of a conversation: those in the prompt of *step*, then the current question and answer.

    None if there is no earlier turn, or the prompt was cut.
    """
    prompt = step.prompt
    if prompt is None or prompt.is_cut:
        return None
    before = _turns_before(step)
    if not before:
        return None
    asked = prompt.messages[_question_index(prompt)].text if query is None else query
    exchange = Turn("user", asked), Turn("assistant", answer or "")
    return (*before, *(turn for turn in exchange if turn.text.strip()))


def _turns_before(step: Step) -> tuple[Turn, ...]:
    """Return the turns of the user and the assistant before the question in the prompt of *step*."""
    prompt = step.prompt
    if prompt is None:
        return ()
    return tuple(
        Turn(role, message.text)
        for message in prompt.messages[: _question_index(prompt)]
        if (role := message.role) in ("user", "assistant") and message.text.strip()
    )


def _question_index(prompt: Prompt) -> int:
    """Return the index of the user's last message in *prompt*, or 0 if there is none."""
    return max((at for at, message in enumerate(prompt.messages) if message.role == "user"), default=0)


def _retrieved(steps: Sequence[Step]) -> tuple[tuple[Document, ...] | None, str]:
    """Return the documents of all retrieval and tool steps among *steps*, in the order in which the steps began.

    A re-ranking replaces the documents that it was given, and no others; a search that is given its whole collection
    replaces none. A retrieval inside a retrieval whose documents are known is left out,
    as the outer one returned the merged result; so is a tool around or inside a retrieval, and a tool inside a tool. Of
    a tool in which a model was called, such as an agent, the result is no evidence but that model's answer: what it
    found counts.

    A decorated search that a framework's retriever calls is inside it even if nothing says so, and what several
    instrumentations show of one retrieval or tool counts once.

    Returns:
        The documents, None if there is no such step; and their source: `reranker`, `retriever`, `tool`, or
        `retriever+tool` where both gave some.
    """
    finding = [step for step in steps if step.kind in FINDING_KINDS and step.documents is not None]
    agents = {id(outer) for step in steps if step.kind == "generate" for outer in step.enclosing()}
    around = {
        id(outer)
        for step in finding
        for outer in step.enclosing()
        if outer.kind == "tool" and (step.kind == "retrieve" or id(outer) in agents)
    }
    several_routes = len({step.instrumentation for step in finding}) > 1  # with one, no pair need be compared
    found: tuple[Document, ...] | None = None
    sources: list[str] = []
    in_part = False
    for at, step in enumerate(finding):
        if step.documents is None or _is_within_retrieval(step) or id(step) in around:
            continue
        if several_routes and _is_shown_by_another(step, finding[:at], finding):
            continue
        if step.kind == "tool" and any(
            outer.kind == "tool" and outer.documents is not None and id(outer) not in around
            for outer in step.enclosing()
        ):
            continue
        is_ranking = step.rerank
        if found is None:
            found = step.documents
        elif is_ranking:
            kept = _not_given(found, step)
            is_ranking = kept is not found
            sources, in_part = (sources, in_part) if kept else ([], False)
            found = (*kept, *step.documents)
        else:
            found += step.documents
        in_part = in_part or isinstance(step.documents, DocumentsInPart)
        sources.append("reranker" if is_ranking else "retriever" if step.kind == "retrieve" else "tool")
    return DocumentsInPart(found) if found and in_part else found, "+".join(dict.fromkeys(sources))


def _not_given(found: tuple[Document, ...], ranking: Step) -> tuple[Document, ...]:
    """Return the documents in *found* that the re-ranking step *ranking* was not given: none if that is not known.

    All of them, the same object, if it was given mostly texts that nothing had returned: it has searched a collection.
    """
    if ranking.reranked is None:
        return ()
    given, known = {each.text for each in ranking.reranked}, {each.text for each in found}
    if not given & known:
        return ()  # the texts were changed on their way
    if len(given - known) > len(given & known):
        return found
    return tuple(each for each in found if each.text not in given)


def _is_within_retrieval(step: Step) -> bool:
    """Return whether *step* runs inside a retrieval whose documents are known; those of a span may be hidden."""
    return any(outer.kind == "retrieve" and outer.documents is not None for outer in step.enclosing())


def _is_shown_by_another(step: Step, earlier: Sequence[Step], finding: Sequence[Step]) -> bool:
    """Return whether another route (a decorator, a listener, an instrumentation) shows what *step* shows."""
    return any(_is_search_of(step, outer) or _is_tool_around(step, outer) for outer in finding) or any(
        _is_same_by_another(step, each) for each in earlier
    )


def _is_search_of(inner: Step, outer: Step) -> bool:
    """Return whether the retrieval *inner* seems to be the search by which the retriever *outer* found its documents.

    *inner* is decorated, *outer* is not. A retriever inside a retrieval is not counted itself, so nothing is left out
    for it.
    """
    is_search = inner.kind == outer.kind == "retrieve" and not inner.instrumentation and bool(outer.instrumentation)
    return is_search and not _is_within_retrieval(outer) and _is_part(inner, outer)


def _is_tool_around(tool: Step, inner: Step) -> bool:
    """Return whether the retrieval *inner*, recorded by another route, seems to have found the result of *tool*."""
    is_other = bool(tool.instrumentation) and inner.instrumentation != tool.instrumentation
    return is_other and tool.kind == "tool" and inner.kind == "retrieve" and _is_part(tool, inner)


def _is_same_by_another(step: Step, earlier: Step) -> bool:
    """Return whether the retrieval or tool *step* seems to be *earlier*, as another instrumentation shows it."""
    if not step.instrumentation or not earlier.instrumentation or step.instrumentation == earlier.instrumentation:
        return False
    is_alike = step.kind == earlier.kind and step.rerank == earlier.rerank
    return is_alike and _texts(step) == _texts(earlier) and _overlap(step, earlier)


def _is_part(left_out: Step, kept: Step) -> bool:
    """Return whether *left_out* may be left out for *kept*, which ran at the same time; neither re-ranks.

    All of its texts are among those of *kept*; or one of the two ran while the other did and has all texts of the
    other, so that no text is lost but for what a retriever itself left out of what its search found.
    """
    if left_out.rerank or kept.rerank or not _overlap(left_out, kept):
        return False
    if _texts(left_out) <= _texts(kept):
        return True
    return _texts(kept) <= _texts(left_out) and (_is_during(left_out, kept) or _is_during(kept, left_out))


def _times(step: Step) -> tuple[int, int] | None:
    """Return when *step* began and ended, in nanoseconds since the epoch."""
    if step.timing is None:
        return None
    # The end is read after the duration was measured, later by what the thread had to wait between the two.
    began: int | None = getattr(step.span, "start_time", None)
    return began or step.end_ns - int(step.timing.duration_s * 1e9), step.end_ns


def _is_during(inner: Step, outer: Step) -> bool:
    """Return whether *inner* began and ended while *outer* ran, as exactly as their clocks tell."""
    one, other = _times(inner), _times(outer)
    if one is None or other is None:
        return False
    return one[0] >= other[0] - _CLOCKS_NS and one[1] <= other[1] + _CLOCKS_NS


def _overlap(one: Step, other: Step) -> bool:
    """Return whether two steps ran at the same time for a moment, as exactly as their clocks tell."""
    times, others = _times(one), _times(other)
    if times is None or others is None:
        return False
    return times[0] <= others[1] + _CLOCKS_NS and others[0] <= times[1] + _CLOCKS_NS


def _texts(step: Step) -> set[str]:
    return {document.text for document in step.documents or ()}


class OrphanRetrievals:
    """Store of retrievals made outside any traced call, kept for the generation that will use them.

    They are found by their parent span. Bounded in count and age, because no generation need ever come.
    """

    def __init__(self, *, capacity: int = 1024, seconds: float = 300.0, clock: Callable[[], float] = monotonic) -> None:
        self._capacity, self._seconds, self._clock = capacity, seconds, clock
        self._lock = threading.RLock()  # re-entrant: a finalizer may run in any allocation under it
        self._by_parent: OrderedDict[tuple[int, int], tuple[float, list[Step]]] = OrderedDict()
        self.begun: deque[tuple[int, str]] = deque(maxlen=256)
        """When the latest of them began, in nanoseconds since the epoch, and the names of their functions."""

    def add(self, parent: SpanContext, step: Step, name: str) -> None:
        """Store the retrieval *step* of the function *name* under its parent span; without one it is only noted."""
        self.begun.append((time_ns(), name))
        if not parent.is_valid:
            return
        key = (parent.trace_id, parent.span_id)
        with self._lock:
            steps = self._by_parent.pop(key, (0.0, []))[1]
            steps.append(step)
            self._by_parent[key] = (self._clock(), steps)
            if len(self._by_parent) > self._capacity:
                self._by_parent.popitem(last=False)

    def begun_during(self, root: Step) -> list[str]:
        """Return the function's name of each retrieval that began outside any call while the call *root* ran."""
        began: int | None = getattr(root.span, "start_time", None)
        return [] if began is None else [name for at, name in list(self.begun) if at >= began]

    def under(self, parent: SpanContext) -> list[Step]:
        """Return the stored retrievals that have ended and whose direct parent is the span *parent*."""
        with self._lock:
            self._expire()
            steps = self._by_parent.get((parent.trace_id, parent.span_id), (0.0, []))[1]
            return [step for step in steps if step.ended]

    def trim(self, most_bytes: int) -> None:
        """Remove the oldest stored retrievals until the remaining texts take at most *most_bytes* of memory."""
        if not self._by_parent:
            return
        with self._lock:
            self._expire()
            sizes = [sum(step.text_bytes() for step in steps) for _, steps in self._by_parent.values()]
            excess = sum(sizes) - most_bytes
            for one in sizes:
                if excess <= 0:
                    break
                self._by_parent.popitem(last=False)
                excess -= one

    def _expire(self) -> None:
        horizon = self._clock() - self._seconds
        while self._by_parent and next(iter(self._by_parent.values()))[0] < horizon:
            self._by_parent.popitem(last=False)
