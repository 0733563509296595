"""A real HTTP server that streams a chat completion, for the real OpenAI client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.passed import WORDS
from tests.support.watched import WAIT_S


class Completions(BaseHTTPRequestHandler):
    """Streams a chat completion of `WORDS` as server-sent events; without `stream`, gives it whole."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        common = {"id": "chatcmpl-7", "created": 1, "model": "tiny-2024"}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": "".join(WORDS)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send("application/json", [json.dumps({**common, "object": "chat.completion", "choices": [choice]})])
            return
        chunks = [
            {**common, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": word}}]}
            for word in WORDS
        ]
        self._send("text/event-stream", [*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n"])

    def _send(self, kind: str, parts: list[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for part in parts:
                self.wfile.write(part.encode())
                self.wfile.flush()
        except OSError:  # the client has gone: part of the tests
            pass
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
        pass


@contextmanager
def completions_server() -> Iterator[str]:
    """Base URL of the server while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()
    thread.join(WAIT_S)
