"""Tags of a call: whose it was (tenant, channel, version of the prompt), as short values by name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.text import encodable

TagValue: TypeAlias = "str | bool | int | float"
"""Value of a tag. Numbers are finite; a text has at most `MOST_VALUE_CHARS` characters, and at least one."""

MOST_TAGS: Final = 16
"""Most tags of one call."""
MOST_VALUE_CHARS: Final = 200
"""Most characters of a tag's value: what is longer is no label but content."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_LARGEST: Final = 2**63
"""Bound of the integers that OpenTelemetry and SQLite can keep."""


def check_tag_name(name: object) -> str:
    """Return *name*, a valid name of a tag.

    Raises:
        SettingsError: it is none.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise SettingsError(
        f"the name of a tag has a letter, then letters, digits, '_', '-' and '.', 64 at most, got {name!r}; write for "
        "instance tags={'tenant': 'tenant_id'}"
    )


def tag_value(value: object) -> TagValue | None:
    """Return *value* as the value of a tag, or None if it is none: no short text, boolean, finite number or UUID.

    A subclass of these, such as a member of an enumeration of texts, is taken as what it is a subclass of.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = encodable(str.__str__(value)) if len(value) <= MOST_VALUE_CHARS else ""
        return text if text.strip() else None
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, int):
        return int(value) if -_LARGEST <= value < _LARGEST else None
    return float(value) if isinstance(value, float) and math.isfinite(value) else None


def is_plain_value(text: str) -> bool:
    """Return whether *text* is the value of a tag as it is: short, printable ASCII and not blank."""
    return 0 < len(text) <= MOST_VALUE_CHARS and text.isascii() and text.isprintable() and not text.isspace()


def valid_tags(given: Mapping[Any, object]) -> dict[str, TagValue]:
    """Return the tags of *given* with a valid name and value, the first `MOST_TAGS` of them."""
    found: dict[str, TagValue] = {}
    for name, raw in given.items():
        value = tag_value(raw)
        if value is not None and isinstance(name, str) and _NAME.fullmatch(name) and len(found) < MOST_TAGS:
            found[name] = value
    return found


def read_tags(value: object) -> dict[str, TagValue]:
    """Return the tags in *value*, which was read from JSON: an object of valid names and values.

    Raises:
        ValueError: it is none; the message has no text of it.
    """
    given = cast("Mapping[object, object]", value) if isinstance(value, dict) else None
    found = {} if given is None else valid_tags(given)
    if given is None or len(found) < len(given):
        raise ValueError("the tags are no object, or have a name or a value that no tag has")
    return found


def tag_text(value: TagValue) -> str:
    """Return the *value* of a tag as text, as rules, filters and metrics have it: true and false for booleans."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_tag(text: str, origin: str = "") -> tuple[str, str]:
    """Return name and text of the value of the tag that *text*, such as tenant=acme, chooses calls by.

    Args:
        text: name and value.
        origin: argument or setting that has it, for the error; empty: the error does not say.

    Raises:
        SettingsError: it names no tag, or no value.
    """
    name, _, value = text.partition("=")
    if not value:
        where = f" (from {origin})" if origin else ""
        raise SettingsError(f"a tag is chosen by name and value, such as tenant=acme, got {text!r}{where}")
    return check_tag_name(name), value


def tag_attributes(tags: Mapping[str, TagValue]) -> dict[str, TagValue]:
    """Return *tags* as attributes of a span or an event, by the names of the attributes."""
    return {semconv.tag(name): value for name, value in tags.items()}


@dataclass(frozen=True, slots=True)
class Constant:
    """Value of a tag that is the same in every call of a decorated function."""

    value: TagValue


def constant(value: TagValue) -> Constant:
    """Return a tag's value that is the same in every call, for `tags=` of a decorator.

    There a text says where the value is among the arguments, and is none itself.

    Examples:
        >>> @ragtrace.trace(tags={"tenant": "tenant", "channel": ragtrace.types.constant("web")})
        ... def ask(question: str, tenant: str) -> str:
        ...     return "In Paris."
        >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(answer_label="answered"))
        >>> ragtrace.configure(exporter="none", screen=judge)
        >>> ask("Where is the tower?", "acme")
        'In Paris.'
        >>> ragtrace.flush()
        True
        >>> judge.calls[0].tags
        {'tenant': 'acme', 'channel': 'web'}

    Args:
        value: a text of at most 200 characters, a boolean or a finite number.

    Raises:
        SettingsError: it is none of these.
    """
    valid = tag_value(value)
    if valid is None:
        raise SettingsError(
            f"the value of a tag is a text of 1 to {MOST_VALUE_CHARS} characters, a boolean or a finite number; "
            f"constant(...) got {_described(value)}"
        )
    return Constant(valid)


def _described(value: object) -> str:
    return f"a text of {len(value)} characters" if isinstance(value, str) else type(value).__name__
