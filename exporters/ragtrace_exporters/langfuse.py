"""Langfuse: traces by OTLP, scores by its API.

Variables: `LANGFUSE_PUBLIC_KEY`, `LANGFUSE_SECRET_KEY`, `LANGFUSE_HOST` or `LANGFUSE_BASE_URL` (default
https://cloud.langfuse.com; for the United States https://us.cloud.langfuse.com), `LANGFUSE_TRACING_ENVIRONMENT`. It
takes neither metrics nor logs, and OTLP over HTTP only. Source: langfuse.com/integrations/native/opentelemetry.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from ragtrace.core import semconv
from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.preset import OPENINFERENCE, Backend, Environ, client, preset, required, text, url
from ragtrace_exporters.score_api import JsonClient, ScoreApi, metadata_of, post_each


@preset("LANGFUSE_HOST", "LANGFUSE_BASE_URL")
def langfuse(environ: Environ) -> Backend:
    """Send traces and scores to Langfuse."""
    base = url(environ, "LANGFUSE_HOST", "LANGFUSE_BASE_URL", default="https://cloud.langfuse.com")
    environment = text(environ, "LANGFUSE_TRACING_ENVIRONMENT")
    advice = "copy it from the settings of the project"
    public = required(environ, "langfuse", "LANGFUSE_PUBLIC_KEY", advice=advice)
    secret = required(environ, "langfuse", "LANGFUSE_SECRET_KEY", advice=advice)
    credentials = {"authorization": f"Basic {b64encode(f'{public}:{secret}'.encode()).decode()}"}
    return Backend(
        f"{base}/api/public/otel",
        # Without the version, traces are shown some ten minutes later.
        {**credentials, "x-langfuse-ingestion-version": "4"},
        dialects=(*OPENINFERENCE, "langfuse"),
        resource={semconv.LANGFUSE_ENVIRONMENT: environment} if environment else {},
        scores=LangfuseScores(client(environ, base, credentials), environment),
    )


class LangfuseScores(ScoreApi):
    """Score sink for Langfuse, which posts scores of observations, and the main scores also as scores of the trace.

    `POST /api/public/scores`, one a request, with our id as the score's; it may come before its trace does. Sources:
    langfuse.com/docs/evaluation/evaluation-methods/scores-via-sdk, and fern/apis/server/definition/scores.yml of
    langfuse/langfuse. That a repeated id replaces the score is Langfuse's word for it, not observed.

    Args:
        environment: the environment that the traces are shown in; "" for the default one.
    """

    name, most_at_once = "langfuse", 20
    probe_path = "/api/public/projects"

    def __init__(self, client: JsonClient, environment: str = "") -> None:
        super().__init__(client)
        self._environment = environment

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """Post *scores* to Langfuse one by one until it is busy, and return the refusals by score id."""
        return post_each(scores, timeout, self._post)

    def _post(self, score: ScoreRecord, timeout: float) -> Refusal | None:
        body = self._score(score)
        bodies = [body]
        if score.headline:  # once more, as a score of the trace
            of_trace = {key: value for key, value in body.items() if key != "observationId"}
            bodies.append({**of_trace, "id": f"{score.id}-trace"})
        deadline = monotonic() + timeout
        for each in bodies:
            reply = self._client.send("POST", "/api/public/scores", deadline - monotonic(), each)
            if not reply.ok:
                return self._client.refusal(reply)
        return None

    def _score(self, score: ScoreRecord) -> dict[str, Any]:
        body = {
            "id": score.id,
            "traceId": f"{score.trace_id:032x}",
            "observationId": f"{score.span_id:016x}",
            "name": score.name,
            "value": score.value,
            "dataType": "NUMERIC",
            "metadata": {**metadata_of(score, label=True), "annotator": score.annotator},
            "comment": score.explanation,
            "environment": self._environment,
        }
        return {key: value for key, value in body.items() if value not in (None, "")}
