"""Finds the answer, the model and the token counts in what a generation function returned or streamed.

Pieces of a stream are read for every token: their common shapes come first.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from contextlib import suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Final, cast

from ragtrace.capture import field_names
from ragtrace.capture.documents import add_documents, find_documents
from ragtrace.capture.fields import (
    MAX_DEPTH,
    Get,
    SearchBudget,
    content_of,
    first,
    first_item,
    getter,
    is_late,
    is_list,
    items_of,
    label_of,
    last_message,
    number_of,
    parts_text,
    shape_of,
    text_of,
    type_name_of,
    unwrap_proxies,
    values_of,
    whole_of,
)
from ragtrace.capture.providers import provider_of
from ragtrace.core.types import Document
from ragtrace.system.faults import faults

MAX_STREAM_CHARS: Final = 2_000_000
_MAX_BYTES: Final = 1_000_000
_MAX_OUTPUT_ITEMS: Final = 1_000
_MAX_COMPONENTS: Final = 20
_MAX_CHOICES: Final = 128
"""Largest number of choices, and of tool calls, that are read from one answer."""
_LOCAL_IDS: Final = ("run-", "lc_run-", "run--")
"""Prefixes of the ids that LangChain makes up where the provider gave none."""
_CUMULATIVE: Final = ("CompletionResponse", "ChatResponse")
"""LlamaIndex's classes of stream pieces, each with the whole text so far and not always with the new part."""
_BLOCK_EVENTS: Final = frozenset(
    "message_start message_delta message_stop content_block_start content_block_delta content_block_stop ping".split()
)
_LATER_FACTS: Final = ("usage_metadata", *field_names.FACTS)
_SSE_LINE: Final = re.compile(r"(?:data|event|id|retry)?:|$")
_SSE_PROBE_CHARS: Final = 2_000


@dataclass(slots=True)
class Answer:
    """Answer of one generation, with the model, token counts and finish reasons that the provider reported.

    Of several models and ids that are found the first counts, of several token counts the last.
    """

    text: str | None = None
    """Text of the answer; None if the answer has no words (only tool calls) or is a stream that is still to be read."""
    model: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    documents: tuple[Document, ...] | None = None
    """Documents that came with the answer; None if there were none."""
    tool_calls: int = 0
    provider: str | None = None
    """Provider of the model, a value of `gen_ai.provider.name`; None if the value does not show the provider."""
    cut_chars: int = 0
    """Number of characters at the end of a stream that were not kept."""
    budget: SearchBudget = field(default_factory=SearchBudget, compare=False, repr=False)


def find_answer(value: object) -> Answer | None:
    """Return the answer found in *value*, the result of a generation function. Never raises.

    Args:
        value: a string; a record with an answer field; a message or completion of OpenAI, LangChain, LlamaIndex,
            Haystack and others that name their fields alike; (answer, documents); the results of a pipeline.

    Returns:
        None if there is no answer in it: documents, HTTP responses and streams are none.
    """
    try:
        answer = Answer()
        return answer if _read(unwrap_proxies(value), answer, 0) else None
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.answer", error)
        return None


def find_tool_result(value: object) -> tuple[Document, ...] | None:
    """Return the result of a tool as documents, or None if the result has no text. Never raises.

    Args:
        value: documents in any form that `find_documents` understands; else a text, a message or a result of MCP with
            parts, a number, or a dict or list of plain values, which becomes one document.
    """
    if type(value) is str:
        return (Document(value),)
    documents = find_documents(value)
    if documents is not None:
        return documents
    answer = find_answer(value)
    if answer is not None and answer.text is not None:
        return (Document(answer.text),)
    if type(value) not in (dict, list, tuple, int, float, bool):
        return None
    try:
        return (Document(json.dumps(value, ensure_ascii=False)),)
    except (TypeError, ValueError, RecursionError):  # a value may be an object of any class, or contain itself
        return None


def _read(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from *value*, a result of any form, and return whether there is one."""
    answer.budget.left -= 1
    if depth > MAX_DEPTH or answer.budget.left < 0:
        return False
    text = text_of(value)
    if type(value) is bytes and len(value) <= _MAX_BYTES:
        with suppress(UnicodeDecodeError):  # bytes may be a picture or an archive
            text = value.decode("utf-8")
    if text is not None:
        answer.text = text
        return True
    get = getter(value)
    if get is not None:
        return _read_record(value, get, answer, depth)
    if shape_of(type(value)).kind == "tuple":
        return _read_tuple(value, answer, depth)
    return _read_list(value, answer, depth)


def _read_record(value: object, get: Get, answer: Answer, depth: int) -> bool:
    answer.provider = answer.provider or provider_of(value) or None
    if shape_of(type(value)).is_passage or get("page_content") is not None:
        return False
    choices = items_of(get("choices"), _MAX_CHOICES)
    if choices:
        _read_facts(get, answer)
        return _read_choices(choices, answer)
    if _read_response(get, answer):
        return True
    for generation in items_of(get("generations"), 1) or ():  # LangChain: an item for each prompt, or a list of items
        if (facts := getter(get("llm_output"))) is not None:
            _read_own_facts(facts, answer)
        inner = items_of(generation, 1)
        first_one = inner[0] if inner else generation
        look = getter(first_one)
        message = None if look is None else look("message")  # beside the text, with token counts
        return _read(first_one if message is None else message, answer, depth + 1)
    understood = _read_fields(get, answer, depth)
    if answer.text == "" and is_late(value):
        answer.text = None  # the application reads the text later
    return understood or _read_components(value, answer, depth)


def _read_choices(choices: list[object], answer: Answer) -> bool:
    """Read the answer from the first of the choices in an OpenAI completion, of the chat or the text API."""
    getters = [get for choice in choices if (get := getter(choice)) is not None]
    reasons = (label_of(get("finish_reason")) for get in getters)
    answer.finish_reasons = tuple(reason for reason in reasons if reason is not None)
    if not getters:
        return False
    message = getter(getters[0]("message"))
    if message is None:
        answer.text = text_of(getters[0]("text"))
        return answer.text is not None
    calls = items_of(message("tool_calls"), _MAX_CHOICES) or ()
    answer.tool_calls += len(calls) or int(message("function_call") is not None)
    text = content_of(message, "")
    text = text_of(message("refusal")) if text is None else text
    answer.text = None if text == "" and answer.tool_calls else text  # an answer of tool calls alone has no text
    return answer.text is not None or answer.tool_calls > 0


def _read_response(get: Get, answer: Answer) -> bool:
    """Read the answer from a response of OpenAI's Responses API: its messages, function calls and status."""
    _read_facts(get, answer)
    output = items_of(get("output"), _MAX_OUTPUT_ITEMS)
    if not output:
        return False
    texts: list[str] = []
    calls = 0
    for item in output:
        look = getter(item)
        kind = None if look is None else label_of(look("type"))
        if look is None or kind is None:
            continue
        if kind == "message":
            parts = (getter(part) for part in items_of(look("content"), _MAX_OUTPUT_ITEMS) or ())
            found = (first(part, ("text", "refusal"), text_of) for part in parts if part is not None)
            texts += [text for text in found if text is not None]
        calls += kind.endswith("_call")
    answer.text = "".join(texts) if texts else None
    answer.tool_calls = calls
    details = getter(get("incomplete_details"))
    reason = label_of(get("status")) if details is None else label_of(details("reason"))
    if reason is not None:
        answer.finish_reasons = (reason,)
    return bool(texts) or calls > 0


def _read_fields(get: Get, answer: Answer, depth: int) -> bool:
    """Read the answer from a dict or an object that holds one in a field with a well-known name.

    The documents beside the answer are read, too.
    """
    answer.tool_calls += len(items_of(get("tool_calls"), _MAX_CHOICES) or ())
    if (blocks := get("blocks")) is not None:  # a message of LlamaIndex
        getters = map(getter, items_of(blocks, _MAX_CHOICES) or ())
        answer.tool_calls += sum(block is not None and block("block_type") == "tool_call" for block in getters)
    understood = any(_read_field(get(name), name, answer, depth) for name in field_names.ANSWER)
    if answer.text == "" and answer.tool_calls:
        answer.text = None
    # LlamaIndex's streaming response already has its documents, but not yet its text.
    understood = understood or answer.tool_calls > 0 or get("response_gen") is not None
    if understood and answer.documents is None:
        answer.documents = _documents_beside(get, answer)
    return understood


def _read_field(found: object, name: str, answer: Answer, depth: int) -> bool:
    if found is None:
        return False
    if name in field_names.ALTERNATIVES:
        found = first_item(found)
    if name == "data":  # Haystack's GeneratedAnswer; in other records the field can hold anything
        answer.text = text_of(found)
        return answer.text is not None
    return _read(found, answer, depth + 1)


def _documents_beside(get: Get, answer: Answer) -> tuple[Document, ...] | None:
    """Return the documents that a dict or an object holds besides an answer, or None if it holds none."""
    for name in field_names.ANSWER_DOCUMENTS:
        found = get(name)
        if found is None:
            continue
        if name in field_names.REFERENCES and (text_of(found) is not None or text_of(first_item(found)) is not None):
            continue  # file names or addresses, not documents
        if (understood := find_documents(found, answer.budget)) is not None:
            return understood
    return None


def _read_components(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from the results of a pipeline's components. The last component with an answer counts."""
    understood = False
    for component in values_of(value, _MAX_COMPONENTS):
        get = getter(component) if shape_of(type(component)).kind == "dict" else None
        if get is None:
            continue
        names = field_names.INNER_ANSWER
        understood = any(_read_field(get(name), name, answer, depth + 1) for name in names) or understood
        if answer.documents is None:
            answer.documents = _documents_beside(get, answer)
    return understood


def _read_list(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from a list of messages, of message parts, or of the results of a pipeline component.

    A list of documents is never an answer.
    """
    message = last_message(value, field_names.ASSISTANT)
    if message is not None:
        return _read(message, answer, depth + 1)
    item = first_item(value)
    get = getter(item)
    is_part = get is not None and get("type") is not None
    if depth > 0 and not is_part:
        is_part = text_of(item) is not None if get is None else text_of(get("text")) is not None
    if is_part:
        answer.text = parts_text(value, "")
        return answer.text is not None
    return depth > 0 and item is not None and _read(item, answer, depth + 1)


def _read_tuple(value: object, answer: Answer, depth: int) -> bool:
    """Read the answer from a tuple with exactly one item that is an answer, such as (answer, documents)."""
    items = items_of(value, 8) or []
    rest = [item for item in items if item is not None and number_of(item) is None and not is_list(item)]
    if len(rest) != 1 or not _read(rest[0], answer, depth + 1):
        return False
    lists = (find_documents(item, answer.budget) for item in items if is_list(item) and item)
    answer.documents = answer.documents or next((found for found in lists if found is not None), None)
    return True


# --- What the provider said about a generation ------------------------------------------------------------------------


def _read_facts(get: Get, answer: Answer) -> None:
    """Read the model name, id, finish reason and token counts of a provider's reply into *answer*."""
    _read_own_facts(get, answer)
    for name in field_names.FACTS:
        found = get(name)
        inner = None if found is None else getter(found)
        if inner is not None:
            _read_own_facts(inner, answer)
    # A record without model or tokens may be the application's own, and so may be its id.
    if answer.response_id is None and (answer.model is not None or answer.input_tokens is not None):
        identifier = label_of(get("id"))
        if identifier is not None and not identifier.startswith(_LOCAL_IDS):
            answer.response_id = identifier


def _read_own_facts(get: Get, answer: Answer) -> None:
    if answer.model is None:
        answer.model = first(get, field_names.MODEL, label_of)
    if not answer.finish_reasons and (reason := first(get, field_names.FINISH, label_of)) is not None:
        answer.finish_reasons = (reason,)
    for name in field_names.USAGE:
        _read_usage(get(name), answer)


def _read_usage(usage: object, answer: Answer) -> None:
    """Read the token counts in a provider's *usage* record into *answer*.

    The last of several records in a stream counts.
    """
    get = None if usage is None else getter(usage)
    if get is None:
        return
    tokens = first(get, field_names.INPUT_TOKENS, whole_of)
    answer.input_tokens = answer.input_tokens if tokens is None else tokens
    tokens = first(get, field_names.OUTPUT_TOKENS, whole_of)
    answer.output_tokens = answer.output_tokens if tokens is None else tokens


# --- Streams ----------------------------------------------------------------------------------------------------------


class _Text(StringIO):
    """Text that the garbage collector leaves readable.

    It finalizes what is unreachable in any order, a buffer before the stream that is then closed and reads it.
    """

    def close(self) -> None:
        """Keep the text."""


class AnswerStream:
    """Collector of a streamed answer: joins the pieces while the application reads the stream.

    At most *max_chars* characters are kept, the others are counted. Understands strings, UTF-8 bytes, dicts with a text
    field, and the chunks of OpenAI (chat, completions, responses), LangChain, LlamaIndex, Haystack and Anthropic. Not
    thread-safe: a stream has one reader at a time.
    """

    __slots__ = ("_answer", "_decoder", "_kept", "_max_chars", "_text", "_understood", "unknown")

    def __init__(self, max_chars: int = MAX_STREAM_CHARS) -> None:
        self._max_chars = max_chars
        self._text = _Text()  # a list of many short strings would take ten times the memory
        self._kept = 0
        self._answer = Answer()
        self._decoder: Any = None
        self._understood = False
        self.unknown: str | None = None
        """Type name of the first piece that was not understood; None: all were."""

    def add(self, piece: object) -> bool:
        """Add a *piece* of a streamed answer. Return whether the piece carried text. Never raises."""
        text: str | None
        try:
            if type(piece) is str:
                text = piece
            elif type(piece) is bytes:
                text = self._decoded(piece)
            else:
                text = _piece_text(piece, self._answer, self._kept + self._answer.cut_chars)
                self._understood = self._understood or text is not None
                if text is None and piece is not None:
                    self.unknown = self.unknown or type_name_of(type(piece))
        except Exception as error:  # an error of the capture must not reach the application
            faults.record("capture.stream", error)
            self.unknown = self.unknown or type_name_of(type(piece))
            return False
        if not text:
            return False
        room = self._max_chars - self._kept
        if len(text) > room:
            self._answer.cut_chars += len(text) - room
            text = text[:room]
        self._kept += len(text)
        self._text.write(text)
        return True

    def answer(self) -> Answer | None:
        """Return the answer collected so far, or None if no piece of the stream was understood.

        None, too, for server-sent events: a stream that is framed for transport. A stream that ended without a piece
        has the text "". Never raises.
        """
        gathered, answer = self._text.getvalue(), self._answer
        if _is_server_sent_events(gathered):
            return None
        # The Responses API repeats the whole text in its last event, and some servers send only that event.
        answer.text = gathered or answer.text
        if answer.text is None and not answer.tool_calls:
            if self.unknown is not None and not self._understood:
                return None
            answer.text = ""
        return answer

    def _decoded(self, piece: bytes) -> str:
        if self._decoder is None:  # one decoder for the whole stream: a character may be split over two pieces
            self._decoder = getincrementaldecoder("utf-8")("replace")
        # Bytes beyond what can be kept are counted as characters, undecoded: close enough for a count.
        room = 4 * (self._max_chars - self._kept)
        self._answer.cut_chars += max(0, len(piece) - room)
        text: str = self._decoder.decode(piece[:room] if len(piece) > room else piece)
        return text


def _is_server_sent_events(text: str) -> bool:
    """Return whether *text* consists of server-sent events: blocks of lines such as `data: value`."""
    if not text.startswith(("data:", "event:", "id:", "retry:", ":")) or "\n\n" not in text.replace("\r", "")[-4:]:
        return False
    lines = text[:_SSE_PROBE_CHARS].splitlines()
    return all(_SSE_LINE.match(line) for line in lines[: max(1, len(lines) - 1)])


def _piece_text(piece: object, answer: Answer, seen_chars: int) -> str | None:
    """Return the text of one piece of a streamed answer.

    The model, token counts and documents in the piece are added to *answer*.

    Args:
        piece: anything but str and bytes.
        answer: the answer so far.
        seen_chars: number of characters in earlier pieces, for a piece that repeats their text.

    Returns:
        "" if the piece was understood and has no text, None if it was not understood.
    """
    get = getter(piece)
    if get is None:
        if (text := text_of(piece)) is not None:
            return text
        items = items_of(piece, 3) if shape_of(type(piece)).kind == "tuple" else None
        if not items or len(items) != 2 or shape_of(type(items[0])).kind == "tuple":
            return None
        return _piece_text(items[0], answer, seen_chars)  # LangGraph streams pairs: (message, metadata)
    choices = get("choices")
    if type(choices) is list:
        return _chunk_text(get, cast("list[object]", choices), answer)
    kind: Any = get("type")
    if type(kind) is str:
        if kind.startswith("response."):
            # An event of OpenAI's Responses API has a piece of the text, or the whole response.
            if kind in ("response.output_text.delta", "response.refusal.delta"):
                return text_of(get("delta")) or ""
            response = getter(get("response"))
            if response is not None:
                _read_response(response, answer)
            return ""
        if kind in _BLOCK_EVENTS:
            return _block_event_text(kind, get, answer)
    if shape_of(type(piece)).is_passage or get("page_content") is not None:  # a stream may begin with its sources
        found = find_documents(piece, answer.budget)
        if found is not None:
            answer.documents = add_documents(answer.documents, found)
        return None if found is None else ""
    return _message_text(piece, get, answer, seen_chars)


def _chunk_text(get: Get, choices: list[object], answer: Answer) -> str | None:
    """Return the text in one chunk of a streamed OpenAI completion, of the chat or the text API.

    The last chunk may hold the usage and no choice.
    """
    if answer.model is None:
        _read_facts(get, answer)
    else:
        _read_usage(get("usage"), answer)
    text = None if choices else ""
    for choice in choices:
        look = getter(choice)
        if look is None:
            continue
        reason = look("finish_reason")
        if reason is not None and (label := label_of(reason)) and len(answer.finish_reasons) < _MAX_CHOICES:
            answer.finish_reasons = (*answer.finish_reasons, label)
        # A completion with n > 1 has several choices; the first one is the answer.
        text = (text or "") if whole_of(look("index")) else _delta_text(look, answer)
    return text


def _delta_text(look: Get, answer: Answer) -> str | None:
    get = getter(look("delta"))
    if get is None:
        return text_of(look("text"))
    content: Any = get("content")
    if type(content) is str and content:
        return content
    if (calls := get("tool_calls")) is not None:
        answer.tool_calls += _new_tool_calls(calls, "id")
    return text_of(get("refusal")) or parts_text(content, "") or ""


def _new_tool_calls(calls: object, name: str) -> int:
    """Return the number of tool calls that begin in this piece of a streamed answer.

    Only the first piece of a tool call has the field *name*, the call's id or name.
    """
    getters = [getter(call) for call in items_of(calls, _MAX_CHOICES) or ()]
    return sum(get is not None and get(name) is not None for get in getters)


def _block_event_text(kind: str, get: Get, answer: Answer) -> str:
    """Return the text in one streamed event of Anthropic's Messages API."""
    inner = getter(get("message" if kind == "message_start" else "delta"))
    if kind == "content_block_delta":
        is_text = inner is not None and label_of(inner("type")) in field_names.TEXT_PARTS
        return (text_of(inner("text")) or "") if inner is not None and is_text else ""
    if kind == "content_block_start":
        block = getter(get("content_block"))
        answer.tool_calls += block is not None and label_of(block("type")) == "tool_use"
    elif inner is not None:
        _read_facts(inner, answer)
    _read_usage(get("usage"), answer)
    return ""


def _message_text(piece: object, get: Get, answer: Answer, seen_chars: int) -> str | None:
    """Return the text in a streamed message of LangChain, LlamaIndex or Haystack, or a dict with a text field."""
    for name in _LATER_FACTS:
        found: Any = get(name)
        if found is not None and (type(found) is not dict or found):
            _read_facts(get, answer)
            break
    delta: Any = get("delta")
    if type(delta) is str:
        return delta
    if type_name_of(type(piece)) in _CUMULATIVE:
        message = getter(get("message"))
        return (content_of(get if message is None else message, "") or "")[seen_chars:]
    content: Any = get("content")
    text = content if type(content) is str else parts_text(content, "") or first(get, field_names.PIECE, text_of)
    if text:
        return text
    started = _new_tool_calls(get("tool_call_chunks"), "name") or _new_tool_calls(get("tool_calls"), "tool_name")
    answer.tool_calls += started
    if text is None and answer.documents is None:
        answer.documents = _documents_beside(get, answer)
        return None if answer.documents is None and not started else ""
    return text
