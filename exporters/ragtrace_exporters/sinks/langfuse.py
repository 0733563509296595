"""Langfuse has scores of observations, and of traces: these get the headline scores, too.

`POST /api/public/scores`, one a request, with our id as the score's; it may come before its trace does. Sources:
langfuse.com/docs/evaluation/evaluation-methods/scores-via-sdk, and fern/apis/server/definition/scores.yml of
langfuse/langfuse. That a repeated id replaces the score is Langfuse's word for it, not observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.sinks.http import JsonClient, metadata_of


class LangfuseScores:
    """Posts numeric scores.

    Args:
        client: of its API, with headers with the project's keys.
        environment: the environment the traces are shown in; "" for the default one.
    """

    name = "langfuse"
    most_at_once = 20

    def __init__(self, client: JsonClient, environment: str = "") -> None:
        self._client, self._environment = client, environment

    @property
    def where(self) -> str:
        """URL of its API."""
        return self._client.where

    def probe(self, timeout: float) -> Refusal | None:
        """Ask for the project that the keys are for."""
        return self._client.probe("/api/public/projects", timeout)

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """One after the other, until one finds the server busy."""
        deadline = monotonic() + timeout
        refusals: dict[str, Refusal] = {}
        busy: Refusal | None = None
        for score in scores:
            refusal = busy or self._post(score, deadline - monotonic())
            if refusal is not None:
                refusals[score.id] = refusal
                busy = refusal if refusal.busy else None
        return refusals

    def _post(self, score: ScoreRecord, timeout: float) -> Refusal | None:
        if timeout <= 0:
            return Refusal("unavailable", again=True, detail="out of time")
        body = _score(score)
        if self._environment:
            body["environment"] = self._environment
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


def _score(score: ScoreRecord) -> dict[str, Any]:
    metadata = {**metadata_of(score), "annotator": score.annotator, **({"label": score.label} if score.label else {})}
    body: dict[str, Any] = {
        "id": score.id,
        "traceId": f"{score.trace_id:032x}",
        "observationId": f"{score.span_id:016x}",
        "name": score.name,
        "value": score.value,
        "dataType": "NUMERIC",
        "metadata": metadata,
    }
    if score.explanation:
        body["comment"] = score.explanation
    return body
