"""Local server of the APIs of several providers: OpenAI's by `model_server`, and those with forms of their own."""

from __future__ import annotations

import json
import socketserver
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from zlib import crc32

import model_server

QUESTION: Final = "How tall is the Eiffel Tower?"
DOCUMENTS: Final = ["The Eiffel Tower is 330 metres tall. It opened in 1889.", "The Louvre is a museum in Paris."]
ANSWER: Final = "The Eiffel Tower is 330 metres tall."
PIECES: Final = ["The ", "Eiffel ", "Tower ", "is ", "330 ", "metres ", "tall."]
THOUGHT: Final = "The documents say how tall it is."
_THINKS: Final = "/thinks"
"""In the path of a request, the name of a model that thinks before it answers."""


class CapturedServer(model_server.ModelServer):
    """Server of the APIs of several providers on a free port of 127.0.0.1, within a `with` block."""

    def __init__(self) -> None:
        super().__init__(DOCUMENTS)
        server = self

        class Handler(_Handler):
            model = server

        self._handler = Handler

    @property
    def root(self) -> str:
        """Address without a path."""
        return self.url.removesuffix("/v1")

    def _write(self, messages: Sequence[dict[str, Any]], question: str) -> str:
        said = "\n".join(model_server._text(message) for message in messages)
        if "[[ ## answer ## ]]" in said:  # the form that DSPy asks for
            return f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"
        if "json_schema" in said:  # the form that Instructor asks for
            return json.dumps({"answer": ANSWER})
        return super()._write(messages, question)


class _Handler(model_server._Handler):
    def do_GET(self) -> None:  # noqa: N802
        if "/_search" in self.path:
            self.do_POST()
        else:
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802
        path = self.path.partition("?")[0]
        kinds = {"/v1/messages": _anthropic, "/v2/chat": _cohere, "/api/chat": _ollama_chat, "/api/generate": _ollama}
        kind = kinds.get(path)
        others = (
            ":generateContent", ":streamGenerateContent", "/_search", "/converse", "/converse-stream", "/query",
            "search.post.search",
        )  # fmt: skip
        if kind is None and not path.endswith(others):
            return super().do_POST()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.model.number += 1
        if path.endswith("/_search"):
            self._send(_elasticsearch(path), headers={"X-Elastic-Product": "Elasticsearch"})
        elif path.endswith("search.post.search"):
            self._send({"value": [{"@search.score": 2.5 - at, "id": f"d{at}", "chunk": text} for at, text in _FOUND]})
        elif path.endswith(":generateContent"):
            self._send(_gemini(ANSWER, "STOP", thinks=_THINKS in path))
        elif path.endswith(":streamGenerateContent"):
            self._stream_events(_data(_gemini_chunks(thinks=_THINKS in path)))
        elif path.endswith("/converse"):
            self._send(_converse(thinks=_THINKS in path))
        elif path.endswith("/converse-stream"):
            self._stream_events(
                map(_amazon_event, _converse_events(thinks=_THINKS in path)), "application/vnd.amazon.eventstream"
            )
        elif path.endswith("/query"):
            self._send(_pinecone())
        elif kind is not None:
            if body.get("stream", path.startswith("/api/")):
                self._stream_events(kind(stream=True))
            else:
                self._send(next(iter(kind(stream=False))))
        return None

    def _send(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self._start(status, "application/json")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _data(bodies: Iterable[Any]) -> Iterator[bytes]:
    for body in bodies:
        yield f"data: {json.dumps(body)}\n\n".encode()


def _anthropic(*, stream: bool) -> Iterator[Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_sequence": None}
    usage = {"input_tokens": 9, "output_tokens": 1}
    if not stream:
        yield {**head, "content": [{"type": "text", "text": ANSWER}], "stop_reason": "end_turn", "usage": usage}
        return
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
            for text in PIECES
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _cohere(*, stream: bool) -> Iterator[Any]:
    usage = {"tokens": {"input_tokens": 9, "output_tokens": 7}}
    if not stream:
        message = {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]}
        yield {"id": "c1", "finish_reason": "COMPLETE", "message": message, "usage": usage}
        return
    yield from _data(
        [
            {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}},
            {
                "type": "content-start",
                "index": 0,
                "delta": {"message": {"content": {"type": "text", "text": ""}}},
            },
            *(
                {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}}
                for text in PIECES
            ),
            {"type": "content-end", "index": 0},
            {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": usage}},
        ]
    )


def _gemini(text: str, reason: str | None, *, thinks: bool = False) -> dict[str, Any]:
    parts = [*([{"text": THOUGHT, "thought": True}] if thinks else []), *([{"text": text}] if text else [])]
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": reason, "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 7, "totalTokenCount": 16}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-x"}


def _gemini_chunks(*, thinks: bool) -> Iterator[dict[str, Any]]:
    if thinks:
        yield _gemini("", None, thinks=True)
        yield from (_gemini(text, None) for text in PIECES)
        yield {**_gemini("", None), "candidates": [{"finishReason": "STOP", "index": 0}]}
    else:
        yield from (_gemini(text, "STOP" if text == PIECES[-1] else None) for text in PIECES)


def _ollama_chat(*, stream: bool) -> Iterator[Any]:
    yield from _ollama_lines(stream=stream, part=lambda text: {"message": {"role": "assistant", "content": text}})


def _ollama(*, stream: bool) -> Iterator[Any]:
    yield from _ollama_lines(stream=stream, part=lambda text: {"response": text})


def _ollama_lines(*, stream: bool, part: Any) -> Iterator[Any]:
    head = {"model": "llama", "created_at": "2026-01-01T00:00:00Z"}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 7, "total_duration": 1}
    if not stream:
        yield {**head, **part(ANSWER), **end}
        return
    for text in PIECES:
        yield json.dumps({**head, **part(text), "done": False}).encode() + b"\n"
    yield json.dumps({**head, **part(""), **end}).encode() + b"\n"


_FOUND: Final = list(enumerate(DOCUMENTS))


def _elasticsearch(path: str) -> dict[str, Any]:
    """Return what the index of *path* finds: passages, only their highlights, or documents with inner hits."""
    hits: list[dict[str, Any]] = [
        {"_index": "d", "_id": f"d{at}", "_score": 2.5 - at, "_source": {"title": f"t{at}", "text": text}}
        for at, text in _FOUND
    ]
    if "/highlights/" in path:
        hits = [{**hit, "_source": {"title": "t"}, "highlight": {"text": [hit["_source"]["text"]]}} for hit in hits]
    elif "/inner/" in path:
        inner = {"passages": {"hits": {"total": {"value": 2, "relation": "eq"}, "max_score": 2.5, "hits": hits}}}
        hits = [{"_index": "d", "_id": "d", "_score": 1.0, "_source": {"title": "t"}, "inner_hits": inner}]
    total = {"value": len(hits), "relation": "eq"}
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    return {"took": 1, "timed_out": False, "_shards": shards, "hits": {"total": total, "max_score": 2.5, "hits": hits}}


def _converse(*, thinks: bool) -> dict[str, Any]:
    thought = {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "s"}}}
    message = {"role": "assistant", "content": [*([thought] if thinks else []), {"text": ANSWER}]}
    return {"output": {"message": message}, "stopReason": "end_turn", **_CONVERSE_END}


_CONVERSE_END: Final[dict[str, Any]] = {
    "usage": {"inputTokens": 9, "outputTokens": 7, "totalTokens": 16},
    "metrics": {"latencyMs": 1},
}


def _converse_events(*, thinks: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    if thinks:
        yield "contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": THOUGHT}}}
        yield "contentBlockStop", {"contentBlockIndex": 0}
    for text in PIECES:
        yield "contentBlockDelta", {"contentBlockIndex": int(thinks), "delta": {"text": text}}
    yield "contentBlockStop", {"contentBlockIndex": int(thinks)}
    yield "messageStop", {"stopReason": "end_turn"}
    yield "metadata", _CONVERSE_END


def _amazon_event(event: tuple[str, dict[str, Any]]) -> bytes:
    """Return a message of Amazon's binary event streams: lengths and a checksum, headers, the body, a checksum."""
    headers = b""
    named = {":event-type": event[0], ":content-type": "application/json", ":message-type": "event"}
    for name, value in named.items():
        headers += struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
    body = json.dumps(event[1]).encode()
    lengths = struct.pack("!II", len(headers) + len(body) + 16, len(headers))
    message = lengths + struct.pack("!I", crc32(lengths)) + headers + body
    return message + struct.pack("!I", crc32(message))


def _pinecone() -> dict[str, Any]:
    matches = [{"id": f"d{at}", "score": 0.9 - at / 2, "values": [], "metadata": {"text": text}} for at, text in _FOUND]
    return {"matches": matches, "namespace": "", "usage": {"readUnits": 1}}


class PostgresHandler(socketserver.StreamRequestHandler):
    """Connection to a PostgreSQL that answers each query with the documents: id, text, metadata, vector, distance."""

    _COLUMNS: Final = {"id": 25, "content": 25, "metadata": 3802, "embedding": 25, "distance": 701}
    """Names of the columns, and ids of their types: text, jsonb, double precision."""

    def handle(self) -> None:
        """Answer the messages of the simple query protocol."""
        self.rfile.read(struct.unpack("!I", self.rfile.read(4))[0] - 4)  # the client's settings
        self._write(b"R", struct.pack("!I", 0))
        for setting in (b"client_encoding\0UTF8\0", b"server_version\x0018.0\0"):
            self._write(b"S", setting)
        self._write(b"Z", b"I")
        columns = struct.pack("!h", len(self._COLUMNS))
        for name, type_ in self._COLUMNS.items():
            columns += name.encode() + b"\0" + struct.pack("!IhIhih", 0, 0, type_, -1, -1, 0)
        while self.rfile.read(1) == b"Q":
            self.rfile.read(struct.unpack("!I", self.rfile.read(4))[0] - 4)
            self._write(b"T", columns)
            for at, text in _FOUND:
                row = (f"doc-{at}", text, '{"page": 3, "lang": "en"}', "[0.1, 0.2]", str(0.1 + at))
                cells = (struct.pack("!i", len(cell.encode())) + cell.encode() for cell in row)
                self._write(b"D", struct.pack("!h", len(row)) + b"".join(cells))
            self._write(b"C", b"SELECT 2\0")
            self._write(b"Z", b"I")

    def _write(self, kind: bytes, body: bytes) -> None:
        self.wfile.write(kind + struct.pack("!I", len(body) + 4) + body)


@contextmanager
def postgres() -> Iterator[int]:
    """Serve PostgreSQL's protocol within a `with` block, and yield the port of 127.0.0.1."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), PostgresHandler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
