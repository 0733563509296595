"""`ragtrace.instrument("langchain")`: calls of chains that are not decorated."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall
from ragtrace.runtime.current_runtime import current
from ragtrace.span_reading.frameworks.runs import FrameworkRuns
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge, OpenAIServer, Reply, Request
from ragtrace_exporters.console import call_text
from tests.support.decisions import top_logprobs
from tests.support.watched import GOOD, WAIT_S, eventually, watch

# Versions of langchain-core before 0.3.50 read a field that pydantic 2.11 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_fields' attribute:DeprecationWarning")
KIND = "openinference.span.kind"
TEXTS = ["Paris is a big city.", "Mars is a planet."]
PASSED = RunnablePassthrough[Any]()
PROMPT = ChatPromptTemplate.from_messages([("system", "Answer from: {context}"), ("human", "{question}")])


@pytest.fixture(autouse=True)
def _no_faults_so_far() -> None:
    faults.clear()


def runnable(function: Callable[[Any], Any]) -> Any:
    """Return *function* as a part of a chain."""
    return RunnableLambda(function)


class Texts(BaseRetriever):
    """Retriever that finds the same texts for every query, or fails."""

    fails: bool = False

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        if self.fails:
            raise ConnectionError("no index")
        return [Document(page_content=text) for text in TEXTS]


class Echo(BaseChatModel):
    """Chat model that answers with the question in upper case, streamed by words; or fails."""

    fails: bool = False

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if self.fails:
            raise ConnectionError("no model")
        usage = UsageMetadata(input_tokens=7, output_tokens=3, total_tokens=10)
        answer = AIMessage(content=str(messages[-1].content).upper(), usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        if self.fails:
            raise ConnectionError("no model")
        for word in str(messages[-1].content).upper().split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))


def rag(model: Any = None, retriever: BaseRetriever | None = None) -> Any:
    """Return the usual chain of retriever, prompt, model and parser."""
    answering = PROMPT | (Echo() if model is None else model) | StrOutputParser()
    context = retriever or Texts()
    return {"context": context, "question": PASSED} | answering


class Watched:
    """ragtrace, configured with a judge that keeps its calls, and listening to LangChain."""

    def __init__(self, **settings: Any) -> None:
        self.judge = FakeJudge(GOOD)
        self.captured: Captured = watch(screen=self.judge, **settings)
        ragtrace.instrument("langchain")

    @property
    def calls(self) -> list[RagCall]:
        """All calls so far, in the order of their questions."""
        assert ragtrace.flush()
        return sorted(self.judge.calls, key=lambda call: call.query or "")

    @property
    def call(self) -> RagCall:
        """The only call."""
        (call,) = self.calls
        return call

    def spans(self) -> list[str]:
        """Names of the spans in the order of their starts."""
        assert ragtrace.flush()
        return [span.name for span in sorted(self.captured.spans, key=lambda span: span.start_time or 0)]


def texts_of(call: RagCall) -> list[str]:
    return [document.text for document in call.contexts or ()]


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


MODES: dict[str, Callable[[Runnable[Any, Any], Any], Any]] = {
    "invoke": lambda chain, question: chain.invoke(question),
    "stream": lambda chain, question: list(chain.stream(question)),
    "ainvoke": lambda chain, question: asyncio.run(chain.ainvoke(question)),
    "astream": lambda chain, question: asyncio.run(_read(chain.astream(question))),
    "astream_events": lambda chain, question: asyncio.run(_read(chain.astream_events(question, version="v2"))),
    "batch": lambda chain, question: chain.batch([question]),
    "abatch": lambda chain, question: asyncio.run(chain.abatch([question])),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_chain_is_one_call(mode: str) -> None:
    """Question, documents and answer are those of the chain, however it is run."""
    watched = Watched()
    MODES[mode](rag(), "Is Paris big?")
    call = watched.call
    assert (call.query, (call.answer or "").strip(), call.context_source) == (
        "Is Paris big?",
        "IS PARIS BIG?",
        "retriever",
    )
    assert texts_of(call) == TEXTS
    assert watched.spans() == ["invoke_workflow RunnableSequence", "retrieval", "chat"]
    assert ragtrace.stats().faults == {}


@pytest.mark.parametrize("mode", MODES)
def test_a_chain_has_the_tags_of_the_block_in_which_it_began(mode: str) -> None:
    """However it is run, and whatever thread its parts run on."""
    watched = Watched()
    with ragtrace.tags(tenant="acme"):
        MODES[mode](rag(), "Is Paris big?")
    assert watched.call.tags == {"tenant": "acme"}


def test_a_chain_has_its_tags_also_where_a_part_runs_on_a_bare_thread() -> None:
    """Its recording begins there."""

    def elsewhere(question: str, config: RunnableConfig) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(Echo().invoke, question, config).result()

    watched = Watched()
    with ragtrace.tags(tenant="acme"):
        (runnable(elsewhere) | StrOutputParser()).invoke("Is Paris big?")
    assert watched.call.tags == {"tenant": "acme"}


def test_a_block_in_a_part_of_a_chain_tags_the_chains_call() -> None:
    """As one in a decorated function does."""

    def tagged(question: str) -> str:
        with ragtrace.tags(tenant="acme"):
            return question

    watched = Watched()
    (rag() | runnable(tagged)).invoke("Is Paris big?")
    assert watched.call.tags == {"tenant": "acme"}


def test_parts_inside_a_chain_have_no_spans_of_their_own() -> None:
    """Prompts, parsers and functions are no steps, and run alone they are no calls."""
    watched = Watched()
    PROMPT.invoke({"context": "", "question": "Q"})
    StrOutputParser().invoke("text")
    runnable(lambda text: text).invoke("text")
    assert watched.spans() == []
    assert watched.calls == []


def test_tokens_and_conversation_are_taken() -> None:
    """Tokens come from the model's answer, the conversation from the configuration."""
    watched = Watched()
    rag().invoke("Is Paris big?", {"configurable": {"thread_id": "t1"}})
    call = watched.call
    assert (call.usage.input_tokens, call.usage.output_tokens, call.conversation_id) == (7, 3, "t1")


def test_the_conversation_may_be_in_the_metadata() -> None:
    """A run of a model alone is a call, too."""
    watched = Watched()
    Echo().invoke("Is Paris big?", {"metadata": {"session_id": "s1", "user_id": "u1"}})
    assert (watched.call.query, watched.call.conversation_id) == ("Is Paris big?", "s1")
    assert watched.spans() == ["chat"]


@pytest.mark.parametrize(
    ("given", "query"),
    [
        ({"question": "Is Paris big?", "language": "en"}, "Is Paris big?"),
        ({"subject": "Paris"}, "Paris"),
        ([("human", "Is Paris big?")], "Is Paris big?"),
        ({"subject": "Paris", "place": "Mars"}, "found by this"),
    ],
)
def test_the_query_of_a_chain(given: object, query: str) -> None:
    """A field of a well-known name, the only text, the last message; else what was retrieved first."""
    watched = Watched()
    chain: Any = runnable(lambda value: "found by this") | Texts() | runnable(lambda found: "What?") | Echo()
    chain.invoke(given)
    assert (watched.call.query, watched.call.answer) == (query, "WHAT?")


def test_a_chain_inside_a_chain_is_part_of_its_call() -> None:
    """One call, whose answer is that of the outer chain."""
    watched = Watched()
    outer = runnable(lambda question: rag().invoke(question)) | runnable(str.title)
    outer.invoke("Is Paris big?")
    assert (watched.call.query, watched.call.answer) == ("Is Paris big?", "Is Paris Big?")
    assert watched.spans() == ["invoke_workflow RunnableSequence", "retrieval", "chat"]


def test_the_result_of_a_tool_is_evidence() -> None:
    """As the model saw it, with the tool's name on its span."""
    watched = Watched()

    @tool
    def look_up(subject: str) -> str:
        """Look something up."""
        return f"{subject}: 330 metres."

    chain = runnable(lambda question: look_up.invoke({"subject": "Tower"})) | Echo()
    chain.invoke("How tall is the tower?")
    assert (texts_of(watched.call), watched.call.context_source) == (["Tower: 330 metres."], "tool")
    assert watched.spans() == ["invoke_workflow RunnableSequence", "execute_tool look_up", "chat"]


def test_a_retriever_inside_a_tool_counts_once() -> None:
    """The texts of the retriever are the evidence, and not the tool's once more."""
    watched = Watched()

    @tool
    def search(query: str) -> str:
        """Search."""
        return "\n".join(found.page_content for found in Texts().invoke(query))

    (runnable(lambda question: search.invoke({"query": question})) | Echo()).invoke("Is Paris big?")
    assert (texts_of(watched.call), watched.call.context_source) == (TEXTS, "retriever")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chain", [rag(retriever=Texts(fails=True)), rag(Echo(fails=True))], ids=["index", "model"])
def test_an_error_is_raised_as_it_is_and_recorded(chain: Runnable[Any, str], mode: str) -> None:
    """The application sees its own exception; the call has failed and is not judged."""
    watched = Watched()
    with pytest.raises(ConnectionError):
        MODES[mode](chain, "Is Paris big?")
    assert ragtrace.flush()
    assert watched.captured.root().status.status_code.name == "ERROR"
    assert watched.calls == []
    assert ragtrace.stats().faults == {}


def test_requests_at_once_are_calls_of_their_own() -> None:
    """Threads, tasks and batches do not mix their steps."""
    watched = Watched(limits=ragtrace.Limits(capacity=1_000))
    questions = [f"Question {number:02}?" for number in range(30)]
    chain: Any = rag()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(chain.invoke, questions[:10]))

    async def ask() -> None:
        await asyncio.gather(*(chain.ainvoke(question) for question in questions[10:20]))

    asyncio.run(ask())
    chain.batch(questions[20:])
    assert [(call.query, call.answer) for call in watched.calls] == [(text, text.upper()) for text in questions]
    assert all(texts_of(call) == TEXTS for call in watched.calls)


def test_prompts_of_one_batch_are_calls_of_their_own() -> None:
    """A model that is given two conversations answers twice."""
    watched = Watched()
    Echo().generate([[HumanMessage(content="One?")], [HumanMessage(content="Two?")]])
    assert [call.answer for call in watched.calls] == ["ONE?", "TWO?"]


def abandoned(watched: Watched) -> list[object]:
    """Return what the spans of the workflow and of the model say of their streams."""
    assert ragtrace.flush()
    spans = [span for span in watched.captured.spans if span.name != "retrieval"]
    return [(span.attributes or {}).get("ragtrace.abandoned") for span in spans]


class Searching(BaseRetriever):
    """Retriever around a decorated search, of whose results it returns the first ones."""

    search: Callable[[str], list[Document]]
    most: int = 2

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return self.search(query)[: self.most]

    async def _aget_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
        await asyncio.sleep(0)
        return self.search(query)[: self.most]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("most", [2, 1])
def test_a_decorated_search_inside_a_retriever_is_not_retrieved_twice(mode: str, most: int) -> None:
    """The retriever's documents are the contexts, though LangChain does not say that the search is part of it."""
    watched = Watched()

    @ragtrace.retrieve
    def search(query: str) -> list[Document]:
        return [Document(page_content=text) for text in TEXTS]

    chain = rag(retriever=Searching(search=search, most=most))
    answer = chain.invoke("where?") if mode == "sync" else asyncio.run(chain.ainvoke("where?"))
    assert answer
    [call] = watched.calls
    assert [document.text for document in call.contexts or ()] == TEXTS[:most]


def test_a_decorated_search_beside_a_retriever_counts() -> None:
    """Both found something else."""
    watched = Watched()

    @ragtrace.retrieve
    def search(query: str) -> list[str]:
        return ["The moon is near."]

    both = runnable(lambda query: [*(each.page_content for each in Texts().invoke(query)), *search(query)])
    chain = {"context": both, "question": PASSED} | (PROMPT | Echo() | StrOutputParser())
    assert chain.invoke("where?")
    [call] = watched.calls
    assert [document.text for document in call.contexts or ()] == [*TEXTS, "The moon is near."]


def test_a_stream_left_early_is_abandoned() -> None:
    """The call has the pieces that were read, and is marked."""
    watched = Watched()
    stream = rag().stream("Is Paris big?")
    assert next(stream) == "IS "
    stream.close()
    assert ragtrace.flush()
    assert abandoned(watched) == [True, True]
    assert (watched.call.answer, watched.call.abandoned) == ("IS ", True)


def test_a_stream_left_early_in_a_task_is_abandoned() -> None:
    """An asynchronous one likewise."""
    watched = Watched()

    async def read() -> None:
        stream = rag().astream("Is Paris big?")
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(read())
    assert abandoned(watched) == [True, True]
    assert (watched.call.answer, watched.call.abandoned) == ("IS ", True)


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
def test_a_stream_of_events_is_recorded_piece_by_piece() -> None:
    """A model call that the application makes meanwhile is a call of its own."""
    if not hasattr(Echo, "stream_events"):
        pytest.skip("this version of langchain-core has no streams of events")
    watched = Watched()
    events: Any = iter(Echo().stream_events("Is Paris big?", version="v3"))
    next(events)
    Echo().invoke("Two?")
    list(events)
    calls = watched.calls
    assert [(call.query, call.answer, call.streamed) for call in calls] == [
        ("Is Paris big?", "IS PARIS BIG? ", True), ("Two?", "TWO?", False),
    ]  # fmt: skip


# --- beside decorators and other instrumentations ---------------------------------------------------------------------


def test_a_chain_inside_a_decorated_function_is_part_of_its_call() -> None:
    """One call, named after the function; the chain has no span of its own."""
    watched = Watched()

    @ragtrace.trace(name="support")
    def ask(question: str) -> str:
        ragtrace.reference("Yes.")
        return rag().invoke(question).title()

    ask("Is Paris big?")
    call = watched.call
    assert (call.query, call.answer, call.workflow, call.reference) == (
        "Is Paris big?", "Is Paris Big?", "support", "Yes.",
    )  # fmt: skip
    assert texts_of(call) == TEXTS
    assert watched.spans() == ["invoke_workflow support", "retrieval", "chat"]


@ragtrace.retrieve(source="index")
def look_up(query: str) -> list[str]:
    return TEXTS


@ragtrace.generate(model="tiny")
def answer(question: str, docs: list[str]) -> str:
    ragtrace.usage(input_tokens=5, output_tokens=2)
    return question.upper()


@pytest.mark.parametrize("mode", MODES)
def test_decorated_functions_inside_a_chain_are_part_of_its_call(mode: str) -> None:
    """Their spans are below the chain's."""
    watched = Watched()
    found = {"docs": runnable(look_up), "question": PASSED}
    chain: Any = found | runnable(lambda given: answer(given["question"], given["docs"]))
    MODES[mode](chain, "Is Paris big?")
    call = watched.call
    assert (call.query, call.answer, call.usage.input_tokens) == ("Is Paris big?", "IS PARIS BIG?", 5)
    assert texts_of(call) == TEXTS
    assert watched.spans() == ["invoke_workflow RunnableSequence", "retrieval index", "chat tiny"]
    root = watched.captured.root()
    parents = {span.parent.span_id for span in watched.captured.spans if span.parent is not None}
    assert root.context is not None
    assert parents == {root.context.span_id}


def test_a_retriever_inside_a_decorated_retrieval_counts_once() -> None:
    """Decorated inside a chain, and around a retriever: the innermost is not counted."""
    watched = Watched()

    @ragtrace.retrieve
    def search(query: str) -> list[Document]:
        return Texts().invoke(query)

    (runnable(search) | runnable(lambda docs: "What?") | Echo()).invoke("Is Paris big?")
    assert texts_of(watched.call) == TEXTS
    spans = {span.name: span for span in watched.captured.spans}
    assert len(watched.captured.spans) == 4
    assert spans["chat"].parent is not None


class Spanned(Echo):
    """Chat model whose client an instrumentation makes spans of."""

    tracer: Any

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        with self.span(messages):
            return super()._generate(messages)

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        with self.span(messages):
            pass
        yield from super()._stream(messages)

    @contextmanager
    def span(self, messages: list[BaseMessage]) -> Generator[None, None, None]:
        question = str(messages[-1].content)
        with self.tracer.start_as_current_span("ChatCompletion") as span:
            span.set_attributes({KIND: "LLM", "llm.input_messages.0.message.role": "user"})
            span.set_attribute("llm.input_messages.0.message.content", question)
            span.set_attribute("llm.output_messages.0.message.role", "assistant")
            span.set_attribute("llm.output_messages.0.message.content", question.upper())
            yield


class Evaluated:
    """A user's provider whose spans are evaluated, and a listener in LangChain."""

    def __init__(self, **settings: Any) -> None:
        self.exporter, self.judge = InMemorySpanExporter(), FakeJudge(GOOD)
        self.provider = TracerProvider(shutdown_on_exit=False, **settings)
        self.provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(self.exporter), evaluate=True))
        ragtrace.configure(
            telemetry=ragtrace.TelemetryOptions(tracer_provider=self.provider),
            screen=self.judge,
            metrics=["faithfulness"],
        )
        ragtrace.instrument("langchain")

    def calls(self) -> list[RagCall]:
        """All calls, those that are closed by the second flush included."""
        assert ragtrace.flush()
        assert ragtrace.flush()
        return self.judge.calls


@pytest.fixture
def evaluated() -> Iterator[Evaluated]:
    found = Evaluated()
    yield found
    ragtrace.shutdown()
    found.provider.shutdown()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of", ["chain", "model"])
def test_spans_of_a_models_client_are_no_call_of_their_own(evaluated: Evaluated, of: str, mode: str) -> None:
    """The span that OpenAI's instrumentation makes inside LangChain's model belongs to the same call."""
    model = Spanned(tracer=evaluated.provider.get_tracer("openinference.instrumentation.openai"))
    MODES[mode](rag(model) if of == "chain" else model, "Is Paris big?")
    (call,) = evaluated.calls()
    assert (call.query, (call.answer or "").strip()) == ("Is Paris big?", "IS PARIS BIG?")
    assert ragtrace.stats().faults == {}


def test_a_model_that_another_instrumentation_sees_is_a_step_of_the_chain(evaluated: Evaluated) -> None:
    """LangChain sees a function, the instrumentation the model call inside it."""
    tracer = evaluated.provider.get_tracer("openinference.instrumentation.openai")

    def ask(docs: list[Document]) -> str:
        with tracer.start_as_current_span("ChatCompletion") as span:
            span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.role": "assistant"})
            span.set_attribute("llm.output_messages.0.message.content", "It is.")
            span.set_attribute("llm.token_count.prompt", 11)
        return "It is."

    (Texts() | runnable(ask)).invoke("Is Paris big?")
    (call,) = evaluated.calls()
    assert (call.query, call.answer, call.usage.input_tokens) == ("Is Paris big?", "It is.", 11)
    assert texts_of(call) == TEXTS


def test_spans_of_langchains_instrumentations_are_no_second_call(evaluated: Evaluated) -> None:
    """OpenInference describes the same runs."""
    tracer = evaluated.provider.get_tracer("openinference.instrumentation.langchain")
    with tracer.start_as_current_span("RunnableSequence") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": "Is Paris big?", "output.value": "IS PARIS BIG?"})
        with tracer.start_as_current_span("Echo") as span:
            span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.role": "assistant"})
            span.set_attribute("llm.output_messages.0.message.content", "IS PARIS BIG?")
        rag().invoke("Is Paris big?")
    (call,) = evaluated.calls()
    assert texts_of(call) == TEXTS


def test_spans_of_two_requests_one_after_the_other_stay_apart(evaluated: Evaluated) -> None:
    """A model call outside of LangChain, after one of LangChain's in the same context, is a call of its own."""
    tracer = evaluated.provider.get_tracer("openinference.instrumentation.openai")
    model = Spanned(tracer=tracer)
    stream = model.stream("One?")
    next(stream)
    with model.span([HumanMessage(content="Context:\n[1] Paris is a big city.\n\nQuestion: Two?")]):
        pass
    list(stream)
    assert sorted((call.query or "", texts_of(call)) for call in evaluated.calls()) == [
        ("One?", []), ("Two?", ["Paris is a big city."]),
    ]  # fmt: skip


def test_a_trace_that_the_head_sampler_drops_is_not_recorded() -> None:
    """Nor are decorated functions inside it; it is counted once."""
    evaluated = Evaluated(sampler=ParentBased(ALWAYS_OFF))
    chain = runnable(look_up) | runnable(lambda docs: answer("Is Paris big?", docs)) | Echo()
    chain.invoke("Is Paris big?")
    assert evaluated.calls() == []
    assert evaluated.exporter.get_finished_spans() == ()
    ragtrace.shutdown()
    assert ragtrace.stats().evaluators["fake"].sampled_out == {"head_dropped": 1}
    evaluated.provider.shutdown()


# --- the listener itself ----------------------------------------------------------------------------------------------


def test_a_listener_is_installed_once_and_can_be_removed() -> None:
    """A second `instrument` changes nothing; after `uninstrument`, nothing is recorded."""
    watched = Watched()
    ragtrace.instrument()
    ragtrace.instrument("langchain", "langchain")
    rag().invoke("One?")
    assert len(watched.calls) == 1
    ragtrace.uninstrument("langchain")
    rag().invoke("Two?")
    assert len(watched.calls) == 1
    ragtrace.instrument("langchain")
    rag().invoke("Three?")
    assert len(watched.calls) == 2


def test_an_unknown_framework_is_named_with_those_that_are_known() -> None:
    """With the nearest name."""
    with pytest.raises(
        SettingsError, match=r"no framework named 'langchian'; did you mean 'langchain'\? known: .*langch"
    ):
        ragtrace.instrument("langchian")


def test_a_framework_that_cannot_be_listened_to_is_left_out_or_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Left out and logged where all frameworks are meant; an error where it is asked for."""
    monkeypatch.setitem(sys.modules, "ragtrace.span_reading.frameworks.langchain", None)  # its import fails
    ragtrace.instrument()
    ragtrace.instrument()
    logged = [message for message in caplog.messages if "cannot instrument 'langchain'" in message]
    assert len(logged) == 1
    assert "its calls are not recorded, upgrade langchain-core" in logged[0]
    with pytest.raises(
        SettingsError, match=r"langchain-core \d.* cannot be listened to .*; upgrade langchain-core, or"
    ):
        ragtrace.instrument("langchain")


def test_without_configuration_chains_run_unrecorded() -> None:
    """And are recorded as soon as ragtrace is configured."""
    ragtrace.instrument("langchain")
    assert rag().invoke("One?") == "ONE?"
    watched = Watched()
    rag().invoke("Two?")
    assert watched.call.query == "Two?"


def test_runs_that_never_end_are_bounded_and_counted() -> None:
    """The oldest is recorded as failed, and not judged."""
    watched = Watched()
    runs = FrameworkRuns("framework", current, lambda: None, most_open=2)
    for number in range(3):
        runs.begin(number, None, "generate", f"Question {number}?")
    for number in range(3):
        runs.end(number, f"Answer {number}.")
    assert [call.query for call in watched.calls] == ["Question 1?", "Question 2?"]
    assert ragtrace.stats().faults == {"runs of framework that never ended": 1}
    errors = [(span.attributes or {}).get("error.type") for span in watched.captured.spans]
    assert errors.count("ragtrace.span_reading.frameworks.runs.RunNeverEndedError") == 1


# --- A judge that is slower than the hold -----------------------------------------------------------------------------


def test_streamed_answers_of_a_slow_judge_are_late_and_scored() -> None:
    """Each root says that scores follow, and each has them on a linked span: none is lost, and none timed out."""
    captured, questions = Captured(), [f"Is Paris big? {number}" for number in range(6)]
    reply = Reply(body=json.dumps(top_logprobs({"yes": 0.75, "no": 0.25})))

    def slowly(_: Request) -> Reply:
        assert eventually(lambda: len(captured.roots()) >= len(questions))
        return reply

    with OpenAIServer(slowly) as server:
        ragtrace.configure(
            exporter=captured.signals,
            screen=None,
            judge=ragtrace.DecisionJudge("local", protocol="logprobs", base_url=server.url),
            metrics=["faithfulness"],
            sampling=ragtrace.Sampling(rate=1.0),
            limits=ragtrace.Limits(hold_seconds=0.1),
        )
        ragtrace.instrument("langchain")
        answers = ["".join(rag().stream(question)) for question in questions]
        assert ragtrace.flush(WAIT_S)
        problems = ragtrace.doctor(probe=False).problems
    assert answers == [" ".join([*question.upper().split(), ""]) for question in questions]
    roots, carriers = captured.roots(), [span for span in captured.spans if span.name.startswith("evaluate ")]
    roots = [span for span in roots if span not in carriers]
    assert [root["ragtrace.eval.status"] for root in _attributes(roots)] == ["late"] * 6
    assert all(" late " in call_text(root) for root in roots)
    assert {span.links[0].context.span_id for span in carriers} == {root.context.span_id for root in roots}
    assert [score["ragtrace.eval.faithfulness.score"] for score in _attributes(carriers)] == [0.75] * 6
    assert [score["ragtrace.eval.status"] for score in _attributes(carriers)] == ["ok"] * 6
    assert ragtrace.stats().evaluators["decision"].scored == 6
    assert any("scores come too late for the spans of their calls, in 6 of the last 6" in each for each in problems)


def _attributes(spans: Iterable[ReadableSpan]) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in spans]
