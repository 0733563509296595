"""Local server that speaks as much of the OpenAI protocol as a streamed answer needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REPLY = "The pump moves water. It was built by Zebedee Corporation in 1907."


class ModelServer(ThreadingHTTPServer):
    """A local server that speaks as much of the OpenAI protocol as a stream needs."""

    daemon_threads = True

    def __init__(self, react: Callable[[], None] | None = None, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _ModelHandler)
        self.react, self.status = react, status
        self.asked: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _ModelHandler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        if self.server.react:
            self.server.react()
        self.send_response(self.server.status)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if self.server.status == 200:
            for word in REPLY.split(" "):
                chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
                delta = {"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}
                self.wfile.write(f"data: {json.dumps({**chunk, 'choices': [delta]})}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass
