"""Local servers that keep what they get and answer as the documentation of a backend says.

    with Backend(langfuse()) as server:
        ...                                             # post to server.url
        server.wait_for(lambda got: len(got.requests) == 2)

A contract is a function of a request that answers (status, body); `server.answer_first(...)` goes before it.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from typing_extensions import Self

WAIT_S: Final = 30.0


@dataclass(frozen=True)
class Request:
    """One request: lower-case headers, and the body as JSON where it is some."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """What is answered."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


Contract = Callable[[Request], Answer]


class Backend:
    """A server on a free port of 127.0.0.1."""

    def __init__(self, contract: Contract = lambda _: Answer()) -> None:
        self._contract = contract
        self._changed = threading.Condition()
        self._first: deque[Answer] = deque()
        self._requests: list[Request] = []
        self.gate = threading.Event()
        """Nothing is answered while it is not set."""
        self.gate.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> tuple[Request, ...]:
        with self._changed:
            return tuple(self._requests)

    def answer_first(self, *answers: Answer) -> None:
        """Give these answers to the next requests, without asking the contract."""
        with self._changed:
            self._first.extend(answers)

    def wait_for(self, condition: Callable[[Self], object], timeout: float = WAIT_S) -> None:
        """Return when *condition* is true; it is looked at after each request."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(self):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"not within {timeout:g} s; got {[r.path for r in self._requests]}")

    def take(self, request: Request) -> Answer:
        """Keep *request*; returns its answer."""
        with self._changed:
            self._requests.append(request)
            answer = self._first.popleft() if self._first else self._contract(request)
            self._changed.notify_all()
        self.gate.wait(WAIT_S)
        return answer

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, backend: Backend) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.backend = backend

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        raw = gzip.decompress(raw) if headers.get("content-encoding") == "gzip" else raw
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        body = json.loads(raw) if raw and headers.get("content-type") == "application/json" else raw
        server = self.server
        assert isinstance(server, _Server)
        answer = server.backend.take(Request(self.command, parts.path, query, headers, body))
        sent = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(sent))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    do_POST = do_PUT = do_PATCH = do_GET = _serve  # noqa: N815 - the names are the standard library's

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
        pass


# --- contracts: sources beside the sinks that are held to them -------------------------------------------------------


@dataclass
class Langfuse:
    """`POST /api/public/scores`: basic authentication; a name, a number and a trace are needed; an id is kept once."""

    credentials: str
    scores: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != self.credentials:
            return Answer(401, {"message": "Invalid credentials"})
        if (request.method, request.path) != ("POST", "/api/public/scores"):
            return Answer(404)
        body = request.body
        wrong = [
            name
            for name, kind in {"name": str, "traceId": str, "value": (int, float), "id": str}.items()
            if not isinstance(body.get(name), kind)
        ]
        if body.get("dataType") not in ("NUMERIC", None):
            wrong.append("dataType")
        if not re.fullmatch(r"[0-9a-f]{32}", body["traceId"]) or not re.fullmatch(
            r"[0-9a-f]{16}", body.get("observationId", "0" * 16)
        ):
            wrong.append("traceId or observationId")
        if wrong:
            return Answer(400, {"message": f"Invalid request data: {wrong}"})
        self.scores[body["id"]] = body
        return Answer(200, {"id": body["id"]})


@dataclass
class Datadog:
    """`POST /api/intake/llm-obs/v2/eval-metric`."""

    key: str
    metrics: list[Mapping[str, Any]] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("dd-api-key") != self.key:
            return Answer(403, {"errors": [{"status": "403", "title": "Forbidden"}]})
        if (request.method, request.path) != ("POST", "/api/intake/llm-obs/v2/eval-metric"):
            return Answer(404)
        data = request.body["data"]
        wrong = [] if data["type"] == "evaluation_metric" else ["type"]
        for metric in data["attributes"]["metrics"]:
            span = metric["join_on"]["span"]
            wrong += [name for name in ("span_id", "trace_id") if not re.fullmatch(r"\d+", span[name])]
            wrong += [name for name in ("ml_app", "label") if not isinstance(metric[name], str) or not metric[name]]
            wrong += [] if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,199}", metric["label"]) else ["label"]
            wrong += [] if isinstance(metric["timestamp_ms"], int) else ["timestamp_ms"]
            wrong += [] if metric["metric_type"] == "score" and isinstance(metric["score_value"], float) else ["score"]
            wrong += [] if "source:otel" in metric["tags"] else ["tags"]
        if wrong:
            return Answer(400, {"errors": [{"detail": f"invalid: {wrong}"}]})
        self.metrics += data["attributes"]["metrics"]
        return Answer(202, {})


@dataclass
class Opik:
    """Traces by filter, and `PUT /v1/private/spans/feedback-scores`: one score a span and name, of ids version 7."""

    key: str
    traces: list[str] = field(default_factory=list)
    """Ids of the traces that have arrived."""
    scores: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != self.key or request.headers.get("comet-workspace") != "team":
            return Answer(401, {"message": "API key should be provided"})
        if (request.method, request.path) == ("GET", "/v1/private/traces"):
            (wanted,) = json.loads(request.query["filters"])
            assert (wanted["field"], wanted["operator"]) == ("id", "ends_with")
            found = [{"id": id_} for id_ in self.traces if id_.endswith(wanted["value"])]
            return Answer(200, {"page": 1, "size": len(found), "total": len(found), "content": found})
        if (request.method, request.path) != ("PUT", "/v1/private/spans/feedback-scores"):
            return Answer(404)
        for score in request.body["scores"]:
            version7 = re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", score["id"])
            if not version7 or not score["name"] or score["source"] not in ("ui", "sdk", "online_scoring"):
                return Answer(422, {"errors": ["scores[0]"]})
            assert isinstance(score["value"], float)
            self.scores[score["id"], score["name"]] = score
        return Answer(204, b"")
