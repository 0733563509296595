"""Strict parsing of an LLM's reply: one JSON object, or a rating.

Nothing is evaluated, no bracket or comma is added, and nothing is picked out of prose: a judge that quotes a hostile
passage would otherwise be read as if the quotation were its own reply.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn, cast

from ragtrace.core.errors import JudgeError
from ragtrace.core.reasoning import split_reasoning
from ragtrace.core.text import encodable

_SHOWN_CHARS: Final = 120
_FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"[\w+-]{0,20}[ \t]{0,20}\r?\n?")
_MOST_DIGITS: Final = 18
_MOST_OBJECTS: Final = 8
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?\Z", re.ASCII)
_NOT_FINITE: Final = frozenset({"nan", "inf", "infinity"})


class ReadingError(JudgeError):
    """Raised, with a `reason` such as "unparsable" or "ambiguous", when an LLM's reply cannot be read."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail, retryable=False)


def read_object(text: str) -> dict[str, Any]:
    """Parse the JSON object in an LLM's reply, ignoring a leading reasoning block and a surrounding code fence.

    Raises:
        ReadingError: "ambiguous": it holds two different objects; "unparsable": it is no JSON object; or one with NaN,
            Infinity or a key that comes twice; or something follows it.
    """
    whole = text.strip().lstrip("\ufeff")
    try:
        return _single_object(whole)
    except ReadingError:
        bare = _unwrapped(whole)
        if bare == whole:
            raise
    return _single_object(bare)


def _unwrapped(text: str) -> str:
    """Return an LLM's reply without a leading reasoning block, and without a code fence around the rest."""
    return _unfenced(split_reasoning(text).answer.strip())


def _unfenced(text: str) -> str:
    """Return *text* without the code fence that surrounds all of it, if there is one.

    After other words, a fence may be a quotation.
    """
    rest = text.removeprefix(_FENCE)
    if rest == text or not rest.endswith(_FENCE):
        return text
    language = _LANGUAGE.match(rest)
    return rest[language.end() if language else 0 : -len(_FENCE)].strip()


def _single_object(text: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    at = 0
    while at < len(text) or not found:
        if len(found) == _MOST_OBJECTS:
            raise ReadingError("unparsable", f"more than {_MOST_OBJECTS} JSON objects")
        value, at = _next_object(text, at)
        found.append(value)
    if len(found) > 1 and len({json.dumps(value, sort_keys=True) for value in found}) > 1:
        raise ReadingError("ambiguous", f"expected one JSON object, found {len(found)} different ones")
    return found[0]


def _next_object(text: str, at: int) -> tuple[dict[str, Any], int]:
    """Parse the JSON object at offset *at* of *text*. Return the object and the offset where another could follow."""
    if text[at : at + 1] != "{":
        where = "its beginning" if at == 0 else f"character {at}, where more follows"
        raise ReadingError("unparsable", f"no JSON object at {where}: {text[at : at + _SHOWN_CHARS]!r}")
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ReadingError("unparsable", "brackets nested too deep") from None
    except ValueError as error:
        raise ReadingError("unparsable", f"not valid JSON: {str(error)[:_SHOWN_CHARS]}") from None
    while end < len(text) and text[end] in " \t\r\n":
        end += 1
    if "\\ud" in text or "\\uD" in text:
        value = json.loads(encodable(json.dumps(value, ensure_ascii=False)))
    return cast("dict[str, Any]", value), end


def object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build the dictionary of a JSON object from *pairs*, or raise `ValueError` if a key occurs twice.

    For `object_pairs_hook` of a JSON decoder.
    """
    read = dict(pairs)
    if len(read) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:_SHOWN_CHARS]!r} comes twice")
    return read


def parse_finite(text: str) -> float:
    """Parse a JSON number as a float, or raise `ValueError` if the number is too large for a float.

    For `parse_float` of a JSON decoder.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:_SHOWN_CHARS]} is not finite")
    return value


def reject_constant(text: str) -> NoReturn:
    """Raise `ValueError` for NaN and Infinity, which are not JSON. Used as `parse_constant` of a decoder."""
    raise ValueError(f"{text} is not JSON")


def _parse_integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number with {len(text)} digits is too long")
    return int(text)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=object_without_duplicates,
    parse_float=parse_finite,
    parse_int=_parse_integer,
    parse_constant=reject_constant,
)


def parse_rating(text: str) -> float:
    """Parse an LLM's reply that consists of one number between 0 and 1.

    Raises:
        ReadingError: "unparsable", "non_finite" or "out_of_range".
    """
    bare = text.strip()
    if bare.lower().lstrip("+-") in _NOT_FINITE:
        raise ReadingError("non_finite", bare)
    if not _NUMBER.match(bare):
        raise ReadingError("unparsable", f"not a number: {bare[:_SHOWN_CHARS]!r}")
    value = float(bare)
    if not math.isfinite(value):
        raise ReadingError("non_finite", bare[:_SHOWN_CHARS])
    if not 0.0 <= value <= 1.0:
        raise ReadingError("out_of_range", f"{value!r} is outside [0, 1]")
    return value
