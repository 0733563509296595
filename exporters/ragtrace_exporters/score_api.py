"""Base of score sinks: a client for a backend's JSON API over HTTP, and the meaning of responses for the sent scores.

Requests are made by the library requests, which the OTLP exporter brings anyway: connections are kept, and proxies and
certificate authorities are found in the same variables as for the spans that go to the same backend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace.system import preload
from ragtrace.system.forks import PerProcess
from ragtrace.system.replies import says_no
from ragtrace.system.retry_after import seconds_until_retry
from ragtrace.system.urls import displayed_url, hide_path, hide_secrets

if TYPE_CHECKING:
    from requests import Session

UNKNOWN_TRACE: Final = Refusal("unknown_trace", again=True, detail="the trace has not arrived")
OUT_OF_TIME: Final = Refusal("unavailable", again=True, detail="out of time")
_SHOWN_CHARS: Final = 200
_LATER: Final = frozenset({408, 425, 429, 502, 503, 504})
_SHORTEST_SECRET: Final = 6


@dataclass(frozen=True, slots=True)
class Reply:
    """Response of a backend's server to a request, with status 0 if there was none."""

    status: int
    text: str = ""
    """Text of the body; without an answer, why there is none."""
    after_s: float | None = None
    """Seconds of its Retry-After."""

    @property
    def ok(self) -> bool:
        """Whether the request succeeded: status 200 to 299, with a body that does not say otherwise."""
        return 200 <= self.status < 300 and not self.is_page and not says_no(self.text)

    @property
    def is_page(self) -> bool:
        """Whether the body is HTML, with which no API answers, but a proxy before it may: a login, or "maintenance"."""
        return self.text.lstrip().startswith("<")


class JsonClient:
    """Client of the JSON API of one server, for use by one thread. A forked child gets connections of its own.

    Args:
        base: URL without a final slash.
        headers: sent with every request; they hold secrets and are never shown.
        certificate: file of the authorities that the server's certificate is checked against; None: the usual ones.
    """

    def __init__(self, base: str, headers: Mapping[str, str], certificate: str | None = None) -> None:
        self.base, self.headers, self.certificate = base.rstrip("/"), dict(headers), certificate
        preload.import_modules("requests")
        self._session: PerProcess[Session] = PerProcess(self._new_session, keeps_parents=True)

    def send(self, method: str, path: str, timeout: float, body: object = None, **query: str) -> Reply:
        """Send one HTTP request and return the server's response. Never raises."""
        from requests import RequestException

        try:
            answer = self._session.get().request(
                method,
                self.base + path,
                params=query or None,
                data=None if body is None else json.dumps(body).encode(),
                timeout=max(0.01, timeout),
                allow_redirects=False,  # the key is for this server alone
            )
            return Reply(answer.status_code, answer.text, seconds_until_retry(answer.headers.get("Retry-After")))
        except (RequestException, ValueError) as error:  # a value that is no JSON or no header is a ValueError
            return Reply(0, f"{type(error).__name__}: {error}")

    def _new_session(self) -> Session:
        from requests import Session

        session = Session()
        session.headers.update({"Content-Type": "application/json", **self.headers})
        session.auth = lambda request: request  # else a ~/.netrc would replace the key
        if self.certificate:
            session.verify = self.certificate
        return session

    def refusal(self, reply: Reply) -> Refusal:
        """Return the refusal in *reply*: why the server refused the sent scores, and whether to send them again."""
        detail = self.shown(reply)
        if reply.status == 0 or reply.status in _LATER or (reply.status < 300 and reply.is_page):
            return Refusal("unavailable", again=True, busy=True, after_s=reply.after_s, detail=detail)
        if reply.status >= 500:
            return Refusal("server_error", again=True, detail=detail)
        if reply.status in (401, 403):
            return Refusal("unauthorized", busy=True, detail=detail)
        return Refusal("too_large" if reply.status == 413 else "refused", detail=detail)

    def shown(self, reply: Reply) -> str:
        """Return *reply* as text for the log, without the secrets that the address and request headers contain."""
        text = hide_path(hide_secrets(" ".join(reply.text.split())), self.base)
        for value in self.headers.values():
            for secret in value.split():
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, "***")
        status = f"status {reply.status} " if reply.status else ""
        return f"{status}{text[:_SHOWN_CHARS]}".strip()


class ScoreApi:
    """Base class of score sinks, with a client of the backend's score API and a check of its address and key.

    Args:
        client: client of the API, with the headers that authenticate.
    """

    name: ClassVar[str]
    most_at_once: ClassVar[int]
    """How many scores one call of `post` may be given."""
    probe_path: ClassVar[str]
    """Path that answers a GET if the address and the key are right."""
    probe_query: ClassVar[Mapping[str, str]] = {}

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    @property
    def where(self) -> str:
        """Base URL of the backend's API, without what may be secret in it."""
        return displayed_url(self._client.base)

    def probe(self, timeout: float) -> Refusal | None:
        """Check whether the API accepts the key. Return None if it does, or else the reason. Safe from any thread."""
        other = JsonClient(self._client.base, self._client.headers, self._client.certificate)  # for this thread
        reply = other.send("GET", self.probe_path, timeout, **self.probe_query)
        # Of a failed connection, what it came from is the end of a long story.
        _, _, cause = reply.text.partition("Caused by ")
        return None if reply.ok else self._client.refusal(replace(reply, text=cause or reply.text))


def post_each(
    scores: Sequence[ScoreRecord], timeout: float, post: Callable[[ScoreRecord, float], Refusal | None]
) -> dict[str, Refusal]:
    """Call *post* for each score in turn, and return the refusals by score id.

    Once the server is busy, it is not asked for the other scores; of a trace that it does not know, not for its others.
    """
    deadline, busy = monotonic() + timeout, False
    refusals, unknown = dict[str, Refusal](), set[int]()
    refusal: Refusal | None = None
    for score in scores:
        left = deadline - monotonic()
        if score.trace_id in unknown:
            refusals[score.id] = UNKNOWN_TRACE
            continue
        if not busy:
            refusal = post(score, left) if left > 0 else OUT_OF_TIME
        if refusal is not None:
            refusals[score.id] = refusal
            busy = refusal.busy
            if refusal is UNKNOWN_TRACE:
                unknown.add(score.trace_id)
    return refusals


def all_of(scores: Iterable[ScoreRecord], refusal: Refusal) -> dict[str, Refusal]:
    """Return a mapping that assigns the same *refusal* to the id of each of *scores*."""
    return {score.id: refusal for score in scores}


def metadata_of(score: ScoreRecord, *, label: bool = False) -> dict[str, Any]:
    """Return metadata to store with *score* in a backend: evaluator, metric version, probability and workflow.

    Args:
        label: include the label of the score, for a backend that has no field for it.
    """
    metadata = {
        "score_id": score.id,
        "evaluator": score.evaluator,
        "metric_version": score.metric_version,
        "probability": score.probability,
        "workflow": score.workflow,
        "label": (score.label or "") if label else "",
    }
    return {key: value for key, value in metadata.items() if value != ""}
