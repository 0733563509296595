"""RAG call in the making: steps that were read from spans, and what is concluded from them until the call is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragtrace.core.step import FINDING_KINDS, CallBuilder, Step, StepKind
from ragtrace.core.text import encodable
from ragtrace.core.types import Document
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.system.faults import faults

_MOST_STEPS: Final = 2_000
"""Most steps of a call, which an agent that loops may exceed: building a call takes some ten microseconds a step."""
_SEARCH_CHARS: Final = 80
"""Number of first characters of a document that are searched for in a prompt."""


class AssembledCall(NamedTuple):
    """RAG call that was assembled from spans, and the steps read from the spans."""

    builder: CallBuilder
    readings: tuple[SpanReading, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallDraft:
    """Steps of one RAG call, and which of them are its root and its answer.

    A draft and its readings never change. To conclude something, a pass returns another draft, in which changed copies
    (`copy_of`) have taken the places of some readings (`with_changed`). A reading is referred to by its span id, as a
    changed copy has the same.
    """

    top_ids: tuple[int, ...]
    """Span ids of the outermost steps, in the order in which they began: one workflow, or a generation and what belongs
    to it."""
    readings: Mapping[int, SpanReading]
    """All steps by span id, in the order in which they began."""
    outer_ids: Mapping[int, int]
    """Span id of the innermost step around each step that is inside another one, by span id. Steps of other calls may
    be among them."""
    root_id: int = 0
    """Span id of the root; 0 until the root was chosen."""
    answering_ids: frozenset[int] = frozenset()
    """Span ids of the generations that may have written the final answer."""
    final_id: int = 0
    """Span id of the step with the final answer: of a generation, or of the root if there is none; 0 until chosen."""

    @property
    def root(self) -> SpanReading:
        """Root step of the call."""
        return self.readings[self.root_id]

    @property
    def final(self) -> SpanReading:
        """Step with the final answer."""
        return self.readings[self.final_id]

    def answering(self) -> list[SpanReading]:
        """Return the generations that may have written the final answer, in the order in which they began."""
        return [each for span_id, each in self.readings.items() if span_id in self.answering_ids]

    def found(self) -> list[SpanReading]:
        """Return the retrievals and tools, in the order in which they began."""
        return [each for each in self.readings.values() if each.step.kind in FINDING_KINDS]

    @property
    def has_workflow(self) -> bool:
        """Whether a workflow, an agent or a chain is the outermost step of the call."""
        return self.readings[self.top_ids[0]].step.kind == "trace"

    def below_root(self) -> list[SpanReading]:
        """Return the steps of the call without its root, and without generations that are part of another step.

        Of more than `_MOST_STEPS`, the last are returned, and the others counted as faults.
        """
        below = [
            each
            for span_id, each in self.readings.items()
            if span_id != self.root_id and (each.step.kind != "generate" or span_id in self.answering_ids)
        ]
        if len(below) > _MOST_STEPS:
            faults.warn_once(
                "steps of a call left out",
                "a call in the spans of another instrumentation has %d steps; it is scored by the last %d. Every "
                "further step is counted in ragtrace.stats().faults",
                len(below),
                _MOST_STEPS,
                count=len(below) - _MOST_STEPS,
            )
        return below[-_MOST_STEPS:]

    def around(self, reading: SpanReading) -> Iterator[SpanReading]:
        """Yield the steps of the call inside which *reading* ran, from the innermost to the outermost."""
        outer = self.readings.get(self.outer_ids.get(reading.span_id, 0))
        while outer is not None:
            yield outer
            outer = self.readings.get(self.outer_ids.get(outer.span_id, 0))

    def is_inside(self, reading: SpanReading, *kinds: StepKind) -> bool:
        """Return whether *reading* ran inside a step of one of *kinds*."""
        return any(outer.step.kind in kinds for outer in self.around(reading))

    def with_changed(self, changed: Iterable[SpanReading]) -> CallDraft:
        """Return the draft with the *changed* copies in the places of the readings with the same span ids."""
        readings = {**self.readings, **{each.span_id: each for each in changed}}
        # `replace` takes five times as long, several times a call.
        return CallDraft(self.top_ids, readings, self.outer_ids, self.root_id, self.answering_ids, self.final_id)

    def build(self) -> AssembledCall:
        """Build the RAG call from copies of the steps, which refer to one another."""
        copies = {span_id: copy_of(reading) for span_id, reading in self.readings.items()}
        for span_id, each in copies.items():
            outer = copies.get(self.outer_ids.get(span_id, 0))
            each.step.parent = None if outer is None else outer.step
        root = copies[self.root_id].step
        root.workflow = encodable(root.workflow or root.name or self.root.span.name)
        for step in (root, copies[self.final_id].step):
            step.answer_found = step.answer is not None if step.answer_found is None else step.answer_found
        steps = [copies[each.span_id].step for each in self.below_root()]
        return AssembledCall(CallBuilder(root, [root, *steps]), tuple(copies.values()))


def copy_of(reading: SpanReading) -> SpanReading:
    """Return a copy of *reading* with a copy of its step, both of which may be changed."""
    step = Step()
    vars(step).update(vars(reading.step))
    # `replace` takes five times as long, for each step of each call.
    return SpanReading(
        reading.span,
        step,
        reading.convention,
        reading.documents_without_text,
        reading.is_cut,
        reading.calls_tools,
        reading.begins_call,
        reading.is_ambiguous,
    )


# --- Texts in prompts -------------------------------------------------------------------------------------------------


def prompt_text(step: Step) -> str:
    """Return all messages of the prompt of *step* as one text, which is empty if the prompt is not known."""
    return "" if step.prompt is None else "\n".join(message.text for message in step.prompt.messages)


def has_tool_results(step: Step) -> bool:
    """Return whether the prompt of *step* contains results of tools."""
    return step.prompt is not None and any(message.role == "tool" for message in step.prompt.messages)


def beginnings(documents: Iterable[Document]) -> list[str]:
    """Return the first characters of each of *documents*, by which it is searched for in a prompt."""
    return [document.text[:_SEARCH_CHARS] for document in documents if document.text]


def on_one_line(text: str) -> str:
    """Return *text* with single spaces in place of all white space."""
    return " ".join(text.split())


def offset_in_prompt(prompt: str, document: Document) -> int:
    """Return the last offset of *document* in *prompt*, a text on one line, or -1 if it is not there."""
    return prompt.rfind(on_one_line(document.text)[:_SEARCH_CHARS]) if document.text.strip() else -1
