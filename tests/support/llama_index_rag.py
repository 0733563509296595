"""Small RAG applications of LlamaIndex, with a model and a retriever that need no network.

Imported by the tests when they run, as LlamaIndex takes seconds to import.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import (
    ChatMessage,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

TEXTS: Final = (
    "The Eiffel Tower is 330 metres tall.",
    "The tower was built by Gustave Eiffel.",
    "The Louvre has 35,000 works of art.",
    "The Seine is 777 kilometres long.",
)
MODEL: Final = "model-1"
TOKENS: Final = (11, 7)
"""Tokens that the model reports for each of its calls: input and output."""


class Model(CustomLLM):
    """Model that answers with the last question of its prompt, in words."""

    model: str = MODEL
    error: str = ""
    """Text of the exception that the model raises; empty: none."""
    error_after: int = 0
    """Pieces of a stream before that exception."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name=self.model)

    def _answer(self, prompt: str) -> str:
        asked = re.findall(r"(?:Query|user): (.*)", prompt)
        return f"I was asked: {asked[-1].strip() if asked else prompt.strip()}"

    def _reply(self, text: str, delta: str | None = None) -> CompletionResponse:
        usage = {"prompt_tokens": TOKENS[0], "completion_tokens": TOKENS[1]}
        return CompletionResponse(text=text, delta=delta, raw={"id": "reply-1", "model": self.model, "usage": usage})

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        if self.error:
            raise RuntimeError(self.error)
        return self._reply(self._answer(prompt))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        def pieces() -> CompletionResponseGen:
            text = ""
            for count, word in enumerate(self._answer(prompt).split(" ")):
                if self.error and count >= self.error_after:
                    raise RuntimeError(self.error)
                piece = f" {word}" if count else word
                text += piece
                yield self._reply(text, piece)

        return pieces()


class Words(BaseRetriever):
    """Retriever of the texts that share most words with the question."""

    top_k: int = 2
    error: str = ""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self.error:
            raise LookupError(self.error)
        wanted = set(re.findall(r"\w+", query_bundle.query_str.lower()))
        found = [
            NodeWithScore(
                node=TextNode(text=text, id_=f"d{number}"),
                score=float(len(wanted & set(re.findall(r"\w+", text.lower())))),
            )
            for number, text in enumerate(TEXTS)
        ]
        return sorted(found, key=lambda each: -(each.score or 0.0))[: self.top_k]


class Shortest(BaseNodePostprocessor):
    """Postprocessor that keeps the shortest text."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return _shortest(nodes)


class AsyncShortest(Shortest):
    """The same, whose asynchronous method LlamaIndex reports no span of."""

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return _shortest(nodes)


def _shortest(nodes: list[NodeWithScore]) -> list[NodeWithScore]:
    return sorted(nodes, key=lambda each: len(each.node.get_content()))[:1]


class Halves(BaseQuestionGenerator):
    """Question generator that splits a question at the word "and"."""

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts_dict: dict[str, Any]) -> None:
        """Update nothing."""

    def generate(self, tools: Sequence[Any], query: QueryBundle) -> list[SubQuestion]:
        return [SubQuestion(sub_question=half, tool_name="facts") for half in query.query_str.split(" and ")]

    async def agenerate(self, tools: Sequence[Any], query: QueryBundle) -> list[SubQuestion]:
        return self.generate(tools, query)


def query_engine(
    *,
    streaming: bool = False,
    model: Any = None,
    retriever: BaseRetriever | None = None,
    postprocessors: Sequence[BaseNodePostprocessor] = (),
) -> RetrieverQueryEngine:
    """Return a query engine over the texts."""
    synthesizer = get_response_synthesizer(llm=model or Model(), streaming=streaming)
    return RetrieverQueryEngine(retriever or Words(), synthesizer, node_postprocessors=list(postprocessors))


def agent(tool: Any, question: str, *, final: str = "It is 330 metres tall.") -> FunctionAgent:
    """Return an agent whose model calls *tool* with *question*, and then answers *final*."""

    def reply(messages: Sequence[ChatMessage], *args: Any, **kwargs: Any) -> ChatMessage:
        if any(message.role == "tool" for message in messages):
            return ChatMessage(role="assistant", blocks=[TextBlock(text=final)])
        call = ToolCallBlock(tool_call_id="1", tool_name=tool.metadata.name, tool_kwargs={"query": question})
        return ChatMessage(role="assistant", blocks=[call])

    return FunctionAgent(tools=[tool], llm=MockFunctionCallingLLM(response_generator=reply))
