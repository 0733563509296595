"""Queue message that carries a redacted RAG call to a fleet's workers: versioned JSON, validated on both sides."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from time import time
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from opentelemetry.trace import SpanContext

from ragtrace.core.errors import RagtraceError
from ragtrace.core.tags import read_tags
from ragtrace.core.text import encodable
from ragtrace.core.types import RagCall
from ragtrace.core.unscored_call import UnscoredCall, decode, encode

VERSION: Final = 1
MOST_BYTES: Final = 4 << 20
"""Most bytes of a message; a call with longer texts is not handed over."""
DEADLINE_SECONDS: Final = 86_400.0
"""Age in seconds at which a call that is not judged yet becomes a dead letter."""
_MOST_ITEMS: Final = 10_000
_DOUBTFUL: Final = re.compile(r"[\ud800-\udfff]|\\u(?:[dD][89a-fA-F]|0000)")
"""Pattern of what may be a character that cannot be exported, in JSON text: a surrogate, paired or lone, or NUL."""
_MOST_EVALUATORS: Final = 100
_MOST_INTEGER: Final = 1 << 63
"""Bound of the integers that can be exported."""
_TRACE_HEX: Final = 32
_SPAN_HEX: Final = 16


class MessageError(RagtraceError):
    """Raised for a queue message that cannot be written, or from which no RAG call can be read.

    Args:
        reason: `too_large`, `malformed` or `version`.
        detail: what is wrong, without any text of the call.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class CallMessage(NamedTuple):
    """Queue message with a redacted RAG call for the workers of a fleet.

    The ids of its scores follow from its span and from the judge (`ragtrace.core.score_id`), so that every worker gives
    a score the same id.
    """

    unscored: UnscoredCall
    published: float
    """Seconds since the epoch at which the call was first put into the queue."""
    deadline: float
    """Seconds since the epoch after which the call is not judged any more."""
    tries: int = 0
    """Number of failed attempts to judge the call."""
    unjudged: Mapping[str, int] = MappingProxyType({})
    """Number of calls by workflow that the application did not hand over, since the last message that had such numbers.
    Estimates of all calls need them: a worker sees the sampled calls only."""

    @classmethod
    def of(cls, unscored: UnscoredCall) -> CallMessage:
        """Create the queue message that hands the RAG call *unscored* over to the fleet."""
        now = time()
        return cls(unscored, now, now + DEADLINE_SECONDS)


def write_message(message: CallMessage) -> str:
    """Encode the queue message *message* as JSON text.

    Raises:
        MessageError: the text is too large.
    """
    head = {
        "version": VERSION,
        "published": message.published,
        "deadline": message.deadline,
        "tries": message.tries,
        **({"unjudged": dict(message.unjudged)} if message.unjudged else {}),
    }
    text = f"{json.dumps(head)[:-1]}, {encode(message.unscored)[1:]}"  # one object: the call is encoded once
    if len(text) > MOST_BYTES:
        raise MessageError("too_large", f"the call takes {len(text)} bytes, more than {MOST_BYTES}")
    return text


def read_message(body: bytes | str) -> CallMessage:
    """Decode a queue message from the JSON text *body*, after validating every field against the schema.

    Raises:
        MessageError: it is no message of a call, or one of another version.
    """
    if len(body) > MOST_BYTES:
        raise MessageError("too_large", f"the message has {len(body)} bytes, more than {MOST_BYTES}")
    try:
        text = body if isinstance(body, str) else body.decode()
        found: object = json.loads(text)
        if _DOUBTFUL.search(text):
            found = _encodable(found)
            text = json.dumps(found)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise MessageError("malformed", f"no JSON: {type(error).__name__}") from error
    if not isinstance(found, dict):
        raise MessageError("malformed", "no JSON object")
    record = cast("dict[str, object]", found)
    version = record.get("version")
    if version != VERSION or isinstance(version, bool):
        raise MessageError("version", f"version {VERSION} was expected" + _seen(version))
    _check_envelope(record)
    _check_object(record["call"], RagCall, "call", frozenset({"span"}))
    try:
        unscored = decode(text)
    except (ValueError, TypeError, KeyError) as error:
        raise MessageError("malformed", f"the call cannot be read: {type(error).__name__}") from error
    envelope = cast("dict[str, Any]", record)
    unjudged = MappingProxyType(envelope.get("unjudged", {}))
    return CallMessage(unscored, envelope["published"], envelope["deadline"], envelope["tries"], unjudged)


def _encodable(value: object) -> object:
    """Return a JSON *value* whose texts can all be exported, as one that cannot would cost a batch of spans."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        record = cast("dict[str, object]", value)
        return {encodable(name): _encodable(each) for name, each in record.items()}
    return value


def _seen(version: object) -> str:
    return f", not {version}" if isinstance(version, int) and abs(version) < 1_000_000 else ""


def _check_envelope(record: Mapping[str, object]) -> None:
    checks: Mapping[str, Callable[[object], bool]] = {
        "published": _is_time,
        "deadline": _is_time,
        "tries": lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000,
        "probability": _is_probability,
        "reason": lambda value: isinstance(value, str),
        "unjudged": _is_counts,
        "response_id": lambda value: value is None or isinstance(value, str),
        "open": _is_ids,
        "span": _is_span,
        "call": lambda value: isinstance(value, dict),
    }
    record = {"reason": "", "unjudged": {}, **record}  # messages of older versions have none
    for name, check in checks.items():
        if name not in record or not check(record[name]):
            raise MessageError("malformed", f"{name} is missing or wrong")


def _is_number(value: object) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _is_time(value: object) -> bool:
    return _is_number(value) and 0 <= cast("float", value) < 1e11


def _is_probability(value: object) -> bool:
    return _is_number(value) and 0 < cast("float", value) <= 1


def _is_counts(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    counts = cast("dict[str, object]", value)
    valid = (_is_integer(count) and 0 <= cast("int", count) < 1e12 for count in counts.values())
    return len(counts) <= _MOST_ITEMS and all(valid)


def _is_ids(value: object) -> bool:
    ids = cast("list[object]", value) if isinstance(value, list) else [None]
    return len(ids) <= _MOST_EVALUATORS and all(isinstance(each, str) and each for each in ids)


def _is_span(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    span = cast("dict[str, object]", value)
    flags, state = span.get("flags"), span.get("state")
    ids = _is_hex(span.get("trace"), _TRACE_HEX) and _is_hex(span.get("span"), _SPAN_HEX)
    return ids and isinstance(flags, int) and 0 <= flags <= 255 and isinstance(state, str) and len(state) <= 8_192


def _is_hex(value: object, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most and set(value) <= set("0123456789abcdef")


# --- types of the fields ---------------------------------------------------------------------------------------------


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind, localns={"SpanContext": SpanContext})


def _check_object(value: object, kind: type, where: str, without: frozenset[str] = frozenset()) -> None:
    """Check that *value* is a JSON object with the fields of the dataclass *kind*.

    Unknown fields are accepted.

    Raises:
        MessageError: a field is missing or has a wrong type.
    """
    if not isinstance(value, dict):
        raise MessageError("malformed", f"{where} is no object")
    record = cast("dict[str, object]", value)
    for each in fields(kind):
        if each.name in record and each.name not in without:
            _check(record[each.name], _hints(kind)[each.name], f"{where}.{each.name}")
        elif each.name not in without and each.default is MISSING and each.default_factory is MISSING:
            raise MessageError("malformed", f"{where}.{each.name} is missing")


def _check(value: object, hint: Any, where: str) -> None:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return
        (hint,) = (each for each in arguments if each is not NoneType)
        origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, list) or len(cast("list[object]", value)) > _MOST_ITEMS:
            raise MessageError("malformed", f"{where} is no list, or too long")
        for item in cast("list[object]", value):
            _check(item, arguments[0], where)
    elif origin is Literal:
        if value not in arguments:
            raise MessageError("malformed", f"{where} has an unknown value")
    elif origin is Mapping:  # the tags, the only field of the kind
        try:
            read_tags(value)
        except ValueError as error:
            raise MessageError("malformed", f"{where}: {error}") from error
    elif hint in _SIMPLE:
        if not _SIMPLE[hint](value):
            raise MessageError("malformed", f"{where} is no {hint.__name__}")
    else:
        _check_object(value, hint, where)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST_INTEGER


_SIMPLE: Final[Mapping[type, Callable[[object], bool]]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: _is_integer,
    float: lambda value: isinstance(value, float) or _is_integer(value),
}
