"""Collects a streamed answer: decides of each piece whether it is a part of the answer, none of it, or not known.

Pieces are read for every token, so their common shapes come first. Of pieces that are not known the answer is not
guessed: it is not captured, and `AnswerStream.unknown` says why.

`_EVENTS` is the table of the events that are told from each other by their type. What no library defines is told by
words: pieces of the type "status" or "tool_call" are none of the answer, and texts of several types that say neither
are not known.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from functools import lru_cache
from json import JSONDecoder
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from ragtrace.capture import field_names
from ragtrace.capture.answers import (
    MAX_CHOICES,
    Answer,
    answer_in_json,
    candidates_of,
    is_passage,
    is_spoken,
    read_answer,
    read_candidates,
    read_choices,
    read_documents,
    read_facts,
    read_response,
    read_usage,
    refusal_in,
)
from ragtrace.capture.documents import add_documents, find_documents
from ragtrace.capture.fields import (
    Get,
    content_of,
    entries_of,
    first,
    getter,
    is_known,
    items_of,
    label_of,
    last_items,
    module_of,
    own_fields,
    parts_text,
    role_of,
    shape_of,
    text_of,
    type_name_of,
    values_of,
    whole_of,
)
from ragtrace.capture.stream_text import LONG_CHARS, StreamText
from ragtrace.system.faults import faults

MAX_STREAM_CHARS: Final = 2_000_000
_MAX_FIELDS: Final = 50
_TEXT_FIELDS: Final = (*field_names.PIECE, "chunk")
_LATER_FACTS: Final = ("usage_metadata", *field_names.FACTS)
_LAST_FACTS: Final = ("done_reason", "eval_count", "usageMetadata")
"""Fields with what the provider reports in a last piece without a text: of Ollama, and of Gemini's JSON."""

Meaning: TypeAlias = Literal["text", "whole", "none", "inner", "tool", "facts", "state"]


class _Event(NamedTuple):
    """What events of one type mean."""

    type: str
    """Value of the field `type`, `event` or `event_kind`."""
    meaning: Meaning
    """`text`: a part of the answer; `whole`: all of it so far, or a copy of it; `inner`: a piece of another form;
    `tool`: a tool call; `facts`: what the provider reports; `state`: what a step has left, the answer if nothing else
    is."""
    path: str = ""
    """Path of the field with the text, piece, facts or state; empty: the event itself."""
    needs: str = ""
    """Field that the event has; it is another event without."""
    group: str = ""
    """Events of one group tell the same text: those of the type that comes first count."""


_EVENTS: Final = (
    # Anthropic: raw events, and those that `messages.stream()` adds to them (anthropic 2.14)
    _Event("message_start", "facts", "message"),
    _Event("content_block_start", "tool", "content_block", "content_block"),
    _Event("content_block_delta", "text", "delta.text", group="anthropic"),
    _Event("text", "text", "text", "snapshot", "anthropic"),
    _Event("message_delta", "facts", "delta"),
    _Event("content_block_stop", "none"),
    _Event("message_stop", "none"),
    _Event("input_json", "none"),
    _Event("signature", "none"),
    # OpenAI: `chat.completions.stream()`; the Responses API (openai 3.57)
    _Event("chunk", "inner", "chunk", "chunk", "openai"),
    _Event("content.delta", "text", "delta", group="openai"),
    _Event("content.done", "whole", "content"),
    _Event("refusal.delta", "text", "delta", group="openai"),
    _Event("refusal.done", "whole", "refusal"),
    _Event("tool_calls.function.arguments.delta", "none"),
    _Event("tool_calls.function.arguments.done", "none"),
    _Event("logprobs.content.delta", "none"),
    _Event("logprobs.content.done", "none"),
    _Event("logprobs.refusal.delta", "none"),
    _Event("logprobs.refusal.done", "none"),
    _Event("response.output_text.delta", "text", "delta"),
    _Event("response.output_text.done", "whole", "text"),
    _Event("response.refusal.delta", "text", "delta"),
    _Event("response.refusal.done", "whole", "refusal"),
    # OpenAI Agents SDK: `run_streamed` (openai-agents 0.24)
    _Event("raw_response_event", "inner", "data"),
    _Event("run_item_stream_event", "none"),
    _Event("agent_updated_stream_event", "none"),
    # Cohere: `chat_stream` (cohere 7.3)
    _Event("message-start", "none"),
    _Event("content-start", "none"),
    _Event("content-delta", "text", "delta.message.content.text"),
    _Event("content-end", "none"),
    _Event("tool-plan-delta", "none"),
    _Event("tool-call-start", "tool", "delta.message.tool_calls"),
    _Event("message-end", "facts", "delta"),
    # The AI SDK's parts as dicts
    _Event("text-start", "none"),
    _Event("text-delta", "text", "delta|textDelta|text"),
    _Event("text-end", "none"),
    # Pydantic AI: `run_stream_events`, and the events of a node (pydantic-ai 2.68)
    _Event("part_start", "text", "part.content", "part"),
    _Event("part_delta", "text", "delta.content_delta", "delta"),
    _Event("part_end", "whole", "part.content", "part"),
    _Event("final_result", "none"),
    _Event("agent_run_result", "state", "result"),
    # LangChain: `astream_events`. The events of a chain repeat those of its model (langchain-core 1.8)
    _Event("on_chat_model_stream", "inner", "data.chunk", "data"),
    _Event("on_llm_stream", "inner", "data.chunk", "data"),
    _Event("on_chain_end", "state", "data.output", "data"),
)
_EVENTS_OF: Final = {event.type: event for event in _EVENTS}
_BEDROCK: Final = {
    "messageStart": _Event("messageStart", "none"),
    "contentBlockStart": _Event("contentBlockStart", "tool", "start.toolUse"),
    "contentBlockDelta": _Event("contentBlockDelta", "text", "delta.text"),
    "contentBlockStop": _Event("contentBlockStop", "none"),
    "messageStop": _Event("messageStop", "facts"),
    "metadata": _Event("metadata", "facts", ""),
}
"""Events of Amazon Bedrock's `converse_stream`: dicts with one key (boto3 1.43)."""


_SURE_FIELDS: Final = frozenset({"content", "text", "token", "answer", "delta", "output_text"})
"""Fields of dicts that hold the answer, whatever other pieces do."""
_NONE_WORDS: Final = frozenset(
    "status progress tool tools function thinking thought thoughts reasoning metadata usage citation citations source"
    " sources ping heartbeat keepalive log debug trace on".split()
)
"""Words of a type whose pieces are none of the answer; `on` begins the types of LangChain's callbacks."""
_TEXT_WORDS: Final = frozenset(
    "text token delta content answer chunk message output response completion ai assistant generation final result"
    " data".split()
)
_EDGE_WORDS: Final = frozenset("start begin init open end stop done finish finished complete completed close".split())
"""Words of a type whose pieces are none of the answer if they have no text in a well-known field."""
_NOT_SPOKEN: Final = frozenset({"user", "human", "tool", "system", "function", "developer", "remove"})
"""Roles of messages that are not the assistant's."""
_GRAPH_MODES: Final = frozenset({"messages", "updates", "values", "custom", "debug", "checkpoints", "tasks", "events"})
_ASIDE: Final = frozenset(
    (
        *field_names.ID, *field_names.NAME, *field_names.METADATA, *field_names.MODEL, *field_names.FINISH,
        *field_names.USAGE, *field_names.FACTS, *field_names.ANSWER_DOCUMENTS, *field_names.RESPONSE_ID,
        "role", "type", "event", "kind", "name", "status", "state", "step", "stage", "phase", "progress", "node",
        "agent", "tool", "tool_name", "tool_calls", "session", "session_id", "user", "user_id", "run_id", "trace_id",
        "message_id",
        "conversation_id", "thread_id", "timestamp", "time", "created", "created_at", "object", "message", "query",
        "question", "input", "prompt", "lang", "language", "tags", "version", "citations", "thinking", "reasoning",
        "reasoning_content", "service_tier", "system_fingerprint",
    )
)  # fmt: skip
"""Fields beside a piece's text: of a piece with no others it is known that it is none of the answer."""

_KIND: Final = re.compile(r"[\w.:/-]{1,60}")
"""What may name the kind of a piece, and not be a text."""
_SSE_LINE: Final = re.compile(r"(?:data|event|id|retry)?:|$")
_PROBE_CHARS: Final = 2_000
_FRAME_START: Final = re.compile(r'\s*\x1e?(?:[0-9a-z]:)?(?=[{\["])')
_decoder: Final = JSONDecoder()


class AnswerStream(StreamText):
    """Collector of a streamed answer: reads the pieces while the application reads the stream.

    Understands strings, UTF-8 bytes, dicts with a text field, and the chunks of OpenAI (chat, completions, responses),
    LangChain, LlamaIndex, Haystack, and those of the table above.

    Args:
        max_chars: most characters that are kept; the others are counted.
    """

    __slots__ = (
        "_answer",
        "_class",
        "_class_name",
        "_decoder",
        "_firsts",
        "_groups",
        "_is_library",
        "_is_none",
        "_is_understood",
        "_nodes",
        "_silent",
        "_sources",
        "_unknown",
    )

    def __init__(self, max_chars: int = MAX_STREAM_CHARS) -> None:
        super().__init__(max_chars)
        self._answer = Answer()
        self._decoder: Any = None
        self._groups: dict[str, str] = {}
        self._class: type[Any] | None = None
        """Class of the latest message, its name, and whether it is of a well-known library, or none of the answer."""
        self._class_name = ""
        self._is_library = self._is_none = False
        self._is_understood = False
        """Whether any piece had a place for a text, though perhaps an empty one."""
        self._sources: set[str] = set()
        """What the texts came from, where that is not known to be the answer: types, classes, fields."""
        self._firsts: set[str] = set()
        """What the first items of pairs are: `text`, or the `kind` of the second."""
        self._nodes: set[str] = set()
        """Nodes of a graph that the texts came from."""
        self._unknown: str | None = None
        """Class of the first piece that may have a part of the answer, which was not read; None: there is none."""
        self._silent: str | None = None
        """Class of the first piece that is none of the answer if another is; None: there is none."""

    def add(self, piece: object) -> str | None:
        """Add a *piece* of a streamed answer, and return what is new in it. Never raises.

        Returns:
            "" if the piece has no new text, None if it is not known whether it has any.
        """
        try:
            if type(piece) is str:
                # As in `add_text`: a call of it costs as much again.
                if len(piece) < LONG_CHARS and len(piece) <= self._room <= self._quick_room and self._is_joined:
                    self._room -= len(piece)
                    self._text.write(piece)
                    return piece
                if piece:
                    self._sources.add("str")
                return self.add_text(piece)
            if type(piece) is bytes:
                if piece:
                    self._sources.add("bytes")
                return self.add_text(self._decoded(piece))
            found = self._add_object(piece)
        except Exception as error:  # an error of the capture must not reach the application
            faults.record("capture.stream", error)
            found = None
        if found is None:
            self.lose(type_name_of(type(piece)))
        return found

    def lose(self, name: str) -> None:
        """Note that a piece could not be read, of the class or for the reason *name*."""
        self._unknown = self._unknown or name

    @property
    def unknown(self) -> str | None:
        """Why the answer is not known, as the middle of a sentence; None: it is."""
        if self.is_contradictory:
            return "pieces that repeat the text so far and others that do not"
        if self._unknown is not None:
            return f"pieces of {self._unknown}"
        for name, several in (("kinds", self._sources), ("nodes", self._nodes), ("places in pairs", self._firsts)):
            if len(several) > 1:
                return f"texts of several {name} ({', '.join(sorted(several))})"
        if self._silent is None or self._is_understood or self._runs or self._is_joined or self._whole is not None:
            return None
        return f"pieces of {self._silent}"

    @property
    def facts(self) -> Answer:
        """What the pieces report beside the text: model, token counts, documents."""
        return self._answer

    @property
    def _is_ambiguous(self) -> bool:
        return any(len(several) > 1 for several in (self._sources, self._nodes, self._firsts))

    def answer(self) -> Answer | None:
        """Return the answer collected so far, or None if it is not known. Never raises.

        It is not known of server-sent events, JSON lines and their like: a stream that is framed for transport. A
        stream that ended without a piece has the text "".
        """
        gathered, answer = self.text(), self._answer
        if self._unknown is not None or gathered is None or self._is_ambiguous:
            # The result of the last step is the answer, of whatever steps the pieces were.
            gathered = None if self._unknown is not None or answer.text is None else ""
            if gathered is None:
                return None
        is_whole = self.is_repeated or (self._whole is not None and gathered.endswith("\n"))
        if is_framed(gathered) or (is_whole and is_framed(gathered * 2)):  # frames that are alike
            self._unknown = "a format of transport"
            return None
        answer.cut_chars = self.cut_chars
        # The Responses API repeats the whole text in its last event, and some servers send only that event.
        answer.text = answer_in_json(gathered) or answer.text
        if answer.text is None and not answer.tool_calls:
            if self._silent is not None and not self._is_understood:
                return None
            answer.text = ""
        return answer

    def _decoded(self, piece: bytes) -> str:
        if self._decoder is None:  # one decoder for the whole stream: a character may be split over two pieces
            self._decoder = getincrementaldecoder("utf-8")("replace")
        # Bytes beyond what can be kept are counted as characters, undecoded: close enough for a count.
        room = 4 * self._max_chars
        self._cut += max(0, len(piece) - room)
        text: str = self._decoder.decode(piece[:room] if len(piece) > room else piece)
        return text

    def _add_object(self, piece: object) -> str | None:
        """Add a piece that is neither str nor bytes."""
        get = getter(piece)
        if get is None:
            if (text := text_of(piece)) is not None:
                return self.add_text(text)
            if shape_of(type(piece)).kind == "tuple":
                return self._add_tuple(items_of(piece, 4) or [])
            return self._add_unread(piece, None)
        choices = get("choices")
        if type(choices) is list:
            return self._add_choices(get, cast("list[object]", choices))
        if get("candidates") is not None and (candidates := candidates_of(get)):
            return self._add_candidates(get, candidates)
        kind: Any = get("type")
        if type(kind) is not str:
            kind = get("event_kind")
            kind = get("event") if kind is None else kind
            kind = get("signature_field_name") if kind is None else kind
            kind = "" if kind is None else text_of(kind) or ""
        event = _EVENTS_OF.get(kind) if kind else None
        if event is not None and (not event.needs or get(event.needs) is not None):
            return self._add_event(event, get, piece)
        if kind.startswith("response."):
            # An event of OpenAI's Responses API: of the others, only the whole response tells of the answer.
            if (response := getter(get("response"))) is not None:
                read_response(response, self._answer)
            return ""
        cls = type(piece)
        is_new = cls is not dict and cls is not self._class
        if (is_new or get("page_content") is not None) and is_passage(piece, get):
            # A stream may begin with its sources.
            found = find_documents(piece, self._answer.budget)
            if found is not None:
                self._answer.documents = add_documents(self._answer.documents, found)
                return ""
        return self._add_message(piece, get, kind)

    def _add_event(self, event: _Event, get: Get, piece: object) -> str | None:
        """Add a piece of the table `_EVENTS`."""
        found: object = piece
        look: Get | None = get
        *steps, last = event.path.split(".")
        for step in steps:
            look = None if look is None else getter(look(step))
        if last:
            found = None if look is None else first(look, tuple(last.split("|")), lambda value: value)
        if event.meaning == "inner":
            if event.group and self._groups.setdefault(event.group, event.type) != event.type:
                return ""
            self._note_node(get)
            return None if found is None else self.add(found)
        if event.meaning in ("text", "whole"):
            # A part of another type beside the text is a thought, or the arguments of a tool.
            part = None if look is None else first(look, ("type", "part_kind", "part_delta_kind"), label_of)
            is_text = not steps or part is None or part in field_names.TEXT_PARTS
            text = text_of(found) if is_text else None
            self._is_understood = self._is_understood or is_text
            if not text or (event.group and self._groups.setdefault(event.group, event.type) != event.type):
                return ""
            return self.add_text(text) if event.meaning == "text" else self.add_whole(text)
        self._note_facts(event, get, found)
        return self._skip(piece)

    def _note_facts(self, event: _Event, get: Get, found: object) -> None:
        answer, inner = self._answer, getter(found)
        if event.meaning == "tool":
            kind = None if inner is None else label_of(inner("type"))
            answer.tool_calls += inner is not None and kind in (None, "tool_use", "function")
        elif event.meaning == "facts":
            self._is_understood = True
            if inner is not None:
                read_facts(inner, answer)
        elif event.meaning == "state" and not get("parent_ids"):
            self._note_state(found)
        read_usage(get("usage"), answer)

    def _note_state(self, state: object) -> bool:
        """Keep the answer in *state*, a state or result that a step has left, for a stream without another text."""
        get = getter(state)
        messages = None if get is None else get("messages")
        if messages is not None:
            latest = (last_items(messages, 1) or [messages])[:1]
            look = getter(latest[0]) if latest else None
            if look is None or not is_spoken(look):
                return True
            state = latest[0]
        found = Answer()
        if read_answer(state, found, 0) and found.text:
            self._answer.text = found.text
            return True
        return messages is not None

    def _note_node(self, get: Get) -> None:
        """Note the node of a graph that a text came from: the model of another node may have said something else."""
        metadata = getter(get("metadata"))
        node = None if metadata is None else label_of(metadata("langgraph_node"))
        if node is not None:
            self._nodes.add(node)

    def _add_tuple(self, items: list[object]) -> str | None:
        """Add a pair: LangGraph's (message, metadata), (mode, piece) and (namespace, ...), or a text with metadata."""
        if len(items) in (2, 3) and shape_of(type(items[0])).kind == "tuple":
            namespace = items_of(items[0], MAX_CHOICES) or []
            if all(text_of(name) is not None for name in namespace):
                items = items[1:]  # the graph below the graph
        if len(items) == 1:
            return self.add(items[0])
        if len(items) != 2:
            return None
        head, piece = items
        kind = text_of(head)
        if kind is None:
            if not _is_aside(piece):
                return None
            before, look = self.chars, getter(piece)
            new = self._add_object(head)
            if look is not None and self.chars != before:
                self._note_node({"metadata": piece}.get)
            return new
        if kind in _GRAPH_MODES and not (type(piece) is str or piece is None or "text" in self._firsts):
            self._firsts.add("kind")
            return self._add_mode(kind, piece)
        words = _meaning_of(kind) if _KIND.fullmatch(kind) else "odd"
        if _is_aside(piece) and _text_in(getter(piece)) is None:
            if words == "odd" or "text" in self._firsts:
                self._firsts.add("text")
                return self.add_text(kind)
            self._firsts.add("kind")
            return self._skip(items) if words in ("none", "edge") else None
        self._firsts.add("kind")
        if words == "none":
            return self._skip(items)
        return self.add(piece) if words == "text" else None

    def _add_mode(self, mode: str, piece: object) -> str | None:
        """Add a piece of one of several modes in which LangGraph streams."""
        if mode == "messages":
            return self.add(piece)
        if mode in ("updates", "values"):
            self._add_state(piece)
        return self._skip(piece)

    def _add_state(self, piece: object) -> bool:
        """Keep the answer in a state of a graph, or in what its nodes have changed, and return whether it is one."""
        get = getter(piece)
        if get is not None and get("messages") is not None:
            return self._note_state(piece)
        is_state = False
        for change in values_of(piece, _MAX_FIELDS):
            if shape_of(type(change)).kind == "dict" and (look := getter(change)) is not None:
                names = ("messages", "answer", "generation", "response")
                is_state = (any(look(name) is not None for name in names) and self._note_state(change)) or is_state
        return is_state

    def _add_choices(self, get: Get, choices: list[object]) -> str | None:
        """Add one chunk of a streamed OpenAI completion, of the chat or the text API.

        The last chunk may hold the usage and no choice.
        """
        answer = self._answer
        if answer.model is None:
            read_facts(get, answer)
        else:
            read_usage(get("usage"), answer)
        text = None if choices else ""
        for choice in choices:
            look = getter(choice)
            if look is None:
                continue
            reason = look("finish_reason")
            if reason is not None and (label := label_of(reason)) and len(answer.finish_reasons) < MAX_CHOICES:
                answer.finish_reasons = (*answer.finish_reasons, label)
            # A completion with n > 1 has several choices; the first one is the answer.
            text = (text or "") if whole_of(look("index")) else _delta_text(look, answer)
        if text is None and choices:
            whole = Answer()
            if read_choices(choices, whole) and whole.text is not None:
                return self.add_whole(whole.text)
        self._is_understood = self._is_understood or text is not None
        return None if text is None else self.add_text(text)

    def _add_candidates(self, get: Get, candidates: list[Get]) -> str:
        """Add one chunk of a streamed reply of Gemini, each of which tells of the usage so far."""
        read_facts(get, self._answer)
        self._is_understood = True
        return self.add_text(read_candidates(candidates, self._answer) or "")

    def _add_message(self, piece: object, get: Get, kind: str) -> str | None:
        """Add a streamed message of LangChain, LlamaIndex or Haystack, or a record with a text field."""
        answer = self._answer
        for name in _LATER_FACTS:
            found: Any = get(name)
            if found is not None and (type(found) is not dict or found):
                read_facts(get, answer)
                break
        words = _meaning_of(kind) if kind else "text"
        role = get("role")
        role = get("_role") if role is None else role
        speaker = label_of(get("source") if role is None else role)  # AutoGen's messages have a source
        if words == "none" or kind in _NOT_SPOKEN or speaker in _NOT_SPOKEN:
            return self._skip(piece)
        cls = type(piece)
        if cls is not self._class:  # most streams have pieces of one class
            self._class, self._is_library = cls, cls is not dict and is_known(cls)
            self._class_name = type_name_of(cls)
            is_own = not self._is_library and cls is not dict
            self._is_none = is_own and _meaning_of(self._class_name, is_class=True) == "none"
        is_library = self._is_library
        source, text = _text_in(get) or ("", None)
        if not text:
            if (refusal := refusal_in(get)) is not None:
                source, text = "content", refusal
            elif any(get(name) is not None for name in _LAST_FACTS):
                read_facts(get, answer)
        if not is_library:
            if self._is_none and words == "text":
                return self._skip(piece)
            source = kind if words == "odd" else source if cls is dict else self._class_name
        elif _is_cumulative(cls) and type(get("delta")) is not str:
            return self.add_whole(text or "")
        if text:
            if is_library and role is None and speaker is not None:
                self._nodes.add(speaker)
            if is_library and get("task_index") is not None:
                return None  # of CrewAI, whose tasks write one after another, all with one index
            is_whole = kind == "ai" and is_library and cls is not dict  # not a chunk of a message
            is_unsure = not (is_library or source in _SURE_FIELDS or source in self._sources)
            before = self.chars if is_unsure else 0
            new = self.add_whole(text) if is_whole else self.add_text(text)
            if is_unsure and self.chars != before:  # it is no copy
                self._sources.add(source)
            return new
        started = _new_calls(get("tool_call_chunks"), "name") or _new_calls(get("tool_calls"), "tool_name")
        answer.tool_calls += started
        if text is not None or started:
            self._is_understood = True
            return ""
        if answer.documents is None:
            previews = answer.previews
            if read_documents(get, answer) and (answer.documents is not None or answer.previews is not previews):
                return self._skip(piece)
        return self._add_unread(piece, get, is_edge=words == "edge")

    def _add_unread(self, piece: object, get: Get | None, *, is_edge: bool = False) -> str | None:
        """Add a piece without a text in a well-known field: it is none of the answer if no other field has a text."""
        if piece is None or is_edge:
            return self._skip(piece)
        if shape_of(type(piece)).kind == "dict":
            fields = entries_of(piece, 2)
            name, inner = fields[0] if fields else (None, None)
            event = _BEDROCK.get(text_of(name) or "") if len(fields) == 1 else None
            if event is not None and (look := getter(inner)) is not None:
                return self._add_event(event, look, inner)
            if self._add_state(piece):
                return self._skip(piece)
        elif self._is_library and get is not None and get("messages") is not None and self._note_state(piece):
            return self._skip(piece)  # as AutoGen's last piece
        if (
            get is not None
            and first(get, ("model_version", "modelVersion"), label_of) is not None
            and any(getter(get(name)) is not None for name in field_names.USAGE)
        ):
            return self._skip(piece)  # a chunk of Gemini with the usage alone
        inner = None if get is None else get("data")
        if inner is not None and (text_of(inner) is not None or getter(inner) is not None):
            return self.add(inner)  # an envelope, as of Mistral or of server-sent events
        return None if _has_text(piece, 0) else self._skip(piece)

    def _skip(self, piece: object) -> str:
        """Leave out a piece that is none of the answer."""
        self._silent = self._silent or type_name_of(type(piece))
        return ""


def _text_in(get: Get | None) -> tuple[str, str | None] | None:
    """Return name and text of the field of a record that has the text of a piece, or None if it has no such field."""
    if get is None:
        return None
    text: Any
    delta: Any = get("delta")
    if type(delta) is str:
        return "delta", delta
    content: Any = get("content")
    if type(content) is str and content:
        return "content", content
    found = None if content is None else parts_text(content, "")
    if found is not None:
        return "content", found
    for name in _TEXT_FIELDS:
        text = get(name)
        if text is not None and (text := text_of(text)) is not None:
            return name, text
    message = getter(get("message"))
    if message is not None and role_of(message) not in _NOT_SPOKEN:
        text = content_of(message, "")
        if text is not None:
            return "message", text
    return None


def _has_text(value: object, depth: int) -> bool:
    """Return whether *value* may have a text in a field that is not known to be beside an answer."""
    cls = type(value)
    if value is None or issubclass(cls, (int, float, complex)):
        return False
    if (text := text_of(value)) is not None:
        return text != ""
    if depth > 3:
        return True
    if (items := items_of(value, _MAX_FIELDS)) is not None:
        return any(_has_text(item, depth + 1) for item in items)
    if shape_of(cls).kind != "dict":
        value = own_fields(value)
    if value is None:
        return cls is not object
    named = entries_of(value, _MAX_FIELDS)
    return any(type(name) is not str or (name not in _ASIDE and _has_text(each, depth + 1)) for name, each in named)


def _is_aside(value: object) -> bool:
    """Return whether *value*, the second of a pair, is about the first: a number, or a mapping of metadata."""
    return value is None or issubclass(type(value), (int, float)) or shape_of(type(value)).kind in ("dict", "mapping")


def _is_cumulative(cls: type[Any]) -> bool:
    """Return whether *cls* is one of LlamaIndex's pieces, each with the whole text and not always with the new part."""
    return type_name_of(cls) in ("CompletionResponse", "ChatResponse") and module_of(cls).startswith("llama_index")


@lru_cache(maxsize=1_000)
def _meaning_of(kind: str, *, is_class: bool = False) -> Literal["none", "edge", "text", "odd"]:
    """Return what the words of a type or class say about its pieces."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", kind[:200])}
    if words & _NONE_WORDS:
        return "none"
    if is_class:
        return "text"
    if words & _TEXT_WORDS:
        return "text"
    return "edge" if words & _EDGE_WORDS else "odd"


def _delta_text(look: Get, answer: Answer) -> str | None:
    get = getter(look("delta"))
    if get is None:
        return text_of(look("text"))
    content: Any = get("content")
    if type(content) is str and content:
        return content
    if (calls := get("tool_calls")) is not None:
        answer.tool_calls += _new_calls(calls, "id")
    return text_of(get("refusal")) or parts_text(content, "") or ""


def _new_calls(calls: object, name: str) -> int:
    """Return the number of tool calls that begin in this piece of a streamed answer.

    Only the first piece of a tool call has the field *name*, the call's id or name.
    """
    getters = [getter(call) for call in items_of(calls, MAX_CHOICES) or ()]
    return sum(get is not None and get(name) is not None for get in getters)


def is_framed(text: str) -> bool:
    """Return whether *text* is framed for transport: server-sent events, JSON lines, the AI SDK's `0:"text"` lines."""
    if text.startswith(("data:", "event:", "id:", "retry:", ":")):
        lines = text[:_PROBE_CHARS].splitlines()
        ends = "\n\n" in text.replace("\r", "")[-4:]
        return ends and all(_SSE_LINE.match(line) for line in lines[: max(1, len(lines) - 1)])
    probe, at, frames = text[:_PROBE_CHARS], 0, 0
    while (start := _FRAME_START.match(probe, at)) is not None:
        try:
            _, at = _decoder.raw_decode(probe, start.end())
        except (ValueError, RecursionError):
            return frames > 1 and len(text) > _PROBE_CHARS
        frames += 2 if ":" in start.group() else 1
    return frames > 1 and not probe[at:].strip()
