"""Response bodies of a model server: completions, their streams, and embeddings."""

from __future__ import annotations

import json
import math
import re
from array import array
from base64 import b64encode
from typing import Any, Final
from zlib import crc32

from ragtrace.testing.replies import Reply

_TOKENS: Final = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_PIECE_CHARS: Final = 40
_DIMENSIONS: Final = 64
_SURE: Final = 0.8
"""Probability of a number that the model writes; the next higher number gets the rest."""


def completion(request: dict[str, Any], content: str, reply: Reply) -> dict[str, Any]:
    """Return the body of a chat completion."""
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
        body["usage"] = _usage(request, content, reply.usage)
    return body


def _usage(request: dict[str, Any], content: str, counted: tuple[int, int]) -> dict[str, int]:
    read, written = counted if counted[0] >= 0 else (len(json.dumps(request)) // 4, len(content) // 4)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


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
    """Return the completion *body* as server-sent events."""
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
    """Return the body of an embeddings response: texts that share words have vectors with a small angle."""
    asked = request.get("input", [])
    texts: list[str] = [asked] if isinstance(asked, str) else list(asked)
    vectors = [_vector(str(text), int(request.get("dimensions") or _DIMENSIONS)) for text in texts]
    packed = request.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if packed else vector}
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(str(text)) for text in texts) // 4
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.get("model", "local"), "usage": usage}


def _vector(text: str, dimensions: int) -> list[float]:
    """Return the counts of words by their hash, as a vector of length 1."""
    counts = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [text]:
        counts[crc32(word.encode("utf-8", "replace")) % dimensions] += 1.0
    length = math.sqrt(sum(n * n for n in counts))
    return [n / length for n in counts]


def _packed(vector: list[float]) -> str:
    return b64encode(array("f", vector).tobytes()).decode()
