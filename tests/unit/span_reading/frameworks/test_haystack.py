"""`ragtrace.instrument("haystack")`: pipelines and agents of Haystack, not decorated, give calls with whole texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import ragtrace
from ragtrace.core.types import RagCall
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.frameworks import library
from tests.support.watched import GOOD, Watched

QUESTION = "How tall is the Eiffel Tower?"


@pytest.fixture
def rag() -> Any:
    """The applications of Haystack."""
    if int(version("haystack-ai").split(".")[0]) == 2 and int(version("haystack-ai").split(".")[1]) < 31:
        pytest.skip("the listener is checked with Haystack 2.31 and later")
    return library("tests.support.haystack_rag")


@pytest.fixture(autouse=True)
def _instrumented(rag: Any) -> None:
    faults.clear()
    ragtrace.instrument("haystack")


def texts(call: RagCall) -> list[str]:
    """Return the texts of the call's contexts."""
    return [document.text for document in call.contexts or ()]


def run(pipeline: Any, inputs: dict[str, Any]) -> str:
    """Return the answer of a pipeline."""
    return str(pipeline.run(inputs)["answer"]["answers"][0].data)


def run_async(pipeline: Any, inputs: dict[str, Any]) -> str:
    """Return the answer of a pipeline that runs asynchronously."""
    return str(asyncio.run(pipeline.run_async(inputs))["answer"]["answers"][0].data)


@pytest.mark.parametrize("ask", [run, run_async], ids=["sync", "async"])
def test_a_pipeline_is_one_call(rag: Any, ask: Any) -> None:
    """Query, contexts in their order, answer, model and tokens are those of the application."""
    watched = Watched()
    answer = ask(rag.pipeline(), rag.inputs(QUESTION))
    call = watched.call()
    assert (call.query, call.answer, call.workflow) == (QUESTION, answer, "Pipeline")
    assert answer == f"I was asked: {QUESTION}"
    assert (texts(call), call.context_source) == (list(rag.TEXTS[:2]), "retriever")
    assert (call.model, (call.usage.input_tokens, call.usage.output_tokens)) == (rag.MODEL, rag.TOKENS)
    assert len(watched.captured.spans) == 3


def test_the_content_of_spans_stays_off_for_others(rag: Any) -> None:
    """Haystack's own setting is left as it was, and the application's tracer gets what it got before."""
    tracer = OwnTracer()
    with enabled(tracer):
        watched = Watched()
        run(rag.pipeline(), rag.inputs(QUESTION))
        assert watched.call().query == QUESTION
    names = {name for span in tracer.spans for name in span.tags}
    assert "haystack.component.name" in names
    assert "haystack.component.input" not in names
    operations = [span.operation for span in tracer.spans]
    assert operations == ["haystack.pipeline.run", *4 * ["haystack.component.run"]]
    assert [span.parent for span in tracer.spans] == [None, *4 * [tracer.spans[0]]]


class OwnTracer:
    """Tracer of an application."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    @contextmanager
    def trace(self, operation_name: str, tags: Any = None, parent_span: Any = None) -> Iterator[Any]:
        """Keep the span."""
        tracing = library("haystack.tracing")

        class OwnSpan(tracing.Span):  # type: ignore[misc]
            operation, parent = operation_name, parent_span

            def __init__(self) -> None:
                self.tags = dict(tags or {})

            def set_tag(self, key: str, value: Any) -> None:
                self.tags[key] = value

        span = OwnSpan()
        self.spans.append(span)
        yield span

    def current_span(self) -> Any:
        """Return the last span."""
        return self.spans[-1] if self.spans else None


@contextmanager
def enabled(tracer: Any) -> Iterator[None]:
    """Enable the tracer of an application, which may come after ragtrace's listener."""
    tracing = library("haystack.tracing")
    tracing.enable_tracing(tracer)
    try:
        yield
    finally:
        tracing.disable_tracing()


def test_spans_of_the_application_s_tracer_make_no_second_call(rag: Any) -> None:
    """Whatever their instrumentation scope; others inside are steps of the call."""
    provider = TracerProvider()
    tracer = provider.get_tracer("shop")

    class SpanTracer(OwnTracer):
        @contextmanager
        def trace(self, operation_name: str, tags: Any = None, parent_span: Any = None) -> Iterator[Any]:
            shown = {name: json.dumps(value, default=str) for name, value in (tags or {}).items()}
            with (
                tracer.start_as_current_span(operation_name, attributes=shown),
                super().trace(operation_name, tags, parent_span) as span,
            ):
                yield span

    judge = FakeJudge(GOOD)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=judge, evaluate_spans=True)
    with enabled(SpanTracer()):
        answer = run(rag.pipeline(), rag.inputs(QUESTION))
    assert ragtrace.flush()
    assert [(call.query, call.answer) for call in judge.calls] == [(QUESTION, answer)]
    assert ragtrace.stats().faults == {}
    provider.shutdown()


@pytest.mark.parametrize("ask", [run, run_async], ids=["sync", "async"])
def test_contexts_are_what_a_ranker_left(rag: Any, ask: Any) -> None:
    """The model was given these only, also where the result shows what a retriever found."""
    watched = Watched()
    ask(rag.pipeline(ranked=1), rag.inputs(QUESTION))
    call = watched.call()
    assert (texts(call), call.context_source) == ([rag.TEXTS[0]], "reranker")


def test_a_joiner_replaces_what_retrievers_found(rag: Any) -> None:
    """Its documents are those that the model was given."""
    watched = Watched()
    run(rag.pipeline(hybrid=True), rag.inputs(QUESTION, second={"query": "How long is the Seine?"}))
    found = texts(watched.call())
    assert len(found) == len(set(found))
    assert {rag.TEXTS[0], rag.TEXTS[3]} <= set(found)


def test_documents_in_the_result_are_not_taken_for_the_contexts(rag: Any) -> None:
    """An application may ask for the output of any component."""
    watched = Watched()
    rag.pipeline(ranked=1).run(rag.inputs(QUESTION), include_outputs_from={"retriever"})
    assert texts(watched.call()) == [rag.TEXTS[0]]


def test_a_streaming_callback_goes_on(rag: Any) -> None:
    """It is the application's."""
    watched = Watched()
    pieces: list[str] = []
    callback = {"streaming_callback": lambda chunk: pieces.append(chunk.content)}
    answer = run(rag.pipeline(), rag.inputs(QUESTION, llm=callback))
    call = watched.call()
    assert (call.query, call.answer) == (QUESTION, answer)
    assert " ".join(pieces) == answer


def test_an_asynchronous_pipeline_that_is_read_step_by_step(rag: Any) -> None:
    """The reader's own code is not part of the call."""

    @ragtrace.retrieve
    def search(query: str) -> list[str]:
        return ["the reader's own"]

    async def read() -> None:
        async for _ in rag.pipeline().run_async_generator(rag.inputs(QUESTION)):
            search("something else")

    watched = Watched()
    asyncio.run(read())
    assert texts(watched.call()) == list(rag.TEXTS[:2])


def test_an_asynchronous_pipeline_that_is_left(rag: Any) -> None:
    """The call ends, and the next one is not part of it."""

    async def leave() -> None:
        steps = rag.pipeline().run_async_generator(rag.inputs(QUESTION))
        await anext(steps)
        await steps.aclose()
        await rag.pipeline().run_async(rag.inputs("How long is the Seine?"))

    watched = Watched()
    asyncio.run(leave())
    assert [call.query for call in watched.calls()][-1] == "How long is the Seine?"
    assert ragtrace.stats().pending == 0


def test_an_error_reaches_the_application_and_ends_the_call(rag: Any) -> None:
    """As Haystack raises it."""
    watched = Watched()
    with pytest.raises(library("haystack.core.errors").PipelineRuntimeError, match="gone"):
        rag.pipeline(error="gone").run(rag.inputs(QUESTION))
    assert ragtrace.flush()
    assert watched.captured.root().status.status_code.name == "ERROR"
    assert ragtrace.stats().faults == {}


def agent(rag: Any, function: Any) -> Any:
    """Return an agent with a tool."""
    tools = library("haystack.tools")
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = tools.Tool("look_up", "Look something up.", schema, function)
    return library("haystack.components.agents").Agent(chat_generator=rag.EchoChatGenerator(), tools=[tool])


@pytest.mark.parametrize(
    ("result", "expected"),
    [("330 metres", ["330 metres"]), ('[{"content": "one"}, {"content": "two"}]', ["one", "two"])],
)
def test_an_agent_is_one_call(rag: Any, result: str, expected: list[str]) -> None:
    """With what its tool returned, as documents where that is JSON with documents."""
    watched = Watched()
    made = agent(rag, lambda query: result)
    answer = made.run(messages=[rag.ChatMessage.from_user(QUESTION)])["last_message"].text
    call = watched.call()
    assert (call.query, call.answer, call.workflow) == (QUESTION, answer, "Agent")
    assert (texts(call), call.context_source) == (expected, "tool")


def test_a_pipeline_as_the_tool_of_an_agent_is_part_of_its_call(rag: Any) -> None:
    """Its retrieval is the evidence, and its answer is none."""
    watched = Watched()
    made = agent(rag, lambda query: run(rag.pipeline(), rag.inputs(query)))
    made.run(messages=[rag.ChatMessage.from_user(QUESTION)])
    call = watched.call()
    assert call.workflow == "Agent"
    assert (texts(call), call.context_source) == (list(rag.TEXTS[:2]), "retriever")


def test_a_tool_that_fails_is_marked(rag: Any) -> None:
    """The agent goes on."""

    def fail(query: str) -> str:
        raise LookupError("no such height")

    watched = Watched()
    agent(rag, fail).run(messages=[rag.ChatMessage.from_user(QUESTION)])
    assert watched.call().query == QUESTION
    (tool,) = [span for span in watched.captured.spans if span.name == "execute_tool look_up"]
    assert tool.status.status_code.name == "ERROR"


def test_requests_in_threads_do_not_mix(rag: Any) -> None:
    """Each call has its own query and answer."""
    watched = Watched()
    questions = [f"How tall is tower number {number}?" for number in range(24)]
    pipeline = rag.pipeline()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda question: run(pipeline, rag.inputs(question)), questions))
    found = {call.query: call for call in watched.calls()}
    assert [found[question].answer for question in questions] == answers
    assert len(watched.judge.calls) == len(questions)
    assert all(len(call.contexts or ()) == 2 for call in watched.judge.calls)


def test_requests_in_tasks_do_not_mix(rag: Any) -> None:
    """Nor those of one event loop."""
    watched = Watched()
    questions = [f"How tall is tower number {number}?" for number in range(24)]
    pipeline = rag.pipeline()

    async def ask_all() -> list[Any]:
        return await asyncio.gather(*(pipeline.run_async(rag.inputs(question)) for question in questions))

    answers = [result["answer"]["answers"][0].data for result in asyncio.run(ask_all())]
    found = {call.query: call for call in watched.calls()}
    assert [found[question].answer for question in questions] == answers


def test_a_pipeline_inside_a_decorated_function_is_part_of_its_call(rag: Any) -> None:
    """One call, with the decorated function as its root."""
    watched = Watched()

    @ragtrace.trace(name="guide")
    def guide(question: str) -> str:
        return run(rag.pipeline(), rag.inputs(question))

    answer = guide(QUESTION)
    call = watched.call()
    assert (call.workflow, call.answer, texts(call)) == ("guide", answer, list(rag.TEXTS[:2]))


def test_decorated_functions_inside_a_component_are_part_of_its_call(rag: Any) -> None:
    """Their spans are below those of the pipeline."""

    @ragtrace.generate(model="draft")
    def draft(question: str) -> str:
        return "a draft"

    class Drafting(type(rag.EchoChatGenerator())):  # type: ignore[misc]
        def run(self, messages: Any, **options: Any) -> Any:
            draft(QUESTION)
            return rag.EchoChatGenerator().run(messages)

    watched = Watched()
    pipeline = rag.pipeline()
    pipeline.get_component("llm").run = Drafting().run
    run(pipeline, rag.inputs(QUESTION))
    watched.call()
    assert len(watched.captured.spans) == 4
    assert len({span.context.trace_id for span in watched.captured.spans if span.context}) == 1


def test_the_session_is_among_the_inputs(rag: Any) -> None:
    """Haystack has none itself."""
    watched = Watched()
    run(rag.pipeline(), rag.inputs(QUESTION, retriever={"query": QUESTION, "session_id": "visit-7"}))
    assert watched.call().conversation_id == "visit-7"


def test_a_pipeline_that_writes_documents_is_no_call(rag: Any) -> None:
    """Documents are given and returned there, too."""
    watched = Watched()
    documents = [rag.Document(content=text) for text in rag.TEXTS]
    rag.indexing().run({"splitter": {"documents": documents}})
    assert watched.calls() == []
    assert watched.captured.spans == ()


def test_nothing_is_recorded_after_uninstrument(rag: Any) -> None:
    """And Haystack has its own tracer back."""
    tracing = library("haystack.tracing.tracer")
    watched = Watched()
    run(rag.pipeline(), rag.inputs(QUESTION))
    ragtrace.uninstrument("haystack")
    run(rag.pipeline(), rag.inputs(QUESTION))
    assert watched.call().query == QUESTION
    assert type(tracing.tracer) is tracing.ProxyTracer
