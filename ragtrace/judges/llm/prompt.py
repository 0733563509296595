"""What one request asks, and its two messages: instructions in the system's, data and nothing else in the user's."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragtrace.judges.llm.prompt_input import Chunk, Cited, Unit
from ragtrace.judges.llm.prompts import Kind, system_message
from ragtrace.judges.llm.schemas import NAMES, SCHEMAS

if TYPE_CHECKING:
    from ragtrace.judges.llm.chat_types import Ask


MOST_TOKENS: Final = 16_000
"""Of any reply: what most models can write."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the ids in it are those that its reply must speak of."""

    kind: Kind
    query: str = ""
    sentences: tuple[Unit, ...] = ()
    """To be labelled; for a contradiction request, what is held against the chunks."""
    chunks: tuple[Chunk, ...] = ()
    citations: tuple[Cited, ...] = ()
    parts: tuple[Unit, ...] = ()
    """Where citations stand: given by the application, or sentences that are not to be labelled."""
    given: Mapping[str, str] | None = None
    """Statements by id: to be verified, and controls."""
    controls: frozenset[str] = frozenset()
    """Ids of those that are controls: a repair request must not say what is wrong with their evidence."""


def ample_tokens(asked: Asked) -> int:
    """Return more tokens than an honest reply to *asked* has, by the number and length of what it labels."""
    labelled = 30 * (len(asked.sentences) + len(asked.chunks) + len(asked.citations)) + 250 * len(asked.given or ())
    # Statements restate a sentence with names for pronouns, in any script; each has a quote and a dozen fields.
    stated = sum(250 + 5 * len(unit.text) for unit in asked.sentences) if asked.kind in ("full", "extract") else 0
    return min(MOST_TOKENS, 500 + labelled + stated)


def ask_for(asked: Asked, *, max_tokens: int | None = None) -> Ask:
    """The request for *asked*."""
    from ragtrace.judges.llm.chat_types import Ask  # loads what a judge by words alone does without

    return Ask(
        system=system_message(asked.kind),
        user=user_message(asked),
        name=NAMES[asked.kind],
        schema=SCHEMAS[asked.kind],
        max_tokens=max_tokens,
        ample_tokens=ample_tokens(asked),
    )


def user_message(asked: Asked, key: str | None = None) -> str:
    """One JSON object, {"data_<key>": ...}: whatever quotes and brackets a text has, it stays inside its string.

    Args:
        key: default: random, so that no text can have known it.
    """
    data: dict[str, object] = {}
    if asked.kind != "verdict":
        data["query"] = asked.query
    if asked.kind not in ("verify", "verdict"):
        data["answer_sentences"] = _units(asked.sentences)
    if asked.parts:
        data["answer_parts"] = _units(asked.parts)
    if asked.kind != "extract":
        data["chunks"] = _items({chunk.id: chunk.text for chunk in asked.chunks})
    if asked.kind in ("full", "verify"):
        data["citations"] = [
            {"id": cited.id, "sentence_id": cited.unit_id, "chunk_id": cited.chunk_id} for cited in asked.citations
        ]
    if asked.kind in ("full", "verify", "verdict"):
        data["given_statements"] = _items(asked.given or {})
    return _ENCODER.encode({f"data_{key or secrets.token_hex(4)}": data})


def _units(units: tuple[Unit, ...]) -> list[dict[str, str]]:
    return _items({unit.id: unit.text for unit in units})


def _items(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"id": name, "text": text} for name, text in texts.items()]
