"""ragtrace's decorators on functions of applications that know nothing of it, as a user would write them there."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_ASKING: Final = ("ask", "aask", "stream", "astream")


def decorate(application: str, ragtrace: Any) -> None:
    """Decorate the functions of *application*, which is imported for that: its instrumentations come before."""
    _DECORATED[application](import_module(f"applications.{application}"), ragtrace)


def _langchain(module: Any, ragtrace: Any, asking: str = "QuestionAnswering") -> None:
    _apply(ragtrace.trace, getattr(module, asking), *_ASKING)
    _apply(ragtrace.retrieve, module.InMemoryVectorStore, "similarity_search", "asimilarity_search")


def _langgraph(module: Any, ragtrace: Any) -> None:
    _langchain(module, ragtrace, "Agent")


def _llama_index(module: Any, ragtrace: Any, asking: str = "QuestionAnswering") -> None:
    from llama_index.core.indices.vector_store import VectorIndexRetriever

    _apply(ragtrace.trace, getattr(module, asking), *_ASKING)
    _apply(ragtrace.retrieve, VectorIndexRetriever, "_retrieve", "_aretrieve")


def _llama_index_chat(module: Any, ragtrace: Any) -> None:
    _llama_index(module, ragtrace, "Chats")


def _haystack(module: Any, ragtrace: Any) -> None:
    _apply(ragtrace.trace, module.QuestionAnswering, "ask", "aask")
    _apply(ragtrace.retrieve, module.LostInTheMiddleRanker, "run")


def _openai(module: Any, ragtrace: Any) -> None:
    _apply(ragtrace.trace, module.QuestionAnswering, "ask", "aask", "ask_stream", "ask_astream")
    _apply(ragtrace.retrieve, module.QuestionAnswering, "retrieve", "aretrieve")
    _apply(ragtrace.generate, module.QuestionAnswering, "answer", "aanswer", "stream", "astream")


def _agents(module: Any, ragtrace: Any) -> None:
    _guide(import_module("applications.agents_sdk_responses"), ragtrace, "ask", "aask", "astream")


def _guide(module: Any, ragtrace: Any, *asking: str) -> None:
    _apply(ragtrace.trace, module.Guide, *(asking or _ASKING))
    _apply(ragtrace.retrieve, module.Retrieved, "find")


_DECORATED: Final[dict[str, Callable[[Any, Any], None]]] = {
    "langchain_lcel": _langchain,
    "langgraph_agent": _langgraph,
    "llamaindex_query": _llama_index,
    "llamaindex_chat": _llama_index_chat,
    "haystack_pipeline": _haystack,
    "agents_sdk": _agents,
    "agents_sdk_responses": _agents,
    "pydantic_ai": _guide,
    "openai_plain": _openai,
}


def _apply(decorator: Callable[[Any], Any], owner: Any, *names: str) -> None:
    for name in names:
        setattr(owner, name, decorator(getattr(owner, name)))
