"""How close an answer is to its reference: the cosine of their embeddings."""

from __future__ import annotations

from typing import Final

from ragtrace.judges.llm.family import Case, Found
from ragtrace.judges.local.embedder import cosines

FIELDS: Final = frozenset({"reference_cosine"})


async def find(case: Case, found: Found) -> None:
    """Embed answer and reference in one request."""
    if case.embedder is None:
        found.reasons["reference_cosine"] = "no_embedder"
        return
    answer, reference = (case.call.answer or "").strip(), (case.call.reference or "").strip()
    if not answer or not reference:
        return
    vectors = await found.embed(case.embedder, [answer, reference])
    found.labels["reference_cosine"] = cosines(vectors, 2)[0]
