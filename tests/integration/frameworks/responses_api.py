"""The model server's Responses API: requests as chat messages, what the model writes as a response and its events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

_PIECE_CHARS: Final = 24


class Exchange(Protocol):
    """What the model wrote, as model_server.Exchange."""

    @property
    def id(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def tool_calls(self) -> list[dict[str, Any]]: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


def chat_messages(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the instructions and the input of a *request* as the messages of a chat completion."""
    messages = [{"role": "system", "content": request["instructions"]}] if request.get("instructions") else []
    asked = request["input"]
    for item in [{"role": "user", "content": asked}] if isinstance(asked, str) else asked:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item["role"], "content": item["content"]})
        elif kind == "function_call":
            called = {"name": item["name"], "arguments": item["arguments"]}
            messages.append({"role": "assistant", "tool_calls": [{"id": item["call_id"], "function": called}]})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
    return messages


def _output(exchange: Exchange) -> list[dict[str, Any]]:
    number = exchange.id.removeprefix("resp_")
    if exchange.tool_calls:
        return [
            {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": call["id"],
                "name": call["name"],
                "arguments": call["arguments"],
                "status": "completed",
            }
            for call in exchange.tool_calls
        ]
    part = {"type": "output_text", "text": exchange.content or "", "annotations": [], "logprobs": []}
    return [{"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}]


def response(request: dict[str, Any], exchange: Exchange, *, status: str = "completed") -> dict[str, Any]:
    """Return the body of a response to *request*."""
    complete = status == "completed"
    return {
        "id": exchange.id,
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": f"{request['model']}-2024-07-18",
        "instructions": request.get("instructions"),
        "output": _output(exchange) if complete else [],
        "parallel_tool_calls": True,
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "temperature": 1.0,
        "top_p": 1.0,
        "metadata": {},
        "error": None,
        "incomplete_details": None,
        "usage": {
            "input_tokens": exchange.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": exchange.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": exchange.input_tokens + exchange.output_tokens,
        }
        if complete
        else None,
    }


def response_events(request: dict[str, Any], exchange: Exchange) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed response to *request*."""
    for number, event in enumerate(_events(request, exchange)):
        yield {**event, "sequence_number": number}


def _events(request: dict[str, Any], exchange: Exchange) -> Iterator[dict[str, Any]]:
    started = response(request, exchange, status="in_progress")
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    for index, item in enumerate(_output(exchange)):
        yield from _item_events(index, item)
    yield {"type": "response.completed", "response": response(request, exchange)}


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **at, **done}
    else:
        begun = {**item, "content": [], "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        part = item["content"][0]
        of_part = {**at, "content_index": 0}
        yield {"type": "response.content_part.added", **of_part, "part": {**part, "text": ""}}
        for piece in _pieces(part["text"]):
            yield {"type": "response.output_text.delta", **of_part, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **of_part, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **of_part, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _pieces(text: str) -> Sequence[str]:
    return [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]


def event_line(event: dict[str, Any]) -> bytes:
    """Return *event* as a server-sent event with its name."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
