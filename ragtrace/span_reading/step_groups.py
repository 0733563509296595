"""Grouping of the steps of a trace by the span above them: the steps of a group wait for one another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from ragtrace.core.step import FINDING_KINDS
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.trace_spans import TraceSpans


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
    is_duplicate: bool = False
    """Whether another group of the trace has the same model calls."""
    lost_ids: list[int] = field(default_factory=list[int])
    """Span ids of the steps whose spans were lost."""
    lost_top_ids: set[int] = field(default_factory=set[int])
    """Span ids of the topmost steps above the lost steps, or of the lost steps themselves."""

    def has_lost_step(self, top_ids: Collection[int]) -> bool:
        """Return whether a span of a RAG call was lost, or may have been lost.

        *top_ids* are the span ids of the outermost steps of the call.

        A lost step without any other above it may belong to each call of the group.
        """
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
            if _is_separate_call(trace.readings.get(top_id), trace.readings[above]):
                break
            top_id, outer_id = above, outer_id or above
        elif above in trace.lost or (above in trace.unended and trace.unended[above].is_genai):
            top_id = above
    return top_id, outer_id


def _is_separate_call(inner: SpanReading | None, outer: SpanReading) -> bool:
    """Return whether a workflow below another workflow's span is a separate RAG call.

    *inner* is the lower workflow, and *outer* the upper one.

    That is so if *inner* began after the end of *outer*, or if the instrumentation marks *inner* as a root.

    Instrumentations that leave a context attached make the next request of a task a child of the one before. A workflow
    without a question is no request: the stream of an answer may be read after the workflow has returned.
    """
    if inner is None or inner.step.kind != "trace" or outer.step.kind != "trace":
        return False
    if inner.begins_call:
        return True
    return inner.span.start_ns > outer.span.end_ns and inner.step.query is not None


def _begin(reading: SpanReading) -> tuple[int, int]:
    return reading.span.start_ns, reading.span.end_ns


def adopt_streamed_answers(trace: TraceSpans, groups: dict[int, StepGroup]) -> None:
    """Move generations whose parent span is missing into the preceding workflow that has no answer.

    Some instrumentations never end the span around a stream, so that no file has it.

    Needed for: streams of LlamaIndex's chat engine with OpenLLMetry.
    Seen in: recording `llamaindex_chat-openllmetry-stream`.
    Order: after all steps are in groups, and before the groups are divided.
    """
    for orphan in [group for parent, group in groups.items() if parent and parent not in trace.parents]:
        waits = orphan.n_unended or orphan.n_unended_below
        if waits or not orphan.tops or not all(map(_is_part_of_an_answer, orphan.tops)):
            continue
        answers = {reading.step.answer for reading in orphan.readings if reading.step.answer}
        for group in groups.values():
            if group is orphan:
                continue
            if any(reading.step.answer in answers for reading in group.readings):
                orphan.is_duplicate = True
                break
            waiting = [top for top in group.tops if _begin(top) < _begin(orphan.tops[0]) and _lacks_answer(top, group)]
            if waiting:
                latest = max(waiting, key=_begin)
                group.outer_ids |= orphan.outer_ids | {top.span_id: latest.span_id for top in orphan.tops}
                group.readings += orphan.readings
                group.lost_ids += orphan.lost_ids
                if orphan.lost_ids:
                    group.lost_top_ids.add(latest.span_id)
                group.seen = max(group.seen, orphan.seen)
                del groups[orphan.parent_id]
                break


def _is_part_of_an_answer(top: SpanReading) -> bool:
    return top.step.kind == "generate" or (top.step.kind == "trace" and top.step.query is None)


def _lacks_answer(top: SpanReading, group: StepGroup) -> bool:
    """Return whether the workflow *top* has neither an answer nor a generation after the last retrieval in it."""
    if top.step.kind != "trace" or top.step.answer:
        return False
    readings = [each for each in group.readings if group.top_id_of(each.span_id) == top.span_id]
    found = max((_begin(each) for each in readings if each.step.kind in FINDING_KINDS), default=(0, 0))
    return not any(
        each.step.kind == "generate" and each.step.answer and _begin(each) > found and not each.calls_tools
        for each in readings
    )


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
