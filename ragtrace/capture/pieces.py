"""The text in one piece of a stream, by the shape of the piece. Runs for every token: the common shapes come first."""

from __future__ import annotations

from typing import Any, Final, cast

from ragtrace.capture import names
from ragtrace.capture.answers import documents_beside, read_response
from ragtrace.capture.draft import MAX_CHOICES, Draft, facts, usage_into
from ragtrace.capture.messages import content_of, parts_text
from ragtrace.capture.passages import MAX_DOCUMENTS, documents
from ragtrace.capture.reading import (
    Get,
    first_text,
    getter,
    items_of,
    label_of,
    shape_of,
    text_of,
    type_name_of,
    whole_of,
)

_MAX_CALLS: Final = 128
_CUMULATIVE: Final = ("CompletionResponse", "ChatResponse")
"""LlamaIndex's pieces carry the whole text so far; the new part is not always beside it."""
_BLOCK_EVENTS: Final = frozenset(
    "message_start message_delta message_stop content_block_start content_block_delta content_block_stop ping".split()
)
_LATER_FACTS: Final = ("usage_metadata", *names.FACTS)


def piece_text(piece: object, draft: Draft, seen_chars: int) -> str | None:
    """The text in *piece*; what else it tells goes to *draft*.

    Args:
        piece: anything but str and bytes.
        draft: the reply so far.
        seen_chars: how many characters came before, for pieces that repeat them.

    Returns:
        "" if the piece was understood and has no text, None if it was not understood.
    """
    get = getter(piece)
    if get is None:
        return _bare(piece, draft, seen_chars)
    choices = get("choices")
    if type(choices) is list:
        return _chat(get, cast("list[object]", choices), draft)
    kind: Any = get("type")
    if type(kind) is str:
        if kind.startswith("response."):
            return _response_event(kind, get, draft)
        if kind in _BLOCK_EVENTS:
            return _block_event(kind, get, draft)
    if shape_of(type(piece)).is_passage or get("page_content") is not None:
        return _passage(piece, draft)
    return _message(piece, get, draft, seen_chars)


def _bare(piece: object, draft: Draft, seen_chars: int) -> str | None:
    """Strings of a derived class, and LangGraph's (message, metadata)."""
    if (text := text_of(piece)) is not None:
        return text
    items = items_of(piece, 3) if shape_of(type(piece)).kind == "tuple" else None
    if not items or len(items) != 2 or shape_of(type(items[0])).kind == "tuple":
        return None
    return piece_text(items[0], draft, seen_chars)


def _chat(get: Get, choices: list[object], draft: Draft) -> str | None:
    """A chunk of a chat or text completion; the last one may hold the usage and no choice."""
    if draft.model is None:
        facts(get, draft)
    elif (usage := get("usage")) is not None:
        usage_into(draft, usage)
    text = None if choices else ""
    for choice in choices:
        look = getter(choice)
        if look is None:
            continue
        reason = look("finish_reason")
        if reason is not None and (label := label_of(reason)) and len(draft.finish_reasons) < MAX_CHOICES:
            draft.finish_reasons = (*draft.finish_reasons, label)
        # With n > 1 the first choice is the answer.
        text = (text or "") if whole_of(look("index")) else _delta(look, draft)
    return text


def _delta(look: Get, draft: Draft) -> str | None:
    get = getter(look("delta"))
    if get is None:
        return text_of(look("text"))
    content: Any = get("content")
    if type(content) is str and content:
        return content
    if (calls := get("tool_calls")) is not None:
        draft.tool_calls += _started(calls, "id")
    refusal = text_of(get("refusal"))
    if refusal:
        draft.refusal = True
        return refusal
    return parts_text(content, "") or ""


def _started(calls: object, field: str) -> int:
    """How many tool calls begin in this piece: later pieces of a call leave its id or name out."""
    getters = [getter(call) for call in items_of(calls, _MAX_CALLS) or ()]
    return sum(get is not None and get(field) is not None for get in getters)


def _response_event(kind: str, get: Get, draft: Draft) -> str:
    """An event of OpenAI's Responses API."""
    if kind == "response.output_text.delta":
        return text_of(get("delta")) or ""
    if kind == "response.refusal.delta":
        draft.refusal = True
        return text_of(get("delta")) or ""
    response = getter(get("response"))
    if response is not None:
        read_response(response, draft)
    return ""


def _block_event(kind: str, get: Get, draft: Draft) -> str:
    """An event of Anthropic's Messages API."""
    inner = getter(get("message" if kind == "message_start" else "delta"))
    if kind == "content_block_delta":
        is_text = inner is not None and label_of(inner("type")) in names.TEXT_PARTS
        return (text_of(inner("text")) or "") if inner is not None and is_text else ""
    if kind == "content_block_start":
        block = getter(get("content_block"))
        draft.tool_calls += block is not None and label_of(block("type")) == "tool_use"
    elif inner is not None:
        facts(inner, draft)
    if (usage := get("usage")) is not None:
        usage_into(draft, usage)
    return ""


def _passage(piece: object, draft: Draft) -> str | None:
    """A stream may send its sources first."""
    found = documents(piece, draft.looks)
    if found is None:
        return None
    draft.documents = ((draft.documents or ()) + found)[:MAX_DOCUMENTS]
    return ""


def _message(piece: object, get: Get, draft: Draft, seen_chars: int) -> str | None:
    """A message chunk of LangChain, LlamaIndex or Haystack, or a dict with a text field."""
    _later_facts(get, draft)
    delta: Any = get("delta")
    if type(delta) is str:
        return delta
    if type_name_of(type(piece)) in _CUMULATIVE:
        message = getter(get("message"))
        return (content_of(get if message is None else message, "") or "")[seen_chars:]
    content: Any = get("content")
    text = content if type(content) is str else parts_text(content, "") or first_text(get, names.PIECE)
    if not text:
        text = _without_text(get, draft, text)
    return text


def _without_text(get: Get, draft: Draft, text: str | None) -> str | None:
    started = _started(get("tool_call_chunks"), "name") or _started(get("tool_calls"), "tool_name")
    draft.tool_calls += started
    if text is None and draft.documents is None:
        draft.documents = documents_beside(get, draft)
        return None if draft.documents is None and not started else ""
    return text


def _later_facts(get: Get, draft: Draft) -> None:
    for name in _LATER_FACTS:
        found: Any = get(name)
        if found is not None and (type(found) is not dict or found):
            facts(get, draft)
            return
