"""Division of the steps under one parent span into RAG calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from ragtrace.core import semconv
from ragtrace.core.step import FINDING_KINDS
from ragtrace.span_reading.call_draft import CallDraft, beginnings, prompt_text
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.intervals import overlap
from ragtrace.span_reading.step_groups import StepGroup

Division: TypeAlias = tuple[tuple[SpanReading, ...], ...]
"""Outermost steps under one parent span: a tuple for each RAG call."""


def split_at_answers(calls: Division) -> Division:
    """Divide outermost steps at the generations that answer.

    A workflow is a separate call. Retrievals and tools belong to the call of the next generation. A generation before a
    retrieval, which rewrites the question, and a generation that asks for tools belong to the call that follows.

    Needed for: several requests under one span, such as that of a batch.
    Seen in: recording `langchain_batch-genai-sync`.
    Order: before `assign_by_prompt`, which exchanges steps of calls that are divided already.
    """
    divided: list[list[SpanReading]] = []
    for tops in calls:
        pending: list[SpanReading] = []
        for number, top in enumerate(tops):
            if top.step.kind == "trace":
                divided.append([top])
                continue
            pending.append(top)
            if top.step.kind != "generate" or top.calls_tools:
                continue
            has_found = any(each.step.kind != "generate" for each in pending)
            if has_found or not any(each.step.kind in FINDING_KINDS for each in tops[number + 1 :]):
                if has_found or not _add_to_last_call(divided, top):
                    divided.append(pending)
                pending = []
        if pending:
            divided.append(pending)
    return tuple(map(tuple, divided))


def _add_to_last_call(calls: list[list[SpanReading]], top: SpanReading) -> bool:
    """Add a generation to the last RAG call if the generation's prompt contains the call's documents.

    Return whether it was added.
    """
    if not calls or calls[-1][0].step.kind == "trace" or _ran_concurrently(calls[-1][-1], top):
        return False
    retrieved = [each for each in calls[-1] if each.step.kind in FINDING_KINDS]
    if any(_is_in_prompt(each, top) for each in retrieved):
        calls[-1].append(top)
        return True
    return False


def assign_by_prompt(calls: Division) -> Division:
    """Assign each retrieval to the concurrent generation whose prompt contains the retrieved documents.

    A retrieval that no prompt shows is taken out of its call, as any of the generations may have used it.

    Needed for: requests at the same time under one span, with instrumentations that have no span of the workflow.
    Seen in: made; in the recordings, requests at the same time have workflows.
    Order: last, after `split_at_answers`.
    """
    lists = [list(call) for call in calls]
    answering = [call for call in lists if call[-1].step.kind == "generate"]
    found = [top for call in answering for top in call if top.step.kind in FINDING_KINDS]
    is_concurrent = any(
        _ran_concurrently(one[-1], other[0]) or _ran_concurrently(one[0], other[-1])
        for number, one in enumerate(answering)
        for other in answering[number + 1 :]
    )
    if len(answering) < 2 or not found or not is_concurrent:
        return calls
    for top in found:
        homes = [call for call in answering if _is_in_prompt(top, call[-1])]
        home = next(call for call in answering if top in call)
        if len(homes) == 1 and home is not homes[0]:
            home.remove(top)
            homes[0].insert(0, top)
        elif not homes:
            home.remove(top)
            for call in answering:
                if _ran_concurrently(call[-1], home[-1]):
                    call[-1] = replace(call[-1], is_ambiguous=True)
    return tuple(tuple(call) for call in lists if call)


def _ran_concurrently(one: SpanReading, other: SpanReading) -> bool:
    """Return whether the time intervals of the spans of two steps overlap."""
    return overlap((one.span.start_ns, one.span.end_ns), (other.span.start_ns, other.span.end_ns))


def _is_in_prompt(found: SpanReading, generation: SpanReading) -> bool:
    """Return whether a generation's prompt contains the text of a retrieved document."""
    prompt = prompt_text(generation.step)
    return any(text in prompt for text in beginnings(found.step.documents or ()))


def drafts_of(group: StepGroup, division: Division) -> list[CallDraft]:
    """Return the draft of each RAG call of *group*: its outermost steps, and all steps inside them."""
    call_of = {top.span_id: number for number, tops in enumerate(division) for top in tops}
    tops = {top.span_id: top for call in division for top in call}
    readings: list[dict[int, SpanReading]] = [{} for _ in division]
    for each in group.readings:
        number = call_of.get(group.top_id_of(each.span_id))
        if number is not None:
            readings[number][each.span_id] = tops.get(each.span_id, each)
    return [
        CallDraft(tuple(top.span_id for top in call), inside, group.outer_ids)
        for call, inside in zip(division, readings, strict=True)
    ]


def keep_own_workflows(draft: CallDraft) -> list[CallDraft]:
    """Return the RAG calls that ragtrace itself recorded, without duplicates from other instrumentations.

    If ragtrace itself has recorded no workflow, the call is returned unchanged.

    Ragtrace's listener in a framework and an instrumentation of that framework record the same steps side by side.
    What stands beside ragtrace's own workflow, inside a workflow with the same answer, is left out.

    Needed for: `ragtrace.instrument` beside another instrumentation of the same framework.
    Seen in: recording `agents_sdk-ragtrace+openinference-sync`.
    Order: after `DIVISION`, as it looks at one call.
    """
    own = {
        span_id: each
        for span_id, each in draft.readings.items()
        if each.span.scope == semconv.SCOPE and each.step.kind == "trace"
    }
    outer = draft.readings[draft.top_ids[0]]
    answers = {each.step.answer for each in own.values()}
    if not own or outer.span_id in own or (outer.step.answer is not None and outer.step.answer not in answers):
        return [draft]
    return [
        CallDraft((span_id,), _inside(draft, root), draft.outer_ids)
        for span_id, root in own.items()
        if not any(each.span_id in own for each in draft.around(root))
    ]


def _inside(draft: CallDraft, root: SpanReading) -> dict[int, SpanReading]:
    """Return *root* and the steps of *draft* inside it."""
    return {
        span_id: each
        for span_id, each in draft.readings.items()
        if each is root or any(outer is root for outer in draft.around(each))
    }
