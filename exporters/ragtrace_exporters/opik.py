"""Opik: traces by OTLP, scores as feedback scores.

Variables: `OPIK_URL_OVERRIDE` (default https://www.comet.com/opik/api; of your own server for instance
http://localhost:5173/api), `OPIK_API_KEY`, `OPIK_WORKSPACE` (both for Comet's cloud), `OPIK_PROJECT_NAME`. It takes
neither metrics nor logs, and OTLP over HTTP only. Source: comet.com/docs/opik/tracing/opentelemetry/overview.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, cast
from uuid import UUID

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.preset import OPENINFERENCE, Backend, Environ, client, preset, required, text, url
from ragtrace_exporters.score_api import OUT_OF_TIME, UNKNOWN_TRACE, JsonClient, ScoreApi, all_of, metadata_of

_CLOUD: Final = "https://www.comet.com/opik/api"
_SUFFIX_CHARS: Final = 22
"""The last three groups of a UUID: all but the time."""
_REMEMBERED: Final = 2_000


@preset("OPIK_URL_OVERRIDE")
def opik(environ: Environ) -> Backend:
    """Send traces and scores to Opik."""
    base, project = url(environ, "OPIK_URL_OVERRIDE", default=_CLOUD), text(environ, "OPIK_PROJECT_NAME")
    key = text(environ, "OPIK_API_KEY")
    if base == _CLOUD:
        key = required(environ, "opik", "OPIK_API_KEY", advice="copy it from your account, or set OPIK_URL_OVERRIDE")
    pairs = {"Authorization": key, "Comet-Workspace": text(environ, "OPIK_WORKSPACE")}
    credentials = {name: value for name, value in pairs.items() if value}
    headers = {**credentials, **({"projectName": project} if project else {})}
    scores = OpikScores(client(environ, base, credentials), project)
    return Backend(f"{base}/v1/private/otel", headers, dialects=OPENINFERENCE, scores=scores)


class OpikScores(ScoreApi):
    """Score sink for Opik, which posts feedback scores of spans, many in one request.

    `PUT /v1/private/spans/feedback-scores`; a score of the same name on the same span is replaced, so of a metric that
    two evaluators score, the later one is shown. Opik gives a span from OTLP an id of its own, a UUID version 7: the
    time of the trace in milliseconds, then the first 80 bits of the SHA-256 of the OpenTelemetry id. That time is the
    server's choice, so we ask for the trace whose id ends with the hash, and wait if there is none yet. Sources:
    comet.com/docs/opik/tracing/opentelemetry/overview, its REST API reference, and the source of comet-ml/opik
    (OpenTelemetryMapper.java, FeedbackScoreBatchItem.java, TraceField.java). Not observed with a real server.

    Args:
        project: where the traces are; "" for the default project.
    """

    name, most_at_once = "opik", 50
    first_after_s = 6.0
    """Spans go out every five seconds, and before them there is nothing to attach a score to."""
    probe_path, probe_query = "/v1/private/projects", {"size": "1"}

    def __init__(self, client: JsonClient, project: str = "") -> None:
        super().__init__(client)
        self._project = project
        self._times: OrderedDict[int, int] = OrderedDict()

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """Post *scores* of all traces that Opik knows, and return the refusals by score id."""
        deadline = monotonic() + timeout
        refusals: dict[str, Refusal] = {}
        found: list[tuple[ScoreRecord, int]] = []
        times: dict[int, int | Refusal] = {}
        for score in scores:
            if score.trace_id not in times:
                times[score.trace_id] = self._time_of(score.trace_id, deadline)
            time = times[score.trace_id]
            if isinstance(time, Refusal):
                refusals[score.id] = time
            else:
                found.append((score, time))
        if found:
            body = {"scores": [self._feedback(score, time) for score, time in found]}
            reply = self._client.send("PUT", "/v1/private/spans/feedback-scores", deadline - monotonic(), body)
            if not reply.ok:
                refusals |= all_of((score for score, _ in found), self._client.refusal(reply))
        return refusals

    def _time_of(self, trace_id: int, deadline: float) -> int | Refusal:
        """Return the timestamp in milliseconds with which Opik's ids of a trace begin, or why it is not known."""
        known = self._times.get(trace_id)
        if known is not None:
            return known
        if monotonic() >= deadline:
            return OUT_OF_TIME
        suffix = str(opik_id(trace_id.to_bytes(16, "big"), 0))[-_SUFFIX_CHARS:]
        query = {"filters": json.dumps([{"field": "id", "operator": "ends_with", "value": suffix}]), "size": "1"}
        if self._project:
            query["project_name"] = self._project
        reply = self._client.send("GET", "/v1/private/traces", deadline - monotonic(), **query)
        if not reply.ok and reply.status != 404:  # 404: no such project yet
            return self._client.refusal(reply)
        time = _time_in(reply.text, suffix) if reply.ok else None
        if time is None:
            return UNKNOWN_TRACE
        self._times[trace_id] = time
        if len(self._times) > _REMEMBERED:
            self._times.popitem(last=False)
        return time

    def _feedback(self, score: ScoreRecord, time_ms: int) -> dict[str, Any]:
        details = ", ".join(f"{key}: {value}" for key, value in metadata_of(score).items())
        feedback = {
            "id": str(opik_id(score.span_id.to_bytes(8, "big"), time_ms)),
            "name": score.name,
            "value": score.value,
            # In a line of its own what Opik has no field for.
            "reason": f"{score.explanation}\n{details}" if score.explanation else details,
            "source": "sdk",
            "category_name": score.label,
            "project_name": self._project,
        }
        return {key: value for key, value in feedback.items() if value not in (None, "")}


def opik_id(otel_id: bytes, time_ms: int) -> UUID:
    """Return Opik's id of the span or trace *otel_id*, made of the trace's time and a hash of *otel_id*."""
    value = bytearray((time_ms & 0xFFFFFFFFFFFF).to_bytes(6, "big") + hashlib.sha256(otel_id).digest()[:10])
    value[6] = value[6] & 0x0F | 0x70
    value[8] = value[8] & 0x3F | 0x80
    return UUID(bytes=bytes(value))


def _time_in(text: str, suffix: str) -> int | None:
    try:
        page = cast("Mapping[str, Any]", json.loads(text))
        ids = [str(trace["id"]) for trace in page["content"]]
    except (ValueError, TypeError, LookupError):
        return None
    return next((UUID(id_).int >> 80 for id_ in ids if id_.endswith(suffix)), None)
