"""Agent of LangChain on LangGraph, which looks documents up with a retriever tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from corpus import CONVERSATIONS, DOCUMENTS, TOP_K
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.checkpoint.memory import InMemorySaver

INSTRUCTIONS = "You answer questions about buildings. Look every fact up with search_documents."


def make_agent() -> Any:
    """Return an agent that remembers the conversation of each thread."""
    store = InMemoryVectorStore(OpenAIEmbeddings(check_embedding_ctx_length=False))
    store.add_documents(
        [Document(each.text, id=each.id, metadata={"source": f"{each.title}.md"}) for each in DOCUMENTS]
    )
    tool = create_retriever_tool(
        store.as_retriever(search_kwargs={"k": TOP_K}),
        "search_documents",
        "Search documents about buildings.",
        response_format="content_and_artifact",
    )
    model = ChatOpenAI(model="gpt-4o-mini", temperature=0, stream_usage=True)
    return create_agent(model, [tool], system_prompt=INSTRUCTIONS, checkpointer=InMemorySaver())


class Agent:
    """Agent that remembers the conversation of each session, with the texts behind its last answer."""

    def __init__(self) -> None:
        self.source_texts: list[str] = []
        self._agent = make_agent()

    def ask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        messages = self._agent.invoke(*_request(session, user, query))["messages"]
        self.source_texts = _texts(messages)
        return str(messages[-1].text)

    async def aask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        messages = (await self._agent.ainvoke(*_request(session, user, query)))["messages"]
        self.source_texts = _texts(messages)
        return str(messages[-1].text)

    def stream(self, query: str, session: str, user: str) -> Iterator[str]:
        """Yield the answer as the model writes it; tools write to the stream, too."""
        messages = []
        for piece, _ in self._agent.stream(*_request(session, user, query), stream_mode="messages"):
            messages.append(piece)
            if isinstance(piece, AIMessageChunk):
                yield piece.text
        self.source_texts = _texts(messages)

    async def astream(self, query: str, session: str, user: str) -> AsyncIterator[str]:
        """Yield the answer as the model writes it; tools write to the stream, too."""
        messages = []
        async for piece, _ in self._agent.astream(*_request(session, user, query), stream_mode="messages"):
            messages.append(piece)
            if isinstance(piece, AIMessageChunk):
                yield piece.text
        self.source_texts = _texts(messages)


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    agent = Agent()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(agent, mode, log))
        return
    for session, user, query in CONVERSATIONS:
        answer = "".join(agent.stream(query, session, user)) if mode == "stream" else agent.ask(query, session, user)
        log(query=query, contexts=agent.source_texts, answer=answer, session=session, user=user)


async def _run_async(agent: Agent, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in CONVERSATIONS:
        if mode == "astream":
            answer = "".join([piece async for piece in agent.astream(query, session, user)])
        else:
            answer = await agent.aask(query, session, user)
        log(query=query, contexts=agent.source_texts, answer=answer, session=session, user=user)


def _request(session: str, user: str, query: str) -> tuple[dict[str, Any], RunnableConfig]:
    config = RunnableConfig(configurable={"thread_id": session}, metadata={"user_id": user})
    return {"messages": [HumanMessage(query)]}, config


def _texts(messages: list[Any]) -> list[str]:
    """Return the texts that the tools found after the last question."""
    asked = max((index for index, message in enumerate(messages) if isinstance(message, HumanMessage)), default=0)
    found = [message for message in messages[asked:] if isinstance(message, ToolMessage)]
    return [document.page_content for message in found for document in message.artifact]
