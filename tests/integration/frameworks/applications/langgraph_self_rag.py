"""Graph of LangGraph that grades what it retrieves, answers from the good documents, and checks the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypedDict

from corpus import DOCUMENTS, QUESTIONS, TOP_K
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.graph import END, START, StateGraph

GRADE = ChatPromptTemplate.from_template(
    "Does the document help to answer the question? Say yes or no.\n\nDocument: {document}\n\nQuestion: {question}"
)
ANSWER = ChatPromptTemplate.from_template(
    "Answer the question from the documents.\n\nDocuments:\n{documents}\n\nQuestion: {question}"
)
CHECK = ChatPromptTemplate.from_template(
    "Is the answer grounded in the documents? Say yes or no.\n\nDocuments:\n{documents}\n\nAnswer: {generation}"
)


class State(TypedDict, total=False):
    """State of one request."""

    question: str
    documents: list[Document]
    generation: str
    grounded: bool


def make_graph() -> Any:
    """Return the graph: retrieve, grade, generate, check."""
    store = InMemoryVectorStore(OpenAIEmbeddings(check_embedding_ctx_length=False))
    store.add_documents(
        [Document(each.text, id=each.id, metadata={"source": f"{each.title}.md"}) for each in DOCUMENTS]
    )
    retriever = store.as_retriever(search_kwargs={"k": TOP_K})
    model = ChatOpenAI(model="gpt-4o-mini", temperature=0, stream_usage=True) | StrOutputParser()

    async def retrieve(state: State, config: RunnableConfig) -> State:
        return {"documents": await retriever.ainvoke(state["question"], config)}

    async def grade(state: State, config: RunnableConfig) -> State:
        asked = [{"document": each.page_content, "question": state["question"]} for each in state["documents"]]
        grades = [await (GRADE | model).ainvoke(each, config) for each in asked]
        return {"documents": [each for each, said in zip(state["documents"], grades, strict=True) if said == "yes"]}

    async def generate(state: State, config: RunnableConfig) -> State:
        asked = {"documents": _joined(state), "question": state["question"]}
        return {"generation": await (ANSWER | model).ainvoke(asked, config)}

    async def check(state: State, config: RunnableConfig) -> State:
        asked = {"documents": _joined(state), "generation": state["generation"]}
        return {"grounded": await (CHECK | model).ainvoke(asked, config) == "yes"}

    graph = StateGraph(State)
    for node in (retrieve, grade, generate, check):
        graph.add_node(node.__name__, node)
    for before, after in pairwise([START, "retrieve", "grade", "generate", "check", END]):
        graph.add_edge(before, after)
    return graph.compile()


def _joined(state: State) -> str:
    return "\n\n".join(document.page_content for document in state["documents"])


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    asyncio.run(_run(make_graph(), mode, log))


async def _run(graph: Any, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in QUESTIONS:
        config = RunnableConfig(metadata={"session_id": session, "user_id": user})
        if mode == "astream":
            states = [state async for state in graph.astream({"question": query}, config, stream_mode="values")]
            state = states[-1]
        else:
            state = await graph.ainvoke({"question": query}, config)
        texts = [document.page_content for document in state["documents"]]
        log(query=query, contexts=texts, answer=state["generation"], session=session, user=user)
