"""Small RAG applications of Haystack, with a model and a retriever that need no network.

Imported by the tests when they run, as Haystack takes seconds to import.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from haystack import Document, Pipeline, component
from haystack.components.builders import AnswerBuilder, ChatPromptBuilder
from haystack.components.joiners import DocumentJoiner
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.rankers import LostInTheMiddleRanker
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ChatMessage, StreamingChunk, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore

TEXTS: Final = (
    "The Eiffel Tower is 330 metres tall.",
    "The Eiffel Tower was built by Gustave Eiffel.",
    "The Louvre has 35,000 works of art.",
    "The Seine is 777 kilometres long.",
)
MODEL: Final = "model-1"
TOKENS: Final = (11, 7)
"""Tokens that the model reports for each of its calls: input and output."""
TEMPLATE: Final = "Context: {% for document in documents %}{{ document.content }} {% endfor %}Question: {{ question }}"


@component
class EchoChatGenerator:
    """Generator that answers with the question in its prompt; or calls the first tool, once; or fails."""

    def __init__(self, error: str = "") -> None:
        self.error = error

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: Callable[[StreamingChunk], None] | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        tools: Any = None,
    ) -> dict[str, list[ChatMessage]]:
        if self.error:
            raise RuntimeError(self.error)
        meta = {"model": MODEL, "usage": {"prompt_tokens": TOKENS[0], "completion_tokens": TOKENS[1]}}
        said = next(message.text or "" for message in reversed(messages) if message.is_from("user"))
        question = said.rpartition("Question: ")[2]
        if tools and not any(message.is_from("tool") for message in messages):
            call = ToolCall(tool_name=tools[0].name, arguments={"query": question})
            return {"replies": [ChatMessage.from_assistant(tool_calls=[call], meta=meta)]}
        answer = f"I was asked: {question}"
        if streaming_callback is not None:
            for word in answer.split(" "):
                streaming_callback(StreamingChunk(content=word))
        return {"replies": [ChatMessage.from_assistant(answer, meta=meta)]}


@component
class WordRetriever:
    """Retriever of the texts that share most words with the question."""

    def __init__(self, top_k: int) -> None:
        self.top_k = top_k

    @component.output_types(documents=list[Document])
    def run(self, query: str, session_id: str | None = None) -> dict[str, list[Document]]:
        wanted = set(re.findall(r"\w+", query.lower()))
        found = [
            Document(id=f"d{number}", content=text, score=float(len(wanted & set(re.findall(r"\w+", text.lower())))))
            for number, text in enumerate(TEXTS)
        ]
        return {"documents": sorted(found, key=lambda each: -(each.score or 0.0))[: self.top_k]}


def pipeline(*, error: str = "", top_k: int = 2, ranked: int | None = None, hybrid: bool = False) -> Pipeline:
    """Return a pipeline of retriever, prompt, model and answer builder.

    Args:
        error: text of the exception that the model raises; empty: none.
        top_k: documents that each retriever finds.
        ranked: documents that a ranker leaves; None: there is no ranker.
        hybrid: whether there are two retrievers and a joiner.
    """
    made = Pipeline()
    made.add_component("retriever", WordRetriever(top_k))
    made.add_component(
        "prompt", ChatPromptBuilder([ChatMessage.from_user(TEMPLATE)], required_variables=["documents", "question"])
    )
    made.add_component("llm", EchoChatGenerator(error))
    made.add_component("answer", AnswerBuilder())
    source = "retriever"
    if hybrid:
        made.add_component("second", WordRetriever(top_k))
        made.add_component("joiner", DocumentJoiner(join_mode="concatenate"))
        made.connect("retriever.documents", "joiner.documents")
        made.connect("second.documents", "joiner.documents")
        source = "joiner"
    if ranked is not None:
        made.add_component("ranker", LostInTheMiddleRanker(top_k=ranked))
        made.connect(f"{source}.documents", "ranker.documents")
        source = "ranker"
    made.connect(f"{source}.documents", "prompt.documents")
    made.connect("prompt.prompt", "llm.messages")
    made.connect("llm.replies", "answer.replies")
    return made


def inputs(question: str, **more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the inputs of the pipeline for *question*, with *more* of some components."""
    usual = {"retriever": {"query": question}, "prompt": {"question": question}, "answer": {"query": question}}
    return {**usual, **more}


def indexing() -> Pipeline:
    """Return a pipeline that splits documents and writes them."""
    made = Pipeline()
    made.add_component("splitter", DocumentSplitter(split_by="word", split_length=3))
    made.add_component("writer", DocumentWriter(InMemoryDocumentStore()))
    made.connect("splitter.documents", "writer.documents")
    return made
