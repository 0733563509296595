"""JSON over HTTP for the sinks, and what an answer means for the scores that were sent.

By requests, which the OTLP exporter brings anyway: connections are kept, and proxies and certificate authorities are
found in the same variables as for the spans that go to the same backend.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any, Final

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace.system import preload

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

_SHOWN_CHARS: Final = 200
_LATER: Final = frozenset({408, 425, 429, 502, 503, 504})
_SHORTEST_SECRET: Final = 6


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered; status 0: nothing."""

    status: int
    text: str = ""
    """Of the body; without an answer, why there is none."""
    after_s: float | None = None
    """Its Retry-After."""

    @property
    def ok(self) -> bool:
        """Whether it did as it was told."""
        return 200 <= self.status < 300


class JsonClient:
    """Sends JSON to one server. For one thread; a forked child gets connections of its own.

    Args:
        base: URL without a final slash.
        headers: sent with every request; they hold secrets and are never shown.
        certificate: file of the authorities that the server's certificate is checked against; None: the usual ones.
    """

    def __init__(self, base: str, headers: Mapping[str, str], certificate: str | None = None) -> None:
        self._base, self._headers, self._certificate = base.rstrip("/"), dict(headers), certificate
        preload.load("requests")
        self._session: Session | None = None
        self._pid = 0

    def send(self, method: str, path: str, timeout: float, body: object = None, **query: str) -> Reply:
        """One request; never raises."""
        from requests import RequestException

        try:
            answer = self._connected().request(
                method,
                self._base + path,
                params=query or None,
                data=None if body is None else json.dumps(body).encode(),
                timeout=max(0.01, timeout),
                allow_redirects=False,  # the key is for this server alone
            )
            return Reply(answer.status_code, answer.text, _told(answer))
        except (RequestException, ValueError) as error:  # a value that is no JSON or no header is a ValueError
            return Reply(0, f"{type(error).__name__}: {error}")

    @property
    def where(self) -> str:
        """Of the server."""
        return self._base

    def probe(self, path: str, timeout: float, **query: str) -> Refusal | None:
        """Whether reading *path* does; over a connection of its own, as it may be asked for from any thread."""
        other = JsonClient(self._base, self._headers, self._certificate)
        reply = other.send("GET", path, timeout, **query)
        # Of a failed connection, what it came from is the end of a long story.
        _, _, cause = reply.text.partition("Caused by ")
        return None if reply.ok else other.refusal(replace(reply, text=cause or reply.text))

    def _connected(self) -> Session:
        if self._session is None or self._pid != os.getpid():
            from requests import Session

            self._session, self._pid = Session(), os.getpid()
            self._session.headers.update({"Content-Type": "application/json", **self._headers})
            self._session.auth = _as_it_is  # else a ~/.netrc would replace the key
            if self._certificate:
                self._session.verify = self._certificate
        return self._session

    def refusal(self, reply: Reply) -> Refusal:
        """What a *reply* that is not ok means for the scores that were sent."""
        detail = self.shown(reply)
        if reply.status == 0 or reply.status in _LATER:
            return Refusal("unavailable", again=True, busy=True, after_s=reply.after_s, detail=detail)
        if reply.status >= 500:
            return Refusal("server_error", again=True, detail=detail)
        if reply.status in (401, 403):
            return Refusal("unauthorized", busy=True, detail=detail)
        return Refusal("too_large" if reply.status == 413 else "refused", detail=detail)

    def shown(self, reply: Reply) -> str:
        """A *reply* for the log, without anything that we sent as a header."""
        text = " ".join(reply.text.split())
        for value in self._headers.values():
            for secret in value.split():
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, "***")
        status = f"status {reply.status} " if reply.status else ""
        return f"{status}{text[:_SHOWN_CHARS]}".strip()


def all_of(scores: Iterable[ScoreRecord], refusal: Refusal) -> dict[str, Refusal]:
    """The same *refusal* for all *scores*."""
    return {score.id: refusal for score in scores}


def metadata_of(score: ScoreRecord) -> dict[str, Any]:
    """What a backend may keep beside a score to tell where it comes from."""
    metadata = {
        "score_id": score.id,
        "evaluator": score.evaluator,
        "metric_version": score.metric_version,
        "probability": score.probability,
        "workflow": score.workflow,
    }
    return {key: value for key, value in metadata.items() if value != ""}


def _as_it_is(request: PreparedRequest) -> PreparedRequest:
    return request


def _told(answer: Response) -> float | None:
    named = answer.headers.get("Retry-After")
    if named is None:
        return None
    try:
        return max(0.0, float(named))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(named).timestamp() - time())
    except (TypeError, ValueError):
        return None
