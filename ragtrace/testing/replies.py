"""Requests that the model server for tests receives, and the scripted replies that it sends."""

from __future__ import annotations

import json
import math
import re
from array import array
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from time import time
from typing import Any, Final, cast
from zlib import crc32

from ragtrace.judges.llm.response_format import SCHEMA_FOLLOWS

_TOKENS: Final = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_PIECE_CHARS: Final = 40
_DIMENSIONS: Final = 64
_SURE: Final = 0.8
"""Probability of each number that the model writes; the next higher number has the remaining probability."""


@dataclass(frozen=True)
class Request:
    """HTTP request that the model server for tests received.

    Examples:
        >>> with ragtrace.testing.OpenAIServer() as server:
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(contexts=["The tower is in Paris."], answer="In Paris.", judge=judge)
        >>> request = server.requests[-1]
        >>> request.path, request.body["model"], "tower" in request.user
        ('/v1/chat/completions', 'local', True)
    """

    number: int
    """Number of the request in the order of arrival, from 0."""
    at: float
    """Time of arrival, in seconds on the monotonic clock."""
    path: str
    headers: Mapping[str, str]
    """Headers, with names in lower case."""
    body: dict[str, Any]
    query: str = ""
    """Query string of the request, without the question mark."""

    @property
    def system(self) -> str:
        """Text of the request's system messages, which hold the instructions."""
        return "\n".join(_content(message) for message in self._messages if message.get("role") == "system")

    @property
    def user(self) -> str:
        """Text of the request's first user message."""
        return next((_content(message) for message in self._messages if message.get("role") == "user"), "")

    @property
    def is_repair(self) -> bool:
        """Whether the request asks the model to correct its last reply."""
        return any(_content(message).startswith('{"defects_of_your_reply"') for message in self._messages)

    @property
    def schema(self) -> dict[str, Any] | None:
        """JSON schema that the model's reply must follow, or None if the request has none.

        It is taken from `response_format` or from the instructions.
        """
        wanted = _dict(_dict(self.body.get("response_format")).get("json_schema")).get("schema")
        if wanted:
            return _dict(wanted)
        _, found, after = self.system.partition(SCHEMA_FOLLOWS)
        return _dict(_parsed(after.strip().splitlines()[0])) if found and after.strip() else None

    @property
    def data(self) -> dict[str, Any] | None:
        """Data in a request with one of ragtrace's prompts, or None for other prompts.

        The user message is a JSON object whose only value is the data.
        """
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
    """Scripted reply of the model server for tests to one request.

    Examples:
        >>> refusal = ragtrace.testing.Reply(refusal="I cannot judge this.")
        >>> with ragtrace.testing.OpenAIServer(refusal) as server:
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(contexts=["The tower is in Paris."], answer="In Paris.", judge=judge)
        >>> scores["faithfulness"].reason
        'refused'

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
        """Return a reply with the HTTP error *status*, and by default with an error body in OpenAI's format."""
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        text = body if isinstance(body, str) else json.dumps({"error": error} if body is None else body)
        return cls(status=status, body=text.encode(), headers=headers or {})

    @classmethod
    def too_many(cls, seconds: float | None = None, *, date: bool = False) -> Reply:
        """Return a reply with status 429 (too many requests) and a Retry-After header of *seconds*.

        The header is a date if *date*, and is left out if *seconds* is None.
        """
        headers: dict[str, str] = {}
        if seconds is not None:
            headers["Retry-After"] = formatdate(time() + seconds, usegmt=True) if date else f"{seconds:g}"
        return cls.failing(429, "Rate limit reached", code="rate_limit_exceeded", headers=headers)

    @classmethod
    def refusing(cls, why: str = "I'm sorry, I can't help with that.") -> Reply:
        """Return a reply in which the model refuses to answer, with *why* in the field `refusal`."""
        return cls(content="", refusal=why)

    @classmethod
    def filtering(cls) -> Reply:
        """Return a reply whose text was removed by a content filter."""
        return cls(content="", finish="content_filter")

    @classmethod
    def cutting_off(cls, content: str = '{"sentences": [{"id": "s1", "rel') -> Reply:
        """Return a reply whose text is cut off because the model reached its limit of tokens."""
        return cls(content=content, finish="length")

    @classmethod
    def hanging(cls) -> Reply:
        """Return a reply for which the server never answers and keeps the connection open."""
        return cls(hangs=True)

    @classmethod
    def dropping(cls) -> Reply:
        """Return a reply for which the server closes the connection without an answer."""
        return cls(drops=True)

    @classmethod
    def babbling(cls) -> Reply:
        """Return a reply whose body is not valid JSON."""
        return cls(body=b'\x00{"choices": [[[ \xff\xfe never mind')

    @classmethod
    def flooding(cls, n_bytes: int = 20_000_000) -> Reply:
        """Return a very large reply: a text of *n_bytes* characters."""
        return cls(content="x" * n_bytes)


# --- response bodies --------------------------------------------------------------------------------------------------


def completion(request: dict[str, Any], content: str, reply: Reply) -> dict[str, Any]:
    """Return the JSON body of a chat completion in which the model writes *content*."""
    message = {"role": "assistant", "content": content, "refusal": reply.refusal}
    body: dict[str, Any] = {
        "id": "chatcmpl-local",
        "object": "chat.completion",
        "created": 0,
        "model": request.get("model", "local"),
        "choices": [
            {"index": index, "message": message, "finish_reason": reply.finish, "logprobs": _logprobs(request, content)}
            for index in range(int(request.get("n") or 1))
        ],
    }
    if reply.usage is not None:
        counted = len(json.dumps(request)) // 4, len(content) // 4
        read, written = reply.usage if reply.usage[0] >= 0 else counted
        body["usage"] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return body


def _logprobs(request: dict[str, Any], content: str) -> dict[str, Any] | None:
    if not request.get("logprobs"):
        return None
    return {"content": [_token(text, int(request.get("top_logprobs") or 0)) for text in _TOKENS.findall(content)]}


def _token(text: str, top: int) -> dict[str, Any]:
    digits = text.strip()
    chances = (
        {text: _SURE, text.replace(digits, str(int(digits) + 1)): 1 - _SURE} if digits.isdecimal() else {text: 1.0}
    )
    listed = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in chances.items()]
    return {**listed[0], "top_logprobs": listed[:top]}


def events(body: dict[str, Any], *, usage: bool) -> bytes:
    """Return the chat completion *body* as a stream of server-sent events."""
    chunks: list[dict[str, Any]] = []
    for choice in body["choices"]:
        chunks += [_chunk(body, choice, piece) for piece in _pieces(choice)]
        chunks.append(_chunk(body, choice, {}, finish=choice["finish_reason"]))
    if usage:
        chunks.append({**_shared(body), "choices": [], "usage": body.get("usage")})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def _pieces(choice: dict[str, Any]) -> list[dict[str, Any]]:
    content, refusal = choice["message"]["content"], choice["message"]["refusal"]
    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    pieces += [{"content": content[at : at + _PIECE_CHARS]} for at in range(0, len(content), _PIECE_CHARS)]
    return [*pieces, {"refusal": refusal}] if refusal else pieces


def _chunk(
    body: dict[str, Any], choice: dict[str, Any], delta: dict[str, Any], finish: str | None = None
) -> dict[str, Any]:
    logprobs = choice["logprobs"] if finish else None
    piece = {"index": choice["index"], "delta": delta, "finish_reason": finish, "logprobs": logprobs}
    return {**_shared(body), "choices": [piece]}


def _shared(body: dict[str, Any]) -> dict[str, Any]:
    return {"id": body["id"], "object": "chat.completion.chunk", "created": 0, "model": body["model"]}


def embeddings(request: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON body of an embeddings response, in which texts that share words have similar vectors."""
    asked = request.get("input", [])
    texts: list[str] = [asked] if isinstance(asked, str) else list(asked)
    vectors = [_vector(str(text), int(request.get("dimensions") or _DIMENSIONS)) for text in texts]
    packed = request.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _base64_floats(vector) if packed else vector}
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(str(text)) for text in texts) // 4
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.get("model", "local"), "usage": usage}


def _vector(text: str, dimensions: int) -> list[float]:
    """Return an embedding of *text*: word counts, with words placed by their hash, scaled to length 1."""
    counts = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [text]:
        counts[crc32(word.encode("utf-8", "replace")) % dimensions] += 1.0
    length = math.sqrt(sum(n * n for n in counts))
    return [n / length for n in counts]


def _base64_floats(vector: list[float]) -> str:
    return b64encode(array("f", vector).tobytes()).decode()
