"""Builds a RAG call from its steps: the final answer, and the contexts that it rests on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from ragtrace.core.labels import Turn
from ragtrace.core.step import Step
from ragtrace.core.types import Document, RagCall

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext


_OVER: Final = Step()
"""Root of every call that has been scored or dropped."""
_OVER.ended = True


@dataclass(eq=False, slots=True)
class CallBuilder:
    """Steps below one root (the outermost trace or, without one, a generation), and the call that they make up.

    Any thread or task may add a step to `steps`: appending to a list is atomic.
    """

    root: Step
    steps: list[Step]
    """The root first."""
    orphans: Sequence[Step] = ()
    """Retrievals outside the call, under the same parent span, that had ended when it began."""

    def close(self) -> None:
        """Drop the steps, which lead back to the builder, when the call has been scored or dropped.

        A task that outlives the call and still runs inside it finds a root that has ended.
        """
        self.root, self.steps, self.orphans = _OVER, [], ()

    def build(self) -> RagCall:
        """Return the finished call, from the steps that have ended."""
        ended = [step for step in self.steps if step.ended]
        root = self.root
        final = _final_generation(ended) or root
        answer = _first(root.answer, final.answer)
        found = {root.answer_found, final.answer_found}
        query = _first(root.query, final.query, *(step.query for step in ended))
        return RagCall(
            query=query,
            contexts=self._contexts(final, ended),
            answer=answer,
            answer_captured=answer is not None or (True in found and False not in found),
            reference=root.reference,
            workflow=root.workflow,
            conversation_id=_first(root.conversation_id, *(step.conversation_id for step in ended)),
            model=final.response_model or final.request_model,
            timing=final.timing,
            usage=final.usage,
            error=None if root.error is None else root.error.type,
            streamed=any(step.streamed for step in ended if step.kind != "retrieve"),
            abandoned=root.abandoned,
            cut_chars=sum(step.cut_chars for step in ended),
            span=root.span_context,
            turns=_turns(root, query, answer) or _turns(final, query, answer),
        )

    def show_contexts(self) -> None:
        """Put the contexts on the root if no span of a retrieval shows them: a reviewer must see what was judged."""
        shown = any(step.kind == "retrieve" and step.documents is not None for step in (*self.steps, *self.orphans))
        if not shown:
            self.root.contexts_here = self.build().contexts

    def _contexts(self, final: Step, ended: list[Step]) -> Documents | None:
        """Return what the final generation was given; else what the root says it used; else what was retrieved."""
        for step in (final, self.root):
            # An answer object may have a list of sources that nobody filled, as LlamaIndex's have.
            if step.documents is not None and step.kind != "retrieve" and (step.documents or step.kind != "trace"):
                return step.documents
        retrieved = _retrieved([step for step in ended if step.kind == "retrieve"])
        retrieved = _retrieved(self.orphans) if retrieved is None else retrieved
        retrieved = _tool_results(final, self.root) if retrieved is None else retrieved
        return self.root.documents if retrieved is None else retrieved


Documents = tuple[Document, ...]


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value is not None), None)


def _turns(step: Step, query: str | None, answer: str | None) -> tuple[Turn, ...] | None:
    """Return the conversation that *step* was given, with this question and answer; None if it has no earlier turn."""
    prompt = step.prompt
    if prompt is None or prompt.is_cut:
        return None
    asked = max((at for at, message in enumerate(prompt.messages) if message.role == "user"), default=0)
    before = [
        Turn(role, message.text)
        for message in prompt.messages[:asked]
        if (role := message.role) in ("user", "assistant") and message.text.strip()
    ]
    if not before:
        return None
    exchange = Turn("user", prompt.messages[asked].text if query is None else query), Turn("assistant", answer or "")
    return (*before, *(turn for turn in exchange if turn.text.strip()))


def _tool_results(*steps: Step) -> Documents | None:
    """Return the texts of the `tool` messages of the first prompt that has any."""
    for step in steps:
        messages = () if step.prompt is None else step.prompt.messages
        if found := tuple(Document(message.text) for message in messages if message.role == "tool"):
            return found
    return None


def _final_generation(ended: list[Step]) -> Step | None:
    """Return the generation that ended last: after rewriting the query, after every draft."""
    generations = [step for step in ended if step.kind == "generate"]
    return max(generations, key=lambda step: step.end_ns, default=None)


def _retrieved(retrievals: Sequence[Step]) -> Documents | None:
    """Return the documents of all retrievals in the order in which they began; a re-ranking replaces those before it.

    A retrieval inside a retrieval is left out: the outer one returned the merged result.
    """
    found: Documents | None = None
    for step in retrievals:
        if step.documents is None or step.inside("retrieve"):
            continue
        found = step.documents if step.rerank or found is None else found + step.documents
    return found


class OrphanRetrievals:
    """Bounded store of retrievals outside any call, by their parent span, for the generation that will use them.

    Bounded in count and age, because no generation need ever come.
    """

    def __init__(self, *, capacity: int = 1024, seconds: float = 300.0, clock: Callable[[], float] = monotonic) -> None:
        self._capacity, self._seconds, self._clock = capacity, seconds, clock
        self.reset()

    def reset(self) -> None:
        """Remove all retrievals: also after a fork, which may have copied the lock while it was held."""
        self._lock = threading.Lock()
        self._by_parent: OrderedDict[tuple[int, int], tuple[float, list[Step]]] = OrderedDict()

    def add(self, parent: SpanContext, step: Step) -> None:
        """Keep *step*, a retrieval that began directly under *parent*."""
        key = (parent.trace_id, parent.span_id)
        with self._lock:
            steps = self._by_parent.pop(key, (0.0, []))[1]
            steps.append(step)
            self._by_parent[key] = (self._clock(), steps)
            if len(self._by_parent) > self._capacity:
                self._by_parent.popitem(last=False)

    def under(self, parent: SpanContext) -> list[Step]:
        """Return the retrievals under *parent* that have ended."""
        with self._lock:
            self._expire()
            steps = self._by_parent.get((parent.trace_id, parent.span_id), (0.0, []))[1]
            return [step for step in steps if step.ended]

    def trim(self, most_bytes: int, size: Callable[[Step], int]) -> None:
        """Remove the oldest until the others take *most_bytes* at most, by *size* of each retrieval."""
        if not self._by_parent:
            return
        with self._lock:
            self._expire()
            sizes = [sum(map(size, steps)) for _, steps in self._by_parent.values()]
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
