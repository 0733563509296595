"""Requests that the model server received, and replies that a script gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from time import time
from typing import Any, cast

from ragtrace.judges.llm.response_format import SCHEMA_FOLLOWS


@dataclass(frozen=True)
class Request:
    """Request that the model server received."""

    number: int
    """From 0, in the order of arrival."""
    at: float
    """Time of arrival, in seconds on the monotonic clock."""
    path: str
    headers: Mapping[str, str]
    """Headers, with names in small letters."""
    body: dict[str, Any]

    @property
    def system(self) -> str:
        """Instructions: the system messages."""
        return "\n".join(_content(message) for message in self._messages if message.get("role") == "system")

    @property
    def user(self) -> str:
        """First message of the user."""
        return next((_content(message) for message in self._messages if message.get("role") == "user"), "")

    @property
    def is_repair(self) -> bool:
        """Whether the request asks for a better reply than the one before."""
        return any(message.get("role") == "assistant" for message in self._messages)

    @property
    def schema(self) -> dict[str, Any] | None:
        """JSON schema of the reply, from `response_format` or from the instructions; None if there is none."""
        wanted = _dict(_dict(self.body.get("response_format")).get("json_schema")).get("schema")
        if wanted:
            return _dict(wanted)
        _, found, after = self.system.partition(SCHEMA_FOLLOWS)
        return _dict(_parsed(after.strip().splitlines()[0])) if found and after.strip() else None

    @property
    def data(self) -> dict[str, Any] | None:
        """Data of a ragtrace prompt: the object under the random key of the user message."""
        outer = _dict(_parsed(self.user))
        return _dict(next(iter(outer.values()))) if len(outer) == 1 else None

    @property
    def _messages(self) -> list[dict[str, Any]]:
        messages = self.body.get("messages")
        return [_dict(message) for message in cast("list[object]", messages)] if isinstance(messages, list) else []


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content)


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Reply:
    """Reply of the server to one request.

    Args:
        content: what the model writes; a mapping is written as JSON; None: an answer by rule.
        status: HTTP status.
        body: response body instead of a completion; a mapping is written as JSON.
        headers: response headers besides the usual ones.
        after: seconds until it answers.
        finish: why the model stopped: "stop", "length", "content_filter".
        refusal: text with which the model refuses to answer.
        hangs: whether to never answer, with the connection open.
        drops: whether to close the connection instead of answering.
        streams: whether to send events although the request asks for one body.
        usage: tokens read and written; None: the server does not say; default: counted.
    """

    content: str | Mapping[str, object] | None = None
    status: int = 200
    body: bytes | str | Mapping[str, object] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    after: float = 0.0
    finish: str = "stop"
    refusal: str | None = None
    hangs: bool = False
    drops: bool = False
    streams: bool = False
    usage: tuple[int, int] | None = (-1, -1)

    @classmethod
    def failing(
        cls,
        status: int,
        message: str = "something broke",
        *,
        code: str | None = None,
        param: str | None = None,
        body: Mapping[str, object] | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Return an error in OpenAI's shape, or with another *body*."""
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        text = body if isinstance(body, str) else json.dumps({"error": error} if body is None else body)
        return cls(status=status, body=text.encode(), headers=headers or {})

    @classmethod
    def too_many(cls, seconds: float | None = None, *, date: bool = False) -> Reply:
        """Return a 429 whose Retry-After is *seconds*, as a date if *date*; None: without the header."""
        headers: dict[str, str] = {}
        if seconds is not None:
            headers["Retry-After"] = formatdate(time() + seconds, usegmt=True) if date else f"{seconds:g}"
        return cls.failing(429, "Rate limit reached", code="rate_limit_exceeded", headers=headers)

    @classmethod
    def refusing(cls, why: str = "I'm sorry, I can't help with that.") -> Reply:
        """Return a reply in which the model refuses, in the field for refusals."""
        return cls(content="", refusal=why)

    @classmethod
    def filtering(cls) -> Reply:
        """Return a reply whose text a content filter removed."""
        return cls(content="", finish="content_filter")

    @classmethod
    def cutting_off(cls, content: str = '{"sentences": [{"id": "s1", "rel') -> Reply:
        """Return a reply that is cut off at the limit of tokens."""
        return cls(content=content, finish="length")

    @classmethod
    def hanging(cls) -> Reply:
        """Return a reply that never comes."""
        return cls(hangs=True)

    @classmethod
    def dropping(cls) -> Reply:
        """Return a reply that is a closed connection."""
        return cls(drops=True)

    @classmethod
    def babbling(cls) -> Reply:
        """Return a reply of bytes that are no JSON."""
        return cls(body=b'\x00{"choices": [[[ \xff\xfe never mind')

    @classmethod
    def flooding(cls, n_bytes: int = 20_000_000) -> Reply:
        """Return a reply of *n_bytes* characters."""
        return cls(content="x" * n_bytes)
