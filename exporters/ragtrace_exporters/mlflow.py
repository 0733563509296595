"""MLflow: traces by OTLP, scores as assessments.

Variables: `MLFLOW_TRACKING_URI` (of the tracking server), `MLFLOW_EXPERIMENT_ID` (default 0), `MLFLOW_TRACKING_TOKEN`
or `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`. It takes neither metrics nor logs, and OTLP over HTTP
only. Sources: mlflow.org/docs/latest/genai/tracing/opentelemetry; observed with 3.17.2.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.preset import OPENINFERENCE, Backend, Environ, client, preset, text, url
from ragtrace_exporters.score_api import UNKNOWN_TRACE, ScoreApi, metadata_of, post_each

_REPLACED: Final = "feedback,rationale,metadata"
"""Fields of an assessment that new feedback replaces."""
_SOURCE: Final = {"LLM": "LLM_JUDGE", "CODE": "CODE", "HUMAN": "HUMAN"}


@preset("MLFLOW_TRACKING_URI")
def mlflow(environ: Environ) -> Backend:
    """Send traces and scores to MLflow."""
    base = url(environ, "MLFLOW_TRACKING_URI", advice="write for instance http://localhost:5000")
    experiment, name = text(environ, "MLFLOW_EXPERIMENT_ID"), text(environ, "MLFLOW_EXPERIMENT_NAME")
    if name and not experiment:
        raise SettingsError(
            f"exporter 'mlflow' needs the number of an experiment, got only its name {name!r} (from "
            "MLFLOW_EXPERIMENT_NAME); set MLFLOW_EXPERIMENT_ID to what `mlflow experiments search` shows"
        )
    token, user = text(environ, "MLFLOW_TRACKING_TOKEN"), text(environ, "MLFLOW_TRACKING_USERNAME")
    pair = b64encode(f"{user}:{text(environ, 'MLFLOW_TRACKING_PASSWORD')}".encode()).decode()
    credentials = f"Bearer {token}" if token else f"Basic {pair}" if user else ""
    api_headers = {"authorization": credentials} if credentials else {}
    headers = {"x-mlflow-experiment-id": experiment or "0", **api_headers}
    return Backend(base, headers, dialects=OPENINFERENCE, scores=MlflowScores(client(environ, base, api_headers)))


class MlflowScores(ScoreApi):
    """Score sink for MLflow, which posts scores as assessments of traces.

    `POST /api/3.0/mlflow/traces/{trace}/assessments`, one a request. A trace that has not arrived yet is a 404: the
    score waits for it. An assessment goes by an id that we give, so a repeat breaks a constraint of the database and
    adds nothing; feedback, which people change, then replaces the assessment (`PATCH`). Source: MLflow's tracking
    server (3.17.2: mlflow/protos/assessments.proto, mlflow/server/handlers.py, `_update_assessment`,
    mlflow/store/tracking/sqlalchemy_store.py, `create_assessment`; also observed).
    """

    name, most_at_once = "mlflow", 20
    first_after_s = 6.0
    """Spans go out every five seconds, and before them there is nothing to attach an assessment to."""
    probe_path, probe_query = "/api/2.0/mlflow/experiments/search", {"max_results": "1"}

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """Post *scores* to MLflow one by one, and return the refusals by score id."""
        return post_each(scores, timeout, self._post)

    def _post(self, score: ScoreRecord, timeout: float) -> Refusal | None:
        assessment = _assessment(score)
        path = f"/api/3.0/mlflow/traces/{assessment['trace_id']}/assessments"
        reply = self._client.send("POST", path, timeout, {"assessment": assessment})
        if reply.ok:
            return None
        if reply.status == 404 and "RESOURCE_DOES_NOT_EXIST" in reply.text:
            return UNKNOWN_TRACE
        # Perhaps the server failed because it has this assessment already.
        repeated = reply.status >= 400 and "constraint" in reply.text.lower()
        path = f"{path}/{assessment['assessment_id']}"
        if repeated and self._client.send("GET", path, timeout).ok:
            if score.annotator != "HUMAN":
                return None
            reply = self._client.send("PATCH", path, timeout, {"assessment": assessment, "update_mask": _REPLACED})
        return None if reply.ok else self._client.refusal(reply)


def _assessment(score: ScoreRecord) -> dict[str, Any]:
    assessment = {
        "assessment_id": f"a-{score.id}",
        "assessment_name": score.name,
        "trace_id": f"tr-{score.trace_id:032x}",
        "span_id": f"{score.span_id:016x}",
        "source": {"source_type": _SOURCE[score.annotator], "source_id": score.evaluator},
        "feedback": {"value": score.value},
        "rationale": score.explanation,
        "metadata": {key: str(value) for key, value in metadata_of(score, label=True).items()},
    }
    return {key: value for key, value in assessment.items() if value is not None}
