"""Agent of LangChain on LangGraph, which looks documents up with a retriever tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    agent = make_agent()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(agent, mode, log))
        return
    for session, user, query in CONVERSATIONS:
        config, asked = _request(session, user, query)
        if mode == "stream":
            messages = [piece for piece, _ in agent.stream(asked, config, stream_mode="messages")]
            answer = _written(messages)
        else:
            messages = agent.invoke(asked, config)["messages"]
            answer = messages[-1].text
        log(query=query, contexts=_texts(messages), answer=answer, session=session, user=user)


async def _run_async(agent: Any, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in CONVERSATIONS:
        config, asked = _request(session, user, query)
        if mode == "astream":
            messages = [piece async for piece, _ in agent.astream(asked, config, stream_mode="messages")]
            answer = _written(messages)
        else:
            messages = (await agent.ainvoke(asked, config))["messages"]
            answer = messages[-1].text
        log(query=query, contexts=_texts(messages), answer=answer, session=session, user=user)


def _request(session: str, user: str, query: str) -> tuple[RunnableConfig, dict[str, Any]]:
    config = RunnableConfig(configurable={"thread_id": session}, metadata={"user_id": user})
    return config, {"messages": [HumanMessage(query)]}


def _written(pieces: list[Any]) -> str:
    """Return what the model wrote; tools write to the stream, too."""
    return "".join(piece.text for piece in pieces if isinstance(piece, AIMessageChunk))


def _texts(messages: list[Any]) -> list[str]:
    """Return the texts that the tools found after the last question."""
    asked = max((index for index, message in enumerate(messages) if isinstance(message, HumanMessage)), default=0)
    found = [message for message in messages[asked:] if isinstance(message, ToolMessage)]
    return [document.page_content for message in found for document in message.artifact]
