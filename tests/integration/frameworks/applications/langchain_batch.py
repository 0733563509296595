"""Nightly job that answers a batch of questions at once with a chain of LangChain, in one span of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from corpus import DOCUMENTS, QUESTIONS, TOP_K
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableParallel, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from opentelemetry import trace

PROMPT = ChatPromptTemplate.from_template("Answer from these documents:\n{documents}\n\nQuestion: {question}")

_tracer = trace.get_tracer("nightly.report")


def make_chain() -> Runnable[str, dict[str, object]]:
    """Return a chain from a question to {"documents": [...], "question": ..., "answer": ...}."""
    store = InMemoryVectorStore(OpenAIEmbeddings(check_embedding_ctx_length=False))
    store.add_documents(
        [Document(each.text, id=each.id, metadata={"source": f"{each.title}.md"}) for each in DOCUMENTS]
    )
    found = RunnableParallel(documents=store.as_retriever(search_kwargs={"k": TOP_K}), question=RunnablePassthrough())
    return found.assign(answer=PROMPT | ChatOpenAI(model="gpt-4o-mini", temperature=0) | StrOutputParser())


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions together, two at a time."""
    chain = make_chain()
    queries = [question.text for question in QUESTIONS]
    configs = [
        RunnableConfig(metadata={"session_id": each.session, "user_id": each.user}, max_concurrency=2)
        for each in QUESTIONS
    ]
    with _tracer.start_as_current_span("nightly report"):
        if mode == "sync":
            results = dict(enumerate(chain.batch(queries, configs)))
        elif mode == "stream":
            results = dict(chain.batch_as_completed(queries, configs))
        else:
            results = asyncio.run(_run_async(chain, queries, configs, mode))
    for index, (session, user, query) in enumerate(QUESTIONS):
        texts = [document.page_content for document in results[index]["documents"]]
        answer = results[index]["answer"]
        log(query=query, contexts=texts, answer=answer, session=session, user=user, overlapping=True)


async def _run_async(
    chain: Runnable[str, dict[str, object]], queries: list[str], configs: list[RunnableConfig], mode: str
) -> dict[int, dict[str, object]]:
    if mode == "async":
        return dict(enumerate(await chain.abatch(queries, configs)))
    return {index: result async for index, result in chain.abatch_as_completed(queries, configs)}
