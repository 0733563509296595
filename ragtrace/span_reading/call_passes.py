"""Passes that turn the steps of one RAG call, as they were read from spans, into the call: each concludes one thing.

A pass is a function from a draft to a draft, or to None if the steps form no RAG call. It changes no reading. The
order of the passes is `PASSES` in `pass_order.py`, where each is described by three lines of its docstring:

Needed for: the instrumentations whose spans would be read wrong without the pass.
Seen in: a recording in `tests/files/recorded` that would be; or "made", where no recording shows it, so that the
    spans are made by hand in `tests/unit/span_reading/test_call_passes.py`.
Order: why the pass stands before or after its neighbours, or that it could change places with one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ragtrace.capture.prompt_parts import split_prompt
from ragtrace.core.step import NO_USAGE, Step
from ragtrace.core.types import Usage, documents_from
from ragtrace.span_reading.call_draft import (
    CallDraft,
    beginnings,
    copy_of,
    has_tool_results,
    offset_in_prompt,
    on_one_line,
    prompt_text,
)
from ragtrace.span_reading.finished_span import SpanReading

_LEAST_ANSWER: Final = 12
"""Fewest characters of an answer that is searched for in a prompt."""
_MOST_BEHIND: Final = 32
"""Most model calls whose prompts are searched for the documents behind an answer."""


# --- Which step is the root, and which one has the answer -------------------------------------------------------------


def merge_nested_results(draft: CallDraft) -> CallDraft:
    """Copy a missing result from a nested step to the step around it, where both describe the same operation.

    Needed for: spans in spans for one operation, of which only the inner one shows the contents, such as OpenLLMetry's
        of the Agents SDK around those of OpenAI's client.
    Seen in: recording `agents_sdk-openllmetry+openllmetry-openai-sync`.
    Order: before `choose_root`, as only now it is known which generations call tools.
    """
    readings = dict(draft.readings)
    n_inside = Counter(draft.outer_ids.get(span_id, 0) for span_id in readings)
    for span_id in reversed(list(draft.readings)):  # innermost first
        outer_id = draft.outer_ids.get(span_id, 0)
        outer, inner = readings.get(outer_id), readings[span_id]
        if outer is not None and outer.step.kind == inner.step.kind:
            readings[outer_id] = _completed(outer, inner, is_only_one=n_inside[outer_id] == 1)
    return replace(draft, readings=readings)


def _completed(outer: SpanReading, inner: SpanReading, *, is_only_one: bool) -> SpanReading:
    """Return *outer*, or a copy of it with the result of *inner* if *outer* has none.

    Args:
        outer: a step.
        inner: the step of the same kind inside it.
        is_only_one: whether there is no other step directly inside *outer*.
    """
    step, of = outer.step, inner.step
    if step.kind == "generate" and step.answer is None and not outer.calls_tools:
        outer = copy_of(outer)
        step = outer.step
        outer.calls_tools = inner.calls_tools
        step.answer, step.answer_found = of.answer, of.answer_found
        step.query = of.query if step.query is None else step.query
        step.prompt = of.prompt if step.prompt is None else step.prompt
        step.response_id = step.response_id or of.response_id
        step.usage = of.usage if step.usage == NO_USAGE else step.usage
    elif step.kind == "retrieve" and step.documents is None and not outer.documents_without_text:
        outer = copy_of(outer)
        step = outer.step
        outer.documents_without_text = inner.documents_without_text
        step.documents, step.reranked, step.rerank = of.documents, of.reranked, of.rerank
    elif step.kind == "trace" and step.query is None and step.answer is None and is_only_one:
        outer = copy_of(outer)
        step = outer.step
        step.query, step.prompt = of.query, of.prompt
        step.answer, step.answer_found = of.answer, of.answer_found
        step.documents = of.documents if step.documents is None else step.documents
        step.previews = of.previews if step.previews is None else step.previews
        step.user_id = step.user_id or of.user_id
    return outer


def choose_root(draft: CallDraft) -> CallDraft | None:
    """Choose the root of the call: the workflow if there is one, else the last generation that may be the answer.

    There is no call without one of them. The generations that may be the answer are kept, too.

    Needed for: all instrumentations. Those of clients alone, such as OpenAI's, have no span of a workflow.
    Seen in: recording `openai_plain-genai-sync`.
    Order: before `leave_out_rankings`, which asks whether the root has an answer.
    """
    answering = frozenset(span_id for span_id, each in draft.readings.items() if _may_be_final_answer(draft, each))
    tops = [draft.readings[span_id] for span_id in draft.top_ids]
    root = next((top for top in tops if top.step.kind == "trace"), None)
    if root is None:
        root = next((top for top in reversed(tops) if top.span_id in answering), None)
    return None if root is None else replace(draft, root_id=root.span_id, answering_ids=answering)


def _may_be_final_answer(draft: CallDraft, reading: SpanReading) -> bool:
    """Return whether *reading* is a generation that may have written the final answer: it calls no tools and is not
    nested in another step.
    """
    if reading.step.kind != "generate" or reading.calls_tools:
        return False
    return not draft.is_inside(reading, "generate", "retrieve", "tool")


def leave_out_rankings(draft: CallDraft) -> CallDraft:
    """Leave out generations before the start of a workflow that has documents but no answer, if the root has none.

    They ranked the documents. The answer is a stream without a span in the call.

    Needed for: streams of LlamaIndex with OpenInference and OpenLLMetry, whose model call lies outside the workflow.
    Seen in: recording `llamaindex_rerank-openllmetry-astream`.
    Order: before `require_answer`, as a ranking is no answer.
    """
    if draft.root.step.answer:
        return draft
    unanswered = [
        each.span.start_ns
        for each in draft.readings.values()
        if each.step.kind == "trace" and each.step.documents and not each.step.answer
    ]
    latest = max(unanswered, default=0)
    return replace(
        draft, answering_ids=frozenset(each.span_id for each in draft.answering() if each.span.end_ns >= latest)
    )


def require_answer(draft: CallDraft) -> CallDraft | None:
    """Require an answer, a generation, or the failure of a workflow in which a step had begun.

    Needed for: workflows that only prepare something, or whose contents are switched off.
    Seen in: recording `agents_sdk-genai-sync`.
    Order: after `leave_out_rankings`; it could change places with `choose_final_answer`.
    """
    root = draft.root.step
    has_failed = (
        root.kind == "trace"
        and root.error is not None
        and any(each.step.kind != "trace" for each in draft.readings.values())
    )
    return draft if draft.answering_ids or root.answer is not None or has_failed else None


def choose_final_answer(draft: CallDraft) -> CallDraft:
    """Choose the generation that ended last, as the one that wrote the final answer.

    Needed for: all instrumentations: applications rewrite the question, and grade documents, by model calls.
    Seen in: recording `langgraph_self_rag-genai-sync`.
    Order: before `forget_answer_before_documents`, which looks at the final answer.
    """
    final = max(draft.answering(), key=lambda each: each.step.end_ns, default=draft.root)
    return replace(draft, final_id=final.span_id)


# --- Which answer is not the final one --------------------------------------------------------------------------------


def forget_answer_before_documents(draft: CallDraft) -> CallDraft:
    """Forget an answer that was written before some documents of the call were retrieved, if the root has none.

    The model call that wrote the final answer has no span here.

    Needed for: streams of LlamaIndex with OpenLLMetry, where the process ends during the stream.
    Seen in: made; the recordings have streams that were read to their end.
    Order: before `take_streamed_answer`, which would take this answer for that of a stream.
    """
    if draft.root.step.answer or draft.final_id == draft.root_id:
        return draft
    found = (
        each
        for span_id, each in draft.readings.items()
        if span_id != draft.root_id and each.step.documents and each.step.kind != "generate"
    )
    if not any(each.span.start_ns >= draft.final.step.end_ns for each in found):
        return draft
    final = copy_of(draft.final)
    final.step.answer, final.step.answer_found = None, False
    return draft.with_changed([final])


def take_streamed_answer(draft: CallDraft) -> CallDraft:
    """Take the answer of the final generation where the root has an empty one, of a stream that was read later.

    Needed for: instrumentations that end the root's span before the stream was read, with an empty answer.
    Seen in: made; OpenInference did so with LlamaIndex, where the reader of the span knows it now.
    Order: before `forget_graded_answer`, after which the empty answer would stay, as if it were the model's.
    """
    if draft.root.step.answer or not draft.final.step.answer:
        return draft
    root = copy_of(draft.root)
    root.step.answer = None
    return draft.with_changed([root])


def forget_graded_answer(draft: CallDraft) -> CallDraft:
    """Forget the answer of a final generation whose prompt has the answer of an earlier one, if the root has none.

    The spans do not show whether it graded or improved that answer.

    Needed for: graphs that grade answers, with instrumentations that do not show the output of the graph.
    Seen in: recording `langgraph_self_rag-genai-sync`.
    Order: after `take_streamed_answer`; it could change places with `find_question`.
    """
    final = draft.final.step
    if draft.root.step.answer or not final.answer:
        return draft
    prompt = prompt_text(final)
    # An equal answer is the same model call in another instrumentation's spans; documents may contain the answer, too.
    answers = [each.step.answer for each in draft.answering() if each.step.answer != final.answer]
    if not any(answer in prompt for answer in answers if answer and len(answer) >= _LEAST_ANSWER):
        return draft
    changed = copy_of(draft.final)
    changed.step.answer = None
    return draft.with_changed([changed])


# --- What was asked, and in what --------------------------------------------------------------------------------------


def find_question(draft: CallDraft) -> CallDraft:
    """Find the user's question: the input of the workflow, else the question in the prompt, else the search text.

    Needed for: instrumentations without a span of the workflow, or without its input on it.
    Seen in: recording `openai_plain-genai-sync`.
    Order: it could change places with `forget_graded_answer` and `find_documents_in_prompt`.
    """
    root = copy_of(draft.root)
    root.step.query = _question(draft)
    return draft.with_changed([root])


def _question(draft: CallDraft) -> str | None:
    root, generations = draft.root.step, [each.step for each in draft.answering()]
    if root.kind == "trace" and root.query is not None:
        return root.query
    documents = [text for each in draft.found() for text in beginnings(each.step.documents or ())]
    for step in generations:
        asked = step.query
        if asked is not None and not any(text in asked for text in documents):
            parts = split_prompt(asked)
            if parts is None or parts.question is not None:
                return asked if parts is None else parts.question
    for step in generations:
        parts = None if step.query is None else split_prompt(step.query)
        if parts is not None and parts.question is not None:
            return parts.question
    return next((each.step.query for each in draft.found() if each.step.query is not None), None)


def find_documents_in_prompt(draft: CallDraft) -> CallDraft:
    """Extract the contexts from the prompt of the final generation, if no retrieval and no tool has returned any.

    Needed for: instrumentations of clients alone, which show no retrieval.
    Seen in: recording `openai_plain-genai-sync`.
    Order: before `require_evidence`, as these contexts are some.
    """
    final = draft.final.step
    if any(each.step.documents is not None or each.documents_without_text for each in draft.found()):
        return draft
    if draft.root.step.documents or final.prompt is None or final.prompt_documents or has_tool_results(final):
        return draft
    for message in reversed(final.prompt.messages):
        parts = split_prompt(message.text) if message.role in ("user", "system") else None
        if parts is not None and parts.documents:
            root = copy_of(draft.root)
            root.step.prompt_documents = parts.documents
            return draft.with_changed([root])
    return draft


def require_evidence(draft: CallDraft) -> CallDraft | None:
    """Require documents, or steps that look for some, of a generation outside any workflow.

    An application also calls models to make titles, say.

    Needed for: instrumentations of clients alone.
    Seen in: recording `llamaindex_chat-genai-openai-sync`.
    Order: after `find_documents_in_prompt`; it could change places with `sum_usage`.
    """
    root = draft.root.step
    has_evidence = bool(
        draft.found() or _is_ambiguous(draft) or root.prompt_documents or has_tool_results(draft.final.step)
    )
    return draft if root.kind != "generate" or has_evidence else None


def _is_ambiguous(draft: CallDraft) -> bool:
    return any(each.is_ambiguous for each in draft.readings.values())


# --- Tokens -----------------------------------------------------------------------------------------------------------


def sum_usage(draft: CallDraft) -> CallDraft:
    """Sum up the token counts of a workflow's model calls, each counted once.

    If several instrumentations have recorded them, the total with the most input tokens is taken: two instrumentations
    would count the same calls twice, and so would a model call inside another one.

    Needed for: all instrumentations.
    Seen in: recording `langchain_lcel-genai-sync`.
    Order: it could change places with `require_evidence` and `find_defect`.
    """
    if draft.root.step.kind != "trace":
        return draft
    used: dict[str, list[Usage]] = {}
    for each in draft.readings.values():
        step = each.step
        if step.kind == "generate" and not draft.is_inside(each, "generate") and step.usage is not NO_USAGE:
            used.setdefault(each.span.scope, []).append(step.usage)
    totals = [
        Usage(_sum([each.input_tokens for each in usages]), _sum([each.output_tokens for each in usages]))
        for usages in used.values()
    ]
    root = copy_of(draft.root)
    root.step.total_usage = max(totals, key=lambda each: each.input_tokens or 0, default=NO_USAGE)
    return draft.with_changed([root])


def _sum(counts: list[int | None]) -> int | None:
    """Return the sum of *counts*, or None if one of them is unknown."""
    return None if None in counts else sum(filter(None, counts))


# --- What of the documents the answer is based on ---------------------------------------------------------------------


def find_defect(draft: CallDraft) -> CallDraft:
    """Find the reason for which the texts of the call cannot be judged: cut, without text, or of another generation.

    Needed for: instrumentations of OpenTelemetry GenAI, which show ids of documents alone; limits on attributes.
    Seen in: recording `langchain_lcel-genai-sync`.
    Order: it could change places with `sum_usage` and `keep_used_documents`.
    """
    root, found = copy_of(draft.root), draft.found()
    readings = list(draft.readings.values())
    if any(each.is_cut for each in readings) or _texts_look_truncated(readings):
        root.step.defect = "texts_truncated"
    elif any(each.documents_without_text for each in found):
        root.step.defect = "contexts_without_text"
        without = list(map(copy_of, found))
        for each in without:
            each.step.documents = None
        draft = draft.with_changed(without)
    elif _is_ambiguous(draft):
        root.step.defect = "contexts_ambiguous"
    return draft.with_changed([root])


def _texts_look_truncated(readings: list[SpanReading]) -> bool:
    """Return whether the longest texts on the spans all have the same length, which suggests that a length limit has
    cut them.

    Documents may have been cut into passages of one length, but then other texts are longer than these.
    """
    texts = [
        (name, value) for each in readings for name, value in each.span.attributes.items() if isinstance(value, str)
    ]
    longest = max((len(value) for _, value in texts), default=0)
    equal = {value: name for name, value in texts if len(value) == longest}
    # Four different texts, all as long as the longest one, show a limit on their length, unless that is very short.
    return longest >= 32 and len(equal) >= 4 and any("document" not in name for name in equal.values())


def keep_used_documents(draft: CallDraft) -> CallDraft:
    """Drop retrieved documents that appear in no prompt, and sort the others in the order of the prompts.

    If no retrieved document is in a prompt, all are kept. A re-ranker or a filter between the retrieval and the prompt
    need not have a span. The documents of a retrieval inside a tool are kept where the prompts show the tool's result
    alone, which was made from these documents.

    Needed for: all instrumentations of pipelines with a re-ranker, and retrievers that search in two ways.
    Seen in: recording `haystack_pipeline-native-sync`.
    Order: before `drop_agent_results`, as the result of an agent shows that what it found was used.
    """
    prompts, found = _prompts_behind_answer(draft), draft.found()
    if not prompts:
        return draft
    used = {
        each.span_id: [document for document in each.step.documents or () if offset_in_prompt(prompts, document) >= 0]
        for each in found
    }
    if not any(used.values()):
        return draft
    changed: list[SpanReading] = []
    for each in found:
        is_of_tool = any(outer.step.kind == "tool" and used.get(outer.span_id) for outer in draft.around(each))
        if each.step.documents is not None and (used[each.span_id] or not is_of_tool):
            reading = copy_of(each)
            in_order = sorted(used[each.span_id], key=lambda document: offset_in_prompt(prompts, document))
            reading.step.documents = documents_from(in_order, each.step.documents)
            changed.append(reading)
    return draft.with_changed(changed)


def _prompts_behind_answer(draft: CallDraft) -> str:
    """Join the final generation's prompt with the prompts of earlier model calls that contributed to it.

    An earlier model call has contributed if a later one of these prompts contains its answer.

    A synthesizer gives its first answer to the model together with further documents, to refine it; an agent is given
    what a tool's model wrote of the documents.
    """
    documents = [
        on_one_line(document.text)
        for reading in draft.found()
        if reading.step.kind == "retrieve"
        for document in reading.step.documents or ()
        if document.text.strip()
    ]
    generations = [each.step for each in draft.readings.values() if each.step.kind == "generate"]
    others = [step for step in generations if len(step.answer or "") >= _LEAST_ANSWER]
    behind = [draft.final.step]
    for step in behind:  # grows
        given = [
            each
            for each in others[-_MOST_BEHIND:]
            if each not in behind
            and each.end_ns <= step.end_ns
            and _contains_answer(each.answer or "", step, documents)
        ]
        behind += given[: _MOST_BEHIND - len(behind)]
    return " ".join(on_one_line(prompt_text(step)) for step in sorted(behind, key=lambda each: each.end_ns)).strip()


def _contains_answer(answer: str, step: Step, documents: list[str]) -> bool:
    """Return whether the prompt of *step* contains the answer of another model call.

    An answer that occurs only within the text of *documents* does not count.
    """
    answer, prompt = on_one_line(answer), on_one_line(prompt_text(step))
    if answer not in prompt:
        return False
    for text in documents:  # documents, of which an answer may be a sentence
        prompt = prompt.replace(text, " ")
    return answer in prompt


def drop_agent_results(draft: CallDraft) -> CallDraft:
    """Drop the result of a tool that ran an agent, if steps inside the tool returned documents.

    Such a result is only the answer of the agent's model.

    Needed for: agents that are tools of other agents, with OpenInference and OpenLLMetry.
    Seen in: made; no recorded application has an agent in a tool.
    Order: last, after `keep_used_documents`.
    """
    generations = [each for each in draft.readings.values() if each.step.kind == "generate"]
    around = {outer.span_id for each in generations for outer in draft.around(each)}
    answers = _by_answer(generations)
    documents = [each for each in draft.found() if each.step.documents]
    changed: list[SpanReading] = []
    # Most tools of one call whose results are compared with the answers of models.
    for tool in [each for each in documents if each.step.kind == "tool"][-256:]:
        said = (each for found in tool.step.documents or () for each in answers.get(on_one_line(found.text), ()))
        is_agent = tool.span_id in around or any(_is_during(each, tool) for each in said)
        if is_agent and any(_is_during(each, tool) for each in documents if each is not tool):
            without = copy_of(tool)
            without.step.documents = None
            changed.append(without)
    return draft.with_changed(changed)


def _by_answer(generations: list[SpanReading]) -> Mapping[str, list[SpanReading]]:
    """Return the generations by their answers on one line: of an agent in a tool, whose spans may be beside the tool's.

    OpenLLMetry makes them children of the workflow.
    """
    answers: defaultdict[str, list[SpanReading]] = defaultdict(list)
    for each in generations:
        # Most model calls with the same answer that are compared with the result of a tool.
        if each.step.answer and len(same := answers[on_one_line(each.step.answer)]) < 64:
            same.append(each)
    return answers


def _is_during(inner: SpanReading, outer: SpanReading) -> bool:
    return outer.span.start_ns <= inner.span.start_ns and inner.step.end_ns <= outer.step.end_ns
