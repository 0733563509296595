"""A local HTTP server that takes webhooks, refuses as often as it is told, and keeps what it got."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Post:
    """One request; `headers` by lower-case name."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Hook:
    """Use it as a context manager. `replies` holds (status, headers) of the next answers; then it answers 200."""

    def __init__(self, *replies: tuple[int, Mapping[str, str]]) -> None:
        self.replies = deque(replies)
        self.posts: list[Post] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, headers = hook.replies.popleft() if hook.replies else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._handler = Handler

    @property
    def url(self) -> str:
        """Address of the server, once it is entered."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Hook:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()
