"""Requests to an LLM: a prompt with the function that reads the reply, and the JSON schemas of replies.

Schemas are as strict servers want them: every field required, no other allowed, labels as strings. They are static,
because servers cache what they compile from a schema; ids are checked when a reply is read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ragtrace.core.labels import Turn
from ragtrace.judges.llm.prompts import turns_instructions

MOST_TOKENS: Final = 16_000
"""Highest token limit of a reply: most models cannot write more."""
YES_NO: Final = ("yes", "no")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)

Schema: TypeAlias = Mapping[str, object]


class HasDefects(Protocol):
    """Protocol of labels read from an LLM's reply that also list the defects of the reply."""

    @property
    def defects(self) -> Sequence[str]:
        """Rules that the LLM's reply breaks, in words that can be sent back to the LLM."""
        ...


class HasText(Protocol):
    """Protocol of an item whose text a prompt shows the LLM, such as a chunk or a sentence."""

    @property
    def text(self) -> str: ...


R = TypeVar("R", bound=HasDefects)
T = TypeVar("T", bound=HasText)


@dataclass(frozen=True, slots=True)
class Prompt(Generic[R]):
    """One request to an LLM: instructions, data, the schema of the reply, and the function that reads the reply.

    Args:
        name: name of the schema: letters, digits, underscores.
        system: all instructions.
        user: the data, which is never instruction: see `user_message`.
        schema: JSON schema of the reply; an object with every key required and none besides, as strict mode asks for.
        read: returns the labels in any JSON object, with its defects; a reply with defects is asked for once more.
        ample_tokens: more tokens than an honest reply has. It is the limit where the user sets none, so that a small
            model that repeats itself does not run until the timeout. A model that spends them on reasoning gets no
            limit.
        logprobs: whether the log probabilities of the reply's tokens are wanted.
        temperature: 0 for the likeliest reply; left out for models that reject it.
        samples: number of replies wanted.
        turn_chars: characters of the request that show earlier turns of the conversation, instructions included.
        examples: messages of user and assistant in turn, between the instructions and the data.
    """

    name: str
    system: str
    user: str
    schema: Schema
    read: Callable[[dict[str, Any]], R]
    ample_tokens: int | None = None
    logprobs: bool = False
    temperature: float = 0.0
    samples: int = 1
    turn_chars: int = 0
    examples: tuple[str, ...] = ()


def user_message(data: Mapping[str, object], key: str | None = None) -> str:
    """Return the user message of a prompt: *data* as JSON under a random key, which guards against prompt injection.

    It is one JSON object, {"data_<key>": data}: no text in *data* can end its string or know the key.

    Args:
        key: default: random.
    """
    return _ENCODER.encode({f"data_{key or secrets.token_hex(4)}": data})


def id_text_list(texts: Mapping[str, str]) -> list[dict[str, str]]:
    """Convert a dictionary of *texts* by id to the list of {"id": ..., "text": ...} objects that prompts show."""
    return [{"id": name, "text": text} for name, text in texts.items()]


def turn_list(turns: Iterable[Turn]) -> list[dict[str, str]]:
    """Return turns of a conversation as a list of {"role": ..., "text": ...} objects, as prompts show them."""
    return [{"role": turn.role, "text": turn.text} for turn in turns]


def chars_of_turns(turns: Sequence[Turn]) -> int:
    """Return how many characters the earlier *turns* of a conversation add to a prompt.

    The instructions on how to use the turns are included.
    """
    return len(_ENCODER.encode(turn_list(turns))) + len(turns_instructions()) if turns else 0


def group_by_size(items: Sequence[T], chars: int, most: int | None = None) -> Iterator[list[T]]:
    """Yield *items* in consecutive groups of at most *chars* characters of text and *most* items each.

    An item that is longer is a group of its own.
    """
    group: list[T] = []
    total = 0
    for item in items:
        length = len(item.text)
        if group and (total + length > chars or len(group) == most):
            yield group
            group, total = [], 0
        group.append(item)
        total += length
    if group:
        yield group


def with_ids(prefix: str, texts: Iterable[str]) -> dict[str, str]:
    """Return a dictionary of *texts*, with the ids `<prefix>1`, `<prefix>2` and so on as keys."""
    return {f"{prefix}{number}": text for number, text in enumerate(texts, 1)}


# --- schemas ---------------------------------------------------------------------------------------------------------


def string() -> Schema:
    """Return the JSON schema of a string."""
    return {"type": "string"}


def strings() -> Schema:
    """Return the JSON schema of a list of strings."""
    return {"type": "array", "items": string()}


def enum(labels: Sequence[str]) -> Schema:
    """Return the JSON schema of a string that is one of *labels*."""
    return {"type": "string", "enum": list(labels)}


def object_with(**fields: Schema) -> Schema:
    """Return the JSON schema of an object with exactly the given fields, all of them required."""
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


def objects(**fields: Schema) -> Schema:
    """Return the JSON schema of a list of objects with exactly the given fields, all of them required."""
    return {"type": "array", "items": object_with(**fields)}
