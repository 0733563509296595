"""`ragtrace.instrument("llama_index")`: applications of LlamaIndex, not decorated, give RAG calls with whole texts."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest

import ragtrace
from ragtrace.core.types import RagCall
from ragtrace.recording.proxies import Proxy
from ragtrace.span_reading.frameworks.runs import FrameworkRuns
from ragtrace.system.faults import faults
from tests.support.frameworks import library
from tests.support.watched import WAIT_S, Watched

pytestmark = pytest.mark.filterwarnings("ignore:.* attribute .*is deprecated:DeprecationWarning")  # of pydantic
QUESTION = "How tall is the Eiffel Tower?"
ANSWER = f"I was asked: {QUESTION}"


@pytest.fixture
def rag() -> Any:
    """The applications of LlamaIndex."""
    return library("tests.support.llama_index_rag")


@pytest.fixture(autouse=True)
def _instrumented(rag: Any) -> None:
    faults.clear()
    ragtrace.instrument("llama_index")


def texts(call: RagCall) -> list[str]:
    """Return the texts of the call's contexts."""
    return [document.text for document in call.contexts or ()]


async def joined(response: Any) -> str:
    """Return the whole text of an asynchronous stream."""
    return "".join([piece async for piece in response.async_response_gen()])


def ask(engine: Any, streaming: bool) -> str:
    """Return the answer of a query engine, read to its end."""
    response = engine.query(QUESTION)
    return "".join(response.response_gen) if streaming else str(response)


def ask_async(engine: Any, streaming: bool) -> str:
    """Return the answer of a query engine, asked and read asynchronously."""

    async def run() -> str:
        response = await engine.aquery(QUESTION)
        return await joined(response) if streaming else str(response)

    return asyncio.run(run())


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("run", [ask, ask_async], ids=["sync", "async"])
def test_a_query_engine_is_one_call(rag: Any, run: Callable[[Any, bool], str], streaming: bool) -> None:
    """Query, contexts in their order, answer, model and tokens are those of the application."""
    watched = Watched()
    answer = run(rag.query_engine(streaming=streaming), streaming)
    call = watched.call()
    assert (call.query, call.answer, call.workflow) == (QUESTION, answer, "RetrieverQueryEngine")
    assert answer == ANSWER
    assert (texts(call), call.context_source) == (list(rag.TEXTS[:2]), "retriever")
    assert (call.model, (call.usage.input_tokens, call.usage.output_tokens)) == (rag.MODEL, rag.TOKENS)
    assert call.streamed is streaming
    assert len(watched.captured.spans) == 3


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("run", [ask, ask_async], ids=["sync", "async"])
def test_contexts_are_what_a_postprocessor_left(rag: Any, run: Callable[[Any, bool], str], streaming: bool) -> None:
    """The model was given these only."""
    watched = Watched()
    run(rag.query_engine(streaming=streaming, postprocessors=[rag.Shortest()]), streaming)
    call = watched.call()
    assert (texts(call), call.context_source) == ([rag.TEXTS[0]], "reranker")


def test_contexts_are_the_sources_where_a_postprocessor_reports_nothing(rag: Any) -> None:
    """An asynchronous postprocessor has no span of LlamaIndex."""
    watched = Watched()
    ask_async(rag.query_engine(postprocessors=[rag.AsyncShortest()]), False)
    call = watched.call()
    assert (texts(call), call.context_source) == ([rag.TEXTS[0]], "result")


def chat(engine: Any, question: str, streaming: bool) -> str:
    """Return the answer of a chat engine."""
    return "".join(engine.stream_chat(question).response_gen) if streaming else engine.chat(question).response


def chat_async(engine: Any, question: str, streaming: bool) -> str:
    """Return the answer of a chat engine, asked and read asynchronously."""

    async def run() -> str:
        if streaming:
            return await joined(await engine.astream_chat(question))
        return str(await engine.achat(question))

    return asyncio.run(run())


def chat_engine(rag: Any, mode: str, *, model: Any = None, session: str | None = None, streaming: bool = False) -> Any:
    """Return a chat engine over the texts."""
    engines = library("llama_index.core.chat_engine")
    memory = library("llama_index.core.memory").ChatMemoryBuffer.from_defaults
    options = {"llm": model or rag.Model(), "memory": memory(**{"chat_store_key": session} if session else {})}
    if mode == "simple":
        return engines.SimpleChatEngine.from_defaults(**options)
    if mode == "condense_question":
        return engines.CondenseQuestionChatEngine.from_defaults(rag.query_engine(streaming=streaming), **options)
    kind = engines.ContextChatEngine if mode == "context" else engines.CondensePlusContextChatEngine
    return kind.from_defaults(rag.Words(), **options)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("run", [chat, chat_async], ids=["sync", "async"])
@pytest.mark.parametrize("mode", ["context", "condense_plus_context"])
def test_a_chat_engine_is_one_call_for_each_message(
    rag: Any, mode: str, run: Callable[[Any, str, bool], str], streaming: bool
) -> None:
    """The query is the user's, also where the model rewrites it; a stream is followed to its end."""
    watched = Watched()
    engine = chat_engine(rag, mode, session="visit-7")
    answers = [run(engine, question, streaming) for question in (QUESTION, "Who built it?")]
    first, second = watched.calls()
    assert [(call.query, call.answer) for call in (first, second)] == [
        (QUESTION, answers[0]),
        ("Who built it?", answers[1]),
    ]
    assert texts(first) == list(rag.TEXTS[:2])
    assert [call.conversation_id for call in (first, second)] == ["visit-7", "visit-7"]
    assert [call.streamed for call in (first, second)] == [streaming, streaming]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_a_query_engine_inside_a_chat_engine_is_part_of_its_call(rag: Any, streaming: bool) -> None:
    """Its stream is read by the chat engine."""
    watched = Watched()
    answer = chat(chat_engine(rag, "condense_question", streaming=streaming), QUESTION, streaming)
    call = watched.call()
    assert (call.query, call.answer, call.workflow) == (QUESTION, answer, "CondenseQuestionChatEngine")
    assert texts(call) == list(rag.TEXTS[:2])


def test_a_chat_without_retrieval_is_a_call_without_contexts(rag: Any) -> None:
    """Metrics that need contexts are then missing, and say so."""
    watched = Watched()
    answer = chat(chat_engine(rag, "simple"), QUESTION, False)
    call = watched.call()
    assert (call.query, call.answer, call.contexts) == (QUESTION, answer, None)


@pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
def test_answers_to_parts_of_a_question_are_no_evidence(rag: Any, use_async: bool) -> None:
    """The contexts of the call are the texts that were retrieved for the parts; the answer is that to the whole."""
    engines, tools = library("llama_index.core.query_engine"), library("llama_index.core.tools")
    watched = Watched()
    tool = tools.QueryEngineTool.from_defaults(rag.query_engine(), name="facts", description="facts")
    synthesizer = library("llama_index.core").get_response_synthesizer(llm=rag.Model())
    engine = engines.SubQuestionQueryEngine(rag.Halves(), synthesizer, [tool], verbose=False, use_async=use_async)
    question = "How tall is the Eiffel Tower and how long is the Seine?"
    answer = str(engine.query(question))
    call = watched.call()
    assert (call.query, call.answer, call.workflow) == (question, answer, "SubQuestionQueryEngine")
    assert set(texts(call)) == {rag.TEXTS[0], rag.TEXTS[1], rag.TEXTS[3]}
    assert watched.span_names().count("chat model-1") == 3


def looks_up(rag: Any) -> Any:
    """Return a tool that retrieves texts."""

    def look_up(query: str) -> str:
        """Return what the texts say."""
        return "\n".join(node.get_content() for node in rag.Words().retrieve(query))

    return library("llama_index.core.tools").FunctionTool.from_defaults(look_up)


def run_agent(agent: Any, question: str, **options: Any) -> str:
    """Return the answer of an agent."""

    async def run() -> str:
        return str(await agent.run(question, **options))

    return asyncio.run(run())


def test_an_agent_is_one_call(rag: Any) -> None:
    """With what its tool retrieved."""
    watched = Watched()
    answer = run_agent(rag.agent(looks_up(rag), "the Eiffel Tower"), QUESTION)
    call = watched.call()
    assert (call.query, call.answer, call.workflow) == (QUESTION, answer, "FunctionAgent")
    assert (texts(call), call.context_source) == (list(rag.TEXTS[:2]), "retriever")
    assert watched.span_names().count("execute_tool look_up") == 1


@pytest.mark.parametrize(
    ("result", "expected"),
    [("330 metres", ["330 metres"]), (["one", "two"], ["one", "two"]), ({"height": 330}, ["{'height': 330}"])],
)
def test_what_a_tool_returns_is_evidence(rag: Any, result: Any, expected: list[str]) -> None:
    """Texts, documents, and plain values as LlamaIndex shows them to the model."""

    def look_up(query: str) -> Any:
        """Return a result."""
        return result

    watched = Watched()
    tool = library("llama_index.core.tools").FunctionTool.from_defaults(look_up)
    run_agent(rag.agent(tool, "height"), QUESTION)
    call = watched.call()
    assert (texts(call), call.context_source) == (expected, "tool")


def test_an_agent_goes_on_after_a_tool_that_failed(rag: Any) -> None:
    """As without ragtrace; the evidence is what the model was given in place of a result."""

    def look_up(query: str) -> str:
        """Fail."""
        raise LookupError("no such height")

    watched = Watched()
    tool = library("llama_index.core.tools").FunctionTool.from_defaults(look_up)
    answer = run_agent(rag.agent(tool, "height"), QUESTION)
    call = watched.call()
    assert (call.answer, texts(call), call.context_source) == (answer, ["no such height"], "prompt")
    assert call.error is None


@pytest.mark.parametrize("name", ["visit-7", None])
def test_the_session_of_an_agent_is_that_of_its_memory(rag: Any, name: str | None) -> None:
    """If the application gave it one: LlamaIndex names others at random, and differently for each request."""
    watched = Watched()
    memory = library("llama_index.core.memory").ChatMemoryBuffer.from_defaults(
        **{"chat_store_key": name} if name else {}
    )
    run_agent(rag.agent(looks_up(rag), "tower"), QUESTION, memory=memory)
    assert watched.call().conversation_id == name


@pytest.mark.parametrize("fails", ["model", "retriever"])
def test_an_error_reaches_the_application_and_ends_the_call(rag: Any, fails: str) -> None:
    """As the application raised it."""
    watched = Watched()
    engine = rag.query_engine(model=rag.Model(error="no")) if fails == "model" else None
    engine = engine or rag.query_engine(retriever=_failing(rag))
    with pytest.raises((RuntimeError, LookupError), match="no"):
        engine.query(QUESTION)
    assert ragtrace.flush()
    root = watched.captured.root()
    assert root.status.status_code.name == "ERROR"
    assert ragtrace.stats().faults == {}


def _failing(rag: Any) -> Any:
    retriever = rag.Words()
    retriever.error = "no index"
    return retriever


@pytest.mark.parametrize("after", [0, 2])
def test_an_error_in_a_stream_ends_the_call(rag: Any, after: int) -> None:
    """Wherever in the stream it comes."""
    watched = Watched()
    response = rag.query_engine(streaming=True, model=rag.Model(error="gone", error_after=after)).query(QUESTION)
    with pytest.raises(RuntimeError, match="gone"):
        list(response.response_gen)
    assert ragtrace.flush()
    assert watched.captured.root().status.status_code.name == "ERROR"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_the_stream_of_a_chat_engine_ends_the_call(rag: Any) -> None:
    """It is raised where the application reads the stream, and the stream is read by a thread of LlamaIndex."""
    watched = Watched()
    engine = chat_engine(rag, "context", model=rag.Model(error="gone", error_after=2))
    with pytest.raises(RuntimeError, match="gone"):
        list(engine.stream_chat(QUESTION).response_gen)
    assert ragtrace.flush()
    assert watched.captured.root().status.status_code.name == "ERROR"


def test_a_stream_that_is_left_is_abandoned(rag: Any) -> None:
    """What was read of it is the answer."""
    watched = Watched()
    response = rag.query_engine(streaming=True).query(QUESTION)
    pieces = response.response_gen
    read = [next(pieces), next(pieces)]
    pieces.close()
    call = watched.call()
    assert (call.answer, call.abandoned) == ("".join(read), True)


def test_a_stream_that_is_never_read_ends_with_its_response(rag: Any) -> None:
    """Nothing is left open, and nobody knows the answer: it is none that declines."""
    watched = Watched()
    rag.query_engine(streaming=True).query(QUESTION)
    gc.collect()
    assert watched.calls() == []
    assert ragtrace.stats().pending == 0
    (root,) = watched.captured.roots()
    assert dict(root.attributes or {})["ragtrace.eval.answered.reason"] == "answer_not_captured"


def test_requests_in_threads_do_not_mix(rag: Any) -> None:
    """Each call has its own query, contexts and answer."""
    watched = Watched()
    questions = [f"How tall is tower number {number}?" for number in range(24)]
    engine = rag.query_engine(streaming=True)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda question: "".join(engine.query(question).response_gen), questions))
    found = {call.query: call for call in watched.calls()}
    assert [found[question].answer for question in questions] == answers
    assert len(watched.judge.calls) == len(questions)
    assert all(len(call.contexts or ()) == 2 for call in watched.judge.calls)


def test_requests_in_tasks_do_not_mix(rag: Any) -> None:
    """Nor their streams, which are read at once."""
    watched = Watched()
    questions = [f"How tall is tower number {number}?" for number in range(24)]
    engine = rag.query_engine(streaming=True)

    async def one(question: str) -> str:
        return await joined(await engine.aquery(question))

    async def run() -> list[str]:
        return await asyncio.gather(*map(one, questions))

    answers = asyncio.run(run())
    found = {call.query: call for call in watched.calls()}
    assert [found[question].answer for question in questions] == answers
    assert len(watched.judge.calls) == len(questions)


def test_a_query_engine_inside_a_decorated_function_is_part_of_its_call(rag: Any) -> None:
    """One call, with the decorated function as its root."""
    watched = Watched()

    @ragtrace.trace(name="guide")
    def guide(question: str) -> str:
        return str(rag.query_engine().query(question))

    answer = guide(QUESTION)
    call = watched.call()
    assert (call.workflow, call.answer, texts(call)) == ("guide", answer, list(rag.TEXTS[:2]))
    assert (call.usage.input_tokens, call.usage.output_tokens) == rag.TOKENS


def test_decorated_functions_inside_a_query_engine_are_part_of_its_call(rag: Any) -> None:
    """A retriever that calls a decorated function."""

    @ragtrace.retrieve(source="words")
    def search(query: str) -> list[str]:
        return [f"All about {query}"]

    class Searching(rag.Words):  # type: ignore[misc]
        def _retrieve(self, query_bundle: Any) -> Any:
            search(query_bundle.query_str)
            return super()._retrieve(query_bundle)

    watched = Watched()
    rag.query_engine(retriever=Searching()).query(QUESTION)
    call = watched.call()
    assert call.workflow == "RetrieverQueryEngine"
    assert texts(call) == list(rag.TEXTS[:2])
    assert len(watched.captured.spans) == 4
    assert len({span.context.trace_id for span in watched.captured.spans if span.context}) == 1


def test_a_retriever_and_a_synthesizer_without_a_query_engine(rag: Any) -> None:
    """The synthesizer is the call, with the nodes that it was given."""
    watched = Watched()
    nodes = rag.Words().retrieve(QUESTION)
    synthesizer = library("llama_index.core").get_response_synthesizer(llm=rag.Model())
    answer = str(synthesizer.synthesize(QUESTION, nodes[:1]))
    call = watched.call()
    assert (call.query, call.answer, texts(call)) == (QUESTION, answer, [rag.TEXTS[0]])


def test_a_workflow_without_model_and_retrieval_is_no_call() -> None:
    """It may be anything."""
    workflow = library("llama_index.core.workflow")

    class Plain(workflow.Workflow):  # type: ignore[misc]
        @workflow.step
        async def only(self, ev: workflow.StartEvent) -> workflow.StopEvent:
            return workflow.StopEvent(result=ev.get("text"))

    async def run() -> Any:
        return await Plain().run(text="anything")

    watched = Watched()
    assert asyncio.run(run()) == "anything"
    assert watched.calls() == []
    assert watched.captured.spans == ()


def test_nothing_is_recorded_after_uninstrument(rag: Any) -> None:
    """And nothing twice where an application is instrumented twice."""
    watched = Watched()
    ragtrace.instrument("llama_index")
    rag.query_engine().query(QUESTION)
    ragtrace.uninstrument("llama_index")
    rag.query_engine().query(QUESTION)
    assert watched.call().query == QUESTION


def test_another_handler_of_spans_goes_on(rag: Any) -> None:
    """Handlers are added beside those of the application."""
    handlers = library("llama_index.core.instrumentation.span_handlers")
    dispatcher = library("llama_index.core.instrumentation").get_dispatcher()
    simple = handlers.SimpleSpanHandler()
    dispatcher.add_span_handler(simple)
    try:
        Watched()
        rag.query_engine().query(QUESTION)
    finally:
        dispatcher.span_handlers = [handler for handler in dispatcher.span_handlers if handler is not simple]
    assert any(span.id_.startswith("RetrieverQueryEngine.query-") for span in simple.completed_spans)


class _Relay:
    """Iterator that another instrumentation puts in the place of a response's generator, read in its own context."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._context = stream, copy_context()

    def __iter__(self) -> _Relay:
        return self

    def __next__(self) -> Any:
        return self._context.run(next, self._stream)

    def __aiter__(self) -> _Relay:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._stream)


class _RelayProxy(Proxy):
    """The same as a transparent proxy of the generator."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._self_context = copy_context()

    def __iter__(self) -> _RelayProxy:
        return self

    def __next__(self) -> Any:
        return self._self_context.run(next, self.__wrapped__)

    def __aiter__(self) -> _RelayProxy:
        return self

    async def __anext__(self) -> Any:
        return await anext(self.__wrapped__)


@pytest.fixture(params=["before", "after"])
def replacing(request: pytest.FixtureRequest, rag: Any) -> Iterator[Callable[[Callable[[Any], Any]], None]]:
    """Add a handler to LlamaIndex, before or after ragtrace's, that puts something in the place of each stream."""
    dispatcher = library("llama_index.core.instrumentation").get_dispatcher()
    added: list[Any] = []

    def replace_streams(relay: Callable[[Any], Any]) -> None:
        class Handler(library("llama_index.core.instrumentation.span_handlers").SimpleSpanHandler):  # type: ignore[misc]
            def prepare_to_exit_span(self, *args: Any, result: Any = None, **kwargs: Any) -> None:
                if hasattr(result, "response_gen"):
                    result.response_gen = relay(result.response_gen)

        added.append(Handler())
        if request.param == "before":
            ragtrace.uninstrument("llama_index")
        dispatcher.add_span_handler(added[0])
        ragtrace.instrument("llama_index")

    yield replace_streams
    dispatcher.span_handlers = [handler for handler in dispatcher.span_handlers if handler not in added]


@pytest.mark.parametrize("run", [ask, ask_async], ids=["sync", "async"])
@pytest.mark.parametrize("relay", [_Relay, _RelayProxy], ids=["iterator", "proxy"])
def test_a_stream_that_another_instrumentation_replaces_is_followed(
    rag: Any,
    replacing: Callable[[Callable[[Any], Any]], None],
    relay: Callable[[Any], Any],
    run: Callable[[Any, bool], str],
) -> None:
    """The answer is the stream's, and the model call while it is read is part of the one call."""
    replacing(relay)
    watched = Watched()
    answer = run(rag.query_engine(streaming=True), True)
    call = watched.call()
    assert (call.query, call.answer, texts(call)) == (QUESTION, answer, list(rag.TEXTS[:2]))
    assert watched.span_names() == ["retrieval", "chat model-1", "invoke_workflow RetrieverQueryEngine"]


class _Collected:
    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __del__(self) -> None:
        self._act()


def test_a_finalizer_that_ends_a_stream_does_not_wait_for_the_end_that_it_interrupts(
    rag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of an old stream is let go with what it holds, of which one is the end of another stream."""
    from ragtrace.span_reading.frameworks import llama_index

    monkeypatch.setattr(llama_index, "_MOST_STREAMS", 1)
    runs, ended = llama_index.LlamaIndexRuns(FrameworkRuns("llama_index", lambda: None, lambda: None)), list[str]()

    def end_streams() -> None:
        held = _Collected(lambda: runs._end_late("new", lambda: ended.append("new")))
        runs._end_late("old", partial(id, held))
        del held
        runs._end_late("next", None)
        runs._end_late("new", None)

    thread = threading.Thread(target=end_streams, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert ended == ["new"]
