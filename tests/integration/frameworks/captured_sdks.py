"""Small applications of SDKs, vector stores and frameworks; most return what the SDK gives, as applications do."""

from __future__ import annotations

import os
from typing import Any, Final

from captured import form
from captured_server import ANSWER, DOCUMENTS, PIECES, postgres

ROOT: Final = os.environ["CAPTURED_ROOT"]
START: Final = ANSWER[:24]
"""First piece of the model server's streams."""


def _messages(question: str, docs: list[str]) -> list[Any]:
    return [{"role": "user", "content": f"{docs[0]}\n{docs[1]}\n\nQuestion: {question}"}]


def _prompt(question: str, docs: list[str]) -> str:
    return str(_messages(question, docs)[0]["content"])


# --- OpenAI -----------------------------------------------------------------------------------------------------------
import openai  # noqa: E402

_openai, _aopenai = openai.OpenAI(), openai.AsyncOpenAI


@form("openai", "chat")
def openai_chat(question: str, docs: list[str]) -> Any:
    return _openai.chat.completions.create(model="m", messages=_messages(question, docs))


@form("openai", "chat, async")
async def openai_achat(question: str, docs: list[str]) -> Any:
    return await _aopenai().chat.completions.create(model="m", messages=_messages(question, docs))


@form("openai", "chat, stream")
def openai_chat_stream(question: str, docs: list[str]) -> Any:
    return _openai.chat.completions.create(model="m", messages=_messages(question, docs), stream=True)


@form("openai", "chat, stream, async")
async def openai_achat_stream(question: str, docs: list[str]) -> Any:
    return await _aopenai().chat.completions.create(model="m", messages=_messages(question, docs), stream=True)


@form("openai", "chat, stream, left early", pieces=2, answer=START)
def openai_chat_early(question: str, docs: list[str]) -> Any:
    return _openai.chat.completions.create(model="m", messages=_messages(question, docs), stream=True)


@form("openai", "chat, failing", error=True)
def openai_failing(question: str, docs: list[str]) -> Any:
    client = openai.OpenAI(base_url=f"{ROOT}/nowhere", max_retries=0)
    return client.post("/absent", body={}, cast_to=object)


@form("openai", "chat, stream helper, events passed on")
def openai_helper(question: str, docs: list[str]) -> Any:
    with _openai.chat.completions.stream(model="m", messages=_messages(question, docs)) as stream:
        yield from stream


def _read_events(manager: Any) -> None:
    with manager as stream:
        for _ in stream:
            pass


@form("openai", "chat, stream helper returned, its events read", read=_read_events)
def openai_manager(question: str, docs: list[str]) -> Any:
    return _openai.chat.completions.stream(model="m", messages=_messages(question, docs))


@form("openai", "chat, stream helper returned, its completion read", read=lambda manager: _completion(manager))
def openai_manager_completion(question: str, docs: list[str]) -> Any:
    return _openai.chat.completions.stream(model="m", messages=_messages(question, docs))


def _completion(manager: Any) -> None:
    with manager as stream:
        stream.get_final_completion()


async def _aread_events(manager: Any) -> None:
    async with manager as stream:
        async for _ in stream:
            pass


@form("openai", "chat, stream helper returned, async", read=_aread_events)
def openai_amanager(question: str, docs: list[str]) -> Any:
    return _aopenai().chat.completions.stream(model="m", messages=_messages(question, docs))


@form("openai", "responses, stream helper returned", read=_read_events)
def openai_responses_manager(question: str, docs: list[str]) -> Any:
    return _openai.responses.stream(model="m", input=_prompt(question, docs))


@form("openai", "responses")
def openai_responses(question: str, docs: list[str]) -> Any:
    return _openai.responses.create(model="m", input=_prompt(question, docs))


@form("openai", "responses, stream")
def openai_responses_stream(question: str, docs: list[str]) -> Any:
    return _openai.responses.create(model="m", input=_prompt(question, docs), stream=True)


@form("openai", "responses, stream, async")
async def openai_aresponses_stream(question: str, docs: list[str]) -> Any:
    return await _aopenai().responses.create(model="m", input=_prompt(question, docs), stream=True)


@form("openai", "responses, stream helper, events passed on")
def openai_responses_helper(question: str, docs: list[str]) -> Any:
    with _openai.responses.stream(model="m", input=_prompt(question, docs)) as stream:
        yield from stream


# --- Anthropic --------------------------------------------------------------------------------------------------------
import anthropic  # noqa: E402

_anthropic: Final = anthropic.Anthropic(base_url=ROOT, api_key="none")


def _aanthropic() -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=ROOT, api_key="none")


@form("anthropic", "messages")
def anthropic_messages(question: str, docs: list[str]) -> Any:
    return _anthropic.messages.create(model="m", max_tokens=9, messages=_messages(question, docs))


@form("anthropic", "messages, async")
async def anthropic_amessages(question: str, docs: list[str]) -> Any:
    return await _aanthropic().messages.create(model="m", max_tokens=9, messages=_messages(question, docs))


@form("anthropic", "create(stream=True)")
def anthropic_stream(question: str, docs: list[str]) -> Any:
    return _anthropic.messages.create(model="m", max_tokens=9, messages=_messages(question, docs), stream=True)


@form("anthropic", "create(stream=True), async")
async def anthropic_astream(question: str, docs: list[str]) -> Any:
    return await _aanthropic().messages.create(model="m", max_tokens=9, messages=_messages(question, docs), stream=True)


@form("anthropic", "create(stream=True), left early", pieces=4, answer="".join(PIECES[:2]))
def anthropic_early(question: str, docs: list[str]) -> Any:
    return _anthropic.messages.create(model="m", max_tokens=9, messages=_messages(question, docs), stream=True)


@form("anthropic", "messages.stream(), events passed on")
def anthropic_helper(question: str, docs: list[str]) -> Any:
    with _anthropic.messages.stream(model="m", max_tokens=9, messages=_messages(question, docs)) as stream:
        yield from stream


@form("anthropic", "messages.stream().text_stream")
def anthropic_text_stream(question: str, docs: list[str]) -> Any:
    with _anthropic.messages.stream(model="m", max_tokens=9, messages=_messages(question, docs)) as stream:
        yield from stream.text_stream


def _read_text(manager: Any) -> None:
    with manager as stream:
        for _ in stream.text_stream:
            pass


@form("anthropic", "messages.stream() returned, its text_stream read", read=_read_text)
def anthropic_manager(question: str, docs: list[str]) -> Any:
    return _anthropic.messages.stream(model="m", max_tokens=9, messages=_messages(question, docs))


def _read_final(manager: Any) -> None:
    with manager as stream:
        assert stream.get_final_text() == ANSWER


@form("anthropic", "messages.stream() returned, its final text read", read=_read_final)
def anthropic_manager_final(question: str, docs: list[str]) -> Any:
    return _anthropic.messages.stream(model="m", max_tokens=9, messages=_messages(question, docs))


def _leave_text(manager: Any) -> None:
    with manager as stream:
        for at, _ in enumerate(stream.text_stream, 1):
            if at == 2:
                break


@form("anthropic", "messages.stream() returned, left early", read=_leave_text, answer="".join(PIECES[:2]))
def anthropic_manager_left(question: str, docs: list[str]) -> Any:
    return _anthropic.messages.stream(model="m", max_tokens=9, messages=_messages(question, docs))


async def _aread_text(manager: Any) -> None:
    async with manager as stream:
        async for _ in stream.text_stream:
            pass


@form("anthropic", "messages.stream() returned, async", read=_aread_text)
def anthropic_amanager(question: str, docs: list[str]) -> Any:
    return _aanthropic().messages.stream(model="m", max_tokens=9, messages=_messages(question, docs))


# --- Other providers --------------------------------------------------------------------------------------------------
from google import genai  # noqa: E402

_genai: Final = genai.Client(api_key="none", http_options={"base_url": ROOT})


@form("google-genai", "generate_content")
def genai_content(question: str, docs: list[str]) -> Any:
    return _genai.models.generate_content(model="m", contents=_prompt(question, docs))


@form("google-genai", "generate_content_stream")
def genai_stream(question: str, docs: list[str]) -> Any:
    return _genai.models.generate_content_stream(model="m", contents=_prompt(question, docs))


@form("google-genai", "generate_content_stream, left early", pieces=2, answer="".join(PIECES[:2]))
def genai_early(question: str, docs: list[str]) -> Any:
    return _genai.models.generate_content_stream(model="m", contents=_prompt(question, docs))


@form("google-genai", "generate_content, of a model that thinks")
def genai_thought(question: str, docs: list[str]) -> Any:
    return _genai.models.generate_content(model="thinks", contents=_prompt(question, docs))


@form("google-genai", "generate_content_stream, of a model that thinks")
def genai_thought_stream(question: str, docs: list[str]) -> Any:
    return _genai.models.generate_content_stream(model="thinks", contents=_prompt(question, docs))


@form("google-genai", "generate_content, async")
async def genai_acontent(question: str, docs: list[str]) -> Any:
    return await _genai.aio.models.generate_content(model="m", contents=_prompt(question, docs))


@form("google-genai", "generate_content_stream, async")
async def genai_astream(question: str, docs: list[str]) -> Any:
    return await _genai.aio.models.generate_content_stream(model="m", contents=_prompt(question, docs))


import cohere  # noqa: E402

_cohere: Final = cohere.ClientV2(api_key="none", base_url=ROOT)


@form("cohere", "chat")
def cohere_chat(question: str, docs: list[str]) -> Any:
    return _cohere.chat(model="m", messages=_messages(question, docs))


@form("cohere", "chat_stream")
def cohere_stream(question: str, docs: list[str]) -> Any:
    return _cohere.chat_stream(model="m", messages=_messages(question, docs))


import ollama  # noqa: E402

_ollama: Final = ollama.Client(host=ROOT)


@form("ollama", "chat")
def ollama_chat(question: str, docs: list[str]) -> Any:
    return _ollama.chat(model="m", messages=_messages(question, docs))


@form("ollama", "chat, stream")
def ollama_chat_stream(question: str, docs: list[str]) -> Any:
    return _ollama.chat(model="m", messages=_messages(question, docs), stream=True)


@form("ollama", "chat, stream, left early", pieces=2, answer="".join(PIECES[:2]))
def ollama_early(question: str, docs: list[str]) -> Any:
    return _ollama.chat(model="m", messages=_messages(question, docs), stream=True)


@form("ollama", "generate")
def ollama_generate(question: str, docs: list[str]) -> Any:
    return _ollama.generate(model="m", prompt=_prompt(question, docs))


@form("ollama", "generate, stream")
def ollama_generate_stream(question: str, docs: list[str]) -> Any:
    return _ollama.generate(model="m", prompt=_prompt(question, docs), stream=True)


@form("ollama", "chat, stream, async")
async def ollama_astream(question: str, docs: list[str]) -> Any:
    return await ollama.AsyncClient(host=ROOT).chat(model="m", messages=_messages(question, docs), stream=True)


from huggingface_hub import InferenceClient  # noqa: E402

_hub: Final = InferenceClient(base_url=f"{ROOT}/v1", api_key="none")


@form("huggingface-hub", "chat_completion")
def hub_chat(question: str, docs: list[str]) -> Any:
    return _hub.chat_completion(_messages(question, docs))


@form("huggingface-hub", "chat_completion, stream")
def hub_stream(question: str, docs: list[str]) -> Any:
    return _hub.chat_completion(_messages(question, docs), stream=True)


from mistralai.client import Mistral  # noqa: E402


@form("mistralai", "chat.complete")
def mistral_chat(question: str, docs: list[str]) -> Any:
    return Mistral(api_key="none", server_url=ROOT).chat.complete(model="m", messages=_messages(question, docs))


@form("mistralai", "chat.stream")
def mistral_stream(question: str, docs: list[str]) -> Any:
    return Mistral(api_key="none", server_url=ROOT).chat.stream(model="m", messages=_messages(question, docs))


# --- Frameworks -------------------------------------------------------------------------------------------------------
from langchain_openai import ChatOpenAI  # noqa: E402
from langgraph.graph import START as BEGIN  # noqa: E402
from langgraph.graph import MessagesState, StateGraph  # noqa: E402

_chat: Final = ChatOpenAI(model="m")


@form("langchain-openai", "invoke")
def langchain_invoke(question: str, docs: list[str]) -> Any:
    return _chat.invoke(_prompt(question, docs))


@form("langchain-openai", "stream")
def langchain_stream(question: str, docs: list[str]) -> Any:
    return _chat.stream(_prompt(question, docs))


@form("langchain-openai", "astream")
async def langchain_astream(question: str, docs: list[str]) -> Any:
    async for piece in ChatOpenAI(model="m").astream(_prompt(question, docs)):
        yield piece


def _graph() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [_chat.invoke(state["messages"])]})
    graph.add_edge(BEGIN, "model")
    return graph.compile()


@form("langgraph", "invoke")
def langgraph_invoke(question: str, docs: list[str]) -> Any:
    return _graph().invoke({"messages": _messages(question, docs)})


def _langgraph(name: str, mode: Any, **options: Any) -> None:
    def generate(question: str, docs: list[str]) -> Any:
        return _graph().stream({"messages": _messages(question, docs)}, stream_mode=mode, **options)

    form("langgraph", name)(generate)


_langgraph("stream, messages", "messages")
_langgraph("stream, updates", "updates")
_langgraph("stream, values", "values")
_langgraph("stream, messages and updates", ["messages", "updates"])
_langgraph("stream, messages, subgraphs=True", "messages", subgraphs=True)

from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel  # noqa: E402


@form("pydantic-ai-slim", "run_sync")
def pydantic_run(question: str, docs: list[str]) -> Any:
    return Agent(OpenAIChatModel("m")).run_sync(_prompt(question, docs))


@form("pydantic-ai-slim", "stream_text, whole text so far")
async def pydantic_stream(question: str, docs: list[str]) -> Any:
    async with Agent(OpenAIChatModel("m")).run_stream(_prompt(question, docs)) as run:
        async for text in run.stream_text(debounce_by=None):
            yield text


@form("pydantic-ai-slim", "stream_text(delta=True)")
async def pydantic_delta(question: str, docs: list[str]) -> Any:
    async with Agent(OpenAIChatModel("m")).run_stream(_prompt(question, docs)) as run:
        async for text in run.stream_text(delta=True, debounce_by=None):
            yield text


import agents  # noqa: E402

agents.set_trace_processors([])


def _agent() -> Any:
    model = agents.OpenAIChatCompletionsModel(model="m", openai_client=_aopenai())
    return agents.Agent(name="Guide", model=model)


@form("openai-agents", "Runner.run")
async def agents_run(question: str, docs: list[str]) -> Any:
    return await agents.Runner.run(_agent(), _prompt(question, docs))


@form("openai-agents", "run_streamed, texts of the events passed on")
async def agents_texts(question: str, docs: list[str]) -> Any:
    async for event in agents.Runner.run_streamed(_agent(), _prompt(question, docs)).stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


@form("openai-agents", "run_streamed, events passed on")
async def agents_streamed(question: str, docs: list[str]) -> Any:
    async for event in agents.Runner.run_streamed(_agent(), _prompt(question, docs)).stream_events():
        yield event


async def _read_agent(running: Any) -> None:
    result = await running
    async for _ in result.stream_events():
        pass
    assert result.final_output == ANSWER


@form("openai-agents", "run_streamed, its result returned", read=_read_agent)
async def agents_returned(question: str, docs: list[str]) -> Any:
    return agents.Runner.run_streamed(_agent(), _prompt(question, docs))


from haystack.components.generators.chat import OpenAIChatGenerator  # noqa: E402
from haystack.dataclasses import ChatMessage  # noqa: E402


@form("haystack-ai", "OpenAIChatGenerator.run")
def haystack_run(question: str, docs: list[str]) -> Any:
    return OpenAIChatGenerator(model="m").run([ChatMessage.from_user(_prompt(question, docs))])


# --- Retrieval --------------------------------------------------------------------------------------------------------
VECTORS: Final = [[1.0, 0.0], [0.0, 1.0]]
NEAR: Final = [0.9, 0.1]

import chromadb  # noqa: E402

_chroma: Final = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False)).create_collection("docs")
_chroma.add(ids=["a", "b"], documents=DOCUMENTS, embeddings=VECTORS, metadatas=[{"p": 1}, {"p": 2}])


@form("chromadb", "query", retrieves=True)
def chroma_query(question: str) -> Any:
    return _chroma.query(query_embeddings=[NEAR], n_results=2)


from qdrant_client import QdrantClient, models  # noqa: E402

_qdrant: Final = QdrantClient(":memory:")
_qdrant.create_collection("d", vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
_qdrant.upsert("d", [models.PointStruct(id=at, vector=VECTORS[at], payload={"text": DOCUMENTS[at]}) for at in range(2)])


@form("qdrant-client", "query_points", retrieves=True)
def qdrant_query(question: str) -> Any:
    return _qdrant.query_points("d", query=NEAR, limit=2)


@form("qdrant-client", "query_points().points", retrieves=True)
def qdrant_points(question: str) -> Any:
    return _qdrant.query_points("d", query=NEAR, limit=2).points


import tempfile  # noqa: E402

import lancedb  # noqa: E402

_lance: Final = lancedb.connect(tempfile.mkdtemp()).create_table(
    "d", [{"id": f"d{at}", "text": DOCUMENTS[at], "vector": VECTORS[at]} for at in range(2)]
)


@form("lancedb", "search().to_list()", retrieves=True)
def lance_list(question: str) -> Any:
    return _lance.search(NEAR).limit(2).to_list()


@form("lancedb", "search().to_arrow()", retrieves=True)
def lance_arrow(question: str) -> Any:
    return _lance.search(NEAR).limit(2).to_arrow()


import pandas  # noqa: E402


@form("lancedb", "search().to_pandas()", retrieves=True)
def lance_pandas(question: str) -> Any:
    return _lance.search(NEAR).limit(2).to_pandas()


@form("pandas", "DataFrame", retrieves=True)
def pandas_frame(question: str) -> Any:
    return pandas.DataFrame({"id": ["a", "b"], "text": DOCUMENTS, "score": [0.9, 0.1]})


@form("pandas", "to_dict('records')", retrieves=True)
def pandas_records(question: str) -> Any:
    return pandas.DataFrame({"id": ["a", "b"], "text": DOCUMENTS, "score": [0.9, 0.1]}).to_dict("records")


import faiss  # noqa: E402
import numpy  # noqa: E402

_faiss: Final = faiss.IndexFlatIP(2)
_faiss.add(numpy.array(VECTORS, dtype="float32"))


@form("faiss-cpu", "(text, score) pairs", retrieves=True)
def faiss_pairs(question: str) -> Any:
    scores, found = _faiss.search(numpy.array([NEAR], dtype="float32"), 2)
    return [(DOCUMENTS[at], float(score)) for at, score in zip(found[0], scores[0], strict=True)]


import sqlalchemy  # noqa: E402

_engine: Final = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
with _engine.begin() as _connection:
    _connection.execute(sqlalchemy.text("create table d (id text, text text, score real)"))
    for _at, _text in enumerate(DOCUMENTS):
        _connection.execute(
            sqlalchemy.text("insert into d values (:i, :t, :s)"), {"i": f"doc-{_at}", "t": _text, "s": 1 - _at / 2}
        )


@form("SQLAlchemy", "rows (id, text, score)", retrieves=True)
def sql_rows(question: str) -> Any:
    with _engine.connect() as connection:
        return connection.execute(sqlalchemy.text("select id, text, score from d")).all()


@form("SQLAlchemy", "mappings", retrieves=True)
def sql_mappings(question: str) -> Any:
    with _engine.connect() as connection:
        return connection.execute(sqlalchemy.text("select id, text, score from d")).mappings().all()


@form("SQLAlchemy", "scalars", retrieves=True)
def sql_scalars(question: str) -> Any:
    with _engine.connect() as connection:
        return connection.execute(sqlalchemy.text("select text from d")).scalars().all()


import duckdb  # noqa: E402


@form("duckdb", "fetchall", retrieves=True)
def duckdb_rows(question: str) -> Any:
    return duckdb.execute("select * from (values ('a-1', ?, 0.9), ('b-2', ?, 0.1))", DOCUMENTS).fetchall()


import psycopg  # noqa: E402
from psycopg.rows import dict_row, namedtuple_row, tuple_row  # noqa: E402


def _postgres_rows(row: Any) -> Any:
    with postgres() as port:
        address = f"host=127.0.0.1 port={port} user=u dbname=d sslmode=disable gssencmode=disable"
        with psycopg.connect(address, autocommit=True, row_factory=row) as connection:
            return connection.execute("select id, content, metadata, embedding, distance from d").fetchall()


@form("psycopg", "fetchall", retrieves=True)
def psycopg_tuples(question: str) -> Any:
    return _postgres_rows(tuple_row)


@form("psycopg", "fetchall, dict_row", retrieves=True)
def psycopg_dicts(question: str) -> Any:
    return _postgres_rows(dict_row)


@form("psycopg", "fetchall, namedtuple_row", retrieves=True)
def psycopg_named(question: str) -> Any:
    return _postgres_rows(namedtuple_row)


import polars  # noqa: E402


@form("polars", "DataFrame", retrieves=True)
def polars_frame(question: str) -> Any:
    return polars.DataFrame({"id": ["a", "b"], "text": DOCUMENTS, "score": [0.9, 0.1]})


from vespa.io import VespaQueryResponse  # noqa: E402


def _vespa() -> Any:
    children = [
        {"id": f"id:d:d::{at}", "relevance": 0.9 - at / 2, "source": "d", "fields": {"sddocname": "d", "text": text}}
        for at, text in enumerate(DOCUMENTS)
    ]
    root = {"id": "toplevel", "relevance": 1.0, "fields": {"totalCount": len(children)}, "children": children}
    return VespaQueryResponse(json={"root": root}, status_code=200, url=ROOT)


@form("pyvespa", "response of a query", retrieves=True)
def vespa_response(question: str) -> Any:
    return _vespa()


@form("pyvespa", "hits of a query", retrieves=True)
def vespa_hits(question: str) -> Any:
    return _vespa().hits


from azure.core.credentials import AzureKeyCredential  # noqa: E402
from azure.search.documents import SearchClient  # noqa: E402


def _azure(question: str) -> Any:
    return SearchClient(ROOT, "d", AzureKeyCredential("none")).search(question)


@form("azure-search-documents", "search", retrieves=True, read=list)
def azure_search(question: str) -> Any:
    return _azure(question)


@form("azure-search-documents", "list(search)", retrieves=True)
def azure_list(question: str) -> Any:
    return list(_azure(question))


from elasticsearch import Elasticsearch  # noqa: E402


@form("elasticsearch", "search, highlights alone", retrieves=True)
def elastic_highlights(question: str) -> Any:
    return Elasticsearch(ROOT).search(index="highlights", query={"match": {"text": question}})


@form("elasticsearch", "search, inner hits", retrieves=True)
def elastic_inner(question: str) -> Any:
    return Elasticsearch(ROOT).search(index="inner", query={"match": {"text": question}})


@form("elasticsearch", "search", retrieves=True)
def elastic_search(question: str) -> Any:
    return Elasticsearch(ROOT).search(index="d", query={"match": {"text": question}})


@form("elasticsearch", "hits", retrieves=True)
def elastic_hits(question: str) -> Any:
    return Elasticsearch(ROOT).search(index="d", query={"match": {"text": question}})["hits"]["hits"]


from rank_bm25 import BM25Okapi  # noqa: E402


@form("rank-bm25", "get_top_n", retrieves=True)
def bm25(question: str) -> Any:
    return BM25Okapi([text.split() for text in DOCUMENTS]).get_top_n(question.split(), DOCUMENTS, n=2)


from mcp import types as mcp_types  # noqa: E402


@form("mcp", "CallToolResult", retrieves=True)
def mcp_result(question: str) -> Any:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text) for text in DOCUMENTS])


import pydantic  # noqa: E402


class Passage(pydantic.BaseModel):
    """A passage, as applications define it."""

    model_config = pydantic.ConfigDict(extra="allow")
    id: str


@form("pydantic", "models with text in an extra field", retrieves=True)
def pydantic_extras(question: str) -> Any:
    return [Passage(id=f"p{at}", text=text) for at, text in enumerate(DOCUMENTS)]  # type: ignore[call-arg]


from langchain_core.documents import Document  # noqa: E402


@form("langchain-core", "(document, score) pairs", retrieves=True)
def langchain_pairs(question: str) -> Any:
    return [(Document(page_content=text), 0.5) for text in DOCUMENTS]
