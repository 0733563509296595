"""What a user wanted in a conversation, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, cast

from ragtrace.core.labels import Intention, IntentionState, Turn
from ragtrace.judges.llm.family import Case, Found, Request, instructions, note, records, shown, text_of
from ragtrace.judges.llm.invisible_chars import without_hidden
from ragtrace.judges.llm.shapes import list_of, one_of, record, text, texts

FIELDS: Final = frozenset({"intentions"})
MOST_CHARS: Final = 60_000
"""Of a conversation; of a longer one the earliest turns are left out, and counted."""
_STATES: Final[tuple[IntentionState, ...]] = ("satisfied", "unsatisfied", "pending", "blocked", "withdrawn")
_SCHEMA: Final = record(intentions=list_of(id=text(), turn_ids=texts(), text=text(), state=one_of(_STATES)))


class Reply(NamedTuple):
    """What a reply says."""

    intentions: tuple[Intention, ...] | None
    """None: there was no list."""
    defects: list[str]


def read(data: Mapping[str, Any], turns: Mapping[str, int], users: Collection[str]) -> Reply:
    """*data*, a reply, whatever it is.

    Args:
        turns: the index of each turn by its id.
        users: ids of the turns that are the user's.

    An intention without a text, without a turn of the user, or with a turn that does not exist is unjudged.
    """
    defects: list[str] = []
    found = records(data, "intentions", defects)
    if found is None:
        return Reply(None, defects)
    return Reply(tuple(_intention(entry, turns, users, defects) for entry in found), defects)


def _intention(
    entry: Mapping[str, Any], turns: Mapping[str, int], users: Collection[str], defects: list[str]
) -> Intention:
    wanted, state, given = text_of(entry), entry.get("state"), entry.get("turn_ids")
    ids = cast("list[object]", given) if isinstance(given, list) else []
    known = [name for name in ids if isinstance(name, str) and name in turns]
    valid = True
    if not wanted:
        note(defects, "an intention has no text")
        valid = False
    if len(known) < len(ids) or not set(known) & set(users):
        note(defects, f"turn_ids of {shown(wanted)} must be ids of turns of the user")
        valid = False
    if state not in _STATES:
        note(defects, f"state must be one of {', '.join(_STATES)}, got {shown(state)}")
        valid = False
    return Intention(wanted, state if valid else None, tuple(dict.fromkeys(turns[name] for name in known)))


async def find(case: Case, found: Found) -> None:
    """Ask for the intentions in the conversation of the call."""
    turns = _shown(case.call.turns or (), found)
    users = [name for name, (_, role, _) in turns.items() if role == "user"]
    if not users:
        return
    places = {name: place for name, (place, _, _) in turns.items()}
    data = {"turns": [{"id": name, "role": role, "text": said} for name, (_, role, said) in turns.items()]}
    request = Request(
        "intentions", instructions("intentions"), data, _SCHEMA, lambda reply: read(reply, places, users).defects
    )
    reply = read((await found.ask(case, request)).data, places, users)
    if reply.intentions is None:
        found.reasons["intentions"] = "unparsable"
    else:
        found.labels["intentions"] = reply.intentions


def _shown(turns: tuple[Turn, ...], found: Found) -> dict[str, tuple[int, str, str]]:
    """(index, role, text) of the turns to show, by id: the latest ones that there is room for, without blank ones."""
    room = MOST_CHARS
    kept: list[tuple[int, str, str]] = []
    texts_said = [(place, turn.role, without_hidden(turn.text).strip()) for place, turn in enumerate(turns)]
    for place, role, said in reversed([turn for turn in texts_said if turn[2]]):
        if kept and len(said) > room:
            found.attributes["truncated_turns"] = place + 1
            break
        kept.append((place, role, said[:MOST_CHARS]))
        room -= len(said)
    return {f"t{place + 1}": (place, role, said) for place, role, said in reversed(kept)}
