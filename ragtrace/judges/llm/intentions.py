"""What a user wanted in a conversation, and whether it was satisfied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

from ragtrace.core.labels import Intention, IntentionState, Turn
from ragtrace.judges.llm.extra_labels import ExtraLabels, LabelFamily, note, one_line, records, shown
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.llm.schemas import list_of, one_of, record, text, texts

MOST_CHARS: Final = 60_000
"""Characters of a conversation; of a longer one the earliest turns are left out, and counted."""
_STATES: Final[tuple[IntentionState, ...]] = ("satisfied", "unsatisfied", "pending", "blocked", "withdrawn")
_SCHEMA: Final = record(intentions=list_of(id=text(), turn_ids=texts(), text=text(), state=one_of(_STATES)))


class IntentionsReply(NamedTuple):
    """Intentions of a user, as the model found them."""

    intentions: tuple[Intention, ...] | None
    """None: the reply has no list of them."""
    defects: list[str]


def read_intentions(data: Mapping[str, Any], turns: Mapping[str, int], users: Collection[str]) -> IntentionsReply:
    """Return the intentions in a reply, which may be any JSON object.

    An intention without a text, without a turn of the user, or with a turn that does not exist is unjudged.

    Args:
        turns: the index of each turn by its id.
        users: ids of the turns that are the user's.
    """
    defects: list[str] = []
    found = records(data, "intentions", defects)
    if found is None:
        return IntentionsReply(None, defects)
    return IntentionsReply(tuple(_intention(entry, turns, users, defects) for entry in found), defects)


def _intention(
    entry: Mapping[str, Any], turns: Mapping[str, int], users: Collection[str], defects: list[str]
) -> Intention:
    wanted, state, given = one_line(entry.get("text")), entry.get("state"), entry.get("turn_ids")
    ids = cast("list[object]", given) if isinstance(given, list) else []
    known = [name for name in ids if isinstance(name, str) and name in turns]
    of_the_user = len(known) == len(ids) and not set(known).isdisjoint(users)
    if not wanted:
        note(defects, "an intention has no text")
    if not of_the_user:
        note(defects, f"turn_ids of {shown(wanted)} must be ids of turns of the user")
    if state not in _STATES:
        note(defects, f"state must be one of {', '.join(_STATES)}, got {shown(state)}")
    valid = wanted and of_the_user and state in _STATES
    return Intention(wanted, state if valid else None, tuple(dict.fromkeys(turns[name] for name in known)))


async def find_intentions(extra: ExtraLabels) -> None:
    """Ask for the intentions in the conversation of the call."""
    turns = _shown(extra.call.turns or (), extra)
    users = [name for name, (_, role, _) in turns.items() if role == "user"]
    if not users:
        return
    places = {name: place for name, (place, _, _) in turns.items()}
    data = {"turns": [{"id": name, "role": role, "text": words} for name, (_, role, words) in turns.items()]}
    read = partial(read_intentions, turns=places, users=users)
    reply = (await extra.ask("intentions", data, _SCHEMA, read)).reply
    if reply.intentions is None:
        extra.reasons["intentions"] = "unparsable"
    else:
        extra.labels["intentions"] = reply.intentions


def _shown(turns: tuple[Turn, ...], extra: ExtraLabels) -> dict[str, tuple[int, str, str]]:
    """Return (index, role, text) of the turns to show, by id: the latest for which there is room, no blank ones."""
    room = MOST_CHARS
    kept: list[tuple[int, str, str]] = []
    shown_turns = [(place, turn.role, without_invisible(turn.text).strip()) for place, turn in enumerate(turns)]
    for place, role, words in reversed([turn for turn in shown_turns if turn[2]]):
        if kept and len(words) > room:
            extra.attributes["truncated_turns"] = place + 1
            break
        kept.append((place, role, words[:MOST_CHARS]))
        room -= len(words)
    return {f"t{place + 1}": (place, role, words) for place, role, words in reversed(kept)}


FAMILY: Final = LabelFamily(frozenset({"intentions"}), find_intentions)
