"""Datadog LLM Observability: traces by OTLP without an agent, scores as evaluations.

Variables: `DD_API_KEY`, `DD_SITE` (default datadoghq.com), `DD_LLMOBS_ML_APP` (default: name of the service). The
traces go to `https://otlp.<site>/v1/traces`; if the documentation names another address for your site, put that into
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`. Its metrics intake wants delta sums: send metrics through an agent or a collector.
Sources: docs.datadoghq.com/llm_observability/instrumentation/otel_instrumentation and .../instrumentation/api.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragtrace.core.errors import SettingsError
from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace.system.urls import displayed_url
from ragtrace_exporters.preset import Backend, Environ, client, preset, required, text
from ragtrace_exporters.score_api import JsonClient, ScoreApi, all_of


@preset("DD_SITE")
def datadog(environ: Environ) -> Backend:
    """Send traces and scores to Datadog."""
    key = required(environ, "datadog", "DD_API_KEY", advice="copy it from the settings of the organization")
    site = text(environ, "DD_SITE") or "datadoghq.com"
    if not re.fullmatch(r"[a-z0-9.-]+", site):
        shown = displayed_url(site) if "@" in site or "//" in site else site  # an address, which may hold secrets
        raise SettingsError(f"DD_SITE must be the name of a site, got {shown!r}; write datadoghq.eu, for example")
    api = client(environ, f"https://api.{site}", {"dd-api-key": key})
    scores = DatadogScores(api, text(environ, "DD_LLMOBS_ML_APP"))
    return Backend(f"https://otlp.{site}", {"dd-api-key": key, "dd-otlp-source": "llmobs"}, scores=scores)


class DatadogScores(ScoreApi):
    """Score sink for Datadog, which posts scores as evaluations of spans, many in one request.

    `POST /api/intake/llm-obs/v2/eval-metric`. For spans that came by OTLP the ids are decimal strings and the tag
    `source:otel` is needed; a label starts with a letter and has only ASCII letters, digits and underscores, at most
    200. The API takes no id, so a score whose answer was lost may be kept twice: its tag `score_id` tells. Sources:
    docs.datadoghq.com/llm_observability/instrumentation/otel_instrumentation, .../instrumentation/api (Evaluations
    API), .../evaluations/external_evaluations.

    Args:
        application: name of the LLM application; "" for the name of the service.
    """

    name, most_at_once = "datadog", 100
    probe_path = "/api/v1/validate"

    def __init__(self, client: JsonClient, application: str = "") -> None:
        super().__init__(client)
        self._application = application

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """Post all *scores* to Datadog in one request, and return the reasons for refused scores by score id."""
        body = {"data": {"type": "evaluation_metric", "attributes": {"metrics": list(map(self._metric, scores))}}}
        reply = self._client.send("POST", "/api/intake/llm-obs/v2/eval-metric", timeout, body)
        return {} if reply.ok else all_of(scores, self._client.refusal(reply))

    def _metric(self, score: ScoreRecord) -> dict[str, Any]:
        tags = {
            "source": "otel",
            "score_id": score.id,
            "evaluator": score.evaluator,
            "annotator": score.annotator,
            "probability": f"{score.probability:g}",
            "label": score.label or "",
            "workflow": score.workflow,
        }
        metric = {
            "join_on": {"span": {"span_id": str(score.span_id), "trace_id": str(score.trace_id)}},
            "ml_app": self._application or score.service or "ragtrace",
            "timestamp_ms": score.time_ns // 1_000_000,
            "metric_type": "score",
            "label": label_of(score.name),
            "score_value": score.value,
            "tags": [f"{key}:{value}" for key, value in tags.items() if value],
        }
        return metric | ({"reasoning": score.explanation} if score.explanation else {})


def label_of(name: str) -> str:
    """Return a metric's *name* as a Datadog label: at most 200 ASCII letters, digits and underscores."""
    label = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return (label if label[:1].isalpha() else f"m_{label}")[:200]
