"""Intentions of a user in a conversation, and whether each was satisfied, as the LLM judge labels them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ragtrace.core.labels import Intention, IntentionState
from ragtrace.judges.llm.extra_labels import ExtraLabels, LabelFamily
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.llm.prompt import enum, object_with, objects, string, strings
from ragtrace.judges.llm.reply_reader import ReplyReader, one_line, shorten_value

MOST_CHARS: Final = 60_000
"""Most characters of a conversation in a prompt. Earliest turns beyond are left out and counted."""
_STATES: Final[tuple[IntentionState, ...]] = ("satisfied", "unsatisfied", "pending", "blocked", "withdrawn")
_SCHEMA: Final = object_with(intentions=objects(id=string(), turn_ids=strings(), text=string(), state=enum(_STATES)))


class IntentionsReply(NamedTuple):
    """Reply of the LLM that lists what the user wanted in a conversation."""

    intentions: tuple[Intention, ...] | None
    """The user's intentions, each with its state; None if the reply has no list."""
    defects: list[str]


def read_intentions(data: Mapping[str, Any], turns: Mapping[str, int], users: Collection[str]) -> IntentionsReply:
    """Read from the LLM's JSON reply the user's intentions, and whether each of them was satisfied.

    An intention without a text, without a turn of the user, or with a turn that does not exist is unjudged.

    Args:
        turns: the index of each turn by its id.
        users: ids of the turns that are the user's.
    """
    reader = ReplyReader(data)
    entries = reader.entries("intentions")
    found: list[Intention] = []
    for index, entry in enumerate(entries or ()):
        wanted, ids = one_line(entry.get("text")), ReplyReader(entry).texts("turn_ids")
        known = [name for name in ids if isinstance(name, str) and name in turns]
        of_the_user = len(known) == len(ids) and not set(known).isdisjoint(users)
        state: IntentionState | None = reader.label(entry.get("state"), _STATES, f"intentions[{index}].state")
        if not wanted:
            reader.add_defect("an intention has no text")
        if not of_the_user:
            reader.add_defect(f"turn_ids of {shorten_value(wanted)} must be ids of turns of the user")
        valid = wanted and of_the_user
        found.append(Intention(wanted, state if valid else None, tuple(dict.fromkeys(turns[name] for name in known))))
    return IntentionsReply(None if entries is None else tuple(found), reader.defects)


async def find_intentions(extra: ExtraLabels) -> None:
    """Ask the LLM for the user's intentions in a conversation, and whether each of them was satisfied.

    Of a long conversation, only the latest turns are shown.
    """
    room = MOST_CHARS
    data: list[dict[str, str]] = []
    turns: dict[str, int] = {}
    for place, turn in reversed(list(enumerate(extra.call.turns or ()))):
        words = without_invisible(turn.text).strip()
        if not words:
            continue
        if data and len(words) > room:
            extra.attributes["truncated_turns"] = place + 1
            break
        data.insert(0, {"id": f"t{place + 1}", "role": turn.role, "text": words[:MOST_CHARS]})
        turns[f"t{place + 1}"] = place
        room -= len(words)
    users = [turn["id"] for turn in data if turn["role"] == "user"]
    if not users:
        return
    read = partial(read_intentions, turns=turns, users=users)
    reply = (await extra.ask("intentions", {"turns": data}, _SCHEMA, read)).reply
    if reply.intentions is None:
        extra.reasons["intentions"] = "unparsable"
    else:
        extra.labels["intentions"] = reply.intentions


INTENTIONS: Final = LabelFamily(frozenset({"intentions"}), find_intentions)
