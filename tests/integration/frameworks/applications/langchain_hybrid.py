"""Question answering with a hybrid retriever of its own: vectors and words, fused by rank."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from corpus import DOCUMENTS, QUESTIONS, TOP_K
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableParallel, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Answer from these documents only:\n\n{context}"), ("human", "{question}")]
)


class WordRetriever(BaseRetriever):
    """Retriever of the documents that share most words with the question."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        words = set(query.lower().rstrip("?").split())
        shared = {each.id: len(words & set(each.page_content.lower().split())) for each in self.documents}
        return sorted(self.documents, key=lambda each: -shared[each.id])[: TOP_K + 1]


class HybridRetriever(BaseRetriever):
    """Retriever that asks others and fuses what they find by the documents' ranks."""

    retrievers: list[BaseRetriever]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        config = RunnableConfig(callbacks=run_manager.get_child())
        found = [retriever.invoke(query, config) for retriever in self.retrievers]
        scores: dict[str | None, float] = {}
        for documents in found:
            for rank, document in enumerate(documents):
                scores[document.id] = scores.get(document.id, 0.0) + 1 / (60 + rank)
        unique = {document.id: document for documents in found for document in documents}
        return sorted(unique.values(), key=lambda each: -scores[each.id])[:TOP_K]


class QuestionAnswering:
    """Chain from a question to an answer and the documents behind it."""

    def __init__(self) -> None:
        documents = [Document(each.text, id=each.id, metadata={"source": f"{each.title}.md"}) for each in DOCUMENTS]
        store = InMemoryVectorStore(OpenAIEmbeddings(check_embedding_ctx_length=False))
        store.add_documents(documents)
        vectors = store.as_retriever(search_kwargs={"k": TOP_K + 1})
        retriever = HybridRetriever(retrievers=[vectors, WordRetriever(documents=documents)])
        answer = (
            RunnablePassthrough.assign(context=lambda given: "\n---\n".join(d.page_content for d in given["documents"]))
            | PROMPT
            | ChatOpenAI(model="gpt-4o-mini", temperature=0, stream_usage=True)
            | StrOutputParser()
        )
        self.chain = RunnableParallel(documents=retriever, question=RunnablePassthrough()).assign(answer=answer)


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    answering = QuestionAnswering()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(answering, mode, log))
        return
    for session, user, query in QUESTIONS:
        config = _config(session, user)
        if mode == "stream":
            result = _merged(list(answering.chain.stream(query, config)))
        else:
            result = answering.chain.invoke(query, config)
        log(query=query, contexts=_texts(result), answer=result["answer"], session=session, user=user)


async def _run_async(answering: QuestionAnswering, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in QUESTIONS:
        config = _config(session, user)
        if mode == "astream":
            result = _merged([piece async for piece in answering.chain.astream(query, config)])
        else:
            result = await answering.chain.ainvoke(query, config)
        log(query=query, contexts=_texts(result), answer=result["answer"], session=session, user=user)


def _config(session: str, user: str) -> RunnableConfig:
    return RunnableConfig(metadata={"session_id": session, "user_id": user}, run_name="ask the guide")


def _texts(result: dict[str, Any]) -> list[str]:
    return [document.page_content for document in result["documents"]]


def _merged(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the pieces of a streamed answer as one."""
    result: dict[str, Any] = {"answer": ""}
    for piece in pieces:
        result["answer"] += piece.get("answer", "")
        result.update({key: value for key, value in piece.items() if key != "answer"})
    return result
