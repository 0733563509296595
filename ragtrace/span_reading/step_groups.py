"""Grouping of the steps of a trace by the span above them: the steps of a group wait for one another."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ragtrace.core.step import FINDING_KINDS
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.model_calls import ModelCall
from ragtrace.span_reading.trace_spans import TraceSpans, begins_separate_call


@dataclass(slots=True, eq=False)
class StepGroup:
    """Group of RAG steps, read from spans, that lie below the same parent span.

    It contains every step whose outermost enclosing step has this parent span. When it is complete, it becomes one RAG
    call, several or none: two workflows of one request, say, are two calls.
    """

    parent_id: int
    tops: list[SpanReading] = field(default_factory=list[SpanReading])
    """Topmost readings, in order of start."""
    readings: list[SpanReading] = field(default_factory=list[SpanReading])
    """All readings of the group, in order of start."""
    outer_ids: dict[int, int] = field(default_factory=dict[int, int])
    """Span id of the innermost step around each step that is inside another one, by span id."""
    n_unended: int = 0
    """Number of spans of generative AI that have not ended and are not below a reading."""
    n_unended_below: int = 0
    """Number of spans of generative AI that have not ended, below a reading."""
    seen: float = 0.0
    """Monotonic time of the last arrival or loss of a step of the group."""
    lost_ids: list[int] = field(default_factory=list[int])
    """Span ids of the steps whose spans were lost."""
    lost_top_ids: set[int] = field(default_factory=set[int])
    """Span ids of the topmost steps above the lost steps, or of the lost steps themselves."""

    def has_lost_step(self, top_ids: Collection[int]) -> bool:
        """Return whether a span of a RAG call was lost, or may have been lost.

        *top_ids* are the span ids of the outermost steps of the call.

        A lost step without any other above it may belong to each call of the group.
        """
        if not self.lost_top_ids:
            return False
        # A lost step below a topmost one concerns the call of that one alone. Any other id is that of a lost step
        # itself, with no step above it that would say to which call of the group it belongs.
        without_top = self.lost_top_ids - {top.span_id for top in self.tops}
        return bool(without_top) or not self.lost_top_ids.isdisjoint(top_ids)

    @property
    def has_answer(self) -> bool:
        """Whether these steps of a trace contain a finished workflow, or a retrieval followed by a generation."""
        if any(top.step.kind == "trace" for top in self.tops):  # this kind is a workflow, an agent or a chain
            return True
        found = any(top.step.kind in FINDING_KINDS for top in self.tops)
        return found and self.tops[-1].step.kind == "generate"

    def tops_without_answer(self) -> list[SpanReading]:
        """Return the outermost workflows that have neither an answer nor a generation after the last retrieval."""
        tops = [top for top in self.tops if top.step.kind == "trace" and not top.step.answer]
        inside: dict[int, list[SpanReading]] = {top.span_id: [] for top in tops}
        for reading in self.readings if tops else ():
            top_id = self.top_id_of(reading.span_id)
            if top_id in inside:
                inside[top_id].append(reading)
        return [top for top in tops if not _has_generated_answer(inside[top.span_id])]

    def adopt(self, other: StepGroup, top: SpanReading) -> None:
        """Add all steps of *other* to the group, inside of *top*, one of its outermost steps."""
        self.outer_ids |= other.outer_ids | {each.span_id: top.span_id for each in other.tops}
        self.readings += other.readings
        self.lost_ids += other.lost_ids
        if other.lost_ids:
            self.lost_top_ids.add(top.span_id)
        self.seen = max(self.seen, other.seen)

    def top_id_of(self, span_id: int) -> int:
        """Return the span id of the outermost step around a step, or of the step itself."""
        met = {span_id}
        while (outer := self.outer_ids.get(span_id, 0)) and outer not in met:  # hostile data may have circles
            met.add(outer)
            span_id = outer
        return span_id


def group_steps(trace: TraceSpans) -> list[StepGroup]:
    """Group the steps of a trace that wait for one another."""
    groups = group_by_parent(trace)
    adopt_streamed_answers(trace, groups)
    for group in groups.values():
        group.tops.sort(key=_begin)
        group.readings.sort(key=_begin)
    return list(groups.values())


def group_by_parent(trace: TraceSpans) -> dict[int, StepGroup]:
    """Group the steps of a trace by the parent span of their outermost steps.

    Spans of generative AI that have not ended are counted in the groups.
    """
    groups: dict[int, StepGroup] = {}
    for span_id in (*trace.readings, *(key for key, span in trace.unended.items() if span.is_genai), *trace.lost):
        top_id, outer_id = _enclosing_ids(trace, span_id)
        parent_id = trace.parents.get(top_id, 0)
        group = groups.setdefault(parent_id, StepGroup(parent_id))
        if span_id in trace.lost:
            group.lost_ids.append(span_id)
            group.lost_top_ids.add(top_id)
            group.seen = max(group.seen, trace.lost[span_id])
        elif span_id not in trace.readings:
            group.n_unended_below += top_id in trace.readings
            group.n_unended += top_id not in trace.readings
        else:
            group.seen = max(group.seen, trace.seen[span_id])
            group.readings.append(trace.readings[span_id])
            if outer_id:
                group.outer_ids[span_id] = outer_id
            else:
                group.tops.append(trace.readings[span_id])
    return groups


def _enclosing_ids(trace: TraceSpans, span_id: int) -> tuple[int, int]:
    """Return the span ids of the topmost step or started span around a step, and of the innermost step around it.

    The first may be the step itself; the second is 0 if there is none.
    """
    top_id, outer_id = span_id, 0
    for above in trace.ancestor_ids(span_id):
        if above in trace.readings:
            inner, outer = trace.readings.get(top_id), trace.readings[above]
            if inner is not None and outer.step.kind == "trace" and begins_separate_call(inner, outer.span.end_ns):
                break
            top_id, outer_id = above, outer_id or above
        elif above in trace.lost or (above in trace.unended and trace.unended[above].is_genai):
            top_id = above
    return top_id, outer_id


def _has_generated_answer(readings: Sequence[SpanReading]) -> bool:
    """Return whether some steps have a generation that answers, after the last retrieval."""
    found = max((_begin(each) for each in readings if each.step.kind in FINDING_KINDS), default=(0, 0))
    return any(
        each.step.kind == "generate" and each.step.answer and _begin(each) > found and not each.calls_tools
        for each in readings
    )


def _begin(reading: SpanReading) -> tuple[int, int]:
    return reading.span.start_ns, reading.span.end_ns


def adopt_streamed_answers(trace: TraceSpans, groups: dict[int, StepGroup]) -> None:
    """Move generations whose parent span is missing into the last workflow before them that has no answer.

    Some instrumentations never end the span around a stream, so that no file has it. A generation that another group
    shows, too, is left where it is: one of the two recordings is left out later.

    Needed for: streams of LlamaIndex's chat engine with OpenLLMetry.
    Seen in: recording `llamaindex_chat-openllmetry-stream`.
    Order: after all steps are in groups, and before the groups are divided.
    """
    orphans = [group for parent, group in groups.items() if parent and parent not in trace.parents]
    orphans = [group for group in orphans if _may_be_a_streamed_answer(group)]
    if not orphans:
        return
    unanswered = [(top, group) for group in groups.values() for top in group.tops_without_answer()]
    if not unanswered:
        return
    unanswered.sort(key=lambda item: _begin(item[0]))
    begins = [_begin(top) for top, _ in unanswered]
    calls = _model_calls_by_answer(groups.values())
    for orphan in orphans:
        if any(_is_elsewhere(each, orphan, calls) for each in orphan.readings):
            continue
        number = bisect_left(begins, _begin(orphan.tops[0])) - 1
        # Not to itself, nor to one that was moved itself.
        while number >= 0 and (unanswered[number][1] is orphan or unanswered[number][1].parent_id not in groups):
            number -= 1
        if number >= 0:
            top, group = unanswered.pop(number)
            del begins[number]
            group.adopt(orphan, top)
            del groups[orphan.parent_id]


def _may_be_a_streamed_answer(group: StepGroup) -> bool:
    """Return whether a group whose parent span is missing has ended, and may be a part of an answer."""
    if group.n_unended or group.n_unended_below or not group.tops:
        return False
    return all(
        top.step.kind == "generate" or (top.step.kind == "trace" and top.step.query is None) for top in group.tops
    )


def _model_calls_by_answer(groups: Iterable[StepGroup]) -> Mapping[str, list[tuple[ModelCall, StepGroup]]]:
    """Return the model calls and workflows of *groups* that have an answer, by the answer."""
    found: defaultdict[str, list[tuple[ModelCall, StepGroup]]] = defaultdict(list)
    for group in groups:
        for reading in group.readings:
            if reading.step.answer:
                found[reading.step.answer].append((ModelCall.of(reading, 0.0), group))
    return found


def _is_elsewhere(
    reading: SpanReading, group: StepGroup, calls: Mapping[str, list[tuple[ModelCall, StepGroup]]]
) -> bool:
    """Return whether another group than *group* has the same model call as *reading*, by another instrumentation."""
    if not reading.step.answer:
        return False
    own = ModelCall.of(reading, 0.0)
    return any(other is not group and own.is_same_call(call) for call, other in calls[reading.step.answer])


def missing_parent(trace: TraceSpans, group: StepGroup) -> Literal["local", "remote"] | None:
    """Return whether the closest missing ancestor span of *group* is local or remote.

    "local" is the process that made the span below it, "remote" another one. Return None if no ancestor span of the
    group is missing.
    """
    below = group.tops[0].span_id if group.tops else group.parent_id
    for above in trace.ancestor_ids(below):
        if above not in trace.parents:
            return "remote" if below in trace.remote else "local"
        below = above
    return None
