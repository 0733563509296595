"""Reads the response of a chat completions endpoint, sent as one JSON body or as a stream of events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ragtrace.core.errors import JudgeError
from ragtrace.core.price import TokenUsage, read_usage
from ragtrace.core.text import encodable
from ragtrace.judges.llm.server_errors import ServerError

_SHOWN_CHARS: Final = 120
_LEAST_LOGPROB: Final = -3.5e38
"""Lowest valid log probability. llama.cpp writes the lowest 32-bit number for a probability of 0, vLLM -9999."""


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One token of an LLM's reply, with the log probabilities of the token and of the likeliest alternatives."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    """Likeliest tokens at the same place, with log probabilities; empty if one of them is not valid."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the replies in the response of a chat completions endpoint."""

    text: str
    finish: str
    """Reason why the model stopped, in the server's word, such as "length"; "" if the server gives none."""
    refusal: str
    """Text of the model's refusal; "" if there is none."""
    tokens: tuple[TokenChoice, ...] | None

    def problem(self) -> str:
        """Return the reason why this reply is unusable: "refused", "content_filter" or "truncated"; empty: none."""
        if self.refusal or self.finish == "refusal":
            return "refused"
        if self.finish == "content_filter":
            return "content_filter"
        return "truncated" if self.finish in ("length", "max_tokens") else ""

    def check(self) -> None:
        """Raise a `JudgeError` if this reply is unusable."""
        if reason := self.problem():
            details = {
                "refused": self.refusal[:_SHOWN_CHARS],
                "content_filter": "the server withheld the reply",
                "truncated": f"cut off after {len(self.text)} characters",
            }
            raise JudgeError(reason, details[reason], retryable=False)


@dataclass(frozen=True, slots=True)
class Completion:
    """Parsed response of a chat completions endpoint: replies, model name, fingerprint and token counts."""

    choices: tuple[Choice, ...]
    model: str
    usage: TokenUsage | None
    fingerprint: str = ""
    """The server's name for its configuration (`system_fingerprint`); "" if it sends none."""


def read_completion(body: bytes) -> Completion:
    """Parse the response body of a chat completions endpoint, sent as JSON or as a stream of events.

    Raises:
        ServerError: *body* is an error, though the status was 200.
        JudgeError: "unparsable": *body* is no completion.
    """
    text = body.decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    answer = _join_stream_events(text) if text.startswith(("data:", "event:", "id:", ":")) else read_json(text)
    check_error(answer)
    read = read_choices(answer)
    if not read:
        raise JudgeError("unparsable", f"the answer of the server has no choices: {text[:_SHOWN_CHARS]!r}")
    return Completion(read, _text(answer.get("model")), read_usage(answer), _text(answer.get("system_fingerprint")))


def read_choices(answer: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Return the replies in the parsed response of a chat completions endpoint, or () if it has none."""
    choices = answer.get("choices")
    found = cast("list[object]", choices) if isinstance(choices, list) else []
    return tuple(_read_choice(choice) for choice in map(_dict, found) if choice)


def read_json(text: str) -> dict[str, Any]:
    """Parse the JSON object that a server sent.

    Raises:
        JudgeError: "unparsable": *text* is no JSON object.
    """
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise JudgeError("unparsable", f"the server sent no JSON object: {text[:_SHOWN_CHARS]!r}", retryable=False)
    return cast("dict[str, Any]", answer)


def check_error(answer: Mapping[str, Any]) -> None:
    """Raise `ServerError` if *answer*, received with HTTP status 200, is in fact an error message."""
    error = answer.get("error")
    if error and not answer.get("choices"):
        fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        code = fields.get("code", fields.get("status"))
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        raise ServerError(status, {}, json.dumps(dict(answer)).encode("utf-8", "replace"))


def _read_choice(choice: dict[str, Any]) -> Choice:
    message = _dict(choice.get("message"))
    text = _text(message.get("content"))
    return Choice(
        text=text if text.strip() else _misplaced(message) or text,
        finish=_text(choice.get("finish_reason")),
        refusal=_text(message.get("refusal")),
        tokens=_read_tokens(_dict(choice.get("logprobs")).get("content")),
    )


def _misplaced(message: dict[str, Any]) -> str:
    """Return the reply that a server has put into the field of the reasoning: one JSON object and nothing else, or "".

    A parser of vLLM for reasoning does so with all that comes before an end mark which the model did not write.
    """
    text = (_text(message.get("reasoning_content")) or _text(message.get("reasoning"))).strip()
    try:
        return text if text.startswith("{") and isinstance(json.loads(text), dict) else ""
    except (ValueError, RecursionError):
        return ""


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Return the text of a message field, which may be a string or a list of parts, or "" for anything else."""
    if isinstance(value, str):
        return value if value.isascii() else encodable(value)
    if isinstance(value, list):
        parts = [_dict(part).get("text") for part in cast("list[object]", value)]
        return encodable("".join(part for part in parts if isinstance(part, str)))
    return ""


def _read_tokens(content: object) -> tuple[TokenChoice, ...] | None:
    """Return the tokens of a reply with their log probabilities, or None if they are missing or invalid."""
    read: list[TokenChoice] = []
    for token in map(_dict, cast("list[object]", content) if isinstance(content, list) else []):
        if not _is_token(token):
            return None
        top = token.get("top_logprobs")
        others = [_dict(other) for other in cast("list[object]", top)] if isinstance(top, list) else []
        likely = [(o["token"], min(0.0, o["logprob"])) for o in others] if all(map(_is_token, others)) else []
        read.append(TokenChoice(token["token"], min(0.0, token["logprob"]), tuple(likely)))
    return tuple(read) or None


def _is_token(token: dict[str, Any]) -> bool:
    """Return whether *token*, read from a server's response, has a text and a valid log probability."""
    logprob = token.get("logprob")
    number = isinstance(logprob, (int, float)) and not isinstance(logprob, bool)
    # Highest valid log probability: servers round, so that a value may be a little above 0.
    return isinstance(token.get("token"), str) and number and _LEAST_LOGPROB <= cast(float, logprob) <= 1e-3


# --- streams ---------------------------------------------------------------------------------------------------------


def _join_stream_events(text: str) -> dict[str, Any]:
    """Join the events of a streamed response into the JSON body that an unstreamed response has."""
    joined: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for line in text.split("\n"):  # not splitlines: U+2028 may stand in the JSON
        data = line[5:].strip() if line.startswith("data:") else ""
        if not data or data == "[DONE]":
            continue
        chunk = read_json(data)
        check_error(chunk)
        joined |= {key: chunk[key] for key in ("model", "usage", "system_fingerprint") if chunk.get(key)}
        pieces = chunk.get("choices")
        for piece in map(_dict, cast("list[object]", pieces) if isinstance(pieces, list) else []):
            index = piece.get("index", 0)
            choice = choices.setdefault(
                index if isinstance(index, int) else 0,
                {"message": {"content": "", "refusal": ""}, "finish_reason": None, "logprobs": {"content": []}},
            )
            delta = _dict(piece.get("delta")) or _dict(piece.get("message"))
            for key in ("content", "refusal"):
                choice["message"][key] += _text(delta.get(key))
            choice["finish_reason"] = piece.get("finish_reason") or choice["finish_reason"]
            tokens = _dict(piece.get("logprobs")).get("content")
            choice["logprobs"]["content"] += cast("list[object]", tokens) if isinstance(tokens, list) else []
    return joined | {"choices": [choices[index] for index in sorted(choices)]}
