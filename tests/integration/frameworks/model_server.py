"""Local server of OpenAI's API without dependencies, for applications that run in environments of their own.

Its model answers with the sentence of the documents in the request that has most words of the question. It calls the
first tool of the request, with the question made standalone, where no tool has replied to the last question yet.
"""

from __future__ import annotations

import json
import math
import re
import threading
from array import array
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from zlib import crc32

from responses_api import chat_messages, event_line, response, response_events

DIMENSIONS: Final = 46
_PIECE_CHARS: Final = 24
_STOP_WORDS: Final = frozenset(
    "a an and at by did do does for from had has have how in is it its of on or that the this to was were what when "
    "where which who whose why with".split()
)
_UNKNOWN: Final = "I do not know."
_QUESTION: Final = re.compile(r"(?:follow[ -]?up (?:input|message|question)|question|query)\s*:[ \t]*(\S.*)", re.I)
_STANDALONE: Final = re.compile(r"stand-?alone (?:question|query)|rewrite the (?:question|query)", re.I)
_GRADE: Final = re.compile(r"\b(?:say|answer|reply)\b.{0,20}\byes or no\b", re.I)
_NAME: Final = re.compile(r"\b(?:the )?[A-Z][\w-]*(?: (?:of )?[A-Z][\w-]*)+")


@dataclass(frozen=True)
class Exchange:
    """Chat completion or response that the server has sent."""

    id: str
    content: str | None
    """Text of the answer; None: the model called a tool."""
    tool_calls: list[dict[str, Any]]
    input_tokens: int
    output_tokens: int


class ModelServer:
    """Server of OpenAI's API on a free port of 127.0.0.1, within a `with` block.

    Args:
        documents: texts whose sentences the model may answer with.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        self._sentences = [sentence for text in documents for sentence in re.split(r"(?<=\.)\s+", text)]
        self.number = 0
        """Number of answers so far."""
        self.exchanges: list[Exchange] = []
        """Answers of the model in the order of the requests."""
        server = self

        class Handler(_Handler):
            model = server

        self._handler = Handler

    @property
    def url(self) -> str:
        """Address for `OPENAI_BASE_URL`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="model server", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def complete(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], *, prefix: str = "chatcmpl-"
    ) -> Exchange:
        """Return what the model writes, or which tool it calls, after *messages*."""
        self.number += 1
        question = _last_question(messages)
        if tools and not any(message.get("role") == "tool" for message in _after_last_user(messages)):
            function = tools[0].get("function") or tools[0]
            turns = "\n".join(f"{message.get('role')}: {_text(message)}" for message in messages)
            called = {
                "id": f"call_{self.number:08d}",
                "name": str(function["name"]),
                "arguments": json.dumps({_argument(function): _standalone(turns, question)}),
            }
            content, calls, written = None, [called], len(called["arguments"]) // 4
        else:
            content, calls = self._write(messages, question), []
            written = len(content.split())
        read = sum(len(_text(message).split()) for message in messages)
        exchange = Exchange(f"{prefix}{self.number:08d}", content, calls, read, written)
        self.exchanges.append(exchange)
        return exchange

    def _write(self, messages: Sequence[dict[str, Any]], question: str) -> str:
        said = "\n".join(_text(message) for message in messages)
        if _STANDALONE.search(said):
            return _standalone(said, question)
        if _GRADE.search(said):
            return _grade(said)
        numbered = re.findall(r"Document (\d+):\s+([^<\s].*)", said)
        if numbered and "relevance" in said.lower():
            return _ranked(numbered, _words(question))
        unescaped = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), said)
        given = [sentence for sentence in self._sentences if sentence in unescaped]
        if not given:
            return _UNKNOWN
        wanted = _words(question)
        # A sentence such as "It opened in 1889." is about the subject of the sentence before it.
        return max(given, key=lambda sentence: (len(wanted & _words(sentence)), -given.index(sentence)))


class _Handler(BaseHTTPRequestHandler):
    """Handler of the requests of one connection."""

    protocol_version = "HTTP/1.1"
    model: ModelServer

    def do_GET(self) -> None:
        models = [{"id": "gpt-4o-mini", "object": "model", "created": 0, "owned_by": "local"}]
        self._send({"object": "list", "data": models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/embeddings"):
            self._send(embeddings(body))
        elif self.path.endswith("/chat/completions"):
            exchange = self.model.complete(body["messages"], body.get("tools") or [])
            if body.get("stream"):
                usage = bool((body.get("stream_options") or {}).get("include_usage"))
                self._stream(chat_chunks(body["model"], exchange, usage=usage))
            else:
                self._send(chat_completion(body["model"], exchange))
        elif self.path.endswith("/responses"):
            exchange = self.model.complete(chat_messages(body), body.get("tools") or [], prefix="resp_")
            if body.get("stream"):
                self._stream_events(event_line(event) for event in response_events(body, exchange))
            else:
                self._send(response(body, exchange))
        else:
            self._send({"error": {"message": f"no such path: {self.path}", "type": "invalid_request_error"}}, 404)

    def _send(self, body: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(body).encode()
        self._start(status, "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, chunks: Iterator[dict[str, Any]]) -> None:
        lines = (json.dumps(chunk) for chunk in chunks)
        self._stream_events(f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"])

    def _stream_events(self, events: Iterable[bytes], kind: str = "text/event-stream") -> None:
        self._start(200, kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _start(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("x-request-id", f"req_{self.model.number:08d}")

    def log_message(self, *_: Any) -> None:
        """Write nothing: the standard error belongs to the application."""


# --- what the model reads ---------------------------------------------------------------------------------------------


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def _after_last_user(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    positions = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    return messages[positions[-1] + 1 :] if positions else messages


def _last_question(messages: Sequence[dict[str, Any]]) -> str:
    """Return what the last user message asks: the text after "Question:" or "Query:", else the whole message."""
    users = [_text(message) for message in messages if message.get("role") == "user"]
    last = users[-1] if users else ""
    marked = _QUESTION.findall(last)
    return str(marked[-1] if marked else last).strip()


def _argument(function: dict[str, Any]) -> str:
    """Return the name of the first required parameter of a tool."""
    schema = function.get("parameters") or {}
    names = [*schema.get("required", ()), *schema.get("properties", {})]
    return str(names[0]) if names else "query"


def _standalone(said: str, question: str) -> str:
    """Return the *question* with its pronouns replaced by the first name in the conversation."""
    asked = [text for text in re.findall(r"(?:user|human)\s*:\s*(.+)", said, re.I) if text.strip() != question]
    named = _NAME.search(" ".join(asked))
    plain = re.sub(r"^and ", "", question, flags=re.I)
    plain = plain[:1].upper() + plain[1:]
    if named is None:
        return plain
    return re.sub(r"\bit\b", named[0], re.sub(r"\bits\b", f"{named[0]}'s", plain))


def _grade(said: str) -> str:
    """Return "yes" if what is graded, the last paragraph, shares two words with what is above it."""
    above, _, graded = said.rpartition("\n\n")
    shared = _words(above.partition("\n\n")[2]) & (_words(graded) - {"ques", "answ", "docu"})
    return "yes" if len(shared) >= 2 else "no"


def _ranked(numbered: list[tuple[str, str]], wanted: set[str]) -> str:
    """Return the choice of documents that a reranker by a model asks for; of equal ones the last comes first."""
    scored = sorted(((len(wanted & _words(text)), int(number)) for number, text in numbered), reverse=True)
    return "\n".join(f"Doc: {number}, Relevance: {min(3 * score + 1, 10)}" for score, number in scored)


def _words(text: str) -> set[str]:
    stems = {word[:4] for word in re.findall(r"\w+", text.lower()) if word not in _STOP_WORDS}
    return stems | ({"open"} if "open" in stems else set())


# --- what the server sends --------------------------------------------------------------------------------------------


def _head(model: str, exchange: Exchange, kind: str) -> dict[str, Any]:
    return {"id": exchange.id, "object": kind, "created": 1_700_000_000, "model": f"{model}-2024-07-18"}


def _usage(exchange: Exchange) -> dict[str, Any]:
    return {
        "prompt_tokens": exchange.input_tokens,
        "completion_tokens": exchange.output_tokens,
        "total_tokens": exchange.input_tokens + exchange.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _tool_calls(exchange: Exchange) -> list[dict[str, Any]]:
    return [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in exchange.tool_calls
    ]


def _finish(exchange: Exchange) -> str:
    return "tool_calls" if exchange.tool_calls else "stop"


def chat_completion(model: str, exchange: Exchange) -> dict[str, Any]:
    """Return the body of a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": exchange.content, "refusal": None}
    if exchange.tool_calls:
        message["tool_calls"] = _tool_calls(exchange)
    choice = {"index": 0, "message": message, "finish_reason": _finish(exchange), "logprobs": None}
    return {**_head(model, exchange, "chat.completion"), "choices": [choice], "usage": _usage(exchange)}


def chat_chunks(model: str, exchange: Exchange, *, usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the bodies of the events of a streamed chat completion."""
    head = _head(model, exchange, "chat.completion.chunk")
    text = exchange.content or ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if exchange.content is not None else None}]
    deltas += [{"content": text[at : at + _PIECE_CHARS]} for at in range(0, len(text), _PIECE_CHARS)]
    for index, call in enumerate(_tool_calls(exchange)):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(exchange), "logprobs": None}]}
    if usage:
        yield {**head, "choices": [], "usage": _usage(exchange)}


def embeddings(request: dict[str, Any]) -> dict[str, Any]:
    """Return the body of an embeddings response; texts that share words get similar vectors."""
    asked = request["input"]
    texts = [asked] if isinstance(asked, str) else list(asked)
    vectors = [embedding(str(text)) for text in texts]
    packed = request.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": b64encode(array("f", vector).tobytes()).decode() if packed else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(str(text).split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request["model"], "usage": usage}


def embedding(text: str) -> list[float]:
    """Return the vector of *text*: the hashed counts of its words, scaled to length 1."""
    counts = [0.0] * DIMENSIONS
    for word in _words(text) or {text}:
        counts[crc32(word.encode()) % DIMENSIONS] += 1.0
    length = math.sqrt(sum(count * count for count in counts))
    return [round(count / length, 4) for count in counts]
