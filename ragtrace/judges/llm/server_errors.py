"""Interprets errors of an LLM server: the reason, whether and when to retry, and which parameter is rejected."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from ragtrace.core.errors import JudgeError
from ragtrace.system.retry_after import seconds_until_retry

_SHOWN_CHARS: Final = 300
_READ_CHARS: Final = 4_000
"""Most characters that are read of an error text: servers that validate with pydantic append the whole request."""
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


class ServerError(JudgeError):
    """Error response of an LLM server: the reason, whether and when to retry, and the error text.

    Args:
        status: HTTP status.
        headers: of the response; a Retry-After is read.
        body: in any of the known shapes, or in none.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        text = body[: 4 * _READ_CHARS].decode("utf-8", "replace")[:_READ_CHARS]
        try:
            parsed: Any = json.loads(body[: 64 * _READ_CHARS])
        except (ValueError, RecursionError):
            parsed = None
        items = cast("list[object]", parsed) if isinstance(parsed, list) else [parsed]  # Google's server sends a list
        outer = cast("dict[str, Any]", items[0]) if items and isinstance(items[0], dict) else {}
        inner: Any = outer.get("error", outer.get("detail", outer))
        fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else outer
        message = str(inner if isinstance(inner, str) else fields.get("message") or text)[:_READ_CHARS]
        self.status, self.text = status, text.lower()
        param = str(fields.get("param"))[:_SHOWN_CHARS].lower() if isinstance(fields.get("param"), (str, int)) else ""
        self.param = "" if param in ("none", "null") else param
        """Parameter of the request that the server rejects by name; "" if none."""
        reason, retryable, after = "unavailable", False, None
        if status < 500 and any(word in self.text for word in _FILTERED):
            reason = "content_filter"
        elif status in (400, 413, 422, 500) and _TOO_LONG.search(self.text):
            reason = "truncated"
        elif status in (408, 409, 425, 429) or status >= 500:
            for_good = status == 429 and any(word in self.text for word in _STAY_AWAY)
            retryable = not for_good and status != 501
            after = None if for_good else seconds_until_retry(headers.get("retry-after"))
            milliseconds = seconds_until_retry(headers.get("retry-after-ms"))  # sent by Azure and OpenAI
            if milliseconds is not None and not for_good:
                after = milliseconds / 1_000
        shown = " ".join(message.split())[:_SHOWN_CHARS]
        super().__init__(reason, f"HTTP {status}: {shown}", retry_after=after, retryable=retryable)


def rejected_parameter(error: ServerError, sent: Collection[str]) -> str | None:
    """Return the request parameter that a server rejects according to its *error*, or None.

    *sent* names the parameters of the request. "stream": the server only streams; None: its error is about something
    else.
    """
    if error.status not in _REJECTING | _PERHAPS_REJECTING or error.reason != "unavailable":
        return None
    if "stream" not in sent and _STREAM_ONLY.search(error.text):
        return "stream"
    culprit = re.split(r"[.\[]", error.param.removeprefix("body."))[0]
    if culprit in sent and error.status in _REJECTING:
        return culprit
    if culprit and culprit not in ("json_schema", "json_object"):
        return None
    if not _UNSUPPORTED.search(error.text):
        return None
    # The parameter named first: some servers append the whole request, which names all parameters.
    found = {name: place for name in sent if (place := _mention_offset(error.text, name)) is not None}
    return min(found, key=found.__getitem__) if found else None


def _mention_offset(text: str, name: str) -> int | None:
    """Return the offset at which an error *text* mentions the parameter *name*, or None."""
    words = _FORMAT_WORDS if name == "response_format" else re.escape(name.lower())
    if len(name) < 3:  # "n" is a parameter only in quotation marks
        words = rf"['\"`]{words}['\"`]"
    match = re.search(rf"(?<![a-z_])(?:{words})(?![a-z_])", text)
    return match.start() if match else None
