"""Small applications of libraries whose requirements exclude those of captured_sdks.py; `captured.py` runs them."""

from __future__ import annotations

import os
from typing import Any, Final

from captured import form
from captured_server import ANSWER, DOCUMENTS

ROOT: Final = os.environ["CAPTURED_ROOT"]
START: Final = ANSWER[:24]
"""First piece of the model server's streams."""


def _prompt(question: str, docs: list[str]) -> str:
    return f"{docs[0]}\n{docs[1]}\n\nQuestion: {question}"


def _messages(question: str, docs: list[str]) -> list[Any]:
    return [{"role": "user", "content": _prompt(question, docs)}]


# --- LiteLLM ----------------------------------------------------------------------------------------------------------
import litellm  # noqa: E402


@form("litellm", "completion")
def litellm_completion(question: str, docs: list[str]) -> Any:
    return litellm.completion("openai/m", messages=_messages(question, docs))


@form("litellm", "completion, stream")
def litellm_stream(question: str, docs: list[str]) -> Any:
    return litellm.completion("openai/m", messages=_messages(question, docs), stream=True)


@form("litellm", "completion, stream, left early", pieces=2, answer=START)
def litellm_early(question: str, docs: list[str]) -> Any:
    return litellm.completion("openai/m", messages=_messages(question, docs), stream=True)


@form("litellm", "acompletion")
async def litellm_acompletion(question: str, docs: list[str]) -> Any:
    return await litellm.acompletion("openai/m", messages=_messages(question, docs))


@form("litellm", "acompletion, stream")
async def litellm_astream(question: str, docs: list[str]) -> Any:
    return await litellm.acompletion("openai/m", messages=_messages(question, docs), stream=True)


@form("litellm", "responses")
def litellm_responses(question: str, docs: list[str]) -> Any:
    return litellm.responses(model="openai/m", input=_prompt(question, docs))


# --- Groq: the API of OpenAI in classes of its own --------------------------------------------------------------------
import groq  # noqa: E402

_groq: Final = groq.Groq(api_key="none", base_url=ROOT)


@form("groq", "chat")
def groq_chat(question: str, docs: list[str]) -> Any:
    return _groq.chat.completions.create(model="m", messages=_messages(question, docs))


@form("groq", "chat, stream")
def groq_stream(question: str, docs: list[str]) -> Any:
    return _groq.chat.completions.create(model="m", messages=_messages(question, docs), stream=True)


# --- Bedrock ----------------------------------------------------------------------------------------------------------
import boto3  # noqa: E402

_bedrock: Final = boto3.client(
    "bedrock-runtime",
    endpoint_url=ROOT,
    region_name="us-east-1",
    aws_access_key_id="none",
    aws_secret_access_key="none",
)


def _blocks(question: str, docs: list[str]) -> list[Any]:
    return [{"role": "user", "content": [{"text": _prompt(question, docs)}]}]


def _read_response(response: Any) -> None:
    for _ in response["stream"]:
        pass


@form("boto3", "bedrock-runtime converse")
def bedrock_converse(question: str, docs: list[str]) -> Any:
    return _bedrock.converse(modelId="m", messages=_blocks(question, docs))


@form("boto3", "bedrock-runtime converse, of a model that thinks")
def bedrock_thought(question: str, docs: list[str]) -> Any:
    return _bedrock.converse(modelId="thinks", messages=_blocks(question, docs))


@form("boto3", "bedrock-runtime converse_stream, of a model that thinks")
def bedrock_thought_stream(question: str, docs: list[str]) -> Any:
    return _bedrock.converse_stream(modelId="thinks", messages=_blocks(question, docs))["stream"]


@form("boto3", "bedrock-runtime converse_stream, its response returned", read=_read_response)
def bedrock_response(question: str, docs: list[str]) -> Any:
    return _bedrock.converse_stream(modelId="m", messages=_blocks(question, docs))


@form("boto3", "bedrock-runtime converse_stream, its stream returned")
def bedrock_stream(question: str, docs: list[str]) -> Any:
    return _bedrock.converse_stream(modelId="m", messages=_blocks(question, docs))["stream"]


@form("boto3", "bedrock-runtime converse_stream, events passed on")
def bedrock_events(question: str, docs: list[str]) -> Any:
    yield from _bedrock.converse_stream(modelId="m", messages=_blocks(question, docs))["stream"]


# --- Instructor -------------------------------------------------------------------------------------------------------
import instructor  # noqa: E402
import openai  # noqa: E402
from pydantic import BaseModel  # noqa: E402

_instructor: Final = instructor.from_openai(openai.OpenAI(), mode=instructor.Mode.JSON)


class Answer(BaseModel):
    """Form of the answer."""

    answer: str


@form("instructor", "create")
def instructor_create(question: str, docs: list[str]) -> Any:
    return _instructor.create(model="m", messages=_messages(question, docs), response_model=Answer)


@form("instructor", "create_partial")
def instructor_partial(question: str, docs: list[str]) -> Any:
    return _instructor.create_partial(model="m", messages=_messages(question, docs), response_model=Answer)


# --- DSPy -------------------------------------------------------------------------------------------------------------
import dspy  # noqa: E402

dspy.configure(lm=dspy.LM("openai/m", cache=False))


@form("dspy", "Predict")
def dspy_predict(question: str, docs: list[str]) -> Any:
    return dspy.Predict("context: list[str], question: str -> answer: str")(context=docs, question=question)


@form("dspy", "streamify")
def dspy_stream(question: str, docs: list[str]) -> Any:
    predict = dspy.Predict("context: list[str], question: str -> answer: str")
    listeners = [dspy.streaming.StreamListener("answer")]
    return dspy.streamify(predict, stream_listeners=listeners, async_streaming=False)(context=docs, question=question)


# --- LlamaIndex -------------------------------------------------------------------------------------------------------
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.core.schema import NodeWithScore, TextNode  # noqa: E402
from llama_index.llms.openai_like import OpenAILike  # noqa: E402

_like: Final = OpenAILike("m", api_base=f"{ROOT}/v1", api_key="none", is_chat_model=True)


@form("llama-index-core", "complete")
def llama_complete(question: str, docs: list[str]) -> Any:
    return _like.complete(_prompt(question, docs))


@form("llama-index-core", "stream_complete")
def llama_stream_complete(question: str, docs: list[str]) -> Any:
    return _like.stream_complete(_prompt(question, docs))


@form("llama-index-core", "chat")
def llama_chat(question: str, docs: list[str]) -> Any:
    return _like.chat([ChatMessage(_prompt(question, docs))])


@form("llama-index-core", "stream_chat")
def llama_stream_chat(question: str, docs: list[str]) -> Any:
    return _like.stream_chat([ChatMessage(_prompt(question, docs))])


@form("llama-index-core", "stream_chat, left early", pieces=2, answer=START)
def llama_early(question: str, docs: list[str]) -> Any:
    return _like.stream_chat([ChatMessage(_prompt(question, docs))])


@form("llama-index-core", "astream_chat")
async def llama_astream_chat(question: str, docs: list[str]) -> Any:
    return await _like.astream_chat([ChatMessage(_prompt(question, docs))])


@form("llama-index-core", "nodes with scores", retrieves=True)
def llama_nodes(question: str) -> Any:
    return [NodeWithScore(node=TextNode(text=text), score=0.5) for text in DOCUMENTS]


# --- Retrieval --------------------------------------------------------------------------------------------------------
from opensearchpy import OpenSearch  # noqa: E402


@form("opensearch-py", "search", retrieves=True)
def opensearch_search(question: str) -> Any:
    return OpenSearch(ROOT).search(index="d", body={"query": {"match": {"text": question}}})


from pinecone import Pinecone  # noqa: E402

_pinecone: Final = Pinecone(api_key="none").Index(host=ROOT)


@form("pinecone", "query", retrieves=True)
def pinecone_query(question: str) -> Any:
    return _pinecone.query(vector=[0.9, 0.1], top_k=2, include_metadata=True)


@form("pinecone", "query().matches", retrieves=True)
def pinecone_matches(question: str) -> Any:
    return _pinecone.query(vector=[0.9, 0.1], top_k=2, include_metadata=True).matches


from weaviate.collections.classes.internal import MetadataReturn, Object, QueryReturn  # noqa: E402


def _weaviate() -> Any:
    def found(text: str) -> Any:
        return Object(
            uuid="6ba7b810-9dad-11d1-80b4-00c04fd430c8",  # type: ignore[arg-type]
            metadata=MetadataReturn(score=0.5),
            properties={"text": text, "page": 3},
            references=None,
            vector={},
            collection="d",
        )

    return QueryReturn([found(text) for text in DOCUMENTS])


@form("weaviate-client", "objects of a query", retrieves=True)
def weaviate_objects(question: str) -> Any:
    return _weaviate().objects


@form("weaviate-client", "result of a query", retrieves=True)
def weaviate_result(question: str) -> Any:
    return _weaviate()


import bson  # noqa: E402


@form("pymongo", "documents", retrieves=True)
def mongo_documents(question: str) -> Any:
    return [bson.SON(_id=bson.ObjectId(), text=text, score=0.5) for text in DOCUMENTS]
