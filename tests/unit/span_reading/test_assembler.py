"""Assembly of RAG calls from finished spans, written in the OpenInference conventions."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags, set_span_in_context

from ragtrace.span_reading.assembler import CallAssembler
from ragtrace.span_reading.call_draft import AssembledCall
from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.span_file import SpanFile
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.intake import LostSpan
from ragtrace.testing import FakeClock
from tests.unit.span_reading.made import ANSWER, PASSAGE, QUERY, chain, llm, retriever, span, span_context
from tests.unit.span_reading.recorded import RECORDED, Recording, recording


def assembled(spans: Sequence[FinishedSpan]) -> list[AssembledCall]:
    assembler = CallAssembler()
    for each in spans:
        assembler.add(each)
    return assembler.take_complete(everything=True)


def texts(call: AssembledCall) -> tuple[str | None, list[str] | None, str | None]:
    built = call.builder.build()
    contexts = None if built.contexts is None else [document.text for document in built.contexts]
    return built.query, contexts, built.answer


def whole() -> list[FinishedSpan]:
    root = chain((0, 100))
    return [retriever((10, 20), root), llm((30, 90), root), root]


WHOLE = (QUERY, [PASSAGE], ANSWER)


def test_a_chain_is_one_call() -> None:
    """Query and answer of the root, documents of the retriever, the scores on the root."""
    spans = whole()
    (call,) = assembled(spans)
    assert texts(call) == WHOLE
    built = call.builder.build()
    assert (built.context_source, built.defect, built.span) == ("retriever", "", spans[-1].context)


@pytest.mark.parametrize("seed", range(6))
def test_the_order_in_which_spans_come_in_does_not_matter(seed: int) -> None:
    """Children may end after their parents, or be exported twice."""
    spans = whole()
    spans += spans[:2]
    random.Random(seed).shuffle(spans)
    (call,) = assembled(spans)
    assert texts(call) == WHOLE


def test_two_requests_under_one_server_span_are_two_calls() -> None:
    """The span of a web server or of a batch is the parent of several calls."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    first, second = chain((0, 100), server), chain((150, 250), server, output__value="Another.")
    spans = [retriever((10, 20), first), llm((30, 90), first), first]
    spans += [retriever((160, 170), second, "Other."), llm((180, 240), second, "Another."), second, server]
    calls = assembled(spans)
    assert [texts(call) for call in calls] == [WHOLE, (QUERY, ["Other."], "Another.")]


def test_a_request_that_a_leaked_context_puts_below_the_one_before_is_a_call_of_its_own() -> None:
    """OpenLLMetry makes the second request of a task a child of the first one's root, which has ended."""
    first = chain((0, 100))
    second = chain((150, 250), first, output__value="Another.")
    spans = [retriever((10, 20), first), llm((30, 90), first), first]
    spans += [retriever((160, 170), second, "Other."), llm((180, 240), second, "Another."), second]
    assert [texts(call) for call in assembled(spans)] == [WHOLE, (QUERY, ["Other."], "Another.")]


def test_without_a_root_a_retrieval_belongs_to_the_generation_after_it() -> None:
    """Spans of a hand-made application lie under the span of its web server."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    spans = [retriever((10, 20), server), llm((30, 90), server)]
    spans += [retriever((110, 120), server, "Other."), llm((130, 190), server, "Another."), server]
    assert [texts(call) for call in assembled(spans)] == [WHOLE, (QUERY, ["Other."], "Another.")]


def test_retrievals_of_requests_at_the_same_time_go_where_the_prompt_has_their_text() -> None:
    """Two threads of a batch work under the same span."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    spans = [
        *(retriever((10, 20), server, PASSAGE), retriever((11, 21), server, "Other.")),
        *(llm((30, 90), server, "Another.", "Context:\nOther.\n\nQuestion: What else?"),),
        *(llm((31, 91), server, ANSWER, f"Context:\n{PASSAGE}\n\nQuestion: {QUERY}"), server),
    ]
    found = sorted(map(texts, assembled(spans)), key=str)
    assert found == [(QUERY, [PASSAGE], ANSWER), ("What else?", ["Other."], "Another.")]


def test_a_retrieval_that_no_prompt_of_several_generations_shows_is_not_guessed_at() -> None:
    """No number is computed from a wrong text: the contexts of both calls are not known."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    spans = [retriever((10, 20), server), retriever((11, 21), server, "Other."), llm((30, 90), server)]
    spans += [llm((31, 91), server, "Another."), server]
    found = [call.builder.build() for call in assembled(spans)]
    assert [(call.contexts, call.defect) for call in found] == [(None, "contexts_ambiguous")] * 2


def test_a_generation_that_rewrites_the_question_belongs_to_the_call_after_it() -> None:
    """The question is that of the user, and the answer that of the last generation."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    spans = [llm((5, 9), server, "Eiffel Tower height", QUERY), retriever((10, 20), server), llm((30, 90), server)]
    assert [texts(call) for call in assembled([*spans, server])] == [WHOLE]


def test_a_generation_that_asks_for_tools_is_not_the_answer() -> None:
    """An agent's model is asked several times."""
    root = chain((0, 100), output__value=None)
    asks = span(
        "LLM",
        (5, 9),
        root,
        llm__output_messages__0__message__role="assistant",
        llm__output_messages__0__message__tool_calls__0__tool_call__function__name="search",
    )
    tool = span("TOOL", (10, 20), root, input__value=QUERY, output__value=PASSAGE, tool__name="search")
    (call,) = assembled([asks, tool, llm((30, 90), root), root])
    assert texts(call) == WHOLE
    assert call.builder.build().context_source == "tool"


def test_a_retriever_inside_a_tool_counts_once() -> None:
    """The tool's result is the same documents in one text."""
    root = chain((0, 100))
    tool = span("TOOL", (10, 25), root, output__value=f"{PASSAGE}\nmore")
    spans = [retriever((11, 20), tool), tool, llm((30, 90), root), root]
    (call,) = assembled(spans)
    assert texts(call) == WHOLE


def test_a_step_without_texts_has_those_of_the_same_step_inside_it() -> None:
    """Of two instrumentations of one retrieval or model call, the outer one may carry no content."""
    root = chain((0, 100), output__value="")
    outer_retriever, outer_llm = span("RETRIEVER", (10, 20), root), span("LLM", (30, 90), root)
    inner = [retriever((11, 19), outer_retriever), llm((31, 89), outer_llm, llm__token_count__prompt=7)]
    (call,) = assembled([*inner, outer_retriever, outer_llm, root])
    assert texts(call) == WHOLE
    assert call.builder.build().usage.input_tokens == 7


@pytest.mark.parametrize(
    "name",
    [
        "agents_sdk-openllmetry+openllmetry-openai-sync",
        "haystack_2_pipeline-openinference-sync",
        "haystack_2_pipeline-openllmetry+openllmetry-openai-astream",
        "langgraph_self_rag-openllmetry-sync",
        "llamaindex_chat-openinference+genai-openai-astream",
        "llamaindex_query-openinference+openinference-openai-astream",
        "pydantic_ai_1-openinference-sync",
        "pydantic_ai_server-openinference-async",
    ],
)
def test_recorded_calls_of_two_instrumentations_are_those_that_the_application_logged(name: str) -> None:
    """One of the two shows the texts that the other leaves out."""
    calls = assembled(
        [each for each in SpanFile(RECORDED / f"{name}.spans.jsonl.gz") if isinstance(each, FinishedSpan)]
    )
    logged = json.loads((RECORDED / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    expected = [(call["query"], call["contexts"], call["answer"]) for call in logged]
    assert sorted(map(texts, calls)) == sorted(expected)


@pytest.mark.parametrize("name", ["llamaindex_chat-openllmetry-stream", "llamaindex_rerank-openllmetry-astream"])
def test_a_model_call_before_the_documents_is_not_the_answer(name: str) -> None:
    """It rewrote the question or ranked documents; the answer's model call is outside the workflow's trace."""
    calls = assembled(
        [each for each in SpanFile(RECORDED / f"{name}.spans.jsonl.gz") if isinstance(each, FinishedSpan)]
    )
    logged = json.loads((RECORDED / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    answers = {call["query"]: call["answer"] for call in logged}
    assert all(answer in (answers[query], None) for query, _, answer in map(texts, calls))
    assert {answer for _, _, answer in map(texts, calls)} >= set(answers.values())


def test_documents_of_an_answer_that_was_refined_are_contexts_too() -> None:
    """A synthesizer shows the model its first answer and the next documents, so the last prompt has these alone."""
    root = chain((0, 100))
    first = llm((30, 40), root, "It is 330 metres tall.", f"Context: {PASSAGE}")
    last = llm((50, 90), root, prompt="We have an answer: It is 330 metres tall. Refine it with: It opened in 1889.")
    spans = [retriever((10, 20), root, PASSAGE, "It opened in 1889.", "Unused."), first, last, root]
    (call,) = assembled(spans)
    assert texts(call) == (QUERY, [PASSAGE, "It opened in 1889."], ANSWER)


def test_a_model_call_whose_answer_a_document_contains_is_not_behind_the_answer() -> None:
    """A model that graded another document may have quoted a sentence of the one that was used."""
    root = chain((0, 100))
    grades = llm((21, 25), root, "The Eiffel Tower in Paris", "Is this of use? Other.")
    spans = [retriever((10, 20), root, PASSAGE, "Other."), grades, llm((30, 90), root, prompt=PASSAGE), root]
    (call,) = assembled(spans)
    assert texts(call) == WHOLE


@pytest.mark.parametrize("is_nested", [True, False])
def test_what_an_agent_inside_a_tool_found_is_the_evidence(is_nested: bool) -> None:
    """The tool's result is the answer of that agent's model; OpenLLMetry puts the agent beside the tool."""
    root = chain((0, 100))
    tool = span("TOOL", (10, 60), root, output__value="It is 330 metres tall.", tool__name="ask")
    agent = span("AGENT", (11, 59), tool if is_nested else root)
    look = span("TOOL", (12, 20), agent, output__value=PASSAGE, tool__name="look")
    inner = llm((30, 58), agent, "It is 330 metres tall.", f"{QUERY} {PASSAGE}")
    outer = llm((70, 90), root, prompt=f"{QUERY} It is 330 metres tall.")
    (call,) = assembled([look, inner, agent, tool, outer, root])
    assert texts(call) == WHOLE


def test_a_retrieval_inside_a_tool_that_says_it_in_other_words_is_kept() -> None:
    """The prompt shows the tool's result alone, and the model that made it is not among the spans."""
    root = chain((0, 100))
    tool = span("TOOL", (10, 25), root, output__value="330 metres, it says.", tool__name="look")
    spans = [retriever((11, 20), tool), tool, llm((30, 90), root, prompt=f"{QUERY} 330 metres, it says."), root]
    (call,) = assembled(spans)
    assert texts(call) == WHOLE


def test_results_of_tools_before_the_question_are_no_contexts_of_its_answer() -> None:
    """In a conversation the prompt shows what tools found for the questions before."""
    server = span("", (0, 100), scope="opentelemetry.instrumentation.asgi")
    roles = (("tool", "It opened in 1889."), ("assistant", "In 1889."), ("user", QUERY), ("tool", PASSAGE))
    messages = {
        f"llm__input_messages__{at}__message__{name}": value
        for at, message in enumerate(roles)
        for name, value in zip(("role", "content"), message, strict=True)
    }
    (call,) = assembled([span("LLM", (10, 90), server, **messages, output__value=ANSWER), server])
    assert texts(call) == WHOLE


def test_the_string_form_of_a_stop_event_is_not_the_answer() -> None:
    """OpenInference writes it, cut, as the output of an agent of LlamaIndex."""
    scope = "openinference.instrumentation.llama_index"
    root = chain((0, 100), scope=scope, output__value="StopEvent(result=AgentOutput(response=ChatMessage(role=<Me...")
    spans = [retriever((10, 20), root, scope=scope), llm((30, 90), root, scope=scope), root]
    (call,) = assembled(spans)
    assert texts(call) == WHOLE


def test_the_reranked_documents_are_the_contexts() -> None:
    """They are what the model was given."""
    root = chain((0, 100))
    ranked = span("RERANKER", (21, 25), root, reranker__output_documents__0__document__content=PASSAGE)
    spans = [retriever((10, 20), root, "Other.", PASSAGE), ranked, llm((30, 90), root), root]
    (call,) = assembled(spans)
    assert texts(call) == WHOLE
    assert call.builder.build().context_source == "reranker"


def test_documents_without_text_are_a_defect_and_no_contexts() -> None:
    """An instrumentation that exports ids only must not make a call look unsupported."""
    root = chain((0, 100))
    ids = span("RETRIEVER", (10, 20), root, retrieval__documents__0__document__id="doc-1")
    (call,) = assembled([ids, llm((30, 90), root), root])
    built = call.builder.build()
    assert (built.contexts, built.defect) == (None, "contexts_without_text")


def test_texts_that_the_provider_cut_are_a_defect() -> None:
    """The length limit of the provider's attributes is known."""
    root = chain((0, 100))
    cut = replace(retriever((10, 20), root), max_text_chars=len(PASSAGE))
    (call,) = assembled([cut, llm((30, 90), root), root])
    assert call.builder.build().defect == "texts_truncated"


@pytest.mark.parametrize("answer", [ANSWER, None])
def test_a_listener_s_spans_beside_an_instrumentation_s_are_the_call(answer: str | None) -> None:
    """Both record the same steps below the instrumentation's root, which may have no answer: none is taken twice."""
    more: dict[str, Any] = {} if answer is None else {"output__value": answer}
    root = span("CHAIN", (0, 100), input__value=QUERY, **more)
    own = chain((1, 99), root, scope="ragtrace")
    beside = [retriever((10, 20), root), llm((30, 90), root)]
    inside = [retriever((11, 19), own, scope="ragtrace"), llm((31, 89), own, scope="ragtrace")]
    (call,) = assembled([*beside, *inside, own, root])
    assert texts(call) == WHOLE
    assert call.builder.root.span_context == own.context
    assert [reading.span for reading in call.readings] == [own, *inside]


def test_a_decorated_part_with_an_answer_of_its_own_is_a_part() -> None:
    """The workflow of the framework around it is the call, with all steps."""
    root = chain((0, 100))
    part = chain((1, 9), root, scope="ragtrace", output__value="height of the tower")
    (call,) = assembled([part, retriever((10, 20), root), llm((30, 90), root), root])
    assert texts(call) == WHOLE
    assert call.builder.root.span_context == root.context


def test_the_same_model_call_in_a_trace_of_its_own_is_no_second_call() -> None:
    """LangChain's instrumentation attaches no context, so the client's span becomes a root."""
    spans = whole()
    own = llm((31, 89), None, trace=2, scope="openinference.instrumentation.openai")
    for order in ([own, *spans], [*spans, own]):
        (call,) = assembled(order)
        assert texts(call) == WHOLE


def test_two_instrumentations_of_the_whole_application_give_one_call() -> None:
    """The call is the one that shows more."""
    spans = whole()
    root = chain((1, 99), trace=2, scope="opentelemetry.instrumentation.langchain")
    (call,) = assembled([llm((31, 89), root, scope="opentelemetry.instrumentation.langchain"), root, *spans])
    assert texts(call) == WHOLE


def twice(assembler: CallAssembler, clock: FakeClock) -> FinishedSpan:
    """Add a call that another instrumentation shows in more detail, whose root has begun; return that root."""
    root, other = chain((0, 100)), "opentelemetry.instrumentation.langchain"
    assembler.observe(_started("chain", root.context, None, genai=True))
    lesser = chain((1, 99), trace=2, scope=other)
    for each in (retriever((10, 20), root), llm((30, 90), root), llm((31, 89), lesser, scope=other), lesser):
        assembler.add(each)
    clock.advance(3)
    return root


def test_a_call_waits_for_the_recording_of_it_that_shows_more() -> None:
    """That one is the call, once its root has ended."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    root = twice(assembler, clock)
    assert assembler.take_complete() == assembler.take_complete(everything=True) == []
    assembler.add(root)
    clock.advance(3)
    (call,) = assembler.take_complete()
    assert texts(call) == WHOLE
    clock.advance(3)
    assert assembler.take_complete() == []
    assert (assembler.counts["duplicates"], len(assembler)) == (2, 0)


@pytest.mark.parametrize("how", ["lost", "unfinished"])
def test_a_call_is_not_lost_with_the_recording_of_it_that_shows_more(how: str) -> None:
    """If that one becomes no call, the one that has waited for it is scored."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    root = twice(assembler, clock)
    assert assembler.take_complete() == []
    if how == "lost":
        assembler.lose(_lost(root))
        clock.advance(3)
        (call,) = assembler.take_complete()
    else:
        (call,) = assembler.take_last()
    assert texts(call) == (QUERY, None, ANSWER)
    assert assembler.counts["duplicates"] == 0


def failed(spans: Sequence[FinishedSpan]) -> list[FinishedSpan]:
    """The same spans of operations that raised a LookupError."""
    return [replace(each, error_type="LookupError") for each in spans]


def unfinished(trace: int, scope: str = "openinference.instrumentation.langchain") -> list[FinishedSpan]:
    """A request whose retriever raised: neither documents nor an answer."""
    root = span("CHAIN", (0, 30), trace=trace, scope=scope, input__value=QUERY)
    return failed([span("RETRIEVER", (10, 30), root, scope=scope, input__value=QUERY), root])


def test_a_workflow_whose_retriever_failed_is_a_call_that_failed() -> None:
    """With its question, and an answer that was not captured."""
    assembler = CallAssembler()
    for each in unfinished(1):
        assembler.add(each)
    (call,) = assembler.take_complete(everything=True)
    built = call.builder.build()
    assert texts(call) == (QUERY, None, None)
    assert (built.error, built.answer_captured, assembler.counts["no_call"]) == ("LookupError", False, 0)


def test_a_workflow_that_failed_in_two_instrumentations_is_one_call() -> None:
    """The same question at the same time; two requests that one instrumentation shows are two calls."""
    two = assembled([*unfinished(1), *unfinished(2, scope="opentelemetry.instrumentation.langchain")])
    assert len(two) == 1
    assert len(assembled([*unfinished(1), *unfinished(2)])) == 2


def test_a_workflow_that_failed_before_its_first_step_is_no_call() -> None:
    """It may be anything; and nor is a workflow that caught the error of its retriever and has no answer."""
    root = span("CHAIN", (0, 30), input__value=QUERY)
    assert assembled(failed([root])) == []
    assert assembled([*failed([span("RETRIEVER", (10, 30), root)]), root]) == []


def test_equal_answers_at_different_times_are_two_calls() -> None:
    """The same question asked twice is two requests."""
    root = chain((200, 300), trace=2, scope="opentelemetry.instrumentation.langchain")
    second = [llm((230, 290), root, scope="opentelemetry.instrumentation.langchain"), root]
    assert len(assembled([*whole(), *second])) == 2


def test_a_model_call_without_documents_outside_any_workflow_is_no_call() -> None:
    """An application also calls models to make titles and to sort its mail."""
    assert assembled([llm((0, 10))]) == []
    (call,) = assembled([llm((0, 10), None, ANSWER, f"Context:\n{PASSAGE}\n\nQuestion: {QUERY}")])
    assert texts(call) == WHOLE
    assert call.builder.build().context_source == "prompt"


def test_spans_that_are_no_part_of_a_call_are_given_back() -> None:
    """What holds them back from export can let them go."""
    lone = retriever((10, 20))
    assembler = CallAssembler()
    assembler.add(lone)
    assert assembler.take_complete(everything=True) == []
    assert assembler.take_left_out() == [lone.context]
    assert assembler.counts["no_call"] == 1


def test_a_call_is_closed_when_nothing_has_come_for_a_moment() -> None:
    """Until then its children may still end."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    *children, root = whole()
    assembler.add(root)
    clock.advance(1.5)
    assert assembler.take_complete() == []
    for child in children:
        assembler.add(child)
    clock.advance(1.9)
    assert assembler.take_complete() == []
    clock.advance(0.3)
    (call,) = assembler.take_complete()
    assert texts(call) == WHOLE
    assert len(assembler) == 0


def _started(
    name: str, context: SpanContext, parent: SpanContext | None, *, genai: bool, at: int | None = None
) -> ReadableSpan:
    scope = "openinference.instrumentation.langchain" if genai else "opentelemetry.instrumentation.asgi"
    return ReadableSpan(name, context, parent, instrumentation_scope=InstrumentationScope(scope), start_time=at)


@pytest.mark.parametrize(
    ("waits_for", "seconds"),
    [("open root", 600.0), ("open part", 30.0), ("contexts below an open span", 5.0), ("more steps", 2.0)],
)
def test_each_thing_that_is_waited_for_has_an_end(waits_for: str, seconds: float) -> None:
    """As listed at the top of `group_waits.py`: after it, and not before, the steps leave the buffer."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    root = chain((0, 100))
    found, generated = retriever((10, 20), root), llm((30, 90), root)
    if waits_for == "open root":
        assembler.observe(_started("chain", root.context, None, genai=True))
        spans = [found, generated]
    elif waits_for == "open part":
        assembler.observe(_started("tool", span_context(1, 10**9), root.context, genai=True))
        spans = [found, generated, root]
    elif waits_for == "contexts below an open span":
        assembler.observe(_started("GET /ask", root.context, None, genai=False))
        spans = [found]
    else:
        spans = [found, generated, root]
    for each in spans:
        assembler.add(each)
    clock.advance(seconds - 0.3)
    assert assembler.take_complete() == []
    assert len(assembler) == len(spans)
    clock.advance(0.6)
    calls = assembler.take_complete()
    assert len(assembler) == 0
    assert len(calls) + assembler.counts["no_call"] == 1


def test_a_flush_does_not_divide_a_request_that_goes_on() -> None:
    """Another request's flush finds the documents under the open span of a web server, and no answer yet."""
    server = span_context(1, 10**9)
    assembler = CallAssembler(clock=FakeClock())
    assembler.observe(_started("POST /ask", server, None, genai=False))
    below = [replace(each, parent=server) for each in (retriever((10, 20)), llm((30, 90)))]
    assembler.add(below[0])
    assert assembler.take_complete(everything=True) == []
    assembler.add(below[1])
    (call,) = assembler.take_complete(everything=True)
    assert texts(call) == WHOLE
    assert assembler.counts["no_call"] == 0


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_root_that_is_no_longer_waited_for_is_no_second_call(is_remote: bool) -> None:
    """Whether its end comes after ten minutes in this process, or to a gateway that had given it up."""
    clock, root = FakeClock(), chain((0, 100))
    assembler = CallAssembler(needs_parents=is_remote, clock=clock)
    steps = [retriever((10, 20), root), llm((30, 90), root)]
    if is_remote:
        parent = SpanContext(root.context.trace_id, root.context.span_id, is_remote=True, trace_flags=TraceFlags(1))
        steps = [replace(each, parent=parent) for each in steps]
    else:
        assembler.observe(_started("chain", root.context, None, genai=True))
    for each in steps:
        assembler.add(each)
    clock.advance(601)
    (call,) = assembler.take_complete()
    assert texts(call) == WHOLE
    clock.advance(300)  # longer than ended traces are remembered
    assert assembler.take_complete() == []
    assembler.add(root)
    clock.advance(10)
    assert assembler.take_complete() == []
    assert (assembler.counts["late"], assembler.counts["calls"], len(assembler)) == (1, 1, 0)


def test_a_root_whose_steps_were_incomplete_is_no_call_without_them() -> None:
    """A gateway would score an answer whose documents it has left out."""
    clock = FakeClock()
    assembler = CallAssembler(needs_parents=True, clock=clock)
    *steps, root = whole()
    for each in steps:
        assembler.add(each)
    clock.advance(6)
    assert assembler.take_complete() == []
    assembler.add(root)
    clock.advance(6)
    assert assembler.take_complete() == []
    assert (assembler.counts["incomplete"], len(assembler)) == (3, 0)


def test_a_workflow_after_the_end_of_the_one_above_it_is_not_taken_for_its_step() -> None:
    """A context that was left attached makes the next request a child of one whose span comes later."""
    clock, first = FakeClock(), chain((0, 100))
    assembler = CallAssembler(clock=clock)
    second = chain((150, 250), first, output__value="Another.")
    for each in (retriever((160, 170), second, "Other."), llm((180, 240), second, "Another."), second):
        assembler.add(each)
    clock.advance(3)
    assert [texts(call) for call in assembler.take_complete()] == [(QUERY, ["Other."], "Another.")]
    for each in (retriever((10, 20), first), llm((30, 90), first), first):
        assembler.add(each)
    clock.advance(3)
    assert [texts(call) for call in assembler.take_complete()] == [WHOLE]


def test_a_span_that_comes_after_its_call_was_closed_is_counted_as_late() -> None:
    """It begins no call of its own."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    spans = whole()
    for each in spans:
        assembler.add(each)
    clock.advance(3)
    assert len(assembler.take_complete()) == 1
    clock.advance(10)
    assert assembler.take_complete() == []
    late = llm((95, 99), spans[-1])
    for _ in range(2):  # two span processors hand it over, or it is exported twice
        assembler.add(late)
    clock.advance(3)
    assert assembler.take_complete() == []
    assert (assembler.counts["late"], assembler.counts["spans"]) == (1, 4)


def test_the_buffer_is_bounded_and_counts_what_it_evicts() -> None:
    """A trace whose root never ends takes its room from the oldest."""
    assembler = CallAssembler(most_spans=100)
    for number in range(250):
        assembler.add(llm((number, number + 1), trace=number + 1, parent_id=10**9 + number))
    assert len(assembler) == 100
    assert assembler.counts["evicted"] == 150
    assert len(assembler.take_left_out()) == 150


def _trace(call: AssembledCall) -> int:
    return call.readings[0].span.context.trace_id


def test_a_call_whose_retrieval_was_evicted_is_left_out_and_counted() -> None:
    """Its root ends later: without the retrieval, it would be a call that found nothing."""
    assembler = CallAssembler(most_spans=100)
    root, next_root = chain((0, 1_000)), chain((2_000, 3_000))
    assembler.add(retriever((10, 20), root))
    for number in range(100):
        assembler.add(llm((number, number + 1), trace=number + 2, parent_id=10**9 + number))
    assert assembler.counts["evicted"] == 1
    for each in (llm((500, 600), root), root, retriever((2_100, 2_200), next_root), next_root):
        assembler.add(each)
    calls = [each for each in assembler.take_complete(everything=True) if next_root.context.trace_id == _trace(each)]
    assert [texts(call) for call in calls] == [(QUERY, [PASSAGE], ANSWER)]
    assert assembler.counts["incomplete"] == 2


def _lost(lost: FinishedSpan, *, is_genai: bool = True) -> LostSpan:
    return LostSpan(lost.context, 0 if lost.parent is None else lost.parent.span_id, is_genai)


def test_a_call_of_which_a_step_was_lost_is_left_out_and_counted() -> None:
    """The texts that are there may be other ones than those of the answer."""
    assembler = CallAssembler()
    root = chain((0, 100), output__value=None)
    for each in (retriever((10, 20), root), llm((30, 40), root, "Paris, towers"), root):
        assembler.add(each)
    assembler.lose(_lost(llm((50, 60), root)))
    assert assembler.take_complete(everything=True) == []
    assert assembler.counts["incomplete"] == 3
    assert len(assembler.take_left_out()) == 3


def test_a_lost_span_of_another_kind_costs_no_call() -> None:
    """Spans of a database, say, are no steps."""
    assembler = CallAssembler()
    root = chain((0, 100))
    for each in (retriever((10, 20), root), llm((30, 40), root), root):
        assembler.add(each)
    assembler.lose(_lost(llm((50, 60), root), is_genai=False))
    assert len(assembler.take_complete(everything=True)) == 1


def test_a_lost_step_costs_only_the_call_that_it_is_below() -> None:
    """Other calls of the trace are whole."""
    assembler = CallAssembler()
    whole, torn = chain((0, 100)), chain((200, 300), input__value="And in feet?")
    for each in (llm((30, 40), whole), whole, llm((230, 240), torn), torn):
        assembler.add(each)
    assembler.lose(_lost(retriever((210, 220), torn)))
    (call,) = assembler.take_complete(everything=True)
    assert texts(call)[0] == QUERY


def test_a_lost_step_below_an_unknown_span_hinders_no_other_call() -> None:
    """It has no step beside it that a workflow could take over as its answer."""
    assembler, spans = CallAssembler(), whole()
    for each in spans:
        assembler.add(each)
    stray = llm((40, 50), None)
    assembler.lose(LostSpan(stray.context, parent_id=0xABCDEF, is_genai=True))
    (call,) = assembler.take_complete(everything=True)
    assert texts(call) == WHOLE


def test_a_streamed_answer_of_which_a_step_was_lost_makes_its_workflow_incomplete() -> None:
    """The workflow takes over the steps below a span that never ended, and their loss with them."""
    assembler, never_ended = CallAssembler(), chain((10, 200))
    root = chain((0, 100), output__value="")
    answer = llm((30, 90), never_ended)
    inner = llm((40, 50), answer)
    for each in (retriever((10, 20), root), root, answer):
        assembler.add(each)
    assert len(assembler.take_complete()) == 0
    assembler.lose(_lost(inner))
    assert assembler.take_complete(everything=True) == []
    assert (assembler.counts["incomplete"], len(assembler)) == (3, 0)


def test_a_lost_span_that_another_processor_had_room_for_is_a_step() -> None:
    """Each `HoldProcessor` has a queue of its own."""
    assembler, spans = CallAssembler(), whole()
    assembler.lose(_lost(spans[0]))
    for each in spans:
        assembler.add(each)
    (call,) = assembler.take_complete(everything=True)
    assert (texts(call), assembler.counts["incomplete"]) == (WHOLE, 0)


def test_a_flush_does_not_forget_a_root_that_is_open() -> None:
    """A call that takes a minute without a step has its root all the same."""
    clock, root = FakeClock(), chain((0, 100))
    assembler = CallAssembler(clock=clock)
    assembler.observe(_started("chain", root.context, None, genai=True))
    assert assembler.take_complete(everything=True) == []
    clock.advance(61)
    assert assembler.take_complete() == []
    assembler.add(retriever((10, 20), root))
    clock.advance(3)
    assert assembler.take_complete() == []
    for each in (llm((30, 90), root), root):
        assembler.add(each)
    clock.advance(3)
    (call,) = assembler.take_complete()
    assert texts(call) == WHOLE


def test_a_lost_root_is_no_longer_waited_for() -> None:
    """Its start was read, and its end was lost."""
    provider = TracerProvider(shutdown_on_exit=False)
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    assembler = CallAssembler(clock=lambda: 0.0)
    root = tracer.start_span("chain")
    assembler.observe(root)
    child = tracer.start_span("llm", set_span_in_context(root))
    child.set_attribute("openinference.span.kind", "LLM")
    child.end()
    assembler.observe(child)
    assert assembler.take_complete(everything=True) == []
    assert len(assembler) == 1
    assembler.lose(LostSpan(root.get_span_context(), 0, is_genai=True))
    assert assembler.take_complete(everything=True) == []
    assert (len(assembler), assembler.counts["incomplete"]) == (0, 1)


def _begin_unended(assembler: CallAssembler, recorded: Recording) -> None:
    """Let *assembler* see the starts of the spans that were never ended, below the root of their trace if it has one.

    OpenLLMetry never ends the spans around a stream of LlamaIndex.
    """
    known = {each.context.span_id for each in recorded.spans}
    roots = {each.context.trace_id: each.context for each in recorded.spans if each.parent is None}
    for parent in [each.parent for each in recorded.spans if each.parent is not None]:
        if parent.span_id not in known:
            scope = InstrumentationScope("opentelemetry.instrumentation.llamaindex")
            above = roots.get(parent.trace_id)
            assembler.observe(ReadableSpan("CompactAndRefine.task", parent, above, instrumentation_scope=scope))


def test_steps_below_a_root_that_never_ends_are_counted_when_the_process_ends() -> None:
    """A request that still goes on looks the same, so that no call is made of them."""
    recorded = recording("llamaindex_query-openllmetry-stream")
    assembler = CallAssembler(include_own=False)
    _begin_unended(assembler, recorded)
    readings = [reading for each in recorded.spans if (reading := assembler.add(each)) is not None]
    assert assembler.take_complete(everything=True) == []
    assert len(assembler) == len(readings) > 0
    assembler.take_left_out()
    assert assembler.take_last() == []
    assert (len(assembler), assembler.counts["unfinished"]) == (0, len(readings))
    assert assembler.take_left_out() == [reading.span.context for reading in readings]


def test_a_root_that_has_ended_is_a_call_when_the_process_ends() -> None:
    """Of spans below it that never end, nothing more can come."""
    recorded = recording("llamaindex_chat-openllmetry-stream")
    assembler = CallAssembler(include_own=False)
    _begin_unended(assembler, recorded)
    for each in recorded.spans:
        assembler.add(each)
    assert assembler.take_complete(everything=True) == []
    calls = assembler.take_last()
    assert list(map(texts, calls)) == [(call["query"], call["contexts"], call["answer"]) for call in recorded.calls]
    assert (len(assembler), assembler.counts["unfinished"]) == (0, 0)


def test_an_answer_that_is_still_streamed_when_the_process_ends_is_not_known() -> None:
    """The model call that rewrote a question is not taken for it, and calls without a model call are counted."""
    recorded = recording("llamaindex_chat-openllmetry-stream")
    assembler = CallAssembler(include_own=False)
    _begin_unended(assembler, recorded)
    streams = {each.context.span_id for each in recorded.spans if each.name.startswith("StreamingAgentChatResponse")}
    for each in recorded.spans:
        if each.context.span_id in streams or (each.parent is not None and each.parent.span_id in streams):
            streams.add(each.context.span_id)
        else:
            assembler.add(each)
    calls = [call.builder.build() for call in assembler.take_last()]
    assert [(call.query, call.answer, call.answer_captured) for call in calls] == [
        (recorded.calls[1]["query"], None, False)
    ]
    assert assembler.counts["unfinished"] == 6  # of the other two: the workflow, the retrieval and the one inside it
    assert assembler.counts["no_call"] == 0


def test_very_many_lost_steps_of_a_trace_take_bounded_memory() -> None:
    """The trace is evicted: nothing in it can be whole."""
    assembler = CallAssembler()
    root = chain((0, 100_000))
    assembler.add(root)
    for number in range(5_000):
        assembler.lose(_lost(llm((number, number + 1), root)))
    assert assembler.counts["evicted"] == 1


class CountedId(int):
    """Span id that counts how often ids are looked up, which must not be too often, and how many are in memory."""

    looked_up = most_looked_up = 0
    latest: ClassVar = Counter[str]()
    """Counter of the ids of the latest test that are in memory: those of the tests before may be, too."""

    def __new__(cls, value: int) -> CountedId:
        made = super().__new__(cls, value)
        made.counter = cls.latest
        made.counter["alive"] += 1
        return made

    counter: Counter[str]

    def __del__(self) -> None:
        self.counter["alive"] -= 1

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)

    def __hash__(self) -> int:
        CountedId.looked_up += 1
        assert self.looked_up <= self.most_looked_up, f"{self.latest['alive']} spans need {self.looked_up} look-ups"
        return super().__hash__()


def counted_ids(number: int) -> list[CountedId]:
    """Return ids that no other span of these tests has, for spans that need ten look-ups each at most."""
    CountedId.looked_up, CountedId.most_looked_up, CountedId.latest = 0, 10 * number, Counter()
    return [CountedId((1 << 32) + each) for each in range(number)]


def test_the_work_for_a_span_does_not_grow_with_the_number_of_open_spans() -> None:
    """Where very many of one trace wait at the same time; a call among them is found all the same."""
    assembler, root = CallAssembler(clock=FakeClock()), chain((0, 100))
    for span_id in counted_ids(100_000):
        assembler.observe(ReadableSpan("work", span_context(1, span_id), resource=Resource.get_empty()))
    for each in (retriever((10, 20), root), llm((30, 90), root), root):
        assembler.add(each)
    assert [texts(call) for call in assembler.take_complete(everything=True)] == [WHOLE]


def test_the_work_for_steps_without_their_parents_does_not_grow_with_the_square_of_their_number() -> None:
    """In the gateway, each of them may be incomplete because of each other."""
    clock = FakeClock()
    assembler, ids = CallAssembler(clock=clock, needs_parents=True), counted_ids(2_000)
    CountedId.most_looked_up = 200 * len(ids)
    for number, span_id in enumerate(ids):
        made = llm((number, number + 1), answer=f"Answer {number}.", parent_id=10**9 + number)
        assembler.add(replace(made, context=span_context(1, span_id)))
    clock.advance(10)
    assert assembler.take_complete() == []
    assert assembler.counts["incomplete"] == 2_000


def test_a_trace_that_never_ends_takes_bounded_memory() -> None:
    """Of its spans that nothing waits for, the ids are forgotten."""
    assembler, ids = CallAssembler(), counted_ids(100_000)
    while ids:
        assembler.lose(LostSpan(span_context(1, ids.pop()), 0, is_genai=False))
    assert 0 < CountedId.latest["alive"] <= 40_001


def test_a_trace_of_ten_thousand_spans_is_one_call() -> None:
    """An agent that loops for long; the steps that are beyond the limit of a call are counted."""
    root = chain((0, 100_000))
    spans = [llm((number, number + 1), root, f"Step {number}.") for number in range(10_000)]
    before = faults.counts().get("steps of a call left out", 0)
    (call,) = assembled([*spans, root])
    assert texts(call)[2] == ANSWER
    assert len(call.builder.steps) == 2_001
    assert faults.counts()["steps of a call left out"] - before == 8_000


def test_a_circle_of_parents_ends() -> None:
    """Hostile ids must not hang the background."""
    one = llm((0, 1), parent_id=1_000_001)
    assembler = CallAssembler()
    assembler.add(replace(one, context=span_context(1, 1_000_000), parent=span_context(1, 1_000_001)))
    assembler.add(replace(one, context=span_context(1, 1_000_001), parent=span_context(1, 1_000_000)))
    assert len(assembler.take_complete(everything=True)) <= 2


def test_a_workflow_below_a_circle_of_parents_is_a_call() -> None:
    """And the steps in the circle are in no call, which is counted."""
    circle = [span_context(1, 1_000_002), span_context(1, 1_000_003)]
    assembler = CallAssembler()
    for context, parent in zip(circle, reversed(circle), strict=True):
        assembler.add(replace(chain((0, 1)), context=context, parent=parent))
    assembler.add(replace(chain((2, 9)), parent=circle[0]))
    (call,) = assembler.take_complete(everything=True)
    assert texts(call) == (QUERY, None, ANSWER)
    assert assembler.counts["no_call"] == 2


@pytest.mark.parametrize("seed", range(20))
def test_each_step_is_in_one_call_or_left_out_once(seed: int) -> None:
    """Whatever comes in, in any order and twice, is lost, has no room, or is taken before the rest has come."""
    chance, clock = random.Random(seed), FakeClock()
    is_small = seed % 3 == 0  # then steps are evicted, of which those that come in twice are counted twice
    assembler = CallAssembler(
        most_spans=12 if is_small else 1_000,
        most_traces=2 if is_small else 1_000,
        needs_parents=seed % 2 > 0,
        clock=clock,
    )
    calls: list[AssembledCall] = []
    left_out: list[SpanContext] = []
    spans = [each for trace in range(1, 9) for each in _request(chance, trace)]
    chance.shuffle(spans)
    for each in [*spans, *chance.sample(spans, 10)]:
        match chance.randint(0, 9):
            case 0:
                assembler.lose(_lost(each))
            case 1 | 2:
                assembler.observe(_started(each.name, each.context, each.parent, genai=True))
                assembler.add(each)
            case 3:
                assembler.observe(_started(each.name, each.context, each.parent, genai=True))
            case _:
                assembler.add(each)
        clock.advance(chance.choice([0.0, 0.5, 3.0]))
        calls += assembler.take_complete(everything=chance.random() < 0.1)
        left_out += assembler.take_left_out()
        in_calls = [reading.span.context for call in calls for reading in call.readings]
        assert len(in_calls) + len(left_out) + len(assembler) == assembler.counts["spans"]
    for _ in range(2):  # longer than anything is waited for
        clock.advance(700.0)
        calls += assembler.take_complete()
    assert len(assembler) == 0
    assert assembler.take_last() == []
    left_out += assembler.take_left_out()
    found = [*(reading.span.context for call in calls for reading in call.readings), *left_out]
    assert len(found) == assembler.counts["spans"]
    assert left_out
    if not is_small:
        assert calls
        assert max(Counter(each.span_id for each in found).values()) == 1
    assert len(left_out) == sum(assembler.counts[why] for why in assembler.LEFT_OUT)


def _request(chance: random.Random, trace: int) -> list[FinishedSpan]:
    """The spans of a request: some have a span above them that never comes in, and some another instrumentation's."""
    start = chance.randint(0, 1_000)
    above = chance.choice([None, None, 10**9 + trace])
    root = chain((start, start + 100), trace=trace, parent_id=above)
    answer = chance.choice([ANSWER, "I do not know."])
    spans = [retriever((start + 10, start + 20), root), llm((start + 30, start + 90), root, answer), root]
    if chance.random() < 0.5:
        other = "opentelemetry.instrumentation.langchain"
        lesser = chain((start + 1, start + 99), trace=trace + 100, scope=other)
        spans += [llm((start + 31, start + 89), lesser, answer, scope=other), lesser]
    return spans


def test_a_start_that_a_second_span_processor_hands_over_opens_no_step_that_has_ended() -> None:
    """A flush may come between the start and the end that it hands over."""
    assembler, spans = CallAssembler(), whole()
    for each in spans:
        assembler.observe(_started(each.name, each.context, each.parent, genai=True))
        assembler.add(each)
    for each in spans:
        assembler.observe(_started(each.name, each.context, each.parent, genai=True))
    assert [texts(call) for call in assembler.take_complete(everything=True)] == [WHOLE]
    for each in spans:
        assembler.observe(_started(each.name, each.context, each.parent, genai=True))
        assembler.add(each)
    assert assembler.take_last() == []
    assert (assembler.counts["spans"], len(assembler)) == (3, 0)


def test_a_retrieval_that_was_taken_out_of_its_call_is_given_back() -> None:
    """What holds its span back from export can let it go, and it is counted."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    found = [retriever((10, 20), server), retriever((11, 21), server, "Other.")]
    assembler = CallAssembler()
    for each in (*found, llm((30, 90), server), llm((31, 91), server, "Another.")):
        assembler.add(each)
    assert len(assembler.take_complete(everything=True)) == 2
    assert assembler.take_left_out() == [each.context for each in found]
    assert assembler.counts["no_call"] == 2


# --- spans of other processes -----------------------------------------------------------------------------------------


def remote_assembler(clock: FakeClock) -> CallAssembler:
    return CallAssembler(needs_parents=True, settle_seconds=2.0, parent_seconds=30.0, clock=clock)


def test_a_call_of_another_process_waits_for_the_spans_above_it() -> None:
    """A long workflow is exported after its steps: these are no call of their own meanwhile."""
    clock = FakeClock()
    assembler = remote_assembler(clock)
    found, generated, root = whole()
    assembler.add(found)
    clock.advance(20)
    assembler.add(generated)
    assert assembler.take_complete() == []
    clock.advance(20)
    assembler.add(root)
    clock.advance(3)
    (call,) = assembler.take_complete()
    assert texts(call) == WHOLE
    assert assembler.counts["incomplete"] == 0


@pytest.mark.parametrize("everything", [False, True])
def test_a_call_without_its_root_is_incomplete(everything: bool) -> None:
    """The root went to another replica, or was lost: the steps are counted, and not scored as if they were all."""
    clock = FakeClock()
    assembler = remote_assembler(clock)
    for each in whole()[:2]:
        assembler.add(each)
    clock.advance(0 if everything else 31)
    assert assembler.take_complete(everything=everything) == []
    assert (assembler.counts["incomplete"], assembler.counts["no_call"], len(assembler)) == (2, 0, 0)


def test_a_call_beside_a_step_without_its_parent_is_incomplete() -> None:
    """The step may be part of the call; another call of the trace, before it, is complete."""
    clock = FakeClock()
    assembler = remote_assembler(clock)
    for each in (*whole(), llm((120, 130), parent_id=10**9, answer="Something else.")):
        assembler.add(each)
    root = chain((110, 140), output__value="Another.")
    for each in (retriever((111, 115), root, "Other."), llm((116, 118), root, "Another."), root):
        assembler.add(each)
    clock.advance(31)
    (call,) = assembler.take_complete()
    assert texts(call) == WHOLE
    assert assembler.counts["incomplete"] == 4


def test_a_missing_span_of_another_process_does_not_make_a_call_incomplete() -> None:
    """The caller of a service may not be traced, or export to another backend."""
    clock = FakeClock()
    assembler = remote_assembler(clock)
    found, generated, root = whole()
    caller = SpanContext(1, 10**9, is_remote=True, trace_flags=TraceFlags(1))
    for each in (found, generated, replace(root, parent=caller)):
        assembler.add(each)
    clock.advance(31)
    (call,) = assembler.take_complete()
    assert texts(call) == WHOLE


# --- several calls in each of the groups ------------------------------------------------------------------------------


def _batch(scope: str, trace: int, shift: int = 0, *, documents: bool = True) -> list[FinishedSpan]:
    """Two requests under the span of a server, as one instrumentation records them."""
    server = span("", (0, 400), trace=trace, scope="opentelemetry.instrumentation.asgi")
    spans: list[FinishedSpan] = []
    for number, answer in enumerate((ANSWER, "Another.")):
        start = 200 * number + shift
        root = chain((start, start + 100), server, scope=scope, output__value=answer)
        found = [retriever((start + 10, start + 20), root, scope=scope)] if documents else []
        spans += [*found, llm((start + 30, start + 90), root, answer, scope=scope), root]
    return [*spans, server]


@pytest.mark.parametrize("seed", range(40))
def test_the_calls_are_the_requests_however_they_lie_and_come_in(seed: int) -> None:
    """Alone, in a batch, or in a chain of leaked contexts; recorded once, or twice with and without documents."""
    chance, clock = random.Random(seed), FakeClock()
    assembler = CallAssembler(clock=clock, needs_parents=seed % 2 > 0)
    spans: list[FinishedSpan] = []
    expected: list[tuple[str, list[str], str]] = []
    for group in range(chance.randint(1, 4)):
        shape, n_requests = chance.choice(["alone", "batch", "chain"]), chance.randint(1, 4)
        names = [f"{group}.{number}" for number in range(n_requests)]
        is_double = chance.random() < 0.5
        spans += _recording(shape, names, 100 * group + 1, 0, "openinference.instrumentation.langchain", documents=True)
        if is_double:
            other, documents = "opentelemetry.instrumentation.langchain", chance.random() < 0.5
            spans += _recording(shape, names, 100 * group + 50, 1, other, documents=documents)
        expected += [(QUERY, [f"Passage {name}."], f"Answer {name}.") for name in names]
    chance.shuffle(spans)
    calls: list[AssembledCall] = []
    for each in spans:
        assembler.add(each)
        calls += assembler.take_complete()
        clock.advance(0.01)
    clock.advance(6)
    calls += assembler.take_complete()
    assert sorted(texts(call) for call in calls) == sorted(expected)
    assert (len(assembler), assembler.counts["late"], assembler.counts["incomplete"]) == (0, 0, 0)


def _recording(
    shape: str, names: Sequence[str], trace: int, shift: int, scope: str, *, documents: bool
) -> list[FinishedSpan]:
    """The spans of some requests, one after the other, as one instrumentation records them.

    Args:
        shape: "alone": each in a trace of its own; "batch": under the span of a server; "chain": below the one before.
        names: of the requests, which their answers and documents have.
        trace: id of the first trace.
        shift: by how many milliseconds later than others this instrumentation sees everything.
        scope: of the spans.
        documents: whether retrievals are recorded.
    """
    server = span("", (0, 1_000_000), trace=trace, scope="opentelemetry.instrumentation.asgi")
    above = server if shape == "batch" else None
    spans = [server] if shape == "batch" else []
    for number, name in enumerate(names):
        start, answer = 200 * number + shift, f"Answer {name}."
        own_trace = trace + number if shape == "alone" else trace
        root = chain((start, start + 100), above, trace=own_trace, scope=scope, output__value=answer)
        if documents:
            spans.append(retriever((start + 10, start + 20), root, f"Passage {name}.", scope=scope))
        spans += [llm((start + 30, start + 90), root, answer, scope=scope), root]
        above = root if shape == "chain" else above
    return spans


def _moved(given: FinishedSpan, trace: int) -> FinishedSpan:
    """The same span in another trace, where a workflow is a root."""
    above = None if given.name == "chain" or given.parent is None else given.parent.span_id
    parent = None if above is None else span_context(trace, above)
    return replace(given, context=span_context(trace, given.context.span_id), parent=parent)


@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("separate", [True, False])
def test_two_recordings_of_several_calls_do_not_wait_for_each_other(documents: bool, separate: bool) -> None:
    """Each call is compared with the other recording of it, and not with all that is under the same span."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    one = _batch("openinference.instrumentation.langchain", 1)
    other = _batch("opentelemetry.instrumentation.langchain", 2, 1, documents=documents)
    if separate:  # without the server's span, each call of the one recording is in a trace of its own
        one = [_moved(each, 10 + number // 3) for number, each in enumerate(one[:-1])]
    for each in [*other, *one]:
        assembler.add(each)
    clock.advance(3)
    calls = assembler.take_complete()
    assert sorted(texts(call) for call in calls) == sorted([WHOLE, (QUERY, [PASSAGE], "Another.")])
    assert len(assembler) == 0
    assert assembler.counts["duplicates"] == len(other) - 1


def test_of_two_recordings_that_each_show_more_of_one_call_each_gives_one() -> None:
    """Neither group waits for the other, and the better recording of each call is the call."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    one = _batch("openinference.instrumentation.langchain", 1)
    other = _batch("opentelemetry.instrumentation.langchain", 2, 1)
    without_first = [each for each in one if each != one[0]]
    without_second = [each for each in other if each != other[3]]
    for each in [*without_first, *without_second]:
        assembler.add(each)
    clock.advance(3)
    calls = assembler.take_complete()
    assert sorted(texts(call) for call in calls) == sorted([WHOLE, (QUERY, [PASSAGE], "Another.")])


@pytest.mark.parametrize("starts", [True, False])
def test_requests_that_a_leaked_context_chains_are_calls_after_the_first_was_returned(starts: bool) -> None:
    """Each begins after the end of the workflow above it, and is none of its parts."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    above: FinishedSpan | None = None
    for number in range(4):
        root = chain((1_000 * number, 1_000 * number + 100), above, output__value=f"Answer {number}.")
        spans = [retriever((1_000 * number + 10, 1_000 * number + 20), root, f"Passage {number}.")]
        spans += [llm((1_000 * number + 30, 1_000 * number + 90), root, f"Answer {number}.")]
        for each in (root, *spans) if starts else ():
            assembler.observe(_started(each.name, each.context, each.parent, genai=True, at=each.start_ns))
        for each in (*spans, root):
            assembler.add(each)
        clock.advance(3)
        assert [texts(call) for call in assembler.take_complete()] == [
            (QUERY, [f"Passage {number}."], f"Answer {number}.")
        ]
        above = root
    assert assembler.counts["late"] == 0


@pytest.mark.parametrize("kind", ["RETRIEVER", "CHAIN"])
def test_steps_that_waited_for_an_open_span_which_was_no_request_are_late(kind: str) -> None:
    """Once it has ended: as a step without a question of its own, it belongs to the call that was returned."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    spans = whole()
    for each in spans:
        assembler.add(each)
    clock.advance(3)
    assert len(assembler.take_complete()) == 1
    tail = span(kind, (200, 300), spans[-1])
    inside = retriever((210, 220), tail, "Other.")
    assembler.observe(_started("tail", tail.context, tail.parent, genai=True, at=tail.start_ns))
    assembler.add(inside)
    assert (len(assembler), assembler.counts["late"]) == (1, 0)
    assembler.add(tail)
    assert (len(assembler), assembler.counts["late"]) == (0, 2)
    assert {each.span_id for each in assembler.take_left_out()} == {inside.context.span_id, tail.context.span_id}


@pytest.mark.parametrize("needs_parents", [True, False])
def test_equal_answers_of_requests_without_their_roots_are_two_calls(needs_parents: bool) -> None:
    """Both under spans that never come in; the same sentence at another time is no recording of the same call."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock, needs_parents=needs_parents)
    prompt = f"Context:\n{PASSAGE}\n\nQuestion: {QUERY}"
    for number in range(2):
        made = llm(
            (1_000 * number, 1_000 * number + 50), answer="I do not know.", prompt=prompt, parent_id=10**9 + number
        )
        assert made.parent is not None
        remote = SpanContext(made.parent.trace_id, made.parent.span_id, is_remote=True)
        assembler.add(replace(made, parent=remote))
    clock.advance(10)
    assert len(assembler.take_complete()) == 2
    assert assembler.counts["duplicates"] == 0


def test_a_step_lost_below_an_open_span_makes_the_call_that_comes_incomplete() -> None:
    """However long after the loss the rest of the call comes in."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    assembler.observe(_started("POST /ask", server.context, None, genai=False))
    assembler.lose(_lost(retriever((10, 20), server)))
    clock.advance(60)
    assert assembler.take_complete() == assembler.take_complete(everything=True) == []
    for each in (retriever((110, 120), server), llm((130, 190), server), server):
        assembler.add(each)
    clock.advance(6)
    assert assembler.take_complete() == []
    assert assembler.counts["incomplete"] == 2


def test_equal_answers_to_different_questions_at_the_same_time_are_two_calls() -> None:
    """Two services behind one gateway, each with an instrumentation of its own."""
    other = "opentelemetry.instrumentation.langchain"
    spans: list[FinishedSpan] = []
    for trace, scope, question in ((1, "openinference.instrumentation.langchain", QUERY), (2, other, "Who built it?")):
        root = chain((trace, 100), trace=trace, scope=scope, input__value=question, output__value="I do not know.")
        spans += [retriever((10, 20), root, scope=scope)]
        spans += [llm((30 + trace, 90), root, "I do not know.", question, scope=scope), root]
    assert len(assembled(spans)) == 2


# --- steps that leave the buffer before the rest of their call has come -----------------------------------------------

CLIENT = "openinference.instrumentation.openai"


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("documents", [True, False])
def test_the_spans_of_a_models_client_wait_for_the_workflow_around_the_model_call(
    is_open: bool, documents: bool
) -> None:
    """Its root is open in this process, or has not come to the gateway: nobody knows yet which answer is the last."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock, needs_parents=not is_open)
    prompt = f"Context:\n{PASSAGE}\n\nQuestion: {QUERY}"
    root = chain((0, 9_000), output__value="Final answer.")
    if is_open:
        assembler.observe(_started("chain", root.context, None, genai=True))
    spans = [retriever((10, 20), root)] if documents else []
    for number, answer in enumerate(("A draft of the answer.", "A second draft of it.")):
        at = (100 * number + 30, 100 * number + 90)
        spans += [
            llm(at, root, answer, prompt),
            llm((at[0] + 1, at[1] - 1), None, answer, prompt, trace=2 + number, scope=CLIENT),
        ]
    for each in spans:
        assembler.add(each)
    for _ in range(4):
        clock.advance(1)
        assert assembler.take_complete() == []
    assembler.add(root)
    clock.advance(3)
    assert [texts(call) for call in assembler.take_complete()] == [(QUERY, [PASSAGE], "Final answer.")]
    assert (assembler.counts["duplicates"], len(assembler)) == (2, 0)


@pytest.mark.parametrize("needs_parents", [True, False])
def test_the_root_of_a_duplicate_is_one_too_however_late_it_comes(needs_parents: bool) -> None:
    """Its model call was in the other recording's call."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock, needs_parents=needs_parents)
    lesser = chain((1, 20_000), trace=2, scope="opentelemetry.instrumentation.langchain")
    for each in (*whole(), llm((31, 89), lesser, scope="opentelemetry.instrumentation.langchain")):
        assembler.add(each)
    clock.advance(10)
    calls = assembler.take_complete()
    clock.advance(10)
    calls += assembler.take_complete()
    assembler.add(lesser)
    clock.advance(10)
    calls += assembler.take_complete()
    assert [texts(call) for call in calls] == [WHOLE]
    assert assembler.counts["duplicates"] == 2


def test_a_root_whose_retrieval_was_given_up_is_no_call_without_contexts() -> None:
    """Nobody would see that it had any."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    root = chain((0, 700_000))
    assembler.observe(_started("chain", root.context, None, genai=True))
    assembler.add(retriever((10, 20), root))
    clock.advance(601)
    assert assembler.take_complete() == []
    for each in (llm((650_000, 690_000), root), root):
        assembler.add(each)
    clock.advance(3)
    assert assembler.take_complete() == []
    assert (assembler.counts["incomplete"], len(assembler)) == (1, 0)


def test_a_root_is_late_though_a_leaked_request_below_it_was_a_call_of_its_own() -> None:
    """Its own steps have left the buffer before that."""
    clock = FakeClock()
    assembler = CallAssembler(clock=clock)
    root = chain((0, 100))
    second = chain((150, 250), root, output__value="Another.")
    calls: list[AssembledCall] = []
    own = [retriever((10, 20), root), llm((30, 90), root)]
    for spans in (own, [retriever((160, 170), second, "Other."), llm((180, 240), second, "Another."), second], [root]):
        for each in spans:
            assembler.add(each)
        clock.advance(3)
        calls += assembler.take_complete()
    assert [texts(call)[1:] for call in calls] == [([PASSAGE], ANSWER), (["Other."], "Another.")]
    assert assembler.counts["late"] == 1


def test_a_call_that_cannot_be_built_is_counted_and_the_others_are_built() -> None:
    """All of its steps have left the buffer by then."""
    assembler, spans = CallAssembler(), []
    for number in range(3):
        root = chain((1_000 * number, 1_000 * number + 100), trace=number + 1, output__value=f"Answer {number}.")
        spans += [llm((1_000 * number + 30, 1_000 * number + 90), root, f"Answer {number}."), root]
    read = [assembler.add(each) for each in spans]
    for reading in read:
        if reading is not None and reading.span.context.trace_id == 2:
            reading.step.prompt = cast("Any", "of no type that a step has")
    before = faults.counts().get("assembly of a call from spans", 0)
    calls = assembler.take_complete(everything=True)
    assert [texts(call)[2] for call in calls] == ["Answer 0.", "Answer 2."]
    assert (assembler.counts["failed"], len(assembler.take_left_out())) == (2, 2)
    assert faults.counts()["assembly of a call from spans"] == before + 1


@pytest.mark.parametrize("is_doubled", [True, False])
def test_a_group_that_cannot_be_divided_is_counted_and_the_others_are_calls(is_doubled: bool) -> None:
    """Also where it is compared with another recording before."""
    assembler = CallAssembler()
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    bad = [retriever((10, 20), server), llm((30, 90), server), llm((31, 91), server, "Another.")]
    own = llm((32, 88), None, trace=2, scope=CLIENT, prompt=PASSAGE)
    healthy = chain((0, 100), trace=3, output__value="Healthy.")
    for each in (*bad, *([own] if is_doubled else []), llm((30, 90), healthy, "Healthy."), healthy):
        reading = assembler.add(each)
        if reading is not None and each in bad and reading.step.kind == "generate":
            reading.step.prompt = cast("Any", "of no type that a step has")
    before = faults.counts().get("division of spans into calls", 0)
    calls = assembler.take_complete(everything=True)
    assert "Healthy." in [texts(call)[2] for call in calls]
    assert (assembler.counts["failed"], len(assembler)) == (3, 0)
    assert faults.counts()["division of spans into calls"] > before


def test_the_work_to_divide_a_group_does_not_grow_with_the_square_of_its_steps() -> None:
    """Many requests lie under the span of a batch."""
    server = span("", (0, 10**7), scope="opentelemetry.instrumentation.asgi")
    assembler, ids = CallAssembler(), counted_ids(4_000)
    CountedId.most_looked_up = 100 * len(ids)
    for number in range(2_000):
        found = retriever((100 * number, 100 * number + 10), server, f"Passage {number}.")
        answered = llm((100 * number + 20, 100 * number + 90), server, f"Answer {number}.", f"Passage {number}. What?")
        for each in (found, answered):
            assembler.add(replace(each, context=span_context(1, ids.pop())))
    assembler.add(server)
    assert len(assembler.take_complete(everything=True)) == 2_000
