"""Vector search in memory, for the applications whose framework has none."""

from __future__ import annotations

from corpus import DOCUMENTS, TOP_K, Document
from openai import OpenAI


class VectorIndex:
    """Embeddings of the documents and the search for those that are nearest to a text."""

    def __init__(self) -> None:
        self._client = OpenAI()
        self._vectors = self._embed([document.text for document in DOCUMENTS])

    def search(self, query: str) -> dict[Document, float]:
        """Return the nearest documents with their cosine similarities to *query*, the nearest first."""
        wanted = self._embed([query])[0]
        scores = [sum(a * b for a, b in zip(wanted, vector, strict=True)) for vector in self._vectors]
        ranked = sorted(zip(DOCUMENTS, scores, strict=True), key=lambda pair: -pair[1])
        return {document: round(score, 4) for document, score in ranked[:TOP_K]}

    def _embed(self, texts: list[str]) -> list[list[float]]:
        response = self._client.embeddings.create(model="text-embedding-3-small", input=texts)
        return [item.embedding for item in response.data]
