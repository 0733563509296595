"""Each pass that divides steps into calls is needed, and stands where it must, as its docstring says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragtrace.span_reading.call_division import Division, assign_by_prompt, keep_own_workflows, split_at_answers
from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.pass_order import DIVISION, divide
from ragtrace.span_reading.step_groups import group_by_parent
from tests.unit.span_reading.made import PASSAGE, llm, retriever, span
from tests.unit.span_reading.recorded import groups, recording, traces


def _at_the_same_time() -> list[FinishedSpan]:
    """Two requests of two threads under one span."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    found = [retriever((10, 20), server), retriever((11, 21), server, "Other.")]
    return [*found, llm((30, 90), server, "Another.", "Other."), llm((31, 91), server, prompt=PASSAGE), server]


def _calls(
    spans: Sequence[FinishedSpan], passes: Sequence[Callable[[Division], Division]] = DIVISION
) -> list[list[int]]:
    """Return the ids of the spans of each call."""
    return [sorted(draft.readings) for group in groups(spans) for draft in divide(group, passes)]


def test_without_the_split_a_batch_would_be_one_call() -> None:
    """Its requests lie under one span."""
    spans = recording("langchain_batch-genai-sync").spans
    assert len(_calls(spans)) == 3
    assert len(_calls(spans, [assign_by_prompt])) < 3


def test_without_the_prompts_a_retrieval_would_be_in_another_call() -> None:
    """The one that began last is in the call of the generation that began first."""
    spans = _at_the_same_time()
    first, other, answers_other, answers_first, _ = (each.context.span_id for each in spans)
    assert sorted(_calls(spans)) == [[first, answers_first], [other, answers_other]]
    assert sorted(_calls(spans, [split_at_answers])) != sorted(_calls(spans))


def test_the_prompts_are_looked_at_after_the_split() -> None:
    """Before, there is one call, whose steps have nowhere to go."""
    spans = _at_the_same_time()
    assert sorted(_calls(spans, list(reversed(DIVISION)))) != sorted(_calls(spans))


def test_without_preference_of_own_workflows_a_call_would_have_its_steps_twice() -> None:
    """Those of ragtrace's listener, and those of the instrumentation beside it."""
    spans = recording("agents_sdk-ragtrace+openinference-sync").spans
    drafts = [draft for group in groups(spans) for draft in divide(group)]
    kept = [own for draft in drafts for own in keep_own_workflows(draft)]
    assert {each.span.scope for draft in kept for each in draft.readings.values()} == {"ragtrace"}
    assert sum(len(draft.readings) for draft in drafts) > sum(len(own.readings) for own in kept)


def test_without_adoption_the_answer_of_a_stream_would_be_in_a_group_of_its_own() -> None:
    """No span shows that it belongs to the workflow."""
    spans = recording("llamaindex_chat-openllmetry-stream").spans
    assert len([group for group in groups(spans) if group.readings]) == 3
    assert len([group for trace in traces(spans) for group in group_by_parent(trace).values()]) > 3
