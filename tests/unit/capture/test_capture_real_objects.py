"""Capture from the real classes of LangChain, LlamaIndex, Haystack and OpenAI."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ragtrace.capture import Answer, AnswerStream, find_answer, find_documents, find_query
from ragtrace.core.types import Document
from tests.support.frameworks import library

langchain_documents = partial(library, "langchain_core.documents")
langchain_messages = partial(library, "langchain_core.messages")
langchain_outputs = partial(library, "langchain_core.outputs")
langchain_prompts = partial(library, "langchain_core.prompt_values")
llama_schema = partial(library, "llama_index.core.schema")
llama_responses = partial(library, "llama_index.core.base.response.schema")
llama_llms = partial(library, "llama_index.core.llms")
llama_chat = partial(library, "llama_index.core.chat_engine.types")
llama_stores = partial(library, "llama_index.core.vector_stores")
haystack = partial(library, "haystack")
haystack_data = partial(library, "haystack.dataclasses")
openai_types = partial(library, "openai.types")
openai_chat = partial(library, "openai.types.chat")
openai_responses = partial(library, "openai.types.responses")


def streamed(*pieces: object) -> Answer | None:
    """The answer gathered from *pieces*."""
    stream = AnswerStream()
    for piece in pieces:
        stream.add(piece)
    return stream.answer()


def build(cls: Any, data: dict[str, Any]) -> Any:
    """An OpenAI object as the client makes it from JSON: without validation, unknown fields kept."""
    return cls.construct(**data)


# --- LangChain -------------------------------------------------------------------------------------------------------
def test_langchain_documents() -> None:
    """A document gives its text and its id."""
    found = find_documents([langchain_documents().Document(page_content="a", id="1", metadata={"source": "x"})])
    assert found == (Document("a", "1"),)


def test_langchain_documents_with_scores() -> None:
    """`similarity_search_with_score` gives pairs."""
    pair = (langchain_documents().Document(page_content="a", metadata={"chunk_id": "c"}), 0.25)
    assert find_documents([pair]) == (Document("a", "c", 0.25),)


def test_a_single_langchain_document_is_understood() -> None:
    """It need not be in a list."""
    assert find_documents(langchain_documents().Document(page_content="a")) == (Document("a"),)


def test_langchain_documents_are_no_answer() -> None:
    """Neither one nor a list of them."""
    document = langchain_documents().Document(page_content="a")
    assert find_answer(document) is None
    assert find_answer([document]) is None


def test_langchain_message() -> None:
    """Text, model, usage and finish reason of a chat model's message."""
    message = langchain_messages().AIMessage(
        content="yes",
        id="chatcmpl-1",
        usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        response_metadata={"model_name": "m", "finish_reason": "stop"},
    )
    assert find_answer(message) == Answer("yes", "m", "chatcmpl-1", ("stop",), 3, 4)


def test_langchain_message_in_parts() -> None:
    """Only the parts that are text make the answer."""
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "y"}, {"type": "text", "text": "es"}]
    found = find_answer(langchain_messages().AIMessage(content=parts))
    assert found == Answer("yes")


def test_langchain_id_of_its_own_is_no_response_id() -> None:
    """LangChain numbers messages whose provider did not."""
    message = langchain_messages().AIMessage(content="yes", id="lc_run--1", response_metadata={"model_name": "m"})
    assert find_answer(message) == Answer("yes", "m")


def test_langchain_tool_call() -> None:
    """A message that only calls a tool is understood, and has no text."""
    call = {"name": "search", "args": {}, "id": "1", "type": "tool_call"}
    assert find_answer(langchain_messages().AIMessage(content="", tool_calls=[call])) == Answer(None, tool_calls=1)


def test_langchain_chain_result() -> None:
    """A retrieval chain returns its context beside the answer."""
    result = {"input": "q", "context": [langchain_documents().Document(page_content="a")], "answer": "yes"}
    assert find_answer(result) == Answer("yes", documents=(Document("a"),))
    assert find_query(result) == "q"
    assert find_documents(result) == (Document("a"),)


def test_langgraph_state() -> None:
    """The last assistant message of a state is the answer, the last human one the question."""
    state = {"messages": [langchain_messages().HumanMessage("why?"), langchain_messages().AIMessage("yes")]}
    assert find_answer(state) == Answer("yes")
    assert find_query(state) == "why?"


def test_langchain_results_of_models() -> None:
    """The results below the message level."""
    generation = langchain_outputs().ChatGeneration(message=langchain_messages().AIMessage("yes"))
    assert find_answer(generation) == Answer("yes")
    assert find_answer(langchain_outputs().ChatResult(generations=[generation])) == Answer("yes")
    assert find_answer(
        langchain_outputs().LLMResult(generations=[[langchain_outputs().Generation(text="yes")]])
    ) == Answer("yes")


def test_langchain_prompts() -> None:
    """A prompt value is a question."""
    assert find_query(langchain_prompts().StringPromptValue(text="why?")) == "why?"
    assert (
        find_query(langchain_prompts().ChatPromptValue(messages=[langchain_messages().HumanMessage("why?")])) == "why?"
    )


def test_langchain_chunks() -> None:
    """Chunks are joined; the last one has the usage."""
    chunk = langchain_messages().AIMessageChunk
    found = streamed(
        chunk(content="", response_metadata={"model_name": "m"}),
        chunk(content="y"),
        chunk(content=[{"type": "text", "text": "es", "index": 0}]),
        chunk(content="", response_metadata={"finish_reason": "stop"}),
        chunk(content="", usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}),
    )
    assert found == Answer("yes", "m", None, ("stop",), 3, 4)


def test_langchain_tool_call_chunks() -> None:
    """A call that arrives in parts is one call."""
    part = {"name": "search", "args": "{", "id": "1", "index": 0, "type": "tool_call_chunk"}
    rest = {"name": None, "args": "}", "id": None, "index": 0, "type": "tool_call_chunk"}
    chunk = langchain_messages().AIMessageChunk
    found = streamed(chunk(content="", tool_call_chunks=[part]), chunk(content="", tool_call_chunks=[rest]))
    assert found == Answer(None, tool_calls=1)


def test_langchain_chain_stream() -> None:
    """A retrieval chain streams its context, then the answer."""
    found = streamed({"context": [langchain_documents().Document(page_content="a")]}, {"answer": "y"}, {"answer": "es"})
    assert found == Answer("yes", documents=(Document("a"),))


# --- LlamaIndex ------------------------------------------------------------------------------------------------------
def node(text: str = "a", score: float | None = 0.5) -> Any:
    """A scored node."""
    return llama_schema().NodeWithScore(node=llama_schema().TextNode(text=text, id_="n1"), score=score)


def test_llama_index_nodes() -> None:
    """Scored nodes, bare nodes, and documents."""
    assert find_documents([node()]) == (Document("a", "n1", 0.5),)
    assert find_documents([llama_schema().TextNode(text="a", id_="n1")]) == (Document("a", "n1"),)
    assert find_documents([llama_schema().Document(text="a", id_="n1")]) == (Document("a", "n1"),)


def test_llama_index_image_nodes_do_no_harm() -> None:
    """A node whose text refuses to be read is skipped."""
    image = llama_schema().NodeWithScore(node=llama_schema().IndexNode(text="b", index_id="i", id_="n2"), score=0.1)
    assert find_documents([node(), image]) == (Document("a", "n1", 0.5), Document("b", "n2", 0.1))


def test_llama_index_store_result() -> None:
    """A vector store's result has nodes, similarities and ids in parallel."""
    result = llama_stores().VectorStoreQueryResult(
        nodes=[llama_schema().TextNode(text="a", id_="n1")], similarities=[0.5], ids=["n1"]
    )
    assert find_documents(result) == (Document("a", "n1", 0.5),)


def test_llama_index_query_bundle() -> None:
    """A query bundle is a question."""
    assert find_query(llama_schema().QueryBundle("why?")) == "why?"


def test_llama_index_response() -> None:
    """A query engine's response brings its source nodes."""
    response = llama_responses().Response(response="yes", source_nodes=[node()], metadata={})
    assert find_answer(response) == Answer("yes", documents=(Document("a", "n1", 0.5),))
    assert find_documents(response) == (Document("a", "n1", 0.5),)


def test_llama_index_chat_engine_response() -> None:
    """So does a chat engine's."""
    response = llama_chat().AgentChatResponse(response="yes", source_nodes=[node()])
    assert find_answer(response) == Answer("yes", documents=(Document("a", "n1", 0.5),))


def test_llama_index_streaming_response_is_not_consumed() -> None:
    """The text is still to come; the sources are there."""
    response = llama_responses().StreamingResponse(response_gen=iter(["y", "es"]), source_nodes=[node()])
    assert find_answer(response) == Answer(None, documents=(Document("a", "n1", 0.5),))
    assert list(response.response_gen) == ["y", "es"]


def test_llama_index_completion() -> None:
    """A completion has its text, and what the provider said under `raw`."""
    raw = {"id": "c1", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    assert find_answer(llama_llms().CompletionResponse(text="yes", raw=raw)) == Answer("yes", "m", None, (), 3, 4)


def test_llama_index_chat_response() -> None:
    """A chat response has its text in blocks of the message."""
    message = llama_llms().ChatMessage(role="assistant", content="yes")
    assert find_answer(llama_llms().ChatResponse(message=message)) == Answer("yes")
    assert find_answer(message) == Answer("yes")


def test_llama_index_message_that_calls_a_tool_is_no_missing_answer() -> None:
    """The tool's name and arguments are a block of the message."""
    types = pytest.importorskip("llama_index.core.base.llms.types")
    if not hasattr(types, "ToolCallBlock"):
        pytest.skip("this version has tool calls elsewhere")
    message = types.ChatMessage(role="assistant", blocks=[types.ToolCallBlock(tool_name="look", tool_kwargs={})])
    found = find_answer(llama_llms().ChatResponse(message=message))
    assert found is not None
    assert (found.text, found.tool_calls) == (None, 1)


def test_llama_index_messages_have_the_question() -> None:
    """The last user message is the question."""
    messages = [
        llama_llms().ChatMessage(role="user", content="why?"),
        llama_llms().ChatMessage(role="assistant", content="x"),
    ]
    assert find_query(messages) == "why?"


def test_llama_index_completion_stream() -> None:
    """Pieces carry the whole text so far: it must not be counted again and again."""
    piece = llama_llms().CompletionResponse
    assert streamed(piece(text="y", delta="y"), piece(text="yes", delta="es")) == Answer("yes")


def test_llama_index_stream_without_deltas() -> None:
    """With the whole text alone, the new part is worked out."""
    piece = llama_llms().CompletionResponse
    assert streamed(piece(text="y"), piece(text="yes")) == Answer("yes")


def test_llama_index_chat_stream() -> None:
    """The same for chats."""

    def piece(text: str, delta: str | None) -> Any:
        return llama_llms().ChatResponse(message=llama_llms().ChatMessage(role="assistant", content=text), delta=delta)

    assert streamed(piece("y", "y"), piece("yes", "es")) == Answer("yes")
    assert streamed(piece("y", None), piece("yes", None)) == Answer("yes")


# --- Haystack --------------------------------------------------------------------------------------------------------
def test_haystack_documents() -> None:
    """A retriever returns a dict with documents."""
    found = find_documents({"documents": [haystack().Document(content="a", id="1", score=0.5)]})
    assert found == (Document("a", "1", 0.5),)


def test_haystack_documents_are_no_answer() -> None:
    """Though a document's text is called content."""
    assert find_answer(haystack().Document(content="a")) is None
    assert find_answer([haystack().Document(content="a")]) is None


def haystack_message() -> Any:
    """An assistant's message with metadata."""
    meta = {"model": "m", "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    return haystack_data().ChatMessage.from_assistant("yes", meta=meta)


def test_haystack_messages() -> None:
    """A message of a chat generator, alone or as its result."""
    expected = Answer("yes", "m", None, ("stop",), 3, 4)
    assert find_answer(haystack_message()) == expected
    assert find_answer({"replies": [haystack_message()]}) == expected
    assert find_answer({"llm": {"replies": [haystack_message()]}}) == expected


def test_haystack_questions() -> None:
    """The last user message is the question."""
    messages = [haystack_data().ChatMessage.from_system("s"), haystack_data().ChatMessage.from_user("why?")]
    assert find_query(messages) == "why?"


def test_haystack_generated_answer() -> None:
    """An answer builder's answer brings its documents."""
    answer = haystack().GeneratedAnswer(data="yes", query="q", documents=[haystack().Document(content="a", id="1")])
    expected = Answer("yes", documents=(Document("a", "1"),))
    assert find_answer(answer) == expected
    assert find_answer({"answer_builder": {"answers": [answer]}}) == expected


def test_haystack_tool_call() -> None:
    """A message that only calls a tool has no text."""
    call = haystack_data().ToolCall(tool_name="search", arguments={})
    assert find_answer(haystack_data().ChatMessage.from_assistant(tool_calls=[call])) == Answer(None, tool_calls=1)


def test_haystack_chunks() -> None:
    """Streaming chunks have content, and the provider's facts under `meta`."""
    chunk = haystack_data().StreamingChunk
    found = streamed(
        chunk(content="", meta={"model": "m"}),
        chunk(content="y", meta={"model": "m"}),
        chunk(content="es", meta={"model": "m", "finish_reason": "stop"}),
    )
    assert found == Answer("yes", "m", None, ("stop",))


# --- OpenAI ----------------------------------------------------------------------------------------------------------
def completion(message: dict[str, Any], finish_reason: str = "stop") -> Any:
    """A chat completion."""
    return openai_chat().ChatCompletion.model_validate(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", **message},
                    "logprobs": None,
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        }
    )


CALL = {"id": "t1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def test_openai_completion() -> None:
    """Text, model, id, finish reason and usage."""
    assert find_answer(completion({"content": "yes"})) == Answer("yes", "m", "c1", ("stop",), 3, 4)


def test_openai_tool_calls() -> None:
    """Tool calls alone: understood, no text."""
    found = find_answer(completion({"content": None, "tool_calls": [CALL]}, "tool_calls"))
    assert found == Answer(None, "m", "c1", ("tool_calls",), 3, 4, tool_calls=1)


def test_openai_refusal() -> None:
    """A refusal is the answer."""
    found = find_answer(completion({"content": None, "refusal": "I cannot"}))
    assert found == Answer("I cannot", "m", "c1", ("stop",), 3, 4)


def test_openai_completion_as_json() -> None:
    """The same as a dict."""
    made = completion({"content": "yes"})
    assert find_answer(made.model_dump()) == find_answer(made)


def chunk(delta: dict[str, Any] | None, **more: Any) -> Any:
    """A chunk of a chat completion."""
    finish = more.pop("finish_reason", None)
    index = more.pop("index", 0)
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}]
    return openai_chat().ChatCompletionChunk.model_validate(
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    )


def test_openai_chunks() -> None:
    """The last chunk has the usage and no choice; of several choices the first is the answer."""
    found = streamed(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "y"}),
        chunk({"content": "NO"}, index=1),
        chunk({"content": "es"}),
        chunk({}, finish_reason="stop"),
        chunk(None, usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
    )
    assert found == Answer("yes", "m", "c1", ("stop",), 3, 4)


def test_openai_tool_call_chunks() -> None:
    """A call in parts is one call."""
    found = streamed(
        chunk({"role": "assistant", "content": None, "tool_calls": [{"index": 0, **CALL}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
        chunk({}, finish_reason="tool_calls"),
    )
    assert found == Answer(None, "m", "c1", ("tool_calls",), tool_calls=1)


def test_openai_refusal_chunks() -> None:
    """A refusal is streamed like text."""
    found = streamed(chunk({"refusal": "I "}), chunk({"refusal": "cannot"}))
    assert found == Answer("I cannot", "m", "c1")


def test_a_refusal_is_read_of_every_part_of_a_completion() -> None:
    """A function may return the choice or the message, or yield the deltas, as objects or JSON."""
    made = completion({"content": None, "refusal": "I cannot"}).choices[0]
    for value in (
        made,
        made.message,
        made.message.model_dump(),
        {"role": "assistant", "content": "", "refusal": "I cannot"},
    ):
        found = find_answer(value)
        assert found is not None
        assert found.text == "I cannot"
    deltas = [chunk(delta).choices[0].delta for delta in ({"refusal": ""}, {"refusal": "I "}, {"refusal": "cannot"})]
    assert streamed(*deltas) == Answer("I cannot")
    assert streamed(*(delta.model_dump() for delta in deltas)) == Answer("I cannot")


def test_a_refusal_of_the_responses_api_is_read_of_every_part() -> None:
    """Its output, its message and the parts of that."""
    message = {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "refusal", "refusal": "I cannot"}],
    }
    output = openai_responses().Response.model_validate(response(message)).output
    for value in (output, output[0], output[0].content, [message]):
        assert find_answer(value) == Answer("I cannot")


def test_a_refusal_of_langchain_is_the_answer() -> None:
    """It stands beside an empty text, or is a part of the message."""
    messages = langchain_messages()
    beside = {"content": "", "additional_kwargs": {"refusal": "I cannot"}}
    for value in (beside, {"content": [{"type": "refusal", "refusal": "I cannot"}]}):
        assert find_answer(messages.AIMessage(**value)) == Answer("I cannot")
    pieces = [messages.AIMessageChunk(content="", additional_kwargs={"refusal": text}) for text in ("I ", "cannot")]
    assert streamed(*pieces) == Answer("I cannot")


def response(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """The JSON of a response."""
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "text": {"format": {"type": "text"}},
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 7,
        },
        **more,
    }


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    """A message of a response's output."""
    return {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": list(parts)}


def spoken(text: str) -> dict[str, Any]:
    """A part of a message."""
    return {"type": "output_text", "text": text, "annotations": []}


REASONING = {"type": "reasoning", "id": "x", "summary": [{"type": "summary_text", "text": "hm"}]}
FUNCTION = {"type": "function_call", "id": "f", "call_id": "f", "name": "search", "arguments": "{}"}


def made(data: dict[str, Any]) -> Any:
    """The object of a response."""
    return openai_responses().Response.model_validate(data)


def test_openai_response() -> None:
    """Text of all messages, reasoning left out; status as finish reason."""
    found = find_answer(made(response(REASONING, message(spoken("y"), spoken("es")))))
    assert found == Answer("yes", "m", "r1", ("completed",), 3, 4)


def test_openai_response_that_calls_a_function() -> None:
    """Understood, no text."""
    assert find_answer(made(response(FUNCTION))) == Answer(None, "m", "r1", ("completed",), 3, 4, tool_calls=1)


def test_openai_response_that_refuses() -> None:
    """A refusal is the answer."""
    found = find_answer(made(response(message({"type": "refusal", "refusal": "I cannot"}))))
    assert found == Answer("I cannot", "m", "r1", ("completed",), 3, 4)


def test_openai_response_that_was_cut_off() -> None:
    """The reason it is incomplete is the finish reason."""
    data = response(message(spoken("ye")), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert find_answer(made(data)) == Answer("ye", "m", "r1", ("max_output_tokens",), 3, 4)


def delta(text: str) -> Any:
    """A text event of a response's stream."""
    return openai_responses().ResponseTextDeltaEvent(
        type="response.output_text.delta",
        delta=text,
        content_index=0,
        item_id="m1",
        logprobs=[],
        output_index=0,
        sequence_number=1,
    )


def completed(data: dict[str, Any]) -> Any:
    """The last event of a response's stream."""
    return openai_responses().ResponseCompletedEvent(type="response.completed", response=made(data), sequence_number=9)


def test_openai_response_stream() -> None:
    """Deltas make the text, the last event has usage and status, and does not repeat the text."""
    found = streamed(delta("y"), delta("es"), completed(response(message(spoken("yes")))))
    assert found == Answer("yes", "m", "r1", ("completed",), 3, 4)


def test_openai_response_stream_without_deltas() -> None:
    """If only the last event came, its text is the answer."""
    found = streamed(completed(response(message(spoken("yes")), FUNCTION)))
    assert found == Answer("yes", "m", "r1", ("completed",), 3, 4, tool_calls=1)


def test_openai_vector_store_search() -> None:
    """A search result has its text in parts."""
    result = openai_types().VectorStoreSearchResponse.model_validate(
        {
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "file_id": "f1",
            "filename": "x.md",
            "score": 0.5,
            "attributes": {},
        }
    )
    assert find_documents([result]) == (Document("a\nb", "f1", 0.5),)


def test_openai_vector_store_page() -> None:
    """The page is not iterated: that would fetch the next one."""
    pagination = library("openai.pagination")
    result = openai_types().VectorStoreSearchResponse.model_validate(
        {"content": [{"type": "text", "text": "a"}], "file_id": "f1", "filename": "x.md", "score": 0.5}
    )
    page = build(pagination.SyncPage, {"data": [result], "object": "list"})
    assert find_documents(page) == (Document("a", "f1", 0.5),)


def test_openai_messages_have_the_question() -> None:
    """The messages of a request, with an image beside the text."""
    parts = [{"type": "text", "text": "why?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    assert find_query([{"role": "system", "content": "s"}, {"role": "user", "content": parts}]) == "why?"


# --- SQLAlchemy ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("columns", ["id, text, score", "id as a, text as b, score as c"])
def test_rows_of_sqlalchemy(columns: str) -> None:
    """By the names of their columns, or by what is in them."""
    sqlalchemy = library("sqlalchemy")
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection:
        query = "select 'd-1' as id, 'It is 330 metres tall.' as text, 0.5 as score"
        rows = connection.execute(sqlalchemy.text(f"select {columns} from ({query})")).all()
    engine.dispose()
    score = 0.5 if columns.startswith("id,") else None  # that of a single row without names may be a distance
    assert find_documents(rows) == (Document("It is 330 metres tall.", "d-1", score),)


def _gpt(reason: str) -> Any:
    message = {"role": "assistant", "content": None}
    choices = [{"index": 0, "finish_reason": reason, "message": message}]
    usage = {"prompt_tokens": 900, "completion_tokens": 0, "total_tokens": 900}
    given = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-x",
        "choices": choices,
        "usage": usage,
    }
    return library("openai").types.chat.ChatCompletion.model_validate(given)


@pytest.mark.parametrize("reason", ["content_filter", "length"])
def test_what_a_reply_cost_is_read_also_where_it_has_no_text(reason: str) -> None:
    """These are the replies that one looks for: they are empty, and nothing is to be pointed at."""
    found = find_answer(_gpt(reason))
    assert found is not None
    assert (found.text, found.input_tokens, found.output_tokens) == ("", 900, 0)
