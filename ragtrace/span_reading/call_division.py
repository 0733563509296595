"""Division of the steps under one parent span into RAG calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from ragtrace.core import semconv
from ragtrace.core.step import FINDING_KINDS
from ragtrace.span_reading.call_draft import CallDraft, beginnings, prompt_text
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.intervals import Interval, Overlaps, interval_of, overlap
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
    last_found: list[SpanReading] = []  # retrievals and tools of the last call
    for tops in calls:
        pending: list[SpanReading] = []
        found: list[SpanReading] = []  # retrievals and tools among them
        n_found_after = sum(top.step.kind in FINDING_KINDS for top in tops)
        for top in tops:
            if top.step.kind == "trace":
                divided.append([top])
                last_found = []
                continue
            pending.append(top)
            if top.step.kind != "generate":
                found.append(top)
                n_found_after -= 1
                continue
            # Without documents so far and with some to come, the generation rewrites the question.
            if top.calls_tools or (not found and n_found_after):
                continue
            if not found and _continues(divided, last_found, top):
                divided[-1].append(top)
            else:
                divided.append(pending)
                last_found = found
            pending, found = [], []
        if pending:
            divided.append(pending)
            last_found = found
    return tuple(map(tuple, divided))


def _continues(calls: list[list[SpanReading]], found: list[SpanReading], top: SpanReading) -> bool:
    """Return whether a generation belongs to the last of some RAG calls, whose documents *found* are in its prompt."""
    if not found or _ran_concurrently(calls[-1][-1], top):
        return False
    prompt = prompt_text(top.step)
    return any(_is_in_prompt(each, prompt) for each in found)


def assign_by_prompt(calls: Division) -> Division:
    """Assign each retrieval to the concurrent generation whose prompt contains the retrieved documents.

    A retrieval that no prompt shows is taken out of its call, as any of the generations may have used it.

    Needed for: requests at the same time under one span, with instrumentations that have no span of the workflow.
    Seen in: made; in the recordings, requests at the same time have workflows.
    Order: last, after `split_at_answers`.
    """
    lists = [list(call) for call in calls]
    answering = [call for call in lists if call[-1].step.kind == "generate"]
    found = [(top, home) for home in answering for top in home if top.step.kind in FINDING_KINDS]
    if len(answering) < 2 or not found or not _any_concurrent(answering):
        return calls
    prompts = [prompt_text(call[-1].step) for call in answering]
    unseen: list[Interval] = []  # times of the generations from whose calls a retrieval is taken out
    for top, home in found:
        homes = [call for call, prompt in zip(answering, prompts, strict=True) if _is_in_prompt(top, prompt)]
        if len(homes) == 1 and home is not homes[0]:
            home.remove(top)
            homes[0].insert(0, top)
        elif not homes:
            home.remove(top)
            unseen.append(interval_of(home[-1]))
    at_that_time = Overlaps(unseen)
    for call in answering:
        if at_that_time.count(interval_of(call[-1])) > 0:
            call[-1] = replace(call[-1], is_ambiguous=True)
    return tuple(tuple(call) for call in lists if call)


def _any_concurrent(calls: list[list[SpanReading]]) -> bool:
    """Return whether the last step of a call overlaps with the first step of another."""
    last = Overlaps(interval_of(call[-1]) for call in calls)
    return any(last.count(interval_of(call[0])) > _ran_concurrently(call[0], call[-1]) for call in calls)


def _ran_concurrently(one: SpanReading, other: SpanReading) -> bool:
    """Return whether the time intervals of the spans of two steps overlap."""
    return overlap(interval_of(one), interval_of(other))


def _is_in_prompt(found: SpanReading, prompt: str) -> bool:
    """Return whether a prompt contains the text of a retrieved document."""
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
