"""Tags of a call as an application gives them: what is no tag is left out, counted as a fault, and logged once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragtrace.core.tags import MOST_TAGS, MOST_VALUE_CHARS, TagValue, tag_value, valid_tags
from ragtrace.system.faults import faults

_FAULT: Final = "tags left out: {}".format


def kept_tags(given: Mapping[Any, object], place: str) -> dict[str, TagValue]:
    """Return the tags of *given* with a valid name and value, the first `MOST_TAGS` of them. Never raises.

    The others are counted for *place*, a fixed text that says where they come from, and the first of them is logged
    with its name and type, never with its value. A value that is None says that there is no such tag.
    """
    try:
        kept = valid_tags(given)
        if len(kept) < len(given):
            left_out = [(name, value) for name, value in given.items() if value is not None and name not in kept]
            if left_out:
                name, value = left_out[0]
                _count(place, _problem_of(name, value), len(left_out))
        return kept
    except Exception as error:  # a text or number of the application's own class may do anything
        faults.record(_FAULT(place), error)
        return {}


def joined_tags(known: Mapping[str, TagValue], more: Mapping[str, TagValue], place: str) -> Mapping[str, TagValue]:
    """Return *known* with *more*, which replace those of the same names; both are left as they are.

    Beyond `MOST_TAGS`, those of *more* are left out, and counted for *place*.
    """
    joined = {**known, **more}
    if len(joined) > MOST_TAGS:
        count_beyond(place, list(joined)[MOST_TAGS:])
        for name in list(joined)[MOST_TAGS:]:
            del joined[name]
    return joined


def count_beyond(place: str, names: Sequence[str]) -> None:
    """Count the tags *names* of *place* as left out, because a call has `MOST_TAGS` at most."""
    _count(place, f"tag {names[0]!r} is one more than the {MOST_TAGS} that a call may have", len(names))


def _count(place: str, problem: str, count: int) -> None:
    faults.warn_once(
        _FAULT(place),
        "a tag is left out (%s): %s; each further one is counted in ragtrace.stats().faults",
        place,
        problem,
        count=count,
    )


def _problem_of(name: object, value: object) -> str:
    """Return why a tag is none, without its value, and without a name that may be content."""
    if not isinstance(name, str) or not valid_tags({name: True}):
        of = f"a text of {len(name)} characters" if isinstance(name, str) else f"a {type(name).__name__}"
        return f"its name, {of}, must be a letter, then letters, digits, '_', '-' and '.', 64 at most"
    if tag_value(value) is not None:
        return f"tag {name!r} is one more than the {MOST_TAGS} that a call may have"
    of = f"text of {len(value)} characters" if isinstance(value, str) else type(value).__name__
    return (
        f"the value of {name!r} is a {of}, and must be a text of 1 to {MOST_VALUE_CHARS} characters, a boolean or a "
        "finite number"
    )
