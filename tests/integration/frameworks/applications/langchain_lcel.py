"""Question answering by a chain of LangChain: retriever | prompt | model | parser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

from corpus import DOCUMENTS, QUESTIONS, TOP_K
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer the question from the context. Say so if the context does not hold the answer."),
        ("human", "Context:\n{context}\n\nQuestion: {question}"),
    ]
)


class QuestionAnswering:
    """Chain from a question to an answer, with the texts behind the last answer."""

    def __init__(self) -> None:
        self.source_texts: list[str] = []
        store = InMemoryVectorStore(OpenAIEmbeddings(check_embedding_ctx_length=False))
        store.add_documents(
            [Document(each.text, id=each.id, metadata={"source": f"{each.title}.md"}) for each in DOCUMENTS]
        )
        retriever = store.as_retriever(search_kwargs={"k": TOP_K})
        self.chain = (
            {"context": retriever | self._join, "question": RunnablePassthrough()}
            | PROMPT
            | ChatOpenAI(model="gpt-4o-mini", temperature=0, stream_usage=True)
            | StrOutputParser()
        )

    def _join(self, documents: list[Document]) -> str:
        self.source_texts = [document.page_content for document in documents]
        return "\n\n".join(self.source_texts)

    def ask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        return self.chain.invoke(query, _config(session, user))

    async def aask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        return await self.chain.ainvoke(query, _config(session, user))

    def stream(self, query: str, session: str, user: str) -> Iterator[str]:
        """Yield the answer as the model writes it."""
        yield from self.chain.stream(query, _config(session, user))

    async def astream(self, query: str, session: str, user: str) -> AsyncIterator[str]:
        """Yield the answer as the model writes it."""
        async for piece in self.chain.astream(query, _config(session, user)):
            yield piece


def _config(session: str, user: str) -> RunnableConfig:
    return RunnableConfig(metadata={"session_id": session, "user_id": user})


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    answering = QuestionAnswering()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(answering, mode, log))
        return
    for session, user, query in QUESTIONS:
        if mode == "stream":
            answer = "".join(answering.stream(query, session, user))
        else:
            answer = answering.ask(query, session, user)
        log(query=query, contexts=answering.source_texts, answer=answer, session=session, user=user)


async def _run_async(answering: QuestionAnswering, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in QUESTIONS:
        if mode == "astream":
            answer = "".join([piece async for piece in answering.astream(query, session, user)])
        else:
            answer = await answering.aask(query, session, user)
        log(query=query, contexts=answering.source_texts, answer=answer, session=session, user=user)
