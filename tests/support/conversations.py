"""Thirty short conversations, each with a follow-up question, its answer, and the turns that are needed for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ragtrace.core.labels import Turn

_FILE: Final = Path(__file__).parents[1] / "files" / "conversations.jsonl"


@dataclass(frozen=True)
class Conversation:
    """Conversation up to a query, with the contexts and the answer of the query."""

    id: str
    turns: tuple[Turn, ...]
    """The turns before the query."""
    query: str
    contexts: list[str]
    answer: str
    needed: tuple[int, ...]
    """Indices of the turns without which the query or the answer cannot be understood."""
    alone: bool
    """Whether the query is a whole question."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt of a chat model: an instruction, the turns, the query."""
        said = [{"role": turn.role, "content": turn.text} for turn in self.turns]
        return [{"role": "system", "content": "Be short."}, *said, {"role": "user", "content": self.query}]

    @property
    def call(self) -> dict[str, Any]:
        """The call as a record, with all turns up to its answer."""
        turns = [*self.turns, Turn("user", self.query), Turn("assistant", self.answer)]
        return {"query": self.query, "contexts": self.contexts, "answer": self.answer, "turns": turns}


@cache
def conversations() -> tuple[Conversation, ...]:
    """Return all conversations of the file."""
    records = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
    return tuple(
        Conversation(
            record["id"],
            tuple(Turn(turn["role"], turn["text"]) for turn in record["turns"]),
            record["query"],
            record["contexts"],
            record["answer"],
            tuple(record["needed"]),
            record["alone"],
        )
        for record in records
    )
