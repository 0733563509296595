"""Datadog LLM Observability has evaluations of spans.

`POST /api/intake/llm-obs/v2/eval-metric`, several a request. For spans that came by OTLP the ids are decimal strings
and the tag `source:otel` is needed; a label starts with a letter and has only ASCII letters, digits and underscores, at
most 200. The API takes no id, so a score whose answer was lost may be kept twice: its tag `score_id` tells. Sources:
docs.datadoghq.com/llm_observability/instrumentation/otel_instrumentation, .../instrumentation/api (Evaluations API),
.../evaluations/external_evaluations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.sinks.http import JsonClient, all_of

_LABEL_CHARS: Final = 200
_NAMELESS: Final = "ragtrace"


class DatadogScores:
    """Posts evaluations.

    Args:
        client: of its API, with headers with the API key.
        application: name of the LLM application; "" for the name of the service.
    """

    name = "datadog"
    most_at_once = 100

    def __init__(self, client: JsonClient, application: str = "") -> None:
        self._client, self._application = client, application

    @property
    def where(self) -> str:
        """URL of its API."""
        return self._client.where

    def probe(self, timeout: float) -> Refusal | None:
        """Ask for whether the key is valid."""
        return self._client.probe("/api/v1/validate", timeout)

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """All in one request."""
        metrics = [_metric(score, self._application or score.service or _NAMELESS) for score in scores]
        body = {"data": {"type": "evaluation_metric", "attributes": {"metrics": metrics}}}
        reply = self._client.send("POST", "/api/intake/llm-obs/v2/eval-metric", timeout, body)
        return {} if reply.ok else all_of(scores, self._client.refusal(reply))


def _metric(score: ScoreRecord, application: str) -> dict[str, Any]:
    metric: dict[str, Any] = {
        "join_on": {"span": {"span_id": str(score.span_id), "trace_id": str(score.trace_id)}},
        "ml_app": application,
        "timestamp_ms": score.time_ns // 1_000_000,
        "metric_type": "score",
        "label": label_of(score.name),
        "score_value": score.value,
        "tags": _tags(score),
    }
    if score.explanation:
        metric["reasoning"] = score.explanation
    return metric


def _tags(score: ScoreRecord) -> list[str]:
    tags = {
        "source": "otel",
        "score_id": score.id,
        "evaluator": score.evaluator,
        "annotator": score.annotator,
        "probability": f"{score.probability:g}",
        "label": score.label or "",
        "workflow": score.workflow,
    }
    return [f"{key}:{value}" for key, value in tags.items() if value]


def label_of(name: str) -> str:
    """*name* in the characters that a label may have."""
    label = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return (label if label[:1].isalpha() else f"m_{label}")[:_LABEL_CHARS]
