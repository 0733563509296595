"""Command that answers a question from documents, `ask_documents.py QUESTION END`, written with LangChain alone.

END is how the process ends: an exit status, `error` for an exception, or `wait` for a signal.
"""

from __future__ import annotations

import os
import signal
import sys

from corpus import DOCUMENTS
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

PROMPT = ChatPromptTemplate.from_messages([("human", "Context:\n{context}\n\nQuestion: {question}")])


def join(documents: list[Document]) -> str:
    """Return the texts of *documents* as they are in the prompt."""
    return "\n\n".join(document.page_content for document in documents)


if __name__ == "__main__":
    _, question, end = sys.argv
    store = InMemoryVectorStore(OpenAIEmbeddings(check_embedding_ctx_length=False))
    store.add_documents([Document(each.text, id=each.id) for each in DOCUMENTS])
    retriever = store.as_retriever(search_kwargs={"k": 2})
    chain = (
        {"context": retriever | join, "question": RunnablePassthrough()}
        | PROMPT
        | ChatOpenAI(model="gpt-4o-mini")
        | StrOutputParser()
    )
    sys.stderr.write("asking\n")
    sys.stdout.write(f"{sys.argv}\n{chain.invoke(question)}\n")
    if end == "error":
        raise ValueError("the application failed")
    if end == "wait":
        sys.stdout.flush()
        os.write(1, b"ready\n") and signal.pause()  # one line, as the signal may come before the pause
    sys.exit(int(end))
