"""Meaning of a server's error: the reason, whether and when to retry, and which part of the request it rejects."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ragtrace.core.errors import JudgeError
from ragtrace.system.retry_after import seconds_until_retry

_SHOWN_CHARS: Final = 300
_READ_CHARS: Final = 4_000
"""Servers that validate with pydantic append the whole request to what they say."""
_REJECTING: Final = frozenset({400, 422, 501})
_PERHAPS_REJECTING: Final = frozenset({403, 404, 405, 415, 500})
_STAY_AWAY: Final = ("insufficient_quota", "billing_hard_limit_reached", "access_terminated")

_UNSUPPORTED: Final = re.compile(
    r"support|not (?:allowed|permitted|available|implemented|compatible|enabled)|unrecogni[sz]ed|unknown|unexpected"
    r"|extra (?:inputs|fields)|unavailable|enabled only|only enabled|only the default|must be one of|input should be"
    r"|\binvalid\b|not valid|cannot be used|can't be used|no longer|deprecated|failed to parse grammar|leave it unset"
)
_FORMAT_WORDS: Final = r"response_format|json_schema|json_object|structured[ _]outputs?|guided_json|grammar|json mode"
_STREAM_ONLY: Final = re.compile(
    r"only supports? stream|stream mode|non-?streaming|streaming (?:is required|only|mode)"
    r"|must (?:be|use) stream|enable (?:the )?stream|stream\W{1,4}(?:must|should|needs to|has to) be|set stream"
)
_FILTERED: Final = (
    "content_filter",
    "responsibleaipolicyviolation",
    "content_policy_violation",
    "data_inspection_failed",
)
_TOO_LONG: Final = re.compile(
    r"context_length_exceeded|maximum context length|context (?:length|size|window) (?:is )?exceed"
    r"|exceeds? the (?:available )?context|prompt is too long|reduce the length of the messages|input is too long"
    r"|longer than the maximum model length"
)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """Parts of an error body, whichever of the known shapes it has."""

    message: str
    param: str
    """Parameter of the request that the server names as the culprit; "" if none."""
    code: str
    text: str
    """The whole body in lower case."""


class ServerError(JudgeError):
    """Error that a server answered with."""

    def __init__(
        self, reason: str, status: int, parts: ErrorBody, *, retry_after: float | None = None, retryable: bool = False
    ) -> None:
        shown = " ".join(parts.message.split())[:_SHOWN_CHARS]
        super().__init__(reason, f"HTTP {status}: {shown}", retry_after=retry_after, retryable=retryable)
        self.status, self.parts = status, parts


def server_error(status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
    """Return the error that a response with *status* stands for."""
    parts = read_error_body(body)
    after = seconds_until_retry(headers.get("retry-after"))
    milliseconds = seconds_until_retry(headers.get("retry-after-ms"))  # sent by Azure and OpenAI
    if milliseconds is not None:
        after = milliseconds / 1_000
    if any(word in parts.text for word in _FILTERED) and status < 500:
        return ServerError("content_filter", status, parts)
    if _TOO_LONG.search(parts.text) and status in (400, 413, 422, 500):
        return ServerError("truncated", status, parts)
    if status == 429:
        for_good = parts.code in _STAY_AWAY or any(word in parts.text for word in _STAY_AWAY)
        return ServerError(
            "unavailable", status, parts, retry_after=None if for_good else after, retryable=not for_good
        )
    if status in (408, 409, 425) or status >= 500:
        return ServerError("unavailable", status, parts, retry_after=after, retryable=status != 501)
    return ServerError("unavailable", status, parts)


def read_error_body(body: bytes) -> ErrorBody:
    """Return the parts of an error body."""
    text = body[: 4 * _READ_CHARS].decode("utf-8", "replace")[:_READ_CHARS]
    try:
        parsed: Any = json.loads(body[: 64 * _READ_CHARS])
    except (ValueError, RecursionError):
        return ErrorBody(text, "", "", text.lower())
    outer = _first(parsed)
    inner: Any = outer.get("error", outer.get("detail", outer))
    fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else outer
    message = inner if isinstance(inner, str) else fields.get("message") or text
    return ErrorBody(str(message)[:_READ_CHARS], _word(fields.get("param")), _word(fields.get("code")), text.lower())


def _first(parsed: object) -> dict[str, Any]:
    """Return the object itself, or the first of a list, as Google's server sends it."""
    items = cast("list[object]", parsed) if isinstance(parsed, list) else [parsed]
    return cast("dict[str, Any]", items[0]) if items and isinstance(items[0], dict) else {}


def _word(value: object) -> str:
    """Return a field in lower case; "" if it is missing, null or the word "None"."""
    word = str(value)[:_SHOWN_CHARS].lower() if isinstance(value, (str, int)) else ""
    return "" if word in ("none", "null") else word


def rejected(error: ServerError, sent: Collection[str]) -> str | None:
    """Return the top-level parameter of *sent* that the server does not know or support.

    "stream": the server only streams; None: its error is about something else.
    """
    if error.status not in _REJECTING | _PERHAPS_REJECTING or error.reason != "unavailable":
        return None
    if "stream" not in sent and _STREAM_ONLY.search(error.parts.text):
        return "stream"
    culprit = re.split(r"[.\[]", error.parts.param.removeprefix("body."))[0]
    if culprit in sent and error.status in _REJECTING:
        return culprit
    if culprit and culprit not in ("json_schema", "json_object"):
        return None
    return _first_named(error.parts.text, sent) if _UNSUPPORTED.search(error.parts.text) else None


def _first_named(text: str, sent: Collection[str]) -> str | None:
    """Return the parameter named first: the request, which some servers append, names all of them."""
    found = {name: place for name in sent if (place := _place(text, name)) is not None}
    return min(found, key=found.__getitem__) if found else None


def _place(text: str, name: str) -> int | None:
    words = _FORMAT_WORDS if name == "response_format" else re.escape(name.lower())
    if len(name) < 3:  # "n" is a parameter only in quotation marks
        words = rf"['\"`]{words}['\"`]"
    match = re.search(rf"(?<![a-z_])(?:{words})(?![a-z_])", text)
    return match.start() if match else None
